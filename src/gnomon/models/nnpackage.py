"""Reading nnpackage folders: ``metadata/MANIFEST``, the first config, the model files.

Source: ``nnpackage/spec/10_packaging_and_manifest.md`` of Samsung ONE.
"""

from __future__ import annotations

from pathlib import Path

from gnomon.errors import ModelError
from gnomon.formats.config_cfg import ConfigCfg
from gnomon.formats.manifest import MAX_CHARACTERS, parse_manifest
from gnomon.models.files import inside, read_text
from gnomon.models.model import NnPackage

METADATA = "metadata"
MANIFEST = "MANIFEST"
CONFIG = "config.cfg"


def read_nnpackage(folder: Path) -> NnPackage:
    """Reads the package's metadata. Raises ModelError where it is broken or names files outside of itself."""
    path = folder / METADATA / MANIFEST
    if not path.exists():
        raise ModelError(
            f"{folder} has no {METADATA}/{MANIFEST}, so it is no nnpackage",
            hint="give a model file, or a folder that holds metadata/MANIFEST",
        )
    manifest = parse_manifest(read_text(path, MAX_CHARACTERS))
    models = tuple(inside(folder, name, "the MANIFEST") for name in manifest.models)
    config_name = manifest.configs[0] if manifest.configs else None
    config = ConfigCfg()
    if config_name is not None:
        file = inside(folder / METADATA, config_name, "the MANIFEST")
        if file.is_file():
            config = ConfigCfg(text=read_text(file, MAX_CHARACTERS))
    return NnPackage(folder=folder, manifest=manifest, config=config, config_name=config_name, models=models)

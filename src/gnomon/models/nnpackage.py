"""Read and write nnpackage folders: ``metadata/MANIFEST``, the first config, the model files.

A new package gets settings, and is either a copy of another package or made around a bare TFLite or Circle model. It
appears at its destination completely or not at all, and sources are never changed.

Source: ``nnpackage/spec/10_packaging_and_manifest.md`` of Samsung ONE.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gnomon.errors import ModelError, PackageError, system_errors
from gnomon.formats.onert.config import ConfigCfg, with_placement
from gnomon.formats.onert.manifest import MAX_CHARACTERS, Manifest, parse_manifest, write_manifest
from gnomon.models.model import Limits, Model, NnPackage, inside, open_regular, read_text
from gnomon.system.files import staged

METADATA = "metadata"
MANIFEST = "MANIFEST"
CONFIG = "config.cfg"


def read_nnpackage(folder: Path) -> NnPackage:
    """Read the package's metadata. Raises ModelError if it is broken or names files outside the package."""
    path = folder / METADATA / MANIFEST
    if not path.exists():
        raise ModelError(
            f"{folder} has no {METADATA}/{MANIFEST}, so it is not an nnpackage",
            hint="Give a model file, or a folder that contains metadata/MANIFEST.",
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


_PLAIN = re.compile(r"[\w+-][\w.+-]*")


def write_nnpackage(model: Model, dest: Path, settings: Mapping[str, str], *, overwrite: bool = False) -> Path:
    """Write `model` with `settings` in its config.cfg as the package folder `dest`, and return `dest`.

    The existing content of the package's config stays, including comments and order, but keys that control where and
    how fast operators run are removed if `settings` does not set them. Without any settings, everything stays. Raises
    PackageError if `dest` exists (unless `overwrite`), overlaps the source, or cannot be written, if `model` is not a
    TFLite or Circle model, or if a setting cannot be written.
    """
    if model.graph.format not in {"tflite", "circle"}:
        raise PackageError(
            f"an nnpackage holds TFLite or Circle models, but {model.path} is {model.graph.format}",
            hint="Convert the model to Circle first, for example with tico or one-import.",
        )
    dest = Path(dest)
    _check_destination(model.path, dest, overwrite=overwrite)
    hint = "Check the folder, its permissions and its space."
    with system_errors(PackageError, f"the package {dest} cannot be written", hint=hint), staged(dest) as package:
        if model.package is not None:
            _copy_package(model.package, package, settings)
        else:
            _wrap(model, package, settings)
        read_nnpackage(package)
    return dest


def _check_destination(source: Path, dest: Path, *, overwrite: bool) -> None:
    if os.path.lexists(dest):
        if not overwrite:
            raise PackageError(f"{dest} exists already", hint="Choose another folder, or give overwrite=True.")
        if dest.is_symlink() or not (dest / METADATA / MANIFEST).is_file():
            raise PackageError(f"{dest} is not an nnpackage, so it is not replaced", hint="Choose another folder.")
    check_apart(source, dest)


def check_apart(source: Path, destination: Path) -> None:
    """Raise PackageError if a package of `source` would be written over it, into it or around it."""
    here, there = source.resolve(), destination.resolve()
    if here == there or here.is_relative_to(there) or there.is_relative_to(here):
        raise PackageError(f"{destination} overlaps {source}, which must not change", hint="Give another folder.")


def _copy_package(package: NnPackage, target: Path, settings: Mapping[str, str]) -> None:
    _copy_tree(package.folder, target)
    name = package.config_name or CONFIG
    if package.config_name is None:
        manifest = replace(package.manifest, configs=(CONFIG,))
        (target / METADATA / MANIFEST).write_text(write_manifest(manifest), encoding="utf-8")
    config = with_placement(package.config, settings) if settings else package.config
    # It is written under the package's own path, so that a config that other files share is not changed.
    file = target / METADATA / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(config.text, encoding="utf-8", newline="")


def _wrap(model: Model, target: Path, settings: Mapping[str, str]) -> None:
    (target / METADATA).mkdir(parents=True)
    kind = model.graph.format
    stem = model.path.stem
    name = f"{stem if _PLAIN.fullmatch(stem) else 'model'}.{kind}"
    _copy_file(model.path, target / name)
    manifest = Manifest(major_version="1", models=(name,), model_types=(kind,), configs=(CONFIG,))
    (target / METADATA / MANIFEST).write_text(write_manifest(manifest), encoding="utf-8")
    config = ConfigCfg().with_settings(settings)
    (target / METADATA / CONFIG).write_text(config.text, encoding="utf-8", newline="")


def _copy_tree(source: Path, target: Path) -> None:
    """Copy folders and regular files; a link within the package becomes a copy of its target."""
    home = source.resolve()
    target.mkdir(parents=True)
    pending = [(source, target, 0)]
    while pending:
        here, there, depth = pending.pop()
        if depth > 32:
            raise PackageError(f"{here} is nested too deeply for a package", hint="Remove links that form a cycle.")
        for entry in sorted(here.iterdir()):
            if not entry.resolve().is_relative_to(home):
                raise PackageError(
                    f"{entry} is a link that leads out of the package", hint="Copy the file into the package."
                )
            if entry.is_dir():
                (there / entry.name).mkdir()
                pending.append((entry, there / entry.name, depth + 1))
            else:
                _copy_file(entry, there / entry.name)


def _copy_file(source: Path, target: Path) -> None:
    try:
        with open_regular(source, Limits().max_bytes) as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
    except ModelError as error:
        raise PackageError(error.message, hint="Remove it: a package holds only regular files.") from error

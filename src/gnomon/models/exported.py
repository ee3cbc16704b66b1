"""ONNX files that other programs have exported, each marked with the digest of its source."""

from __future__ import annotations

from pathlib import Path

from gnomon.errors import ModelError
from gnomon.models.onnx.cut import save
from gnomon.models.onnx.file import onnx_package

_KEY = "gnomon.written_of"


def adopt(source: Path, dest: Path, digest: str) -> Path:
    """Write a copy of a file with the digest of its source added, completely or not at all; return the copy's path.

    ModelError if the file cannot be read.
    """
    onnx = onnx_package()
    try:
        model = onnx.load(str(source))
    except Exception as error:  # the package may raise any error for a broken file
        raise ModelError(f"{source} cannot be read: {error}", hint="Export it again.") from error
    onnx.helper.set_model_props(model, {_KEY: digest})
    save(model, dest)
    return dest


def written_of(path: Path) -> str | None:
    """The digest that `adopt` put into a file; None for any other file, and if the file does not exist."""
    if not path.is_file():
        return None
    try:
        model = onnx_package().load(str(path), load_external_data=False)
    except Exception:  # a broken file will be written again
        return None
    return next((prop.value for prop in model.metadata_props if prop.key == _KEY), None)

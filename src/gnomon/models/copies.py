"""Copying a model file into a package, with whatever lies beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from gnomon.errors import PackageError


def copy_model(source: Path, target: Path) -> None:
    """Copy a model file; for ONNX also the files that hold its weights. PackageError where that fails."""
    if source.suffix == ".onnx":
        from gnomon.models.onnx.static import copy_onnx

        return copy_onnx(source, target)
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise PackageError(
            f"{source} cannot be copied to {target}: {error.strerror}", hint="Check the folder, its rights and space."
        ) from error
    return None

"""Tells the card that CUDA shows on this machine, and what compiles for it: a line of JSON.

``{"name", "memory_bytes", "target", "compiler"}``, or ``{"lacking"}`` in words. A process of its own, which loads TVM's
small runtime alone: it answers in less than a second, and takes what CUDA holds away with it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from ..frame import absent
from . import kinds


def main() -> None:
    """Print what there is."""
    sys.stdout.write(json.dumps(_told()) + "\n")


def _told() -> dict[str, Any]:
    compiler, lacking = kinds.compiler()
    if lacking:
        return {"lacking": lacking}
    found = importlib.util.find_spec("tvm")
    if found is None or found.origin is None:
        return {"lacking": "Apache TVM is not installed"}
    folder = Path(found.origin).parent / "lib"

    def runtime() -> Any:
        with absent("torch"):
            import tvm_ffi
        ctypes.CDLL(str(folder / "libtvm_runtime.so"), ctypes.RTLD_GLOBAL)
        return tvm_ffi

    try:
        card, lacking = kinds.card_here(runtime, str(folder))
    except Exception as error:  # a broken package may raise anything at import, and a driver's state at a question
        return {"lacking": f"TVM's runtime cannot be asked: {' '.join(str(error).split())[:300]}"}
    return {"lacking": lacking} if lacking else {**card, "compiler": compiler}

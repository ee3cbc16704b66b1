"""Runs a model in onert by its C API, in a process of its own, and returns the trace that onert writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_SCRIPT = """
import ctypes, importlib.util, pathlib, sys
import numpy as np

native = pathlib.Path(importlib.util.find_spec("onert").origin).parent / "native"
library = ctypes.CDLL(str(native / "libonert.so"))
session = ctypes.c_void_p()

class Info(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int), ("rank", ctypes.c_int32), ("dims", ctypes.c_int32 * 6))

def call(name, *arguments):
    status = getattr(library, name)(*arguments)
    assert status == 0, (name, status)

call("nnfw_create_session", ctypes.byref(session))
call("nnfw_load_model_from_file", session, sys.argv[1].encode())
call("nnfw_prepare", session)
kept = []
for kind in ("input", "output"):
    info = Info()
    call(f"nnfw_{kind}_tensorinfo", session, ctypes.c_uint32(0), ctypes.byref(info))
    kept.append(np.ones(info.dims[: info.rank], np.float32))
    data, size = kept[-1].ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(kept[-1].nbytes)
    call(f"nnfw_set_{kind}", session, ctypes.c_uint32(0), ctypes.c_int(0), data, size)
for _ in range(3):
    call("nnfw_run", session)
call("nnfw_close_session", session)
"""


def skip_without_onert() -> None:
    """Skip the test where onert is not installed; asked in another process, as this one never imports a runtime."""
    asked = "import importlib.util, sys; sys.exit(importlib.util.find_spec('onert') is None)"
    if subprocess.run([sys.executable, "-c", asked], check=False, timeout=60).returncode:
        pytest.skip("onert is not installed")


def onert_trace(model: Path, environment: Mapping[str, str], folder: Path) -> bytes:
    """The trace.json of three runs of a float model with one input and one output."""
    skip_without_onert()
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**os.environ, **environment, "TRACING_MODE": "1", "WORKSPACE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(model)], env=whole, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return (folder / "trace.json").read_bytes()

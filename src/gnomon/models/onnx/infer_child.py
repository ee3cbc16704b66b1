"""A program that infers the shapes of the ONNX model on its standard input and writes the model to a file.

It runs as a process of its own because shape inference is C++ code that a hostile file may crash. Its arguments are the
number of bytes that inference may allocate, which is limited to a share of the machine's free memory, and the path of
the file to write. Its exit status is 3 if inference refuses the model.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

OWN_BYTES = 1 << 29
"""Address space for the interpreter, its libraries, and computations with values of shapes."""
SHARE = 0.75
"""The share of the free memory to use. With more, the kernel might kill other programs."""
A_BYTE = 64
"""Address space for each byte of the model, which is parsed, copied and written again."""


def available_bytes() -> int | None:
    """The memory in bytes that the kernel can provide without swapping; None if it does not report this."""
    with suppress(OSError, ValueError, IndexError), Path("/proc/meminfo").open() as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def limit(address_space: int, given: tuple[int, int]) -> None:
    """Limit the address space to this number of bytes, or to the limit that was `given` to this process if that is
    lower.
    """
    soft, hard = given
    wanted = address_space if soft == resource.RLIM_INFINITY else min(address_space, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def compiled_onnx() -> Any:
    """The compiled part of the package onnx, without its Python part, which takes ten times as long to import."""
    package = importlib.util.find_spec("onnx")
    places = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec("onnx_cpp2py_export", places)
    if spec is None or spec.loader is None:
        raise SystemExit("onnx has no compiled part")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Read, infer, write."""
    most, available = int(sys.argv[1]), available_bytes()
    if available is not None:
        most = min(most, int(SHARE * available))
    given = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = sys.stdin.buffer.read()
    # To follow the values of shapes, inference allocates a list as long as the longest vector, so this step has a limit
    # of its own.
    limit(OWN_BYTES + min(most, A_BYTE * len(data)), given)
    inference = compiled_onnx().shape_inference
    check_type = strict_mode = False
    try:
        try:
            inferred = inference.infer_shapes(data, check_type, strict_mode, True)
        except MemoryError:
            limit(OWN_BYTES + most, given)
            inferred = inference.infer_shapes(data, check_type, strict_mode, False)
    except inference.InferenceError as error:
        print(error, file=sys.stderr)
        raise SystemExit(3) from None
    Path(sys.argv[2]).write_bytes(inferred)


if __name__ == "__main__":
    main()

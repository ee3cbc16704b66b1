"""What differs between kinds of targets: processors, for which LLVM compiles, and cards, which CUDA compiles for.

A card is asked for by TVM's small runtime alone. Its kernels are compiled by nvcc or NVRTC where TVM writes a library,
so that who loads it needs neither.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CARD = "cuda"
CARD_TYPE = 2
"""DLPack's number of such devices."""

_DRIVER, _LIBRARY = "libcuda.so.1", "libtvm_runtime_cuda.so"
_MODE, _CUDA, _USUAL = "TVM_CUDA_COMPILE_MODE", "CUDA_PATH", "/usr/local/cuda"
_EXIST, _THREADS, _WARP, _SHARED, _VERSION, _NAME, _REGISTERS, _MEMORY = 0, 1, 2, 3, 4, 5, 9, 14
"""TVM's numbers of a device's attributes."""

_STATIC_SHARED_BYTES = 48 << 10
"""More shared memory than that a kernel has to ask for at each launch, which those of TVM's schedules do not."""

_INNER = ("block", "body", "init", "then_case", "else_case")
_HEADERS = "cuda_runtime.h"
_FAILED = "Compilation error:"


def is_card(target: Any) -> bool:
    """Whether a target of TVM is a card."""
    return str(target.kind.name) == CARD


def load_cuda(folder: str) -> str:
    """Load TVM's runtime for CUDA from the folder of TVM's libraries; what is missing for it, or "".

    TVM's own runtime must be loaded.
    """
    path = Path(folder, _LIBRARY)
    if not path.exists():
        return "this package of TVM has no runtime for CUDA"
    try:
        ctypes.CDLL(str(path), ctypes.RTLD_LOCAL)
    except OSError as error:
        if "libcudart.so" in str(error):
            return f"the runtime of CUDA is missing, or not in LD_LIBRARY_PATH ({error})"
        return f"TVM's runtime for CUDA cannot be loaded ({error})"
    return ""


def card_here(runtime: Callable[[], Any], folder: str) -> tuple[dict[str, Any], str]:
    """The card that CUDA shows first, and "", or nothing and what is missing; `folder` has TVM's libraries.

    Facts: name, memory_bytes, and target, its attributes in TVM's words. `runtime` loads TVM's runtime, which is not
    asked to where there is no driver. CUDA is begun here, which no fork survives: to be asked in a process of its own.
    """
    try:
        ctypes.CDLL(_DRIVER, ctypes.RTLD_LOCAL)
    except OSError as error:
        return {}, f"there is no driver of NVIDIA's ({error})"
    ffi = runtime()
    if lacking := load_cuda(folder):
        return {}, lacking

    def attribute(number: int) -> Any:
        return ffi.get_global_func("runtime.GetDeviceAttr")(CARD_TYPE, 0, number)

    if not attribute(_EXIST):
        return {}, "the driver of NVIDIA shows no card"
    target = {
        "kind": CARD,
        "arch": "sm_" + str(attribute(_VERSION)).replace(".", ""),
        "max_threads_per_block": int(attribute(_THREADS)),
        "max_shared_memory_per_block": min(_STATIC_SHARED_BYTES, int(attribute(_SHARED))),
        "registers_per_block": int(attribute(_REGISTERS)),
        "thread_warp_size": int(attribute(_WARP)),
    }
    return {"name": str(attribute(_NAME)), "memory_bytes": int(attribute(_MEMORY)), "target": target}, ""


def card_name(ffi: Any) -> str:
    """The name of the card, once TVM's runtime for CUDA is loaded."""
    return str(ffi.get_global_func("runtime.GetDeviceAttr")(CARD_TYPE, 0, _NAME))


def compiler() -> tuple[str, str]:
    """What compiles kernels here, nvcc or nvrtc, and ""; or nothing and what is missing."""
    chosen = os.environ.get(_MODE, "").lower()
    if chosen != "nvrtc" and shutil.which("nvcc"):
        return "nvcc", ""
    if chosen == "nvcc":
        return "", f"nvcc, which {_MODE} asks for, is not on the PATH"
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # which finds out whether its library is there
    except Exception as error:  # a package that lacks its library raises what it likes
        nothing = "there is no NVRTC" if chosen else "nvcc is not on the PATH, and there is no NVRTC"
        return "", f"nothing compiles kernels: {nothing} ({_line(error)})"
    headers = Path(os.environ.get(_CUDA) or _USUAL, "include", _HEADERS)
    if not headers.exists():
        return "", f"NVRTC needs CUDA's headers, and there is no {headers}"
    return "nvrtc", ""


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def compiling(module: Any, target: Any) -> Iterator[None]:
    """What is built inside is built for the target: kernels are compiled by what is here, for the card's own version.

    ValueError, in words, for a function that a card would not run, which TVM compiles for the processor in silence; and
    for what the compiler of kernels refuses, of which TVM tells the whole source first.
    """
    if not is_card(target):
        yield
        return
    for name, function in module.functions.items():
        if _computes_apart(function):
            raise ValueError(f"{name.name_hint} binds nothing to a card's threads: its schedule is a processor's")
    mode, lacking = compiler()
    if lacking:
        raise ValueError(lacking)
    os.environ[_MODE] = mode
    os.environ.setdefault(_CUDA, _USUAL)  # TVM would take it from where an nvcc is, which may be a link
    try:
        with target:
            yield
    except RuntimeError as error:
        _, failed, told = str(error).partition(_FAILED)
        if not failed:
            raise
        raise ValueError(f"{mode} refuses a kernel: {' '.join(told.split())[:400]}") from None


def scheduled(module: Any, target: Any) -> Any:
    """The module with a schedule for each function that has none, where code needs one to run at all: on a card.

    They are TVM's own (DLight), the first rule that fits; none uses tensor cores, whose instructions take 15 s to load.
    """
    if not is_card(target):
        return module
    import tvm
    from tvm.s_tir import dlight

    rules, plain = dlight.gpu, {}
    for name, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            plain[name] = function.with_attr("dlight.do_not_tensorize", True)
    module = tvm.IRModule({**module.functions, **plain}, module.attrs, module.global_infos)
    with target:
        return dlight.ApplyDefaultSchedule(
            rules.Matmul(), rules.GEMV(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
        )(module)


def passes(target: Any) -> str:
    """The passes of TVM that make a network of functions. A card's usual ones would schedule them once more."""
    return "default_build" if is_card(target) else "default"


def _computes_apart(function: Any) -> bool:
    """Whether a function stores anything outside of the threads of a kernel."""
    from tvm import tirx

    waiting = [function.body] if isinstance(function, tirx.PrimFunc) else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, tirx.BufferStore):
            return True
        if getattr(one, "thread_binding", None) is not None or getattr(one, "attr_key", "") == "thread_extent":
            continue
        waiting.extend(getattr(one, "seq", ()) or ())
        waiting.extend(inner for name in _INNER if (inner := getattr(one, name, None)) is not None)
    return False


def extern(executable: Any, own: Collection[str], target: Any) -> list[str]:
    """The functions that a compiled network calls beside its own and the virtual machine's.

    ValueError where they are to be for a card: they compute on the processor, which its memory is closed to.
    """
    packed = {line[1:].split()[0] for line in executable.as_text().splitlines() if line.endswith(" packed_func;")}
    found = sorted(name for name in packed - set(own) if not name.startswith("vm.builtin."))
    if found and is_card(target):
        raise ValueError(f"no kernel is made of {', '.join(found[:5])}, which this network calls")
    return found

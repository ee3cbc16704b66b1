"""Compiles an ONNX model with TVM, in a process started for this: see `gnomon.agent.drivers.tvm.library`.

The first steps are those of TVM's pipeline "zero": legalise, fold constants, fuse. After these steps, the functions of
a model are the layers that a tuner knows. The functions are then scheduled by records, and LLVM compiles them for one
processor.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
import types
import zlib
from typing import Any

from ...another import tell
from ...driver import Refused, refusing
from ...lifeline import die_with_parent
from .driver import without_torch

_MOST_RECORDS_BYTES = 256 << 20
_INTRINSICS = "tvm.s_tir.tensor_intrin"


def main() -> None:
    """Answer the single request on standard input with a line of JSON."""
    die_with_parent()
    asked = json.load(sys.stdin)
    try:
        answer = _answer(asked)
    except Refused as error:
        answer = {"refused": str(error)}
    tell(answer)


def _answer(asked: Any) -> dict[str, str]:
    with without_torch():
        import tvm  # import all of TVM while PyTorch is hidden
        from tvm import relax  # noqa: F401

        from .nodes import planned_calls, read_onnx

        traces = _traces(asked["records"])
        with refusing("TVM cannot read the model: ", tell=_said):
            module, inputs, outputs, written = read_onnx(asked["model"], asked["shapes"])
        words: dict[str, object] = {"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu())}
        if lacking := _lacking(words):
            words["mattr"] = lacking
        target = tvm.target.Target(words)
        with refusing("TVM cannot compile the model: ", tell=_said):
            module, calls = planned_calls(module)
            module, scheduled = _scheduled(module, traces, target)
            facts = _export(module, target, asked["library"])
    named = [(name, None if nodes is None else [written[node] for node in nodes]) for name, nodes in calls]
    facts |= {"scheduled": scheduled, "calls": named, "inputs": inputs, "outputs": outputs}
    with open(f"{asked['library']}.json", "w", encoding="utf-8") as file:
        json.dump(facts, file)
    return {}


def _traces(packed: str) -> dict[str, object]:
    """The traces that `gnomon.runtimes.tvm` packed: the digest of a layer -> the trace of its schedule."""
    if not packed:
        return {}
    try:
        plain = zlib.decompressobj()
        text = plain.decompress(base64.b64decode(packed, validate=True), _MOST_RECORDS_BYTES)
        traces = json.loads(text) if plain.eof else None
    except (ValueError, zlib.error, RecursionError) as error:
        raise Refused(f"the tuning records cannot be unpacked: {error}") from error
    if not isinstance(traces, dict):
        raise Refused("the tuning records cannot be unpacked")
    return traces


def _lacking(words: dict[str, object]) -> list[str]:
    """Flags that switch off vector instructions that LLVM expects, given the processor's name, but a virtual machine
    lacks.
    """
    import tvm

    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "").partition(":")[2].split()
    except OSError:
        return []
    has = {flag.replace("_", "") for flag in flags}
    promised = [str(name) for name in tvm.target.codegen.llvm_get_cpu_features(tvm.target.Target(words))]
    vector = [name for name in promised if name.startswith("avx") or name in ("fma", "f16c")]
    return [f"-{name}" for name in sorted(vector) if name.replace("-", "").replace("_", "") not in has] if has else []


def _scheduled(module: Any, traces: dict[str, object], target: Any) -> tuple[Any, int]:
    """The module with the schedules of the records, and the number of functions that have one.

    Refused if there are records but none of them is for a function of this model.
    """
    if not traces:
        return module, 0
    # TVM parses its tensor instructions (15 s) only if a record needs one.
    if '["Tensorize", ' in json.dumps(traces):
        importlib.import_module(_INTRINSICS)
    else:
        sys.modules.setdefault(_INTRINSICS, types.ModuleType(_INTRINSICS))
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    database = ms.database.MemoryDatabase()
    fitting: set[str] = set()
    for function in module.functions.values():
        if not isinstance(function, tvm.tirx.PrimFunc):
            continue
        workload = ms.database.Workload(_normalize_mod(function))
        digest = str(workload.as_json()[0])
        if digest in traces and digest not in fitting:
            workload = database.commit_workload(workload.mod)
            arguments = [a.as_json() for a in ms.arg_info.ArgInfo.from_entry_func(workload.mod, remove_preproc=True)]
            with refusing(f"this TVM cannot read the record of layer {digest}: ", tell=_said):
                record = ms.database.TuningRecord.from_json(
                    [traces[digest], [1.0], {"kind": "llvm"}, arguments], workload
                )
            database.commit_tuning_record(record)
            fitting.add(digest)
    if not fitting:
        raise Refused(
            f"no tuning record (of {len(traces)}) matches a layer of this model; tune the model with the same shapes "
            "and this version of TVM"
        )
    with target, database, tvm.transform.PassContext(opt_level=3):
        module = relax.transform.MetaScheduleApplyDatabase()(module)
    functions = [f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    return module, sum(1 for f in functions if f.attrs is not None and "tirx.is_scheduled" in f.attrs)


def _export(module: Any, target: Any, library: str) -> dict[str, object]:
    """Compile and link; return the number of functions, and which of TVM's own functions are called."""
    import tvm

    own = {str(g.name_hint) for g, f in module.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
    with tvm.transform.PassContext(opt_level=3):
        executable = tvm.compile(module, target=target)
    executable.export_library(library)
    packed = {line[1:].split()[0] for line in executable.as_text().splitlines() if line.endswith(" packed_func;")}
    extern = sorted(name for name in packed - own if not name.startswith("vm.builtin."))
    return {"functions": len(own), "extern": extern}


def _said(error: BaseException) -> str:
    """The last line of TVM's message, which says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:400] if lines else 'no reason given'}"

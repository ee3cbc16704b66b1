"""Conversion of workloads and traces between TVM's objects and JSON."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from ..frame import Refused, refusing

_TUNING = ("fast-", "slow-", "prefer-", "false-deps-", "no-bypass-", "tuning-", "branch", "macrofusion", "sbb-", "use-")


def workload_of(text: str, layer: str) -> Any:
    """The workload of a layer, read from its digest and its base64 text. Refused if TVM cannot read it."""
    with refusing(f"the workload of layer {layer} cannot be read by this TVM", tell=_first_line):
        return ms.database.Workload.from_json([layer, text])


def target_of(given: dict[str, object]) -> Any:
    """The target for a description.

    Refused for a description that TVM does not accept, and for a processor that LLVM does not know: LLVM would only
    print a warning and compile for the most basic processor.
    """
    with refusing("TVM does not accept this target", tell=_first_line):
        target = tvm.target.Target(given)
    cpu, triple = str(target.attrs.get("mcpu", "")), str(target.attrs.get("mtriple", ""))
    if cpu and not tvm.target.codegen.llvm_is_valid_cpu(cpu, triple):
        raise Refused(f"LLVM does not know the target's processor {cpu!r} for {triple or 'this machine'}")
    return target


def lacking(given: dict[str, object], other: dict[str, object]) -> list[str]:
    """The instructions, by LLVM's names, that code for one target may use but the processor of another target lacks."""
    wanted, there = (
        {str(name) for name in tvm.target.codegen.llvm_get_cpu_features(target_of(target))} for target in (given, other)
    )
    return sorted(name for name in wanted - there if not name.startswith(_TUNING))


def as_json(mod: IRModule) -> tuple[str, str]:
    """The digest and base64 text of a function."""
    digest, text = ms.database.Workload(mod).as_json()
    return str(digest), str(text)


def plain(value: Any) -> Any:
    """TVM's containers as lists, dicts, strings and numbers, in the form that TVM's database writes: true becomes 1,
    2.0 becomes 2.

    Otherwise the same configuration would have a different identity after being read from a database.
    """
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, float | str | None):
        return value
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "__iter__"):
        return [plain(v) for v in value]
    return value.value if hasattr(value, "value") else str(value)


def record_of(workload: Any, trace: Any, times_s: list[float], target: Any) -> Any:
    """A MetaSchedule tuning record. Refused if the trace does not fit the workload."""
    if not _decides(trace):
        raise Refused("the trace has a decision for an instruction that leaves nothing to decide")
    arguments = [info.as_json() for info in ms.arg_info.ArgInfo.from_entry_func(workload.mod, remove_preproc=True)]
    with refusing("the trace cannot be read by this TVM", tell=_first_line):
        exported = {str(k): plain(v) for k, v in target.export().items()}
        return ms.database.TuningRecord.from_json([trace, times_s or [1e10], exported, arguments], workload)


def scheduled(workload: Any, trace: Any, target: Any) -> Any:
    """The schedule that a trace produces for a workload (None: the unchanged workload)."""
    schedule = Schedule(workload.mod, debug_mask="none")
    if trace is not None:
        record = record_of(workload, trace, [], target)
        with refusing("the trace cannot be replayed", tell=_first_line):
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule


def _decides(trace: Any) -> bool:
    """Return True if a value has the format of a trace, in which each decision is for a sampling instruction; otherwise
    TVM's reader crashes.
    """
    if not (isinstance(trace, list) and len(trace) == 2 and all(isinstance(part, list) for part in trace)):
        return False
    instructions, decisions = trace
    names = [str(step[0]) if isinstance(step, list) and step else "" for step in instructions]
    return all(
        isinstance(decision, list)
        and len(decision) == 2
        and type(decision[0]) is int
        and 0 <= decision[0] < len(names)
        and names[decision[0]].startswith("Sample")
        and decision[1] is not None
        for decision in decisions
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]

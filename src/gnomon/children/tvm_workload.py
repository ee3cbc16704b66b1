"""Workloads and traces between TVM's objects and JSON."""

from __future__ import annotations

from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from .frame import Refused


def workload_of(text: str, layer: str) -> Any:
    """The workload of a layer from its digest and its base64 text. Refused where TVM cannot read it."""
    try:
        return ms.database.Workload.from_json([layer, text])
    except Exception as error:
        raise Refused(f"the workload of layer {layer} cannot be read by this TVM: {_first_line(error)}") from error


def as_json(mod: IRModule) -> tuple[str, str]:
    """Digest and base64 text of a function."""
    digest, text = ms.database.Workload(mod).as_json()
    return str(digest), str(text)


def plain(value: Any) -> Any:
    """TVM's containers as lists, dicts, texts and numbers, as its database writes them: what is true is 1, 2.0 is 2.

    Otherwise the same configuration would have another identity when it is read from a database.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else value
    if isinstance(value, str) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "__iter__"):
        return [plain(v) for v in value]
    return value.value if hasattr(value, "value") else str(value)


def record_of(workload: Any, trace: Any, times_s: list[float], target: Any) -> Any:
    """A tuning record of MetaSchedule. Refused where the trace does not fit the workload."""
    arguments = [one.as_json() for one in ms.arg_info.ArgInfo.from_entry_func(workload.mod, remove_preproc=True)]
    try:
        exported = {str(k): plain(v) for k, v in target.export().items()}
        return ms.database.TuningRecord.from_json([trace, times_s or [1e10], exported, arguments], workload)
    except Exception as error:
        raise Refused(f"the trace cannot be read by this TVM: {_first_line(error)}") from error


def scheduled(workload: Any, trace: Any, target: Any) -> Any:
    """The schedule of a workload that a trace makes (None: the workload as it is)."""
    schedule = Schedule(workload.mod, debug_mask="none")
    if trace is not None:
        record = record_of(workload, trace, [], target)
        try:
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
        except Exception as error:
            raise Refused(f"the trace cannot be replayed: {_first_line(error)}") from error
    return schedule


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]

"""Adapts the best schedule of a layer to another layer: the same steps, with the splits that come nearest in
proportion.

This is like TVM's anchor traces for fused variants of an operator, but applies to layers with the same structure and
different sizes.
"""

from __future__ import annotations

import math
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from . import workload as tvm_workload

_SPLIT = "SamplePerfectTile"


def plain(trace: Any) -> Any:
    """A trace without unused parts and without anything that postprocessing added: the form in which the database
    stores traces.
    """
    return trace.simplified(remove_postproc=True)


def structure(trace: Any) -> tuple[Any, ...]:
    """The instructions of a plain trace with their inputs and outputs, but without sizes or decisions."""
    return tuple(
        (kind, *(name for name in (*inputs, *outputs) if isinstance(name, str)))
        for kind, inputs, _, outputs in tvm_workload.plain(trace.as_json())[0]
    )


def distance(trace: Any, design: Any) -> float:
    """The difference in size of two layers with the same structure: the sum over all splits of the difference between
    the logarithms of the loops' sizes.
    """
    total = 0.0
    for own, other in zip(trace.insts, design.insts, strict=True):
        if own.kind.name == _SPLIT:
            total += abs(math.log(size(trace, own)) - math.log(size(design, other)))
    return total


def candidate(trace: Any, design: Any, context: Any) -> Any | None:
    """The candidate that schedules a layer as the trace schedules another layer of the same structure.

    `design` is the trace of one of the layer's own designs; both traces are plain. None if the result is not a valid
    schedule.
    """
    carried = design
    for own, other in zip(trace.insts, design.insts, strict=True):
        decision = trace.decisions.get(own)
        if decision is None:
            continue
        if own.kind.name == _SPLIT:
            decision = nearest([int(n) for n in decision], size(design, other), int(other.attrs[1]))
        carried = carried.with_decision(other, decision, remove_postproc=True)
    try:
        schedule = Schedule(context.mod, debug_mask="none")
        carried.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if not all(post.apply(schedule) for post in context.space_generator.postprocs):
            return None
    except Exception:  # a decision that does not apply, such as a place of computation that this layer does not have
        return None
    arguments = ms.arg_info.ArgInfo.from_entry_func(context.mod, remove_preproc=True)
    return ms.MeasureCandidate(schedule, arguments)


def nearest(factors: list[int], whole: int, innermost: int) -> list[int]:
    """The split of a loop of size `whole` nearest to `factors`, chosen from the innermost factor outwards; the
    outermost gets the rest.

    The innermost factor is at most `innermost` (0: any).
    """
    left, split = whole, [1] * len(factors)
    for place in range(len(factors) - 1, 0, -1):
        most = innermost if innermost and place == len(factors) - 1 else left
        fits = [n for n in range(1, min(left, most) + 1) if left % n == 0]
        split[place] = min(fits, key=lambda n: abs(math.log(n / factors[place])))
        left //= split[place]
    return [left, *split[1:]]


def size(trace: Any, instruction: Any) -> int:
    """The size of the loop that an instruction of a trace splits."""
    return math.prod(int(n) for n in trace.decisions[instruction])

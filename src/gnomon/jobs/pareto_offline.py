"""`pareto --from DUMP`: searches over what a dump of pareto_profiler holds, in place of a device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gnomon.core.front import Certificate
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.pareto_files import Recorded, coarse_of, dump_again, load_dump, save_dump
from gnomon.jobs.pareto_points import sampled_points
from gnomon.jobs.pareto_records import Pareto, ParetoRequest
from gnomon.jobs.pareto_search import EXACT, in_one_box, joined, search
from gnomon.measure.environment import Doubt

_RECORDED = "as the dump has it"


def search_dump(asked: ParetoRequest, source: Path) -> Pareto:
    """Search what a dump holds: nothing is measured, so nothing is proved but what its figures say.

    Raises GnomonError: the dump cannot be read, or holds nothing that the searches meet.
    """
    if asked.pick is not None or asked.under:
        raise UsageError("a dump has no model to deploy", hint="Give the model itself, with the same search.")
    if any(plan.strategy == EXACT for plan in asked.plans):
        raise UsageError("a dump has no prices of operators to solve for", hint="Use --search brute.")
    start = time.monotonic()
    dump = load_dump(source, asked.backends)
    evaluate = Recorded(dump, asked.objectives)
    space, code = evaluate.space, evaluate.code
    coarse = coarse_of(dump, space)
    searches = in_one_box([search(space, plan, evaluate, coarse=coarse, clock=time.monotonic) for plan in asked.plans])
    found = joined(searches)
    lacking = sum(t.cost is None for t in found.told)
    if not found.results:
        raise MeasurementError(
            f"the search met nothing that {source} holds, in {len(found.told)} evaluations",
            hint="Use --search brute, or more --iterations.",
        )
    told = [Doubt(kind="dump", message=message, hint="See docs/pareto-formats.md.") for message in dump.doubts]
    if lacking:
        message = f"{lacking} of the {len(found.told)} assignments that were asked for are not in the dump"
        told.append(Doubt(kind="lacking", message=message, hint="They count as failed."))
    if asked.dumpfile is not None:
        save_dump(dump_again(dump, {code(t.assignment) for t in found.told}, asked.plan, found), asked.dumpfile)

    def label(assignment: Sequence[int]) -> str:
        return _dump_label(space.names(assignment), dump.slots)

    return Pareto(
        asked=asked,
        lived=None,
        space=space,
        published=dump.space,
        operator_slots=len(space.slots),
        searched=found,
        searches=searches,
        samples=tuple((code(t.assignment), label(t.assignment)) for t in found.told),
        points=tuple(sampled_points(found.front, code, label)),
        proved=False,
        left_out=0,
        certificate=Certificate(kind="complete" if found.complete and not lacking else "heuristic"),
        prices=dict.fromkeys(asked.objectives, _RECORDED),
        failures=(),
        missing=(),
        doubts=tuple(told),
        seconds=time.monotonic() - start,
        dumpfile=asked.dumpfile,
    )


def _dump_label(names: Sequence[str], slots: Sequence[str]) -> str:
    most = max(dict.fromkeys(names), key=names.count)
    others: dict[str, list[str]] = {}
    for slot, name in zip(slots, names, strict=True):
        if name != most:
            others.setdefault(name, []).append(slot)
    told = [
        f"{name}: {', '.join(members[:3])}" + (" and more" if len(members) > 3 else "")
        for name, members in others.items()
    ]
    return "; ".join([most, *told])

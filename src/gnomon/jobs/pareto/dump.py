"""pareto_profiler's dumps for `pareto`: written from measurements, and searched in place of a device.

A running search saves its dump repeatedly, so that an interrupted search leaves its results behind.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gnomon.core.space import Slot, Space
from gnomon.errors import MeasurementError, ProblemError, UsageError, problems_of, system_errors
from gnomon.formats.pareto.dump import Dump, DumpSolution, read_dump, write_dump
from gnomon.formats.pareto.oplist import is_type
from gnomon.jobs.pareto.document import (
    ParetoDocument,
    objective_parts,
    sample_parts,
    space_part,
)
from gnomon.jobs.pareto.prove import sampled_points
from gnomon.jobs.pareto.search import EXACT, ParetoRequest, Plan, Searched, joined, search, search_parts
from gnomon.jobs.pareto.space import DecisionSpace, Evaluator, mix_in_words, space_by_type
from gnomon.measure.environment import Caveat
from gnomon.search.base import Assignment, Cost
from gnomon.search.hlps import Coarse
from gnomon.session.objectives import LATENCY, MEMORY
from gnomon.system.files import read_regular, save_text

_MOST_BYTES = 64 << 20


def load_dump(path: Path, backends: Sequence[str] = ()) -> Dump:
    """Read a dump from a file. ProblemError for any error in the file."""
    with system_errors(ProblemError, f"the dump {path} cannot be read", hint="Give a JSON file of pareto_profiler."):
        text = read_regular(path, _MOST_BYTES)
    with problems_of(str(path)):
        return read_dump(text, backends or None)


class Recorded:
    """A dump in place of a device: it returns the recorded cost of an assignment, or None if there is none.

    `space` has, for each slot, the backends that occur in the dump. Other backends cannot run the slot's operators, or
    were never tried.
    """

    def __init__(self, dump: Dump, objectives: Sequence[str]) -> None:
        for name in objectives:
            if name not in (LATENCY, MEMORY):
                raise UsageError(f"a dump does not contain {name}", hint=f"It contains {LATENCY} and {MEMORY}.")
        self._dump = dump.space
        self.space = narrowed(dump)
        self._costs: dict[int, Cost] = {}
        for row in dump.solutions:
            both = {LATENCY: row.time_ms * 1e-3, MEMORY: row.memory_kib * 1024.0}
            self._costs[row.id] = tuple(both[name] for name in objectives)

    def __call__(self, assignment: Assignment) -> Cost | None:
        """The cost in each objective."""
        return self._costs.get(self.code(assignment))

    def code(self, assignment: Assignment) -> int:
        """The dump's code of an assignment of the narrowed space."""
        return self._dump.encode(self._dump.indices(self.space.names(assignment)))

    def label(self, assignment: Assignment) -> str:
        """The backend of most slots, then the slots of each other backend."""
        names = self.space.names(assignment)
        most = max(dict.fromkeys(names), key=names.count)
        return "; ".join(mix_in_words(most, self.space.slots, names))


def narrowed(dump: Dump) -> Space:
    """The space of a dump with only the backends that occur in it, slot by slot. ProblemError for an empty dump."""
    if not dump.solutions:
        raise ProblemError("the dump contains no solutions", hint="Give a dump with solutions.")
    seen: list[set[int]] = [set() for _ in dump.slots]
    for row in dump.solutions:
        for used, digit in zip(seen, dump.space.decode(row.id), strict=True):
            used.add(digit)
    return Space(
        tuple(
            Slot(name, tuple(dump.backends[d] for d in sorted(used)))
            for name, used in zip(dump.slots, seen, strict=True)
        )
    )


def coarse_of(dump: Dump, space: Space) -> Coarse | None:
    """For a dump by index whose file names the operator types, the space by type; None for any other dump."""
    if dump.opmap is None or dump.opname_by_indx is None:
        return None
    types = dict(zip(dump.opmap, dump.opname_by_indx, strict=True))
    return space_by_type(space, [f"type {types[group]}" for group in range(len(dump.slots))])


def check_room(extra: Sequence[str]) -> None:
    """Raise UsageError if anything besides the operators' backends is chosen, because the format cannot store it."""
    if extra:
        raise UsageError(
            f"pareto_profiler's dumps cannot store {', '.join(extra)}",
            hint="Leave out --dumpfile, or give each --tuning a single value.",
        )


def check_dumpable(space: DecisionSpace) -> None:
    """Raise UsageError if the published format cannot store a space, before anything is measured."""
    check_room([slot.name for slot in space.space.slots[space.operator_slots :]])
    names = [slot.name for slot in space.space.slots] if space.by == "type" else list(space.kinds)
    strange = next((name for name in names if not is_type(name)), None)
    if strange is not None or not all(map(is_type, space.backends)):
        raise UsageError(
            f"pareto_profiler's dumps cannot store the name {strange or space.backends!r}", hint="Leave out --dumpfile."
        )


def dump_of(space: DecisionSpace, rows: Sequence[tuple[Assignment, float, int]], plan: Plan, outcome: Searched) -> Dump:
    """A dump of the measurements, in milliseconds and KiB, with codes over all backends."""
    solutions = tuple(
        DumpSolution(id=space.code(assignment), time_ms=latency_s * 1e3, memory_kib=memory // 1024)
        for assignment, latency_s, memory in rows
    )
    by_name = space.by == "type"
    brute = plan.strategy == "exhaustive"
    grouping = space.grouping
    return Dump(
        mode="name" if by_name else "index",
        slots=tuple(slot.name for slot in space.space.slots),
        backends=space.backends,
        solutions=solutions,
        opmap=None if by_name or grouping is None else grouping.slot_of,
        oplist=tuple(dict.fromkeys(space.kinds)),
        opname_by_indx=None if by_name else space.kinds,
        sample_count=None if brute else len(outcome.trials),
        profiling_s=None if brute else outcome.seconds,
        spelling="brute-force" if brute else "sampler",
    )


def dump_again(dump: Dump, looked: Collection[int], plan: Plan, outcome: Searched) -> Dump:
    """The part of a dump that a search evaluated; `looked` are the codes of the evaluated assignments."""
    brute = plan.strategy == "exhaustive" and (dump.opmap is None or dump.opname_by_indx is not None)
    return replace(
        dump,
        solutions=tuple(row for row in dump.solutions if row.id in looked),
        configs={code: text for code, text in dump.configs.items() if code in looked},
        sample_count=None if brute else len(outcome.trials),
        profiling_s=None if brute else outcome.seconds,
        spelling="brute-force" if brute else "sampler",
    )


def save_dump(dump: Dump, path: Path) -> None:
    """Write a dump to a file, completely or not at all. UsageError if the file cannot be written."""
    save_text(write_dump(dump), path, what="the dump", option="--dumpfile")


def search_dump(asked: ParetoRequest, source: Path) -> ParetoDocument:
    """Search a dump: nothing is measured, so the front is only as good as the recorded figures.

    Raises GnomonError if the dump cannot be read, or contains none of the assignments that the searches evaluate.
    """
    if asked.pick is not None or asked.under:
        raise UsageError("a dump has no model to deploy", hint="Leave out --pick and --under, or give the model.")
    if any(plan.strategy == EXACT for plan in asked.plans):
        raise UsageError("--search exact needs operator prices, which a dump lacks", hint="Use --search brute.")
    start = time.monotonic()
    dump = load_dump(source, asked.backends)
    evaluate = Recorded(dump, asked.objectives)
    space, code = evaluate.space, evaluate.code
    coarse = coarse_of(dump, space)
    searches = [search(space, plan, evaluate, coarse=coarse) for plan in asked.plans]
    outcome = joined(searches)
    lacking = sum(t.cost is None for t in outcome.trials)
    if not outcome.results:
        raise MeasurementError(
            f"{source} has none of the {len(outcome.trials)} assignments that the search evaluated",
            hint="Use --search brute, or more --iterations.",
        )
    doubts = [Caveat(kind="dump", message=text, hint="See docs/formats/pareto-formats.md.") for text in dump.doubts]
    if lacking:
        message = f"the dump lacks {lacking} of the {len(outcome.trials)} assignments that the search evaluated"
        doubts.append(Caveat(kind="lacking", message=message, hint="They count as failed."))
    if asked.dumpfile is not None:
        save_dump(dump_again(dump, {code(t.assignment) for t in outcome.trials}, asked.plan, outcome), asked.dumpfile)
    complete = outcome.complete and not lacking
    whole, each = search_parts(asked.plans, searches)
    return ParetoDocument(
        source=str(source),
        objectives=objective_parts(asked.objectives, dict.fromkeys(asked.objectives, "as recorded in the dump")),
        space=space_part(space, dump.space, len(space.slots), None),
        search=whole,
        searches=each,
        certificate="complete" if complete else "heuristic",
        samples=sample_parts(evaluate, outcome.trials),
        points=tuple(sampled_points(outcome.front, evaluate)),
        dumpfile=None if asked.dumpfile is None else str(asked.dumpfile),
        doubts=tuple(doubts),
        seconds=time.monotonic() - start,
    )


_SHARE = 0.02
"""The largest share of the time that writing may take, because a long search has a long dump."""


class PartialDump:
    """Writes the requested dump, if any, repeatedly during a search."""

    def __init__(self, asked: ParetoRequest, evaluator: Evaluator) -> None:
        self._asked, self._evaluator = asked, evaluator
        self._start_s = time.monotonic()
        self._next_s = 0.0

    def save(self, evaluations: int) -> None:
        """Save the dump after this many evaluations. A full disk is reported only at the end of the search."""
        path, space, begin_s = self._asked.dumpfile, self._evaluator.space, time.monotonic()
        if path is None or begin_s < self._next_s:
            return
        rows = self._evaluator.dump_rows()
        if not rows:
            return
        none = Searched(space=space.space, trials=(), exhausted=False, seconds=begin_s - self._start_s)
        dump = dump_of(space, rows, self._asked.plan, none)
        with suppress(UsageError):
            save_dump(replace(dump, sample_count=None if dump.sample_count is None else evaluations), path)
        now_s = time.monotonic()
        self._next_s = now_s + (now_s - begin_s) / _SHARE

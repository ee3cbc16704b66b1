"""Compares runs from different times to find whether each configuration and each kernel is faster, slower or the same.

As everywhere in gnomon, fresh processes are the statistical unit; `core.stats.compare_apart` contains the test.
Differences due to other conditions are not results: between different machines, governors or versions, nothing is
compared unless the user declares that this difference is the change. If other processes load only one side, the
interval is widened by their effect.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gnomon.core.codec import fields_of
from gnomon.core.decision import Rule, joint_bounds
from gnomon.core.stats import (
    FEWEST_RUNS,
    Apart,
    Sessions,
    Side,
    by_turns,
    compare_apart,
    compare_by_turns,
    granted_sessions,
    median,
    quantile,
    sessions_of,
)
from gnomon.errors import UsageError
from gnomon.jobs.compare.document import CompareDocument, OperatorsPart, PairPart, SessionsPart, SidePart, VerdictPart
from gnomon.jobs.compare.sides import Side as Named
from gnomon.jobs.compare.sides import earlier_runs, read_side, rows_of
from gnomon.jobs.place.document import ContenderPart
from gnomon.measure.effort import QUANTILE, Clock
from gnomon.models.model import PACKAGE
from gnomon.store.address import RecordAddress

if TYPE_CHECKING:
    from gnomon.jobs.compare.sides import Compared, Configuration
    from gnomon.session.document import EnvironmentPart, SampleColumns

CHANGES = ("machine", "governor", "version", "threads", "shapes", "inputs", "precision", "options")
"""The kinds of differences between two sides that must be declared as intended changes."""

_MACHINE = ("cpu_model", "machine", "cores", "core_kinds", "soc", "gpus", "cpu_flags_sha256", "memory_bytes", "smt")
_OF_MODEL = frozenset({"shapes", "inputs"})
_SAME_MEMORY = 0.01
"""Memory sizes that differ by up to this share count as the same, because kernel versions reserve different amounts."""
_SLOWED = 0.5
"""The relative slow-down of a call that is assumed if other processes use the whole machine, because sharing caches,
memory and cores costs CPU time too. This factor times the difference in load is a standard error that widens intervals.
"""

_ANSWERED = 0.05
"""Differences in load below this share of the machine do not widen intervals."""

SESSIONS = 0.02
"""The difference assumed between runs of the same thing if there are no earlier runs: a standard deviation of 2 %.

An assumption is necessary: a rule that finds a slow-down of 3 % in 95 of 100 pairs on a steady machine would call 29 of
100 pairs of equal runs different on a machine whose sessions differ by 2 %. With one session per side, the runs cannot
show which kind of machine it is.
"""


def compare(
    runs: Sequence[str | Named],
    *,
    record: RecordAddress | None = None,
    alpha: float = 0.01,
    relevant: float = 0.01,
    changed: Iterable[str] = (),
    sessions: float = SESSIONS,
    fail_slower: float | None = None,
) -> CompareDocument:
    """Compare the other runs with the first one; each run is a side that has been read, or its name (see `read_side`).

    All verdicts on configurations hold together with probability 1 - `alpha`, and so do those on the kernels of one
    configuration. Differences within `relevant` (0.01: 1 %) count as the same. `changed` holds the kinds of `CHANGES`
    that were made on purpose. `sessions` is the assumed relative difference between runs of the same thing if the
    results database has too few earlier runs. `fail_slower` is the slow-down that no configuration may reach (see
    `gnomon.core.decision`). UsageError if there is nothing to compare.
    """
    if len(runs) < 2:
        raise UsageError("a comparison needs two runs", hint="For example: gnomon compare last~1 last")
    sides = [read_side(run, record) if isinstance(run, str) else run for run in runs]
    for name, share in {"alpha": alpha, "relevant": relevant, "sessions": sessions}.items():
        if not 0 <= share <= 1 or (name == "alpha" and share in (0, 1)):
            raise UsageError(f"{name} cannot be {share}", hint="Give a share between 0 and 1, such as 0.01.")
    if unknown := set(changed) - set(CHANGES):
        raise UsageError(f"{sorted(unknown)[0]!r} is not a kind of change", hint=f"Kinds: {', '.join(CHANGES)}.")
    _check_sides(sides)
    if all(side.document.model.format == PACKAGE for side in sides):
        changed = {*changed, "threads", "precision", "options", "version"}
    past = History(sides, record, sessions)
    rule = Rule(alpha=alpha / (len(sides) - 1), relevant=relevant, limit=fail_slower)
    pairs = tuple(
        _pair(number, sides[0], side, past, rule=rule, changed=frozenset(changed))
        for number, side in enumerate(sides[1:], 1)
    )
    parts = tuple(map(_side, sides))
    return CompareDocument(alpha=alpha, relevant=relevant, sides=parts, pairs=pairs, fail_slower=fail_slower)


def is_decided(sides: Sequence[Mapping[str, SampleColumns]], clock: Clock, rule: Rule) -> bool:
    """Whether the samples of models measured in turn, by label, suffice to decide every configuration."""
    first, *others = sides
    for side in others:
        levels = {name: (levels_of(first[name], clock), levels_of(side[name], clock)) for name in first if name in side}
        apart = {label: (compare_by_turns(a, b), True) for label, (a, b) in levels.items() if by_turns(a, b)}
        share = replace(rule, alpha=rule.alpha / len(others))
        if len(apart) < len(levels) or not all(bounds.is_decided for bounds in joint_bounds(apart, share).values()):
            return False
    return True


def _check_sides(sides: Sequence[Named]) -> None:
    """UsageError if a side is compared with itself or has two measured configurations with the same label."""
    for number, side in enumerate(sides):
        if number and side.document == sides[0].document:
            raise UsageError(f"both sides are the run {side.document.campaign[:8]}", hint="gnomon runs lists all runs.")
        labels = Counter(row.label for row in rows_of(side.document) if row.runs.samples.process)
        if twice := [label for label, count in labels.items() if count > 1]:
            raise UsageError(f"the run {side.name} has {twice[0]!r} more than once", hint="Give an unedited document.")


def _side(side: Named) -> SidePart:
    document = side.document
    started_at_s = [at_s for row in side.configurations.values() for at_s in row.runs.samples.started_at_s]
    own = {"name": side.name, "model": Path(document.model.path).name, "python": side.python}
    return SidePart(
        **fields_of(SidePart, document) | own,
        model_sha256=document.model.sha256,
        started_at_s=min(started_at_s, default=None),
    )


def _pair(number: int, before: Named, after: Named, past: History, *, rule: Rule, changed: frozenset[str]) -> PairPart:
    kinds = differences(before.document, after.document)
    unlike = [reason for kind, reason in kinds if kind not in changed]
    clock = _clock(before, after)
    old, new = _timed(before), _timed(after)
    both = []
    for label in (label for label in old if label in new):
        unequal = _set_otherwise(old[label], new[label])
        kinds += unequal
        # With other settings, it is another configuration with the same name.
        if {kind for kind, _ in unequal} <= changed:
            both.append(label)
    noted = _noted_turns(before.document, after.document)
    if noted:
        looks = (side.document.look for side in (before, after) if side.document.format == "gnomon-profile")
        rule = replace(rule, alpha=rule.alpha * min(looks, default=1.0))
    rows: tuple[VerdictPart, ...] = ()
    operators: list[OperatorsPart] = []
    if not unlike:
        load, busier = _unequal_load(before.document, after.document)
        apart = {}
        for label in both:
            a, b = (levels_of(side[label].runs.samples, clock) for side in (old, new))
            turns = noted is not None and by_turns(a, b, noted=noted)
            between = _TURNS if turns else past.sessions(label, before, after, clock)
            apart[label] = _apart(a, b, load, between)
        rows = _verdicts(apart, rule, busier)
        steps_s = before.document.resolutions_s
        of_kernels = partial(_operators, rule=replace(rule, limit=None), load=load, reasons=busier)
        operators = [
            of_kernels(label, old[label], new[label], pair.between, steps_s.get(label, 0.0))
            for label, pair in apart.items()
        ]
    return PairPart(
        side=number,
        clock=clock,
        unlike=tuple(dict.fromkeys(reason for kind, reason in kinds if kind not in changed)),
        changed=tuple(dict.fromkeys(reason for kind, reason in kinds if kind in changed)),
        only_before=tuple(label for label in old if label not in both),
        only_after=tuple(label for label in new if label not in both),
        lost=tuple(label for label in ([] if unlike else old) if label not in both and _is_lasting(old[label])),
        configurations=rows,
        operators=tuple(part for part in operators if part.compared),
    )


def _is_lasting(row: Configuration) -> bool:
    """Whether a configuration is measured in every run; plans are not, because they differ from run to run."""
    return not isinstance(row, ContenderPart) or row.kind == "single"


def _noted_turns(before: Compared, after: Compared) -> bool | None:
    """Whether two runs record that they were measured in turn; None if they cannot have been.

    Older documents do not record this: for them, False means that runs on the same device may have been measured in
    turn, which only their times can show.
    """
    if before.format == "gnomon-place" or after.format == "gnomon-place":
        return None
    sides = before.turns, after.turns
    if sides == (None, None):
        alike = before.device == after.device and before.fingerprint == after.fingerprint
        return False if alike else None
    return True if all({before.campaign, after.campaign} <= set(side or ()) for side in sides) else None


def _timed(side: Named) -> dict[str, Configuration]:
    """The configurations of a side that were measured, by label; all of them have wall times."""
    return {label: row for label, row in side.configurations.items() if levels_of(row.runs.samples, "wall").levels_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The difference to expect between runs of a configuration (None: there is none), and its source."""

    sessions: Sessions | None
    part: SessionsPart


_TURNS = Between(sessions=None, part=SessionsPart(known_by="turns", spread=0.0, runs=0, needed=None))
"""The value for sides that were measured in turn."""


class History:
    """How much earlier runs in the results database differ: those of the sides' models, then those of others."""

    def __init__(self, sides: Sequence[Named], record: RecordAddress | None, assumed: float) -> None:
        self._earlier, self._sides, self._record, self._assumed = earlier_runs(sides, record), sides, record, assumed
        self._others: Sequence[Named] | None = None

    def sessions(self, label: str, before: Named, after: Named, clock: Clock) -> Between:
        """The difference between runs of a configuration under equal conditions."""
        sides = (before,) if _same_model(before, after) else (before, after)
        own = [_alike(self._earlier, label, side, clock) for side in sides]
        if (shared := sessions_of(own)) is not None:
            return _known_by("model", shared, own)
        others = self._of_machine(before, clock)
        if (shared := sessions_of(others)) is not None:
            return _known_by("machine", shared, others)
        runs = max(map(_fit, own))
        needed = FEWEST_RUNS - runs
        part = SessionsPart(known_by="assumed", spread=self._assumed, runs=runs, needed=needed)
        return Between(sessions=granted_sessions(self._assumed), part=part)

    def _of_machine(self, side: Named, clock: Clock) -> list[list[Side]]:
        """The runs of other models on the side's machine under equal conditions, grouped by model and configuration."""
        if self._others is None:
            self._others = earlier_runs(self._sides, self._record, of_models=False)
        groups: dict[tuple[str, str], list[Side]] = {}
        for run in self._others:
            apart = {kind for kind, _ in differences(run.document, side.document)}
            if apart <= _OF_MODEL and _by(run, clock):
                for label, row in run.configurations.items():
                    levels = levels_of(row.runs.samples, clock)
                    if levels.levels_s:
                        groups.setdefault((run.document.model.sha256, label), []).append(levels)
        return list(groups.values())


def _fit(group: Sequence[Side]) -> int:
    """The number of runs in a group that `sessions_of` can use: those with several processes."""
    return sum(len(side.levels_s) > 1 for side in group)


def _known_by(who: Literal["model", "machine"], sessions: Sessions, groups: Sequence[Sequence[Side]]) -> Between:
    runs = sum(fit for group in groups if (fit := _fit(group)) > 1)
    part = SessionsPart(known_by=who, spread=math.sqrt(sessions.variance), runs=runs, needed=None)
    return Between(sessions=sessions, part=part)


def _alike(runs: Sequence[Named], label: str, side: Named, clock: Clock) -> list[Side]:
    """The levels of a configuration in runs of a side's model under equal conditions."""
    sides = [
        levels_of(run.configurations[label].runs.samples, clock)
        for run in runs
        if label in run.configurations
        and _same_model(run, side)
        and not differences(run.document, side.document)
        and not _set_otherwise(run.configurations[label], side.configurations[label])
        and _by(run, clock)
    ]
    return [levels for levels in sides if levels.levels_s]


def _by(run: Named, clock: Clock) -> bool:
    return clock == "wall" or run.document.clock == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """Two sides, their difference, and the difference that is assumed between any two runs.

    `moved` is the error that the machine's own drift adds, as far as it was observed. If the sides are `paired`, each
    process was compared with its neighbour.
    """

    before: Side
    after: Side
    apart: Apart
    between: Between
    moved: float
    paired: bool = False


def _apart(a: Side, b: Side, load: float, between: Between, resolution_s: float = 0.0) -> _Comparison:
    # Two clocks that count in steps are each off by up to half a step: uniformly distributed, and the same in all
    # processes.
    steps = resolution_s / math.sqrt(6) / median((*a.levels_s, *b.levels_s))
    load = math.hypot(load, steps)
    if between is _TURNS and by_turns(a, b):
        beside = compare_by_turns(a, b, doubt=steps)
        return _Comparison(before=a, after=b, apart=beside, between=between, moved=beside.drift, paired=True)
    apart = compare_apart(a, b, doubt=load, sessions=between.sessions)
    seen = apart
    if between.part.known_by == "assumed" and between.sessions is not None:
        seen = compare_apart(a, b, doubt=load)
    return _Comparison(before=a, after=b, apart=apart, between=between, moved=seen.drift)


def _same_model(a: Named, b: Named) -> bool:
    return a.document.model.sha256 == b.document.model.sha256


def _clock(before: Named, after: Named) -> Clock:
    """CPU time if it decided both sides and is fine enough, otherwise wall time, which all sides have."""
    if not before.document.clock == after.document.clock == "cpu":
        return "wall"
    old, new = _timed(before), _timed(after)
    both = [row for label in old if label in new for row in (old[label], new[label])]
    return "cpu" if all(_counted(row.runs.samples) for row in both) else "wall"


def _counted(samples: SampleColumns) -> bool:
    """Whether CPU time is positive for every block; a clock that counts in ticks may have counted none."""
    values = samples.cpu_us
    return values is not None and all(block and quantile(block, QUANTILE["cpu"]) > 0 for block in values)


def levels_of(samples: SampleColumns, clock: Clock) -> Side:
    """One level per process, the median of its blocks' levels by the clock, and the moment at which the process ran."""
    values = samples.cpu_us if clock == "cpu" else samples.wall_us
    levels: dict[int, list[float]] = {}
    moments: dict[int, list[float]] = {}
    for process, at_s, block in zip(samples.process, samples.started_at_s, values or (), strict=bool(values)):
        if block:
            levels.setdefault(process, []).append(quantile(block, QUANTILE[clock]) * 1e-6)
            moments.setdefault(process, []).append(at_s)
    order = [process for process in levels if min(levels[process]) > 0]
    return Side(
        levels_s=tuple(median(levels[process]) for process in order),
        moments_s=tuple(median(moments[process]) for process in order),
    )


def _verdicts(pairs: Mapping[str, _Comparison], rule: Rule, reasons: tuple[str, ...]) -> tuple[VerdictPart, ...]:
    bounds = joint_bounds({label: (pair.apart, pair.paired) for label, pair in pairs.items()}, rule)
    return tuple(
        VerdictPart(
            **fields_of(VerdictPart, pair.apart),
            label=label,
            low=bounds[label].low or None,
            high=bounds[label].high if math.isfinite(bounds[label].high) else None,
            verdict=bounds[label].change,
            processes=(len(pair.before.levels_s), len(pair.after.levels_s)),
            moved=pair.moved,
            # If the sides were measured in turn, other load affects both, so it widens no interval.
            differs=() if pair.paired else reasons,
            sessions=pair.between.part,
            gate=bounds[label].gate,
            sees=bounds[label].sees,
        )
        for label, pair in pairs.items()
    )


def _operators(
    label: str,
    old: Configuration,
    new: Configuration,
    between: Between,
    resolution_s: float,
    *,
    rule: Rule,
    load: float,
    reasons: tuple[str, ...],
) -> OperatorsPart:
    """The changed kernels among those that both sides have under the same name, in order of execution.

    The sessions of a kernel are assumed to differ as much as those of the whole model. The profiler counts in steps of
    `resolution_s`.
    """
    left, right = _kernels(old), _kernels(new)
    apart = {
        name: _apart(a, right[name], load, between, resolution_s)
        for name, a in left.items()
        if name in right and a.levels_s and right[name].levels_s
    }
    rows = _verdicts(apart, rule, reasons)
    changed = tuple(row for row in rows if row.verdict in ("slower", "faster"))
    return OperatorsPart(label=label, compared=len(apart), changed=changed)


def _kernels(row: Configuration) -> dict[str, Side]:
    """The levels of each kernel by process; kernels with the same name are numbered."""
    profile = row.runs.profile
    if profile is None:
        return {}
    sides: dict[str, Side] = {}
    turns: dict[str, int] = {}
    for name, times in zip(profile.name, profile.wall_us, strict=True):
        turns[name] = turns.get(name, 0) + 1
        levels = [(t * 1e-6, float(p)) for t, p in zip(times, profile.process, strict=True) if t]
        sides[name if turns[name] == 1 else f"{name} #{turns[name]}"] = Side(
            levels_s=tuple(t for t, _ in levels), moments_s=tuple(p for _, p in levels)
        )
    return sides


def differences(before: Compared, after: Compared) -> list[tuple[str, str]]:
    """The differences that rule out a comparison, each as a kind of `CHANGES` and a sentence."""
    unequal: list[tuple[str, str]] = []
    a, b = before.fingerprint, after.fingerprint
    for key in _MACHINE:
        first, second = a.get(key), b.get(key)
        if first == second or (
            key == "memory_bytes"
            and isinstance(first, int)
            and isinstance(second, int)
            and math.isclose(first, second, rel_tol=_SAME_MEMORY)
        ):
            continue
        what = "the flags of the processor" if key.endswith("sha256") else key.replace("_", " ")
        shown = f": {first} and {second}" if key in ("cpu_model", "machine", "cores", "memory_bytes") else ""
        unequal.append(("machine", f"the machines differ in {what}{shown}"))
    if a.get("governor") != b.get("governor"):
        unequal.append(("governor", f"the frequency governors differ: {a.get('governor')} and {b.get('governor')}"))
    threads = before.threads, after.threads
    if all(threads) and threads[0] != threads[1] and not (_has_settings(before) and _has_settings(after)):
        what = " and ".join(", ".join(map(str, counts)) for counts in threads)
        unequal.append(("threads", f"the numbers of threads differ: {what}"))
    for name in sorted(before.versions.keys() & after.versions.keys()):
        if before.versions[name] != after.versions[name]:
            unequal.append(
                ("version", f"the {name} versions differ: {before.versions[name]} and {after.versions[name]}")
            )
    signatures = [document.conditions.signature for document in (before, after) if document.conditions]
    if len(set(signatures)) > 1:
        unequal.append(("inputs", f"the signatures differ: {' and '.join(map(repr, signatures))}"))
    sides = _fed(before), _fed(after)
    for place, kind in ((1, "shapes"), (2, "inputs")):
        values = [[fed[place] for fed in side] for side in sides]
        if values[0] != values[1] and None not in (*values[0], *values[1]):
            both = (", ".join(f"{fed[0]} {fed[place]}" for fed in side) for side in sides)
            unequal.append((kind, f"the {kind} differ: {' and '.join(both)}"))
    return unequal


def _has_settings(document: Compared) -> bool:
    return all(row.settings for row in rows_of(document))


def _fed(document: Compared) -> list[tuple[str, list[int] | None, str | None]]:
    """The inputs of a run, with their shapes and data. An older document has only shapes."""
    if document.conditions and document.conditions.inputs:
        return [(fed.name, list(fed.shape), fed.sha256 or fed.fed) for fed in document.conditions.inputs]
    tensors = document.graph.tensors
    shapes = [(tensors.name[i], tensors.shape[i]) for i in document.graph.inputs]
    return [(name, None if shape is None else list(shape), None) for name, shape in shapes]


def _setting(value: object) -> object:
    """A setting as people write it; for a declared command, its command line."""
    return shlex.join(value["run"]) if isinstance(value, Mapping) and "run" in value else value


def _set_otherwise(before: Configuration, after: Configuration) -> list[tuple[str, str]]:
    """The differences between the settings of two configurations with the same name, each as in `differences`."""
    a, b = before.settings, after.settings
    return [
        (
            key if key in CHANGES else "options",
            f"{name} differs in {key}: {_setting(a[name].get(key))} and {_setting(b[name].get(key))}",
        )
        for name in sorted(a.keys() & b.keys())
        for key in sorted(a[name].keys() | b[name].keys())
        if a[name].get(key) != b[name].get(key)
    ]


def _unequal_load(before: Compared, after: Compared) -> tuple[float, tuple[str, ...]]:
    """The standard error that unequal load on the two sides adds, and a sentence about it."""
    first, second = (_load(document.environments) for document in (before, after))
    if first is None or second is None or abs(first - second) < _ANSWERED:
        return 0.0, ()
    reason = f"other processes and virtual machines used {first:.0%} of the machine before, {second:.0%} after"
    return _SLOWED * abs(first - second), (reason,)


def _load(environments: Sequence[EnvironmentPart]) -> float | None:
    shares = [part.others_share + (part.steal_share or 0.0) for part in environments if part.others_share is not None]
    return median(shares) if shares else None

"""The request and the search of `pareto`: a strategy asks, an evaluation answers, and the progress is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnomon.core.brief import brief
from gnomon.core.codec import fields_of
from gnomon.core.front.dominance import MOST_OBJECTIVES, hypervolume, nondominated
from gnomon.core.graph import By
from gnomon.core.space import Space, decimal
from gnomon.errors import UsageError
from gnomon.jobs.pareto.document import SearchPart
from gnomon.search.base import Assignment, Cost, Evaluation
from gnomon.search.driver import Evaluate, known_strategies, load_strategy, make_strategy, run
from gnomon.search.hlps import Coarse
from gnomon.search.simple import MOST_ASSIGNMENTS
from gnomon.session.objectives import LATENCY, MEMORY
from gnomon.session.request import ModelRequest

EXACT = "exact"
_ALIASES = {"brute": "exhaustive"}
USUAL_ITERATIONS = 100
"""The number of evaluations of a strategy that would not end on its own, if none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A search to run: the strategy's name, its seed, and the number of evaluations (None: the usual number).

    Brute force without a number evaluates the whole space.
    """

    name: str = "hlps"
    seed: int = 0
    iterations: int | None = None

    @property
    def strategy(self) -> str:
        """The name of the strategy behind the plan."""
        return _ALIASES.get(self.name, self.name)

    def budget(self, space: Space) -> int:
        """The number of evaluations allowed in a space. UsageError for a space that is too large to enumerate."""
        if self.iterations is not None:
            return self.iterations
        if self.strategy != "exhaustive":
            return min(USUAL_ITERATIONS, space.size)
        if space.size > MOST_ASSIGNMENTS:
            size = decimal(space.size) if space.size < 10**30 else "more than 10^30"
            raise UsageError(
                f"the space has {size} assignments, too many to evaluate them all",
                hint="Use --search hlps, coarser slots (--by type), or evaluate fewer with --iterations.",
            )
        return space.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRequest:
    """The objectives, the choices, the search, and the use of the front.

    `request` has the model and the device to measure; it is None if a dump (`source`) takes the place of the device.
    `backends` are the meanings of the dump's digits, if given. `options` are tunings of the runtime with the values to
    try; no values mean the usual ones. With `all_cores`, the option `threads` gets two values, 1 and the number of
    usable cores, if all runtimes have this option. `others` are further searches to compare with `plan`. `pick` is the
    number of a point on the front, and `under` has bounds on objectives in seconds, bytes or joules; the chosen point
    is written to `out` and verified. `dumpfile` receives all measurements. `counters` are the device's energy counters
    to add up; without any, those of the whole machine are used.
    """

    request: ModelRequest | None = None
    source: Path | None = None
    backends: tuple[str, ...] = ()
    objectives: tuple[str, ...] = (LATENCY, MEMORY)
    by: By = "type"
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    all_cores: bool = False
    plan: Plan = field(default_factory=Plan)
    others: tuple[Plan, ...] = ()
    counters: tuple[str, ...] = ()
    pick: int | None = None
    under: Mapping[str, float] = field(default_factory=dict)
    out: Path | None = None
    overwrite: bool = False
    dumpfile: Path | None = None

    __repr__ = brief

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All searches, beginning with `plan`."""
        return (self.plan, *self.others)


def check_plans(plans: Sequence[Plan]) -> None:
    """Raise UsageError for searches that do not exist, or that cannot be combined.

    RuntimeMissingError for a search that lacks a package here, before another search has run for hours.
    """
    searches = (*known_strategies(), *_ALIASES, EXACT)
    for plan in plans:
        if plan.name not in searches:
            raise UsageError(f"there is no search {plan.name!r}", hint=f"Searches: {', '.join(searches)}.")
    names = [plan.strategy for plan in plans]
    if len(set(names)) < len(names):
        raise UsageError("a search is named twice", hint="Name each --search once.")
    if EXACT in names and len(names) > 1:
        raise UsageError(
            "--search exact has its own prices, so other searches cannot be compared with it",
            hint="Give --search exact alone.",
        )
    for name in names:
        if name != EXACT:
            load_strategy(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The outcome of a search: every trial in order.

    `replayed` is the number of evaluations that were already in the results database. `exhausted` is True if the
    strategy has nothing more to ask. `beside` are further results that the proof measures with the front.
    """

    space: Space
    trials: tuple[Evaluation, ...]
    exhausted: bool
    seconds: float
    replayed: int = 0
    beside: tuple[Evaluation, ...] = ()

    @property
    def results(self) -> tuple[Evaluation, ...]:
        """The trials that did not fail."""
        return tuple(t for t in self.trials if t.cost is not None)

    @property
    def front(self) -> tuple[Evaluation, ...]:
        """The results that no other dominates, in order of the first objective."""
        results = self.results
        return tuple(results[i] for i in nondominated([t.cost for t in results if t.cost])) if results else ()

    @property
    def complete(self) -> bool:
        """Return True if every assignment of the space was evaluated."""
        return len(self.trials) == self.space.size


def search(
    space: Space,
    plan: Plan,
    evaluate: Evaluate,
    *,
    coarse: Coarse | None = None,
    on_told: Callable[[Evaluation], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Searched:
    """Run a strategy over a space until its budget is spent, it has nothing more to ask, or `stop` returns True.

    With `coarse`, HLPS first searches the coarse space, with at most half of the evaluations. Errors of `evaluate` are
    not caught.
    """
    start = time.monotonic()
    budget = plan.budget(space)
    options: dict[str, object] = {}
    if plan.strategy == "hlps" and coarse is not None:
        options = {"coarse": coarse, "samples": max(1, budget // 2, budget - coarse.space.size)}
    elif plan.strategy == "hlps":
        options = {"samples": max(1, budget)}
    strategy = make_strategy(plan.strategy, space, seed=plan.seed, **options)
    trail = run(strategy, evaluate, budget=budget, on_told=on_told, stop=stop)
    if trail.exhausted and "coarse" in options and len(trail.told) < budget:
        # Each phase had its own limit. What both left over is spent now, starting from the points that they found.
        more = make_strategy(plan.strategy, space, seed=plan.seed, samples=budget)
        trail = run(more, evaluate, budget=budget, told=trail.told, on_told=on_told, stop=stop)
    took_s = time.monotonic() - start
    return Searched(space=space, trials=trail.told, exhausted=trail.exhausted, seconds=took_s)


def joined(searches: Sequence[Searched]) -> Searched:
    """Several searches of the same space as one search: each assignment once, with its first result."""
    if len(searches) == 1:
        return searches[0]
    trials: dict[Assignment, Evaluation] = {}
    for result in (trial for outcome in searches for trial in outcome.trials):
        trials.setdefault(result.assignment, result)
    return Searched(
        space=searches[0].space,
        trials=tuple(trials.values()),
        exhausted=all(outcome.exhausted for outcome in searches),
        seconds=sum(outcome.seconds for outcome in searches),
        replayed=sum(outcome.replayed for outcome in searches),
    )


def search_parts(plans: Sequence[Plan], searches: Sequence[Searched]) -> tuple[SearchPart, tuple[SearchPart, ...]]:
    """The document parts of all searches of a space, together and one by one, with their volumes.

    Volumes are shares of the box around all results. `reference` is the corner of this box, a tenth beyond the worst
    result in each objective. A point that is the best in all objectives would have a volume of 1. Corner and volumes
    are empty if there are too many objectives to compute volumes. Volumes are also empty for prices, because nothing
    was run.
    """
    whole = joined(searches)
    ideal, reference = _box(whole.trials)

    def part(name: str, plan: Plan, outcome: Searched) -> SearchPart:
        predicted = plan.strategy == EXACT
        return SearchPart(
            name=name,
            strategy=plan.strategy,
            seed=plan.seed,
            evaluations=0 if predicted else len(outcome.trials),
            predicted=predicted,
            failed=sum(t.cost is None for t in outcome.trials),
            volume=tuple(_volumes(outcome.trials, ideal, reference)) if ideal and not predicted else (),
            reference=reference,
            **fields_of(SearchPart, outcome),
        )

    each = tuple(part(plan.name, plan, outcome) for plan, outcome in zip(plans, searches, strict=True))
    return part(" and ".join(plan.name for plan in plans), plans[0], whole), each


def _box(trials: Sequence[Evaluation]) -> tuple[Cost, Cost]:
    """The best value of each objective, and the corner a tenth beyond the worst; empty for too many objectives."""
    costs = [t.cost for t in trials if t.cost is not None]
    if not costs or len(costs[0]) > MOST_OBJECTIVES:
        return (), ()
    ideal = tuple(min(column) for column in zip(*costs, strict=True))
    worst = [max(column) for column in zip(*costs, strict=True)]
    return ideal, tuple(w + 0.1 * max(w - i, abs(w), 1e-12) for w, i in zip(worst, ideal, strict=True))


def _volumes(trials: Sequence[Evaluation], ideal: Cost, reference: Cost) -> Iterator[float]:
    """The share of the box between ideal and reference that is dominated after each result."""
    scaled: list[tuple[float, ...]] = []
    share = 0.0
    for result in trials:
        if result.cost is not None:
            new = tuple((c - i) / (r - i) for c, i, r in zip(result.cost, ideal, reference, strict=True))
            if not any(all(a <= b for a, b in zip(old, new, strict=True)) for old in scaled):
                scaled = [old for old in scaled if not all(a <= b for a, b in zip(new, old, strict=True))] + [new]
                share = hypervolume(scaled, (1.0,) * len(ideal))
        yield share


def spread(costs: Sequence[Cost], count: int) -> tuple[int, ...]:
    """The indices of at most `count` representative points: the ends, then the points that add the most volume.

    The indices are in the order in which the points were chosen. If there are too many objectives to compute volumes,
    points at equal steps are taken.
    """
    if len(costs) <= count:
        return tuple(range(len(costs)))
    objectives = len(costs[0])
    if objectives > MOST_OBJECTIVES:
        return tuple(sorted({round(k * (len(costs) - 1) / max(count - 1, 1)) for k in range(count)}))
    low = [min(c[j] for c in costs) for j in range(objectives)]
    span = [max(c[j] for c in costs) - low[j] or 1.0 for j in range(objectives)]
    scaled = [tuple((v - a) / s for v, a, s in zip(c, low, span, strict=True)) for c in costs]
    ends = (min(range(len(scaled)), key=lambda i: scaled[i][j]) for j in range(objectives))
    chosen = list(dict.fromkeys(ends))[:count]
    corner = (1.1,) * objectives
    while len(chosen) < count:
        rest = (i for i in range(len(costs)) if i not in chosen)
        chosen.append(max(rest, key=lambda i: hypervolume([scaled[k] for k in (*chosen, i)], corner)))
    return tuple(chosen)

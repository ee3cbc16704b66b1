"""The loop around a strategy: budget, results, and going on where an earlier run stopped.

Strategies are found by the entry-point group ``gnomon.strategies``, the built-in ones and a third party's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gnomon.core.space import Space
from gnomon.errors import UsageError
from gnomon.plugins import loaded, named
from gnomon.search.base import Archive, Assignment, Cost, Evaluation, Strategy

GROUP = "gnomon.strategies"

Factory = Callable[..., Strategy]
"""Makes a strategy: ``factory(space, seed=0, **options)``."""

Evaluate = Callable[[Assignment], Cost | None]
"""The cost of an assignment; None: it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """The course of a search.

    `told` has the result of each assignment once, in the order in which they were told. `exhausted` says that the
    strategy had nothing more to ask, so that a larger budget changes nothing.
    """

    told: tuple[Evaluation, ...]
    exhausted: bool = False

    @property
    def front(self) -> tuple[Evaluation, ...]:
        """The results that no other dominates, ordered by cost; of equal costs the earliest."""
        archive = Archive()
        for result in self.told:
            if result.cost is not None:
                archive.add(result.assignment, result.cost)
        return tuple(Evaluation(assignment=a, cost=archive.cost(a)) for a in sorted(archive, key=archive.cost))


def run(
    strategy: Strategy,
    evaluate: Evaluate,
    *,
    budget: int,
    told: Iterable[Evaluation] = (),
    on_told: Callable[[Evaluation], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trail:
    """Ask, evaluate and tell until the budget is spent or the strategy is exhausted.

    `budget` counts assignments with a result, those of `told` among them. `told` are the results of an earlier run
    of the same strategy and seed, in any order: the search goes on as that run would have. `on_told` gets each new
    result as soon as it is accepted: an interrupted run that recorded them repeats only the evaluation that was under
    way. `stop` is asked before each evaluation, and may end the run. Errors of `evaluate` and `on_told` pass through.
    UsageError for a strategy that breaks its contract; ProblemError for results that `Strategy.tell` refuses.
    """
    by_assignment: dict[Assignment, Evaluation] = {}
    for earlier in told:
        strategy.tell(earlier.assignment, earlier.cost)
        by_assignment.setdefault(earlier.assignment, earlier)
    while len(by_assignment) < budget and not (stop is not None and stop()):
        asked = strategy.ask(1)
        if not asked:
            return Trail(told=tuple(by_assignment.values()), exhausted=True)
        if len(asked) > 1 or asked[0] in by_assignment:
            raise UsageError(
                "the strategy asked for too much, or for what it knows",
                hint="This is a defect of the strategy: run gnomon.testing.strategy on it.",
            )
        cost = evaluate(asked[0])
        new = Evaluation(assignment=asked[0], cost=None if cost is None else tuple(map(float, cost)))
        strategy.tell(new.assignment, new.cost)
        by_assignment[new.assignment] = new
        if on_told is not None:
            on_told(new)
    return Trail(told=tuple(by_assignment.values()))


def known_strategies() -> tuple[str, ...]:
    """The names of all strategies, whether or not what they need is installed."""
    return tuple(named(GROUP))


def make_strategy(name: str, space: Space, *, seed: int = 0, **options: Any) -> Strategy:
    """The strategy of that name for a space.

    UsageError for an option that it does not have; what `load_strategy` raises passes through.
    """
    factory = load_strategy(name)
    try:
        return factory(space, seed=seed, **options)
    except TypeError as error:
        raise UsageError(
            f"the strategy {name!r} does not take these options: {error}", hint="See docs/jobs/search.md."
        ) from (error)


def load_strategy(name: str) -> Factory:
    """The factory of the strategy of that name.

    UsageError for an unknown name, or a module that cannot be loaded; RuntimeMissingError where it needs a package that
    is not installed.
    """
    entries = named(GROUP)
    if name not in entries:
        raise UsageError(f"there is no strategy {name!r}", hint=f"Known strategies: {', '.join(entries)}.")
    factory: Factory = loaded(entries[name], f"the strategy {name!r}")
    return factory

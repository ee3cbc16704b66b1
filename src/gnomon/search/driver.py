"""The loop around a strategy: budget, results, and continuing an earlier run.

Built-in and third-party strategies are registered in the entry-point group ``gnomon.strategies``.
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
"""A function that makes a strategy: ``factory(space, seed=0, **options)``."""

Evaluate = Callable[[Assignment], Cost | None]
"""A function that returns the cost of an assignment; None if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """The course of a search.

    `told` has the result of each assignment once, in the order in which the results were reported. `exhausted` means
    that the strategy had no further assignments, so a larger budget would change nothing.
    """

    told: tuple[Evaluation, ...]
    exhausted: bool = False

    @property
    def front(self) -> tuple[Evaluation, ...]:
        """The results that no other dominates, ordered by cost; of those with equal costs, only the earliest."""
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

    `budget` counts assignments with a result, including those in `told`. `told` are the results of an earlier run of
    the same strategy and seed, in any order: the search continues as that run would have. `on_told` gets each new
    result at once, so that an interrupted run can be continued without repeating finished evaluations. `stop` is called
    before each evaluation, and ends the run by returning True. Errors of `evaluate` and `on_told` are passed on.
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
                "the strategy requested several assignments at once, or an assignment that has a result",
                hint="This is a defect of the strategy; gnomon.testing.strategy tests strategies.",
            )
        cost = evaluate(asked[0])
        new = Evaluation(assignment=asked[0], cost=None if cost is None else tuple(map(float, cost)))
        strategy.tell(new.assignment, new.cost)
        by_assignment[new.assignment] = new
        if on_told is not None:
            on_told(new)
    return Trail(told=tuple(by_assignment.values()))


def known_strategies() -> tuple[str, ...]:
    """The names of all strategies, whether or not the packages that they need are installed."""
    return tuple(named(GROUP))


def make_strategy(name: str, space: Space, *, seed: int = 0, **options: Any) -> Strategy:
    """The strategy with this name for a space.

    UsageError for an unknown option of the strategy; errors of `load_strategy` are passed on.
    """
    factory = load_strategy(name)
    try:
        return factory(space, seed=seed, **options)
    except TypeError as error:
        raise UsageError(
            f"the strategy {name!r} does not accept these options: {error}",
            hint="docs/jobs/search.md lists the options.",
        ) from (error)


def load_strategy(name: str) -> Factory:
    """The factory of the strategy with this name.

    UsageError for an unknown name, or a module that cannot be loaded; RuntimeMissingError if a package that the
    strategy needs is not installed.
    """
    entries = named(GROUP)
    if name not in entries:
        raise UsageError(f"there is no strategy {name!r}", hint=f"Strategies: {', '.join(entries)}.")
    factory: Factory = loaded(entries[name], f"the strategy {name!r}")
    return factory

"""The loop around a strategy: budget, batches, results, and going on where an earlier run stopped.

Finds strategies: the built-in ones and a third party's, all by the entry-point group ``gnomon.strategies``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.core.space import Space
from gnomon.errors import UsageError
from gnomon.plugins import loaded, named
from gnomon.search.base import Archive, Assignment, Cost, Strategy, Told

Evaluate = Callable[[Sequence[Assignment]], Iterable[Cost | None]]
"""Evaluates a batch: yields a cost, or None for a failure, for each assignment of it, in its order.

A generator's costs are told one by one as they come, so that an interruption loses none that is complete.
"""

_END = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """What a search did.

    `told` has the result of each assignment once, in the order in which they were told, the first `replayed` of them
    from earlier. `exhausted` says that the strategy had nothing more to ask, so that a larger budget changes nothing.
    """

    told: tuple[Told, ...]
    replayed: int = 0
    exhausted: bool = False
    front: tuple[Told, ...] = field(init=False)
    """The results that no other dominates, ordered by cost; of equal costs the first that was told."""

    def __post_init__(self) -> None:
        archive = Archive()
        for told in self.told:
            if told.cost is not None:
                archive.add(told.assignment, told.cost)
        found = sorted(archive, key=archive.cost)
        front = tuple(Told(assignment=assignment, cost=archive.cost(assignment)) for assignment in found)
        object.__setattr__(self, "front", front)

    @property
    def failed(self) -> int:
        """How many assignments failed."""
        return sum(told.cost is None for told in self.told)


def run(
    strategy: Strategy,
    evaluate: Evaluate,
    *,
    budget: int,
    told: Iterable[Told] = (),
    batch: int = 1,
    on_told: Callable[[Told], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trail:
    """Ask, evaluate and tell until the budget is spent or the strategy is exhausted.

    `budget` counts assignments with a result, those of `told` among them. `told` are the results of an earlier run
    of the same strategy and seed, in any order: the search goes on as that run would have. At most `batch`
    assignments are evaluated at a time. `on_told` gets each new result as soon as it is accepted: an interrupted run
    that recorded them repeats only the evaluations that were under way. `stop` is asked before each batch, and may
    end the run. Errors of `evaluate` and `on_told` pass through. UsageError for a negative budget, a batch below 1,
    and a strategy or an evaluation that breaks its contract; ProblemError for results that `Strategy.tell` refuses.
    """
    if budget < 0 or batch < 1:
        raise UsageError(
            f"a budget of {budget} in batches of {batch} cannot be", hint="give a budget from 0 and a batch from 1"
        )
    known: dict[Assignment, Told] = {}
    for earlier in told:
        strategy.tell(earlier.assignment, earlier.cost)
        known.setdefault(earlier.assignment, earlier)
    replayed = len(known)
    while len(known) < budget and not (stop is not None and stop()):
        wanted = min(batch, budget - len(known))
        asked = strategy.ask(wanted)
        if not asked:
            return Trail(told=tuple(known.values()), replayed=replayed, exhausted=True)
        if len(asked) > wanted or len(set(asked)) < len(asked) or any(a in known for a in asked):
            raise UsageError(
                "the strategy asked for too much, or for what it knows",
                hint="This is a defect of the strategy: run gnomon.testing.strategy on it.",
            )
        for new in _results(evaluate, asked):
            strategy.tell(new.assignment, new.cost)
            known[new.assignment] = new
            if on_told is not None:
                on_told(new)
    return Trail(told=tuple(known.values()), replayed=replayed)


def _results(evaluate: Evaluate, asked: Sequence[Assignment]) -> Iterable[Told]:
    costs = iter(evaluate(asked))
    for index, assignment in enumerate(asked):
        try:
            cost = next(costs)
        except StopIteration:
            raise UsageError(
                f"the evaluation of {len(asked)} assignments gave {index} results",
                hint="Give one cost, or None, for each assignment.",
            ) from None
        yield Told(assignment=assignment, cost=None if cost is None else tuple(float(c) for c in cost))
    # A generator has something to do after its last result, too: it is run to its end.
    if next(costs, _END) is not _END:
        raise UsageError(
            f"the evaluation of {len(asked)} assignments gave more results", hint="Give one for each assignment."
        )


GROUP = "gnomon.strategies"

Factory = Callable[..., Strategy]
"""Makes a strategy: ``factory(space, seed=0, **options)``."""

# The built-in ones, by the same door: a checkout that is not installed again has them too.
_OWN = {
    "exhaustive": "gnomon.search.simple:Exhaustive",
    "hlps": "gnomon.search.hlps:Hlps",
    "nsga2": "gnomon.search.nsga2:Nsga2",
    "random": "gnomon.search.simple:RandomSearch",
}


def known_strategies() -> tuple[str, ...]:
    """The names of all strategies, whether or not what they need is installed."""
    return tuple(named(GROUP, _OWN))


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
    """What makes the strategy of that name.

    UsageError for an unknown name, or a module that cannot be loaded; RuntimeMissingError where it needs a package that
    is not installed.
    """
    entries = named(GROUP, _OWN)
    if name not in entries:
        raise UsageError(f"there is no strategy {name!r}", hint=f"Known strategies: {', '.join(entries)}.")
    factory: Factory = loaded(entries[name], f"the strategy {name!r}")
    return factory

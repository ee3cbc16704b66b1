"""Hamming local Pareto search (HLPS)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from gnomon.core.space import Space
from gnomon.errors import UsageError
from gnomon.search.archive import Archive, Entry
from gnomon.search.base import Assignment, Cost
from gnomon.search.coarse import Coarse
from gnomon.search.draws import generator, shuffled, uniform
from gnomon.search.guide import Guide
from gnomon.search.moves import Moves
from gnomon.search.rounds import Plan, Planned
from gnomon.search.starts import common_starts

SAMPLES = 2000
FIRST = 4
"""Random assignments that it begins with: those that random search draws first with the same seed."""

_STRANGER_EVERY = 16  # steps: one of so many is random, whatever the model expects
_STRANGERS = 10  # random assignments that a step may choose from
_MEMBERS = 15  # of the archive, from which farther neighbours are drawn anew for each step
_MOST_CANDIDATES = 1000
_REFIT_SHARE = 40  # of this many results one more is evaluated before the model learns again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    samples: int
    rounds: int | None
    radius: int
    batch: int

    def __post_init__(self) -> None:
        for name in ("samples", "rounds", "radius", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}", hint=f"give {name} a whole number from 1")


class Hlps(Planned):
    """Hamming local Pareto search, led by a model of the costs; a `Strategy`.

    Source: the description of the sampler of pareto_profiler in Samsung ONE (pull request 5842, 2021). An archive
    holds the results that no other dominates. One that came in beside the others is new and explored: by random
    neighbours, at each Hamming distance from 1 to `radius` as many as the largest slot has other choices. All of the
    archive is exploited: by all neighbours at distance 1. What leaves the archive is not searched on. A round ends when
    nothing is left to search; the next one explores the whole archive again, one step farther out.

    This module's own are: the order, in which those come first of which a `Guide` expects most; further neighbours,
    in which all slots of one choice take another at once, and which are drawn anew for each step; and random
    assignments, one in sixteen steps. It begins with `FIRST` random ones; `common_starts` come between the next ones.
    Without `rounds` it goes on until `samples` are spent; the source makes three.

    With `coarse` all rounds are first made in the coarse space; what its archive holds then starts the search of the
    space itself. `samples` limits the assignments of each of these two phases. Results are waited for after every
    `batch` of neighbours: 1 searches with the fewest evaluations, more keep several devices busy.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        samples: int = SAMPLES,
        rounds: int | None = None,
        radius: int = 2,
        batch: int = 1,
        coarse: Coarse | None = None,
    ) -> None:
        self._options = _Options(samples=samples, rounds=rounds, radius=radius, batch=batch)
        generator(seed)
        if coarse is not None:
            coarse.tables(space)
        super().__init__(space, self._phases(space, coarse, seed))

    def _phases(self, space: Space, coarse: Coarse | None, seed: int) -> Plan:
        last = _Phase(space, seed, self._options, lambda a: a)
        starts: Sequence[Assignment] = ()
        if coarse is not None:
            rows, follows = coarse.tables(space), coarse.follows

            def refine(assignment: Assignment) -> Assignment:
                return tuple(row[assignment[index]] for row, index in zip(rows, follows, strict=True))

            first = _Phase(coarse.space, seed, self._options, refine)
            yield from first.plan(())
            starts = [refine(a) for a in first.archive]
            for assignment, cost in first.tried.items():
                last.guide.learn(refine(assignment), cost)
        yield from last.plan(starts)


class _Phase:
    """The rounds in one space; `refine` makes the assignment to evaluate from one of this space."""

    def __init__(self, space: Space, seed: int, options: _Options, refine: Callable[[Assignment], Assignment]) -> None:
        self.archive = Archive()
        self.guide = Guide(space)
        self.tried: dict[Assignment, Cost | None] = {}
        self._space, self._options, self._refine = space, options, refine
        # Another stream than that of the strangers, which are random search's.
        self._rng: Random = generator(generator(seed).getrandbits(64))
        self._moves = Moves(space)
        self._strangers = (a for a in shuffled(space, generator(seed)) if a not in self.tried)
        self._due: deque[Assignment] = deque()
        self._near: dict[Assignment, list[Assignment]] = {}

    def plan(self, starts: Sequence[Assignment]) -> Plan:
        """All rounds, from these starts or the usual ones."""
        yield from self._try(starts or islice(self._strangers, FIRST))
        if not starts:
            self._due.extend(common_starts(self._space))
        turn, step = 0, 0
        while not self._spent():
            if self.archive and not self._due and self._over():
                turn += 1
                if self._options.rounds is not None and turn >= self._options.rounds:
                    return
                yield from self._try(islice(self._strangers, 1))
                for member in self.archive:
                    self._near[member] += self._moves.around(member, self._options.radius + turn, self._rng)
            step += 1
            yield from self._try(self._chosen(step, self._options.radius + turn))

    def _chosen(self, step: int, radius: int) -> list[Assignment]:
        """What to evaluate in a step."""
        batch = self._options.batch
        chosen: list[Assignment] = []
        self._due = deque(a for a in self._due if a not in self.tried)
        if self._due and step % 2 == 0:
            chosen.append(self._due.popleft())
        elif step % _STRANGER_EVERY == 0 or not self.archive:
            chosen.extend(islice(self._strangers, 1))
        if len(chosen) < batch and self.archive:
            wanted = (batch - len(chosen)) * (1 + len(self.tried) // _REFIT_SHARE)
            chosen.extend(self._led(wanted, radius))
        return chosen or list(islice(self._strangers, 1))

    def _led(self, count: int, radius: int) -> list[Assignment]:
        """The candidates of which most is expected."""
        candidates = [a for near in self._open() for a in near]
        if len(candidates) > 2 * _MOST_CANDIDATES:
            candidates = self._rng.sample(candidates, 2 * _MOST_CANDIDATES)
        members = list(self.archive)
        for member in members if len(members) <= _MEMBERS else self._rng.sample(members, _MEMBERS):
            candidates += self._moves.around(member, radius + 1, self._rng)
        candidates += [uniform(self._space, self._rng) for _ in range(_STRANGERS)]
        candidates = [a for a in dict.fromkeys(candidates) if a not in self.tried]
        if not self.guide.ready:
            return candidates[:count]
        if len(candidates) > _MOST_CANDIDATES:
            candidates = self._rng.sample(candidates, _MOST_CANDIDATES)
        return self.guide.best(candidates, [self.archive.cost(a) for a in self.archive], count)

    def _over(self) -> bool:
        """Whether all neighbours of what is in the archive were tried."""
        return all(a in self.tried for near in self._open() for a in near)

    def _open(self) -> list[list[Assignment]]:
        """The neighbours to be searched of what is in the archive, those that were tried meanwhile among them."""
        self._near = {a: self._near.get(a, []) for a in self.archive}
        return list(self._near.values())

    def _spent(self) -> bool:
        return len(self.tried) >= min(self._options.samples, self._space.size)

    def _try(self, candidates: Iterable[Assignment]) -> Plan:
        """Evaluate what was not tried before."""
        fresh = iter([a for a in dict.fromkeys(candidates) if a not in self.tried])
        while not self._spent():
            batch = list(islice(fresh, min(self._options.batch, self._options.samples - len(self.tried))))
            if not batch:
                return
            costs = yield [self._refine(a) for a in batch]
            for assignment, cost in zip(batch, costs, strict=True):
                self._enter(assignment, cost)

    def _enter(self, assignment: Assignment, cost: Cost | None) -> None:
        self.tried[assignment] = cost
        self.guide.learn(assignment, cost)
        entry = Entry.NO if cost is None else self.archive.add(assignment, cost)
        if entry is not Entry.NO:
            explored = self._moves.around(assignment, self._options.radius, self._rng) if entry is Entry.NEW else ()
            beside = self._moves.beside(assignment, self._rng)
            self._near[assignment] = list(dict.fromkeys((*explored, *beside, *self._moves.switched(assignment))))

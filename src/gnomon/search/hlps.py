"""Hamming local Pareto search (HLPS)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random

from gnomon.core.space import Space
from gnomon.errors import UsageError
from gnomon.search.archive import Archive, Entry
from gnomon.search.base import Assignment
from gnomon.search.coarse import Coarse
from gnomon.search.draws import generator, shuffled, uniform
from gnomon.search.rounds import Plan, Planned
from gnomon.search.starts import common_starts

SAMPLES = 2000


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
    """Hamming local Pareto search; a `Strategy`.

    Source: the description of the sampler of pareto_profiler in Samsung ONE (pull request 5842, 2021). An archive
    holds the results that no other dominates. One that came in beside the others is new and explored: by random
    neighbours, at each Hamming distance from 1 to `radius` as many as the largest slot has other choices. One that took
    the place of others, or that was explored, is known and exploited: by all neighbours at distance 1, in random
    order. What leaves the archive is not searched on. A round ends when nothing is left to search.

    The first round starts from `common_starts` and one random assignment. The later ones, which are this module's own
    way on, are in turn a search from a new random assignment with an archive of its own, whose results then join
    the others, which leaves what is only locally the best; and an exploration of the whole archive again, one step
    farther out each time. Without `rounds` they go on until `samples` are spent; the source makes three.

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
        rng = generator(seed)
        if coarse is not None:
            coarse.tables(space)
        super().__init__(space, self._phases(space, coarse, rng))

    def _phases(self, space: Space, coarse: Coarse | None, rng: Random) -> Plan:
        starts: Sequence[Assignment] = ()
        if coarse is not None:
            rows, follows = coarse.tables(space), coarse.follows

            def refine(assignment: Assignment) -> Assignment:
                return tuple(row[assignment[index]] for row, index in zip(rows, follows, strict=True))

            first = _Phase(coarse.space, rng, self._options, refine)
            yield from first.plan(())
            starts = [refine(a) for a in first.archive]
        yield from _Phase(space, rng, self._options, lambda a: a).plan(starts)


class _Phase:
    """The rounds in one space; `refine` makes the assignment to evaluate from one of this space."""

    def __init__(
        self, space: Space, rng: Random, options: _Options, refine: Callable[[Assignment], Assignment]
    ) -> None:
        self.archive = Archive()
        self._space, self._rng, self._options, self._refine = space, rng, options, refine
        self._radices = [len(slot.choices) for slot in space.slots]
        self._others = max([1, *self._radices]) - 1
        self._tried: set[Assignment] = set()
        self._queue: deque[tuple[Assignment, bool]] = deque()

    def plan(self, starts: Sequence[Assignment]) -> Plan:
        """All rounds, from these starts or the usual ones."""
        order = shuffled(self._space, self._rng)
        strangers = (a for a in order if a not in self._tried)
        yield from self._try(iter(starts or (*common_starts(self._space), uniform(self._space, self._rng))))
        for turn in count() if self._options.rounds is None else range(self._options.rounds):
            if self._spent():
                return
            while not self.archive and not self._spent():
                yield from self._try(islice(strangers, 1))
            if turn % 2:
                yield from self._apart(strangers)
            elif turn:
                self._queue.extend((a, True) for a in self.archive)
            yield from self._search(turn // 2)

    def _apart(self, strangers: Iterator[Assignment]) -> Plan:
        """A local search from elsewhere with an archive of its own, which is then joined with the other."""
        others, self.archive = self.archive, Archive()
        yield from self._try(islice(strangers, 1))
        self._queue.extend((a, False) for a in self.archive)
        yield from self._search(0)
        own, self.archive = self.archive, others
        self._queue.extend((a, True) for a in own if self.archive.add(a, own.cost(a)) is not Entry.NO)

    def _search(self, farther: int) -> Plan:
        """Search on around what is in the archive, until nothing is left."""
        while self._queue and not self._spent():
            assignment, explore = self._queue.popleft()
            if assignment not in self.archive:
                continue
            if explore:
                yield from self._try(self._around(assignment, farther), assignment)
                self._queue.append((assignment, False))
            else:
                yield from self._try(self._beside(assignment), assignment)

    def _spent(self) -> bool:
        return len(self._tried) >= min(self._options.samples, self._space.size)

    def _try(self, candidates: Iterator[Assignment], centre: Assignment | None = None) -> Plan:
        """Evaluate what was not tried before, until the centre has left the archive."""
        fresh = (a for a in candidates if a not in self._tried)
        while not self._spent() and (centre is None or centre in self.archive):
            batch = list(dict.fromkeys(islice(fresh, self._options.batch)))[: self._options.samples - len(self._tried)]
            if not batch:
                return
            self._tried.update(batch)
            costs = yield [self._refine(a) for a in batch]
            for assignment, cost in zip(batch, costs, strict=True):
                entry = Entry.NO if cost is None else self.archive.add(assignment, cost)
                if entry is not Entry.NO:
                    self._queue.append((assignment, entry is Entry.NEW))

    def _around(self, centre: Assignment, farther: int) -> Iterator[Assignment]:
        """Random neighbours at each distance up to the radius and `farther`."""
        movable = [i for i, radix in enumerate(self._radices) if radix > 1]
        for distance in range(1, min(self._options.radius + farther, len(movable)) + 1):
            for _ in range(self._others):
                changed = list(centre)
                for slot in self._rng.sample(movable, distance):
                    changed[slot] = self._other(slot, changed[slot])
                yield tuple(changed)

    def _beside(self, centre: Assignment) -> Iterator[Assignment]:
        """All neighbours at distance 1 in random order."""
        changes = [(i, c) for i, radix in enumerate(self._radices) for c in range(radix) if c != centre[i]]
        self._rng.shuffle(changes)
        for slot, choice in changes:
            yield (*centre[:slot], choice, *centre[slot + 1 :])

    def _other(self, slot: int, choice: int) -> int:
        drawn = self._rng.randrange(self._radices[slot] - 1)
        return drawn + (drawn >= choice)

"""Hamming local Pareto search (HLPS), in a space or first in a coarse version of it, and parts that NSGA-II shares.

Both strategies use the moves from an assignment to others, the assignments that any search should evaluate early, and
plans: generators that yield batches of assignments and are sent their costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from random import Random

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.search.base import Archive, Assignment, Cost, Ledger, generator, names_of, shuffled, uniform
from gnomon.search.surrogate import Guide

SAMPLES = 2000
FIRST = 4
"""The number of random assignments at the start; random search with the same seed begins with the same ones."""

_RADIUS = 2  # the largest Hamming distance of the random neighbours of a new result
_STRANGER_EVERY = 16  # one step of this many tries a random assignment, whatever the model expects
_STRANGERS = 10  # the number of random assignments from which a step may choose
_MEMBERS = 15  # the largest number of archive members whose farther neighbours are drawn for a step
_MOST_CANDIDATES = 1000
_REFIT_SHARE = 40  # a step evaluates one assignment, and one more for each this many tried before


class Moves:
    """The moves from an assignment of a space to its neighbours."""

    def __init__(self, space: Space) -> None:
        self._radices = [len(slot.choices) for slot in space.slots]
        self._movable = [i for i, radix in enumerate(self._radices) if radix > 1]
        self._others = max([1, *self._radices]) - 1
        shared = [name for name, count in names_of(space).items() if count > 1]
        self._index = [
            [slot.choices.index(name) if name in slot.choices else -1 for slot in space.slots] for name in shared
        ]

    def around(self, centre: Assignment, radius: int, rng: Random) -> Iterator[Assignment]:
        """Random neighbours at each distance up to `radius`, as many as the largest slot has choices besides one."""
        for distance in range(1, min(radius, len(self._movable)) + 1):
            for _ in range(self._others):
                changed = list(centre)
                for slot in rng.sample(self._movable, distance):
                    drawn = rng.randrange(self._radices[slot] - 1)
                    changed[slot] = drawn + (drawn >= changed[slot])
                yield tuple(changed)

    def beside(self, centre: Assignment, rng: Random) -> Iterator[Assignment]:
        """All neighbours at distance 1 in random order."""
        changes = [(i, c) for i, radix in enumerate(self._radices) for c in range(radix) if c != centre[i]]
        rng.shuffle(changes)
        for slot, choice in changes:
            yield (*centre[:slot], choice, *centre[slot + 1 :])

    def switched(self, centre: Assignment) -> Iterator[Assignment]:
        """Assignments in which one choice is replaced by another in all slots that offer both, because a backend costs
        something as long as any slot uses it.

        There is one such assignment for each ordered pair of names that several slots have, if at least two slots
        change.
        """
        for old, new in permutations(self._index, 2):
            changed = tuple(
                after if choice == before and after >= 0 and radix > 1 else choice
                for choice, before, after, radix in zip(centre, old, new, self._radices, strict=True)
            )
            if sum(a != b for a, b in zip(changed, centre, strict=True)) > 1:
                yield changed


def common_starts(space: Space) -> tuple[Assignment, ...]:
    """The first choice in all slots, then each common choice in all slots that have it, with the first choice in the
    others.

    A choice is common if at least half of the slots with several choices have a choice of its name. If the choices are
    backends, each of these assignments runs the whole model on a single backend: they are the ends of many fronts, and
    the results that a mix must beat. Each assignment occurs once.
    """
    several = sum(len(slot.choices) > 1 for slot in space.slots)
    common = [name for name, count in names_of(space).items() if 2 * count >= several > 1]
    starts = [tuple(0 for _ in space.slots)]
    for name in common:
        starts.append(tuple(slot.choices.index(name) if name in slot.choices else 0 for slot in space.slots))
    return tuple(dict.fromkeys(starts))


Plan = Generator[Sequence[Assignment], Sequence[Cost | None], None]
"""A generator that yields a batch, is sent the batch's costs in the same order (None: failed), and returns when it is
exhausted.

An assignment that a plan yields again is not evaluated again; the plan is sent its known cost.
"""


class Planned:
    """A `Strategy` that follows a plan.

    The plan continues when its whole batch has results, so its course does not depend on how many assignments are
    requested at once or on the order of the results. Results of assignments that have not been requested yet are kept.
    """

    def __init__(self, space: Space, plan: Plan) -> None:
        self._ledger = Ledger(space)
        self._plan = plan
        self._batch = next(plan, None)

    def ask(self, n: int) -> Sequence[Assignment]:
        """As in `Strategy.ask`, but only from the plan's current batch."""
        results, pending = self._ledger.results, self._ledger.pending
        while self._batch is not None:
            waited = [a for a in dict.fromkeys(self._batch) if a not in results]
            if waited:
                asked = [a for a in waited if a not in pending][:n]
                pending.update(asked)
                return tuple(asked)
            try:
                self._batch = self._plan.send([results[a] for a in self._batch])
            except StopIteration:
                self._batch = None
        return ()

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """As in `Strategy.tell`."""
        self._ledger.take(assignment, cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coarse:
    """A coarse version of a space, such as one slot for each operator type.

    Slot i of the fine space takes the choice, by name, of the coarse slot `follows[i]`.
    """

    space: Space
    follows: tuple[int, ...]

    def tables(self, fine: Space) -> tuple[tuple[int, ...], ...]:
        """For each fine slot, the fine index of each choice of its coarse slot."""
        return tuple(
            tuple(slot.choices.index(name) for name in self.space.slots[index].choices)
            for slot, index in zip(fine.slots, self.follows, strict=True)
        )


def grouped(fine: Space, labels: Sequence[str]) -> Coarse:
    """The coarse space with a slot for each label, in order of first appearance; `labels` are those of the fine slots.

    A coarse slot has the choices that all its fine slots have in common, in the order of the first fine slot.
    ProblemError if the slots of a label have no common choice.
    """
    names = list(dict.fromkeys(labels))
    slots: list[Slot] = []
    for name in names:
        members = [slot for slot, label in zip(fine.slots, labels, strict=True) if label == name]
        shared = tuple(c for c in members[0].choices if all(c in m.choices for m in members))
        if not shared:
            raise ProblemError(f"the slots of '{name}' have no common choice", hint="Give the slots different labels.")
        slots.append(Slot(name, shared))
    return Coarse(space=Space(tuple(slots)), follows=tuple(names.index(label) for label in labels))


class Hlps(Planned):
    """Hamming local Pareto search, guided by a model of the costs; a `Strategy`.

    Source: the description of the sampler of pareto_profiler in Samsung ONE (pull request 5842, 2021). An archive holds
    the results that no other dominates. A result that enters without replacing another is new and is explored:
    random neighbours are drawn at Hamming distances 1 and 2, at each distance as many as the largest slot has choices
    besides the current one. Every member of the archive is exploited with all neighbours at distance 1. Results that
    leave the archive are not searched further. A round ends when nothing is left to search; the next one explores the
    whole archive again, one step farther out.

    This module adds to the source a `Guide`, which orders the neighbours by promise; further neighbours, in which one
    choice is replaced by another in all slots; distant neighbours, which are drawn again for each step; and a random
    assignment in every sixteenth step. The search begins with `FIRST` random assignments, and `common_starts` are mixed
    with the next ones. It continues until `samples` assignments have been tried, whereas the source makes three rounds.

    With `coarse`, the coarse space is searched first; the search of the space itself then starts from the coarse
    archive. `samples` limits the assignments of each of these two phases.
    """

    def __init__(self, space: Space, *, seed: int = 0, samples: int = SAMPLES, coarse: Coarse | None = None) -> None:
        super().__init__(space, _phases(space, coarse, seed, samples))


def _phases(space: Space, coarse: Coarse | None, seed: int, samples: int) -> Plan:
    last = _Phase(space, seed, samples, lambda a: a)
    starts: Sequence[Assignment] = ()
    if coarse is not None:
        rows, follows = coarse.tables(space), coarse.follows

        def refine(assignment: Assignment) -> Assignment:
            return tuple(row[assignment[index]] for row, index in zip(rows, follows, strict=True))

        first = _Phase(coarse.space, seed, samples, refine)
        yield from first.plan(())
        starts = [refine(a) for a in first.archive]
        for assignment, cost in first.tried.items():
            last.guide.learn(refine(assignment), cost)
    yield from last.plan(starts)


class _Phase:
    """The rounds in one space; `refine` turns an assignment of this space into the one to evaluate."""

    def __init__(self, space: Space, seed: int, samples: int, refine: Callable[[Assignment], Assignment]) -> None:
        self.archive = Archive()
        self.guide = Guide(space)
        self.tried: dict[Assignment, Cost | None] = {}
        self._space, self._refine = space, refine
        self._most = min(samples, space.size)
        # This generator is independent of the stream of random assignments, which is the same as in random search.
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
        while len(self.tried) < self._most:
            if self.archive and not self._due and self._over():
                turn += 1
                yield from self._try(islice(self._strangers, 1))
                for member in self.archive:
                    self._near[member] += self._moves.around(member, _RADIUS + turn, self._rng)
            step += 1
            yield from self._try(self._chosen(step, _RADIUS + turn))

    def _chosen(self, step: int, radius: int) -> list[Assignment]:
        """The assignments to evaluate in a step."""
        self._due = deque(a for a in self._due if a not in self.tried)
        if self._due and step % 2 == 0:
            return [self._due.popleft()]
        chosen = list(islice(self._strangers, 1)) if step % _STRANGER_EVERY == 0 or not self.archive else []
        if not chosen and self.archive:
            chosen = self._led(1 + len(self.tried) // _REFIT_SHARE, radius)
        return chosen or list(islice(self._strangers, 1))

    def _led(self, count: int, radius: int) -> list[Assignment]:
        """The most promising candidates."""
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
        """Return True if all neighbours of the archive's members have been tried."""
        return all(a in self.tried for near in self._open() for a in near)

    def _open(self) -> list[list[Assignment]]:
        """The neighbours of each of the archive's members, including those that have been tried in the meantime."""
        self._near = {a: self._near.get(a, []) for a in self.archive}
        return list(self._near.values())

    def _try(self, candidates: Iterable[Assignment]) -> Plan:
        """Evaluate the candidates that have not been tried."""
        fresh = [a for a in dict.fromkeys(candidates) if a not in self.tried]
        for assignment in fresh[: self._most - len(self.tried)]:
            (cost,) = yield [self._refine(assignment)]
            self._enter(assignment, cost)

    def _enter(self, assignment: Assignment, cost: Cost | None) -> None:
        self.tried[assignment] = cost
        self.guide.learn(assignment, cost)
        beaten = None if cost is None else self.archive.add(assignment, cost)
        if beaten is not None:
            explored = () if beaten else self._moves.around(assignment, _RADIUS, self._rng)
            beside = self._moves.beside(assignment, self._rng)
            self._near[assignment] = list(dict.fromkeys((*explored, *beside, *self._moves.switched(assignment))))

"""The Pareto selection: the primitives that networks on the front of accuracy and latency are made of.

Both prices are learned from the networks that were measured, with what stays unknown (`effects`). From that, posterior
samples are drawn; in each of them the front over *all* networks, mixed ones included, is exact. How often a primitive
is part of it says how sure its use is (stability selection: Meinshausen and Buehlmann, 2010).

The selection is the one that is expected to lose least while a share of the networks is left (`reduce`). It does not
depend on the unit of latency, and nothing but the measurements has a part in it. A share that leaves too little to be
worth a search is refused, with the share that would do. A space of one family is of that one whose front is expected to
have the largest hypervolume.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.core.space import Slot, Space
from gnomon.core.stats import median
from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.cells.effects import Evidence, Learned, learn_both
from gnomon.spaces.cells.primitives import parse_name
from gnomon.spaces.selection.kept import MOST_EXCHANGED, drawn_front, exchanged
from gnomon.spaces.selection.reduce import Resamples, WeighedCosts, judged, reduce_choices, weighed_costs

Families = Literal["mixed", "one"]

_LEAST_KEPT = 0.5
"""Where the interval of the kept hypervolume begins below this, the choice may lose more of the front than it keeps."""
_GROWTH = 1.25
_REPEATS, _FEW = 20, 40
"""So often it is thought to be measured again, with so many resamples each."""
_NORMAL_95 = 1.959964
_SEED = 12
_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A family: the hypervolume of its front in each resample (K,), and of its networks that were measured."""

    family: str
    volumes: Floats
    measured: float

    @property
    def expected(self) -> float:
        """The expected hypervolume of its front."""
        return float(self.volumes.mean())


def choose_family(contenders: Sequence[Contender]) -> tuple[str, str]:
    """The family and the reason: the largest expected hypervolume of all its networks, which is an extrapolation."""
    best = max(contenders, key=lambda one: (one.expected, one.family))
    lead = max(contenders, key=lambda one: (one.measured, one.family))
    if best is lead:
        return best.family, "it has the largest expected hypervolume, and the largest of the measured networks"
    sure = float(np.mean(best.volumes > lead.volumes))
    return best.family, (
        f"its expected hypervolume is the largest, in {sure:.0%} of the resamples above that of {lead.family}, whose "
        "measured networks have the largest"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoOptions:
    """How to select.

    - `families`: "mixed" keeps primitives of all families side by side, "one" those of a single family.
    - `most_share`: the share of the networks that may be left (above 0, to 1); with 1 only what is on no front goes.
    - `resamples`: how many posterior samples are drawn, from `seed`.
    """

    families: Families = "mixed"
    most_share: float = 0.1
    resamples: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.families not in get_args(Families):
            raise UsageError(f"families are {self.families!r}", hint="Use 'mixed' or 'one'.")
        if not 0 < self.most_share <= 1:
            raise UsageError(f"the share is {self.most_share}", hint="Use a share above 0, to 1: 0.1 for a tenth.")
        if self.resamples < 2:
            raise UsageError(f"{self.resamples} resamples are too few", hint="Use 2 or more, such as 200.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A primitive of a cell group: how often it is on the front, with the 95 % interval of so many resamples.

    `stays` says whether it was kept, and `again` how often it would be if the same networks were measured again.
    """

    name: str
    frequency: float
    low: float
    high: float
    stays: bool
    again: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParetoSelection:
    """What was selected, and why.

    `groups` are the names that stay, by the space's order; `primitives` all candidates of each group. `share_kept` is
    the expected share of the hypervolume that the kept networks reach, with the interval that 95 % of the samples lie
    in, up to the `reference`: the largest latency, over the median one, and error rate of what was measured.
    `stability` is how much of the choice is expected to come out again where the same networks are measured again: the
    mean Jaccard index of the (group, primitive) that are kept. It is a property, and nothing is chosen by it. `family`
    is None for mixed ones.
    """

    groups: tuple[tuple[str, ...], ...]
    primitives: tuple[tuple[Kept, ...], ...]
    family: str | None
    why: str
    contenders: tuple[Contender, ...]
    share_kept: float
    share_low: float
    share_high: float
    stability: float
    reference: tuple[float, float]


def select_pareto(
    space: Space, accuracy: Evidence, latency: Evidence, options: ParetoOptions | None = None
) -> ParetoSelection:
    """The Pareto selection of a space, from accuracies (fractions) and latencies (any unit) of some of its networks.

    The networks need not be the same in both. The order of groups and choices changes nothing: selections that lose
    equally much differ by rounding alone, so all is computed in the order of the names. ProblemError for values that
    are not possible, and for "one" where no family has a primitive in each group. UsageError for a share that leaves
    one network, or so few that the interval of what they keep begins below half.
    """
    groups = sorted(range(len(space.slots)), key=lambda g: space.slots[g].name)
    orders = [sorted(range(len(s.choices)), key=s.choices.__getitem__) for s in space.slots]
    named = Space(tuple(Slot(space.slots[g].name, tuple(sorted(space.slots[g].choices))) for g in groups))
    moved = [
        Evidence(
            assignments=np.column_stack([np.argsort(orders[g])[one.assignments[:, g]] for g in groups]),
            values=one.values,
            errors=one.errors,
        )
        for one in (accuracy, latency)
    ]
    found = _select_named(named, moved[0], moved[1], options or ParetoOptions())
    at = [groups.index(g) for g in range(len(groups))]
    by_name = [{kept.name: kept for kept in own} for own in found.primitives]
    return replace(
        found,
        groups=tuple(
            tuple(name for name in slot.choices if name in found.groups[p])
            for slot, p in zip(space.slots, at, strict=True)
        ),
        primitives=tuple(
            tuple(by_name[p][name] for name in slot.choices if name in by_name[p])
            for slot, p in zip(space.slots, at, strict=True)
        ),
    )


def _select_named(space: Space, accuracy: Evidence, latency: Evidence, options: ParetoOptions) -> ParetoSelection:
    """The selection of a space whose groups and choices stand in the order of their names."""
    prices = learn_both(space, accuracy, unit_free(latency))
    accurate, fast = (one.effects for one in prices)
    measured, points = measured_points(prices, accuracy, latency)
    worst = points.max(axis=0).tolist()
    whole = Resamples(
        latencies=fast.draw(options.resamples, seed=options.seed),
        logits=accurate.draw(options.resamples, seed=options.seed + 1),
        reference=(worst[0], worst[1]),
    )
    if options.families == "mixed":
        chosen = [np.arange(len(slot.choices)) for slot in space.slots]
        return _selected(_Case(space, chosen, prices, judged(whole)[0], whole.reference, options), whole, ())
    contenders = tuple(_contenders(space, whole, measured, points))
    family, why = choose_family(contenders)
    chosen = _places(space, family)
    mine = whole.restricted(chosen)
    case = _Case(_part(space, chosen), chosen, prices, judged(mine)[0], whole.reference, options)
    return _selected(case, mine, contenders, (family, why))


def measured_points(prices: tuple[Learned, Learned], accuracy: Evidence, latency: Evidence) -> tuple[Ints, Floats]:
    """The networks (N, groups) of either evidence, and their relative latency and error rate (N, 2) as predicted."""
    accurate, fast = (one.effects for one in prices)
    measured = np.unique(np.concatenate([accuracy.assignments, latency.assignments]), axis=0)
    return measured, np.column_stack([fast.predict(measured)[0], 1 - accurate.predict(measured)[0]])


def unit_free(latency: Evidence) -> Evidence:
    """Latencies over the median of all, with their errors, to nine digits: a change of unit then changes none of them.

    Without the rounding the last bits would differ, and order what was a tie. ProblemError for a latency that is not
    above 0.
    """
    if (latency.values <= 0).any():
        raise ProblemError(
            f"{int((latency.values <= 0).sum())} latencies are not above 0",
            hint="Measure these networks once more, or leave them out.",
        )
    middle = median(latency.values.tolist())
    values = np.array([_rounded(value / middle) for value in latency.values.tolist()])
    shares = np.array([_rounded(share) for share in (latency.errors / latency.values).tolist()])
    return Evidence(assignments=latency.assignments, values=values, errors=values * shares)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")


@dataclass(frozen=True, slots=True)
class _Case:
    """What is selected from: a space of the candidates alone, their places in the whole one, and how they fared."""

    space: Space
    places: list[Ints]
    prices: tuple[Learned, Learned]
    frequencies: tuple[Floats, ...]
    reference: tuple[float, float]
    options: ParetoOptions


def _selected(
    case: _Case,
    resamples: Resamples,
    contenders: tuple[Contender, ...],
    winner: tuple[str | None, str] = (None, "primitives of all families stand side by side"),
) -> ParetoSelection:
    options, costs = case.options, weighed_costs(resamples)
    kept = _reduced(case, resamples, costs, options.most_share)
    shares = _shares(case, resamples, kept)
    if why := _too_little(case, kept, shares):
        raise UsageError(
            f"a share of {options.most_share:g} leaves too little to search: {why}",
            hint=_share_that_does(case, resamples, costs),
        )
    slots, again = case.space.slots, _again(case)
    marks = _marks(case, kept)
    return ParetoSelection(
        groups=tuple(tuple(slot.choices[int(i)] for i in own) for slot, own in zip(slots, kept, strict=True)),
        primitives=tuple(
            tuple(
                Kept(name=name, frequency=float(f[i]), stays=i in own, again=float(often[i]), **_wilson(f[i], options))
                for i, name in enumerate(slot.choices)
            )
            for slot, own, f, often in zip(
                slots, kept, case.frequencies, _by_group(case, again.mean(axis=0)), strict=True
            )
        ),
        family=winner[0],
        why=winner[1],
        contenders=contenders,
        share_kept=float(shares.mean()),
        share_low=float(np.quantile(shares, 0.025)),
        share_high=float(np.quantile(shares, 0.975)),
        stability=float(np.mean((again & marks).sum(axis=1) / (again | marks).sum(axis=1))),
        reference=resamples.reference,
    )


def _reduced(case: _Case, resamples: Resamples, costs: WeighedCosts, share: float) -> tuple[Ints, ...]:
    """What each group keeps so that this share of the networks is left, at least one; of all, what is on any front.

    By effects, which add up; in a space of not too many networks mended by what pairs add.
    """
    if share >= 1:
        return tuple(np.flatnonzero(frequencies) for frequencies in case.frequencies)
    most = max(1.0, share * case.space.size)
    kept = reduce_choices(costs, most=most)
    if case.space.size > MOST_EXCHANGED:
        return kept
    # Other draws than those by which the choice is told: by its own it would look better than it is.
    front = drawn_front(case.prices, resamples, kept, case.places, seed=_SEED)
    placed = [own[left] for own, left in zip(case.places, kept, strict=True)]
    found = exchanged(front, placed, most)
    return tuple(np.flatnonzero(np.isin(own, left)) for own, left in zip(case.places, found, strict=True))


def _again(case: _Case) -> NDArray[np.bool_]:
    """Which choices of all groups, one after the other, are kept where the same networks are measured again: (B, C)."""
    options, found = case.options, []
    worlds = zip(*(one.again(_REPEATS, seed=options.seed) for one in case.prices), strict=True)
    for accurate, fast in worlds:
        one = Resamples(
            latencies=fast.effects.draw(_FEW, seed=options.seed),
            logits=accurate.effects.draw(_FEW, seed=options.seed + 1),
            reference=case.reference,
        ).restricted(case.places)
        other = replace(case, prices=(accurate, fast))
        if options.most_share >= 1:
            other = replace(other, frequencies=judged(one)[0])
        found.append(_marks(case, _reduced(other, one, weighed_costs(one), options.most_share)))
    return np.array(found)


def _marks(case: _Case, kept: tuple[Ints, ...]) -> NDArray[np.bool_]:
    """Which choices of all groups are kept, one group after the other."""
    return np.concatenate(
        [np.isin(np.arange(len(slot.choices)), own) for slot, own in zip(case.space.slots, kept, strict=True)]
    )


def _by_group(case: _Case, values: Floats) -> list[Floats]:
    ends = np.cumsum([len(slot.choices) for slot in case.space.slots])
    return np.split(values, ends[:-1])


def _shares(case: _Case, resamples: Resamples, kept: tuple[Ints, ...]) -> Floats:
    """The share of the hypervolume that the kept networks reach, in each draw of all that is believed: (K,)."""
    front = drawn_front(case.prices, resamples, kept, case.places)
    return front.shares([own[left] for own, left in zip(case.places, kept, strict=True)])


def _too_little(case: _Case, kept: tuple[Ints, ...], shares: Floats) -> str:
    """Why a choice leaves too little to be worth a search; nothing where it does not."""
    left = math.prod(map(len, kept))
    if left == 1 < case.space.size:
        return f"1 of {case.space.size} networks, which is not a space any more"
    low, high = np.quantile(shares, [0.025, 0.975])
    if low < _LEAST_KEPT:
        return (
            f"{left} of {case.space.size} networks keep {shares.mean():.1%} [{100 * low:.1f}, {100 * high:.1f}] of the "
            "hypervolume, which may be less than half"
        )
    return ""


def _share_that_does(case: _Case, resamples: Resamples, costs: WeighedCosts) -> str:
    """The next step where a share leaves too little: the least of growing ones that does not."""
    share = case.options.most_share
    while share < 1:
        share = min(1.0, math.ceil(100 * share * _GROWTH) / 100)
        kept = _reduced(case, resamples, costs, share)
        if not _too_little(case, kept, _shares(case, resamples, kept)):
            return f"Use --max-fraction {share:g}, which leaves {math.prod(map(len, kept))} networks, or measure more."
    return "Measure more networks: not even all of them are known well enough."


def _wilson(frequency: float, options: ParetoOptions) -> dict[str, float]:
    """The interval of a frequency among the resamples (Wilson, 1927)."""
    n, z = options.resamples, _NORMAL_95
    middle = (frequency + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(frequency * (1 - frequency) / n + z * z / (4 * n * n))
    return {"low": max(0.0, middle - half), "high": min(1.0, middle + half)}


def _places(space: Space, family: str) -> list[Ints]:
    """The choices of a family in each group."""
    return [
        np.array([i for i, name in enumerate(slot.choices) if parse_name(name)[0] == family], dtype=np.intp)
        for slot in space.slots
    ]


def _part(space: Space, places: list[Ints]) -> Space:
    return Space(
        tuple(
            Slot(slot.name, tuple(slot.choices[int(i)] for i in own))
            for slot, own in zip(space.slots, places, strict=True)
        )
    )


def _contenders(space: Space, whole: Resamples, measured: Ints, points: Floats) -> list[Contender]:
    """The families that have a primitive in each group. ProblemError for none."""
    names = sorted({parse_name(name)[0] for slot in space.slots for name in slot.choices})
    found = []
    for family in names:
        places = _places(space, family)
        if all(map(len, places)):
            own = np.array([[i in place for i, place in zip(row, places, strict=True)] for row in measured.tolist()])
            _, volumes = judged(whole.restricted(places))
            measured_volume = hypervolume(points[own.all(axis=1)], whole.reference)
            found.append(Contender(family=family, volumes=volumes, measured=measured_volume))
    if not found:
        raise ProblemError("no family has a primitive in each cell group", hint="Select from mixed families.")
    return found

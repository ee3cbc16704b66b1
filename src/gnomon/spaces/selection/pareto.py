"""The Pareto selection: the primitives that networks on the front of accuracy and latency are made of.

Both prices are learned from the networks that were measured, with what stays unknown (`effects`). From that, posterior
samples are drawn; in each of them the front over *all* networks, mixed ones included, is exact. How often a primitive
is part of it says how sure its use is (stability selection: Meinshausen and Buehlmann, 2010).

The selection is the one that is expected to lose least while a share of the networks is left (`reduce`). It does not
depend on the unit of latency, and nothing but the measurements has a part in it. A share that leaves too little to be
worth a search is refused, with the share that would do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.spaces.cells.effects import Evidence
from gnomon.spaces.selection.beliefs import MOST_EXCHANGED, Beliefs, believe, drawn_front, exchanged
from gnomon.spaces.selection.reduce import Resamples, frequencies_of, reduce_choices, weighed_costs

_LEAST_KEPT = 0.5
"""Where the interval of the kept hypervolume begins below this, the choice may lose more of the front than it keeps."""
_GROWTH = 1.25
_REPEATS, _FEW = 20, 40
"""So often it is thought to be measured again, with so many resamples each."""
_NORMAL_95 = 1.959964
_SEED, _RESAMPLED = 12, 0
"""A choice hangs on its measurements alone: no seed of a user's has a part in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoOptions:
    """Options of the selection.

    - `most_share`: the share of the networks that may be left (above 0, to 1); with 1 only what is on no front goes.
    - `resamples`: how many posterior samples are drawn; always the same ones.
    """

    most_share: float = 0.1
    resamples: int = 200

    def __post_init__(self) -> None:
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
    """The selection, and its reasons.

    `groups` are the names that stay, by the space's order; `primitives` all candidates of each group. `share_kept` is
    the expected share of the hypervolume that the kept networks reach, and the interval that 95 % of the samples lie
    in, up to the largest latency, over the median one, and error rate of what was measured. `stability` is how much of
    the choice is expected to come out again where the same networks are measured again: the mean Jaccard index of the
    (group, primitive) that are kept. It is a property, and nothing is chosen by it.
    """

    groups: tuple[tuple[str, ...], ...]
    primitives: tuple[tuple[Kept, ...], ...]
    share_kept: tuple[float, float, float]
    stability: float


def select_pareto(
    space: Space, accuracy: Evidence, latency: Evidence, options: ParetoOptions | None = None
) -> ParetoSelection:
    """The Pareto selection of a space, from accuracies (fractions) and latencies (any unit) of some of its networks.

    The networks need not be the same in both. Groups stand in the order in which a network has them; the order of
    choices changes nothing: selections that lose equally much differ by rounding alone, so all is computed in the order
    of their names. ProblemError for values that are not possible. UsageError for a share that leaves one network, or so
    few that the interval of what they keep begins below half.
    """
    orders = [sorted(range(len(slot.choices)), key=slot.choices.__getitem__) for slot in space.slots]
    named = Space(tuple(Slot(slot.name, tuple(sorted(slot.choices))) for slot in space.slots))
    moved = [
        replace(
            own,
            assignments=np.column_stack([np.argsort(orders[g])[column] for g, column in enumerate(own.assignments.T)]),
        )
        for own in (accuracy, latency)
    ]
    selection = _select_named(named, moved[0], moved[1], options or ParetoOptions())
    by_name = [{kept.name: kept for kept in own} for own in selection.primitives]
    return replace(
        selection,
        groups=tuple(
            tuple(name for name in slot.choices if name in own)
            for slot, own in zip(space.slots, selection.groups, strict=True)
        ),
        primitives=tuple(
            tuple(own[name] for name in slot.choices if name in own)
            for slot, own in zip(space.slots, by_name, strict=True)
        ),
    )


def _select_named(space: Space, accuracy: Evidence, latency: Evidence, options: ParetoOptions) -> ParetoSelection:
    """The selection of a space whose choices stand in the order of their names."""
    beliefs = believe(space, accuracy, latency)
    resamples = beliefs.resamples(options.resamples, _RESAMPLED)
    case = _Case(space, beliefs, resamples, frequencies_of(resamples), options)
    kept = _reduced(case, options.most_share)
    shares = _shares(case, kept)
    if why := _too_little(case, kept, shares):
        raise UsageError(
            f"a share of {options.most_share:g} leaves too little to search: {why}", hint=_share_that_does(case)
        )
    slots, again, marks = space.slots, _again(case), _marks(case, kept)
    often = np.split(again.mean(axis=0), np.cumsum([len(slot.choices) for slot in slots])[:-1])
    return ParetoSelection(
        groups=tuple(tuple(slot.choices[int(i)] for i in own) for slot, own in zip(slots, kept, strict=True)),
        primitives=tuple(
            tuple(
                Kept(name=name, frequency=float(f[i]), stays=i in own, again=float(times[i]), **_wilson(f[i], options))
                for i, name in enumerate(slot.choices)
            )
            for slot, own, f, times in zip(slots, kept, case.frequencies, often, strict=True)
        ),
        share_kept=(float(shares.mean()), float(np.quantile(shares, 0.025)), float(np.quantile(shares, 0.975))),
        stability=float(np.mean((again & marks).sum(axis=1) / (again | marks).sum(axis=1))),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of a selection: space, posterior and resamples."""

    space: Space
    beliefs: Beliefs
    resamples: Resamples
    frequencies: tuple[Floats, ...]
    options: ParetoOptions


def _reduced(case: _Case, share: float) -> tuple[Ints, ...]:
    """The choices that each group keeps so that this share of the networks is left, at least one network.

    By effects, which add up; in a space of not too many networks mended with the effects of pairs.
    """
    if share >= 1:
        return tuple(np.flatnonzero(frequencies) for frequencies in case.frequencies)
    most = max(1.0, share * case.space.size)
    kept = reduce_choices(weighed_costs(case.resamples), most=most)
    if case.space.size > MOST_EXCHANGED:
        return kept
    # Other draws than those that score the choice: on its own draws it would look better than it is.
    return exchanged(drawn_front(case.beliefs, case.resamples, kept, seed=_SEED), kept, most)


def _again(case: _Case) -> NDArray[np.bool_]:
    """Whether each choice of all groups is kept in simulated repeats of the measurements: (B, C)."""
    options, rows = case.options, []
    for beliefs in case.beliefs.again(_REPEATS, seed=_RESAMPLED):
        resamples = beliefs.resamples(_FEW, _RESAMPLED)
        frequencies = frequencies_of(resamples) if options.most_share >= 1 else case.frequencies
        other = replace(case, beliefs=beliefs, resamples=resamples, frequencies=frequencies)
        rows.append(_marks(case, _reduced(other, options.most_share)))
    return np.array(rows)


def _marks(case: _Case, kept: tuple[Ints, ...]) -> NDArray[np.bool_]:
    """Whether each choice of all groups is kept, one group after the other."""
    return np.concatenate(
        [np.isin(np.arange(len(slot.choices)), own) for slot, own in zip(case.space.slots, kept, strict=True)]
    )


def _shares(case: _Case, kept: tuple[Ints, ...]) -> Floats:
    """The share of the hypervolume that the kept networks reach, in each draw of all that is believed: (K,)."""
    return drawn_front(case.beliefs, case.resamples, kept).shares(kept)


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


def _share_that_does(case: _Case) -> str:
    """The next step where a share leaves too little: the least of growing ones that does not."""
    share = case.options.most_share
    while share < 1:
        share = min(1.0, math.ceil(100 * share * _GROWTH) / 100)
        kept = _reduced(case, share)
        if not _too_little(case, kept, _shares(case, kept)):
            return f"Use --max-fraction {share:g}, which leaves {math.prod(map(len, kept))} networks, or measure more."
    return "Measure more networks: not even all of them are known well enough."


def _wilson(frequency: float, options: ParetoOptions) -> dict[str, float]:
    """The interval of a frequency among the resamples (Wilson, 1927)."""
    n, z = options.resamples, _NORMAL_95
    middle = (frequency + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(frequency * (1 - frequency) / n + z * z / (4 * n * n))
    return {"low": max(0.0, middle - half), "high": min(1.0, middle + half)}

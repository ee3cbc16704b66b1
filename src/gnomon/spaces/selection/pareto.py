"""The Pareto selection: the primitives of networks on the front of accuracy and latency.

Both prices are learned from the measured networks, with their remaining uncertainty (`effects`). Samples are drawn from
this posterior; in each sample, the front over *all* networks, including those that mix families, is exact. The
frequency with which a primitive is part of the front shows how certain its use is (stability selection: Meinshausen and
Buehlmann, 2010).

Of the selections that leave at most a given share of the networks, the one with the least expected loss is used
(`reduce`). It depends on the measurements, but not on the unit of their latencies. A share that leaves too little for a
search is refused, with a hint that names a sufficient share.
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
"""If the interval of the kept hypervolume begins below this, the choice is refused: it may lose more than it keeps."""
_GROWTH = 1.25
_REPEATS, _FEW = 20, 40
"""The number of simulated repeats of the measurements, and the number of resamples in each repeat."""
_NORMAL_95 = 1.959964
_SEED, _RESAMPLED = 12, 0
"""A choice depends on its measurements alone, not on a user's seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoOptions:
    """Options of the selection.

    - `most_share`: the largest share of the networks that may be left (above 0, at most 1); with 1, only primitives
      that are on no front are dropped.
    - `resamples`: the number of posterior samples; the samples are the same in every run.
    """

    most_share: float = 0.1
    resamples: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.most_share <= 1:
            raise UsageError(f"the share is {self.most_share}", hint="Use a share above 0 and at most 1, such as 0.1.")
        if self.resamples < 2:
            raise UsageError(f"resamples={self.resamples} is too small", hint="Use 2 or more, such as 200.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A primitive of a cell group, with the frequency with which it is on the front and that frequency's 95 % interval.

    `stays` says whether the primitive was kept, and `again` says how often it would be kept if the same networks were
    measured again.
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

    `groups` are the names of the kept primitives, in the order of the space; `primitives` are all candidates of each
    group. `share_kept` is the expected share of the hypervolume that the kept networks reach, and its 95 % interval;
    hypervolume counts up to the largest latency (relative to the median) and error rate of the measured networks.
    `stability` says how much of the choice is expected to be chosen again if the same networks are measured again: the
    mean Jaccard index of the kept (group, primitive) pairs. It is only reported, and does not affect the choice.
    """

    groups: tuple[tuple[str, ...], ...]
    primitives: tuple[tuple[Kept, ...], ...]
    share_kept: tuple[float, float, float]
    stability: float


def select_pareto(
    space: Space, accuracy: Evidence, latency: Evidence, options: ParetoOptions | None = None
) -> ParetoSelection:
    """The Pareto selection of a space, from accuracies (fractions) and latencies (any unit) of some of its networks.

    The networks need not be the same in both. Groups are in the order in which a network has them. The order of choices
    does not matter: because rounding could decide between equally good selections, everything is computed in the order
    of the names. ProblemError for impossible values. UsageError for a share that leaves one network, or so few that the
    interval of the kept hypervolume begins below half.
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
    """The selection of a space whose choices are in the order of their names."""
    beliefs = believe(space, accuracy, latency)
    resamples = beliefs.resamples(options.resamples, _RESAMPLED)
    case = _Case(space, beliefs, resamples, frequencies_of(resamples), options)
    kept = _reduced(case, options.most_share)
    shares = _shares(case, kept)
    if why := _too_little(case, kept, shares):
        raise UsageError(
            f"a share of {options.most_share:g} leaves too little for a search: {why}", hint=_share_that_does(case)
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
    """The choices that each group keeps, so that at most this share of the networks is left, but at least one network.

    They are chosen by effects, which add up; if the space is not too large, they are then improved by the effects of
    pairs.
    """
    if share >= 1:
        return tuple(np.flatnonzero(frequencies) for frequencies in case.frequencies)
    most = max(1.0, share * case.space.size)
    kept = reduce_choices(weighed_costs(case.resamples), most=most)
    if case.space.size > MOST_EXCHANGED:
        return kept
    # These draws differ from those that judge the choice: on the draws that led to it, it would look better than it is.
    return exchanged(drawn_front(case.beliefs, case.resamples, kept, seed=_SEED), kept, most)


def _again(case: _Case) -> NDArray[np.bool_]:
    """For each choice of every group, whether it is kept in each simulated repeat of the measurements: (B, C)."""
    options, rows = case.options, []
    for beliefs in case.beliefs.again(_REPEATS, seed=_RESAMPLED):
        resamples = beliefs.resamples(_FEW, _RESAMPLED)
        frequencies = frequencies_of(resamples) if options.most_share >= 1 else case.frequencies
        other = replace(case, beliefs=beliefs, resamples=resamples, frequencies=frequencies)
        rows.append(_marks(case, _reduced(other, options.most_share)))
    return np.array(rows)


def _marks(case: _Case, kept: tuple[Ints, ...]) -> NDArray[np.bool_]:
    """For each choice, one group after the other, whether it is kept."""
    return np.concatenate(
        [np.isin(np.arange(len(slot.choices)), own) for slot, own in zip(case.space.slots, kept, strict=True)]
    )


def _shares(case: _Case, kept: tuple[Ints, ...]) -> Floats:
    """The share of the hypervolume that the kept networks reach, in each draw from the posterior: (K,)."""
    return drawn_front(case.beliefs, case.resamples, kept).shares(kept)


def _too_little(case: _Case, kept: tuple[Ints, ...], shares: Floats) -> str:
    """The reason why a choice leaves too little to be worth a search; empty if it leaves enough."""
    left = math.prod(map(len, kept))
    if left == 1 < case.space.size:
        return f"only 1 of {case.space.size} networks remains"
    low, high = np.quantile(shares, [0.025, 0.975])
    if low < _LEAST_KEPT:
        return (
            f"{left} of {case.space.size} networks keep {shares.mean():.1%} [{100 * low:.1f}, {100 * high:.1f}] of the "
            "hypervolume, so perhaps less than half"
        )
    return ""


def _share_that_does(case: _Case) -> str:
    """The hint for a share that leaves too little: the first of several growing shares that leaves enough."""
    share = case.options.most_share
    while share < 1:
        share = min(1.0, math.ceil(100 * share * _GROWTH) / 100)
        kept = _reduced(case, share)
        if not _too_little(case, kept, _shares(case, kept)):
            return f"Use --max-fraction {share:g}, which leaves {math.prod(map(len, kept))} networks, or measure more."
    return "Measure more networks: even the choice that keeps the most is not known well enough."


def _wilson(frequency: float, options: ParetoOptions) -> dict[str, float]:
    """The interval of a frequency among the resamples (Wilson, 1927)."""
    n, z = options.resamples, _NORMAL_95
    middle = (frequency + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(frequency * (1 - frequency) / n + z * z / (4 * n * n))
    return {"low": max(0.0, middle - half), "high": min(1.0, middle + half)}

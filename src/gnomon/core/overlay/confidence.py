"""The confidence in the choice of a layer: a bootstrap of the samples behind its times.

The samples of each configuration on each device are drawn again, with replacement. Medians, theta and M are computed
from the draws, and the resamplings in which the chosen configuration has the least M are counted (Efron and Tibshirani,
"An Introduction to the Bootstrap", 1993). Samples of one session share its luck: drawn one by one they make a choice
look more certain than it is, so whole blocks are drawn instead. Neither way of drawing shows an error that all blocks
of a device have in common.

Only draws that can matter are made; leaving out the others does not change the result. A median of drawn samples is
never outside the range of the samples, so each time has a least and a largest value. If a configuration at its least
times loses against the chosen one at its largest times, for every possible theta, it cannot win any resampling. A time
whose least value is above the largest value of another configuration on the same device can never be theta. The draws
of each time have their own seed, so skipping some draws does not change the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.overlay.choice import LayerChoice, regrets_of
from gnomon.core.overlay.samples import Blocks, SampleTable
from gnomon.errors import UsageError

_ROUNDING = 1e-12  # as in the choice itself: relative to the sum of t / theta
_TAIL = 0.025  # the share beyond either end of the interval
_SURE = 0.9  # the share of resamplings in which a sure choice must be chosen again
_CLOSE = 0.05  # the share from which another configuration is close to a choice that is not sure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceConfidence:
    """The confidence in a choice, from resamplings.

    `share` is the part of the resamplings in which the choice has the least M. Between `low` and `high` lie 95 % of its
    values of M. Two biases are not corrected: theta is the least of many times and so is too low, and the chosen
    configuration may have been chosen partly by luck. `runner_up` is the other configuration that most often has the
    least M (ties are decided by the smaller measured M); it is empty if no other configuration is complete. If the
    choice is not sure, with a share below 0.9, `close` has the choice, the runner-up, and all others with a share of
    at least 0.05.
    """

    share: float
    low: float
    high: float
    runner_up: str
    close: tuple[str, ...]


def choice_confidence(
    choice: LayerChoice, samples: SampleTable, *, resamples: int = 1000, seed: int = 0
) -> ChoiceConfidence | None:
    """Resample the samples on which `choice` is based; None if nothing was chosen.

    `samples` has, for each time behind the choice, its samples in blocks (sessions), which are drawn whole if there are
    several; all samples are finite and above 0. The same `seed` gives the same result. Raises UsageError for fewer than
    1 resample, or a seed below 0.
    """
    if resamples < 1 or seed < 0:
        raise UsageError(
            f"resamples is {resamples} and seed is {seed}", hint="Use at least 1, and a seed of 0 or more."
        )
    if choice.chosen is None:
        return None
    times = choice.times
    low, high = samples.ranges(len(times.configurations))
    contenders = _contenders(low, high, choice.chosen)
    metric = np.zeros((len(contenders), resamples))
    for device in range(len(times.devices)):
        fastest = np.flatnonzero(low[:, device] <= np.fmin.reduce(high[:, device])).tolist()  # in some resampling
        drawn = {}
        for row in sorted({*contenders, *fastest}):
            blocks = samples[row, device]
            draw = _medians_by_block if len(blocks) > 1 else _medians
            drawn[row] = draw(blocks, resamples, np.random.default_rng([seed, row, device]))
        theta = np.min(list(drawn.values()), axis=0)
        for place, row in enumerate(contenders):
            metric[place] += regrets_of(drawn[row], theta)
    return _summary(choice, choice.chosen, contenders, metric)


def _ends(values: Floats) -> Floats:
    """The ends of the middle 95 % along the last axis, the lower ones first."""
    ordered = np.sort(values, axis=-1)  # no interpolation: M may be infinite
    tail = int(_TAIL * (ordered.shape[-1] - 1))
    return np.stack([ordered[..., tail], ordered[..., -1 - tail]])


def _contenders(low: Floats, high: Floats, chosen: int) -> list[int]:
    """The indices of the complete configurations that can have the least M in some resampling, in order.

    The difference between two values of M is a sum over devices of (difference of times) / theta. Each term is smallest
    at the smallest theta if its difference of times is negative, and at the largest theta if it is positive.
    """
    theta_low, theta_high = np.fmin.reduce(low, axis=0), np.fmin.reduce(high, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        difference = low - high[chosen]
        least = (difference / np.where(difference < 0, theta_low, theta_high)).sum(axis=1)
        leeway = _ROUNDING * float((high[chosen] / theta_low).sum())
    cannot = (least > leeway) | np.isnan(low).any(axis=1)
    cannot[chosen] = False
    return [int(row) for row in np.flatnonzero(~cannot)]


def _medians(blocks: Blocks, resamples: int, generator: np.random.Generator) -> Floats:
    """The medians (resamples,) of as many samples as there are, drawn one by one with replacement.

    A draw is an index floor(n u) with u uniform, and the indices have the same order as their u. So only the middle
    order statistics of the u need be drawn, and these are beta variables (David and Nagaraja, Order Statistics, 2.3).
    """
    ordered = np.sort([t for block in blocks for t in block])
    count = len(ordered)
    if count == 1 or ordered[0] == ordered[-1]:
        return np.full(resamples, ordered[0])
    middle = (count + 1) // 2
    u = generator.beta(middle, count - middle + 1, resamples)
    lower = ordered[np.minimum((u * count).astype(np.intp), count - 1)]
    if count % 2:
        return np.asarray(lower)
    # The next order statistic is the smallest of the remaining count - middle uniforms, all above u.
    following = u + (1 - u) * generator.beta(1, count - middle, resamples)
    upper = ordered[np.minimum((following * count).astype(np.intp), count - 1)]
    return np.asarray(lower + (upper - lower) / 2)


def _medians_by_block(blocks: Blocks, resamples: int, generator: np.random.Generator) -> Floats:
    """The medians (resamples,) of the samples in as many whole blocks as there are, drawn with replacement."""
    number = len(blocks)
    values = np.array([t for block in blocks for t in block])
    order = np.argsort(values, kind="stable")
    owner = np.repeat(np.arange(number), [len(block) for block in blocks])[order]
    often = generator.multinomial(number, np.full(number, 1 / number), resamples)
    below = often[:, owner].cumsum(axis=1)
    total = below[:, -1:]
    last = len(values) - 1
    lower = np.minimum((below <= (total - 1) // 2).sum(axis=1), last)
    upper = np.minimum((below <= total // 2).sum(axis=1), last)
    ordered = values[order]
    return np.asarray(ordered[lower] + (ordered[upper] - ordered[lower]) / 2)


def _summary(choice: LayerChoice, chosen: int, contenders: Sequence[int], metric: Floats) -> ChoiceConfidence:
    """The confidence from M (contenders, resamples), by the number of times that each contender has the least M."""
    times = choice.times
    least = metric.min(axis=0)
    wins = (metric <= least + _ROUNDING * (least + len(times.devices))).mean(axis=1)
    place = contenders.index(chosen)
    observed = choice.metric.tolist()
    others = [k for k in range(len(observed)) if k != chosen and observed[k] == observed[k]]
    share_of = dict(zip(contenders, wins.tolist(), strict=True))
    second = min(others, key=lambda k: (-share_of.get(k, 0.0), observed[k]), default=None)
    ends = _ends(metric[place]).tolist()
    sure = wins[place] >= _SURE or second is None
    close = [] if sure else [k for k in contenders if k in (chosen, second) or share_of[k] >= _CLOSE]
    return ChoiceConfidence(
        share=float(wins[place]),
        low=ends[0],
        high=ends[1],
        runner_up="" if second is None else times.configurations[second],
        close=tuple(times.configurations[k] for k in close),
    )

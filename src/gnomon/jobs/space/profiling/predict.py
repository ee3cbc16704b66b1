"""The latency of any network of a cell space: a sum over one-change variants, or an estimator that is proved better.

The additive model needs no mixed network, but the default network's own error counts in it once for each swap beyond
the first. The estimator is a linear model of the same primitives, fitted to all networks that were measured, mixed ones
too (`gnomon.estimate.fit`), so that no single network counts more than another. A third model also counts which
primitives are neighbours, which is where runtimes convert layouts or scales. Which is taken is decided by the error on
measured mixed networks that it was not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal, get_args

import numpy as np

from gnomon.estimate.columns import Columns, FitOptions, Floats, Unknown
from gnomon.estimate.estimator import Estimator, Prediction
from gnomon.estimate.fit import fit
from gnomon.jobs.space.document import HeldOutPart, PredictorPart
from gnomon.spaces.cells.costs import FOLDS, LEAST_MIXED, Cells, Latency, LayerCosts, kendall_tau, layer_costs
from gnomon.spaces.cells.effects import indicators
from gnomon.spaces.cells.space import swaps
from gnomon.spaces.features import Ints

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
Assignment = tuple[int, ...]
Way = Literal["additive", "estimator", "estimator with neighbours"]
WAYS: tuple[Way, ...] = get_args(Way)
NEIGHBOURS: Way = "estimator with neighbours"
COVERAGE = 0.9


def columns_of(cells: Cells, *, neighbours: bool) -> Columns:
    """A column a swap of one primitive in one group, and one a pair of primitives that meet, wherever they do."""
    swapped = [f"cell{group}:{name}" for group, ones in enumerate(cells.choices) for name in ones]
    kept = [name for name, own in zip(swapped, _is_swap(cells), strict=True) if own]
    if not neighbours:
        return Columns(names=tuple(kept), kinds=("swap",) * len(kept))
    pairs = [f"{a}>{b}" for a, b in _pairs(cells)]
    return Columns(names=(*kept, *pairs), kinds=("swap",) * len(kept) + ("neighbours",) * len(pairs))


def rows_of(cells: Cells, chosen: Ints, *, neighbours: bool) -> Floats:
    """Networks (networks, groups) as rows, in the order of the columns."""
    rows: Floats = indicators(chosen, [len(ones) for ones in cells.choices])[:, _is_swap(cells)]
    if not neighbours:
        return rows
    place = {pair: k for k, pair in enumerate(_pairs(cells))}
    counts = np.zeros((len(chosen), len(place)))
    for row, net in enumerate(chosen):
        for a, b in _meetings(cells):
            counts[row, place[cells.choices[a][net[a]], cells.choices[b][net[b]]]] += 1
    return np.concatenate([rows, counts], axis=1)


def _is_swap(cells: Cells) -> Flags:
    """Which of all choices, group by group, are none of the default network's."""
    flags = [
        k != default for ones, default in zip(cells.choices, cells.defaults, strict=True) for k in range(len(ones))
    ]
    return np.array(flags, bool)


def _meetings(cells: Cells) -> list[tuple[int, int]]:
    """The groups on both sides of each place where one layer's group is followed by another."""
    return [(a, b) for a, b in pairwise(cells.groups) if a != b]


def _pairs(cells: Cells) -> list[tuple[str, str]]:
    """The names of all primitives that may meet."""
    found = (pair for a, b in _meetings(cells) for pair in product(cells.choices[a], cells.choices[b]))
    return list(dict.fromkeys(found))


def strange(cells: Cells, chosen: Ints, seen: Sequence[tuple[int, ...]]) -> Flags:
    """Which networks have a primitive where none of those seen has it."""
    counts = [len(ones) for ones in cells.choices]
    known = indicators(seen, counts).any(axis=0)
    return np.asarray((indicators(chosen, counts)[:, ~known] != 0).any(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpacePredictor:
    """Latencies of any network of the cells. Made by `fit_predictor`.

    `part` says what predicts, why, and how far each way that could be tested on mixed networks is off; its `noise` is
    the mean relative standard error of those networks' own latencies: no way gets below it. `width` makes an interval
    of the way's own doubt (of the additive one: of the prediction), by what held-out networks showed. `fitted` are all
    networks that the estimator was fitted to.
    """

    costs: LayerCosts
    part: PredictorPart
    width: float
    fitted: tuple[Assignment, ...]
    estimator: Estimator | None

    def predict(self, assignments: Sequence[Sequence[int]] | Ints) -> Prediction:
        """Latencies of networks (networks, groups) with 90 % intervals, in seconds.

        NaN for a network with a primitive at a place where it was never measured, such as one that does not run there.
        An additive prediction has an infinite interval where too few mixed networks tell how wide it is.
        """
        cells = self.costs.cells
        chosen = np.asarray(assignments, np.int64).reshape(-1, len(cells.choices))
        told = self.costs.predict_s(chosen)
        if self.estimator is None:
            wide = np.where(np.isnan(told), np.nan, self.width)
            return Prediction(mean_s=told, low_s=np.maximum(told * (1 - wide), 0.0), high_s=told * (1 + wide))
        rows = rows_of(cells, chosen, neighbours=self.part.way == NEIGHBOURS)
        found = self.estimator.predict(rows, unknown=Unknown.WIDEN)
        half = (found.high_s - found.mean_s) * self.width
        ends = [found.mean_s, np.maximum(found.mean_s - half, 0.0), found.mean_s + half]
        unknown = strange(cells, chosen, self.fitted)
        mean, low, high = (np.where(unknown, np.nan, values) for values in ends)
        return Prediction(mean_s=mean, low_s=low, high_s=high)


def score(predicted: Floats, measured: Floats) -> HeldOutPart:
    """The errors |predicted / measured - 1| of networks (networks,), and Kendall's tau-b of both; None of one alone."""
    off = np.abs(predicted / measured - 1)
    return HeldOutPart(
        networks=len(off),
        mean=float(off.mean()),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        tau=tau(predicted, measured),
    )


def tau(predicted: Floats, measured: Floats) -> float | None:
    """Kendall's tau-b of predicted and measured values; None for one alone."""
    return kendall_tau(predicted, measured) if len(measured) > 1 else None


def fit_predictor(
    cells: Cells,
    measured: Mapping[Assignment, Latency],
    *,
    way: Way | None = None,
) -> SpacePredictor:
    """The predictor from the default network, its one-change variants, and mixed networks as far as there are any.

    A way that is fitted is tested on folds of the mixed networks, and taken if its error is the lowest; that with
    neighbours only if it is so by more than a standard error of the difference. Or the `way` that is named is taken.
    """
    costs, single = layer_costs(cells, measured), set(swaps(cells.defaults, [len(ones) for ones in cells.choices]))
    mixed = [net for net in measured if net not in single]
    y = np.array([measured[net].call_s for net in mixed])
    noise = float(np.mean([measured[net].error_s / measured[net].call_s for net in mixed])) if mixed else None
    off = _held_out(costs, measured, mixed)
    best, why = _chosen({one: np.abs(predicted / y - 1) for one, (predicted, _) in off.items()})
    if way is not None and way != best:
        best, why = way, f"it was asked for; {best} would have been chosen: {why}"
    width = _width(np.abs(off[best][0] - y) / off[best][1], best) if best in off else math.inf
    return SpacePredictor(
        costs=costs,
        part=PredictorPart(
            way=best,
            why=why,
            held_out={one: score(predicted, y) for one, (predicted, _) in off.items()},
            noise=noise,
            width=width if math.isfinite(width) else None,
        ),
        width=width,
        fitted=tuple(measured),
        estimator=None if best == "additive" else _fit(cells, measured, list(measured), best),
    )


def _held_out(
    costs: LayerCosts, measured: Mapping[Assignment, Latency], mixed: Sequence[Assignment]
) -> dict[Way, tuple[Floats, Floats]]:
    """What each way predicts of each mixed network without having seen it, and its own doubt, in seconds.

    Ways that cannot be tested are left out.
    """
    found: dict[Way, tuple[Floats, Floats]] = {}
    if not mixed:
        return found
    additive = costs.predict_s(mixed)
    if not np.isnan(additive).any():
        found["additive"] = additive, additive
    if len(mixed) < LEAST_MIXED:
        return found
    fold = np.random.default_rng(0).permutation(len(mixed)) % min(FOLDS, len(mixed))
    for way in WAYS[1:]:
        told, doubt = np.empty(len(mixed)), np.empty(len(mixed))
        for k in range(int(fold.max()) + 1):
            out = [net for net, own in zip(mixed, fold, strict=True) if own == k]
            made = _fit(costs.cells, measured, [net for net in measured if net not in set(out)], way)
            rows = rows_of(costs.cells, np.array(out), neighbours=way == NEIGHBOURS)
            one = made.predict(rows, unknown=Unknown.WIDEN)
            told[fold == k], doubt[fold == k] = one.mean_s, one.high_s - one.mean_s
        found[way] = told, doubt
    return found


def _chosen(off: Mapping[Way, Floats]) -> tuple[Way, str]:
    """The way with the least held-out error, that without neighbours where it may be chance; and a sentence."""
    if not off:
        return "additive", "no mixed network was measured, so that nothing could be tested"
    ways = list(off)
    if ways == ["additive"]:
        few = len(off["additive"])
        return "additive", f"{few} mixed networks are too few to fit to some and test on others"
    best = min(ways[:2], key=lambda way: float(off[way].mean()))
    for way in ways[2:]:
        gain = off[best] - off[way]
        if gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain)):
            best = way
    told = ", ".join(f"{way} {values.mean():.1%}" for way, values in off.items())
    why = f"mean error on {len(off[best])} mixed networks that were not fitted to: {told}"
    if off[best].mean() > min(values.mean() for values in off.values()):
        why += "; what is lower is so by no more than chance allows"
    return best, why


def _fit(cells: Cells, measured: Mapping[Assignment, Latency], nets: Sequence[Assignment], way: Way) -> Estimator:
    """The linear model, fitted to these networks. Its bias is the default network."""
    x = rows_of(cells, np.array(nets), neighbours=way == NEIGHBOURS)
    y = [measured[net].call_s for net in nets]
    return fit(
        columns_of(cells, neighbours=way == NEIGHBOURS),
        x,
        y,
        options=FitOptions(learner="never", coverage=COVERAGE),
    )


def _width(ratios: Floats, way: Way) -> float:
    """How many times a way's own doubt holds a further network with 90 % probability, by errors over doubts.

    The order statistic of split conformal prediction (Vovk, Gammerman and Shafer, 2005). Where too few tell it is
    infinite for the additive way, which knows no doubt of its own, and at least 1 for the others.
    """
    place = math.ceil((len(ratios) + 1) * COVERAGE)
    if place <= len(ratios):
        return float(np.sort(ratios)[place - 1])
    return math.inf if way == "additive" else max(1.0, float(ratios.max()))

"""The scoring of estimators: splits, ceilings, the scores of a run, and means over runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimator.data import Data
from gnomon.estimate.columns import Floats, Unknown
from gnomon.estimate.estimator import Estimator, coverage, relative_error, spearman, within

HELD_OUT = 3000
_HELD_OUT_OF_FEW = 400
_STEPS = 12
_MOST_LINEAR, _MOST_SQUARED = 500, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The nets that are held out, those that may be measured, and the rest; no net is in two of these."""

    held: NDArray[np.intp]
    pool: NDArray[np.intp]
    rest: NDArray[np.intp]


def split_of(data: Data, seed: int, pool: int) -> Split:
    """A random split: times depend on when a net was measured, so neither part may be a stretch of the file."""
    order = np.random.default_rng(seed).permutation(len(data.x)).astype(np.intp)
    held = HELD_OUT if len(order) >= HELD_OUT + pool else _HELD_OUT_OF_FEW
    pool = min(pool, len(order) - held)
    return Split(held=order[:held], pool=order[held : held + pool], rest=order[held:])


def trimmed(y: Floats, nets: NDArray[np.intp]) -> NDArray[np.intp]:
    """The nets without the fastest and the slowest tenths."""
    ordered = nets[np.argsort(y[nets], kind="stable")]
    cut = len(ordered) // 10
    return ordered[cut : len(ordered) - cut]


def scores(estimator: Estimator, x: Floats, y: Floats) -> dict[str, float]:
    """The scores of a run on held-out nets."""
    told = estimator.predict(x, unknown=Unknown.WIDEN)
    mean_error, median_error = relative_error(told.mean_s, y)
    return {
        "within_10": within(told.mean_s, y),
        "spearman": spearman(told.mean_s, y),
        "mean_error": mean_error,
        "median_error": median_error,
        "coverage": coverage(told.low_s, told.high_s, y),
        "half_width": float(np.median((told.high_s - told.mean_s) / told.mean_s)),
    }


def mean_of(runs: list[dict[str, float]]) -> dict[str, float]:
    """Means over runs; the deviation of the share within 10 %; the worst coverage, and the number below 85 %."""
    found: dict[str, float] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    if "within_10" in found and "within_10_deviation" not in found:
        found["within_10_deviation"] = float(np.std([run["within_10"] for run in runs]))
    if "coverage" in found and "covered_under_85" not in found:
        found["covered_under_85"] = float(np.mean([run["coverage"] < 0.85 for run in runs]))
        found["worst_coverage"] = min(run["coverage"] for run in runs)
    return found


def ceiling(data: Data, device: str, split: Split) -> dict[str, Any]:
    """The score of a model with as many samples as it can use, on the held-out nets: the better of two, trained on all
    other nets.

    Both are robust linear fits: on the columns alone, and also on all products of two columns if there are few columns.
    """
    y = data.times_s[device]
    found = [_trained(design, y, split) for design in _designs(data)]
    best = max(found, key=lambda f: f["within_10"])
    return {
        **best,
        "trimmed_spearman": max(f["trimmed_spearman"] for f in found),
        "spearman": max(f["spearman"] for f in found),
    }


def _designs(data: Data) -> list[Floats]:
    """The designs of the fits: the distinct columns that vary, and all products of two of them, or of the columns of
    work if there are many columns.
    """
    varied = np.unique(_relative(data.x[:, data.x.std(axis=0) > 0]).round(9), axis=1)
    found = [_with_one(varied)] if varied.shape[1] <= _MOST_LINEAR else []
    if varied.shape[1] > _MOST_SQUARED and data.columns.shared is not None:
        varied = _relative(data.x @ data.columns.shared)
    if varied.shape[1] <= _MOST_SQUARED:
        one = _with_one(varied)
        first, second = np.triu_indices(one.shape[1])
        found.append(one[:, first] * one[:, second])
    return found


def _relative(x: Floats) -> Floats:
    return np.asarray(x / np.maximum(np.abs(x).max(axis=0), 1e-300))


def _with_one(x: Floats) -> Floats:
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)


def _trained(design: Floats, y: Floats, split: Split) -> dict[str, float]:
    kept, held = split.rest, split.held
    level = float(np.median(y[kept]))
    weights = 1 / np.maximum(y[kept], 0.2 * level)
    predicted = y
    for _ in range(_STEPS):
        solution = np.linalg.lstsq(design[kept] * weights[:, None], y[kept] * weights, rcond=1e-9)[0]
        predicted = np.maximum(design @ solution, 1e-3 * level)
        size = np.maximum(predicted[kept], 0.2 * level)
        left = np.abs(y[kept] - predicted[kept]) / size
        usual = 1.5 * float(np.median(left)) + 1e-9
        weights = 1 / size / np.sqrt(1 + (left / usual) ** 2 / 3)
    inner = trimmed(y, held)
    return {
        "within_10": within(predicted[held], y[held]),
        "spearman": spearman(predicted[held], y[held]),
        "trimmed_spearman": spearman(predicted[inner], y[inner]),
        "median_error": relative_error(predicted[held], y[held])[1],
    }

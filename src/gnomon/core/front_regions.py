"""What is proved below single corners of a front, and which are still open.

A region is all that lies below a corner divided by a factor. A relaxed pass leaves bounds of what may still be there;
corners found later lie in the region of one before, so that its bounds count for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.front_hull import plane_factors
from gnomon.core.front_relax import Regions

# The main weighting and multiples of its ratio: narrow ones to tell labels apart, wide ones for what lies far away.
# Passes take turns with two sets.
_RATIOS = np.array([[1.0, 1 / 2, 2.0, 1 / 4, 4.0, 1 / 16, 16.0], [1.0, 2 / 3, 3 / 2, 2 / 5, 5 / 2, 1 / 10, 10.0]])
_TOGETHER = 0.2  # of what the factor is above 1: corners that are as close make one region
_FIRST_WIDTH = 0.5  # of the same: differences that the first pass does not tell apart
_NARROWER = 0.5  # from each pass to the next
_MOST_RATIO = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A corner (2,), the factor that it was divided by, weightings (K, 2), and the bounds (labels, K) of what is left.

    `age` counts the passes that led to it.
    """

    corner: Floats
    factor: float
    weights: Floats
    left: Floats
    age: int

    def factors(self, spots: Floats) -> Floats:
        """The factor that is proved for each of the spots (N, 2), which must lie in the region: (N,)."""
        found = np.full(len(spots), self.factor)
        reached = spots @ self.weights.T
        for row in self.left:  # each label must be closed by one of its bounds
            with np.errstate(divide="ignore", invalid="ignore"):
                single = np.where(reached <= row, 1.0, np.where(row > 0, reached / row, np.inf))
            np.maximum(found, single.min(axis=1), out=found)
        return found


@dataclass(slots=True)
class Proofs:
    """Of one case: half-planes weights (W, 2) @ cost >= bounds (W,), and regions."""

    weights: Floats
    bounds: Floats
    regions: list[Region]

    def factors(self, spots: Floats) -> tuple[Floats, Ints]:
        """The factor proved for each corner (N, 2), and the last region that it lies in, -1 for none."""
        found = plane_factors(spots, self.weights, self.bounds)
        which = np.full(len(spots), -1)
        for number, region in enumerate(self.regions):
            inside = np.flatnonzero((spots <= region.corner).all(axis=1))
            if len(inside):
                which[inside] = number
                found[inside] = np.minimum(found[inside], region.factors(spots[inside]))
        return found, which


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Regions to be searched: their corners (R, 2), ages (R,), and weightings, thresholds and widths."""

    corners: Floats
    ages: Ints
    regions: Regions

    def __len__(self) -> int:
        return len(self.corners)

    def part(self, start: int, stop: int) -> Query:
        """Some of them."""
        span, r = slice(start, stop), self.regions
        inner = Regions(weights=r.weights[span], thresholds=r.thresholds[span], width=r.width[span])
        return Query(corners=self.corners[span], ages=self.ages[span], regions=inner)


def open_regions(proofs: Proofs, spots: Floats, factor: float, scale: Floats) -> Query:
    """The regions of all corners (N, 2), in order, that are not proved within a factor above 1.

    Objectives are scaled by `scale` (2,) to be comparable.
    """
    proved, which = proofs.factors(spots)
    open_ = np.flatnonzero(proved > factor)
    runs: list[list[int]] = []
    for i in open_.tolist():
        if runs and _close(spots[[*runs[-1], i]], 1 + _TOGETHER * (factor - 1)):
            runs[-1].append(i)
        else:
            runs.append([i])
    corners = np.array([spots[run].max(axis=0) for run in runs]).reshape(-1, 2)
    middle = np.array([run[len(run) // 2] for run in runs], dtype=np.intp)
    parents = [proofs.regions[number] if number >= 0 else None for number in which[middle].tolist()]
    ages = np.array([parent.age + 1 if parent is not None else 0 for parent in parents], dtype=np.intp)
    multiples = _ratios(proofs, corners, parents, scale)[:, None] * _RATIOS[ages % len(_RATIOS)]
    weights = np.asarray(np.stack([multiples / (1 + multiples), 1 / (1 + multiples)], axis=-1) * scale)
    width = _FIRST_WIDTH * (factor - 1) * _NARROWER**ages * (weights[:, 0] * corners).sum(axis=1)
    tiny = np.finfo(np.float64).tiny ** 0.5
    regions = Regions(
        weights=weights,
        thresholds=(weights * corners[:, None]).sum(axis=2) / factor,
        width=np.maximum(width, tiny),
    )
    return Query(corners=corners, ages=ages, regions=regions)


def _close(spots: Floats, factor: float) -> bool:
    return bool((spots.max(axis=0) <= factor * spots.min(axis=0)).all())


def _ratios(proofs: Proofs, corners: Floats, parents: list[Region | None], scale: Floats) -> Floats:
    """The ratio of the main weighting's scaled components for each corner: that of the half-plane that is tightest.

    What a pass left is attacked from half-way to the weighting that comes closest to closing the worst of it.
    """
    reached = corners @ proofs.weights.T
    with np.errstate(divide="ignore", invalid="ignore"):
        tight = np.where(proofs.bounds > 0, reached / proofs.bounds, np.inf)
    found = _ratio(proofs.weights[tight.argmin(axis=1)] / scale)
    for i, parent in enumerate(parents):
        if parent is not None and len(parent.left):
            shares = parent.left / (parent.weights @ corners[i])
            worst = shares[shares.max(axis=1).argmin()]
            ends = _ratio(parent.weights[[0, int(worst.argmax())]] / scale)
            found[i] = float(np.sqrt(ends[0] * ends[1]))
    return found


def _ratio(weights: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.nan_to_num(weights[:, 0] / weights[:, 1], posinf=_MOST_RATIO), 1 / _MOST_RATIO, _MOST_RATIO)

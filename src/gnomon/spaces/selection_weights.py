"""How much each weighting of latency against accuracy counts for the hypervolume that a selection is to keep.

A selection that is judged along weightings loses some cost under each of them. What a loss is worth differs: under a
weighting it moves the part of the front whose normal that weighting is, and the area between the front and the front
that was moved is the length of that part times the move. Both ends of a front reach on to the reference, so that its
fastest and its most accurate network stand for all that is beyond them. The front is a curve in the plane of latency
and logits, where costs add up; area is counted in that of latency and error rate, in which hypervolume is told.
"""

from __future__ import annotations

import numpy as np

from gnomon.core.cost import Floats
from gnomon.spaces.effects import expit
from gnomon.spaces.selection_front import Resamples

_WORLDS = 40
"""As many resamples are looked at: their fronts spread what one front lays on few weightings."""


def hypervolume_weights(resamples: Resamples, scale: Floats, angles: Floats) -> Floats:
    """The mean area lost for a cost of 1 under each weighting (angles,), over resamples, so that their mean is 1.

    A weighting is cos(angle) of the latency and sin(angle) of the negative logit, both in units of `scale` (2,).
    """
    total = np.zeros(len(angles))
    for k in range(min(_WORLDS, resamples.count)):
        areas = _areas(resamples.front(k).costs, resamples.reference, scale)
        for angle, area in areas:
            total[np.abs(angles - angle).argmin()] += area / sum(one for _, one in areas)
    return total * (len(angles) / total.sum()) if total.any() else np.ones(len(angles))


def _areas(front: Floats, reference: tuple[float, float], scale: Floats) -> list[tuple[float, float]]:
    """The angle of each part of the convex front, and the area that a move of 1 along its normal costs."""
    inside = front[(front[:, 0] < reference[0]) & (expit(front[:, 1]) < reference[1])]
    if not len(inside):
        return []
    hull = _hull(inside / scale)
    errors = expit(hull[:, 1] * scale[1])
    last = float(errors[-1])
    steep = scale[1] * last * (1 - last)  # of the error rate, for a move of 1 of the last network's logit
    found = [
        (0.0, float(reference[1] - errors[0]) * float(scale[0])),
        (np.pi / 2, float(reference[0] - hull[-1, 0] * scale[0]) * float(steep)),
    ]
    across, down = np.diff(hull[:, 0]), -np.diff(hull[:, 1])
    lengths = np.hypot(across, down)
    parts = -np.diff(errors) * scale[0] * lengths / down
    return found + list(zip(np.arctan2(across, down).tolist(), parts.tolist(), strict=True))


def _hull(front: Floats) -> Floats:
    """The points of a front, by rising first and falling second cost, that some weighting prefers (Andrew, 1979)."""
    kept: list[Floats] = []
    for point in front:
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-1] - kept[-2], point - kept[-2]
            if ax * by - ay * bx > 0:
                break
            kept.pop()
        kept.append(point)
    return np.array(kept)

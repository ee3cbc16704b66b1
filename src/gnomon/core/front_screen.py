"""Which labels may still lead to a cost vector that is not covered by those known.

With two objectives: a vector v that no known one covers lies strictly below a corner of the staircase of the known
ones. For each weighting w there is a threshold such that, for each corner, some weighting's threshold is at least
the corner's weighted sum; so v stays below one threshold, and a label whose completions are at or above all of them
cannot become v. With more objectives: a label is dropped where the vector of the least completions, each objective
on its own, is covered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.dominance import covered
from gnomon.core.front_bounds import Minima, beyond, later
from gnomon.core.front_plan import Plan

_ENTRIES = 1 << 18  # numbers held at once while the envelope is computed
_FEWEST_KNOTS, _MOST_KNOTS = 8, 512


class PlaneScreen:
    """For two objectives: drops labels at or above all thresholds (W,) of the minima's weightings.

    Weightings must have been scaled so that each row is (a, 1 - a) times a scale of each objective, `scale` (2,).
    `slack` is added to thresholds for the rounding of sums; a threshold of -inf leaves its weighting out.
    """

    def __init__(self, plan: Plan, minima: Minima, thresholds: Floats, scale: Floats, slack: float) -> None:
        used = np.flatnonzero(thresholds > -np.inf)
        self.plan, self.scale, self.slack = plan, scale, slack
        self.minima = Minima(
            weights=minima.weights[used], value=minima.value[used], up=tuple(part[:, used] for part in minima.up)
        )
        self.slopes: Floats = self.minima.weights[:, 0] / scale[0]
        self.thresholds = thresholds[used]
        self.beyond = beyond(plan, self.minima)
        self.offsets: Floats = np.zeros((0, 0))

    def enter(self, number: int, left: Sequence[int]) -> None:
        """What a label's completion costs, less the threshold, for each state and weighting."""
        above = self.beyond[number]
        if left:
            above = later(self.plan.buckets[number], self.minima, above, left)
        self.offsets = above - self.thresholds

    def hopeful(self, costs: Floats, rows: Ints) -> NDArray[np.bool_]:
        """Whether y + min over weightings of (slope * (x - y) + offset) is below the slack, x and y being scaled.

        That minimum is a concave function of x - y, a lower envelope of lines. Many labels take it from
        interpolation between knots, which is nowhere above it, so that no label is dropped for it.
        """
        if not costs.shape[1] or not len(self.slopes):
            return np.zeros(costs.shape[1], dtype=bool)
        x, y = costs[0] * self.scale[0], costs[1] * self.scale[1]
        gap = x - y
        states = len(self.offsets)
        knots = min(_MOST_KNOTS, len(gap) // (2 * states))
        low, high = float(gap.min()), float(gap.max())
        if knots < _FEWEST_KNOTS or not high > low:
            return self._directly(gap, y, rows)
        grid = np.linspace(low, high, knots)
        envelope = self._envelope(grid)
        at = (gap - low) * ((knots - 1) / (high - low))
        cell = np.minimum(at.astype(np.intp), knots - 2)
        at -= cell
        cell += rows * knots
        flat = envelope.ravel()
        first = flat[cell]
        cell += 1
        reach = y + first
        with np.errstate(invalid="ignore"):  # the envelope of a state that nothing completes is +inf
            rise = flat[cell] - first
            rise *= at
            reach += rise
        return np.asarray(reach < self.slack)

    def _directly(self, gap: Floats, y: Floats, rows: Ints) -> NDArray[np.bool_]:
        found = np.zeros(len(gap), dtype=bool)
        step = max(1, _ENTRIES // len(self.slopes))
        for start in range(0, len(gap), step):
            part = slice(start, start + step)
            lines = gap[part, None] * self.slopes
            lines += self.offsets[rows[part]]
            found[part] = y[part] + lines.min(axis=1) < self.slack
        return found

    def _envelope(self, grid: Floats) -> Floats:
        """Values of the envelope of each state at the knots, (states, knots)."""
        lines = np.multiply.outer(grid, self.slopes)
        step = max(1, _ENTRIES // lines.size)
        found = np.empty((len(self.offsets), len(grid)))
        for start in range(0, len(found), step):
            part = self.offsets[start : start + step]
            found[start : start + step] = (lines + part[:, None, :]).min(axis=2)
        return found


class IdealScreen:
    """For any number of objectives: drops labels whose ideal completion is covered by `known` (N, objectives).

    The minima must be those of the objectives one by one. `known` vectors must already include what rounding asks for.
    """

    def __init__(self, plan: Plan, minima: Minima, known: Floats) -> None:
        self.plan, self.minima, self.known = plan, minima, known
        self.beyond = beyond(plan, minima)
        self.offsets: Floats = np.zeros((0, 0))

    def enter(self, number: int, left: Sequence[int]) -> None:
        """The ideal completion of each state."""
        above = self.beyond[number]
        self.offsets = later(self.plan.buckets[number], self.minima, above, left) if left else above

    def hopeful(self, costs: Floats, rows: Ints) -> NDArray[np.bool_]:
        """Whether no known vector is nowhere larger than the label with its ideal completion."""
        ideal = costs.T + self.offsets[rows]
        possible = np.isfinite(ideal).all(axis=1)
        if not len(self.known):
            return np.asarray(possible)
        found = np.zeros(len(ideal), dtype=bool)
        found[possible] = ~covered(ideal[possible], self.known)
        return found

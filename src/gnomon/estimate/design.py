"""Choose the nets to measure before any net is measured: the nets that are most informative about the coefficients.

The designs are greedy and Bayesian, in the metric of the prior (Chaloner and Verdinelli, Bayesian Experimental Design:
A Review, 1995). Up to a dozen nets are chosen D-optimally, with exchanges (Fedorov, Theory of Optimal Experiments,
1972), so that they span the columns. More nets are chosen I-optimally, so that the times of the whole pool are as
certain as possible. Beyond two dozen, up to half of the nets are drawn from the pool at random, because a model that is
fitted only to chosen nets does not learn how typical nets scatter. If other devices are known, random draws begin
beyond a dozen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns, Floats
from gnomon.estimate.fit import Source
from gnomon.estimate.prior import NOISE, build

RIDGE = 1.0  # the prior's precision, in the units of `effects`
_SPAN_ALL = 12  # up to this number of nets, all are chosen to span the columns
_USUAL_ALL = 24  # up to this number, all are chosen to predict the other nets
_MOST_USUAL = 1000  # the largest number of nets that represent the whole pool
_MOST_POOL = 20_000
_EXCHANGES = 3
_OWN = 0.2


def suggest(
    columns: Columns,
    pool: ArrayLike,
    count: int,
    *,
    given: ArrayLike = (),
    sources: Sequence[Source] = (),
    seed: int = 0,
) -> NDArray[np.intp]:
    """The rows of the pool (nets, columns) to measure, by number, in the order in which they should be measured.

    `given` are rows that have been measured already, and `sources` are the other devices that the fit will use.
    UsageError if `count` is below 1 or above the size of the pool, or if the pool is too large.
    """
    x = columns.matrix(pool, "nets of the pool")
    if not 0 < count <= len(x):
        raise UsageError(f"{count} of {len(x)} nets cannot be chosen", hint=f"Choose 1 to {len(x)} nets.")
    if len(x) > _MOST_POOL:
        raise UsageError(f"{len(x)} nets are more than the limit of {_MOST_POOL}", hint="Give fewer nets.")
    before = columns.matrix(given if np.size(given) else np.zeros((0, len(columns))), "given nets")
    both = effects(columns, np.concatenate([x, before]), sources)
    z, old = both[: len(x)], both[len(x) :]
    rng = np.random.default_rng(seed)
    half = (count + 1) // 2
    if count <= _SPAN_ALL or sources:  # samples of other devices already show how long typical nets take
        chosen = d_optimal(z, min(count, max(_SPAN_ALL, half)), old)
    else:
        chosen = i_optimal(z, min(count, max(_USUAL_ALL, half)), old)
    rest = np.setdiff1d(np.arange(len(x)), chosen)
    drawn = rng.choice(rest, count - len(chosen), replace=False)
    return np.concatenate([chosen, drawn]).astype(np.intp)


def d_optimal(z: Floats, count: int, given: Floats) -> NDArray[np.intp]:
    """Rows of `z` (n, p) with a large determinant of RIDGE I + given' given + the sum of the rows' z z'.

    Rows are chosen greedily. Then each chosen row is exchanged for a better one if there is one, until a pass changes
    nothing, for at most `_EXCHANGES` passes.
    """
    seen = _Seen(z, given)
    chosen: list[int] = []
    free = np.ones(len(z), dtype=bool)
    for _ in range(count):
        best = int(np.argmax(np.where(free, seen.leverage, -np.inf)))
        chosen.append(best)
        free[best] = False
        seen.change(best)
    for _ in range(_EXCHANGES):
        changed = False
        for place, old in enumerate(chosen):
            seen.change(old, sign=-1.0)
            free[old] = True
            best = int(np.argmax(np.where(free, seen.leverage, -np.inf)))
            if seen.leverage[best] <= seen.leverage[old] * (1 + 1e-9):
                best = old
            changed |= best != old
            chosen[place] = best
            free[best] = False
            seen.change(best)
        if not changed:
            break
    return np.array(chosen, dtype=np.intp)


def i_optimal(z: Floats, count: int, given: Floats) -> NDArray[np.intp]:
    """Rows of `z` (n, p), each chosen to lower the variance of all rows most, given the earlier choices."""
    seen = _Seen(z, given)
    usual = z[:: -(-len(z) // _MOST_USUAL)]
    covariance = seen.covariance(usual)
    chosen: list[int] = []
    for _ in range(count):
        lowered = np.einsum("ij,ij->i", covariance, covariance) / (1 + seen.leverage)
        lowered[chosen] = -np.inf
        chosen.append(int(np.argmax(lowered)))
        along = seen.change(chosen[-1])
        covariance -= np.outer(z @ along, usual @ along)
    return np.array(chosen, dtype=np.intp)


class _Seen:
    """The posterior after some rows of `z` (n, p), and the leverage (n,) of each row: the information that it would
    add.

    The covariance is the covariance after the given rows, less or plus one outer product for each change. Because p may
    be in the thousands, a matrix of p by p is stored only if rows were given.
    """

    def __init__(self, z: Floats, given: Floats) -> None:
        self._z, self._along, self._signs = z, np.zeros((0, z.shape[1])), np.zeros(0)
        self._before: Floats | None = None
        at_first = z / RIDGE
        if len(given):
            self._before = np.asarray(np.linalg.inv(RIDGE * np.eye(z.shape[1]) + given.T @ given), dtype=float)
            at_first = z @ self._before
        self.leverage = np.einsum("ij,ij->i", at_first, z)

    def covariance(self, others: Floats) -> Floats:
        """The covariance of all rows with `others` (n, others), before any change."""
        return np.asarray(self._z @ (others / RIDGE if self._before is None else others @ self._before).T)

    def change(self, index: int, *, sign: float = 1.0) -> Floats:
        """Add a row to the posterior or, with the sign -1, remove it.

        Returns the vector whose outer product is subtracted from the covariance, or added back.
        """
        row = self._z[index]
        along: Floats = row / RIDGE if self._before is None else self._before @ row
        along = along - (self._signs * (self._along @ row)) @ self._along
        along /= np.sqrt(1 + sign * float(row @ along))
        self._along = np.concatenate([self._along, along[None]])
        self._signs = np.append(self._signs, sign)
        self.leverage = self.leverage - sign * (self._z @ along) ** 2
        return along


def effects(columns: Columns, x: Floats, sources: Sequence[Source] = ()) -> Floats:
    """The effects of the prior's directions on nets (n, directions), in units of the usual noise."""
    level = 1.0
    if columns.prior_s is not None:
        sums = x @ np.nan_to_num(columns.prior_s)
        level = float(np.median(sums)) or 1.0
    prior = build(columns, x, level, [s.on(columns) for s in sources])
    x1 = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    # Effects that differ between devices are assumed to be smaller than effects that devices share.
    own = dict.fromkeys(columns.kinds, _OWN if sources else 1.0)
    return np.concatenate([b.design(x1) * (b.size * own.get(b.name, 1.0) / NOISE) for b in prior.blocks], axis=1)

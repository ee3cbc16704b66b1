"""Least weighted sums of many weightings at once, along a plan: from below, and of what lies beyond each bucket.

One pass from the first bucket to the last gives, for each bucket, the least weighted cost of all that is decided up to
it, given its ring; a second pass back gives the least cost of all the rest, given the ring. Their sum is the
least cost of any complete assignment (Shafer and Shenoy, "Probability propagation", 1990, in the min-sum algebra).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.front_plan import Bucket, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Minima:
    """Of W weightings: `value` (W,), +inf where nothing is allowed, and `up[b]` (states of bucket b, W)."""

    weights: Floats
    value: Floats
    up: tuple[Floats, ...]


def weighed(bucket: Bucket, weights: Floats) -> Floats:
    """The bucket's terms under weightings (W, objectives), shape (rows, W); forbidden rows are +inf."""
    forbidden = np.isinf(bucket.terms[:, 0])
    if not forbidden.any():
        return np.asarray(bucket.terms @ weights.T)
    found: Floats = np.where(forbidden[:, None], 0.0, bucket.terms) @ weights.T
    found[forbidden] = np.inf
    return found


def minimise_weighted(plan: Plan, weights: Floats) -> tuple[Minima, Ints]:
    """The minima under weightings (W, objectives), and an assignment (W, slots) that reaches each."""
    up: list[Floats] = []
    choices: list[Ints] = []
    for bucket in plan.buckets:
        total = weighed(bucket, weights)
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            total += up[child][states]
        total = total.reshape(bucket.states, bucket.size, -1)
        best: Floats = total[:, 0].copy()
        choice: Ints = np.zeros(best.shape, dtype=np.int32)
        for a in range(1, bucket.size):
            better = total[:, a] < best
            choice[better] = a
            np.minimum(best, total[:, a], out=best)
        up.append(best)
        choices.append(choice)
    count = len(weights)
    assignment = np.zeros((count, len(plan.buckets)), dtype=np.intp)
    sizes = {b.slot: b.size for b in plan.buckets}
    row = np.arange(count)
    for bucket, taken in zip(reversed(plan.buckets), reversed(choices), strict=True):
        state = np.zeros(count, dtype=np.intp)
        for u in bucket.ring:
            state = state * sizes[u] + assignment[:, u]
        assignment[:, bucket.slot] = taken[state, row]
    value = up[-1][0] if up else np.zeros(count)
    return Minima(weights=weights, value=value, up=tuple(up)), assignment


def beyond(plan: Plan, minima: Minima) -> list[Floats]:
    """For each bucket the least weighted cost of all that is not decided up to it, given its ring: (states, W)."""
    found: list[Floats | None] = [None] * len(plan.buckets)
    if plan.buckets:
        found[-1] = np.zeros((1, len(minima.weights)))
    for number in range(len(plan.buckets) - 1, -1, -1):
        bucket, above = plan.buckets[number], found[number]
        if not bucket.children or above is None:
            continue
        rest = weighed(bucket, minima.weights)
        rest += np.repeat(above, bucket.size, axis=0)
        ups = [minima.up[c][s] for c, s in zip(bucket.children, bucket.states_of, strict=True)]
        for i, (child, states) in enumerate(zip(bucket.children, bucket.states_of, strict=True)):
            total = rest
            for j, other in enumerate(ups):
                if j != i:
                    total = total + other
            count = plan.buckets[child].states
            order = np.argsort(states, kind="stable")
            found[child] = total[order].reshape(count, -1, total.shape[1]).min(axis=1)
    return [part for part in found if part is not None]


def later(bucket: Bucket, minima: Minima, above: Floats, left: Sequence[int]) -> Floats:
    """Least cost beyond the bucket and of those of its children numbered in `left`, for each row: (rows, W)."""
    total = np.repeat(above, bucket.size, axis=0)
    for i in left:
        total = total + minima.up[bucket.children[i]][bucket.states_of[i]]
    return np.asarray(total)

"""What share of a front's hypervolume the networks that are left reach, with how sure that is.

A choice is made by effects that add up. What it keeps is not told by them alone: the best of many networks owe a part
to how their primitives fit together, and there are more such networks among all than among those that are left. So the
prices of whole networks are drawn from all that is believed (`effects.Learned.draw`), and each draw has its front.

Of a small space all networks are looked at, of a large one those that may be on a front: those on the fronts of
resampled effects, each moved by as much as a misfit is worth, of the whole space and of what is left of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.spaces.cells.effects import Learned, expit
from gnomon.spaces.selection.reduce import Resamples

MOST_LOOKED_AT = 8000
"""So many networks are looked at one by one."""

_MOVED = 4
"""How often each resample of the effects is moved."""

_SEED = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Front:
    """Draws of a space's networks: `networks` (M, groups) by their places in the space that was learned, and the points
    (K, M, 2) of each draw, of relative latency and error rate; `volumes` (K,) are the hypervolumes of all of them."""

    networks: Ints
    points: Floats
    volumes: Floats
    reference: tuple[float, float]

    def shares(self, kept: Sequence[Ints]) -> Floats:
        """The share of each draw's hypervolume that networks of these places reach: (K,)."""
        inside = np.all([np.isin(column, own) for column, own in zip(self.networks.T, kept, strict=True)], axis=0)
        reached = [hypervolume(points[inside], self.reference) for points in self.points]
        return np.where(self.volumes > 0, reached / np.where(self.volumes > 0, self.volumes, 1.0), 1.0)


def drawn_front(
    prices: tuple[Learned, Learned], resamples: Resamples, kept: Sequence[Ints], places: Sequence[Ints]
) -> Front:
    """Draws of the networks, as many as there are resamples.

    `prices` are what is believed of accuracy and latency; the resamples are of the effects of the choices at `places`,
    of which those at `kept` are left, each an index among the resampled ones.
    """
    accurate, fast = prices
    size = math.prod(resamples.counts)
    if size <= MOST_LOOKED_AT:
        chosen = np.array(list(itertools.product(*(range(count) for count in resamples.counts))), dtype=np.intp)
    else:
        chosen = _promising(prices, resamples, kept)
    networks = np.column_stack([own[column] for own, column in zip(places, chosen.T, strict=True)])
    latencies = fast.draw(networks, resamples.count, seed=_SEED)
    errors = expit(-accurate.draw(networks, resamples.count, seed=_SEED + 1))
    points = np.stack([latencies, errors], axis=2)
    volumes = np.array([hypervolume(one, resamples.reference) for one in points])
    return Front(networks=networks, points=points, volumes=volumes, reference=resamples.reference)


def _promising(prices: tuple[Learned, Learned], resamples: Resamples, kept: Sequence[Ints]) -> Ints:
    """Networks (M, groups) that may be on a front, by their indices among the resampled choices."""
    wide = moved(prices, resamples)
    left = on_fronts(wide.restricted(kept))
    rows = np.column_stack([names[column] for names, column in zip(kept, left.T, strict=True)])
    return np.unique(np.concatenate([on_fronts(wide)[: MOST_LOOKED_AT // 2], rows[: MOST_LOOKED_AT // 2]]), axis=0)


def moved(prices: tuple[Learned, Learned], resamples: Resamples) -> Resamples:
    """Each resample of the effects several times, moved by as much as a misfit is worth."""
    rng = np.random.default_rng(_SEED)
    found = []
    for tables, price in zip((resamples.logits, resamples.latencies), prices, strict=True):
        size = price.effects.sizes["misfit"] / math.sqrt(len(tables))
        many = [np.repeat(table, _MOVED, axis=0) for table in tables]
        found.append(tuple(table + size * rng.standard_normal(table.shape) for table in many))
    return Resamples(latencies=found[1], logits=found[0], reference=resamples.reference)


def on_fronts(resamples: Resamples) -> Ints:
    """The networks (M, groups) on the resamples' fronts, those first that are on most of them."""
    rows = np.concatenate([resamples.front(k).assignments for k in range(resamples.count)])
    rows, often = np.unique(rows, axis=0, return_counts=True)
    return np.asarray(rows[np.argsort(-often, kind="stable")], dtype=np.intp)

"""What share of a front's hypervolume the networks that are left reach, with how sure that is.

A choice is made by effects that add up. What it keeps is not told by them alone: the best of many networks owe a part
to how their primitives fit together, and there are more such networks among all than among those that are left. So the
prices of whole networks are drawn from all that is believed (`effects.Learned.draw`), and each draw has its front.

Of a space that is small enough a choice is then mended by the same draws: one primitive goes for another, as long as
the share that is expected to be kept grows by it (`exchanged`).

Of a small space all networks are looked at, of a large one those that may be on a front: those on the fronts of
resampled effects, each moved by as much as a misfit is worth, of the whole space and of what is left of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.spaces.cells.effects import Learned, expit
from gnomon.spaces.selection.reduce import Resamples

MOST_LOOKED_AT = 8000
"""So many networks are looked at one by one."""

MOST_EXCHANGED = 2000
"""Choices of spaces of so many networks are mended by draws of all of them."""

_MOVED = 4
"""How often each resample of the effects is moved."""

_SEED = 2
_ROUNDING = 1 + 1e-9


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
    prices: tuple[Learned, Learned],
    resamples: Resamples,
    kept: Sequence[Ints],
    places: Sequence[Ints],
    *,
    seed: int = _SEED,
) -> Front:
    """Draws of the networks, as many as there are resamples, from a seed.

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
    latencies = fast.draw(networks, resamples.count, seed=seed)
    errors = expit(-accurate.draw(networks, resamples.count, seed=seed + 1))
    points = np.stack([latencies, errors], axis=2)
    volumes = np.array([hypervolume(one, resamples.reference) for one in points])
    return Front(networks=networks, points=points, volumes=volumes, reference=resamples.reference)


def exchanged(front: Front, kept: Sequence[Ints], most: float) -> tuple[Ints, ...]:
    """A choice (places of each group) mended until no exchange keeps a larger share of the draws' hypervolume.

    One place of a group goes for another, or another group's for it, or one is added, while at most `most` networks are
    left. Ends in a choice that none of these makes better, which need not be the best of all.
    """
    left = [np.isin(np.arange(int(column.max()) + 1), own) for column, own in zip(front.networks.T, kept, strict=True)]
    volumes = _Volumes(front)
    share = volumes.share(left)
    while True:
        before = share
        for out, into in _exchanges([len(marks) for marks in left]):
            if left[into[0]][into[1]] or (out is not None and not left[out[0]][out[1]]):
                continue
            _turn(left, out, into)
            sizes = [int(marks.sum()) for marks in left]
            found = volumes.share(left) if min(sizes) and math.prod(sizes) <= most else 0.0
            if found > share * _ROUNDING:
                share = found
            else:
                _turn(left, out, into)
        if share == before:
            return tuple(np.flatnonzero(marks) for marks in left)


_Place = tuple[int, int]


def _exchanges(counts: Sequence[int]) -> list[tuple[_Place | None, _Place]]:
    """What may go, a (group, choice) or nothing, and what may come for it."""
    every = [(g, choice) for g, count in enumerate(counts) for choice in range(count)]
    return [(out, into) for into in every for out in (None, *every) if out != into]


def _turn(left: Sequence[NDArray[np.bool_]], *places: _Place | None) -> None:
    """What is left out is left, and the other way round."""
    for place in places:
        if place is not None:
            left[place[0]][place[1]] ^= True


class _Volumes:
    """Shares of the draws' hypervolumes: the networks of each draw are sorted by latency once."""

    def __init__(self, front: Front) -> None:
        points = np.minimum(front.points, np.asarray(front.reference))
        self.order = np.argsort(points[:, :, 0], axis=1)
        self.latency, self.error = (np.take_along_axis(points[:, :, k], self.order, axis=1).ravel() for k in (0, 1))
        self.networks, self.reference = front.networks, front.reference
        self.whole = np.where(front.volumes > 0, front.volumes, 1.0)

    def share(self, left: Sequence[NDArray[np.bool_]]) -> float:
        """The mean share that networks of what is left reach."""
        inside = np.all([marks[column] for marks, column in zip(left, self.networks.T, strict=True)], axis=0)
        own = np.flatnonzero(inside[self.order]).reshape(len(self.order), -1)  # as many in each draw
        lowest = np.minimum.accumulate(self.error[own], axis=1)
        widths = np.diff(self.latency[own], axis=1, append=self.reference[0])
        return float(((widths * (self.reference[1] - lowest)).sum(axis=1) / self.whole).mean())


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

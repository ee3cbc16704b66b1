"""What describes the networks of a cell space to an estimator: swaps, and primitives that are neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np

from gnomon.estimate.columns import Columns, Floats
from gnomon.spaces.balanced_design import indicators
from gnomon.spaces.features import Ints
from gnomon.spaces.layer_costs import Cells

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


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

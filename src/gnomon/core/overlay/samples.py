"""The samples of a layer's configurations on several devices, in columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats

Blocks = tuple[tuple[float, ...], ...]
"""Samples of one configuration on one device, in seconds, one tuple per trial: a trial's samples are correlated."""

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SampleTable(Mapping[tuple[int, int], Blocks]):
    """Samples of a layer in columns. A cell is a configuration on a device; cells have blocks, and blocks have samples.

    As a mapping, the table gives the blocks for (index of the configuration, index of the device).

    `cells` are increasing numbers: the index of the configuration times `width` plus the index of the device. Cell k
    has the blocks from `begins[k]` to `begins[k + 1]`, and block b has the samples from `ends[b]` to `ends[b + 1]`; no
    block is empty.
    """

    width: int
    cells: Places
    begins: Places
    ends: Places
    samples_s: Floats

    def __getitem__(self, place: tuple[int, int]) -> Blocks:
        """The blocks of a configuration on a device."""
        row, column = place
        number = row * self.width + column
        k = int(np.searchsorted(self.cells, number))
        if not 0 <= column < self.width or k == len(self.cells) or self.cells[k] != number:
            raise KeyError(place)
        bounds = self.ends[self.begins[k] : self.begins[k + 1] + 1].tolist()
        return tuple(tuple(self.samples_s[a:b].tolist()) for a, b in itertools.pairwise(bounds))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The (configuration, device) pairs of the cells, in order."""
        yield from (divmod(number, self.width) for number in self.cells.tolist())

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.cells)

    def __repr__(self) -> str:
        """A short text with the numbers of samples and cells."""
        return f"<{len(self.samples_s)} samples of {len(self)} cells>"

    def ranges(self, rows: int) -> tuple[Floats, Floats]:
        """The smallest and the largest sample (configurations, devices); NaN without samples, or if one is NaN."""
        low, high = np.full((2, rows * self.width), np.nan)
        if len(self.cells):
            firsts = self.ends[self.begins[:-1]]
            low[self.cells] = np.minimum.reduceat(self.samples_s, firsts)
            high[self.cells] = np.maximum.reduceat(self.samples_s, firsts)
        return low.reshape(rows, self.width), high.reshape(rows, self.width)

    def medians(self, rows: int) -> Floats:
        """The medians (configurations, devices), as `gnomon.core.stats.median` computes them; NaN without samples."""
        middle = np.full(rows * self.width, np.nan)
        firsts = self.ends[self.begins]
        counts = np.diff(firsts)
        for count in np.unique(counts).tolist():
            mine = np.flatnonzero(counts == count)
            ordered = np.sort(self.samples_s[firsts[mine, None] + np.arange(count)], axis=1)
            below = (count - 1) // 2
            least = ordered[:, below]
            middle[self.cells[mine]] = least + (0.5 * (count - 1) - below) * (ordered[:, count // 2] - least)
        return middle.reshape(rows, self.width)


def gathered(width: int, cells: Places, starts: Places, counts: NDArray[np.int32], samples_s: Floats) -> SampleTable:
    """The table of blocks that are given in the order of their cells; in `samples_s` the blocks may have any order.

    `starts` has the index of each block's first sample in `samples_s`, and `counts` has the number of its samples.
    """
    first = np.flatnonzero(np.diff(cells, prepend=-1))
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return SampleTable(
        width=width,
        cells=cells[first],
        begins=np.append(first, len(cells)),
        ends=ends,
        samples_s=samples_s[np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1])],
    )

"""Samples by configuration and device, put into columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.core.overlay.samples import Blocks, SampleTable, gathered

Samples = Mapping[tuple[int, int], Blocks]
"""The samples of a layer by (index of the configuration, index of the device)."""


def table(samples: Samples, width: int) -> SampleTable:
    """Samples on `width` devices in columns."""
    blocks = [(row * width + column, block) for (row, column), cell in sorted(samples.items()) for block in cell]
    counts = np.array([len(block) for _, block in blocks], dtype=np.int32)
    cells = np.array([cell for cell, _ in blocks], dtype=np.int64)
    samples_s = np.array([t for _, block in blocks for t in block], dtype=np.float64)
    return gathered(width, cells, np.cumsum(counts, dtype=np.int64) - counts, counts, samples_s)

"""The agreement between two orders of networks."""

from __future__ import annotations

import numpy as np

from gnomon.core.cost import Floats

_PAIRS_AT_ONCE = 1 << 20


def kendall_tau(first: Floats, second: Floats) -> float:
    """Kendall's tau-b of two lists of numbers: 1 for the same order, -1 for the reverse order, 0 if all numbers of
    either list are equal.
    """
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    # All pairs are compared, in blocks: for the networks of a space, importing a library that sorts would take longer.
    agreeing, apart = 0, np.zeros(2)
    step = max(1, _PAIRS_AT_ONCE // len(x))
    for start in range(0, len(x), step):
        a, b = (
            (part[:, None] > every).view(np.int8) - (part[:, None] < every)
            for part, every in ((x[start : start + step], x), (y[start : start + step], y))
        )
        agreeing += int((a * b).sum(dtype=np.int64))
        apart += np.count_nonzero(a), np.count_nonzero(b)
    if not apart.all():
        return 0.0
    return float(np.clip(agreeing / np.sqrt(apart[0]) / np.sqrt(apart[1]), -1, 1))

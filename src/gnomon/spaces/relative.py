"""Latencies without their unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.stats import median

_DIGITS = 9


def relative(latencies: Sequence[float] | Floats, reference: Sequence[float] | Floats) -> Floats:
    """Latencies (N,) over the median of the reference ones, rounded to nine digits.

    A change of unit, or a device that is slower by a factor, changes no digit of the result: without the rounding the
    last bits would differ, and order what was a tie. Equal latencies stay equal. All must be positive and finite.
    """
    middle = median([float(one) for one in reference])
    return np.array([rounded(float(one) / middle) for one in latencies])


def rounded(value: float) -> float:
    """A number to nine significant digits."""
    return float(f"{value:.{_DIGITS - 1}e}")

"""Weights of the samples for errors with heavy tails: a net that was measured under load counts little.

A Student error is a normal one whose variance is itself unknown; its expected inverse gives the weight of a sample in
each pass (Lange, Little and Taylor, Robust Statistical Modeling Using the t Distribution, 1989). Residuals are those of
leaving the sample out, so that a sample cannot hide by pulling the model to itself.
"""

from __future__ import annotations

import math

import numpy as np

from gnomon.estimate.columns import Floats


def factors(residual: Floats, variance: Floats, current: Floats, tail: float) -> Floats:
    """By what each sample's variance is multiplied: (tail + z**2) / (tail + 1), z in unweighted deviations."""
    if math.isinf(tail):
        return np.ones_like(residual)
    z2 = residual**2 / variance * current
    found: Floats = (tail + z2) / (tail + 1)
    return found

"""Made-up devices and nets for the tests of estimators."""

from __future__ import annotations

import numpy as np

from gnomon.estimate.columns import Columns, Floats

UNITS = 6


def columns(prior_s: Floats | None = None) -> Columns:
    return Columns(names=tuple(f"unit{i}" for i in range(UNITS)), kinds=("a",) * 3 + ("b",) * 3, prior_s=prior_s)


def prices(seed: int = 0) -> Floats:
    return np.random.default_rng(seed).uniform(0.2e-3, 2e-3, UNITS)


def counts(number: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).integers(0, 6, (number, UNITS)).astype(float)


def measured(x: Floats, noise: float = 0.03, seed: int = 2, bias_s: float = 3e-3) -> Floats:
    clean = bias_s + x @ prices()
    found: Floats = clean * (1 + noise * np.random.default_rng(seed).standard_normal(len(x)))
    return found

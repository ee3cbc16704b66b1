"""Other devices as a prior: they help where devices are alike, and do little harm where they are not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.estimate.nets import columns, counts, measured, prices

from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns
from gnomon.estimate.fit import Source, fit, source


def others(x: np.ndarray) -> list[Source]:
    rng = np.random.default_rng(5)
    return [
        source(f"d{i}", columns(), x, (3e-3 + x @ (prices() * rng.uniform(0.8, 1.25, 6))) * 10.0**i) for i in range(4)
    ]


def test_like_devices_make_few_nets_enough() -> None:
    x, held = counts(100), counts(300, 9)
    y, truth = measured(x), measured(held, noise=0.0)
    errors = [
        np.mean([np.mean(np.abs(fit(columns(), x[s : s + 3], y[s : s + 3], sources=known).mean_s(held) / truth - 1))
                 for s in range(0, 60, 3)])
        for known in ((), others(x))
    ]  # fmt: skip
    assert errors[1] < 0.7 * errors[0]


def test_many_samples_overrule_unlike_devices() -> None:
    x = counts(200)
    strange = [source("odd", columns(), x, x @ prices()[::-1] + 1.0)]
    found = fit(columns(), x, measured(x, noise=0.01), sources=strange)
    assert found.coefficients.mean[1:] == pytest.approx(prices(), rel=0.05)


def test_a_device_of_other_columns_is_refused_and_one_of_some_is_used() -> None:
    x = counts(20)
    strange = Columns(names=tuple(f"other{i}" for i in range(6)), kinds=("a",) * 6)
    with pytest.raises(UsageError, match="'odd' has no column in common"):
        fit(columns(), x, measured(x), sources=[source("odd", strange, x, measured(x))])
    part = Columns(names=("unit1", "more"), kinds=("a", "a"))
    half = source("half", part, x[:, :2], measured(x))
    on = half.on(columns())
    assert on[2] == half.coefficients[1]
    assert np.count_nonzero(on[1:]) == 1


def test_a_unit_that_another_device_knows_is_known() -> None:
    x = counts(30)
    known = others(x)
    unseen = x.copy()
    unseen[:, 3] = 0
    estimator = fit(columns(), unseen[:10], measured(unseen)[:10], sources=known)
    assert estimator.known.all()
    assert estimator.mean_s(x) == pytest.approx(measured(x, noise=0), rel=0.4)


def test_a_source_needs_samples() -> None:
    with pytest.raises(UsageError, match="has fewer than two samples"):
        source("one", columns(), counts(1), [1.0])

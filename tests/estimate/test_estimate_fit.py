"""The linear model: its limits, its closed form, what does not matter to it, and what outliers do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimate.nets import UNITS, columns, counts, measured, prices

from gnomon.errors import ProblemError, UsageError
from gnomon.estimate.columns import Columns, FitOptions, Unknown
from gnomon.estimate.document import estimator_document, read_estimator
from gnomon.estimate.estimator import within
from gnomon.estimate.fit import Source, fit, resolution, source, tail_of
from gnomon.estimate.prior import Evidence, Problem, posterior


def test_a_table_that_is_off_by_a_scale_and_a_bias_is_mended_by_few_nets() -> None:
    x = counts(200)
    y = 4e-3 + 2.5 * (x @ prices())
    estimator = fit(columns(prices()), x[:4], y[:4])
    assert np.max(np.abs(estimator.mean_s(x) / y - 1)) < 0.02


def test_many_samples_overrule_a_wrong_table() -> None:
    x = counts(400)
    y = measured(x, noise=0.01)
    wrong = np.random.default_rng(9).permutation(prices()) * 3
    estimator = fit(columns(wrong), x, y)
    assert estimator.coefficients.mean[1:] == pytest.approx(prices(), rel=0.05)


def test_times_that_nothing_explains_have_wide_intervals_and_are_not_called_noise_alone() -> None:
    x = counts(300)
    y = 5e-3 * np.exp(1.5 * np.random.default_rng(5).standard_normal(len(x)))
    estimator = fit(columns(), x[:10], y[:10])
    told = estimator.predict(x[10:])
    assert np.mean((told.low_s <= y[10:]) & (y[10:] <= told.high_s)) > 0.7
    assert estimator.noise.relative < 0.4


@pytest.mark.parametrize("samples", [4, 40], ids=["in the space of samples", "in the space of directions"])
def test_the_posterior_is_the_closed_form(samples: int) -> None:
    rng = np.random.default_rng(0)
    designs = (rng.standard_normal((samples, 1)), rng.standard_normal((samples, UNITS)))
    problem = Problem(y=rng.standard_normal(samples), designs=designs, sizes=np.array([1.0, 0.3]))
    theta = np.log([0.7, 0.4, 0.2])
    weights = rng.uniform(0.5, 2, samples)
    told = posterior(problem, theta, weights)
    scale = np.array([0.7, *[0.4] * UNITS])
    x = np.concatenate(designs, axis=1)
    noise = 0.2**2 * weights
    covariance = np.linalg.inv(np.diag(1 / scale**2) + x.T @ (x / noise[:, None]))
    assert told.mean == pytest.approx(covariance @ (x.T @ (problem.y / noise)), rel=1e-5, abs=1e-7)
    found = told.more @ told.more.T if told.more is not None else np.diag(told.prior)
    found = found if told.less is None else found - told.less @ told.less.T
    assert found == pytest.approx(covariance, rel=1e-5, abs=1e-7)
    for i in range(samples):  # leaving one out, by doing it
        kept = np.arange(samples) != i
        inner = np.linalg.inv(np.diag(1 / scale**2) + x[kept].T @ (x[kept] / noise[kept, None]))
        left = problem.y[i] - x[i] @ inner @ (x[kept].T @ (problem.y[kept] / noise[kept]))
        assert told.loo_residual[i] == pytest.approx(left, rel=1e-4, abs=1e-6)
        assert told.loo_variance[i] == pytest.approx(noise[i] + x[i] @ inner @ x[i], rel=1e-4)


@pytest.mark.parametrize("samples", [4, 40])
def test_the_evidence_is_the_density_of_the_samples(samples: int) -> None:
    rng = np.random.default_rng(1)
    designs = (rng.standard_normal((samples, 2)), rng.standard_normal((samples, UNITS)))
    problem = Problem(y=rng.standard_normal(samples), designs=designs, sizes=np.ones(2))
    weights = rng.uniform(0.5, 2, samples)
    evidence = Evidence(problem, weights)

    def direct(theta: np.ndarray) -> float:
        k = sum(math.exp(2 * t) * d @ d.T for t, d in zip(theta[:-1], designs, strict=True))
        k = k + np.diag(math.exp(2 * theta[-1]) * weights)
        return float(-0.5 * (problem.y @ np.linalg.solve(k, problem.y) + np.linalg.slogdet(k)[1]))

    one, two = np.array([0.1, -0.3, -1.0]), np.array([0.1, 0.4, -1.0])
    hyper = -0.5 * (0.4**2 - 0.3**2) / 1.5**2
    assert evidence(two) - evidence(one) == pytest.approx(direct(two) - direct(one) + hyper, rel=1e-5)


def test_the_order_of_samples_and_of_columns_does_not_matter() -> None:
    x = counts(25)
    y = measured(x)
    first = fit(columns(), x, y).mean_s(counts(50, 7))
    order = np.random.default_rng(0).permutation(25)
    assert fit(columns(), x[order], y[order]).mean_s(counts(50, 7)) == pytest.approx(first, rel=1e-8)
    swap = np.array([3, 5, 4, 1, 0, 2])
    c = columns()
    turned = Columns(names=tuple(c.names[i] for i in swap), kinds=tuple(c.kinds[i] for i in swap))
    assert fit(turned, x[:, swap], y).mean_s(counts(50, 7)[:, swap]) == pytest.approx(first, rel=1e-3)


@settings(max_examples=10)
@given(st.sampled_from([1e-6, 1e-3, 1.0, 60.0]), st.integers(0, 100))
def test_the_unit_of_time_does_not_matter(unit: float, seed: int) -> None:
    x = counts(15, seed)
    y = measured(x, seed=seed)
    first = fit(columns(), x, y).predict(x)
    second = fit(columns(), x, y * unit).predict(x)
    assert second.mean_s == pytest.approx(first.mean_s * unit, rel=1e-8)
    assert second.high_s == pytest.approx(first.high_s * unit, rel=1e-8)


@pytest.mark.parametrize("sized", [False, True])
def test_the_unit_of_a_column_does_not_matter(sized: bool) -> None:
    x = counts(25)
    y = measured(x)
    change = np.array([1.0, 1e3, 1e-3, 7.0, 1.0, 1e6] if sized else [1000.0] * 3 + [1.0] * 3)
    c = columns()
    both = [Columns(names=c.names, kinds=c.kinds, scale=(x * f).std(axis=0) if sized else None) for f in (1.0, change)]
    first = fit(both[0], x, y).mean_s(x)
    assert fit(both[1], x * change, y).mean_s(x * change) == pytest.approx(first, rel=1e-7)


@pytest.mark.parametrize("samples", [40, 100])
def test_threefold_outliers_hardly_move_it(samples: int) -> None:
    held = counts(1000, 50)
    truth = measured(held, seed=51)
    lost = []
    for seed in range(5):
        x = counts(samples, seed)
        y = measured(x, seed=seed)
        spoilt = y.copy()
        spoilt[np.random.default_rng(seed).choice(samples, samples // 20, replace=False)] *= 3
        clean, robust = fit(columns(), x, y), fit(columns(), x, spoilt)
        assert robust.weights[spoilt != y].max() < 0.2
        lost.append(within(clean.mean_s(held), truth) - within(robust.mean_s(held), truth))
    assert np.mean(lost) < 0.02


def test_how_heavy_tails_are_is_found_from_samples_enough_whatever_their_scale() -> None:
    rng = np.random.default_rng(3)
    assert [tail_of((scale * rng.standard_t(1, 200)) ** 2) for scale in (0.3, 1.0)] == [1.0, 1.0]
    assert tail_of(rng.standard_normal(500) ** 2) == 5.0
    assert tail_of(rng.standard_normal(10) ** 2) == 3.0
    x, held = counts(100), counts(1000, 50)
    clean = measured(x, noise=0.0)
    heavy = clean * np.exp(0.01 * np.clip(rng.standard_t(1, 100), -60, 60))
    off = np.abs(fit(columns(), x, heavy).mean_s(held) / measured(held, noise=0.0) - 1)
    assert off.mean() < 0.0014  # 0.0018 with the usual tails


def test_an_unknown_unit_is_refused_by_name_or_makes_the_interval_wide() -> None:
    x = counts(20)
    x[:, 4] = 0
    estimator = fit(columns(), x, measured(x))
    net = np.array([1.0, 1, 1, 1, 0, 1])
    estimator.predict(net)
    strange = net + 3 * np.eye(6)[4]
    with pytest.raises(ProblemError, match="unit4"):
        estimator.predict(strange)
    wide, narrow = estimator.predict(strange, unknown=Unknown.WIDEN), estimator.predict(net)
    assert wide.high_s - wide.low_s > 3 * (narrow.high_s - narrow.low_s)
    doubts = estimator.explain(strange)
    assert doubts[0].column == "unit4" and {"bias", "noise"} < {d.column for d in doubts}
    assert [d.share for d in doubts] == sorted((d.share for d in doubts), reverse=True)


def test_a_price_makes_a_unit_known() -> None:
    table = prices()
    table[5] = math.nan
    x = counts(20)
    x[:, 4:] = 0
    estimator = fit(columns(table), x, measured(x))
    net = np.array([[1.0, 1, 1, 1, 2, 0]])
    assert estimator.mean_s(net)[0] == pytest.approx(3e-3 + float((net @ np.nan_to_num(table))[0]), rel=0.2)
    with pytest.raises(ProblemError, match="unit5"):
        estimator.predict([[0, 0, 0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("rows", "times", "message"),
    [
        (np.ones((2, 3)), [1, 1], "6 columns"),
        (np.ones((2, UNITS)), [1], "1 times"),
        (np.ones((2, UNITS)), [1, 0], "time of net 1"),
        (np.ones((2, UNITS)), [1, 1e300], "time of net 1"),
        (np.full((1, UNITS), math.inf), [1], "net 0 has inf in 'unit0'"),
        ([], [], "neither samples nor prices"),
    ],
)
def test_samples_that_cannot_be_meant_are_refused(rows: object, times: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        fit(columns(), rows, times)  # type: ignore[arg-type]
    assert caught.value.hint


def test_what_cannot_be_meant_beside_samples_is_refused() -> None:
    with pytest.raises(ProblemError, match="named 'a'"):
        Columns(names=("a", "a"), kinds=("k", "k"))
    with pytest.raises(UsageError):
        FitOptions(coverage=0.2)
    prior = Columns(names=("a", "b"), kinds=("k", "k"), prior_s=np.array([1e9, 1e9]))
    with pytest.raises(UsageError, match="differ too much in size"):
        fit(prior, np.array([[1, 2], [2, 1], [3, 1], [1, 1], [4, 2]]), [1, 2, 3, 1.5, 4])


def test_what_columns_have_in_common_predicts_columns_that_no_sample_has() -> None:
    """Forty units whose cost is their work, and samples that hold thirty of them."""
    rng = np.random.default_rng(2)
    work = rng.uniform(0.1, 3.0, (40, 2))
    x = rng.integers(0, 3, (300, 40)).astype(float)
    y = 2e-3 + x @ work @ np.array([3e-4, 1e-4])
    few = x[:15].copy()
    few[:, 30:] = 0
    taken = 2e-3 + few @ work @ np.array([3e-4, 1e-4])
    names = tuple(f"u{i}" for i in range(40))
    alone = Columns(names=names, kinds=("unit",) * 40)
    common = Columns(names=names, kinds=("unit",) * 40, scale=1 / work.mean(axis=1), shared=work)
    with_work = fit(common, few, taken)
    assert with_work.known.all() and not fit(alone, few, taken).known[30:].any()
    errors = [np.abs(fit(c, few, taken).mean_s(x, unknown=Unknown.WIDEN) / y - 1).mean() for c in (alone, common)]
    assert errors[1] < 0.02 < errors[0]
    # The same model, bit for bit, from what is written.
    assert read_estimator(estimator_document(with_work)).predict(x).high_s == pytest.approx(with_work.predict(x).high_s)


def test_a_net_that_is_known_badly_counts_little() -> None:
    rng = np.random.default_rng(4)
    x = counts(60)
    truth = 3e-3 + x @ prices()
    shaky = np.arange(len(x)) % 2 == 0
    errors = np.where(shaky, 0.2, 0.01) * truth
    y = truth + errors * rng.standard_normal(len(x))
    told = fit(columns(), x, y, errors_s=errors)
    plain = fit(columns(), x, y)
    others = counts(300, seed=9)
    expected = 3e-3 + others @ prices()
    assert np.abs(told.mean_s(others) / expected - 1).mean() < np.abs(plain.mean_s(others) / expected - 1).mean() / 2
    assert told.weights[shaky].max() < told.weights[~shaky].min()


def test_errors_that_are_not_known_are_as_those_of_the_others() -> None:
    x = counts(20)
    y = measured(x)
    usual = fit(columns(), x, y, errors_s=0.02 * y)
    assert fit(columns(), x, y, errors_s=np.where(np.arange(20) == 3, np.nan, 0.02 * y)).mean_s(x) == pytest.approx(
        usual.mean_s(x)
    )
    nothing = fit(columns(), x, y, errors_s=np.full(20, np.nan))
    assert nothing.mean_s(x) == pytest.approx(fit(columns(), x, y).mean_s(x), rel=1e-12)


@pytest.mark.parametrize("bias", [0.01, 1.0])
def test_the_bias_is_as_large_as_is_usual(bias: float) -> None:
    """Nets of one size say little of it: what is usual decides whether the prices or the bias are off."""
    x = counts(6) + 20.0
    table = prices()
    tied = Columns(names=columns().names, kinds=columns().kinds, prior_s=table, bias=bias)
    beside = 0.3 * (x @ table).mean()
    small = fit(tied, x, x @ table + beside).mean_s(np.ones((1, UNITS)))
    assert ((small[0] - table.sum()) / beside > 0.5) == (bias > 0.1)


@pytest.mark.parametrize(
    ("times_s", "step_s"),
    [
        ([0.023, 0.041, 0.107], 1e-3),
        ([1.0, 2.0, 7.0], 1.0),
        ([0.0230413, 0.0411117, 0.1070001], 0.0),
        ([], 0.0),
    ],
)
def test_clocks_of_whole_steps_are_known(times_s: list[float], step_s: float) -> None:
    assert resolution(np.array(times_s)) == step_s


def test_intervals_hold_what_a_clock_of_whole_milliseconds_tells() -> None:
    x, held = counts(15), counts(400, 5)
    exact = 1e-3 + x @ prices() * 2
    step = float(np.median(exact)) / 6
    scale = 1e-3 / step  # so that a typical net takes six of the clock's milliseconds

    def told(rows: np.ndarray) -> np.ndarray:
        return np.maximum(np.round((1e-3 + rows @ prices() * 2) * scale * 1e3), 1.0) / 1e3

    estimator = fit(columns(), x, told(x))
    found = estimator.predict(held, unknown=Unknown.WIDEN)
    assert np.mean((found.low_s <= told(held)) & (told(held) <= found.high_s)) > 0.85
    assert estimator.noise.relative > 0.02


def test_the_noise_of_other_devices_is_what_a_device_is_expected_to_have() -> None:
    """Four nets that happen to agree do not make a quiet device of one whose kind is noisy."""
    x = counts(60)
    noisy = [source(f"d{k}", columns(), x, measured(x, noise=0.2, seed=k)) for k in range(4)]
    assert all(0.1 < one.noise < 0.4 for one in noisy)
    quiet = [Source(name=one.name, columns=one.columns, coefficients=one.coefficients, noise=0.01) for one in noisy]
    y = measured(x, noise=0.05)[:4]
    widths = [fit(columns(), x[:4], y, sources=others).noise.relative for others in (noisy, quiet)]
    assert widths[0] > 1.5 * widths[1]

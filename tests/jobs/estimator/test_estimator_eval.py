"""How good an estimator is on nets held out: against known truths, noise that was put in, and what is not a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.estimator.estimator_kit import kit, measured

from gnomon.errors import UsageError
from gnomon.estimate.columns import FitOptions
from gnomon.estimate.estimator import relative_error, spearman, within
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator.evaluation import ceiling, complaints_about, cross_validate, evaluate, learning_curve
from gnomon.jobs.estimator.job import Described, fit_estimator, suggest_nets


def noisy(count: int, noise: float, seed: int = 0, spread: float = 0.3) -> tuple[np.ndarray, list[NetRow]]:
    """Times that nobody knows, and nets that were measured with that noise."""
    rng = np.random.default_rng(seed)
    true = 1e-3 * np.exp(spread * rng.standard_normal(count))
    seen = true * (1 + noise * rng.standard_normal(count))
    half = 1.96 * noise
    return true, [
        NetRow(assignment=(k,), latency_s=float(t), low_s=float(t * (1 - half)), high_s=float(t * (1 + half)))
        for k, t in enumerate(seen)
    ]


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_ceiling_is_what_knowing_the_truth_would_score(noise: float) -> None:
    true, rows = noisy(4000, noise)
    seen = np.array([row.latency_s for row in rows])
    found = ceiling([*rows, *again(true, noise)])
    assert found is not None
    assert found.within_10 == pytest.approx(within(true, seen), abs=0.02)
    assert found.within_5 == pytest.approx(within(true, seen, 0.05), abs=0.02)
    assert found.mean_error == pytest.approx(relative_error(true, seen)[0], rel=0.08)
    assert found.spearman == pytest.approx(spearman(true, seen), abs=0.02)


def again(true: np.ndarray, noise: float) -> list[NetRow]:
    """The same nets in another campaign, with intervals that are of that alone."""
    seen = true * (1 + noise * np.random.default_rng(99).standard_normal(len(true)))
    return [NetRow(assignment=(k,), latency_s=float(t), low_s=0.999 * t, high_s=1.001 * t) for k, t in enumerate(seen)]


def test_where_no_net_was_measured_in_two_campaigns_there_is_no_ceiling() -> None:
    assert ceiling(noisy(10, 0.05)[1]) is None
    assert ceiling([]) is None


def twice(found: Described, rows: list[NetRow]) -> list[NetRow]:
    """The nets without their stage, each once more with another choice where it makes no difference."""
    place = [slot.name for slot in found.space.space.slots].index("s0")
    kept = [row for row in rows if row.assignment[place - 1] == 0]
    again = [replace(row, assignment=(*row.assignment[:place], 1, *row.assignment[place + 1 :])) for row in kept]
    assert again and not {row.assignment for row in kept} & {row.assignment for row in again}
    return [*kept, *again]


def test_a_net_that_was_written_in_another_way_is_the_same_net(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = twice(found, measured(found, 84))
    once = rows[: len(rows) // 2]
    made = fit_estimator(found, once)
    with pytest.raises(UsageError, match="all of these nets were used to fit"):
        evaluate(made, rows)
    assert fit_estimator(found, rows).fitted == made.fitted
    # One that measures nothing twice holds the same nets out, whose estimators know nothing of them.
    assert cross_validate(found, rows).how == f"{len(rows)} nets in 10 folds, each held out once"
    alone = cross_validate(found, [once[0], *rows[len(once) :][:1], *once[1:4]])
    assert "5 nets in 4 folds" in alone.how
    assert not set(suggest_nets(found, 72, given=rows)) & set(found.nets([row.assignment for row in rows]))
    assert all(spent.nets >= 4 for spent in learning_curve(found, rows))
    assert len(once) == 12 and max(spent.samples for spent in learning_curve(found, rows)) == 10, "of 15 all are known"


def test_nets_held_out_are_compared_with_what_was_measured(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 70, noise=0.02)
    made = fit_estimator(found, rows[:15])
    told = evaluate(made, rows[15:])
    seen = np.array([row.latency_s for row in rows[15:]])
    mean = made.predict([row.assignment for row in rows[15:]]).mean_s
    assert [net.mean_s for net in told.nets] == mean.tolist()
    assert told.scores.mean_error == pytest.approx(float(np.abs(mean / seen - 1).mean()))
    assert told.scores.nets == 55
    assert told.scores.within_10 > 0.95
    assert told.scores.coverage > 0.75
    assert told.curve == ()


def test_what_is_odd_in_samples_is_told_with_its_lines(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = [replace(row, line=k) for k, row in enumerate(measured(found, 8), 2)]
    assert complaints_about(found, rows) == ()
    slow = replace(rows[3], latency_s=1000 * (rows[3].latency_s or 0))
    again = replace(rows[5], latency_s=2 * (rows[5].latency_s or 0), line=99)
    told = complaints_about(found, [*rows[:3], slow, *rows[4:], again])
    assert len(told) == 2
    assert told[0].startswith("Line 5 is ") and "the same unit of time" in told[0]
    assert told[1] == "Lines 7, 99 are the same net, but their times differ by a factor of 2.00."


def test_nets_that_were_fitted_to_test_nothing(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 10)
    made = fit_estimator(found, rows[:6])
    some = evaluate(made, rows[3:])
    assert (some.scores.nets, some.how) == (4, "4 nets outside the fit; 3 nets of the fit left out")
    assert [net.measured_s for net in some.nets] == [row.latency_s for row in rows[6:]]
    with pytest.raises(UsageError, match="all of these nets were used to fit"):
        evaluate(made, rows[3:6])


def test_a_net_that_was_measured_twice_is_never_on_both_sides(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 6, noise=0.0)
    odd = replace(rows[0], latency_s=10 * (rows[0].latency_s or 0))
    told = cross_validate(found, [odd, *rows[1:], odd])
    assert (told.nets[0].mean_s or 0.0) < 0.5 * (told.nets[0].measured_s or 0.0)
    assert told.nets[-1].mean_s == told.nets[0].mean_s
    assert [net.measured_s for net in told.nets] == [row.latency_s for row in (odd, *rows[1:], odd)]
    with pytest.raises(UsageError, match="all samples are measurements of the same net"):
        cross_validate(found, [odd] * 5)
    with pytest.raises(UsageError, match="too few nets to hold some out: 3"):
        cross_validate(found, rows[:3])


def test_the_coverage_that_was_asked_for_is_the_nominal_one(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 20)
    wide, narrow = (cross_validate(found, rows, options=FitOptions(coverage=c)) for c in (0.95, 0.6))
    assert (wide.scores.nominal, narrow.scores.nominal) == (0.95, 0.6)
    assert (wide.scores.half_width or 0.0) > 1.3 * (narrow.scores.half_width or 0.0)
    assert all((a.high_s or 0.0) > (b.high_s or 0.0) for a, b in zip(wide.nets, narrow.nets, strict=True))


def test_more_samples_bring_the_error_down(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 40, noise=0.005)
    curve = learning_curve(found, rows)
    assert [spent.samples for spent in curve] == [0, 2, 4, 6, 8, 10, 15, 20, 30]
    assert [spent.samples + spent.nets for spent in curve] == [40] * 9
    assert curve[0].mean_error > 0.08
    assert curve[-1].mean_error < 0.02
    first = fit_estimator(found, rows[:10]).predict([row.assignment for row in rows[10:]]).mean_s
    assert curve[5].mean_error == relative_error(first, np.array([row.latency_s for row in rows[10:]]))[0]
    assert cross_validate(found, rows).curve == curve


def test_a_unit_that_costs_more_than_the_table_says_stands_out(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path)
    rows = measured(found, 60, scale=1.0, bias_s=0.0, noise=0.002)
    index = next(k for k, unit in enumerate(found.tables.units) if unit.label.startswith("Conv 5x5 12"))
    has = found.tables.counts([row.assignment for row in rows])[:, index] > 0
    rows = [replace(r, latency_s=(r.latency_s or 0) * (1.2 if h else 1.0)) for r, h in zip(rows, has, strict=True)]
    told = evaluate(fit_estimator(found, ()), rows)
    worst = told.units[0]
    assert worst.unit == found.tables.units[index].label
    assert worst.nets == int(has.sum())
    assert (worst.low or 0.0) < 1 / 1.2 - 1 < (worst.high or 0.0) or worst.mean == pytest.approx(1 / 1.2 - 1, abs=0.005)
    assert all((u.low or 0.0) <= u.mean <= (u.high or 0.0) for u in told.units)

"""Scores of an estimator on nets that it was not fitted to, with the limit that noise sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from gnomon.core.stats import pooled_variance
from gnomon.errors import UsageError
from gnomon.estimate.columns import FitOptions, Floats, Unknown
from gnomon.estimate.estimator import coverage, relative_error, spearman, within
from gnomon.estimate.fit import Source
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator.document import Ceiling, EvaluationPart, HeldOutPart, Scores, Spent, UnitResidual
from gnomon.jobs.estimator.job import REFERENCE, Described, SpaceEstimator, at_speed, fit_estimator, reference_of
from gnomon.report import units

_Z95 = NormalDist().inv_cdf(0.975)
_MOST_FOLDS = 10
_TOLD = 0.01
_MIXED, _APART = 30.0, 1.25
_MOST_LINES = 10
_LEAST_OF_UNIT = 3
_SPENT = (0, 2, 4, 6, 8, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
LEAST_TO_HOLD_OUT = 4
"""The smallest number of nets of which some can be held out."""


def evaluate(predictor: SpaceEstimator, held_out: Sequence[NetRow]) -> EvaluationPart:
    """Compare predictions with nets outside the fit; nets of the fit are skipped. UsageError if no net remains."""
    fitted = set(predictor.described.nets(predictor.fitted))
    nets = predictor.described.nets([row.assignment for row in held_out])
    given, held_out = held_out, [row for row, net in zip(held_out, nets, strict=True) if net not in fitted]
    left_out = len(given) - len(held_out)
    if not held_out:
        raise UsageError(
            "all of these nets were used to fit the estimator",
            hint="Give other nets. The report of `gnomon estimator fit` has scores on held-out nets of its samples.",
        )
    how = f"{len(held_out)} nets outside the fit" + (f"; {left_out} nets of the fit left out" if left_out else "")
    speed, now = predictor.context.get(REFERENCE), reference_of(held_out)
    if isinstance(speed, float) and now is not None:
        held_out = _brought(held_out, speed)
        if abs(now / speed - 1) >= _TOLD:
            how += f"; the reference net took {abs(now / speed - 1):.1%} {'more' if now > speed else 'less'} time than"
            how += " in the fit, and the nets' times are corrected for this"
    predicted = predictor.predict([r.assignment for r in held_out], unknown=Unknown.WIDEN)
    parts = (predicted.mean_s, predicted.low_s, predicted.high_s)
    return _evaluation(predictor.described, held_out, parts, predictor.estimator.noise.coverage, how)


def _brought(rows: Sequence[NetRow], reference_s: float) -> list[NetRow]:
    """Nets with their times at the speed at which the reference net takes `reference_s`."""
    factors = at_speed(rows, reference_s)[0] / _measured(rows)

    def times(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    return [
        replace(row, latency_s=times(row.latency_s, f), low_s=times(row.low_s, f), high_s=times(row.high_s, f))
        for row, f in zip(rows, factors.tolist(), strict=True)
    ]


def complaints_about(view: Described, samples: Sequence[NetRow]) -> tuple[str, ...]:
    """Warnings about the measured nets of a csv: times that seem to be in two units, and different times for the same
    net.
    """
    nets = view.nets([row.assignment for row in samples])
    rows = sorted((row.latency_s, row.line, net) for row, net in zip(samples, nets, strict=True) if row.latency_s)
    gap, place = max(((b[0] / a[0], k) for k, (a, b) in enumerate(pairwise(rows), 1)), default=(1.0, 0))
    warnings = []
    if gap > _MIXED:
        few = min(rows[:place], rows[place:], key=len)
        warnings.append(
            f"{_lines(few)} at least {units.digits(gap)} times slower or faster than all others: do all lines have the "
            "same unit of time?"
        )
    by_net: dict[tuple[int, ...], list[tuple[float, int, tuple[int, ...]]]] = {net: [] for net in nets}
    for row in rows:
        by_net[row[2]].append(row)
    for own in filter(None, by_net.values()):
        if (apart := own[-1][0] / own[0][0]) > _APART:
            warnings.append(f"{_lines(own)} the same net, but their times differ by a factor of {units.digits(apart)}.")
    return tuple(warnings)


def _lines(rows: Sequence[tuple[float, int, tuple[int, ...]]]) -> str:
    lines = [str(line) for _, line, _ in rows[:_MOST_LINES]]
    more = ", .." if len(rows) > _MOST_LINES else ""
    return f"{'Lines' if len(rows) > 1 else 'Line'} {', '.join(lines)}{more} {'are' if len(rows) > 1 else 'is'}"


def cross_validate(
    view: Described,
    samples: Sequence[NetRow],
    *,
    others: Mapping[str, Sequence[NetRow] | Source] | None = None,
    options: FitOptions | None = None,
) -> EvaluationPart:
    """Hold out some samples, fit to the rest and compare, until each sample has been held out once.

    `others` has the samples from other devices that are used in each fit. UsageError for fewer than 4 nets.
    """
    if len(samples) < LEAST_TO_HOLD_OUT:
        raise UsageError(f"too few nets to hold some out: {len(samples)}", hint=f"Measure {LEAST_TO_HOLD_OUT} nets.")
    # All samples of a net are in the same fold; otherwise the net would be both fitted to and held out.
    nets = view.nets([row.assignment for row in samples])
    order = {net: number for number, net in enumerate(dict.fromkeys(nets))}
    folds = min(_MOST_FOLDS, len(order))
    if folds < 2:
        raise UsageError("all samples are measurements of the same net", hint="Measure different nets.")
    fold_of = [order[net] % folds for net in nets]
    parts = [np.empty(len(samples)) for _ in range(3)]
    for fold in range(folds):
        out = [index for index, own in enumerate(fold_of) if own == fold]
        kept = [row for row, own in zip(samples, fold_of, strict=True) if own != fold]
        predictor = fit_estimator(view, kept, others=others, options=options)
        predicted = predictor.predict([samples[i].assignment for i in out], unknown=Unknown.WIDEN)
        for part, values in zip(parts, (predicted.mean_s, predicted.low_s, predicted.high_s), strict=True):
            part[out] = values
    nominal = (options or FitOptions()).coverage
    how = f"{len(samples)} nets in {folds} folds, each held out once"
    found_by = _evaluation(view, samples, (parts[0], parts[1], parts[2]), nominal, how)
    return replace(found_by, curve=learning_curve(view, samples, others=others, options=options))


def learning_curve(
    view: Described,
    samples: Sequence[NetRow],
    *,
    others: Mapping[str, Sequence[NetRow] | Source] | None = None,
    options: FitOptions | None = None,
) -> tuple[Spent, ...]:
    """Scores of fits to growing numbers of samples, on all other samples: the benefit of measuring more.

    Samples are used in the given order, usually the order in which they were suggested. At least 4 nets are always held
    out.
    """
    points = []
    nets = view.nets([row.assignment for row in samples])
    most = len(samples) - LEAST_TO_HOLD_OUT
    fewest = 0 if view.table is not None else 2
    for count in (n for n in _SPENT if fewest <= n <= most):
        held = [row for row, net in zip(samples[count:], nets[count:], strict=True) if net not in nets[:count]]
        if len(held) < LEAST_TO_HOLD_OUT:
            break
        predictor = fit_estimator(view, samples[:count], others=others, options=options)
        predicted = predictor.predict([row.assignment for row in held], unknown=Unknown.WIDEN).mean_s
        measured = _measured(held)
        points.append(
            Spent(
                samples=count,
                nets=len(held),
                mean_error=relative_error(predicted, measured)[0],
                within_10=within(predicted, measured),
                spearman=spearman(predicted, measured),
            )
        )
    return tuple(points)


def _measured(rows: Sequence[NetRow]) -> Floats:
    return np.array([row.latency_s or np.nan for row in rows])


def _units(view: Described, rows: Sequence[NetRow], relative: Floats) -> tuple[UnitResidual, ...]:
    """The residuals by unit, sorted by their distance from zero relative to their error, the largest first.

    Units that occur equally often in all nets, or in fewer than three nets, are left out, because residuals say nothing
    about such units.
    """
    counts = view.rows([row.assignment for row in rows])[:, 1:]
    residuals: list[tuple[float, UnitResidual]] = []
    for index, unit in enumerate(view.tables.units):
        own = relative[counts[:, index] > 0]
        if len(own) < _LEAST_OF_UNIT or np.ptp(counts[:, index]) == 0:
            continue
        mean, half = float(own.mean()), _Z95 * float(own.std(ddof=1)) / math.sqrt(len(own))
        residual = UnitResidual(unit=unit.label, nets=len(own), mean=mean, low=mean - half, high=mean + half)
        residuals.append((-abs(mean) / max(2 * half, 1e-12), residual))
    return tuple(residual for _, residual in sorted(residuals, key=lambda row: row[0]))


def _evaluation(
    view: Described, rows: Sequence[NetRow], parts: tuple[Floats, Floats, Floats], nominal: float, how: str
) -> EvaluationPart:
    measured = _measured(rows)
    mean, low, high = parts
    mean_error, median_error = relative_error(mean, measured)
    scores = Scores(
        nets=len(rows),
        within_10=within(mean, measured),
        within_5=within(mean, measured, 0.05),
        mean_error=mean_error,
        median_error=median_error,
        spearman=spearman(mean, measured),
        coverage=coverage(low, high, measured),
        nominal=nominal,
        half_width=float(np.median((high - low) / 2 / mean)),
    )
    columns = (column.tolist() for column in (measured, mean, low, high))
    return EvaluationPart(
        how=how,
        scores=scores,
        ceiling=ceiling(rows),
        nets=tuple(
            HeldOutPart(measured_s=seconds, mean_s=expected, low_s=least, high_s=most)
            for seconds, expected, least, most in zip(*columns, strict=True)
        ),
        units=_units(view, rows, mean / measured - 1),
        curve=(),
    )


def ceiling(rows: Sequence[NetRow]) -> Ceiling | None:
    """The best scores that noise allows, from nets that were measured in several campaigns; None without such nets.

    The intervals of the measurements do not show this noise: each interval is from one campaign, and a net's times
    differ much more between campaigns. Errors are assumed to be normally distributed. The rank correlation is the
    square root of the measurements' reliability (Spearman's correction for attenuation, 1904).
    """
    campaigns: dict[tuple[int, ...], list[float]] = {}
    for row in rows:
        if row.latency_s:
            campaigns.setdefault(row.assignment, []).append(math.log(row.latency_s))
    noise = pooled_variance(campaigns.values())
    if noise is None:
        return None
    deviation, normal = math.sqrt(noise), NormalDist()

    def share(limit: float) -> float:
        return 2 * normal.cdf(limit / max(deviation, 1e-9)) - 1

    total = float(np.var([np.mean(ones) for ones in campaigns.values()]))
    return Ceiling(
        within_10=share(0.1),
        within_5=share(0.05),
        mean_error=deviation * math.sqrt(2 / math.pi),
        spearman=math.sqrt(max(0.0, 1 - noise / total) if total > 0 else 0.0),
    )

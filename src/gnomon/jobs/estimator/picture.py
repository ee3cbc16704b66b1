"""The charts of an estimator: predicted against measured times, residuals by unit, and the benefit of more samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gnomon.jobs.estimator.document import Ceiling, EvaluationPart, Scores, Spent
from gnomon.report import units
from gnomon.report.chart import (
    BEHIND,
    LOOKS,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Row,
    Rule,
    Value,
    finite,
    in_rows,
    line,
    shares,
    time_words,
    timed,
)
from gnomon.report.parts import percent

_OFF = Look(colour="#777777", dash="2 4")


def evaluation_charts(evaluation: EvaluationPart) -> list[Chart]:
    """The charts of an evaluation: its nets, its units, and its curve if it has one."""
    return [*_nets(evaluation), *_units(evaluation), *_curve(evaluation)]


def _nets(evaluation: EvaluationPart) -> Iterator[Chart]:
    """Predicted against measured times, with intervals, and lines that mark an error of 10 %."""
    nets = [(net, at) for net in evaluation.nets if (at := finite(net.measured_s)) and finite(net.mean_s)]
    if not nets:
        return
    scores, ceiling = evaluation.scores, evaluation.ceiling
    nominal = units.share(scores.nominal)
    marks: dict[bool, list[Mark]] = {True: [], False: []}
    for number, (net, measured_s) in enumerate(nets, 1):
        ends = net.mean_s, net.low_s, net.high_s
        tip = f"net {number}: measured {units.time(measured_s)}, predicted {time_words(*ends)}"
        is_inside = net.low_s is not None and net.high_s is not None and net.low_s <= measured_s <= net.high_s
        marks[is_inside].append(Mark(x=timed(measured_s), y=timed(*ends), tip=tip))
    reach = [1e3 * measured_s for _, measured_s in nets]
    about = [
        Group(
            marks=line((x, by * x) for x in (min(reach), max(reach))),
            look=_OFF,
            kind="none",
            line="straight",
            name=name,
        )
        for by, name in ((1.1, "10 % off"), (0.9, ""))
    ]
    noise = f"Best scores that the measurement noise allows: {_score(ceiling)}" if ceiling else ""
    score = f"{_score(scores)} ({evaluation.how})"
    yield Chart(
        title=f"Predictions outside the fit: {score}",
        x=Axis(title="measured, ms"),
        y=Axis(title="predicted, ms"),
        groups=(
            *about,
            Group(name=f"inside the {nominal} interval: {len(marks[True])}", marks=marks[True]),
            Group(name=f"outside the interval: {len(marks[False])}", marks=marks[False], look=LOOKS[1]),
        ),
        equal=True,
        note=noise,
    )


def _score(scores: Scores | Ceiling) -> str:
    rank = units.digits(scores.spearman)
    return f"mean error {percent(scores.mean_error)}, {units.share(scores.within_10)} within 10 %, rank {rank}"


def _units(evaluation: EvaluationPart) -> Iterator[Chart]:
    """For each unit, the mean error of predictions for nets with this unit."""
    rows = [
        Row(
            name=f"{residual.unit} ({residual.nets})",
            value=shares(residual.mean, residual.low, residual.high),
            text=units.percent(residual.mean),
            look=BEHIND if (residual.low or 0.0) <= 0 <= (residual.high or 0.0) else LOOKS[1],
        )
        for residual in evaluation.units
    ]
    if rows:
        legend = {LOOKS[1]: "significant", BEHIND: "within noise"}
        title = "Mean error of predictions for nets with each unit (number of nets); above 0: too long"
        yield replace(
            in_rows(title, "%, 95 % interval", rows, legend=legend, noun="units"), rules=(Rule(along="x", at=0.0),)
        )


def _curve(evaluation: EvaluationPart) -> Iterator[Chart]:
    """The error on held-out nets against the number of samples in the fit."""
    curve, ceiling = evaluation.curve, evaluation.ceiling
    if len(curve) < 2:
        return
    errors = [(point, "mean error", point.mean_error) for point in curve]
    beyond = [(point, "off by more than 10 %,", 1 - point.within_10) for point in curve]
    noise = shares(ceiling.mean_error if ceiling else None)
    yield Chart(
        title="Benefit of more samples",
        x=Axis(title="number of nets in the fit (the first samples; all others are held out)", linear=True),
        y=Axis(title="%", low=0),
        groups=(
            Group(name="mean error", marks=_spent(errors), line="straight"),
            Group(name="nets off by more than 10 %", marks=_spent(beyond), look=LOOKS[1], line="straight"),
        ),
        rules=(Rule(along="y", at=noise.value or 0.0, name="mean measurement error"),) if noise.is_known else (),
        height=240,
    )


def _spent(rows: Iterable[tuple[Spent, str, float | None]]) -> list[Mark]:
    return [
        Mark(
            x=Value(value=point.samples),
            y=shares(share),
            tip=f"fitted to {point.samples} nets, {point.nets} others held out: {what} {percent(share)}",
        )
        for point, what, share in rows
    ]

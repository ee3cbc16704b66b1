"""The reports of `gnomon estimator`, made from their JSON documents alone."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gnomon.jobs.estimator.document import (
    CountDocument,
    EvaluationDocument,
    EvaluationPart,
    ExplanationDocument,
    ExportDocument,
    FitDocument,
    HeldOutPart,
    ImportDocument,
    ModelPredictionDocument,
    PredictedNet,
    PredictionsDocument,
    SuggestDocument,
    VerificationDocument,
)
from gnomon.report import units
from gnomon.report.chart import BEHIND, LOOKS
from gnomon.report.conditions import measured_with
from gnomon.report.page import Page, Table
from gnomon.report.parts import percent
from gnomon.report.plain import listed, many

if TYPE_CHECKING:
    from gnomon.jobs.table.document import NetsDocument

_ROWS = 20
_FAR = 2.0
"""The smallest suspicious factor between a table's sum and the measured time; work between units explains less."""


def estimator_report(document: FitDocument | EvaluationDocument, page: Page) -> None:
    """Write the report of a fitted or evaluated estimator: its scores on held-out nets, next to the noise limit."""
    evaluation = document.evaluation
    if isinstance(document, FitDocument):
        prices = f"prices of {document.priced} of {document.units} units" if document.priced else "no table"
        page.headline(f"An estimator of {document.space}, from {many(document.samples, 'net')} and {prices}.")
        if document.context:
            page.conditions(f"Measured with {measured_with(document.context)}")
        if document.samples == 0:
            how = document.suggest or "gnomon estimator suggest"
            page.line(f"Without measured nets, it predicts the table's sum. To choose nets to measure: {how}")
        _suspect(document, page)
        if document.unknown:
            shown = ", ".join(document.unknown[:3])
            page.item(
                f"There are no data about {many(len(document.unknown), 'unit')}, such as {shown}.",
                "Nets with these units are rejected; with predict --widen they get wide intervals.",
            )
    else:
        page.headline(f"The estimator {document.file} of {document.space}.")
    for warning in document.complaints:
        page.item(warning)
    if evaluation is None:
        page.line("There are too few nets to score the estimator: measure 4 or more different nets.")
    else:
        _scores(evaluation, page)
    page.line("")
    for path in document.pictures:
        page.path("picture", path)
    if document.file is not None:
        page.path("file", document.file)
        if isinstance(document, FitDocument):
            use = f"gnomon estimator predict {shlex.quote(document.file)} NETS.csv"
            page.line(f"To predict other nets: {use}", indent=1, style="dim")


def _suspect(document: FitDocument, page: Page) -> None:
    """Warn if the table's sum is so far off that the table probably comes from another device."""
    ratio = document.sum_over_measured
    if ratio is not None and not 1 / _FAR < ratio < _FAR:
        context = document.context
        device = context.get("device") or {}
        what = " ".join(str(device[name]) for name in ("machine", "cpu_model", "soc") if device.get(name))
        page.item(
            f"The table's sums are {units.digits(ratio)} times the measured times.",
            f"The table was measured with {context.get('runtime', 'an unknown runtime')} on"
            f" {what or 'an unknown device'}. If the nets were measured elsewhere, build a table there.",
        )


def _scores(evaluation: EvaluationPart, page: Page) -> None:
    scores, ceiling = evaluation.scores, evaluation.ceiling
    page.heading(f"Scores ({evaluation.how})")
    rows = [
        ("within 10 %", scores.within_10, ceiling.within_10 if ceiling else None, units.share),
        ("within 5 %", scores.within_5, ceiling.within_5 if ceiling else None, units.share),
        ("mean error", scores.mean_error, ceiling.mean_error if ceiling else None, percent),
        ("rank (Spearman)", scores.spearman, ceiling.spearman if ceiling else None, _three),
        ("median error", scores.median_error, None, percent),
        (f"in the {units.share(scores.nominal)} interval", scores.coverage, None, units.share),
        ("interval half-width", scores.half_width, None, percent),
    ]
    table = Table(rows).text("", lambda row: row[0]).number("here", lambda row: row[3](row[1]))
    page.table(table if ceiling is None else table.number("noise limit", lambda row: row[3](row[2])))
    if ceiling is None:
        page.line("No net was measured in two runs, so the noise limit is unknown.", indent=1, style="dim")
    page.draw("gnomon.jobs.estimator.picture:evaluation_charts", evaluation)
    nets = [(k, n.measured_s, n) for k, n in enumerate(evaluation.nets, 1) if n.measured_s and n.mean_s]
    extra, interval = not page.every, f"{units.share(scores.nominal)} interval"
    page.table(
        Table(nets)
        .number("net", lambda row: row[0], extra=extra)
        .number("measured", lambda row: row[1], units.time, extra=extra)
        .number("predicted", lambda row: row[2].mean_s, units.time, extra=extra)
        .text(interval, lambda row: _interval(row[2].mean_s, row[2]), extra=extra)
        .number("off by", lambda row: (row[2].mean_s or 0.0) / row[1] - 1, units.percent, extra=extra)
    )


def _interval(value_s: float | None, net: HeldOutPart | PredictedNet) -> str:
    return units.interval(net.low_s, net.high_s, value_s, predicted=True)


def measured_report(document: NetsDocument, page: Page) -> None:
    """Write the nets that were measured."""
    times = sorted(net.latency_s for net in document.nets if net.latency_s is not None)
    page.headline(
        f"{len(times)} of {many(len(document.nets), 'net')} measured by {units.CLOCKS[document.clock]}: "
        f"{units.time(times[0])} to {units.time(times[-1])}."
    )
    if document.conditions is not None:
        page.conditions(f"Measured with {measured_with(document.context, document.conditions)}")
    for failure in document.failures:
        page.item(f"net {failure.net + 1} failed: {failure.reason}")
    if document.unlike:
        page.heading("Differences from the table's conditions (the table, then the nets)")
        for difference in document.unlike:
            page.item(difference)
    for doubt in document.doubts:
        page.item(doubt.message, doubt.hint)
    page.table(
        Table(enumerate(document.nets, 1))
        .text("net", lambda row: f"net {row[0]}", extra=True)
        .number("latency", lambda row: row[1].latency_s, units.time, extra=True)
        .text("interval", lambda row: units.interval(row[1].low_s, row[1].high_s, row[1].latency_s), extra=True)
        .bars("Each net with its interval", lambda row: (row[1].latency_s, row[1].low_s, row[1].high_s), noun="nets")
    )
    page.line("")
    if document.file is not None:
        page.path("file", document.file)
        page.line(f"To fit: {document.fit}", indent=1, style="dim")


def predictions_report(document: PredictionsDocument, page: Page) -> None:
    """Write the predictions of nets."""
    nets = document.nets
    page.headline(f"Predictions for {many(len(nets), 'net')} of {document.space}.")
    table = (
        Table(enumerate(nets, 1), most=_ROWS)
        .number("net", lambda row: row[0])
        .number("latency", lambda row: row[1].latency_s, units.time)
        .number(
            f"{units.share(document.coverage)} interval",
            lambda row: _interval(row[1].latency_s, row[1]),
        )
        .bars("Each net with its interval", lambda row: (row[1].latency_s, row[1].low_s, row[1].high_s), noun="nets")
    )
    if document.bound_s is not None:
        table.number(f"below {units.time(document.bound_s)}", lambda row: row[1].below, units.share)
    page.table(table)
    if document.file:
        page.path("file", document.file)


def model_report(document: ModelPredictionDocument, page: Page) -> None:
    """Write the predicted time of a model, and where it comes from."""
    mean = document.mean_s
    interval = units.interval(document.low_s, document.high_s, mean, predicted=True)
    page.headline(f"{document.model}: {units.time(mean)} {interval}, predicted.")
    page.conditions(f"Predicted from times with {measured_with(document.context)}")
    shares = document.shares
    parts = [f"{units.share(share)} {_KNOWN[source]}" for source, share in shares.items() if share > 0]
    page.line(f"Of this time, {listed(parts)}.")
    strange = [u.label for u in document.units if u.source == "unlike any measured one"]
    if strange:
        page.item(
            f"{many(len(strange), 'unit has', 'units have')} no similar measured unit, such as {strange[0]}: the times "
            "are guesses.",
            f"To measure these units: gnomon table build --from {shlex.quote(document.model)} --runtime "
            f"{document.context.get('runtime')}",
        )
    for operator in document.left_out:
        page.item(f"No price for {operator.type} ({many(operator.count, 'operator')}): {operator.reason}.")
    if document.guessed_s > 0.01 * mean:
        page.item(
            f"Operators without a price are estimated to take {units.time(document.guessed_s)}, from their work alone.",
            f"Measure the model whole: gnomon profile {shlex.quote(document.model)}",
        )
    for path in document.tables:
        page.path("table", path)
    page.table(
        Table(document.units, most=_ROWS)
        .text("unit", lambda unit: unit.label, most=60)
        .number("times", lambda unit: unit.count)
        .number("adds", lambda unit: unit.count * unit.time_s, units.time)
        .number("of the whole", lambda unit: unit.count * unit.time_s / mean, units.share)
        .number("known within", lambda unit: 2 * unit.deviation, percent)
        .text("from", lambda unit: _SHORT[unit.source])
        .bars(
            "Time added by each unit; hollow: not measured",
            lambda unit: (unit.count * unit.time_s, None, None),
            lambda unit: LOOKS[0] if unit.source == "measured" else BEHIND,
            noun="units",
        )
    )


_KNOWN = {
    "measured": "comes from measured units",
    "like measured ones": "is estimated from similar units",
    "unlike any measured one": "is a guess",
}
_SHORT = {"measured": "measured", "like measured ones": "similar", "unlike any measured one": "guess"}


def verification_report(document: VerificationDocument, page: Page) -> None:
    """Write the result of comparing a model with a network of a space."""
    verb = "does not match" if document.differences else "matches"
    page.headline(f"{document.model} {verb} this network of {document.space}.")
    if document.differences:
        page.table(
            Table(document.differences, most=_ROWS)
            .text("unit", lambda unit: unit.label, most=60)
            .number("in the network", lambda unit: unit.space)
            .number("in the model", lambda unit: unit.model)
        )


_PARTS = {"bias": "fixed part of every net", "noise": "errors of whole nets"}


def explanation_report(document: ExplanationDocument, page: Page) -> None:
    """Write the parts of a net's time and uncertainty."""
    interval = units.interval(document.low_s, document.high_s, document.latency_s, predicted=True)
    page.headline(f"The first net: {units.time(document.latency_s)} {interval}.")
    page.table(
        Table(document.parts, most=_ROWS)
        .text("unit", lambda part: _PARTS.get(part.unit, part.unit), most=60)
        .number("adds", lambda part: part.time_s, units.time)
        .number("of the uncertainty", lambda part: part.share, units.share)
        .bars("Time added by each unit", lambda part: (part.time_s, None, None), noun="units")
    )


def file_report(document: ExportDocument | CountDocument | SuggestDocument | ImportDocument, page: Page) -> None:
    """Write the path of the file that was written."""
    page.path("file", document.file)


def suggested_report(document: SuggestDocument, page: Page) -> None:
    """Write the number of nets, the path of their file, and the command that measures them."""
    page.headline(f"{many(len(document.nets), 'net')} to measure; --k sets the number.")
    file_report(document, page)
    if document.measure is not None:
        page.path("measure", document.measure)


def imported_report(document: ImportDocument, page: Page) -> None:
    """Write how many nets were imported, the path of their file, and the command that fits an estimator to them."""
    space, file = shlex.quote(document.space), shlex.quote(document.file)
    page.headline(f"{many(document.nets, 'net')} of {document.space}, {document.measured} of them measured.")
    file_report(document, page)
    page.line(f"To fit an estimator: gnomon estimator fit --space {space} --samples {file}", indent=1, style="dim")


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

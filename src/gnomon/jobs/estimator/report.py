"""The reports of `gnomon estimator`, made from their JSON documents alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.jobs.estimator.document import (
    CountDocument,
    EvaluationDocument,
    EvaluationPart,
    ExplanationDocument,
    ExportDocument,
    FitDocument,
    ImportDocument,
    ModelPredictionDocument,
    PredictionsDocument,
    SuggestDocument,
)
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import measured_with

if TYPE_CHECKING:
    from gnomon.jobs.table.document import NetsDocument

_ROWS = 20
_FAR = 2.0
"""From how many times too long or too short on a table's sum is suspect; what runs between units is far less."""


def estimator_report(document: FitDocument | EvaluationDocument, page: Page) -> None:
    """An estimator that was fitted or evaluated: how good on nets held out, beside the measurement-noise limit."""
    evaluation = document.evaluation
    if isinstance(document, FitDocument):
        prices = f"{document.priced} of {document.units} units priced" if document.priced else "no table"
        samples = document.samples
        page.headline(
            f"An estimator of {document.space}, from {samples} net{'' if samples == 1 else 's'} and {prices}."
        )
        if document.context:
            page.line(f"Measured with {measured_with(document.context)}")
        if samples == 0:
            page.line("Without measured nets it is the table's sum. To choose some: gnomon estimator suggest")
        _suspect(document, page)
        if document.learner:
            page.line("A residual learner won in cross-validation, and is part of it.")
        if document.unknown:
            shown = ", ".join(document.unknown[:3])
            page.item(
                f"Nothing is known of {len(document.unknown)} units, such as {shown}.",
                "Nets with one of them are refused, or get wide intervals (predict --widen).",
            )
    else:
        page.headline(f"The estimator {document.file} of {document.space}.")
    if evaluation is None:
        page.line("Too few nets to say how good it is: measure 4 or more.")
    else:
        _scores(evaluation, page)
    page.line("")
    for path in document.pictures:
        page.path("picture", path)
    if document.file is not None:
        page.path("file", document.file)


def _suspect(document: FitDocument, page: Page) -> None:
    """A table that is so far off that it is likely of another device."""
    ratio = document.sum_over_measured
    if ratio is not None and not 1 / _FAR < ratio < _FAR:
        context = document.context
        device = context.get("device") or {}
        what = " ".join(str(device[name]) for name in ("machine", "cpu_model", "soc") if device.get(name))
        page.item(
            f"The table's sum is {units.digits(ratio)} times what was measured.",
            f"The table is of {context.get('runtime', 'an unknown runtime')} on {what or 'an unknown device'}: were"
            " the nets measured there, with the same configuration? If not, build a table where they were.",
        )


def _scores(evaluation: EvaluationPart, page: Page) -> None:
    scores, ceiling = evaluation.scores, evaluation.ceiling
    page.heading(f"How good it is ({evaluation.how})")
    names = [
        ("within 10 %", "within_10", units.share),
        ("within 5 %", "within_5", units.share),
        ("mean error", "mean_error", percent),
        ("rank (Spearman)", "spearman", _three),
    ]
    rows = [
        [title, show(getattr(scores, key)), show(getattr(ceiling, key)) if ceiling else "-"]
        for title, key, show in names
    ]
    rows.append(["median error", percent(scores.median_error), "-"])
    rows.append([f"in the {units.share(scores.nominal)} interval", units.share(scores.coverage), "-"])
    rows.append(["half the interval", percent(scores.half_width), "-"])
    page.table([Column(title="", number=False), Column(title="here"), Column(title="measurement-noise limit")], rows)
    if ceiling is None:
        page.line("The nets have no intervals, so the noise is unknown.", indent=1, style="dim")


def measured_report(document: NetsDocument, page: Page) -> None:
    """Nets that were measured."""
    times = sorted(net.latency_s for net in document.nets if net.latency_s is not None)
    page.headline(
        f"{len(times)} of {len(document.nets)} nets measured by {document.clock} time: "
        f"{units.time(times[0])} to {units.time(times[-1])}."
    )
    for failure in document.failures:
        page.item(f"net {failure.net + 1} failed: {failure.reason}")
    if document.unlike:
        page.heading("Measured otherwise than the table")
        for told in document.unlike:
            page.item(told)
    for doubt in document.doubts:
        page.item(doubt.message, doubt.hint)
    page.line("")
    if document.file is not None:
        page.path("file", document.file)
        page.line(f"To fit: gnomon estimator fit --table TABLE --samples {document.file}", indent=1, style="dim")


def predictions_report(document: PredictionsDocument, page: Page) -> None:
    """Predictions of nets."""
    nets = document.nets
    bounded = document.bound_s is not None
    page.headline(f"{len(nets)} net{'' if len(nets) == 1 else 's'} of {document.space}, as predicted.")
    columns = [
        Column(title="net"),
        Column(title="latency"),
        Column(title=f"{units.share(document.coverage)} interval"),
    ]
    if bounded:
        columns.append(Column(title=f"below {units.time(document.bound_s)}"))
    rows = []
    for number, net in enumerate(nets[:_ROWS], start=1):
        row = [
            str(number),
            units.time(net.latency_s),
            units.interval(net.low_s, net.high_s, net.latency_s or 0.0, predicted=True),
        ]
        rows.append([*row, units.share(net.below)] if bounded else row)
    page.table(columns, rows)
    if len(nets) > _ROWS:
        page.line(f"and {len(nets) - _ROWS} more: --out CSV or --json has all of them", indent=1, style="dim")
    if document.file:
        page.path("file", document.file)


def model_report(document: ModelPredictionDocument, page: Page) -> None:
    """What a model is expected to take, and how that is known."""
    mean = document.mean_s
    interval = units.interval(document.low_s, document.high_s, mean, predicted=True)
    page.headline(f"{document.model}: {units.time(mean)} {interval}, never measured.")
    page.line(f"Priced by times with {measured_with(document.context)}")
    shares = document.shares
    told = [f"{units.share(share)} {_KNOWN[source]}" for source, share in shares.items() if share > 0]
    page.line(f"Of this time, {'; '.join(told)}.")
    strange = [u.label for u in document.units if u.source == "unlike any measured one"]
    if strange:
        page.item(
            f"No unit of {len(strange)} kinds was ever measured there, such as {strange[0]}: their prices are guesses.",
            f"To measure them: gnomon table build --from {document.model}",
        )
    for one in document.left_out:
        many = f"{one.count} operators" if one.count > 1 else "an operator"
        page.item(f"{many} {one.type} without a price: {one.reason}.")
    if document.guessed_s > 0.01 * mean:
        page.item(
            f"What has no price is guessed to take {units.time(document.guessed_s)}, by its work alone.",
            f"Measure the model whole: gnomon profile {document.model}",
        )
    rows = [
        [
            one.label,
            str(one.count),
            units.time(one.count * one.time_s),
            units.share(one.count * one.time_s / mean),
            percent(one.deviation),
            _SHORT[one.source],
        ]
        for one in document.units[:_ROWS]
    ]
    columns = [Column(title="unit", number=False, most=60)]
    columns += [Column(title=title) for title in ("times", "adds", "of the whole", "known within")]
    page.table([*columns, Column(title="from", number=False)], rows)
    if len(document.units) > _ROWS:
        page.line(f"and {len(document.units) - _ROWS} more: --json has all of them", indent=1, style="dim")
    for path in document.tables:
        page.path("table", path)


_KNOWN = {
    "measured": "is of units that were measured",
    "like measured ones": "is priced by units like them",
    "unlike any measured one": "is a guess",
}
_SHORT = {"measured": "measured", "like measured ones": "like", "unlike any measured one": "guess"}


def explanation_report(document: ExplanationDocument, page: Page) -> None:
    """What a net's time and doubt are made of."""
    interval = units.interval(document.low_s, document.high_s, document.latency_s, predicted=True)
    page.headline(f"{units.time(document.latency_s)} {interval}.")
    parts = document.parts
    page.table(
        [Column(title="unit", number=False, most=60), Column(title="adds"), Column(title="of the uncertainty")],
        [[part.unit, units.time(part.time_s), units.share(part.share)] for part in parts[:_ROWS]],
    )
    if len(parts) > _ROWS:
        page.line(f"and {len(parts) - _ROWS} more: --json has all of them", indent=1, style="dim")


def file_report(document: ExportDocument | CountDocument | SuggestDocument | ImportDocument, page: Page) -> None:
    """Write where the file is that was written."""
    page.path("file", document.file)


def suggested_report(document: SuggestDocument, page: Page) -> None:
    """Write where the nets are, and how they are measured."""
    file_report(document, page)
    page.line(f"To measure them: gnomon estimator measure {document.file} --table TABLE", indent=1, style="dim")


def imported_report(document: ImportDocument, page: Page) -> None:
    """Write how many nets there are, where, and how an estimator is fitted to them."""
    space, file = document.space, document.file
    page.headline(f"{document.nets} nets of {space}, {document.measured} of them measured.")
    file_report(document, page)
    page.line(f"To fit an estimator: gnomon estimator fit --space {space} --samples {file}", indent=1, style="dim")


def percent(value: float | None) -> str:
    """A share in percent, to one place: "3.4 %"; "-" for none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

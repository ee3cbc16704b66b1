"""What a page shows of a document before any script runs: sentences, tables and small charts, by its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import RecordError
from gnomon.jobs.compare.document import CompareDocument, VerdictPart
from gnomon.jobs.compare.report import doubts, verdict_words
from gnomon.jobs.documents import read_document, report_of
from gnomon.jobs.html.blocks import MOST_ROWS, Column, Section, Table, View, Warned, table
from gnomon.jobs.html.measured import measured_sections
from gnomon.jobs.html.pictures import pictures, sustained
from gnomon.jobs.html.recorded import recorded
from gnomon.jobs.pareto.picture import front_charts
from gnomon.jobs.pareto.report import headline as pareto_headline
from gnomon.jobs.pareto.report import interval as estimate_interval
from gnomon.jobs.pareto.report import note as dominance
from gnomon.jobs.pareto.report import value as estimate_value
from gnomon.jobs.place.picture import times_chart
from gnomon.jobs.place.report import profile_headline
from gnomon.report import units
from gnomon.report.answer import plain_cell
from gnomon.report.chart import CHOSEN, Axis, Chart, Group, Mark, Value, finite, timed
from gnomon.report.frame import tables_of
from gnomon.report.parts import (
    bounds,
    conditions_line,
    failure_text,
    model_line,
    outcome,
    ratio_interval,
    unproved,
)

Document = Mapping[str, Any]

_MOST_COLUMNS = 10


def view(document: Document) -> View:
    """What is shown of a document: of a format that has no view of its own, its lists as tables."""
    made = _VIEWS.get(document.get("format", ""))
    if made is not None:
        return made(document)
    report = report_of(document)
    if report is None:
        return _others(document)
    try:
        return _told(document, report)
    except RecordError:  # it does not fit its record, so that its report cannot be trusted: what it holds is shown
        return _others(document)


def _warnings(document: Document) -> tuple[Warned, ...]:
    rows = [Warned(message=_sentence(row["message"]), hint=row["hint"]) for row in document.get("doubts") or ()]
    for row in document.get("missing") or ():
        reason = " ".join(row["reason"].split())
        rows.append(Warned(message=f"Skipped: {row['name']}: {reason[:300]}", hint=row["hint"]))
    return tuple(rows)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _facts(document: Document) -> tuple[tuple[str, str], ...]:
    fingerprint = document.get("fingerprint") or {}
    versions = document.get("versions") or {}
    told = [
        ("Device", document.get("device")),
        ("Processor", fingerprint.get("cpu_model")),
        ("Cores", fingerprint.get("cores")),
        ("Frequency governor", fingerprint.get("governor")),
        ("Versions", ", ".join(f"{name} {of}" for name, of in sorted(versions.items()))),
        ("Run", document.get("campaign")),
        ("Took", None if document.get("seconds") is None else units.duration(document["seconds"])),
    ]
    return tuple((name, str(of)) for name, of in told if of)


def _placed(document: Document) -> View:
    clock = document["clock"]
    main, other = ("cpu", "measured") if clock == "cpu" else ("measured", "cpu")
    decision = document["decision"]
    alive = [c for c in document["contenders"] if not c["failure"] and c[main]]
    alive.sort(key=lambda c: c["level_s"] or 0.0)
    rows = [_configuration(c, c[main], c[other], c["against_best"], decision["best_single"]) for c in alive]
    parts = _configurations(rows, [(c["label"], c[main]) for c in alive], decision["chosen"], clock, "best backend")
    refused = [
        f"{c['label']} was refused: {failure_text(c['failure'])}" for c in document["contenders"] if c["failure"]
    ]
    speedup = decision["speedup_vs_best_single"]
    told = []
    if speedup and speedup["low"] and speedup["high"]:
        told.append(
            f"95 % interval of the gain: {units.digits(speedup['low'])} to {units.digits(speedup['high'])} times."
        )
    if document["why_not_mixed"]:
        told.append(f"Why not mixed: {document['why_not_mixed']}")
    verified = document["verified"]
    if verified["failure"]:
        told.append(f"The package failed: {failure_text(verified['failure'])}")
    elif verified["ok"]:
        nobody = unproved(document)
        told.append("The package was run from its own files: every operator ran where planned.")
        told += [f"Its outputs: {nobody}."] if nobody else []
    sections = [Section(id="configurations", title="Configurations", parts=parts, lines=(*told, *refused))]
    return View(
        title=f"Placement of {Path(document['model']['path']).name}",
        answer=decision["reason"],
        subject=f"{conditions_line(document)} {model_line(document)}",
        warnings=_warnings(document),
        sections=(*sections, *_predicted(document)),
        after=(*measured_sections(document["contenders"], clock), *_environment(document)),
        facts=_facts(document),
    )


_ABOUT = (
    "Samples are calls without profiler, in fresh processes; intervals are of the processes. Ratio below 1: faster."
)


def _configuration(
    row: Document, main: Document, other: Document | None, against: Document | None, best: str
) -> tuple[str, ...]:
    runs = row["runs"]
    return (
        row["label"],
        units.time(main["median_s"]),
        units.interval(main["low_s"], main["high_s"], main["median_s"]),
        *(units.time(main[key]) for key in ("p10_s", "p90_s", "p99_s")),
        units.digits(against["ratio"]) if against else "1" if row["label"] == best else "-",
        bounds(against) if against else "",
        outcome(against) if against else "",
        units.time(other["median_s"]) if other else "-",
        units.time(runs["load_s"]),
        units.time(runs["first_call_s"]),
        units.mebibytes(row["peak_rss_bytes"]),
        units.small((row["difference"] or {}).get("absolute")),
        f"{main['n']} in {main['processes']}",
    )


def _configurations(
    rows: Sequence[tuple[str, ...]], measured: Sequence[tuple[str, Document]], chosen: str, clock: str, best: str
) -> tuple[Chart | Table, ...]:
    """The chart and the table of configurations that were measured; none where there are none."""
    if not rows:
        return ()
    main, other = ("CPU", "wall") if clock == "cpu" else ("wall", "CPU")
    numbers = (f"median {main}", "95 % interval", "p10", "p90", "p99", f"ratio to the {best}", "95 % interval")
    more = (other, "load", "first call", "peak memory", "largest error", "samples")
    columns = (
        Column(title="configuration", number=False),
        *(Column(title=title) for title in numbers),
        Column(title="verdict", number=False),
        *(Column(title=title) for title in more),
    )
    marked = frozenset(k for k, row in enumerate(rows) if row[0] == chosen)
    listed = Table(title="Configurations", columns=columns, rows=tuple(rows), chosen=marked, note=_ABOUT)
    return times_chart(measured, chosen, clock), listed


def _profiled(document: Document) -> View:
    clock = document["clock"]
    main, other = ("cpu", "wall") if clock == "cpu" else ("wall", "cpu")
    columns = sorted(document["columns"], key=lambda c: (c["against_fastest"] is not None, c["level_s"]))
    alive = [c for c in columns if c[main]]
    rows = [_configuration(c, c[main], c[other], c["against_fastest"], document["fastest"]) for c in alive]
    parts = _configurations(rows, [(c["label"], c[main]) for c in alive], document["fastest"], clock, "fastest")
    return View(
        title=f"Profile of {Path(document['model']['path']).name}",
        answer=profile_headline(columns, clock),
        subject=f"{conditions_line(document)} {model_line(document)}",
        warnings=_warnings(document),
        sections=(Section(id="configurations", title="Configurations", parts=parts), *sustained(document)),
        after=(*measured_sections(columns, clock), *_environment(document)),
        facts=_facts(document),
    )


def _predicted(document: Document) -> list[Section]:
    """Predicted against measured, of the contenders that a time was predicted of."""
    rows = [c for c in document["contenders"] if c["predicted_s"] and c["level_s"]]
    if not rows:
        return []
    main = "cpu" if document["clock"] == "cpu" else "measured"
    chosen = document["decision"]["chosen"]
    marks = {
        is_chosen: [
            Mark(
                x=timed(c["predicted_s"]),
                y=_level(c, main),
                label=str(k),
                tip=f"{c['label']}: predicted {units.time(c['predicted_s'])}, took {units.time(c['level_s'])}",
            )
            for k, c in enumerate(rows, 1)
            if (c["label"] == chosen) == is_chosen
        ]
        for is_chosen in (False, True)
    }
    chart = Chart(
        title="Predicted against measured: on the line they are equal",
        x=Axis(title="predicted, ms"),
        y=Axis(title="measured, ms"),
        groups=(Group(marks=marks[False]), Group(name="the choice", marks=marks[True], look=CHOSEN)),
        equal=True,
    )
    side = table(
        "Predicted and measured",
        ("configuration", "point", "predicted", "measured", "prediction off by"),
        (
            (
                c["label"],
                str(k + 1),
                units.time(c["predicted_s"]),
                units.time(c["level_s"]),
                units.percent(c["prediction_error"]),
            )
            for k, c in enumerate(rows)
        ),
        note="Measured is the level that decides: by wall time that of the fastest 20 % of the calls.",
    )
    return [Section(id="predicted", title="Predicted against measured", parts=(chart, side))]


def _level(row: Document, main: str) -> Value:
    """The deciding level with the interval of the median by the same clock, moved there."""
    found, level = row[main], row["level_s"]
    shift = level - found["median_s"] if found else 0.0
    ends = [None if not found or found[key] is None else found[key] + shift for key in ("low_s", "high_s")]
    return timed(level, *ends)


def _environment(document: Document) -> tuple[Section, ...]:
    rows = []
    for found in document["environments"]:
        before, after = found["before"], found["after"]
        rows.append(
            (
                "-" if found["process"] is None else str(found["process"]),
                ", ".join(found["labels"]) or "-",
                units.duration(found["seconds"]),
                _from_to(before["load_average_1m"], after["load_average_1m"], "{:.2f}"),
                units.share(found["others_share"]),
                units.share(found["steal_share"]),
                _from_to(_mean_mhz(before), _mean_mhz(after), "{:.0f} MHz"),
                _from_to(_hottest(before), _hottest(after), "{:.0f} C"),
            )
        )
    if not rows:
        return ()
    titles = ("configurations", "took", "load average", "others' share", "stolen", "frequency", "temperature")
    listed = Table(
        title="The device before and after each session",
        columns=(Column(title="process"), *(Column(title=t, number=t != "configurations") for t in titles)),
        rows=tuple(rows),
        note="Frequencies are means of the cores, temperatures those of the hottest zone; - is what the device does "
        "not report.",
    )
    return (Section(id="environment", title="The device meanwhile", parts=(listed,)),)


def _from_to(before: float | None, after: float | None, form: str) -> str:
    told = [form.format(one) for one in (before, after) if finite(one) is not None]
    return " to ".join(dict.fromkeys(told)) or "-"


def _mean_mhz(found: Document) -> float | None:
    known = [one for one in found["frequencies_khz"] or () if one]
    return sum(known) / len(known) / 1000 if known else None


def _hottest(found: Document) -> float | None:
    return max((found["temperatures_c"] or {}).values(), default=None)


def _front(document: Document) -> View:
    objectives = document["objectives"]
    points = [p for p in document["points"] if p["estimates"] is not None]
    numbered = [p for p in points if p["number"] is not None]
    ordered = [*numbered, *(p for p in points if p["number"] is None)]
    heads = [Column(title="choice", number=False), Column(title="point", number=False)]
    for objective in objectives:
        heads += [Column(title=objective["name"].replace("-", " ")), Column(title="95 % interval")]
    heads.append(Column(title="dominance", number=False))
    rows = []
    for p in ordered:
        cells = [p["label"], "-" if p["number"] is None else str(p["number"])]
        for objective, found in zip(objectives, p["estimates"], strict=True):
            cells += [estimate_value(found["value"], objective), estimate_interval(found, objective)]
        beaten = [_called(document, k) for k in p["beats"]]
        told = dominance(document, p) or ("on the front" if p["number"] is not None else "")
        rows.append((*cells, told + (f"; dominates {', '.join(beaten)}" if beaten else "")))
    chosen = frozenset(
        k for k, p in enumerate(ordered) if p["number"] is not None and p["number"] == document["chosen"]
    )
    listed = Table(
        title="Points",
        columns=tuple(heads),
        rows=tuple(rows),
        chosen=chosen,
        note="dominated by N: N is surely better by more than 1 % in an objective, and surely worse in none.",
    )
    space, search = document["space"], document["search"]
    failed = f", of which {search['failed']} failed" if search["failed"] else ""
    lines = [
        f"{space['size']} assignments; {search['name']} evaluated {search['evaluations']}{failed}.",
        *(f"{one['label']} failed: {one['reason']}" for one in document["failures"]),
    ]
    subject = conditions_line(document) if document["model"] else f"From {Path(document['source'] or '').name}."
    name = Path((document["model"] or {}).get("path") or document["source"] or "").name
    return View(
        title=f"Front of {name}",
        answer=pareto_headline(dict(document)),
        subject=subject,
        warnings=_warnings(document),
        sections=(Section(id="front", title="The front", parts=(*front_charts(document), listed), lines=tuple(lines)),),
        after=(*measured_sections(ordered, document["clock"]), *_environment(document)),
        facts=_facts(document),
    )


def _called(document: Document, index: int) -> str:
    point = document["points"][index]
    return point["label"] if point["number"] is None else str(point["number"])


def comparison(document: CompareDocument) -> Section:
    """The section of a comparison: per later run what cannot be compared, the verdicts, and what changed first."""
    parts: list[Table] = []
    lines: list[str] = []
    sides = document.sides
    for pair in document.pairs:
        after = sides[pair.side]
        lines += [f"Not compared with {after.name}: {told}." for told in pair.unlike]
        named = f"{after.name} (run {after.campaign[:8]}) after {sides[0].name} ({sides[0].campaign[:8]})"
        if pair.configurations:
            sure = units.share(1 - document.alpha)
            parts.append(
                _verdicts(
                    f"{named}, {units.CLOCKS[pair.clock]}", "configuration", pair.configurations, f"{sure} interval"
                )
            )
        lines += [f"{told} {advice}" for told, advice in doubts(pair.configurations)]
        for part in pair.operators:
            if part.changed:
                told = f"{part.label}: kernels that changed, the first first ({len(part.changed)} of"
                parts.append(_verdicts(f"{told} {part.compared})", "kernel", part.changed, "interval"))
        for when, labels in (("before", pair.only_before), ("after", pair.only_after)):
            if labels:
                lines.append(f"Measured only {when}: {', '.join(labels)}.")
    return Section(id="comparison", title="What changed", parts=tuple(parts), lines=tuple(dict.fromkeys(lines)))


def _verdicts(title: str, what: str, rows: Sequence[VerdictPart], interval: str) -> Table:
    return table(
        title,
        (what, "before", "after", "ratio", interval, "verdict"),
        (
            (
                row.label,
                units.time(row.before_s),
                units.time(row.after_s),
                units.digits(row.ratio),
                ratio_interval(row.low, row.high),
                verdict_words(row),
            )
            for row in rows
        ),
        words=(0, 5),
    )


def _compared(document: Document) -> View:
    found: CompareDocument = read_document(document)
    return View(
        title="Runs compared",
        answer=found.headline()[1],
        subject=", ".join(side.name for side in found.sides),
        warnings=(),
        sections=(comparison(found),),
    )


def _told(document: Document, report: Callable[..., None]) -> View:
    """A document whose report is known: the report, between a picture of it and all rows of its lists."""
    answer, lead, warnings, told = recorded(document, report)
    drawn = pictures(document)
    proof = document.get("proof")
    proved = view(proof) if proof else None
    return View(
        title=_title(document),
        answer=answer,
        subject="" if proved is None else proved.subject,
        warnings=(*warnings, *(() if proved is None else proved.warnings)),
        sections=(*drawn, *(() if proved is None else proved.sections), *told),
        after=() if proved is None else proved.after,
        lead=lead,
        facts=_plain_facts(document),
    )


def _others(document: Document) -> View:
    """A document of any format: its plain values, and its lists as tables."""
    sections: list[Section] = []
    for name, rows in tables_of(document).items():
        names = dict.fromkeys(key for row in rows[:MOST_ROWS] for key in row)
        plain = [n for n in names if not any(isinstance(row.get(n), list | dict) for row in rows[:MOST_ROWS])]
        shown = plain[:_MOST_COLUMNS]
        if not shown or name in ("doubts", "missing"):
            continue
        words = [k for k, n in enumerate(shown) if any(isinstance(row.get(n), str) for row in rows[:MOST_ROWS])]
        title = name.replace("_", " ")
        part = table(
            title,
            (n.replace("_", " ") for n in shown),
            (tuple(plain_cell(row.get(n)) for n in shown) for row in rows),
            words=words,
        )
        sections.append(Section(id=f"table-{len(sections)}", title=title.capitalize(), parts=(part,)))
    return View(
        title=_title(document),
        answer="",
        subject="",
        warnings=_warnings(document),
        sections=tuple(sections),
        facts=_plain_facts(document),
    )


def _title(document: Document) -> str:
    kind = str(document.get("format", "found")).removeprefix("gnomon-").replace("-", " ").capitalize()
    of = next((document[key] for key in _SUBJECTS if document.get(key)), "")
    if isinstance(of, Mapping):
        of = of.get("path") or of.get("name") or ""
    name = Path(str(of)).name
    return f"{kind} of {name}" if name else kind


_SUBJECTS = ("model", "nnpackage", "profile", "table", "space", "suite", "source")
"""What a document is of, by the first of these that it has."""


def _plain_facts(document: Document) -> tuple[tuple[str, str], ...]:
    return tuple(
        (key.replace("_", " "), plain_cell(value))
        for key, value in document.items()
        if isinstance(value, str | int | float) and key not in ("format", "version")
    )


_VIEWS: Mapping[str, Callable[[Document], View]] = {
    "gnomon-place": _placed,
    "gnomon-profile": _profiled,
    "gnomon-pareto": _front,
    "gnomon-compare": _compared,
}

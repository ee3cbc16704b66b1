"""What a page shows of a document before any script runs: sentences, tables and small charts, by its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.jobs.compare.report import headline as compare_headline
from gnomon.jobs.compare.report import interval as ratio_interval
from gnomon.jobs.compare.report import verdict_words
from gnomon.jobs.pareto.report import headline as pareto_headline
from gnomon.jobs.pareto.report import interval as estimate_interval
from gnomon.jobs.pareto.report import note as dominance
from gnomon.jobs.pareto.report import value as estimate_value
from gnomon.jobs.place.report import profile_headline
from gnomon.report import units
from gnomon.report.charts import Axis, Drawn, Value, axis
from gnomon.report.frame import tables_of
from gnomon.report.parts import CLOCKS, bounds, failure_text, model_line

Document = Mapping[str, Any]

_WIDTH = 940
_ROW = 26
_MOST_ROWS = 500
_MOST_COLUMNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; numbers are aligned to the right."""

    title: str
    number: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under headings: the first cell of each names it. `chosen` are the rows that stand out."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    chosen: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of a chart: what it is called, where it is, and what it is told apart by.

    `name` is what stands at the end of its row, `left` says that there is room for the label only left of it.
    """

    label: str
    told: str
    x: Drawn
    y: Drawn
    kind: str
    name: str = ""
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Points with intervals over axes; in one of `rows` each has a row of its own, in place of a second axis."""

    title: str
    width: int
    height: int
    x: Axis
    x_title: str
    marks: tuple[Mark, ...]
    y: Axis | None = None
    y_title: str = ""
    line: tuple[float, float, float, float] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page: its anchor and heading, and what is in it, in order."""

    id: str
    title: str
    parts: tuple[Chart | Table, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """What speaks against the figures, and the next step."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown of one document; `after` stands below what the script draws of it."""

    title: str
    answer: str
    subject: str
    warnings: tuple[Warned, ...]
    sections: tuple[Section, ...]
    after: tuple[Section, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def view(document: Document) -> View:
    """What is shown of a document: of a format that has no view of its own, its lists as tables."""
    made = _VIEWS.get(document.get("format", ""), _others)
    return made(document)


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
        told.append("The package was run from its own files: every operator ran where planned.")
    sections = [Section(id="configurations", title="Configurations", parts=parts, lines=(*told, *refused))]
    return View(
        title=f"Placement of {Path(document['model']['path']).name}",
        answer=decision["reason"],
        subject=model_line(dict(document)),
        warnings=_warnings(document),
        sections=(*sections, *_predicted(document)),
        after=_environment(document),
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
        bounds(dict(against)) if against else "",
        against["verdict"] if against else "",
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
    table = Table(title="Configurations", columns=columns, rows=tuple(rows), chosen=marked, note=_ABOUT)
    return _intervals(measured, chosen, clock), table


def _intervals(rows: Sequence[tuple[str, Document]], chosen: str, clock: str) -> Chart:
    values = [Value(value=s["median_s"] * 1e3, low=_ms(s["low_s"]), high=_ms(s["high_s"])) for _, s in rows]
    height = 44 + _ROW * len(rows)
    scale = axis(values, 290, _WIDTH - 110)
    marks = []
    for k, ((label, found), at) in enumerate(zip(rows, values, strict=True)):
        middle = 18.0 + _ROW * k
        told = units.interval(found["low_s"], found["high_s"], found["median_s"])
        marks.append(
            Mark(
                label=label,
                name=units.time(found["median_s"]),
                told=f"{label}: {units.time(found['median_s'])} {told}, p10 {units.time(found['p10_s'])}, "
                f"p90 {units.time(found['p90_s'])}",
                x=scale.drawn(at),
                y=Drawn(at=middle, low=middle, high=middle),
                kind="chosen" if label == chosen else "other",
            )
        )
    shown = " (logarithmic)" if scale.logarithmic else ""
    return Chart(
        title="Median time of one inference, with its 95 % interval",
        width=_WIDTH,
        height=height,
        x=scale,
        x_title=f"{CLOCKS[clock]}, ms{shown}",
        marks=tuple(marks),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


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
        subject=model_line(dict(document)),
        warnings=_warnings(document),
        sections=(Section(id="configurations", title="Configurations", parts=parts),),
        after=_environment(document),
        facts=_facts(document),
    )


def _predicted(document: Document) -> list[Section]:
    """Predicted against measured, of the contenders that a time was predicted of."""
    rows = [c for c in document["contenders"] if c["predicted_s"] and c["level_s"]]
    if not rows:
        return []
    main = "cpu" if document["clock"] == "cpu" else "measured"
    values = [Value(value=c["predicted_s"] * 1e3) for c in rows]
    took = [_level(c, main) for c in rows]
    both = [*values, *took]
    x, y = axis(both, 80, 520), axis(both, 330, 20)
    marks = tuple(
        Mark(
            label=str(k + 1),
            told=f"{c['label']}: predicted {units.time(c['predicted_s'])}, took {units.time(c['level_s'])}",
            x=x.drawn(a),
            y=y.drawn(b),
            kind="chosen" if c["label"] == document["decision"]["chosen"] else "other",
        )
        for k, (c, a, b) in enumerate(zip(rows, values, took, strict=True))
    )
    chart = Chart(
        title="Predicted against measured: on the line they are equal",
        width=640,
        height=380,
        x=x,
        x_title="predicted, ms",
        y=y,
        y_title="measured, ms",
        marks=_apart(marks),
        line=(80, 330, 520, 20),
    )
    table = Table(
        title="Predicted and measured",
        columns=(
            Column(title="configuration", number=False),
            *(Column(title=title) for title in ("point", "predicted", "measured", "prediction off by")),
        ),
        rows=tuple(
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
    return [Section(id="predicted", title="Predicted against measured", parts=(chart, table))]


def _apart(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks, with labels to the left where another mark stands close to the right."""

    def crowded(one: Mark) -> bool:
        return any(
            other is not one and 0 <= other.x.at - one.x.at < 20 and abs(other.y.at - one.y.at) < 16 for other in marks
        )

    return tuple(replace(mark, left=crowded(mark)) for mark in marks)


def _level(row: Document, main: str) -> Value:
    """The deciding level with the interval of the median by the same clock, moved there."""
    found, level = row[main], row["level_s"]
    shift = level - found["median_s"] if found else 0.0
    ends = [None if not found or found[key] is None else (found[key] + shift) * 1e3 for key in ("low_s", "high_s")]
    return Value(value=level * 1e3, low=ends[0], high=ends[1])


def _environment(document: Document) -> tuple[Section, ...]:
    rows = []
    for found in document["environments"]:
        before, after = found["before"], found["after"]
        rows.append(
            (
                "-" if found["process"] is None else str(found["process"]),
                ", ".join(found["labels"]) or "-",
                "-" if found["seconds"] is None else units.duration(found["seconds"]),
                _from_to(before["load_average_1m"], after["load_average_1m"], "{:.2f}"),
                "-" if found["others_share"] is None else units.share(found["others_share"]),
                "-" if found["steal_share"] is None else units.share(found["steal_share"]),
                _from_to(_mean_mhz(before), _mean_mhz(after), "{:.0f} MHz"),
                _from_to(_hottest(before), _hottest(after), "{:.0f} C"),
            )
        )
    if not rows:
        return ()
    titles = ("configurations", "took", "load average", "others' share", "stolen", "frequency", "temperature")
    table = Table(
        title="The device before and after each session",
        columns=(Column(title="process"), *(Column(title=t, number=t != "configurations") for t in titles)),
        rows=tuple(rows),
        note="Frequencies are means of the cores, temperatures those of the hottest zone; - is what is not told.",
    )
    return (Section(id="environment", title="The device meanwhile", parts=(table,)),)


def _from_to(before: float | None, after: float | None, form: str) -> str:
    told = [form.format(one) for one in (before, after) if one is not None]
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
    table = Table(
        title="Points",
        columns=tuple(heads),
        rows=tuple(rows),
        chosen=chosen,
        note="dominated by N: N is surely better by more than 1 % in an objective, and surely worse in none.",
    )
    parts: list[Chart | Table] = [_scatter(document, ordered)] if len(objectives) > 1 and ordered else []
    space, search = document["space"], document["search"]
    failed = f", of which {search['failed']} failed" if search["failed"] else ""
    lines = [
        f"{space['size']} assignments; {search['name']} evaluated {search['evaluations']}{failed}.",
        *(f"{one['label']} failed: {one['reason']}" for one in document["failures"]),
    ]
    subject = model_line(dict(document)) if document["model"] else f"From {Path(document['source'] or '').name}."
    name = Path((document["model"] or {}).get("path") or document["source"] or "").name
    return View(
        title=f"Front of {name}",
        answer=pareto_headline(dict(document)),
        subject=subject,
        warnings=_warnings(document),
        sections=(Section(id="front", title="The front", parts=(*parts, table), lines=tuple(lines)),),
        after=_environment(document),
        facts=_facts(document),
    )


def _called(document: Document, index: int) -> str:
    point = document["points"][index]
    return point["label"] if point["number"] is None else str(point["number"])


_SCALES: Mapping[str, tuple[float, str]] = {"s": (1e3, "ms"), "B": (2.0**-20, "MiB"), "J": (1e3, "mJ")}


def _scatter(document: Document, points: Sequence[Document]) -> Chart:
    first, second = document["objectives"][:2]
    values = [[_scaled(p["estimates"][k], o["unit"]) for p in points] for k, o in enumerate((first, second))]
    x, y = axis(values[0], 90, _WIDTH - 40), axis(values[1], 350, 20)
    marks = [
        Mark(
            label="" if p["number"] is None else str(p["number"]),
            told=f"{p['label']}: {estimate_value(p['estimates'][0]['value'], first)}, "
            f"{estimate_value(p['estimates'][1]['value'], second)}"
            f"{f'; {told}' if (told := dominance(document, p)) else ''}",
            x=x.drawn(a),
            y=y.drawn(b),
            kind="behind" if p["number"] is None else "chosen" if p["number"] == document["chosen"] else "other",
        )
        for p, a, b in zip(points, *values, strict=True)
    ]
    titles = [
        f"{o['name'].replace('-', ' ')}, {_SCALES.get(o['unit'], (1.0, o['unit'] or 'relative'))[1]}"
        f"{' (logarithmic)' if scale.logarithmic else ''}"
        for o, scale in ((first, x), (second, y))
    ]
    return Chart(
        title=f"{titles[0]} and {titles[1]}: lower and further left is better",
        width=_WIDTH,
        height=400,
        x=x,
        x_title=titles[0],
        y=y,
        y_title=titles[1],
        marks=_apart(marks),
        note="Filled circles are on the front, with the number of the table; hollow squares are dominated.",
    )


def _scaled(found: Document, unit: str) -> Value:
    factor = _SCALES.get(unit, (1.0, ""))[0]
    low, high = (None if found[key] is None else found[key] * factor for key in ("low", "high"))
    return Value(value=found["value"] * factor, low=low, high=high)


def comparison(document: Document) -> Section:
    """The section of a comparison: per later run what cannot be compared, the verdicts, and what changed first."""
    parts: list[Table] = []
    lines: list[str] = []
    sides = document["sides"]
    for pair in document["pairs"]:
        after = sides[pair["side"]]
        lines += [f"Not compared with {after['name']}: {told}." for told in pair["unlike"]]
        named = f"{after['name']} (run {after['campaign'][:8]}) after {sides[0]['name']} ({sides[0]['campaign'][:8]})"
        if pair["configurations"]:
            sure = units.share(1 - document["alpha"])
            parts.append(
                _verdicts(
                    f"{named}, {CLOCKS[pair['clock']]}", "configuration", pair["configurations"], f"{sure} interval"
                )
            )
        for part in pair["operators"]:
            if part["changed"]:
                told = f"{part['label']}: kernels that changed, the first first ({len(part['changed'])} of"
                parts.append(_verdicts(f"{told} {part['compared']})", "kernel", part["changed"], "interval"))
        for when, labels in (("before", pair["only_before"]), ("after", pair["only_after"])):
            if labels:
                lines.append(f"Measured only {when}: {', '.join(labels)}.")
    return Section(id="comparison", title="What changed", parts=tuple(parts), lines=tuple(dict.fromkeys(lines)))


def _verdicts(title: str, what: str, rows: Sequence[Document], interval: str) -> Table:
    return Table(
        title=title,
        columns=(
            Column(title=what, number=False),
            *(Column(title=t) for t in ("before", "after", "ratio", interval)),
            Column(title="verdict", number=False),
        ),
        rows=tuple(
            (
                row["label"],
                units.time(row["before_s"]),
                units.time(row["after_s"]),
                units.digits(row["ratio"]),
                ratio_interval(row),
                verdict_words(row),
            )
            for row in rows[:_MOST_ROWS]
        ),
    )


def _compared(document: Document) -> View:
    return View(
        title="Runs compared",
        answer=compare_headline(document),
        subject=", ".join(side["name"] for side in document["sides"]),
        warnings=(),
        sections=(comparison(document),),
    )


def _others(document: Document) -> View:
    """A document of any format: its plain values, and its lists as tables."""
    sections: list[Section] = []
    for name, rows in tables_of(document).items():
        names = dict.fromkeys(key for row in rows[:_MOST_ROWS] for key in row)
        plain = [n for n in names if not any(isinstance(row.get(n), list | dict) for row in rows[:_MOST_ROWS])]
        shown = plain[:_MOST_COLUMNS]
        if not shown or name in ("doubts", "missing"):
            continue
        numeric = {n: all(isinstance(row.get(n), int | float | None) for row in rows[:_MOST_ROWS]) for n in shown}
        left = len(rows) - _MOST_ROWS
        table = Table(
            title=name.replace("_", " "),
            columns=tuple(Column(title=n.replace("_", " "), number=numeric[n]) for n in shown),
            rows=tuple(tuple(_cell(row.get(n)) for n in shown) for row in rows[:_MOST_ROWS]),
            note=f"and {left} more, which the embedded document has" if left > 0 else "",
        )
        sections.append(Section(id=f"table-{len(sections)}", title=name.replace("_", " ").capitalize(), parts=(table,)))
    facts = tuple(
        (key.replace("_", " "), _cell(value))
        for key, value in document.items()
        if isinstance(value, str | int | float) and key not in ("format", "version")
    )
    kind = str(document.get("format", "found")).removeprefix("gnomon-")
    return View(
        title=kind.capitalize(),
        answer="",
        subject="",
        warnings=_warnings(document),
        sections=tuple(sections),
        facts=facts,
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_VIEWS: Mapping[str, Callable[[Document], View]] = {
    "gnomon-place": _placed,
    "gnomon-profile": _profiled,
    "gnomon-pareto": _front,
    "gnomon-compare": _compared,
}

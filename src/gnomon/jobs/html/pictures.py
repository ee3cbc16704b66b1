"""What a page draws of the documents of each job, beside its report: charts, and tables with every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gnomon.jobs.documents import read_document
from gnomon.jobs.estimator.picture import evaluation_charts
from gnomon.jobs.html.blocks import Part, Section, Table, table
from gnomon.jobs.overlay.document import AnalyzeDocument
from gnomon.jobs.overlay.picture import overlay_charts
from gnomon.jobs.pareto.picture import front_charts
from gnomon.jobs.place.document import ColumnPart, ContenderPart, PlaceDocument, ProfileDocument, SustainedPart
from gnomon.jobs.place.picture import times_charts
from gnomon.jobs.space.document import MeasuredNetwork, SpaceDocument, SpaceFrontDocument
from gnomon.jobs.space.picture import choice_charts, networks_charts, space_front_charts
from gnomon.jobs.space.report import RANKED, ranked_rows, share_words
from gnomon.jobs.stab.document import StabDocument
from gnomon.jobs.tune.document import ExecDocument, TuneDocument
from gnomon.jobs.tune.report import MOST_LAYERS, Times, largest_first, tuned_layers
from gnomon.report import units
from gnomon.report.chart import (
    BEHIND,
    CHOSEN,
    LOOKS,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Row,
    Value,
    finite,
    in_rows,
    line,
    shares,
    time_words,
    timed,
)
from gnomon.report.page import Column
from gnomon.report.parts import percent

Document = Mapping[str, Any]
Parts = Iterable[tuple[str, Sequence[Part]]]
"""Titles of sections, and what is in each; one that is empty is left out."""

_MOST_RANKINGS = 24
"""Rankings that are shown: the first."""
_SHORT_S = 120.0
"""A run that is shorter is drawn over seconds."""


def pictures(*documents: Document) -> tuple[Section, ...]:
    """The sections that stand before the report of documents; none of one that is told by its report alone."""
    drawn = [
        (title, tuple(parts))
        for document in documents
        if (drawing := _PICTURES.get(document["format"])) is not None
        for title, parts in drawing(document)
        if parts
    ]
    return tuple(Section(id=f"drawn-{k}", title=title, parts=parts) for k, (title, parts) in enumerate(drawn))


def _place(document: Document) -> Parts:
    found: PlaceDocument = read_document(document)
    clock, chosen = found.clock, found.decision.chosen
    yield "Configurations", _configurations(found.contenders, clock, chosen)
    rows = [c for c in found.contenders if c.predicted_s and c.level_s]
    marks = {
        is_chosen: [
            Mark(
                x=timed(c.predicted_s),
                y=_level(c, clock),
                label=str(k),
                tip=f"{c.label}: predicted {units.time(c.predicted_s)}, took {units.time(c.level_s)}",
            )
            for k, c in enumerate(rows, 1)
            if (c.label == chosen) == is_chosen
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
    columns: Columns = {
        "configuration": lambda c: c.label,
        "predicted": lambda c: units.time(c.predicted_s),
        "measured": lambda c: units.time(c.level_s),
        "prediction off by": lambda c: units.percent(c.prediction_error),
    }
    note = "Measured is the level that decides: by wall time that of the fastest 20 % of the calls."
    every = _every("Predicted and measured", rows, columns, words=(1,), note=note, number="point")
    yield "Predicted against measured", [chart, *every] if rows else []


def _level(contender: ContenderPart, clock: str) -> Value:
    """The deciding level with the interval of the median by the same clock, moved there."""
    summary, level_s = contender.summary(clock), contender.level_s
    if summary is None or level_s is None:
        return timed(level_s)
    shift_s = level_s - summary.median_s
    ends = (None if end is None else end + shift_s for end in (summary.low_s, summary.high_s))
    return timed(level_s, *ends)


def _profile(document: Document) -> Parts:
    found: ProfileDocument = read_document(document)
    yield "Configurations", _configurations(found.columns, found.clock, found.fastest)
    yield "Called for long", [part for one in found.sustained for part in sustained(one)]


def _configurations(rows: Sequence[ContenderPart | ColumnPart], clock: str, chosen: str) -> Sequence[Part]:
    """The chart of configurations that ran, and what their reports leave out."""
    ran = [(row, summary) for row in rows if (summary := row.summary(clock))]
    columns: Columns = {
        "configuration": lambda pair: pair[0].label,
        **{name: _quantile(name) for name in ("p10", "p90", "p99")},
        "load": lambda pair: units.time(pair[0].runs.load_s),
        "first call": lambda pair: units.time(pair[0].runs.first_call_s),
        "samples": lambda pair: f"{pair[1].n} in {pair[1].processes}",
    }
    marked = frozenset(k for k, (row, _) in enumerate(ran) if row.label == chosen)
    note = "Samples are calls without profiler, in fresh processes; intervals are of the processes."
    title = f"Every configuration by {units.CLOCKS[clock]}"
    return [*times_charts(rows, chosen, clock), *_every(title, ran, columns, note=note, chosen=marked)]


def _quantile(name: str) -> Callable[[Any], str]:
    return lambda pair: units.time(getattr(pair[1], f"{name}_s"))


def _pareto(document: Document) -> Parts:
    yield "The front", front_charts(read_document(document))


def sustained(part: SustainedPart) -> Iterator[Chart]:
    """How a long run went on: the time of a call from block to block, and the device beside it."""
    blocks = part.blocks
    if len(blocks.at_s) < 2:
        return
    unit_s, across = (60.0, "minutes of calling") if blocks.at_s[-1] >= _SHORT_S else (1.0, "seconds of calling")
    at = [seconds / unit_s for seconds in blocks.at_s]
    changes = [
        Mark(
            x=Value(value=change.since_s / unit_s),
            y=timed(change.after_s),
            label="slower" if change.ratio > 1 else "faster",
            tip=f"after {units.duration(change.since_s)}: {units.time(change.before_s)}, "
            f"then {units.time(change.after_s)}",
        )
        for change in part.changes
    ]
    quantiles = ((blocks.p99_us, "99th percentile", LOOKS[5]), (blocks.p50_us, "median", LOOKS[0]))
    yield Chart(
        title=f"{part.label}: {part.calls} calls in {units.duration(part.ran_s)}",
        x=Axis(title=across, linear=True),
        y=Axis(title="time of a call, ms"),
        groups=(
            *(_over(at, times_us, 1e-3, name, look) for times_us, name, look in quantiles),
            Group(name="a change", marks=changes, look=CHOSEN),
        ),
        height=220,
    )
    around: tuple[tuple[Sequence[float | None], str, float], ...] = (
        (blocks.frequency_khz, "mean frequency, MHz", 1e-3),
        (blocks.temperature_c, "hottest zone, degrees Celsius", 1.0),
        (blocks.others_share, "others' share of the processors, %", 100.0),
    )
    for values, title, factor in around:
        if sum(value is not None for value in values) > 1:
            x, y = Axis(title=across, linear=True), Axis(title=title.rpartition(", ")[2])
            yield Chart(title=title, x=x, y=y, groups=(_over(at, values, factor),), height=120)


def _over(
    at: Sequence[float], values: Sequence[float | None], factor: float, name: str = "", look: Look = LOOKS[0]
) -> Group:
    """A line through values at moments."""
    places = line((a, None if value is None else value * factor) for a, value in zip(at, values, strict=True))
    return Group(name=name, marks=places, look=look, kind="none", line="straight")


def _stab(document: Document) -> Parts:
    found: StabDocument = read_document(document)
    sums = [(f"{backend} alone", us, LOOKS[0]) for backend, us in found.singles.items()]
    sums += [("as ONE's stab decides", found.published.predicted_us, LOOKS[0])]
    sums += [("exact", found.exact.predicted_us, CHOSEN)]
    yield (
        "Predictions",
        _rows(
            "Sums of the operators' average times in the traces",
            "ms",
            [_row(name, us * 1e-6, look=look) for name, us, look in sums if us is not None],
        ),
    )


def _table(document: Document) -> Parts:
    rows = document["units"]
    yield (
        "Units",
        [
            *_times(
                "A call of each unit, with its 95 % interval", [(row["label"], row, LOOKS[0]) for row in rows], "call_s"
            ),
            *_every(
                "Every unit",
                rows,
                {
                    "unit": lambda row: row["label"],
                    "net": lambda row: units.time(row["time_s"]),
                    "gross": lambda row: units.time(row["call_s"]),
                    "95 % interval": lambda row: _interval(row, "call_s"),
                    "known within": lambda row: percent(row["relative_half_width"]),
                    "processes": lambda row: str(row["processes"]),
                    "status": lambda row: "" if row["status"] == "ok" else row["status"],
                    "reason": lambda row: row["reason"],
                },
                words=(0, 6, 7),
                note="Net is without what a call of nothing takes.",
            ),
        ],
    )


def _difference(document: Document) -> Parts:
    rows = document["units"]
    marks = {
        apart: [
            Mark(
                x=timed(row["times_s"][0]),
                y=timed(row["times_s"][1]),
                tip=f"{row['label']}: {units.time(row['times_s'][0])}, then {units.time(row['times_s'][1])}",
            )
            for row in rows
            if bool(row["apart"]) == apart
        ]
        for apart in (False, True)
    }
    chart = Chart(
        title="Each unit in both tables: on the line they are equal",
        x=Axis(title="first, ms"),
        y=Axis(title="second, ms"),
        groups=(
            Group(name="within noise", marks=marks[False], look=BEHIND),
            Group(name="apart by more than noise", marks=marks[True], look=LOOKS[1]),
        ),
        equal=True,
    )
    columns: Columns = {
        "unit": lambda row: row["label"],
        "first": lambda row: units.time(row["times_s"][0]),
        "second": lambda row: units.time(row["times_s"][1]),
        "ratio": lambda row: units.digits(row["ratio"]),
        "verdict": lambda row: "" if row["apart"] else "within noise",
    }
    yield "Both tables", [chart, *_every("Every unit", rows, columns, words=(0, 4))] if rows else []


def _evaluation(document: Document) -> Parts:
    found = document["evaluation"]
    if found is None:
        return
    nets = [net for net in found["nets"] if net["measured_s"] and net["mean_s"]]
    columns: Columns = {
        "measured": lambda net: units.time(net["measured_s"]),
        "predicted": lambda net: units.time(net["mean_s"]),
        f"{units.share(found['scores']['nominal'])} interval": lambda net: _interval(net, "mean_s"),
        "off by": lambda net: units.percent(net["mean_s"] / net["measured_s"] - 1),
    }
    yield "Evaluation", [*evaluation_charts(found), *_every("Every net", nets, columns, words=(), number="net")]


def _nets(document: Document) -> Parts:
    rows = [(f"net {k + 1}", net, LOOKS[0]) for k, net in enumerate(document["nets"])]
    yield "Nets", _times("Each net with its interval", rows, "latency_s")


def _parts(document: Document) -> Parts:
    yield (
        "Units",
        _rows("What each unit adds", "ms", [_row(p["unit"], p["time_s"]) for p in document["parts"]], "units"),
    )


def _model(document: Document) -> Parts:
    rows = [
        _row(
            f"{one['label']} ({one['count']})",
            None if one["time_s"] is None else one["count"] * one["time_s"],
            look=LOOKS[0] if one["source"] == "measured" else BEHIND,
        )
        for one in document["units"]
    ]
    yield "Units", _rows("What each unit adds; hollow: never measured", "ms", rows, "units")


def _space(document: Document) -> Parts:
    space: SpaceDocument = read_document(document)
    accuracy = space.accuracy
    for ranking in accuracy.rankings[:_MOST_RANKINGS] if accuracy else ():
        networks = ranking.networks
        title = f"One-change variants of {ranking.family}: accuracy with its 95 % interval"
        rows = [
            Row(
                name=network.id,
                value=shares(network.accuracy, network.low, network.high),
                text=share_words((network.accuracy, network.low, network.high)),
                look=CHOSEN if not place else BEHIND if network.high < networks[0].low else LOOKS[0],
            )
            for place, network in enumerate(networks)
        ]
        legend = {BEHIND: "surely below the first"}
        charts = [in_rows(title, "% of images", rows, legend=legend, noun="networks")] if rows else []
        told = f"Two such rankings would agree with a Kendall's tau of {ranking.repeatability:.2f}."
        heads = [column.title for column in RANKED]
        listed = _listed(title, heads, ranked_rows(space, ranking), words=(1, 2), note=told)
        yield f"Ranking of {ranking.family}", [*charts, *listed]
    right = {network.id: network.accuracy for network in accuracy.trained} if accuracy else {}
    for toolchain in space.latency:
        cells = [
            (one.id, units.time(one.latency_s), _time_interval(one), percent(right.get(one.id)), one.reason)
            for one in toolchain.networks
        ]
        heads = ["network", "latency", "95 % interval", "accuracy", "reason"]
        listed = _listed(f"Every network by {toolchain.toolchain}", heads, cells, words=(0, 4))
        yield f"Networks by {toolchain.toolchain}", [*networks_charts(space, toolchain), *listed]


def _time_interval(network: MeasuredNetwork) -> str:
    if network.latency_s is None or network.low_s is None or network.high_s is None:
        return "-"
    return units.interval(network.low_s, network.high_s, network.latency_s)


def _selection(document: Document) -> Parts:
    yield "The choice", choice_charts(read_document(document))


def _space_front(document: Document) -> Parts:
    front: SpaceFrontDocument = read_document(document)
    heads = ["network", "accuracy", "predicted", "latency", "predicted latency", "on the front by chance of"]
    cells = [
        (
            one.id,
            share_words(one.measured.accuracy if one.measured else None),
            share_words(one.predicted.accuracy),
            time_words(*((one.measured.latency_s if one.measured else None) or (None,))),
            time_words(*one.predicted.latency_s),
            units.share(one.chance),
            ", ".join(one.primitives),
        )
        for one in front.networks
    ]
    best = frozenset(place for place, network in enumerate(front.networks) if network.best)
    listed = _listed("Every network", [*heads, "primitives"], cells, words=(0, 6), chosen=best)
    yield "Networks", [*space_front_charts(front), *listed]


def _listed(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], **settings: Any) -> list[Table]:
    """A table of rows; none of no rows."""
    return [table(title, heads, map(tuple, rows), **settings)] if rows else []


def _tune(document: Document) -> Parts:
    tuned: TuneDocument = read_document(document)
    network = tuned.network
    whole = [("untuned", network.untuned, LOOKS[0]), ("tuned", network.tuned, CHOSEN)]
    yield "The network", _medians("The whole network, with its 95 % interval", whole)
    beside = [
        ("tuned" if row.tuned else row.label, row.time, CHOSEN if row.tuned else LOOKS[0])
        for row in (tuned.beside.columns if tuned.beside else ())
    ]
    yield "Beside other runtimes", _medians("Each runtime, side by side in fresh processes", beside)
    layers = largest_first(tuned.layers)
    best = [(layer.name, layer.best, LOOKS[0]) for layer in layers]
    charts = _medians("The best time of each layer, the largest share of the network first", best)
    # The report has a table of layers too, of as many as a terminal has room for.
    every = [_whole_table("Every layer", tuned_layers(layers))] if len(layers) > MOST_LAYERS else []
    yield "Layers drawn", [*charts, *every]


def _exec(document: Document) -> Parts:
    ran: ExecDocument = read_document(document)
    rows = [(layer.name, layer.time, LOOKS[0]) for layer in ran.layers]
    yield "Layers", _medians("Each layer by itself, with its 95 % interval", rows)


def _overlay(document: Document) -> Parts:
    overlay: AnalyzeDocument = read_document(document)
    losses, network, layers = overlay_charts(overlay)
    yield "Loss by layer and device", losses
    yield "The whole network", network
    yield "Devices and configurations", layers
    if portfolio := overlay.portfolio:
        heads = ["layer", "M", *overlay.devices]
        cells = [
            (one.name, _shown(one.M, "{:.3g}"), *(one.serves.get(device, "-") for device in overlay.devices))
            for one in portfolio.layers
        ]
        title, words = f"The best {portfolio.size} configurations of each layer", (0, *range(2, len(heads)))
        parts = [table(title, heads, cells, words=words)] if cells else []
        yield "Which configuration serves which device", parts


def _medians(title: str, rows: Iterable[tuple[str, Times, Look]]) -> list[Chart]:
    """Medians with intervals in rows, of what has one."""
    known = [_row(name, times.median_s, times.low_s, times.high_s, look) for name, times, look in rows if times]
    return _rows(title, "ms", known)


def _whole_table(title: str, content: tuple[Sequence[str | Column], Sequence[Sequence[str]]]) -> Table:
    """A table of a report with all its rows."""
    heads, rows = content
    titles = [head.title if isinstance(head, Column) else head for head in heads]
    words = [k for k, head in enumerate(heads) if isinstance(head, Column) and not head.number]
    return table(title, titles, map(tuple, rows), words=words)


def _solved_front(document: Document) -> Parts:
    objectives, points = document["objectives"], document["points"]
    if len(objectives) < 2 or not points:
        return
    names = [f"{one['name']}{one['unit'] and ', ' + one['unit']}" for one in objectives]
    marks = [
        Mark(
            x=Value(value=one["cost"][0]),
            y=Value(value=one["cost"][1]),
            tip=", ".join(f"{name} {_shown(cost, '{:g}')}" for name, cost in zip(names, one["cost"], strict=True)),
        )
        for one in points
    ]
    chart = Chart(
        title="Lower and further left is better",
        x=Axis(title=names[0]),
        y=Axis(title=names[1]),
        groups=(Group(marks=marks),),
    )
    columns: Columns = {name: _cost(k) for k, name in enumerate(names)}
    yield "Trade-offs", [chart, *_every("Every trade-off", points, columns, words=(), number="point")]


def _cost(objective: int) -> Callable[[Document], str]:
    return lambda point: _shown(point["cost"][objective], "{:g}")


def _rows(title: str, x_title: str, rows: Sequence[Row], noun: str = "") -> list[Chart]:
    return [in_rows(title, x_title, rows, noun=noun)] if rows else []


def _row(
    name: str, seconds: float | None, low_s: float | None = None, high_s: float | None = None, look: Look = LOOKS[0]
) -> Row:
    return Row(name=name, value=timed(seconds, low_s, high_s), text=time_words(seconds, low_s, high_s), look=look)


def _times(title: str, rows: Iterable[tuple[str, Document | None, Look]], key: str = "median_s") -> list[Chart]:
    """Times with intervals in rows, of what has one: a name, the object with its time, and the look."""
    known = [
        _row(name, one[key], one["low_s"], one["high_s"], look)
        for name, one, look in rows
        if one and one[key] is not None
    ]
    return _rows(title, "ms", known)


Columns = dict[str, Callable[[Any], str]]
"""The cells of each column, by its title."""


def _every(
    title: str,
    rows: Sequence[Any],
    columns: Columns,
    *,
    words: Sequence[int] = (0,),
    note: str = "",
    chosen: frozenset[int] = frozenset(),
    number: str = "",
) -> list[Table]:
    """A table of all rows, which are numbered where `number` says as what; none of no rows."""
    heads = [*([number] if number else []), *columns]
    cells = (
        (*([str(k)] if number else []), *(cell(row) for cell in columns.values())) for k, row in enumerate(rows, 1)
    )
    return [table(title, heads, cells, words=words, note=note, chosen=chosen)] if rows else []


def _interval(row: Document, key: str) -> str:
    if row[key] is None or row["low_s"] is None or row["high_s"] is None:
        return "-"
    return units.interval(row["low_s"], row["high_s"], row[key])


def _shown(value: float | None, form: str) -> str:
    """A number in that form; "-" where it is not known."""
    return "-" if finite(value) is None else form.format(value)


_PICTURES: Mapping[str, Callable[[Document], Parts]] = {
    "gnomon-place": _place,
    "gnomon-profile": _profile,
    "gnomon-pareto": _pareto,
    "gnomon-stab": _stab,
    "gnomon-table": _table,
    "gnomon-table-diff": _difference,
    "gnomon-nets": _nets,
    "gnomon-estimator-fit": _evaluation,
    "gnomon-estimator-evaluation": _evaluation,
    "gnomon-estimator-predictions": _nets,
    "gnomon-estimator-explanation": _parts,
    "gnomon-model-prediction": _model,
    "gnomon-space": _space,
    "gnomon-space-select": _selection,
    "gnomon-space-front": _space_front,
    "gnomon-tune": _tune,
    "gnomon-exec": _exec,
    "gnomon-overlay-analyze": _overlay,
    "gnomon-front": _solved_front,
}

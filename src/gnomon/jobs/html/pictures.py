"""What a page draws of the documents of each job, beside its report: charts, heat maps, and tables with every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gnomon.jobs.html.blocks import (
    Chart,
    Column,
    Part,
    Point,
    Section,
    Table,
    in_rows,
    scattered,
    shade,
    table,
    timed,
    told_time,
)
from gnomon.report import units
from gnomon.report.charts import Value, finite

Document = Mapping[str, Any]
Parts = Iterable[tuple[str, Sequence[Part]]]
"""Titles of sections, and what is in each; one that is empty is left out."""

_MOST_LAYERS = 24
"""Layers whose configurations are shown one by one, and cell groups, and rankings: the largest or first."""
_SHORT_S = 120.0
"""A run that is shorter is drawn over seconds."""
_IN_REPORT = 40
"""Layers that the report of `gnomon tune` has at most."""
_FULL_SHADE = 0.2
"""A regret from which a heat map is darkest."""


def pictures(document: Document) -> tuple[Section, ...]:
    """The sections that stand before the report of a document; none of one that is told by its report alone."""
    made = _PICTURES.get(document["format"])
    found = [] if made is None else [(title, tuple(parts)) for title, parts in made(document) if parts]
    return tuple(Section(id=f"drawn-{k}", title=title, parts=parts) for k, (title, parts) in enumerate(found))


def sustained(document: Document) -> tuple[Section, ...]:
    """How long runs went on: the time of a call from block to block, and the device beside it."""
    parts: list[Part] = []
    for one in document.get("sustained") or ():
        blocks = one["blocks"]
        if len(blocks["at_s"]) < 2:
            continue
        unit_s, across = (60.0, "minutes of calling") if blocks["at_s"][-1] >= _SHORT_S else (1.0, "seconds of calling")
        at = [seconds / unit_s for seconds in blocks["at_s"]]
        changes = [
            Point(
                told=f"after {units.duration(change['since_s'])}: {units.time(change['before_s'])}, "
                f"then {units.time(change['after_s'])}",
                x=Value(value=change["since_s"] / unit_s),
                y=timed(change["after_s"]),
                kind="chosen",
                label="slower" if change["after_s"] > change["before_s"] else "faster",
            )
            for change in one["changes"]
        ]
        parts.append(
            scattered(
                f"{one['label']}: {one['calls']} calls in {units.duration(one['ran_s'])}",
                (across, "time of a call, ms"),
                changes,
                lines=[
                    (kind, [(a, None if us is None else us / 1e3) for a, us in zip(at, blocks[key], strict=True)])
                    for key, kind in (("p99_us", "faint"), ("p50_us", "main"))
                ],
                height=280,
                even=True,
                note="The strong line is the median of each block of calls, the weak one the 99th percentile.",
            )
        )
        parts += [made for key, title, scale in _AROUND if (made := _around(at, across, blocks[key], title, scale))]
    return (Section(id="sustained", title="Called for long", parts=tuple(parts)),) if parts else ()


_AROUND = (
    ("frequency_khz", "mean frequency, MHz", 1e-3),
    ("temperature_c", "hottest zone, degrees Celsius", 1.0),
    ("others_share", "others' share of the processors, %", 100.0),
)


def _around(at: Sequence[float], across: str, values: Sequence[float | None], title: str, scale: float) -> Chart | None:
    known = [(a, value * scale) for a, value in zip(at, values, strict=True) if value is not None]
    if len(known) < 2:
        return None
    return scattered(title, (across, title.rpartition(", ")[2]), (), lines=[("main", known)], height=170, even=True)


def _stab(document: Document) -> Parts:
    exact, published = document["exact"], document["published"]
    sums = [(f"{backend} alone", us, "other") for backend, us in document["singles"].items()]
    sums += [("as ONE's stab decides", published["predicted_us"], "other"), ("exact", exact["predicted_us"], "chosen")]
    rows = [(name, timed(us * 1e-6), units.time(us * 1e-6), kind) for name, us, kind in sums if us is not None]
    yield "Predictions", [in_rows("Sums of the operators' average times in the traces", "ms", rows)] if rows else []


def _table(document: Document) -> Parts:
    rows = document["units"]
    yield (
        "Units",
        [
            _times("A call of each unit, with its 95 % interval", [(row["label"], row, "call_s") for row in rows]),
            table(
                "Every unit",
                ("unit", "net", "gross", "95 % interval", "known within", "processes", "", ""),
                (
                    (
                        row["label"],
                        units.time(row["time_s"]),
                        units.time(row["call_s"]),
                        _interval(row, "call_s"),
                        _percent(row["relative_half_width"]),
                        str(row["processes"]),
                        "" if row["status"] == "ok" else row["status"],
                        row["reason"],
                    )
                    for row in rows
                ),
                words=(0, 6, 7),
                note="Net is without what a call of nothing takes.",
            ),
        ]
        if rows
        else [],
    )


def _difference(document: Document) -> Parts:
    rows = document["units"]
    points = [
        Point(
            told=f"{row['label']}: {units.time(row['times_s'][0])}, then {units.time(row['times_s'][1])}",
            x=timed(row["times_s"][0]),
            y=timed(row["times_s"][1]),
            kind="chosen" if row["apart"] else "behind",
        )
        for row in rows
    ]
    yield (
        "Both tables",
        [
            scattered(
                "Each unit in both tables: on the line they are equal",
                ("first, ms", "second, ms"),
                points,
                equal=True,
                width=640,
                note="Filled: apart by more than noise.",
            ),
            table(
                "Every unit",
                ("unit", "first", "second", "ratio", ""),
                (
                    (
                        row["label"],
                        *(units.time(one) for one in row["times_s"]),
                        units.digits(row["ratio"]),
                        "" if row["apart"] else "within noise",
                    )
                    for row in rows
                ),
                words=(0, 4),
            ),
        ]
        if rows
        else [],
    )


def _evaluation(document: Document) -> Parts:
    found = document["evaluation"]
    if found is None:
        return
    nets = [net for net in found["nets"] if net["measured_s"] and net["mean_s"]]
    points = [
        Point(
            told=f"net {k + 1}: measured {units.time(net['measured_s'])}, predicted "
            f"{told_time(net['mean_s'], net['low_s'], net['high_s'])}",
            x=timed(net["measured_s"]),
            y=timed(net["mean_s"], net["low_s"], net["high_s"]),
            kind="other" if _inside(net) else "behind",
        )
        for k, net in enumerate(nets)
    ]
    out = sum(not _inside(net) for net in nets)
    nominal = units.share(found["scores"]["nominal"])
    yield (
        "Predicted against measured",
        [
            scattered(
                f"{len(nets)} nets that it was not fitted to: on the line they are equal",
                ("measured, ms", "predicted, ms"),
                points,
                equal=True,
                width=640,
                note=f"Bars are the {nominal} intervals of predictions; hollow: outside of it ({out}).",
            ),
            table(
                "Every net",
                ("net", "measured", "predicted", f"{nominal} interval", "off by"),
                (
                    (
                        str(k + 1),
                        units.time(net["measured_s"]),
                        units.time(net["mean_s"]),
                        _interval(net, "mean_s"),
                        units.percent(net["mean_s"] / net["measured_s"] - 1),
                    )
                    for k, net in enumerate(nets)
                ),
                words=(),
            ),
        ]
        if nets
        else [],
    )
    residuals = [
        (
            f"{one['unit']} ({one['nets']})",
            _shares(one["mean"], one["low"], one["high"]),
            f"{units.percent(one['mean'])}, {one['nets']} nets",
            "other" if (one["low"] or 0.0) <= 0 <= (one["high"] or 0.0) else "chosen",
        )
        for one in found["units"]
    ]
    yield (
        "Residuals by unit",
        [in_rows("Nets with a unit are predicted too long by", "%, 95 % interval", residuals, name="units")]
        if residuals
        else [],
    )
    curve = [(float(spent["samples"]), _shares(spent["mean_error"])) for spent in found["curve"]]
    marks = [
        Point(
            told=f"fitted to {spent['samples']} nets: mean error {_percent(spent['mean_error'])} "
            f"of {spent['nets']} others",
            x=Value(value=a),
            y=b,
        )
        for spent, (a, b) in zip(found["curve"], curve, strict=True)
    ]
    yield (
        "What more samples brought",
        [
            scattered(
                "Mean error on the nets held out",
                ("nets fitted to", "mean error, %"),
                marks,
                lines=[("main", [(a, b.value) for a, b in curve])],
                height=280,
            )
        ]
        if len(curve) > 1
        else [],
    )


def _inside(net: Document) -> bool:
    low, high = net["low_s"], net["high_s"]
    return low is not None and high is not None and bool(low <= net["measured_s"] <= high)


def _nets(document: Document) -> Parts:
    key = "latency_s"
    rows = [(f"net {k + 1}", net, key) for k, net in enumerate(document["nets"]) if net[key] is not None]
    yield "Nets", [_times("Each net with its interval", rows)] if rows else []


def _parts(document: Document) -> Parts:
    rows = [(p["unit"], timed(p["time_s"]), units.time(p["time_s"]), "other") for p in document["parts"]]
    yield "Units", [in_rows("What each unit adds", "ms", rows, name="units")] if rows else []


def _model(document: Document) -> Parts:
    took_s = [None if one["time_s"] is None else one["count"] * one["time_s"] for one in document["units"]]
    rows = [
        (
            f"{one['label']} ({one['count']})",
            timed(took),
            f"{units.time(took)}, {one['source']}",
            "other" if one["source"] == "measured" else "behind",
        )
        for one, took in zip(document["units"], took_s, strict=True)
    ]
    yield "Units", [in_rows("What each unit adds; hollow: never measured", "ms", rows, name="units")] if rows else []


def _space(document: Document) -> Parts:
    accuracy, latency = document["accuracy"], document["latency"]
    for one in (accuracy["rankings"] if accuracy else ())[:_MOST_LAYERS]:
        nets = one["networks"]
        rows = [
            (
                net["id"],
                _shares(net["accuracy"], net["low"], net["high"]),
                f"{_percent(net['accuracy'])} {_ends(net['low'], net['high'])}",
                "chosen" if not k else "behind" if _below(net["high"], nets[0]["low"]) else "other",
            )
            for k, net in enumerate(nets)
        ]
        title = f"One-change variants of {one['family']}: accuracy with its 95 % interval"
        beyond = "Hollow: surely below the first. Two such rankings would agree with a Kendall's tau of "
        chart = in_rows(title, "% of images", rows, name="networks") if rows else None
        told = f"{beyond}{_shown(one['repeatability'], '{:.2f}')}."
        more = table(
            title,
            ("network", "rank", "accuracy", "95 % interval", "primitives"),
            (
                (
                    net["id"],
                    str(k + 1),
                    _percent(net["accuracy"]),
                    _ends(net["low"], net["high"]),
                    ", ".join(net["primitives"]),
                )
                for k, net in enumerate(nets)
            ),
            words=(0, 4),
            note=told,
        )
        yield f"Ranking of {one['family']}", [chart, more] if chart else []
    right = {net["id"]: net for net in accuracy["trained"]} if accuracy else {}
    for one in latency:
        timed_nets = [net for net in one["networks"] if net["latency_s"] is not None]
        both = [
            Point(
                told=f"{net['id']}: {_percent(right[net['id']]['accuracy'])}, {_told(net, 'latency_s')}",
                x=timed(net["latency_s"], net["low_s"], net["high_s"]),
                y=_shares(right[net["id"]]["accuracy"]),
            )
            for net in timed_nets
            if net["id"] in right
        ]
        every = table(
            f"Every network by {one['toolchain']}",
            ("network", "latency", "95 % interval", "accuracy", "reason"),
            (
                (
                    net["id"],
                    units.time(net["latency_s"]),
                    _interval(net, "latency_s"),
                    _percent(right[net["id"]]["accuracy"]) if net["id"] in right else "-",
                    net["reason"],
                )
                for net in one["networks"]
            ),
            words=(0, 4),
        )
        chart = scattered(
            f"Trained networks: accuracy and latency by {one['toolchain']}",
            ("latency, ms", "accuracy, % of images"),
            both,
        )
        yield f"Networks by {one['toolchain']}", [chart, every] if both else [every]


def _selection(document: Document) -> Parts:
    for number, group in enumerate((document["primitives"] or ())[:_MOST_LAYERS]):
        rows = [
            (
                one["name"],
                _shares(one["frequency"], one["low"], one["high"]),
                f"{units.share(one['frequency'])} {_ends(one['low'], one['high'], '{:.0f}')}",
                "chosen" if one["stays"] else "behind",
            )
            for one in sorted(group, key=lambda one: -(one["frequency"] or 0.0))
        ]
        title = f"Cell group {number}: how often each primitive is on the front; hollow ones are dropped"
        yield f"Cell group {number}, drawn", [in_rows(title, "%, 95 % interval", rows)] if rows else []


def _space_front(document: Document) -> Parts:
    rows = document["networks"]
    points = []
    for one in rows:
        found = one["measured"] or {"accuracy": None, "latency_s": None}
        whole = found["accuracy"] is not None and found["latency_s"] is not None
        shown = found if whole else one["predicted"]
        accuracy, latency = shown["accuracy"], shown["latency_s"]
        points.append(
            Point(
                told=f"{one['id']}: {_percent(accuracy[0])}, {units.time(latency[0])}{'' if whole else ' (predicted)'}",
                x=timed(*latency),
                y=_shares(*accuracy),
                kind="chosen" if one["best"] else "other" if whole else "behind",
            )
        )
    note = "Hollow: predicted; filled: measured; strongest: of those measured no other is better in both."
    chart = scattered("Accuracy and latency", ("latency, ms", "accuracy, % of images"), points, note=note)
    titles = ("network", "accuracy", "predicted", "latency", "predicted", "on the front by chance of", "primitives")
    every = table(
        "Every network",
        titles,
        (
            (
                one["id"],
                "-" if not (found := one["measured"]) else _three_shares(found["accuracy"]),
                _three_shares(one["predicted"]["accuracy"]),
                "-" if not found or found["latency_s"] is None else told_time(*found["latency_s"]),
                told_time(*one["predicted"]["latency_s"]),
                units.share(one["chance"]),
                ", ".join(one["primitives"]),
            )
            for one in rows
        ),
        words=(0, 6),
        chosen=frozenset(k for k, one in enumerate(rows) if one["best"]),
    )
    yield "Networks", [chart, every] if rows else []
    held = [one for one in rows if one["measured"] and one["measured"]["latency_s"] is not None]
    against = [
        Point(
            told=f"{one['id']}: measured {told_time(*one['measured']['latency_s'])}, predicted "
            f"{told_time(*one['predicted']['latency_s'])}",
            x=timed(*one["measured"]["latency_s"]),
            y=timed(*one["predicted"]["latency_s"]),
        )
        for one in held
    ]
    yield (
        "Predicted against measured",
        [
            scattered(
                "Latency: on the line they are equal", ("measured, ms", "predicted, ms"), against, equal=True, width=640
            )
        ]
        if held
        else [],
    )


def _validation(document: Document) -> Parts:
    spaces = document["spaces"]
    if spaces is None:
        return
    lines = [
        (
            kind,
            [
                (_shares(t).value, _shares(share).value)
                for t, share in zip(spaces["thresholds"], spaces[name], strict=True)
            ],
        )
        for name, kind in (("full", "faint"), ("reduced", "main"))
    ]
    yield (
        "Both spaces",
        [
            scattered(
                "Networks with at most such an error, at equal latency: the higher line is better",
                ("error, % of images", "networks, %"),
                (),
                lines=lines,
                height=320,
                note="The strong line is the reduced space, the weak one the full space.",
            )
        ],
    )


def _tune(document: Document) -> Parts:
    network = document["network"] or {}
    whole = [(name, network.get(name), kind) for name, kind in (("untuned", "other"), ("tuned", "chosen"))]
    rows = [(name, one, "median_s", kind) for name, one, kind in whole if one]
    yield "The network", [_kinds("The whole network, with its 95 % interval", rows)] if rows else []
    beside = (document["beside"] or {}).get("columns") or ()
    rows = [
        ("tuned" if one["tuned"] else one["label"], one["time"], "median_s", "chosen" if one["tuned"] else "other")
        for one in beside
    ]
    yield "Beside other runtimes", [_kinds("Each runtime, side by side in fresh processes", rows)] if rows else []
    layers = sorted(document["layers"], key=lambda one: -(one["share"] or 0.0))
    found = [(one["name"], one["best"], "median_s", "chosen") for one in layers if one["best"]]
    titles = ("layer", "times", "share", "untuned", "best", "95 % interval", "faster", "trials", "failed", "ended by")
    every = table(
        "Every layer",
        titles,
        (
            (
                one["name"],
                str(one["weight"]),
                units.share(one["share"]),
                units.time((one["untuned"] or {}).get("median_s")),
                units.time((one["best"] or {}).get("median_s")),
                _interval(one["best"], "median_s") if one["best"] else "-",
                "-" if one["speedup"] is None else f"{units.digits(one['speedup'])} times",
                str(one["trials"]),
                str(one["failed"]),
                one["stopped"],
            )
            for one in layers
        ),
        words=(0, 9),
    )
    chart = _kinds("The best time of each layer, the largest share of the network first", found)
    # The report has a table of layers too, of as many as a terminal has room for.
    yield "Layers drawn", [*([chart] if found else []), *([every] if len(layers) > _IN_REPORT else [])]


def _exec(document: Document) -> Parts:
    rows = [(one["name"], one["time"], "median_s", "other") for one in document["layers"] if one["time"]]
    yield "Layers", [_kinds("Each layer by itself, with its 95 % interval", rows)] if rows else []


def _overlay(document: Document) -> Parts:
    layers, devices = document["layers"], document["devices"]
    largest = sorted(layers, key=lambda one: -(one["share"] or 0.0))
    shades = f"The darkest is a loss of {_FULL_SHADE:.0%} or more.".replace("%", " %")
    yield (
        "Loss by layer and device",
        [
            _heat(
                "What the choice loses against each device's own best, the largest share of the network first",
                ("layer", "share", "M"),
                devices,
                [((one["name"], units.share(one["share"]), _metric(one["M"])), one["regret"]) for one in largest],
                note=shades,
            )
        ]
        if layers
        else [],
    )
    found = document["network"]
    rows = [
        (
            f"{one['device']}: {one['choice']}",
            one["time"],
            "median_s",
            "chosen" if one["choice"] == "overlay" else "other",
        )
        for one in found
        if one["time"]
    ]
    yield "The whole network", [_kinds("Each choice on each device, with its 95 % interval", rows)] if rows else []
    wide = [one for one in largest if len(one["options"]) > 1]
    yield (
        "Devices and configurations",
        [
            _heat(
                f"{one['name']}: the configurations of least M, of {one['configurations']}",
                ("configuration", "found on", "M"),
                devices,
                [((o["configuration"], o["host"] or "-", _metric(o["M"])), o["regret"]) for o in one["options"]],
                chosen=[k for k, o in enumerate(one["options"]) if o["configuration"] == one["configuration"]],
                note=shades,
            )
            for one in wide[:_MOST_LAYERS]
        ],
    )
    portfolio = document["portfolio"]
    served = portfolio["layers"] if portfolio else ()
    yield (
        "Which configuration serves which device",
        [
            table(
                f"The best {portfolio['size']} configurations of each layer" if portfolio else "",
                ("layer", "M", *devices),
                (
                    (one["name"], _metric(one["M"]), *(one["serves"].get(name, "-") for name in devices))
                    for one in served
                ),
                words=(0, *range(2, 2 + len(devices))),
            )
        ]
        if served
        else [],
    )


def _solved_front(document: Document) -> Parts:
    objectives, points = document["objectives"], document["points"]
    if len(objectives) < 2 or not points:
        return
    names = [f"{one['name']}{one['unit'] and ', ' + one['unit']}" for one in objectives]
    made = [
        Point(
            told=", ".join(f"{name} {_shown(cost, '{:g}')}" for name, cost in zip(names, one["cost"], strict=True)),
            x=Value(value=one["cost"][0]),
            y=Value(value=one["cost"][1]),
        )
        for one in points
    ]
    every = table(
        "Every trade-off",
        ("point", *names),
        ((str(k + 1), *(_shown(cost, "{:g}") for cost in one["cost"])) for k, one in enumerate(points)),
        words=(),
    )
    yield "Trade-offs", [scattered("Lower and further left is better", (names[0], names[1]), made), every]


def _heat(
    title: str,
    heads: Sequence[str],
    devices: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Mapping[str, float | None]]],
    *,
    chosen: Iterable[int] = (),
    note: str = "",
) -> Table:
    """A heat map: columns of words, then a column a device with a loss in each cell."""
    losses = [[row.get(name) for name in devices] for _, row in rows]
    return Table(
        title=title,
        columns=(
            *(Column(title=name, number=k > 0 and name != "found on") for k, name in enumerate(heads)),
            *(Column(title=name) for name in devices),
        ),
        rows=tuple(
            (*words, *("-" if finite(one) is None else units.percent(one) if one else "0" for one in own))
            for (words, _), own in zip(rows, losses, strict=True)
        ),
        shades=tuple(
            (*(None for _ in heads), *(None if one is None else shade(one / _FULL_SHADE) for one in own))
            for own in losses
        ),
        chosen=frozenset(chosen),
        note=note,
    )


def _times(title: str, rows: Sequence[tuple[str, Document, str]]) -> Chart:
    return _kinds(title, [(name, row, key, "other") for name, row, key in rows if row[key] is not None])


def _kinds(title: str, rows: Sequence[tuple[str, Document, str, str]]) -> Chart:
    """Times with intervals in rows: a name, the object that has them, the key of the middle, and the kind."""
    return in_rows(
        title,
        "ms",
        [(name, timed(row[key], row["low_s"], row["high_s"]), _told(row, key), kind) for name, row, key, kind in rows],
    )


def _told(row: Document, key: str) -> str:
    return told_time(row[key], row["low_s"], row["high_s"])


def _interval(row: Document, key: str) -> str:
    if row[key] is None or row["low_s"] is None or row["high_s"] is None:
        return "-"
    return units.interval(row["low_s"], row["high_s"], row[key])


def _shares(value: float | None, low: float | None = None, high: float | None = None) -> Value:
    """A share of 1 with its interval, in percent."""
    return Value(value=value, low=low, high=high).times(100)


def _three_shares(found: Sequence[float] | None) -> str:
    return "-" if found is None else f"{_percent(found[0])} {_ends(found[1], found[2])}"


def _percent(share: float | None) -> str:
    return "-" if finite(share) is None else f"{_hundredths(share)} %"


def _hundredths(share: float | None, form: str = "{:.1f}") -> str:
    return _shown(None if share is None else 100 * share, form)


def _ends(low: float | None, high: float | None, form: str = "{:.1f}") -> str:
    """An interval of shares of 1, in percent: "[78.1, 80.4]"."""
    if finite(low) is None or finite(high) is None:
        return "[unknown]"
    return f"[{_hundredths(low, form)}, {_hundredths(high, form)}]"


def _below(high: float | None, low: float | None) -> bool:
    """Whether what ends there is surely below what begins here."""
    return high is not None and low is not None and high < low


def _metric(value: float | None) -> str:
    return _shown(value, "{:.3g}")


def _shown(value: float | None, form: str) -> str:
    """A number in that form; "-" where it is not known."""
    return "-" if finite(value) is None else form.format(value)


_PICTURES: Mapping[str, Callable[[Document], Parts]] = {
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
    "gnomon-space-validate": _validation,
    "gnomon-tune": _tune,
    "gnomon-exec": _exec,
    "gnomon-overlay-analyze": _overlay,
    "gnomon-front": _solved_front,
}

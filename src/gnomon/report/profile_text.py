"""The report of `gnomon profile`, made from its JSON document alone."""

from __future__ import annotations

from typing import Any

from gnomon.report import units
from gnomon.report.common import (
    CLOCKS,
    bounds,
    certainty,
    closing,
    counted,
    doubts,
    first_warnings,
    missing,
    model_line,
)
from gnomon.report.spans import numbers
from gnomon.report.text import Column, Page

_EXPENSIVE = 10


def profile_report(document: dict[str, Any], page: Page, *, own_record: bool = False) -> None:
    """Write the report: the ways to run the model, then the most expensive kernels of each.

    `own_record` says that the record was named by an option, and must be named again to show it.
    """
    columns = sorted(document["columns"], key=lambda c: (c["against_fastest"] is not None, c["level_s"]))
    page.headline(_headline(columns, document["clock"]))
    first_warnings(document["doubts"], page)
    page.line(model_line(document))
    page.heading("One inference (median, [95 % interval])")
    heads = [
        Column(title="way to run", number=False, least=20),
        Column(title="wall"),
        Column(title="", number=False, least=16),
        Column(title="p10"),
        Column(title="p90"),
        Column(title="CPU"),
        Column(title="load"),
        Column(title="first call"),
        Column(title="peak memory"),
        Column(title="unattributed"),
        Column(title="outputs off by"),
    ]
    page.table(heads, [_row(column) for column in columns], split=6)
    _compared(columns, document["clock"], page)
    restless = [c["label"] for c in columns if c["wall"]["trend"]]
    if restless:
        page.item(f"Times rose or fell while measuring: {', '.join(restless)}.", "Measure again at a quieter time.")
    slowed = [c for c in columns if c["profiler_overhead_s"]]
    if slowed:
        told = ", ".join(f"{c['label']} {units.time(c['profiler_overhead_s'])}" for c in slowed)
        page.line(f"Profiler overhead (what kernels take longer than a call without it): {told}.", indent=1)
    for column in columns:
        _kernels(column, document, page)
    missing(document["missing"], page)
    doubts(document["doubts"], page)
    page.heading("Kept")
    closing(document, page, own_record=own_record)


def _headline(columns: list[dict[str, Any]], clock: str) -> str:
    """The winner with its interval, or that there is none. `columns` are sorted, the fastest first."""
    fastest, *others = columns
    took = f"{units.time(fastest['level_s'])} of {CLOCKS[clock]}"
    if not others:
        return f"{fastest['label']} takes {took}; nothing else ran."
    ties = [c for c in others if _is_near(c["against_fastest"])]
    if ties:
        names = " and ".join(f"{c['label']} ({units.time(c['level_s'])})" for c in [fastest, *ties])
        only = f", ratio {_ratio(ties[0]['against_fastest'])}" if len(ties) == 1 else ""
        return f"No clear winner by {CLOCKS[clock]}: {names} are within the noise{only}."
    nearest = min(others, key=lambda c: c["against_fastest"]["ratio"])
    found = nearest["against_fastest"]
    if found["verdict"] == "tie" or found["unit"] != "process":
        return (
            f"No certain winner of so few processes: {fastest['label']} takes {took}, {nearest['label']} "
            f"{_ratio(found)} times as long."
        )
    gain = f"{units.digits(found['ratio'])} times as fast as {nearest['label']} {bounds(found)}"
    return f"{fastest['label']} is fastest: {took}, {gain}."


def _is_near(found: dict[str, Any]) -> bool:
    """Whether it may be as fast: where nothing bounds the ratio, what is far slower is no tie for that."""
    return bool(found["verdict"] == "tie" and found["ratio"] < 1.5)


def _ratio(found: dict[str, Any]) -> str:
    return f"{units.digits(found['ratio'])} {bounds(found)}"


def _compared(columns: list[dict[str, Any]], clock: str, page: Page) -> None:
    fastest, *others = columns
    if others:
        page.heading(f"Against {fastest['label']}, by {CLOCKS[clock]} (a ratio above 1 is slower)")
        heads = [
            Column(title="way to run", number=False, least=20),
            Column(title="ratio"),
            Column(title="[95 % interval]", number=False, least=21),
        ]
        rows = [(c["label"], c["against_fastest"]) for c in others]
        page.table(heads, [[label, units.digits(f["ratio"]), f"{bounds(f)} {f['verdict']}"] for label, f in rows])
    page.line(f"{counted([c['wall'] for c in columns])}.", indent=1, style="dim")
    compared = [(c["label"], c["against_fastest"]) for c in others]
    certainty(compared, fastest["label"], max(c["wall"]["processes"] for c in columns), page)


def _row(column: dict[str, Any]) -> list[str]:
    wall = column["wall"]
    return [
        column["label"],
        units.time(wall["median_s"]),
        units.interval(wall["low_s"], wall["high_s"], wall["median_s"]),
        units.time(wall["p10_s"]),
        units.time(wall["p90_s"]),
        units.time(column["cpu"]["median_s"]) if column["cpu"] else "not told",
        units.time(column["load_s"]),
        units.time(column["first_call_s"]),
        units.mebibytes(column["peak_rss_bytes"]),
        units.time(column["unattributed_s"]),
        units.small((column["difference"] or {}).get("absolute")),
    ]


def _kernels(column: dict[str, Any], document: dict[str, Any], page: Page) -> None:
    kernels = column["kernels"]
    total = sum(k["time_s"] for k in kernels)
    if total <= 0:
        return
    top = sorted(kernels, key=lambda k: -k["time_s"])[:_EXPENSIVE]
    page.heading(f"{column['label']}: the {len(top)} most expensive of {len(kernels)} kernels (with the profiler on)")
    types = {row["index"]: row["type"] for row in document["operators"]}
    heads = [
        Column(title="kernel", number=False, least=20),
        Column(title="time"),
        Column(title="share"),
        Column(title="operators", number=False),
        Column(title="types", number=False),
        Column(title="backend", number=False, least=8, most=24),
    ]
    rows = [
        [
            kernel["name"],
            units.time(kernel["time_s"]),
            units.share(kernel["time_s"] / total),
            numbers(kernel["operators"], most=3) or "-",
            ", ".join(dict.fromkeys(types[index] for index in kernel["operators"])) or "(no operator)",
            kernel["backend"],
        ]
        for kernel in top
    ]
    kept = len(heads) if page.width >= 100 else len(heads) - 1
    page.table(heads[:kept], [row[:kept] for row in rows])

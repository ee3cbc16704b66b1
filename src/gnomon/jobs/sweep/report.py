"""The report of a sweep, made from its JSON document alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.jobs.place.report import place_report, profile_report
from gnomon.jobs.sweep.document import FIELDS, Kind, answers_of, label_of
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import doubts, first_warnings, listed


def sweep_report(document: dict[str, Any], page: Page, **settings: Any) -> None:
    """Write the report: each answer's own where all is asked for, and last a row for each."""
    kind = document["kind"]
    answers = answers_of(document)
    if not page.brief:
        for part in document["parts"]:
            if not part["error"]:
                page.heading(label_of(part["values"]))
                (place_report if kind == "place" else profile_report)(part[FIELDS[kind]], page, **settings)
    page.headline(headline(document))
    warnings = list({row["message"]: row for answer in answers for row in answer["doubts"]}.values())
    first_warnings(warnings, page)
    rows = []
    for part in document["parts"]:
        values = list(part["values"].values())
        if part["error"]:
            rows.append([*values, "no answer", "-", "", "-"])
            continue
        chosen, summary, ratio = _choice(kind, part[FIELDS[kind]])
        interval = units.interval(summary["low_s"], summary["high_s"], summary["median_s"])
        rows.append([*values, chosen, units.time(summary["median_s"]), interval, units.digits(ratio) if ratio else "-"])
    columns = [Column(title=name, number=False) for name in document["parts"][0]["values"]]
    columns += [
        Column(title="choice", number=False, least=16),
        Column(title="time"),
        Column(title="[95 % interval]", number=False, least=16),
        Column(title="times as fast as the next"),
    ]
    page.table(columns, rows)
    for part in document["parts"]:
        if part["error"]:
            page.item(f"{label_of(part['values'])}: {part['error']['message']}", part["error"]["hint"])
    if page.brief:
        doubts(warnings, page)
    for answer in answers:
        if answer.get("package"):
            page.path("package", answer["package"])
    page.line(f"Elapsed: {units.duration(document['seconds'])}.", indent=2)


def _choice(kind: Kind, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any], float | None]:
    """The choice of an answer, its summary, and how many times as fast as the next it is (None: alone)."""
    if kind == "place":
        rows, chosen, against = answer["contenders"], answer["decision"]["chosen"], "against_best"
        wall = "measured"
    else:
        rows, chosen, against, wall = answer["columns"], answer["fastest"], "against_fastest", "wall"
    alive = {row["label"]: row for row in rows if row.get("failure") is None and row[wall]}
    own = alive[chosen]
    ratios = {label: row[against]["ratio"] if row[against] else 1.0 for label, row in alive.items()}
    others = [ratio / ratios[chosen] for label, ratio in ratios.items() if label != chosen]
    return chosen, own["cpu"] if answer["clock"] == "cpu" and own["cpu"] else own[wall], min(others, default=None)


def headline(document: Mapping[str, Any]) -> str:
    """Which choice is for which values."""
    field, by_choice = FIELDS[document["kind"]], dict[str, list[str]]()
    for part in document["parts"]:
        if not part["error"]:
            by_choice.setdefault(_choice(document["kind"], part[field])[0], []).append(label_of(part["values"]))
    count = len(document["parts"])
    if len(by_choice) == 1 and len(next(iter(by_choice.values()))) == count:
        return f"{next(iter(by_choice))} for each of {count} values."
    return f"{'; '.join(f'{choice} for {listed(labels)}' for choice, labels in by_choice.items())}."

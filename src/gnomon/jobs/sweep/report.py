"""The report of a sweep, made from its JSON document alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.jobs.sweep.document import answers_of, label_of
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import doubts, first_warnings, listed


def sweep_report(document: dict[str, Any], page: Page, **_: object) -> None:
    """Write the report: a row for each part, then what speaks against them and where the packages are."""
    page.headline(headline(document))
    answers = answers_of(document)
    warnings = list({row["message"]: row for answer in answers for row in answer["doubts"]}.values())
    first_warnings(warnings, page)
    columns = [Column(title=name, number=False) for name in document["parts"][0]["values"]]
    columns += [Column(title="choice", number=False, least=16), Column(title="time")]
    columns += [Column(title="[95 % interval]", number=False, least=16), Column(title="times as fast as the next")]
    page.table(columns, [[*part["values"].values(), *_row(part["answer"])] for part in document["parts"]])
    for part in document["parts"]:
        if part["error"]:
            page.item(f"{label_of(part['values'])}: {part['error']['message']}", part["error"]["hint"])
    doubts(warnings, page)
    page.heading("Kept")
    for answer in answers:
        if answer.get("package"):
            page.path("package", answer["package"])
        page.path("show it", f"gnomon runs show {answer['campaign'][:8]}")
    page.line(f"Elapsed: {units.duration(document['seconds'])}.", indent=2)


def headline(document: Mapping[str, Any]) -> str:
    """Which choice is for which values."""
    by_choice: dict[str, list[str]] = {}
    for part in document["parts"]:
        if part["answer"]:
            by_choice.setdefault(_row(part["answer"])[0], []).append(label_of(part["values"]))
    if [len(labels) for labels in by_choice.values()] == [len(document["parts"])]:
        return f"{next(iter(by_choice))} for all {len(document['parts'])}."
    return f"{'; '.join(f'{choice} for {listed(labels)}' for choice, labels in by_choice.items())}."


def _row(answer: Mapping[str, Any] | None) -> list[str]:
    """The choice of an answer, its time with the interval, and how many times as fast as the next it is."""
    if answer is None:
        return ["no answer", "-", "", "-"]
    placed = answer["format"] == "gnomon-place"
    chosen = answer["decision"]["chosen"] if placed else answer["fastest"]
    wall, against = ("measured", "against_best") if placed else ("wall", "against_fastest")
    alive = {c["label"]: c for c in answer["contenders" if placed else "columns"] if c[wall] and not c.get("failure")}
    ratios = {label: one[against]["ratio"] if one[against] else 1.0 for label, one in alive.items()}
    others = [ratio / ratios[chosen] for label, ratio in ratios.items() if label != chosen]
    took = alive[chosen]["cpu" if answer["clock"] == "cpu" else wall]
    interval = units.interval(took["low_s"], took["high_s"], took["median_s"])
    return [chosen, units.time(took["median_s"]), interval, units.digits(min(others)) if others else "-"]

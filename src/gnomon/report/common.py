"""Parts that several reports have."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gnomon.report import units
from gnomon.report.text import Page

_LONGEST = 300
"""Characters of a reason in a report: some runtimes tell pages, which --json holds whole."""


def model_line(document: dict[str, Any]) -> str:
    """The model, the machine and the runtimes in one sentence."""
    model = document["model"]
    macs = "" if model["macs"] is None else f", {units.count(model['macs'])} multiply-accumulates"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(document["versions"].items()))
    operators = "1 operator" if model["operators"] == 1 else f"{model['operators']} operators"
    name = Path(model["path"]).name
    return f"{name} ({model['format']}, {operators}{macs}) on {document['device']}, with {versions}."


def failure_text(failure: dict[str, Any]) -> str:
    """A failure in one line, with the end of what the process said where it died."""
    text = f"{failure['kind']} at {failure['stage']}: {failure['message']}"
    tail = failure["log_tail"].strip().splitlines()
    return f"{text} ({tail[-1].strip()[:160]})" if tail and failure["kind"] in ("crash", "hang", "memory") else text


def missing(rows: list[dict[str, str]], page: Page, *, known: Collection[str] = ()) -> None:
    """What was left out, and why; `known` names were told already."""
    told = [row for row in rows if row["name"] not in known]
    if not told:
        return
    page.heading("Left out")
    for row in told:
        reason = " ".join(row["reason"].split())
        page.item(f"{row['name']}: {reason if len(reason) <= _LONGEST else reason[:_LONGEST] + ' ..'}", row["hint"])


_FIRST = frozenset({"clocks-disagree", "medians-disagree"})
"""Kinds of doubts about the answer itself, which stand under it."""

_NARROW = 1.04
"""How many times the lower end the upper end of an interval may be for a tie to be certain: 2 % to either side."""


CLOCKS = {"cpu": "CPU time", "wall": "wall time"}
"""Names of the clocks that decide."""


def bounds(found: dict[str, Any]) -> str:
    """The interval of a comparison in brackets: "[unknown]" where too little was seen."""
    low, high = found["low"], found["high"]
    if low is None or high is None or not math.isfinite(high):
        return "[unknown]"
    return f"[{units.digits(low)}, {units.digits(high)}]"


def counted(summaries: list[dict[str, Any]]) -> str:
    """How many processes and samples each of several summaries is of: "3 to 6 processes, 40 to 900 samples each"."""
    processes, samples = ([s[key] for s in summaries] for key in ("processes", "n"))
    return f"{_range(processes, 'process', 'processes')}, {_range(samples, 'sample', 'samples')} each"


def _range(counts: list[int], one: str, many: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low} to {high} {many}" if low < high else f"{high} {one if high == 1 else many}"


def first_warnings(rows: list[dict[str, str]], page: Page) -> None:
    """The doubts about the answer itself, which stand in the first lines."""
    for row in rows:
        if row["kind"] in _FIRST:
            page.item(f"Warning: {row['message']}.", row["hint"])


def certainty(compared: list[tuple[str, dict[str, Any] | None]], best: str, processes: int, page: Page) -> None:
    """Which differences from the best stay open, by label and comparison, and how to get certainty.

    A tie whose interval is narrow is certain: the two are equally fast.
    """
    unsure = [label for label, found in compared if found and found["verdict"] == "tie" and not _is_narrow(found)]
    if unsure:
        page.item(
            f"Not certain: whether {' or '.join(unsure)} is as fast as {best} or faster.",
            f"For certainty: --processes {max(10, 2 * processes)}, or a quieter machine.",
        )


def _is_narrow(found: dict[str, Any]) -> bool:
    return bool(found["low"] and found["high"] and found["high"] <= _NARROW * found["low"])


def doubts(rows: list[dict[str, str]], page: Page) -> None:
    """What speaks against trusting the figures, but for what stands in the first lines."""
    rows = [row for row in rows if row["kind"] not in _FIRST]
    if not rows:
        return
    page.heading("Doubts")
    for row in rows:
        message = row["message"]
        page.item(message[:1].upper() + message[1:] + ".", row["hint"])


def closing(document: dict[str, Any], page: Page, *, own_record: bool) -> None:
    """Where everything is kept, and how long it took. `own_record`: the record was named by an option."""
    page.path("record", document["record"])
    where = f" --record {shlex.quote(document['record'])}" if own_record else ""
    page.path("show it", f"gnomon runs show {document['campaign'][:8]}{where}")
    known = "what the record held" if document["format"] == "gnomon-pareto" else "an interrupted run"
    went_on = f", going on from {known}" if document["resumed"] else ""
    waited_s = document.get("waited_s", 0.0)
    waited = f" and waited {units.duration(waited_s)} for the device" if waited_s >= 1 else ""
    page.line(f"Took {units.duration(document['seconds'])}{waited}{went_on}.", indent=2)

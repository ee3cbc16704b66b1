"""Parts that several reports have."""

from __future__ import annotations

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


def doubts(rows: list[dict[str, str]], page: Page) -> None:
    """What speaks against trusting the figures."""
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
    page.line(f"Took {units.duration(document['seconds'])}{went_on}.", indent=2)

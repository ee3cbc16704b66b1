"""The common parts of reports about measured models: conditions, skipped configurations and warnings."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gnomon.errors import UNDECIDED, exit_code_of
from gnomon.measure.environment import Caveat
from gnomon.report import units
from gnomon.report.conditions import ConditionsPart, held_for
from gnomon.report.page import Page
from gnomon.report.plain import many
from gnomon.session.document import ModelPart
from gnomon.session.targets import Missing, merged

_LONGEST = 300
"""The maximum number of characters of a reason in a report. Some runtimes write pages, which --json has in full."""
_TRACED = ", traced"
"""The suffix of the names of failed profiles, whose contenders were nevertheless measured."""
_TIPS = frozenset({"precision", "subnormal-cured"})
"""Kinds of doubts that do not question the answer but report something even faster."""
_MUTE = frozenset({"precision-no-gain", "file", "quick"})
"""Kinds of doubts that are details: things that were tried in vain, change nothing, or were requested."""
_MOST_WARNINGS, _MOST_TIPS = 3, 2
_FIRST = frozenset(
    {
        *("clocks-disagree", "copy", "medians-disagree", "model-changed", "signature", "software-device"),
        *("judges-undecided", "judge-outvoted", "reference-refused", "unlike-itself", "near-itself"),
        *("no-finite-output", "unrepeatable", "nearly-right", "lower-precision", "drawn-steering", "empty-input"),
        *("not-compared", "unstable", "threads-undecided", "undelegated", "fixed-batch"),
        *("command-failed", "unchecked-command", "stopped", "subnormal"),
    }
)
"""Kinds of doubts about the answer itself, which are shown directly below it."""


def conditions_line(model: ModelPart, device: str, conditions: ConditionsPart | None) -> str:
    """The conditions of the answer in one sentence: model, machine, threads, precision, shapes, inputs and day."""
    if conditions is None:  # written by an older gnomon
        return model_line(model, device)
    held = held_for(Path(model.path).name, device, conditions)
    if not conditions.inputs:
        return f"{held}."
    how = "defaults are called as programs call them, the rest" if conditions.defaults else "called"
    return f"{held}; {how} with preset tensors of fixed shapes."


def held(name: str, device: str, conditions: ConditionsPart | None, page: Page) -> None:
    """Write the conditions under which times on a device hold, unless the document is older and lacks them."""
    if conditions is not None:
        page.conditions(f"{held_for(name, device, conditions)}.")


def model_line(model: ModelPart, device: str, versions: Mapping[str, str] | None = None) -> str:
    """The model, the machine and, if given, the runtimes in one sentence."""
    macs = "" if model.macs is None else f", {units.count(model.macs)} multiply-accumulates"
    runtimes = ", ".join(f"{name} {version}" for name, version in sorted((versions or {}).items()))
    where = device if versions is None else f"{device}, with {runtimes}"
    return f"{Path(model.path).name} ({model.format}, {many(model.operators, 'operator')}{macs}) on {where}."


def missing(rows: Sequence[Missing], page: Page, *, explained: Collection[str] = ()) -> None:
    """Write the skipped configurations with their reasons, except those that the report has already `explained`."""
    unknown = [row for row in rows if row.name not in explained]
    if page.brief:
        if skipped := {row.name for row in unknown if not row.name.endswith(_TRACED)}:
            page.omitted.append(f"{len(skipped)} skipped")
        return
    if unknown:
        page.heading("Skipped")
    for row in merged(unknown):
        reason = row.reason if len(row.reason) <= _LONGEST else f"{row.reason[:_LONGEST]} .."
        page.item(f"{row.name}: {reason}", row.hint)


def fed_inputs(conditions: ConditionsPart | None, page: Page) -> None:
    """Write which data each input was fed."""
    rows = conditions.inputs if conditions is not None else ()
    with page.details("inputs"):
        if rows:
            page.heading("Inputs")
        for row in rows:
            page.line(f"{row.name}: {row.fed}", indent=1)


def first_warnings(rows: Sequence[Caveat], page: Page) -> None:
    """Write the first warnings: those about the answer itself and, on a brief page, the first of the others.

    A warning whose text is part of another warning is left out.
    """
    warnings = [row for row in rows if row.kind not in _TIPS | _MUTE]
    warnings = [row for row in warnings if not any(row.message in other.message for other in warnings if other != row)]
    first = [row for row in warnings if row.kind in _FIRST]
    others = [row for row in warnings if row.kind not in _FIRST] if page.brief else []
    shown = [*first, *others[: max(0, _MOST_WARNINGS - len(first))]]
    for row in shown:
        page.item(f"Warning: {row.message}.", row.hint if row in first else "")
    if page.brief and len(shown) < len(warnings):
        page.omitted.append(many(len(warnings) - len(shown), "more warning"))


def doubts(rows: Sequence[Caveat], page: Page) -> None:
    """Write the other warnings and the faster options; a brief page has only some of the options."""
    tips = [row for row in rows if row.kind in _TIPS]
    if page.brief:
        for row in tips[:_MOST_TIPS]:
            page.item(f"Faster still: {row.message}.", row.hint)
        return
    warnings = [row for row in rows if row.kind not in _FIRST | _TIPS]
    for title, shown in (("Faster still", tips), ("Warnings", warnings)):
        if shown:
            page.heading(title)
        for row in shown:
            labelled = "[" in row.message.partition(" ")[0]  # a label keeps its spelling
            page.item(f"{row.message if labelled else row.message[:1].upper() + row.message[1:]}.", row.hint)


def unproved(rows: Sequence[Caveat], reference: str | None, checked_by: str | None) -> str:
    """The reason why equal outputs prove nothing about the package; "" if another runtime confirmed the reference."""
    # The best number of threads is irrelevant to outputs.
    code = exit_code_of(row.kind for row in rows if row.kind != "threads-undecided")
    if code:
        return "it is undecided which outputs are right" if code == UNDECIDED else "its outputs prove nothing"
    if checked_by != "":  # null: unknown in an older document
        return ""
    return f"only {str(reference).partition(' ')[0].partition('[')[0]} computed the reference; nobody checked it"


def closing(page: Page, *, record: str, campaign: str, seconds: float, waited_s: float, resumed_from: str) -> None:
    """Write where all results are, and the duration; `resumed_from` says what was resumed ("": nothing)."""
    where = f" --record {shlex.quote(record)}" if page.own_record else ""
    page.path("show it", f"gnomon runs show {campaign[:8]}{where}")
    with page.details("the results database"):
        page.path("record", record)
        resumed = f", resumed from {resumed_from}" if resumed_from else ""
        waited = f", not counting {units.duration(waited_s)} of waiting for the device" if waited_s >= 1 else ""
        page.line(f"Elapsed: {units.duration(seconds)}{waited}{resumed}.", indent=2)

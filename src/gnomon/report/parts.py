"""Parts that several reports have.

Assignments in few words.

Words that the reports of search spaces have in common: shares, and the counts of networks.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.core.stats import may_be_as_fast
from gnomon.errors import UNDECIDED, exit_code_of
from gnomon.report import units
from gnomon.report.page import Page
from gnomon.report.plain import clean

_MOST_SHAPES = 3
"""Inputs whose shapes stand in a report's second line."""
_LONGEST = 300
"""Characters of a reason in a report: some runtimes tell pages, which --json holds whole."""


def conditions(document: dict[str, Any], page: Page) -> None:
    """What the answer holds for, as a line."""
    page.line(conditions_line(document))


def conditions_line(document: Mapping[str, Any]) -> str:
    """What the answer holds for, in one sentence: model, machine, threads, precision, shapes, inputs and day."""
    told = document.get("conditions")
    if told is None:  # of an older gnomon
        return model_line(document, brief=True)
    return f"{held_for(Path(document['model']['path']).name, document['device'], told)}."


def held_for(name: str, device: str, told: Mapping[str, Any]) -> str:
    """What a model's times on a device hold for, by the conditions they were measured under."""
    cores = "" if told["cores"] is None else f", {told['cores']} core{'' if told['cores'] == 1 else 's'}"
    counts = " and ".join(map(str, told["threads"]))
    threads = f"{counts} thread{'' if counts == '1' else 's'}{' and defaults' if told['defaults'] else ''}"
    fed = told["inputs"]
    shapes = [f"{row['name'] if len(fed) > 1 else ''} {'x'.join(map(str, row['shape']))}".strip() for row in fed]
    more = [f"{len(shapes) - _MOST_SHAPES} more"] if len(shapes) > _MOST_SHAPES else []
    drawn = [row["name"] for row in fed if row["sha256"] is None]
    inputs = (
        "given inputs" if not drawn else "random inputs" if len(drawn) == len(fed) else f"random {listed(drawn, 3)}"
    )
    parts = [threads, *told["precisions"], *shapes[:_MOST_SHAPES], *more, inputs, told["date"]]
    return f"{name} on {device} ({told['machine']}{cores}): {', '.join(filter(None, parts))}"


def measured_with(context: Mapping[str, Any], clock: str = "") -> str:
    """What the times of a table hold for, in one sentence: runtime, processor, threads, and a known clock."""
    device, options = context.get("device") or {}, context.get("options") or {}
    where = device.get("ro.product.model") or device.get("cpu_model") or device.get("machine") or "an unknown device"
    name = context.get("configuration") or context.get("runtime") or "an unknown runtime"
    threads = options.get("threads")
    parts = [
        f"{name} {context.get('version') or ''}".strip() + f" on {where}",
        f"{'one' if threads == 1 else threads} thread{'' if threads == 1 else 's'}" if threads else "",
        f"by {units.CLOCKS[clock]}" if clock else "",
    ]
    return f"{', '.join(filter(None, parts))}."


def model_line(document: Mapping[str, Any], *, brief: bool = False) -> str:
    """The model, the machine and, unless `brief`, the runtimes in one sentence."""
    model = document["model"]
    macs = "" if model["macs"] is None else f", {units.count(model['macs'])} multiply-accumulates"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(document["versions"].items()))
    operators = "1 operator" if model["operators"] == 1 else f"{model['operators']} operators"
    name = Path(model["path"]).name
    if brief:
        return f"{name} ({model['format']}, {operators}{macs}) on {document['device']}."
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
    if page.brief:
        names = list(dict.fromkeys(row["name"] for row in told if not row["name"].endswith(_TRACED)))
        if names:
            page.line(f"Skipped: {'; '.join(names)} (why: -v).")
        return
    page.heading("Skipped")
    for row in told:
        reason = " ".join(row["reason"].split())
        page.item(f"{row['name']}: {reason if len(reason) <= _LONGEST else reason[:_LONGEST] + ' ..'}", row["hint"])


def fed_inputs(document: dict[str, Any], page: Page) -> None:
    """What each input was fed."""
    rows = (document["conditions"] or {}).get("inputs", ())
    with page.details("inputs"):
        if rows:
            page.heading("Inputs")
        for row in rows:
            page.line(f"{row['name']}: {row['fed']}", indent=1)


_TRACED = ", traced"
"""How the names of profiles end that failed: what they are of was measured."""

_TIPS = frozenset({"precision", "threads-undecided"})
"""Kinds of doubts that speak against nothing, and say what else could be tried."""
_MUTE = frozenset({"precision-no-gain"})
"""Kinds of doubts that say what else was tried in vain: details."""
_MOST_WARNINGS, _MOST_TIPS = 3, 2

_FIRST = frozenset(
    {
        *("clocks-disagree", "copy", "medians-disagree", "model-changed", "software-device"),
        *("judges-undecided", "judge-outvoted", "reference-refused", "unlike-itself", "near-itself"),
        *(
            "no-finite-output",
            "unrepeatable",
            "nearly-right",
            "lower-precision",
            "drawn-steering",
            "not-compared",
            "unstable",
        ),
    }
)
"""Kinds of doubts about the answer itself, which stand under it."""

_NARROW = 1.04
"""How many times the lower end the upper end of an interval may be for a tie to be certain: 2 % to either side."""


_UNBOUNDED = "[unknown]"


def bounds(found: Mapping[str, Any]) -> str:
    """The interval of a comparison in brackets: "[unknown]" where too little was seen."""
    return ratio_interval(found["low"], found["high"])


def ratio_interval(low: float | None, high: float | None) -> str:
    """The interval of a ratio in brackets: "[unknown]" where it has no end."""
    if low is None or high is None or not math.isfinite(high):
        return _UNBOUNDED
    return f"[{units.digits(low)}, {units.digits(high)}]"


def is_open(found: Mapping[str, Any]) -> bool:
    """Whether a comparison leaves open that its first is as fast as its second."""
    return may_be_as_fast(found["verdict"], found["ratio"])


def outcome(found: Mapping[str, Any]) -> str:
    """The verdict of a comparison: "undecided" for a tie that nothing bounds, or that lies far from 1."""
    bounded = bounds(found) != _UNBOUNDED and is_open(found) and may_be_as_fast(found["verdict"], 1 / found["ratio"])
    return "undecided" if found["verdict"] == "tie" and not bounded else str(found["verdict"])


def compared(found: Mapping[str, Any]) -> str:
    """The interval of a comparison and its verdict: "[1.20, 1.40] slower"; "undecided" where nothing bounds it."""
    return f"{bounds(found)} {outcome(found)}".removeprefix(f"{_UNBOUNDED} ")


def counted(summaries: list[dict[str, Any]]) -> str:
    """How many processes and samples each of several summaries is of: "3 to 6 processes, 40 to 900 samples each"."""
    processes, samples = ([s[key] for s in summaries] for key in ("processes", "n"))
    return f"{_range(processes, 'process', 'processes')}, {_range(samples, 'sample', 'samples')} each"


def _range(counts: list[int], one: str, many: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low} to {high} {many}" if low < high else f"{high} {one if high == 1 else many}"


def first_warnings(rows: list[dict[str, str]], page: Page) -> None:
    """The warnings in the first lines: those about the answer itself, and on a brief page the first of the others."""
    warnings = [row for row in rows if row["kind"] not in _TIPS | _MUTE]
    first = [row for row in warnings if row["kind"] in _FIRST]
    others = [row for row in warnings if row["kind"] not in _FIRST] if page.brief else []
    shown = [*first, *others[: max(0, _MOST_WARNINGS - len(first))]]
    for row in shown:
        page.item(f"Warning: {row['message']}.", row["hint"] if row in first else "")
    if page.brief and len(shown) < len(warnings):
        page.omitted.append(f"{len(warnings) - len(shown)} more warnings")


def unproved(document: Mapping[str, Any]) -> str:
    """Why equal outputs prove nothing of the package; "" where another runtime confirmed them."""
    # How many threads are faster says nothing of outputs.
    code = exit_code_of(doubt["kind"] for doubt in document["doubts"] if doubt["kind"] != "threads-undecided")
    if code:
        return "which outputs are right is undecided" if code == UNDECIDED else "its outputs prove nothing"
    if document.get("reference_checked_by") != "":  # null: an older document does not tell
        return ""
    return f"computed by {str(document['reference']).partition(' ')[0].partition('[')[0]} only; nobody checked it"


def certainty(each: list[tuple[str, dict[str, Any] | None]], best: str, processes: int, page: Page) -> None:
    """Which differences from the best stay open, by label and comparison, and how to get certainty.

    A tie whose interval is narrow is certain: the two are equally fast.
    """
    ties = [
        (label, is_open(found))
        for label, found in each
        if found and found["verdict"] == "tie" and not _is_narrow(found)
    ]
    near, far = ([label for label, close in ties if close is wanted] for wanted in (True, False))
    advice = f"For certainty: --processes {max(10, 2 * processes)}, or a quieter machine."
    if page.brief:
        if near or far:
            page.line(f"Not certain: {_in_short(near, far, best)} {advice}")
        return
    if near:
        page.item(f"Undecided: whether {' or '.join(near)} is as fast as {best} or faster.", advice)
    if far:
        page.item(f"Undecided: how much faster {best} is than {' and '.join(far)}.", advice)


def _in_short(near: list[str], far: list[str], best: str) -> str:
    """What stays open, in one sentence."""
    if near:
        return f"whether {' or '.join(near[:2])} is as fast as {best} or faster."
    return f"how much faster {best} is than {' and '.join(far[:2])}."


def _is_narrow(found: dict[str, Any]) -> bool:
    return bool(found["low"] and found["high"] and found["high"] <= _NARROW * found["low"])


def doubts(rows: list[dict[str, str]], page: Page) -> None:
    """What else speaks against trusting the figures, and tips; on a brief page some tips alone."""
    if page.brief:
        tips = [row for row in rows if row["kind"] in _TIPS]
        for row in tips[:_MOST_TIPS]:
            page.item(f"Tip: {row['message']}.", row["hint"])
        return
    rows = [row for row in rows if row["kind"] not in _FIRST]
    if not rows:
        return
    page.heading("Warnings and tips" if any(row["kind"] in _TIPS for row in rows) else "Warnings")
    for row in rows:
        message = row["message"]
        page.item(message[:1].upper() + message[1:] + ".", row["hint"])


def closing(document: dict[str, Any], page: Page) -> None:
    """Where everything is kept, and how long it took."""
    with page.details("the results database"):
        page.path("record", document["record"])
    where = f" --record {shlex.quote(document['record'])}" if page.own_record else ""
    page.path("show it", f"gnomon runs show {document['campaign'][:8]}{where}")
    known = "what the results database held" if document["format"] == "gnomon-pareto" else "an interrupted run"
    went_on = f", resumed from {known}" if document["resumed"] else ""
    waited_s = document.get("waited_s", 0.0)
    waited = f", without {units.duration(waited_s)} of waiting for the device" if waited_s >= 1 else ""
    page.line(f"Elapsed: {units.duration(document['seconds'])}{waited}{went_on}.", indent=2)


def spans(assignment: Sequence[str | None]) -> list[tuple[int, int, str]]:
    """Runs of equal backend: (first, last, backend), both ends included; "-" where there is none."""
    made: list[tuple[int, int, str]] = []
    for index, backend in enumerate(assignment):
        name = backend or "-"
        if made and made[-1][2] == name:
            made[-1] = (made[-1][0], index, name)
        else:
            made.append((index, index, name))
    return made


def numbers(indices: Sequence[int], *, most: int = 12) -> str:
    """Ascending indices as "0-2, 5, 7-9"; beyond `most` runs only how many more there are."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    told = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    more = sum(b - a + 1 for a, b in runs[most:])
    return ", ".join(told) + (f" and {more} more" if more else "")


def assignment_text(assignment: Sequence[str | None], *, most: int = 40) -> str:
    """ "0-2 cpu   3-26 ruy   27-28 cpu"; beyond `most` runs, how many operators each backend has."""
    runs = spans(assignment)
    if len(runs) <= most:
        return "   ".join(f"{a if a == b else f'{a}-{b}'} {name}" for a, b, name in runs)
    counts: dict[str, int] = {}
    for a, b, name in runs:
        counts[name] = counts.get(name, 0) + b - a + 1
    told = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{told}, in {len(runs)} stretches"


_MOST_NAMES = 6
_BOUND = re.compile(r"(?<=\d) (?=(?:%|[num]?s\b|points\b|\d{3}(?:\D|$)))")
"""Spaces between a number and its unit, and between groups of digits: no line ends there."""


def say(page: Page, sentence: str, *, answer: bool = False, indent: int = 0) -> None:
    """A sentence as `Page.line` and `Page.headline` write it, without tearing a number from its unit."""
    held = _BOUND.sub("\0", clean(sentence))  # what is clean has no such character
    for line in textwrap.wrap(held, page.width - indent, break_on_hyphens=False):
        told = line.replace("\0", " ")
        if answer:
            page.headline(told)
        else:
            page.line(told, indent=indent)


def row(page: Page, label: str, items: Sequence[str], *, indent: int = 0) -> None:
    """A label and items after commas, over as many lines as it takes; none ends inside of an item."""
    held = ", ".join(clean(item).replace(" ", "\0") for item in items)
    for line in textwrap.wrap(label + held, page.width - indent, break_on_hyphens=False):
        page.line(line.replace("\0", " "), indent=indent)


def percent(share: float | None) -> str:
    """A share of images, such as an accuracy: "91.3 %"; "-" where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def points(share: float | None) -> str:
    """A share without its unit: "91.3"; "-" where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.1f}"


def listed(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Names in a row: "a, b and c"; of more than `most` only how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def networks(digits: str) -> str:
    """A count of networks, given in digits: "130 321", "1.23e15"."""
    if not digits.isdecimal():
        return digits
    return f"{int(digits):,}".replace(",", " ") if len(digits) <= 9 else f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}"


def part(after: str, before: str) -> str:
    """The share of networks that are left: "7.7 %"; "-" where the counts are none."""
    if not (after.isdecimal() and before.isdecimal()) or len(before + after) > 300 or not int(before):
        return "-"
    share = 100 * int(after) / int(before)
    return f"{share:.1f} %" if share >= 0.1 or not share else f"{share:.1g} %" if share >= 1e-4 else f"{share:.0e} %"


def sentence(text: str) -> str:
    """A text with a full stop."""
    text = text.strip() or "no reason was given"
    return text if text.endswith((".", "!", "?")) else text + "."

"""The reports of `gnomon pareto` and `gnomon oplist`, each made from its JSON document alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import closing, conditions, doubts, failure_text, first_warnings, missing, unproved

_CLOCKS = {
    "cpu": "CPU time",
    "wall": "wall time, the fastest 20 % of calls",
    "mixed": "CPU time where it is the time of a call, else wall time (the fastest 20 % of calls)",
}
_SHORT = {"cpu": "CPU", "wall": "wall"}
_MOST_NAMED = 8
_MOST_FAILURES = 5
_MOST_SLOTS = 60
_DIGITS = {"type": "operator type", "group": "group of one type and data size", "operator": "operator"}


def pareto_report(document: dict[str, Any], page: Page) -> None:
    """Write the report: the front first, then what it rests on, then what speaks against it."""
    page.headline(headline(document))
    first_warnings(document["doubts"], page)
    if document["model"]:
        conditions(document, page)
        first_warnings(document["doubts"], page)
    else:
        page.line(f"From {Path(document['source']).name}; nothing was measured.")
    page.line(_space_line(document))
    _front(document, page)
    with page.details("what is dominated"):
        _others(document, page)
    if len(document["searches"]) > 1:
        _spent(document, page)
    else:
        with page.details("the search"):
            _spent(document, page)
        if page.brief:
            page.line(_certificate(document))
    with page.details("what the objectives are"):
        _prices(document, page)
    _failures(document, page)
    missing(document["missing"], page)
    doubts(document["doubts"], page)
    _package(document, page)
    if document["model"]:
        closing(document, page)


def headline(document: dict[str, Any]) -> str:
    """The answer in one sentence."""
    front = [p for p in document["points"] if p["number"] is not None]
    names = [o["name"].replace("-", " ") for o in document["objectives"]]
    if len(front) == 1:
        told = f"One point is best in {_listed(names)}: {front[0]['label']}."
        if document["model"] and not document["proved"]:
            told = f"By one sample each, {told[0].lower()}{told[1:]}"
    else:
        ranges = []
        for k, objective in enumerate(document["objectives"]):
            values = [p["estimates"][k]["value"] for p in front]
            ranges.append(f"{names[k]} {value(min(values), objective)} to {value(max(values), objective)}")
        told = f"The front has {len(front)} points: {_listed(ranges)}."
    if document["chosen"] is None:
        return told
    chosen = next(p for p in front if p["number"] == document["chosen"])
    verified = document["verified"] or {}
    if verified.get("ok"):
        why = unproved(document)
        how = f"runs ({why})" if why else "verified"
        return f"{told} Point {chosen['number']} is written and {how}: {chosen['label']}."
    if verified.get("skipped"):
        return f"{told} Point {chosen['number']} is written, and was not run: {chosen['label']}."
    return f"{told} Point {chosen['number']} is written, but its package was refused: {chosen['label']}."


def value(number: float | None, objective: dict[str, Any]) -> str:
    """A value in the unit of its objective."""
    return units.value(number, objective["unit"])


def interval(found: dict[str, Any], objective: dict[str, Any]) -> str:
    """The interval of an estimate in the unit of its objective; an empty text where it has none."""
    low, high = found["low"], found["high"]
    if objective["unit"] in ("s", "J"):
        return units.interval(low, high, found["value"]) if low is not None else ""
    if low is None or high is None or high - low <= 1e-9 * high:
        return ""
    if objective["unit"] == "B":
        return f"[{units.digits(low / 2**20)}, {units.digits(high / 2**20)}]"
    written = units.digits if objective["unit"] else units.small
    return f"[{written(low)}, {written(high)}]"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _space_line(document: dict[str, Any]) -> str:
    space = document["space"]
    size = f"{int(space['size']):,}" if len(space["size"]) <= 12 else f"about 10^{len(space['size']) - 1}"
    own = space["operator_slots"]
    by = f" by {space['by']}" if space["by"] else ""
    slots = [f"{own} operators" if space["by"] == "operator" else f"{own} slots of operators{by}"] if own else []
    slots += [f"{s['name']} ({', '.join(s['choices'])})" for s in space["slots"][own:]]
    if not slots:
        return "1 assignment: there is nothing to choose."
    return f"{size} assignments: {', '.join(slots)}."


def _columns(document: dict[str, Any]) -> list[Column]:
    columns = [Column(title=""), Column(title="choice", number=False, least=24)]
    for objective in document["objectives"]:
        columns += [Column(title=objective["name"].replace("-", " ")), Column(title="", number=False, least=14)]
        if _by_both(document, objective):
            columns += [Column(title="clock", number=False), Column(title="wall time")]
    return [*columns, Column(title="code", most=16), Column(title="", number=False, least=10)]


def _by_both(document: dict[str, Any], objective: dict[str, Any]) -> bool:
    """Whether an objective is shown by wall time too, as its points are by different clocks."""
    return bool(document["clock"] == "mixed" and objective["name"] == "latency")


def _split(document: dict[str, Any]) -> int:
    """How many columns a table has before the code."""
    return len(_columns(document)) - 2


def _row(document: dict[str, Any], point: dict[str, Any], mark: str) -> list[str]:
    cells = [mark, point["label"]]
    for objective, found in zip(document["objectives"], point["estimates"], strict=True):
        cells += [value(found["value"], objective), interval(found, objective)]
        if _by_both(document, objective):
            cells += [_SHORT[point["clock"]], value(point["wall"]["value"], objective)]
    return [*cells, point["code"], note(document, point)]


def note(document: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    """What dominates a point, or is not to be told from it; an empty text where nothing does."""
    numbers = [p["number"] for p in document["points"]]
    if point["dominated_by"] is not None:
        return f"dominated by {numbers[point['dominated_by']]}"
    ties = [str(numbers[k]) for k in point["ties"] if numbers[k] is not None]
    maybe = [str(numbers[k]) for k in point["maybe_dominated_by"] if numbers[k] is not None]
    told = [f"indistinguishable from {', '.join(ties)}"] if ties else []
    told += [f"possibly dominated by {', '.join(maybe)}"] if maybe else []
    return "; ".join(told)


def _front(document: dict[str, Any], page: Page) -> None:
    clock = f", by {_CLOCKS[document['clock']]}" if document["clock"] else ""
    how = f"measured again side by side (value, [95 % interval]){clock}" if document["proved"] else "as sampled"
    page.heading(f"The front, {how}")
    front = [p for p in document["points"] if p["number"] is not None]
    rows = [_row(document, p, f"{'> ' if p['number'] == document['chosen'] else ''}{p['number']}") for p in front]
    chosen = frozenset(k for k, p in enumerate(front) if p["number"] == document["chosen"])
    page.table(_columns(document), rows, split=_split(document), bold=chosen)
    if document["sessions"] > 1:
        page.line(
            f"Measured in {document['sessions']} sessions, as not all fit at once. One point ran in each, and by it "
            "all are scaled to one speed; points of different sessions are compared less precisely.",
            indent=1,
            style="dim",
        )
    if document["clock"] == "mixed":
        page.line(
            "Two points by CPU time are compared by it; a point by wall time with any other one by wall time.",
            indent=1,
            style="dim",
        )
    if any("indistinguishable" in row[-1] or "possibly" in row[-1] for row in rows):
        page.line(
            "indistinguishable from N: equal within noise in every objective; possibly dominated by N: N is better in "
            "one, and no worse within noise.",
            indent=1,
            style="dim",
        )
    plain = next((p for p in front if p["number"] == document["enough"]), None)
    if plain:
        page.item(
            f"No mix here is surely better than the single backend {plain['number']} ({plain['label']}) by more than "
            "1 % in anything.",
            f"Take that, unless more --processes show otherwise: --pick {plain['number']}.",
        )


def _others(document: dict[str, Any], page: Page) -> None:
    others = [p for p in document["points"] if p["number"] is None]
    alive = [p for p in others if p["estimates"] is not None]
    if alive:
        beside = "Measured beside it" if document["search"]["predicted"] else "Measured again"
        page.heading(f"{beside} and dominated")
        marks = [*ascii_lowercase, *[""] * len(alive)]
        rows = [_row(document, p, mark) for p, mark in zip(alive, marks, strict=False)]
        page.table(_columns(document), rows, split=_split(document))
        page.line(
            "dominated by N: N is surely better by more than 1 % in an objective (95 % for all points together), "
            "surely worse in none, and by no more than 1 % within noise.",
            indent=1,
            style="dim",
        )
    for point in others:
        if point["estimates"] is None:
            told = failure_text(point["failure"]) if point["failure"] else "it does not report every objective"
            page.item(f"{point['label']} failed when it was measured again: {told}")
    _unmeasured(document, page)


def _unmeasured(document: dict[str, Any], page: Page) -> None:
    """What was sampled and not measured again, and why."""
    left_out, behind = document["left_out"], document["behind"]
    if left_out:
        page.item(
            f"{left_out} more of the front, or within noise of it, not measured again: there was room for "
            f"{len(document['points'])}.",
            "They are among the samples of --json.",
        )
    if behind:
        noise = _noise(document)
        page.line(
            f"{behind} more not measured again, as another one is ahead in every objective by more than the noise"
            f"{f' ({noise})' if noise else ''}.",
            indent=2,
        )
    measured = {p["code"] for p in document["points"]}
    rest = [s["label"] for s in document["samples"] if s["cost"] is not None and s["code"] not in measured]
    if rest and (document["left_out"] or document["behind"]):
        more = len(rest) - _MOST_NAMED
        named = "; ".join(f"'{label}'" for label in rest[:_MOST_NAMED])
        page.line(f"Not measured again: {named}{f' and {more} more' if more > 0 else ''}.", indent=2)


def _noise(document: dict[str, Any]) -> str:
    """The noise that was seen between two processes of one assignment, by objective and clock."""
    told = []
    for k, objective in enumerate(document["objectives"]):
        seen = {clock: 100 * of[k] for clock, of in (document["noise"] or {}).items()}
        timed = objective["name"] == "latency"
        if not timed:
            seen = {"": max(seen.values())} if seen else {}
        for clock, share in seen.items():
            by = f" by {_CLOCKS[clock].split(',')[0]}" if clock else ""
            told.append(f"{objective['name'].replace('-', ' ')}{by} up to {units.digits(share)} %")
    return f"between two processes of one assignment, {_listed(told)}" if told else ""


def _spent(document: dict[str, Any], page: Page) -> None:
    search = document["search"]
    page.heading("The search")
    if search["predicted"]:
        many = "1 point" if len(document["samples"]) == 1 else f"{len(document['samples'])} points"
        page.line(f"{search['name']}: a front of {many} by the prices below, in {units.duration(search['seconds'])}.")
    elif len(document["searches"]) > 1:
        _compared(document["searches"], page)
    else:
        failed = f", {search['failed']} failed" if search["failed"] else ""
        known = f", {search['replayed']} known from the results database" if search["replayed"] else ""
        told = f"{search['name']}, seed {search['seed']}: {_evaluations(search['evaluations'])}{failed}{known}"
        page.line(f"{told}, in {units.duration(search['seconds'])}.")
    page.line(_certificate(document))
    reached = _reached(search["volume"])
    if reached and len(document["searches"]) == 1:
        page.line(f"99 % of the hypervolume was reached after {_evaluations(reached)}.")


def _reached(volume: list[float], share: float = 0.99) -> int:
    """After how many evaluations a search had that share of its last volume; 0 where it has none."""
    if not volume or volume[-1] <= 0:
        return 0
    return next(k + 1 for k, found in enumerate(volume) if found >= share * volume[-1])


def _compared(searches: list[dict[str, Any]], page: Page) -> None:
    """A line for each of several searches, with the share of the volume that the best of them dominates."""
    best = max((s["volume"][-1] for s in searches if s["volume"]), default=0.0)
    columns = [Column(title="search", number=False), Column(title="evaluations"), Column(title="failed")]
    columns += [Column(title="known"), Column(title="hypervolume"), Column(title="99 % of it after")]
    rows = []
    for search in searches:
        volume = search["volume"]
        share = f"{100 * volume[-1] / best:.1f} %" if volume and best > 0 else "-"
        counts = [str(search[key]) if search[key] else "-" for key in ("evaluations", "failed", "replayed")]
        rows.append([search["name"], *counts, share, str(_reached(volume) or "-")])
    page.table(columns, rows)
    page.line(
        f"seed {searches[0]['seed']}; known: run before, by another search too; volume: what a search dominates, as a "
        "share of the best one's.",
        indent=1,
        style="dim",
    )


def _evaluations(count: int) -> str:
    return "1 evaluation" if count == 1 else f"{count} evaluations"


def _certificate(document: dict[str, Any]) -> str:
    certificate, name = document["certificate"], document["search"]["name"]
    if isinstance(certificate, dict):
        return f"Every assignment is covered within {certificate['epsilon']:.2%}, by the prices."
    if certificate == "exact":
        return "Exact: by the prices, no assignment is better than the front."
    if certificate == "complete":
        if document["source"]:
            return "Complete: every assignment of the space is in the dump."
        told = "Complete: every assignment was run once; "
        if not document["proved"]:
            return f"{told}none was measured again."
        lost = sum(point["failure"] is not None for point in document["points"])
        which = "those near the front" if document["left_out"] or document["behind"] else "all"
        return f"{told}{which}{f' but {lost}' if lost else ''} were measured again."
    if name == "exact":
        return "Heuristic: the front of the prices was not finished in time."
    return "Heuristic: there may be better assignments that were not tried."


def _prices(document: dict[str, Any], page: Page) -> None:
    for k, objective in enumerate(document["objectives"]):
        page.line(f"{objective['name']}: {objective['price']}.{_off(document, k)}", indent=2)


def _off(document: dict[str, Any], objective: int) -> str:
    """How what was measured stands to the prices, where the points were chosen by prices alone."""
    if not (document["search"]["predicted"] and document["proved"]):
        return ""
    both = [p for p in document["points"] if p["estimates"] and p["sampled"] and p["sampled"][objective] > 0]
    ratios = [p["estimates"][objective]["value"] / p["sampled"][objective] for p in both]
    return f" Measured: {min(ratios):.2f} to {max(ratios):.2f} of that." if ratios else ""


def _failures(document: dict[str, Any], page: Page) -> None:
    rows = document["failures"]
    for row in rows[:_MOST_FAILURES]:
        page.item(f"{row['label']} failed: {row['reason']}")
    if len(rows) > _MOST_FAILURES:
        page.item(f"{len(rows) - _MOST_FAILURES} more assignments failed.", "--json names them.")


def _package(document: dict[str, Any], page: Page) -> None:
    verified = document["verified"]
    if verified and not verified["ok"] and not verified["skipped"]:
        moved = verified["moved"]
        told = failure_text(verified["failure"]) if verified["failure"] else f"{len(moved)} operators ran elsewhere"
        page.item(f"The package was refused: {told}.", "Pick another point.")
    if document["model"] or document["dumpfile"] or document["pictures"]:
        page.heading("Files")
    for label in ("package", "dumpfile"):
        if document[label]:
            page.path(label, document[label])
    for path in document["pictures"]:
        page.path("picture", path)
    if document["model"] and document["chosen"] is None:
        page.path("deploy", "the same command with --pick N, or --under peak-memory=80MB")


def oplist_report(document: dict[str, Any], page: Page) -> None:
    """The slots, the number of codes, and what one code means."""
    slots, model = document["slots"], document["model"]
    what = _DIGITS[document["by"]] + ("" if len(slots) == 1 else "s")
    if document["by"] == "group" and len(slots) != 1:
        what = "groups of one type and data size"
    backends = "1 backend" if len(document["backends"]) == 1 else f"{len(document['backends'])} backends"
    codes = "1 code" if document["codes"] == "1" else f"{_codes(document)} codes"
    page.headline(f"{len(slots)} {what}, {backends}: {codes}.")
    operators = "1 operator" if model["operators"] == 1 else f"{model['operators']} operators"
    page.line(f"{Path(model['path']).name} ({model['format']}, {operators}).")
    digits = ", ".join(f"{digit} {name}" for digit, name in enumerate(document["backends"]))
    page.line(f"The digits: {digits}; the first slot is the least significant.")
    _slots(document, page)
    unknown = [name for name, opcode in document["opcodes"].items() if opcode is None]
    page.heading("Example")
    example = document["example"]
    rest = f" and all others on {example['others']}" if len(slots) > 1 else ""
    page.line(f"Code {_short(example['code'])} puts {example['slot']} on {example['backend']}{rest}.", indent=1)
    if example["config"] is not None and len(example["config"]) <= 400:
        page.path("settings", example["config"])
    if unknown:
        page.heading("Warnings")
        if model["format"] in ("tflite", "circle"):
            page.item(
                f"onert does not load operators of type {', '.join(unknown)}.", "There is no oplist of the model."
            )
        else:
            page.item(f"onert does not load {model['format']} models.", "There is no oplist of the model.")
    elif document["file"] is None:
        page.line("To write the oplist: --out oplist.json", indent=1, style="dim")
    else:
        page.path("file", document["file"])


def _slots(document: dict[str, Any], page: Page) -> None:
    page.heading("Slots")
    heads = [
        Column(title="digit"),
        Column(title="slot", number=False),
        Column(title="onert", number=False),
        Column(title="types", number=False),
        Column(title="operators"),
        Column(title="data of each"),
    ]
    rows = []
    for slot in document["slots"][:_MOST_SLOTS]:
        opcodes = ", ".join(opcode or "-" for opcode in slot["opcodes"])
        size = units.mebibytes(slot["data_bytes"])
        rows.append(
            [str(slot["digit"]), slot["name"], opcodes, ", ".join(slot["types"]), str(len(slot["operators"])), size]
        )
    page.table(heads, rows)
    more = len(document["slots"]) - len(rows)
    if more:
        page.line(f"And {more} more: --json has all.", indent=1)


def _codes(document: dict[str, Any]) -> str:
    power = f"{len(document['backends'])}^{len(document['slots'])}"
    return document["codes"] if len(document["codes"]) <= 9 else power


def _short(code: str) -> str:
    return code if len(code) <= 40 else f"{code[:20]}..{code[-10:]} ({len(code)} digits)"

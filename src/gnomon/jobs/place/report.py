"""The report of `gnomon place`, made from its JSON document alone.

The report of `gnomon profile`, made from its JSON document alone.

The report of `gnomon place` on several devices, and of it and `gnomon profile` for several sizes or inputs, made from
its JSON document alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gnomon.jobs.place.document import answers_of, label_of
from gnomon.jobs.place.sustained_report import sustained_text
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import (
    assignment_text,
    bounds,
    certainty,
    closing,
    compared,
    conditions,
    conditions_line,
    counted,
    doubts,
    failure_text,
    fed_inputs,
    first_warnings,
    is_open,
    listed,
    missing,
    model_line,
    numbers,
    unproved,
)

_EXPENSIVE = 10


def place_report(document: dict[str, Any], page: Page) -> None:
    """Write the report: the answer first, then what it rests on, then what speaks against it."""
    page.headline(document["decision"]["reason"])
    conditions(document, page)
    first_warnings(document["doubts"], page)
    if not page.brief:
        page.line(model_line(document))
    _contenders(document, page)
    with page.details("why nothing is mixed"):
        _why_not_mixed(document, page)
    with page.details("predictions and the solver's proof"):
        _prediction(document, page)
    with page.details("the choice operator by operator"):
        _plan(document, page)
    _verified(document, page)
    with page.details("unattributed time"):
        _unattributed(document, page)
    fed_inputs(document, page)
    missing(document["missing"], page, known={c["label"] for c in document["contenders"] if c["failure"]})
    doubts(document["doubts"], page)
    _files(document, page)
    closing(document, page)


def _contenders(document: dict[str, Any], page: Page) -> None:
    clock = document["clock"]
    if not page.brief:
        page.heading(f"One inference, decided by {units.CLOCKS[clock]} (median, [95 % interval])")
    main = "cpu" if clock == "cpu" else "measured"
    columns = [
        Column(title="configuration", number=False, least=20),
        Column(title="CPU" if clock == "cpu" else "wall"),
        Column(title="", number=False, least=16),
        Column(title="wall" if clock == "cpu" else "CPU"),
        Column(title="ratio"),
        Column(title="to the best backend", number=False, least=21),
        Column(title="predicted"),
        Column(title="peak memory"),
        Column(title="max abs error"),
    ]
    alive = [c for c in document["contenders"] if not c["failure"] and c[main]]
    alive.sort(key=lambda c: c["level_s"])
    shown = _first_rows(alive, document["decision"]) if page.brief else alive
    chosen = frozenset(k for k, c in enumerate(shown) if c["label"] == document["decision"]["chosen"])
    page.table(columns, [_row(contender, document) for contender in shown], split=6, bold=chosen)
    if len(shown) < len(alive):
        page.omitted.append(f"{len(alive) - len(shown)} more configurations")
    kinds = {c["kind"] for c in shown}
    notes = ["> is the choice", "a ratio below 1 is faster"]
    if "plan" in kinds:
        notes.append("plan: the solver's")
    if "greedy" in kinds:
        notes.append("greedy: each part where it alone is fastest")
    if any(c["usual"] for c in shown):
        notes.append("default: with nothing set")
    if clock == "wall":
        notes += _why_wall(document["contenders"])
        if any(c["threads"] == 1 and not c["usual"] for c in alive):
            notes.append("one thread against one by CPU time, else the fastest 20 % of calls by wall time")
        else:
            notes.append("order and ratio are of the fastest 20 % of calls, which nothing else interrupted")
    notes.append(counted([c[main] for c in alive]))
    page.line("; ".join(notes) + ".", indent=1, style="dim")
    best = document["decision"]["best_single"]
    certainty([(c["label"], c["against_best"]) for c in shown], best, max(c[main]["processes"] for c in alive), page)
    for contender in document["contenders"]:
        if contender["failure"]:
            how = "was refused" if contender["failure"]["kind"] in ("wrong-output", "refused") else "failed"
            page.item(f"{contender['label']} {how}: {failure_text(contender['failure'])}")
    restless = [c["label"] for c in alive if c[main]["trend"]]
    if restless:
        with page.details("what rose or fell while measuring"):
            page.item(f"Times rose or fell while measuring: {', '.join(restless)}.", "Measure again at a quieter time.")


_MOST_ROWS = 6


def _first_rows(alive: list[dict[str, Any]], decision: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a brief table: the choice, what it is compared with, and the fastest of the others."""
    named = {decision["chosen"], decision["best_single"], (decision["default"] or {}).get("label")}
    first = [c for c in alive if c["label"] in named]
    kept = {c["label"] for c in [*first, *(c for c in alive if c not in first)][:_MOST_ROWS]}
    return [c for c in alive if c["label"] in kept]


def _why_wall(contenders: list[dict[str, Any]]) -> list[str]:
    """Why wall time decides, where something computes beside the processor."""
    beside = dict.fromkeys(a["backend"] for c in contenders for a in c["accelerators"])
    told = f"{' and '.join(beside)} compute{'s' if len(beside) == 1 else ''} beside the processor"
    return [f"wall time decides, as {told}: CPU time is not what a caller waits for"] if beside else []


def _row(contender: dict[str, Any], document: dict[str, Any]) -> list[str]:
    main, other = ("cpu", "measured") if document["clock"] == "cpu" else ("measured", "cpu")
    found, ratio, label = contender[main], contender["against_best"], contender["label"]
    best = label == document["decision"]["best_single"]
    return [
        ("> " if label == document["decision"]["chosen"] else "  ") + label,
        units.time(found["median_s"]),
        units.interval(found["low_s"], found["high_s"], found["median_s"]),
        units.time(contender[other]["median_s"]) if contender[other] else "-",
        "1" if best else units.digits(ratio["ratio"]) if ratio else "-",
        ("(best backend)" if best else compared(ratio) if ratio else "") + _unasked(contender, document),
        units.time(contender["predicted_s"]),
        units.mebibytes(contender["peak_rss_bytes"]),
        units.small((contender["difference"] or {}).get("absolute")),
    ]


def _unasked(contender: dict[str, Any], document: dict[str, Any]) -> str:
    """The precision of a contender that was not asked for, which is not chosen for that."""
    asked = (document["conditions"] or {}).get("precisions", [contender["precision"]])
    return "" if contender["precision"] in (*asked, "") else f" in {contender['precision']}"


def _why_not_mixed(document: dict[str, Any], page: Page) -> None:
    if document["why_not_mixed"]:
        ideal = document["ideal_s"]
        told = (
            f" Every block on its fastest runtime would take {units.time(ideal)}." if ideal and not page.brief else ""
        )
        why = document["why_not_mixed"]
        why = f"N{why[1:]}" if why.startswith("not cut") else f"Not mixed: {why}"
        page.line(f"{why}.{told}")


def _prediction(document: dict[str, Any], page: Page) -> None:
    mixes = [c for c in document["contenders"] if c["kind"] != "single" and c["prediction_error"] is not None]
    # By wall time a prediction is of the fastest 20 % of the calls, which nothing else interrupted.
    how = "" if document["clock"] == "cpu" else " in the fastest 20 % of its calls"
    for contender in mixes:
        predicted, took = units.time(contender["predicted_s"]), units.time(contender["level_s"])
        page.line(
            f"Prediction: {contender['label']} was predicted to take {predicted}; it took {took}{how} "
            f"(prediction off by {units.percent(contender['prediction_error'])})."
        )
    for name, solution in document["solutions"].items():
        proof = "the exact minimum of the prices" if solution["optimal"] else "the best found, not proved the minimum"
        page.line(f"Solver ({name}): {proof}, {units.time(solution['value_s'])}, by {solution['method']}.")


def _plan(document: dict[str, Any], page: Page) -> None:
    chosen = next(c for c in document["contenders"] if c["label"] == document["decision"]["chosen"])
    page.heading("The choice, operator by operator")
    page.line(assignment_text(chosen["assignment"]), indent=1)
    columns = list(document["operators"][0]["times_s"]) if document["operators"] else []
    if not columns:
        return
    used = set(chosen["assignment"])
    first = sorted(columns, key=lambda name: name not in used and name.rpartition(":")[2] not in used)
    shown = [name for name in columns if name in first[: 3 if page.width < 100 else 5]]
    counts = document.get("resolutions_s", {})
    # Each with its time in the choice; a kernel of no operator has one only where the choice is the column's own.
    rows: list[tuple[float, float, list[str]]] = [
        (
            time_s or 0.0,
            time_s or 0.0,
            [
                f"{row['index']} {row['name']}",
                row["type"],
                row["planned"] or "-",
                *(_cell(row, name, counts.get(name, 0.0)) for name in shown),
            ],
        )
        for row, time_s in zip(document["operators"], chosen["operators_s"], strict=True)
    ]
    own = _own_kernels(document, shown)
    for label, kernel in own:
        if kernel["operators"]:
            continue  # of the whole model
        took = units.counted_time(kernel["time_s"], counts.get(label, 0.0))
        cells = [took if name == label else "-" for name in shown]
        counted_s = kernel["time_s"] if label == chosen["label"] else 0.0
        rows.append((kernel["time_s"], counted_s, [kernel["name"], "(no operator)", "-", *cells]))
    mute = [label for label, kernel in own if kernel["operators"]]
    if mute:
        page.line(f"No times of operators are reported by {', '.join(mute)}.", indent=1)
    top = sorted((row for row in rows if row[0] or not mute), key=lambda row: -row[0])[:_EXPENSIVE]
    if not top:
        return
    whole_s = chosen["level_s"]
    share = f", {units.share(sum(row[1] for row in top) / whole_s)} of the whole" if whole_s else ""
    kind = "operators and kernels" if any(row[2][1] == "(no operator)" for row in top) else "operators"
    page.heading(f"The {len(top)} most expensive {kind}{share} ({units.CLOCKS[document['clock']]})")
    heads = [
        Column(title="operator", number=False, least=16),
        Column(title="type", number=False, most=20),
        Column(title="planned", number=False, least=8, most=32),
        *(Column(title=name) for name in shown),
    ]
    page.table(heads, [row[2] for row in top])
    notes = ["traced by the runtimes, scaled to calls without profiler"]
    if any(cell.startswith("with ") for row in top for cell in row[2][3:]):
        notes.append("with 3: in one kernel with operator 3, whose time has its own")
    if kind != "operators":
        notes.append("(no operator): a kernel that belongs to no single operator of the model")
    page.line("Times: " + "; ".join(notes) + ".", indent=1, style="dim")
    if len(shown) < len(columns):
        page.line(f"{len(columns) - len(shown)} more places are in --json.", indent=1, style="dim")


def _cell(row: dict[str, Any], name: str, resolution_s: float) -> str:
    other = row["within"].get(name)
    return units.counted_time(row["times_s"][name], resolution_s) if other is None else f"with {other}"


def _own_kernels(document: dict[str, Any], shown: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """The kernels of no operator, by the column that they stand in."""
    return [(c["label"], kernel) for c in document["contenders"] if c["label"] in shown for kernel in c["kernels"]]


def _verified(document: dict[str, Any], page: Page) -> None:
    found, operators = document["verified"], document["operators"]
    if page.brief and not (found["failure"] or found["skipped"] or found["moved"]):
        off = (found["difference"] or {}).get("relative")
        near = "" if off is None else f"; its outputs are within {units.small(off)} of the reference's largest"
        near = "; its outputs equal the reference" if off == 0 else near
        count = sum(bool(row["planned"]) for row in operators)
        ran = f"{count} of {count} operators of the package ran where planned"
        why, checked = unproved(document), document.get("reference_checked_by")
        by = f", which {checked} confirms" if checked and near else ""
        page.line(f"{ran}; {why}." if why else f"Proved: {ran}{near}{by}.")
        return
    page.heading("The package, run from its own files")
    if found["failure"]:
        page.item(f"It failed: {failure_text(found['failure'])}", "Do not deploy it; measure again.")
        return
    if found["skipped"]:
        page.line("It was not run: nothing was to be measured any more.", indent=1)
        return
    planned = [row for row in operators if row["planned"]]
    good = len(planned) - len(found["moved"])
    page.line(f"{good} of {len(planned)} operators ran where planned, as reported by the runtime.", indent=1)
    if found["moved"]:
        page.item(f"Ran elsewhere: operators {numbers(found['moved'])}.", "Do not deploy it before you know why.")
    off = found["difference"]
    why = unproved(document)
    if off and off["absolute"] == 0 and not why:
        page.line("Its outputs equal the reference.", indent=1)
    elif off and off["absolute"] is not None:
        page.line(
            f"Its outputs differ from the reference by at most {units.small(off['absolute'])}, which is "
            f"{units.small(off['relative'])} of the largest.",
            indent=1,
        )
    if document.get("reference"):
        checked = document.get("reference_checked_by")
        page.line(f"The reference: {document['reference']}{f'; {checked} confirms it' if checked else ''}.", indent=1)
    if why:
        page.item(f"{why[:1].upper()}{why[1:]}.")


def _unattributed(document: dict[str, Any], page: Page) -> None:
    found = [c for c in document["contenders"] if c["unattributed_s"] is not None]
    if not found:
        return
    page.heading(f"Unattributed time ({units.CLOCKS[document['clock']]} outside of operators and kernels)")
    heads = [Column(title="configuration", number=False), Column(title="time"), Column(title="profiler overhead")]
    rows = [[c["label"], units.time(c["unattributed_s"]), units.time(c["profiler_overhead_s"] or None)] for c in found]
    overhead = any(c["profiler_overhead_s"] for c in found)
    kept = len(heads) if overhead else len(heads) - 1
    page.table(heads[:kept], [row[:kept] for row in rows])
    if overhead:
        page.line("Operators that take longer with the profiler are scaled down.", indent=1, style="dim")


def _files(document: dict[str, Any], page: Page) -> None:
    if not page.brief:
        page.heading("Written")
    package, device = document["package"], document["device"]
    if package is None:
        found = document["verified"]
        good = "run" if unproved(document) else "proved"
        done = "not run" if found["skipped"] else good if found["ok"] else "not proved"
        page.line(f"The package was {done}, and not kept: --no-package.", indent=2)
        return
    if device != "local":
        page.line(
            f"To run it on {device}, copy the package there first. The Python there needs what the package's "
            "README.txt names: what gnomon installed was for measuring.",
            indent=2,
        )
    page.path("package", package)
    page.path("run it", f"cd {shlex.quote(package)} && {document['run']} --output out.npz")
    with page.details("pictures"):
        for picture in document["pictures"]:
            page.path("picture", picture)


def profile_report(document: dict[str, Any], page: Page) -> None:
    """Write the report: the configurations, then the most expensive kernels of each."""
    columns = sorted(document["columns"], key=lambda c: (c["against_fastest"] is not None, c["level_s"]))
    page.headline(profile_headline(columns, document["clock"]))
    conditions(document, page)
    first_warnings(document["doubts"], page)
    if not page.brief:
        page.line(model_line(document))
    page.heading("One inference (median, [95 % interval])")
    heads = [
        Column(title="configuration", number=False, least=20),
        Column(title="wall"),
        Column(title="", number=False, least=16),
        Column(title="p10"),
        Column(title="p90"),
        Column(title="CPU"),
        Column(title="load"),
        Column(title="first call"),
        Column(title="peak memory"),
        Column(title="unattributed"),
        Column(title="max abs error"),
    ]
    page.table(heads, [_profile_text_row(column) for column in columns], split=6)
    _compared(columns, document["clock"], page)
    restless = [c["label"] for c in columns if c["wall"]["trend"]]
    if restless:
        page.item(f"Times rose or fell while measuring: {', '.join(restless)}.", "Measure again at a quieter time.")
    slowed = [c for c in columns if c["profiler_overhead_s"]]
    with page.details("profiler overhead"):
        if slowed:
            told = ", ".join(f"{c['label']} {units.time(c['profiler_overhead_s'])}" for c in slowed)
            page.line(f"Profiler overhead (what kernels take longer than a call without it): {told}.", indent=1)
    if document["sustained"]:
        sustained_text(document["sustained"], page)
    for column in columns[:1]:
        _kernels(column, document, page)
    with page.details("the kernels of the others"):
        for column in columns[1:]:
            _kernels(column, document, page)
    for column in columns:
        _inside(column, document, page)
    fed_inputs(document, page)
    missing(document["missing"], page)
    doubts(document["doubts"], page)
    page.heading("Kept")
    closing(document, page)


def profile_headline(columns: list[dict[str, Any]], clock: str) -> str:
    """The winner with its interval, or that there is none. `columns` are sorted, the fastest first."""
    fastest, *others = columns
    took = f"{units.time(fastest['level_s'])} of {units.CLOCKS[clock]}"
    if _on_software(fastest):
        return f"{fastest['label']} takes {took}, on a software device: no ratio is reported."
    others = [c for c in others if not _on_software(c)]
    if not others:
        return f"{fastest['label']} takes {took}{'' if columns[1:] else '; nothing else was compared'}."
    ties = [c for c in others if is_open(c["against_fastest"])]
    if ties:
        names = " and ".join(f"{c['label']} ({units.time(c['level_s'])})" for c in [fastest, *ties])
        only = f", ratio {_ratio(ties[0]['against_fastest'])}" if len(ties) == 1 else ""
        return f"No clear winner by {units.CLOCKS[clock]}: {names} are within the noise{only}."
    nearest = min(others, key=lambda c: c["against_fastest"]["ratio"])
    found = nearest["against_fastest"]
    if found["verdict"] == "tie" or found["unit"] != "process":
        return (
            f"No certain winner of so few processes: {fastest['label']} takes {took}, {nearest['label']} "
            f"{_ratio(found)} times as long."
        )
    gain = f"{units.digits(found['ratio'])} times as fast as {nearest['label']} {bounds(found)}"
    return f"{fastest['label']} is fastest: {took}, {gain}."


def _on_software(column: dict[str, Any]) -> bool:
    return any(device["software"] for device in column["accelerators"])


def _ratio(found: dict[str, Any]) -> str:
    return f"{units.digits(found['ratio'])} {bounds(found)}"


def _compared(columns: list[dict[str, Any]], clock: str, page: Page) -> None:
    fastest, *others = columns
    if others:
        page.heading(f"Against {fastest['label']}, by {units.CLOCKS[clock]} (a ratio above 1 is slower)")
        heads = [
            Column(title="configuration", number=False, least=20),
            Column(title="ratio"),
            Column(title="[95 % interval]", number=False, least=21),
        ]
        rows = [(c["label"], c["against_fastest"]) for c in others]
        page.table(heads, [[label, units.digits(f["ratio"]), compared(f)] for label, f in rows])
    page.line(f"{counted([c['wall'] for c in columns])}.", indent=1, style="dim")
    found = [(c["label"], c["against_fastest"]) for c in others]
    certainty(found, fastest["label"], max(c["wall"]["processes"] for c in columns), page)


def _profile_text_row(column: dict[str, Any]) -> list[str]:
    wall = column["wall"]
    return [
        column["label"],
        units.time(wall["median_s"]),
        units.interval(wall["low_s"], wall["high_s"], wall["median_s"]),
        units.time(wall["p10_s"]),
        units.time(wall["p90_s"]),
        units.time(column["cpu"]["median_s"]) if column["cpu"] else "not reported",
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
    top = sorted(kernels, key=lambda k: -k["time_s"])[: 3 if page.brief else _EXPENSIVE]
    page.heading(f"{column['label']}: the {len(top)} most expensive of {len(kernels)} kernels (with the profiler on)")
    # A model that was converted has operators of its own, of which the document tells nothing.
    own = any(row["times_s"].get(column["label"]) is not None for row in document["operators"])
    types = {row["index"]: row["type"] for row in document["operators"]} if own else {}
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
            units.counted_time(kernel["time_s"], document.get("resolutions_s", {}).get(column["label"], 0.0)),
            units.share(kernel["time_s"] / total),
            (numbers(kernel["operators"], most=3) if types else "") or "-",
            ", ".join(dict.fromkeys(types[index] for index in kernel["operators"] if types))
            or ("(no operator)" if types else "(converted)"),
            kernel["backend"],
        ]
        for kernel in top
    ]
    kept = len(heads) if page.width >= 100 else len(heads) - 1
    page.table(heads[:kept], [row[:kept] for row in rows])


def _inside(column: dict[str, Any], document: dict[str, Any], page: Page) -> None:
    """The kernels that were taken apart: every time with a mark, as none was measured inside the model."""
    taken = [part for part in column.get("inside", ()) if part["steps"]]
    whole = [part for part in column.get("inside", ()) if part["why"]]
    types = {row["index"]: row["type"] for row in document["operators"]}
    if taken:
        page.heading(f"{column['label']}: inside its kernels, derived (~) by {units.CLOCKS[document['clock']]}")
        heads = [
            Column(title="kernel", number=False, least=16),
            Column(title="operators", number=False),
            Column(title="types", number=False),
            Column(title="price"),
            Column(title="[95 % interval]", number=False, least=16),
            Column(title="alone"),
        ]
        rows = []
        for part in taken[: 1 if page.brief else _EXPENSIVE]:
            for step in part["steps"]:
                price = step["derived"]
                kinds = ", ".join(dict.fromkeys(types[index] for index in step["operators"]))
                told = [f"~{_signed(price['value_s'])}", _between(price), f"~{units.time(step['alone']['value_s'])}"]
                rows.append([part["kernel"], numbers(sorted(step["operators"]), most=3), kinds, *told])
            saved, name = part["saved"], part["kernel"]
            told = [f"~{_signed(saved['value_s'])}", _between(saved), f"~{units.time(part['together']['value_s'])}"]
            rows.append([name, "saved", "(as one)", *told])
        page.table(heads, rows, split=4)
        page.line(
            "Parts of a kernel were cut out and run by themselves: a price is what a part takes beyond the part before "
            "it, of the first with the call itself; saved: what the parts take one by one beyond all as one, with a "
            f"call for each but one. {min(p['saved']['processes'] for p in taken)} processes of each part.",
            indent=1,
            style="dim",
        )
        hidden = len(taken) - (1 if page.brief else _EXPENSIVE)
        if hidden > 0:
            page.line(f"{hidden} more kernels were taken apart; they are in --json.", indent=1, style="dim")
    for part in whole[: 1 if page.brief else _EXPENSIVE]:
        page.item(f"{column['label']}, {part['kernel']}: {part['why']}")
    if whole[1 if page.brief else _EXPENSIVE :]:
        page.line(f"{len(whole)} kernels in all were not, or not wholly, cut; --json has each reason.", indent=1)


def _signed(value: float) -> str:
    return f"-{units.time(-value)}" if value < 0 else units.time(value)


def _between(found: dict[str, Any]) -> str:
    if found["low_s"] is None or found["high_s"] is None:
        return "[not bounded]"
    return f"[{_signed(found['low_s'])}, {_signed(found['high_s'])}]"


def fleet_report(document: dict[str, Any], page: Page) -> None:
    """Write the report: a row a device, then what speaks against them and where the packages are."""
    answered = [d for d in document["devices"] if d["placement"]]
    page.headline(f"{len(answered)} of {len(document['devices'])} devices have a plan.")
    _devices(answered, page)
    for device in document["devices"]:
        if device["error"]:
            page.item(f"{device['name']} has no plan: {device['error']['message']}", device["error"]["hint"])
    _doubts(answered, page)
    page.heading("Written")
    for device in answered:
        page.path("package", device["placement"]["package"])
    page.path("record", document["record"])
    page.line(f"Elapsed: {units.duration(document['seconds'])}.", indent=2)


def _devices(answered: list[dict[str, Any]], page: Page) -> None:
    if not answered:
        return
    page.heading("Each device's own plan (median, [95 % interval])")
    columns = [
        Column(title="device", number=False, least=8, most=20),
        Column(title="plan", number=False, least=12, most=32),
        Column(title="time"),
        Column(title="", number=False, least=14),
        Column(title="gain"),
        Column(title="proven"),
        Column(title="warnings"),
    ]
    page.table(columns, [_fleet_text_row(device) for device in answered])
    page.line(
        "gain: how many times as fast as the best way there that does not mix; proven: operators that ran where "
        "planned, as reported by the runtime.",
        indent=1,
        style="dim",
    )


def _fleet_text_row(device: dict[str, Any]) -> list[str]:
    found = device["placement"]
    decision = found["decision"]
    chosen = next(c for c in found["contenders"] if c["label"] == decision["chosen"])
    measured = chosen["cpu"] if found["clock"] == "cpu" else chosen["measured"]
    gain = decision["speedup_vs_best_single"]
    planned = [row for row in found["operators"] if row["planned"]]
    moved = len(found["verified"]["moved"])
    verified = found["verified"]
    proven = f"{len(planned) - moved} of {len(planned)}"
    if verified["failure"] or verified["skipped"]:
        proven = "failed" if verified["failure"] else "not run"
    return [
        device["name"],
        decision["chosen"],
        units.time(measured["median_s"]),
        units.interval(measured["low_s"], measured["high_s"], measured["median_s"]),
        "-" if gain is None else units.digits(gain["ratio"]),
        proven,
        str(len(found["doubts"])) if found["doubts"] else "-",
    ]


def _doubts(answered: list[dict[str, Any]], page: Page) -> None:
    rows = [(device["name"], doubt) for device in answered for doubt in device["placement"]["doubts"]]
    if not rows:
        return
    page.heading("Warnings")
    for name, doubt in rows:
        page.item(f"{name}: {doubt['message']}.", doubt["hint"])


def sweep_report(document: dict[str, Any], page: Page, **_: object) -> None:
    """Write the report: a row for each part, then what speaks against them and where the packages are."""
    page.headline(sweep_headline(document))
    answers = answers_of(document)
    page.line(f"The first: {conditions_line(answers[0])}")
    warnings = list({row["message"]: row for answer in answers for row in answer["doubts"]}.values())
    first_warnings(warnings, page)
    columns = [Column(title=name, number=False) for name in document["parts"][0]["values"]]
    columns += [Column(title="choice", number=False, least=16), Column(title="time")]
    columns += [Column(title="[95 % interval]", number=False, least=16), Column(title="times as fast as the next")]
    page.table(columns, [[*part["values"].values(), *_sweep_row(part["answer"])] for part in document["parts"]])
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


def sweep_headline(document: Mapping[str, Any]) -> str:
    """Which choice is for which values."""
    by_choice: dict[str, list[str]] = {}
    for part in document["parts"]:
        if part["answer"]:
            by_choice.setdefault(_sweep_row(part["answer"])[0], []).append(label_of(part["values"]))
    if [len(labels) for labels in by_choice.values()] == [len(document["parts"])]:
        return f"{next(iter(by_choice))} for all {len(document['parts'])}."
    return f"{'; '.join(f'{choice} for {listed(labels)}' for choice, labels in by_choice.items())}."


def _sweep_row(answer: Mapping[str, Any] | None) -> list[str]:
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

"""The report of `gnomon place`, made from its JSON document alone."""

from __future__ import annotations

import shlex
from typing import Any

from gnomon.report import units
from gnomon.report.common import (
    CLOCKS,
    bounds,
    certainty,
    closing,
    counted,
    doubts,
    failure_text,
    first_warnings,
    missing,
    model_line,
)
from gnomon.report.spans import assignment_text, numbers
from gnomon.report.text import Column, Page

_EXPENSIVE = 10


def place_report(document: dict[str, Any], page: Page, *, own_record: bool = False) -> None:
    """Write the report: the answer first, then what it rests on, then what speaks against it.

    `own_record` says that the record was named by an option, and must be named again to show it.
    """
    page.headline(document["decision"]["reason"])
    speedup = document["decision"]["speedup_vs_best_single"]
    if speedup:
        page.line(f"95 % interval of the gain: {_times(speedup['low'])} to {_times(speedup['high'])} times as fast.")
    first_warnings(document["doubts"], page)
    page.line(model_line(document))
    _contenders(document, page)
    _prediction(document, page)
    _plan(document, page)
    _verified(document, page)
    _unattributed(document, page)
    missing(document["missing"], page, known={c["label"] for c in document["contenders"] if c["failure"]})
    doubts(document["doubts"], page)
    _files(document, page)
    closing(document, page, own_record=own_record)


def _times(value: float | None) -> str:
    return "unknown" if value is None else units.digits(value)


def _contenders(document: dict[str, Any], page: Page) -> None:
    clock = document["clock"]
    page.heading(f"One inference, decided by {CLOCKS[clock]} (median, [95 % interval])")
    main = "cpu" if clock == "cpu" else "measured"
    columns = [
        Column(title="way to run", number=False, least=20),
        Column(title="CPU" if clock == "cpu" else "wall"),
        Column(title="", number=False, least=16),
        Column(title="ratio"),
        Column(title="to the best single", number=False, least=21),
        Column(title="predicted"),
        Column(title="wall" if clock == "cpu" else "CPU"),
        Column(title="peak memory"),
        Column(title="outputs off by"),
    ]
    alive = [c for c in document["contenders"] if not c["failure"] and c[main]]
    alive.sort(key=lambda c: c["level_s"])
    chosen = frozenset(k for k, c in enumerate(alive) if c["label"] == document["decision"]["chosen"])
    page.table(columns, [_row(contender, document) for contender in alive], split=5, bold=chosen)
    kinds = {c["kind"] for c in document["contenders"]}
    notes = ["> is the choice", "a ratio below 1 is faster"]
    if "plan" in kinds:
        notes.append("plan: the solver's")
    if "greedy" in kinds:
        notes.append("greedy: each part where it alone is fastest")
    if clock == "wall":
        notes.append("order and ratio are of the fastest 20 % of calls, which nothing else interrupted")
    notes.append(counted([c[main] for c in alive]))
    page.line("; ".join(notes) + ".", indent=1, style="dim")
    best = document["decision"]["best_single"]
    certainty([(c["label"], c["against_best"]) for c in alive], best, max(c[main]["processes"] for c in alive), page)
    for contender in document["contenders"]:
        if contender["failure"]:
            page.item(f"{contender['label']} was refused: {failure_text(contender['failure'])}")
    restless = [c["label"] for c in alive if c[main]["trend"]]
    if restless:
        page.item(f"Times rose or fell while measuring: {', '.join(restless)}.", "Measure again at a quieter time.")


def _row(contender: dict[str, Any], document: dict[str, Any]) -> list[str]:
    main, other = ("cpu", "measured") if document["clock"] == "cpu" else ("measured", "cpu")
    found, ratio, label = contender[main], contender["against_best"], contender["label"]
    best = label == document["decision"]["best_single"]
    return [
        ("> " if label == document["decision"]["chosen"] else "  ") + label,
        units.time(found["median_s"]),
        units.interval(found["low_s"], found["high_s"], found["median_s"]),
        "1" if best else units.digits(ratio["ratio"]) if ratio else "-",
        "(is the best single)" if best else _verdict(ratio),
        units.time(contender["predicted_s"]),
        units.time(contender[other]["median_s"]) if contender[other] else "-",
        units.mebibytes(contender["peak_rss_bytes"]),
        units.small((contender["difference"] or {}).get("absolute")),
    ]


def _verdict(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return ""
    return f"{bounds(ratio)} {ratio['verdict']}"


def _prediction(document: dict[str, Any], page: Page) -> None:
    mixes = [c for c in document["contenders"] if c["kind"] != "single" and c["prediction_error"] is not None]
    # By wall time a prediction is of the lower fifth of the calls, which nothing else interrupted.
    how = "" if document["clock"] == "cpu" else " in its undisturbed calls"
    for contender in mixes:
        predicted, took = units.time(contender["predicted_s"]), units.time(contender["level_s"])
        page.line(
            f"Prediction: {contender['label']} was predicted to take {predicted}; it took {took}{how} "
            f"(prediction off by {units.percent(contender['prediction_error'])})."
        )
    if document["why_not_mixed"]:
        ideal = document["ideal_s"]
        told = f" Every block on its fastest runtime would take {units.time(ideal)}." if ideal else ""
        why = document["why_not_mixed"]
        why = f"N{why[1:]}" if why.startswith("not cut") else f"Not mixed: {why}"
        page.line(f"{why}.{told}")
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
    # Each with its time in the choice; a kernel of no operator has one only where the choice is the column's own.
    rows: list[tuple[float, float, list[str]]] = [
        (
            time_s or 0.0,
            time_s or 0.0,
            [f"{row['index']} {row['name']}", row["type"], row["planned"] or "-", *(_cell(row, n) for n in shown)],
        )
        for row, time_s in zip(document["operators"], chosen["operators_s"], strict=True)
    ]
    own = _own_kernels(document, shown)
    for label, kernel in own:
        if kernel["operators"]:
            continue  # of the whole model
        cells = [units.time(kernel["time_s"]) if name == label else "-" for name in shown]
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
    page.heading(f"The {len(top)} most expensive {kind}{share} ({CLOCKS[document['clock']]})")
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


def _cell(row: dict[str, Any], name: str) -> str:
    other = row["within"].get(name)
    return units.time(row["times_s"][name]) if other is None else f"with {other}"


def _own_kernels(document: dict[str, Any], shown: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """The kernels of no operator, by the column that they stand in."""
    return [(c["label"], kernel) for c in document["contenders"] if c["label"] in shown for kernel in c["kernels"]]


def _verified(document: dict[str, Any], page: Page) -> None:
    found, operators = document["verified"], document["operators"]
    page.heading("The package, run from its own files")
    if found["failure"]:
        page.item(f"It failed: {failure_text(found['failure'])}", "Do not deploy it; measure again.")
        return
    if found["skipped"]:
        page.line("It was not run: nothing was to be measured any more.", indent=1)
        return
    planned = [row for row in operators if row["planned"]]
    good = len(planned) - len(found["moved"])
    page.line(f"{good} of {len(planned)} operators ran where planned, by the runtime's own account.", indent=1)
    if found["moved"]:
        page.item(f"Ran elsewhere: operators {numbers(found['moved'])}.", "Do not deploy it before you know why.")
    off = found["difference"]
    if off and off["absolute"] == 0:
        page.line("Its outputs equal the reference.", indent=1)
    elif off:
        page.line(
            f"Its outputs differ from the reference by at most {units.small(off['absolute'])}, which is "
            f"{units.small(off['relative'])} of the largest.",
            indent=1,
        )
    if document.get("reference"):
        page.line(f"The reference: {document['reference']}.", indent=1)


def _unattributed(document: dict[str, Any], page: Page) -> None:
    found = [c for c in document["contenders"] if c["unattributed_s"] is not None]
    if not found:
        return
    page.heading(f"Unattributed time ({CLOCKS[document['clock']]} in no operator and no kernel)")
    heads = [Column(title="configuration", number=False), Column(title="time"), Column(title="profiler overhead")]
    rows = [[c["label"], units.time(c["unattributed_s"]), units.time(c["profiler_overhead_s"] or None)] for c in found]
    overhead = any(c["profiler_overhead_s"] for c in found)
    kept = len(heads) if overhead else len(heads) - 1
    page.table(heads[:kept], [row[:kept] for row in rows])
    if overhead:
        page.line("Operators that take longer with the profiler are scaled down.", indent=1, style="dim")


def _files(document: dict[str, Any], page: Page) -> None:
    page.heading("Written")
    package, device = document["package"], document["device"]
    if device != "local":
        page.line(
            f"To run it on {device}, copy the package there first. The Python there needs what the package's "
            "README.txt names: what gnomon brought was for measuring.",
            indent=2,
        )
    page.path("package", package)
    page.path("run it", f"cd {shlex.quote(package)} && python gnomon-agent.pyz run plan.json --output out.npz")
    for picture in document["pictures"]:
        page.path("picture", picture)

"""The report of `gnomon stab`, made from its JSON document alone."""

from __future__ import annotations

import shlex
from typing import Any

from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import assignment_text, conditions, doubts, failure_text, numbers, unproved


def stab_report(document: dict[str, Any], page: Page) -> None:
    """Write the report: the answer, the predictions of both rules, the proof, then what speaks against it."""
    proof = document["proof"]
    page.headline(_answer(document))
    if proof is not None:
        conditions(proof, page)
    else:
        threads = document["threads"]
        page.line(f"By times of onert's traces, {'one thread' if threads == 1 else f'{threads} threads'}.")
    _predictions(document, page)
    _published(document, page)
    page.heading("The placement that was written, operator by operator")
    page.line(assignment_text([row["written"] or "-" for row in document["operators"]]), indent=1)
    with page.details("every operator"):
        _operators(document, page)
    if proof is not None:
        _proof(proof, page)
    with page.details("what the traces do not contain"):
        page.heading("What the traces do not contain")
        for lack in document["exact"]["lacks"]:
            page.item(lack)
    doubts([*document["doubts"], *(proof["doubts"] if proof else [])], page)
    _files(document, page)


def _answer(document: dict[str, Any]) -> str:
    if document["written"] == "published":
        return "Written as ONE's stab would have it; this placement was not run."
    if document["proof"] is not None:
        return str(document["proof"]["decision"]["reason"])
    exact, single = document["exact"], document["exact"]["best_single"]
    if not exact["mixes"]:
        return f"By the traces no mix is faster than {single} alone; nothing was run."
    gain = document["singles"][single] / exact["predicted_us"] if exact["predicted_us"] else float("inf")
    return f"By the traces a mix is {units.digits(gain)} times as fast as {single} alone; nothing was run."


def _us(value: float | None) -> str:
    return units.time(None if value is None else value * 1e-6)


def _traced(value: float | None) -> str:
    """A time of a trace, which knows whole microseconds."""
    return "< 1 us" if value is not None and value < 1 else _us(value)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{backend} {count}" for backend, count in counts.items() if count)


def _predictions(document: dict[str, Any], page: Page) -> None:
    page.heading("Sums of the operators' average times in the traces")
    exact, published = document["exact"], document["published"]
    wholes = {trace["backend"]: trace["whole_run_us"] for trace in document["traces"]}
    rows = [[f"{b} alone", _us(us), _us(wholes.get(b)), ""] for b, us in document["singles"].items()]
    if published["decides"]:
        rows.append(["as ONE's stab decides", _us(published["predicted_us"]), "-", _counts(published["counts"])])
    rows.append(["exact, by the traces", _us(exact["predicted_us"]), "-", _counts(exact["counts"])])
    heads = [
        Column(title="configuration", number=False),
        Column(title="sum"),
        Column(title="whole run"),
        Column(title="operators", number=False),
    ]
    page.table(heads, rows)
    proved = "the exact minimum of these times" if exact["optimal"] else "the best found, not proved the minimum"
    page.line(f"Solver: {proved}, by {exact['method']}.", indent=1)


def _published(document: dict[str, Any], page: Page) -> None:
    published = document["published"]
    if not published["decides"]:
        page.line(f"ONE's stab cannot decide from these traces: {published['why_not']}.", indent=1)
        return
    if published["why_not"]:
        page.line(f"ONE's stab would end with {published['why_not']}, and write nothing.", indent=1)
    unlike = published["unlike_exact"]
    told = f"It places operators {numbers(unlike)} otherwise." if unlike else "It places every operator alike."
    page.line(f"ONE's stab: default {published['default']}. {told}", indent=1)
    if document["written"] == "published":
        page.heading("Its configuration")
        for key, value in published["settings"].items():
            page.path("", f"{key}={value}")


def _operators(document: dict[str, Any], page: Page) -> None:
    backends = list(dict.fromkeys(b for row in document["operators"] for b in row["times_us"]))
    heads = [
        Column(title="operator", number=False),
        Column(title="type", number=False, most=24),
        *(Column(title=backend) for backend in backends),
        Column(title="exact", number=False, least=6),
        Column(title="stab", number=False, least=6),
        Column(title="ran on", number=False, least=6),
    ]
    rows = [
        [
            str(row["index"]),
            row["type"],
            *(_traced(row["times_us"].get(backend)) for backend in backends),
            row["exact"],
            row["published"] or "-",
            row["ran_on"] or "-",
        ]
        for row in document["operators"]
    ]
    page.table(heads, rows)
    if any(row["times_us"].get(backend, 1) < 1 for row in document["operators"] for backend in backends):
        page.line("< 1 us: below the resolution of the traces.", indent=1, style="dim")


def _proof(proof: dict[str, Any], page: Page) -> None:
    best, chosen = proof["decision"]["best_single"], proof["decision"]["chosen"]
    why = unproved(proof)
    page.heading(f"{'Measured' if why else 'Proved'} on {proof['device']}")
    for contender in sorted(proof["contenders"], key=lambda c: c["level_s"] or float("inf")):
        if contender["failure"]:
            page.item(f"{contender['label']} was refused: {failure_text(contender['failure'])}")
            continue
        marks = [m for m, here in (("written", chosen), ("best single backend", best)) if contender["label"] == here]
        told = f" ({', '.join(marks)})" if marks else ""
        found = contender["cpu"] if proof["clock"] == "cpu" else contender["measured"]
        interval = units.interval(found["low_s"], found["high_s"], found["median_s"])
        counted = f"{found['processes']} processes, {found['n']} samples"
        page.line(f"{contender['label']}: {units.time(found['median_s'])} {interval}, {counted}{told}", indent=1)
    found = proof["verified"]
    if found["failure"]:
        page.item(f"The package failed: {failure_text(found['failure'])}", "Do not deploy it; measure again.")
        return
    planned = [row for row in proof["operators"] if row["planned"]]
    good = len(planned) - len(found["moved"])
    page.line(f"{good} of {len(planned)} operators ran where planned, as reported by onert's trace.", indent=1)
    off = found["difference"]
    if why:
        page.item(f"{why[:1].upper()}{why[1:]}.")
    elif off and off["absolute"] == 0:
        page.line("Its outputs equal the reference.", indent=1)
    elif off:
        page.line(f"Its outputs differ from the reference by at most {units.small(off['absolute'])}.", indent=1)


def _files(document: dict[str, Any], page: Page) -> None:
    page.heading("Written")
    package = document["package"]
    page.path("package", package)
    page.path("run it", f"cd {shlex.quote(package)} && python gnomon/gnomon-agent.pyz run gnomon/plan.json")
    page.path("or", f". {shlex.quote(package + '/gnomon/environment.sh')}")
    if document["profiled"]:
        for trace in document["traces"]:
            page.path("trace", trace["file"])

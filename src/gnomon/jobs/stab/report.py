"""The report of `gnomon stab`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.shared_report import conditions_line, doubts, unproved
from gnomon.jobs.stab.document import StabDocument
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import assignment_text, failure_text, numbers


def stab_report(document: StabDocument, page: Page) -> None:
    """Write the report: the answer, the predictions of both rules, the proof, then what speaks against it."""
    proof, threads = document.proof, document.threads
    page.headline(document.headline()[1])
    if proof is not None:
        page.line(conditions_line(proof.model, proof.device, proof.conditions))
    else:
        page.line(f"By times of onert's traces, {'one thread' if threads == 1 else f'{threads} threads'}.")
    _predictions(document, page)
    _published(document, page)
    page.heading("The placement that was written, operator by operator")
    page.line(assignment_text([row.written or "-" for row in document.operators]), indent=1)
    with page.details("every operator"):
        _operators(document, page)
    if proof is not None:
        _proof(proof, page)
    with page.details("what the traces do not contain"):
        page.heading("What the traces do not contain")
        for lack in document.exact.lacks:
            page.item(lack)
    doubts([*document.doubts, *(proof.doubts if proof else ())], page)
    page.heading("Written")
    package = document.package
    page.path("package", package)
    page.path("run it", f"cd {shlex.quote(package)} && python gnomon/gnomon-agent.pyz run gnomon/plan.json")
    page.path("or", f". {shlex.quote(package + '/gnomon/environment.sh')}")
    if document.profiled:
        for trace in document.traces:
            page.path("trace", trace.file)


def _us(value: float | None) -> str:
    return units.time(None if value is None else value * 1e-6)


def _traced(value: float | None) -> str:
    """A time of a trace, which knows whole microseconds."""
    return "< 1 us" if value is not None and value < 1 else _us(value)


def _counts(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{backend} {count}" for backend, count in (counts or {}).items() if count)


def _predictions(document: StabDocument, page: Page) -> None:
    page.heading("Sums of the operators' average times in the traces")
    exact, published = document.exact, document.published
    wholes = {trace.backend: trace.whole_run_us for trace in document.traces}
    rows = [[f"{backend} alone", _us(us), _us(wholes.get(backend)), ""] for backend, us in document.singles.items()]
    if published.decides:
        rows.append(["as ONE's stab decides", _us(published.predicted_us), "-", _counts(published.counts)])
    rows.append(["exact, by the traces", _us(exact.predicted_us), "-", _counts(exact.counts)])
    heads = [
        Column(title="configuration", number=False),
        Column(title="sum"),
        Column(title="whole run"),
        Column(title="operators", number=False),
    ]
    page.table(heads, rows)
    proved = "the exact minimum of these times" if exact.optimal else "the best found, not proved the minimum"
    page.line(f"Solver: {proved}, by {exact.method}.", indent=1)


def _published(document: StabDocument, page: Page) -> None:
    published = document.published
    if not published.decides:
        page.line(f"ONE's stab cannot decide from these traces: {published.why_not}.", indent=1)
        return
    if published.why_not:
        page.line(f"ONE's stab would end with {published.why_not}, and write nothing.", indent=1)
    unlike = published.unlike_exact
    placed = f"It places operators {numbers(unlike)} otherwise." if unlike else "It places every operator alike."
    page.line(f"ONE's stab: default {published.default}. {placed}", indent=1)
    if document.written == "published":
        page.heading("Its configuration")
        for key, value in (published.settings or {}).items():
            page.path("", f"{key}={value}")


def _operators(document: StabDocument, page: Page) -> None:
    backends = list(dict.fromkeys(backend for row in document.operators for backend in row.times_us))
    heads = [
        Column(title="operator", number=False),
        Column(title="type", number=False, most=24),
        *(Column(title=backend) for backend in backends),
        *(Column(title=title, number=False, least=6) for title in ("exact", "stab", "ran on")),
    ]
    rows = [
        [
            str(row.index),
            row.type,
            *(_traced(row.times_us.get(backend)) for backend in backends),
            row.exact,
            row.published or "-",
            row.ran_on or "-",
        ]
        for row in document.operators
    ]
    page.table(heads, rows)
    if any(row.times_us.get(backend, 1) < 1 for row in document.operators for backend in backends):
        page.line("< 1 us: below the resolution of the traces.", indent=1, style="dim")


def _proof(proof: PlaceDocument, page: Page) -> None:
    best, chosen = proof.decision.best_single, proof.decision.chosen
    why = unproved(proof.doubts, proof.reference, proof.reference_checked_by)
    page.heading(f"{'Measured' if why else 'Proved'} on {proof.device}")
    for contender in sorted(proof.contenders, key=lambda c: c.level_s or float("inf")):
        summary = contender.summary(proof.clock)
        if contender.failure:
            page.item(f"{contender.label} was refused: {failure_text(contender.failure)}")
        elif summary is not None:
            marks = [m for m, label in (("written", chosen), ("best single backend", best)) if contender.label == label]
            marked = f" ({', '.join(marks)})" if marks else ""
            interval = units.interval(summary.low_s, summary.high_s, summary.median_s)
            took = f"{units.time(summary.median_s)} {interval}"
            counted = f"{summary.processes} processes, {summary.n} samples"
            page.line(f"{contender.label}: {took}, {counted}{marked}", indent=1)
    verified, difference = proof.verified, proof.verified.difference
    if verified.failure:
        page.item(f"The package failed: {failure_text(verified.failure)}", "Do not deploy it; measure again.")
        return
    planned = sum(row.planned is not None for row in proof.operators)
    good = planned - len(verified.moved)
    page.line(f"{good} of {planned} operators ran where planned, as reported by onert's trace.", indent=1)
    if why:
        page.item(f"{why[:1].upper()}{why[1:]}.")
    elif difference and difference.absolute == 0:
        page.line("Its outputs equal the reference.", indent=1)
    elif difference:
        page.line(f"Its outputs differ from the reference by at most {units.small(difference.absolute)}.", indent=1)

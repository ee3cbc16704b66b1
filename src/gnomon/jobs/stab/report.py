"""The report of `gnomon stab`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from gnomon.jobs.place.report import contenders_table, package_proof
from gnomon.jobs.place.shared_report import conditions_line, doubts, first_warnings
from gnomon.jobs.stab.document import ScheduledOperator, StabDocument
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS
from gnomon.report.page import Page, Table
from gnomon.report.parts import assignment_text, numbers
from gnomon.report.plain import many


def stab_report(document: StabDocument, page: Page) -> None:
    """Write the report: the answer, the predictions of both rules, the proof, and the doubts about it."""
    proof, threads = document.proof, document.threads
    page.headline(document.headline()[1])
    if proof is not None:
        page.conditions(conditions_line(proof.model, proof.device, proof.conditions))
    else:
        page.conditions(f"Decided from the times in onert's traces, {many(threads, 'thread')}.")
    warnings = [*document.doubts, *(proof.doubts if proof else ())]
    first_warnings(warnings, page)
    with page.details("sums of the traces") if proof else nullcontext():
        _predictions(document, page)
        _published(document, page)
    with page.details("every operator"):
        page.heading("The placement that was written, operator by operator")
        page.line(assignment_text([row.written or "-" for row in document.operators]), indent=1)
        _operators(document, page)
    if proof is not None:
        contenders_table(proof, page)
        package_proof(proof, page)
    with page.details("what the traces do not contain"):
        page.heading("What the traces do not contain")
        for lack in document.exact.lacks:
            page.item(lack)
    doubts(warnings, page)
    package = document.package
    page.path("run it", f"cd {shlex.quote(package)} && python gnomon/gnomon-agent.pyz run gnomon/plan.json")
    with page.details("the files"):
        page.path("or", f". {shlex.quote(package + '/gnomon/environment.sh')}")
        page.path("package", package)
        if document.profiled:
            for trace in document.traces:
                page.path("trace", trace.file)


def _us(value: float | None) -> str:
    return units.time(None if value is None else value * 1e-6)


def _traced(value: float | None) -> str:
    """A time from a trace, in whole microseconds."""
    return "< 1 us" if value is not None and value < 1 else _us(value)


def _counts(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{backend} {count}" for backend, count in (counts or {}).items() if count)


def _predictions(document: StabDocument, page: Page) -> None:
    page.heading("Sums of the operators' average times in the traces")
    exact, published = document.exact, document.published
    wholes = {trace.backend: trace.whole_run_us for trace in document.traces}
    rows = [(f"{backend} alone", us, _us(wholes.get(backend)), "") for backend, us in document.singles.items()]
    if published.decides:
        rows.append(("as ONE's stab decides", published.predicted_us, "-", _counts(published.counts)))
    rows.append(("exact, from the traces", exact.predicted_us, "-", _counts(exact.counts)))
    page.table(
        Table(rows)
        .text("configuration", lambda row: row[0])
        .number("sum", lambda row: row[1], _us)
        .number("whole run", lambda row: row[2])
        .text("operators", lambda row: row[3])
        .bars(
            "Sums of the operators' average times in the traces",
            lambda row: (None if row[1] is None else row[1] * 1e-6, None, None),
            lambda row: CHOSEN if row is rows[-1] else LOOKS[0],
        )
    )


def _published(document: StabDocument, page: Page) -> None:
    published = document.published
    if not published.decides:
        page.line(f"ONE's stab cannot decide from these traces: {published.why_not}.", indent=1)
        return
    if published.why_not:
        page.line(f"ONE's stab would end with {published.why_not} and write no package.", indent=1)
    ops = published.unlike_exact
    placed = f"differs from the exact decision in operators {numbers(ops)}" if ops else "equals the exact decision"
    page.line(f"ONE's stab: default backend {published.default}; {placed}.", indent=1)
    if document.written == "published":
        page.heading("The configuration of ONE's stab")
        for key, value in (published.settings or {}).items():
            page.path("", f"{key}={value}")


def _operators(document: StabDocument, page: Page) -> None:
    backends = list(dict.fromkeys(backend for row in document.operators for backend in row.times_us))
    table = Table(document.operators).text("operator", lambda row: str(row.index))
    table.text("type", lambda row: row.type, most=24)
    for backend in backends:
        table.number(backend, _times_on(backend))
    table.text("exact", lambda row: row.exact, least=6).text("stab", lambda row: row.published or "-", least=6)
    page.table(table.text("ran on", lambda row: row.ran_on or "-", least=6))
    if any(row.times_us.get(backend, 1) < 1 for row in document.operators for backend in backends):
        page.line("< 1 us: below the resolution of the traces.", indent=1, style="dim")


def _times_on(backend: str) -> Callable[[ScheduledOperator], str]:
    return lambda row: _traced(row.times_us.get(backend))

"""The reports of `gnomon runs`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gnomon.jobs.runs.document import BroughtDocument, CampaignRow, CandidatePart, RunDocument, RunsDocument
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.parts import failure_text


def runs_report(document: RunsDocument, page: Page) -> None:
    """Write the campaigns, the newest first."""
    campaigns = document.campaigns
    if not campaigns:
        page.line("The results database is empty. To measure a model: gnomon place MODEL")
    else:
        page.table(
            Table(campaigns)
            .text("id", lambda row: row.campaign.id[:8])
            .text("started", lambda row: _when(row.campaign.started_at_s))
            .text("what", lambda row: row.campaign.kind)
            .text("model", lambda row: row.campaign.context.model_name, most=28)
            .number("runs", lambda row: row.runs)
            .number("failed", lambda row: row.failures or "-")
            .text("decided", _decided)
        )
        if document.more:
            page.line("For more campaigns, give a higher --limit.", indent=1)
        page.line("Details of a campaign: gnomon runs show ID", indent=1, style="dim")
    page.path("record", document.record)


def brought_report(document: BroughtDocument, page: Page) -> None:
    """Write the numbers of campaigns, runs and events from each file."""
    page.headline(document.headline()[1] if any(file.runs for file in document.files) else "No new runs were added.")
    page.table(
        Table(document.files)
        .text("file", lambda file: file.path, most=64)
        .number("campaigns", lambda file: file.campaigns)
        .number("runs", lambda file: file.runs)
        .number("events", lambda file: file.events)
    )
    page.path("record", document.record)


def _decided(row: CampaignRow) -> str:
    left = "running" if row.running else "failed" if row.failed else "interrupted"
    return _decision(row.decision) if row.finished else left


def _decision(decision: Mapping[str, object] | None) -> str:
    facts = decision or {}
    front = facts.get("front")
    many = "" if not front else "a front of 1 point" if front == 1 else f"a front of {front} points"
    return str(facts.get("chosen") or facts.get("fastest") or many)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def run_report(document: RunDocument, page: Page) -> None:
    """Write one campaign, with a line for each candidate."""
    row = document.row
    campaign, context = row.campaign, row.campaign.context
    decision = row.decision or {}
    gone_on = "interrupted; to continue, repeat the command"
    if row.failed:
        gone_on = f"failed: {row.failed.get('message', '')}".rstrip(".")
    state = "finished" if row.finished else "running" if row.running else gone_on
    fastest = f"{_decision(decision)} is the fastest." if _decision(decision) else ""
    page.headline(str(decision.get("reason") or fastest or f"{state[:1].upper()}{state[1:]}."))
    page.line(f"{campaign.kind} of {context.model_name}, {_when(campaign.started_at_s)}, {state}.")
    versions = ", ".join(f"{name} {version}" for name, version in sorted(context.versions.items()))
    page.line(f"gnomon {context.gnomon_version}, {versions}; {row.runs} runs, {row.failures} failed.")
    page.line(_where(document))
    page.line(f"id {campaign.id}")
    page.heading(f"Configurations ({'CPU' if document.clock == 'cpu' else 'wall'} time: median, [95 % interval])")
    page.table(
        Table(document.candidates)
        .text("configuration", lambda candidate: candidate.candidate, most=64)
        .number("time", _time)
        .text("", lambda row: units.interval(r.low_s, r.high_s, r.median_s) if (r := row.summary) else "", least=16)
        .number("processes", lambda candidate: candidate.summary.processes if candidate.summary else "-")
        .number("runs", lambda candidate: candidate.runs)
        .number("failed", lambda candidate: candidate.failures or "-")
    )
    if any(candidate.last_failure for candidate in document.candidates):
        page.heading("Failures")
    for candidate in document.candidates:
        if candidate.last_failure:
            page.item(f"{candidate.candidate}: {failure_text(candidate.last_failure)}")


def _where(document: RunDocument) -> str:
    """The device, with its name if the campaign recorded one, and the number of threads."""
    context = document.row.campaign.context
    machine = context.device.get("cpu_model") or context.device.get("machine") or "an unknown processor"
    noted: Mapping[str, object] = next((event.data for event in document.events if event.name == "lab"), {})
    name, address = noted.get("device"), noted.get("address")
    place = "" if not name else f"{name}, " if name == address else f"{name} ({address}), "
    threads = context.options.get("threads")
    counts = ", ".join(map(str, threads)) if isinstance(threads, list) else str(threads)
    shown = "" if threads is None else f"; {counts} {'thread' if threads == 1 else 'threads'}"
    return f"On {place}{machine}{shown}."


def _time(candidate: CandidatePart) -> str:
    if candidate.summary is None:
        return "profiled" if candidate.profiled_runs else "-"
    return units.time(candidate.summary.median_s)

"""The reports of `gnomon unattended`, made from their JSON documents alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gnomon.report import units
from gnomon.report.page import Column, Page

_LINES = 8


def jobs_report(document: dict[str, Any], page: Page) -> None:
    """The jobs of a device, the newest first."""
    if not document["jobs"]:
        page.line(f"No search runs on {document['device']} by itself. To start one: gnomon pareto MODEL --unattended")
        return
    heads = [
        Column(title="id", number=False),
        Column(title="made", number=False),
        Column(title="model", number=False, most=28),
        Column(title="state", number=False, least=20, most=60),
    ]
    page.table(heads, [[job["id"], _day(job["made_at_s"]), job["model"], _state(job)] for job in document["jobs"]])


def job_report(job: dict[str, Any], page: Page) -> None:
    """One job."""
    page.headline(f"{job['id']} on {job['device']}: {_state(job)}.")
    page.line(f"{job['model']}, made {_day(job['made_at_s'])} by the device's clock, {_times(job['starts'])}.")
    if job["log"]:
        page.heading("The last lines of its log")
        for line in job["log"][-_LINES:]:
            page.line(line, indent=1)
    page.line("")
    page.path("folder", f"{job['folder']} (on {job['device']})")
    for verb in _next(job["state"]):
        page.path(verb, f"gnomon unattended {verb} {job['id']} --device {job['device']}")


def carried_report(document: dict[str, Any], page: Page) -> None:
    """What came of carrying a search to a device."""
    job = document["job"]
    if document["made"]:
        page.headline(f"The search runs on {job['device']} by itself, as {job['id']}.")
    elif document["started"]:
        page.headline(f"The search was on {job['device']} already, as {job['id']}: it goes on from its record there.")
    else:
        page.headline(f"The search is on {job['device']} already, as {job['id']}: {_state(job)}.")
    for verb in ("status", "fetch", *(["stop"] if job["state"] in ("running", "waiting") else [])):
        page.path(verb, f"gnomon unattended {verb} {job['id']} --device {job['device']}")


def fetched_report(document: dict[str, Any], page: Page) -> None:
    """What was brought from a job."""
    job, files = document["job"], document["files"]
    page.headline(f"{job['id']} on {job['device']}: {_state(job)}.")
    if job["state"] in ("failed", "vanished"):
        for line in job["log"][-_LINES:]:
            page.line(line, indent=1)
    if document["document"] is None:
        page.line("There is no result yet; what it has run is here.")
    count = document["runs"]
    page.line(f"{count} run{'' if count == 1 else 's'} {'is' if count == 1 else 'are'} new in the results database.")
    page.path("folder", document["folder"])
    tops = dict.fromkeys(name.partition("/")[0] for name in files)
    page.path("files", ", ".join(tops) or "none")
    page.path("record", document["record"])


def _state(job: dict[str, Any]) -> str:
    stage, state = job["stage"], job["state"]
    if state == "failed":
        return f"failed with exit code {job['exit_code']}"
    if state == "waiting":
        return f"waiting for the device{', where ' + job['reason'] if job['reason'] else ''}"
    if state == "running" and stage is not None:
        unit = "evaluations" if stage["name"] == "search" else "steps"
        left = "" if stage["left_s"] is None else f", {units.duration(stage['left_s'])} left"
        return f"running ({stage['name']}: {stage['done']} of {stage['total']} {unit}{left})"
    return f"{state} ({job['reason']})" if job["reason"] else str(state)


def _next(state: str) -> tuple[str, ...]:
    return ("fetch", "stop") if state in ("running", "waiting") else ("fetch", "start", "remove")


def _times(count: int) -> str:
    return "started once" if count == 1 else f"started {count} times"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")

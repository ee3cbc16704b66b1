"""The reports of `gnomon runs`, `gnomon solve` and `gnomon runtimes`, made from their JSON documents alone.

The report of `gnomon front`, made from its JSON document alone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import assignment_text, failure_text


def runs_report(document: dict[str, Any], page: Page) -> None:
    """The campaigns, the newest first."""
    campaigns = document["campaigns"]
    if not campaigns:
        page.line("The record is empty. Measure something: gnomon place MODEL")
    else:
        heads = [
            Column(title="id", number=False),
            Column(title="started", number=False),
            Column(title="what", number=False),
            Column(title="model", number=False, most=28),
            Column(title="runs"),
            Column(title="failed"),
            Column(title="decided", number=False),
        ]
        page.table(heads, [_campaign(row) for row in campaigns])
        if document["more"]:
            page.line("There are more: raise --limit.", indent=1)
        page.line("gnomon runs show ID tells more of one.", indent=1, style="dim")
    page.path("record", document["record"])


def _campaign(row: dict[str, Any]) -> list[str]:
    campaign = row["campaign"]
    decided = _decision(row["decision"]) if row["finished"] else "running" if row["running"] else "interrupted"
    return [
        campaign["id"][:8],
        _when(campaign["started_at_s"]),
        campaign["kind"],
        campaign["context"]["model_name"],
        str(row["runs"]),
        str(row["failures"]) if row["failures"] else "-",
        decided,
    ]


def _decision(decision: dict[str, Any] | None) -> str:
    found = decision or {}
    front = found.get("front")
    many = "" if not front else "a front of 1 point" if front == 1 else f"a front of {front} points"
    return str(found.get("chosen") or found.get("fastest") or many)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def run_report(document: dict[str, Any], page: Page) -> None:
    """One campaign, with a line for each candidate."""
    row = document["row"]
    campaign, context = row["campaign"], row["campaign"]["context"]
    decision = row["decision"] or {}
    gone_on = "interrupted: the same command goes on from there"
    state = "finished" if row["finished"] else "running" if row["running"] else gone_on
    fastest = f"{_decision(decision)} is the fastest." if _decision(decision) else ""
    page.headline(str(decision.get("reason") or fastest or f"{state[:1].upper()}{state[1:]}."))
    page.line(f"{campaign['kind']} of {context['model_name']}, {_when(campaign['started_at_s'])}, {state}.")
    versions = ", ".join(f"{name} {version}" for name, version in sorted(context["versions"].items()))
    page.line(f"gnomon {context['gnomon_version']}, {versions}; {row['runs']} runs, {row['failures']} failed.")
    page.line(_where(document))
    page.line(f"id {campaign['id']}")
    page.heading(f"Candidates ({'CPU' if document['clock'] == 'cpu' else 'wall'} time: median, [95 % interval])")
    heads = [
        Column(title="candidate", number=False, most=64),
        Column(title="time"),
        Column(title="", number=False, least=16),
        Column(title="processes"),
        Column(title="runs"),
        Column(title="failed"),
    ]
    page.table(heads, [_candidate(candidate) for candidate in document["candidates"]])
    failed = [c for c in document["candidates"] if c["last_failure"]]
    if failed:
        page.heading("Failures")
        for candidate in failed:
            page.item(f"{candidate['candidate']}: {failure_text(candidate['last_failure'])}")


def _where(document: dict[str, Any]) -> str:
    """The device, by its name where the campaign noted one, and the threads: what --no-profile goes by."""
    context = document["row"]["campaign"]["context"]
    machine = context["device"].get("cpu_model") or context["device"].get("machine") or "an unknown processor"
    noted: dict[str, Any] = next((event["data"] for event in document["events"] if event["name"] == "lab"), {})
    name, address = noted.get("device"), noted.get("address")
    place = "" if not name else f"{name}, " if name == address else f"{name} ({address}), "
    threads = context["options"].get("threads")
    counts = ", ".join(map(str, threads)) if isinstance(threads, list) else str(threads)
    told = "" if threads is None else f"; {counts} {'thread' if threads == 1 else 'threads'}"
    return f"On {place}{machine}{told}."


def _candidate(candidate: dict[str, Any]) -> list[str]:
    found = candidate["summary"]
    return [
        candidate["candidate"],
        units.time(found["median_s"]) if found else "profiled" if candidate["profiled_runs"] else "-",
        units.interval(found["low_s"], found["high_s"], found["median_s"]) if found else "",
        str(found["processes"]) if found else "-",
        str(candidate["runs"]),
        str(candidate["failures"]) if candidate["failures"] else "-",
    ]


def solve_report(document: dict[str, Any], page: Page) -> None:
    """The assignment found, its cost, and what is proved about it."""
    proof = "proved the least" if document["optimal"] else "the best found in the time; not proved the least"
    page.headline(f"Cost {', '.join(f'{value:g}' for value in document['cost'])}: {proof}.")
    page.line(assignment_text(document["assignment"], most=200), indent=1)
    if not document["optimal"] and document["bound"] is not None:
        page.line(f"No assignment has a weighted cost below {document['bound']:g}.", indent=1)
    page.line(f"By {document['method']} (width {document['width']}) in {units.time(document['seconds'])}.", indent=1)


def runtimes_report(document: dict[str, Any], page: Page) -> None:
    """What is installed, then what is not."""
    here = [row for row in document["runtimes"] if row["installed"]]
    page.headline(f"{len(here)} of {len(document['runtimes'])} known runtimes are installed here.")
    heads = [
        Column(title="runtime", number=False),
        Column(title="version", number=False),
        Column(title="models", number=False),
        Column(title="backends", number=False),
    ]
    rows = [[r["name"], r["version"], ", ".join(r["formats"]), ", ".join(r["backends"])] for r in here]
    if rows:
        page.table(heads, rows)
    gone = [row for row in document["runtimes"] if not row["installed"]]
    if gone or document["broken"]:
        page.heading("Missing")
    for row in gone:
        page.item(f"{row['name']} ({', '.join(row['formats'])} models): {row['reason']}", row["install"])
    for row in document["broken"]:
        page.item(f"{row['name']}: its adapter cannot be loaded: {row['reason']}")
    found = document["device"]["fingerprint"]
    machine = found.get("cpu_model") or found.get("machine")
    page.line(f"Asked with {document['device']['interpreter']} on {machine}, {found.get('cores')} cores.")


_SHOWN = 20


def front_report(document: dict[str, Any], page: Page) -> None:
    """How many trade-offs there are, what is proved about them, and some of them from end to end."""
    points, objectives = document["points"], document["objectives"]
    count = "1 trade-off" if len(points) == 1 else f"{len(points)} trade-offs"
    page.headline(f"{count}: {proof(document['certificate'])}.")
    heads = [_title(objective) for objective in objectives]
    columns = [*(Column(title=head) for head in heads), Column(title="assignment", number=False, most=64)]
    chosen = _spread(len(points))
    rows = [[f"{c:g}" for c in points[i]["cost"]] + [assignment_text(points[i]["assignment"], most=8)] for i in chosen]
    page.table(columns, rows)
    if len(chosen) < len(points):
        page.line(f"{len(chosen)} of {len(points)} are shown; --json has all.", indent=1, style="dim")
    page.line(f"Found in {units.time(document['seconds'])}.", indent=1)


def proof(certificate: Any) -> str:
    """What a certificate, as JSON, says about the points."""
    if certificate == "exact":
        return "proved to be all there are"
    if isinstance(certificate, dict):
        return f"proved to be within {100 * certificate['epsilon']:.3g} % of all there are"
    return "the best found; nothing is proved about others"


def _title(objective: dict[str, Any]) -> str:
    return f"{objective['name']} ({objective['unit']})" if objective["unit"] else str(objective["name"])


def _spread(count: int) -> list[int]:
    """Both ends and some between, evenly."""
    if count <= _SHOWN:
        return list(range(count))
    return sorted({round(i * (count - 1) / (_SHOWN - 1)) for i in range(_SHOWN)})

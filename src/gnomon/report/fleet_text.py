"""The report of `gnomon place` on several devices, made from its JSON document alone."""

from __future__ import annotations

from typing import Any

from gnomon.report import units
from gnomon.report.text import Column, Page

_TURNS = "A regret is of calls in turns with the device's own plan; compare regrets, not times of different tables."


def fleet_report(document: dict[str, Any], page: Page) -> None:
    """Write the report: a row a device, the plan for all, then what speaks against it and where the packages are."""
    answered = [d for d in document["devices"] if d["placement"]]
    page.headline(_headline(document, answered))
    _devices(answered, page)
    for device in document["devices"]:
        if device["error"]:
            page.item(f"{device['name']} has no plan: {device['error']['message']}", device["error"]["hint"])
    if len(answered) > 1:
        _common(document, page)
    for proof in document["proofs"]:
        _proof(proof, page)
    _doubts(answered, page)
    page.heading("Written")
    for device in answered:
        page.path("package", device["placement"]["package"])
    page.path("record", document["record"])
    page.line(f"Took {units.duration(document['seconds'])}.", indent=2)


def _headline(document: dict[str, Any], answered: list[dict[str, Any]]) -> str:
    asked, common = len(document["devices"]), document["common"]
    have = f"{len(answered)} of {asked} devices have a plan"
    if len(answered) < 2:
        return f"{have}; a plan for all needs two."
    if common["least_total"] is None:
        return f"{have}; none runs on all of them."
    option = common["options"][common["least_total"]]
    if option["worst"] < 0.0005:
        return f"{have}; {option['label']} is as good as its own on each of them."
    return f"{have}; {option['label']} takes none of them more than {_percent(option['worst'])} longer."


def _percent(part: float | None) -> str:
    """A regret, where a thousandth of a per cent is none."""
    return "?" if part is None else units.percent(0.0 if abs(part) < 1e-5 else part)


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
        Column(title="doubts"),
    ]
    page.table(columns, [_row(device) for device in answered])
    page.line(
        "gain: how many times as fast as the best way there that does not mix; proven: operators that ran where "
        "planned, by the runtime's own account.",
        indent=1,
        style="dim",
    )


def _row(device: dict[str, Any]) -> list[str]:
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


def _common(document: dict[str, Any], page: Page) -> None:
    common = document["common"]
    page.heading("One plan for all (regret: how much longer than the device's own plan takes)")
    if common["least_total"] is None:
        page.line("There is none.", indent=1)
    else:
        option = common["options"][common["least_total"]]
        if any(share["measured"] and _span(share) != "its own plan" for share in option["devices"].values()):
            page.line(_TURNS, indent=1, style="dim")
        _option(option, page)
    for note in common["notes"]:
        page.item(f"{note[:1].upper()}{note[1:]}.")


def _option(option: dict[str, Any], page: Page) -> None:
    count = len(option["devices"])
    page.line(
        f"{option['label']}: {_percent(option['worst'])} at worst, {_percent(option['total'] / count - 1)} on average.",
        indent=1,
        style="bold",
    )
    rows = [
        [name, units.time(share["time_s"]), _percent(share["regret"]), _span(share)]
        for name, share in option["devices"].items()
    ]
    columns = [
        Column(title="device", number=False, least=8, most=24),
        Column(title="time"),
        Column(title="regret"),
        Column(title="95 % interval", number=False, least=16),
    ]
    page.table(columns, rows)
    certificate = option["certificate"]
    if certificate and not certificate["optimal"]:
        page.item("By the prices it may be improved: the solver ran out of time.")
    if option["predicted_on"]:
        page.item(f"It was not measured on {', '.join(option['predicted_on'])}: its figures there are the prices'.")


def _span(share: dict[str, Any]) -> str:
    """What is known of a regret beside its value."""
    low, high = share["regret_low"], share["regret_high"]
    if not share["measured"]:
        return "predicted, not measured"
    if low is None or high is None:
        return "[unknown]"
    return "its own plan" if low == high == 0 else f"[{_percent(low)}, {_percent(high)}]"


def _proof(proof: dict[str, Any], page: Page) -> None:
    page.heading(f"{proof['label']}, measured beside each device's own plan")
    for name, share in proof["devices"].items():
        regret = f"regret {_percent(share['regret'])}"
        page.line(f"{name}: {units.time(share['time_s'])}, {regret} {_span(share)}.", indent=1)
    for name, why in proof["failed"].items():
        page.item(f"{name}: it could not be proven: {why}")


def _doubts(answered: list[dict[str, Any]], page: Page) -> None:
    rows = [(device["name"], doubt) for device in answered for doubt in device["placement"]["doubts"]]
    if not rows:
        return
    page.heading("Doubts")
    for name, doubt in rows:
        page.item(f"{name}: {doubt['message']}.", doubt["hint"])

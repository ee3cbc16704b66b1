"""Parts of the report of an overlay: the network's proof, each device, the devices' own choices, a portfolio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report import units
from gnomon.report.space_words import listed, say
from gnomon.report.text import Column, Page
from gnomon.report.tune_words import (
    failure_words,
    interval_of,
    like,
    loss,
    many,
    median_of,
    metric,
    named,
    outputs,
    wrong,
)

_MOST_DEVICES = 16
_MOST_LAYERS = 40
_MOST_ITEMS = 8

Choices = dict[str, Mapping[str, Any]]
"""What was measured of the network on a device, by choice: "overlay", "untuned", "own:<host>"."""


def measured_of(document: Mapping[str, Any]) -> dict[str, Choices]:
    """What was measured of the whole network, by device and choice; failed ones too."""
    found: dict[str, Choices] = {}
    for row in document["network"]:
        found.setdefault(row["device"], {})[row["choice"]] = row
    return found


def time_of(choices: Choices, choice: str) -> float | None:
    """The network's time under a choice; None where it was not measured or failed."""
    row = choices.get(choice)
    return None if row is None or row["failure"] is not None else median_of(row["time"])


def proof_sentence(document: Mapping[str, Any], page: Page) -> None:
    """What measuring the whole network proved; nothing where it was not measured."""
    found = measured_of(document)
    if found:
        say(page, _proof(found))


def network_section(document: Mapping[str, Any], page: Page) -> None:
    """The whole network measured: the choice, each device's own best, untuned; nothing where it was not measured."""
    found = measured_of(document)
    if not found:
        return
    page.heading("The whole network, measured (median, [95 % interval])")
    columns = [
        Column(title="device", number=False, least=12, most=32),
        Column(title="overlay"),
        Column(title="", number=False, least=14),
        Column(title="its own best"),
        Column(title="", number=False, least=14),
        Column(title="longer by"),
        Column(title="untuned"),
        Column(title="outputs off by"),
    ]
    ordered = sorted(found, key=lambda device: -(_longer(device, found[device]) or -2.0))
    page.table(columns, [_network_row(d, found[d]) for d in ordered[:_MOST_DEVICES]], split=6)
    if len(ordered) > _MOST_DEVICES:
        page.line(f"and {len(ordered) - _MOST_DEVICES} more devices, where it loses less: --json has all", indent=1)
    rows = [row for row in document["network"] if row["failure"] is not None]
    for row in rows[:_MOST_ITEMS]:
        who = f"{named(row['device'], 32)}, {_choice_words(row)}"
        page.item(f"{who}: it failed, {failure_words(row['failure'])}.")
    if len(rows) > _MOST_ITEMS:
        page.item(f"{len(rows) - _MOST_ITEMS} more failed: --json has them.")
    dtype = document["model"]["dtype"]
    for row in document["network"]:
        if row["failure"] is None and wrong(row["max_error"], dtype):
            told = f"{named(row['device'], 32)}, {_choice_words(row)}: measured, {outputs(row['max_error'], dtype)}."
            page.item(told, "Do not deploy it.")


def _choice_words(row: Mapping[str, Any]) -> str:
    choice = str(row["choice"])
    if choice.startswith("own:"):
        host = choice[4:]
        return "its own best" if host == row["device"] else f"what is best on {named(host, 32)}"
    return "the overlay" if choice == "overlay" else named(choice)


def _longer(device: str, choices: Choices) -> float | None:
    """By what share the choice takes longer than the device's own best; None where not both were measured."""
    chosen, own = time_of(choices, "overlay"), time_of(choices, f"own:{device}")
    return None if chosen is None or not own else chosen / own - 1


def _proof(found: Mapping[str, Choices]) -> str:
    """The measured network in one sentence."""
    longer = {device: value for device, c in found.items() if (value := _longer(device, c)) is not None}
    if longer:
        worst = max(longer, key=lambda device: longer[device])
        mean = sum(longer.values()) / len(longer)
        if len(longer) == 1:
            told = f"Measured on {named(worst, 32)}, the whole network {_against(mean)} its own best"
        else:
            told = f"Measured on {many(len(longer), 'device')}, the whole network {_against(mean)} each one's own best "
            told += f"on average; on {named(worst, 32)}, the worst, it {_against(longer[worst])} its own"
        apart = [_apart(device, found[device]) for device in longer]
        if None in apart and True not in apart:
            told += "; how surely is unknown"
        elif True not in apart:
            told += "; all intervals overlap, so no difference is proved"
    else:
        told = "The whole network was measured, without any device's own best beside the choice"
    untuned = [
        before / chosen
        for c in found.values()
        if (before := time_of(c, "untuned")) is not None and (chosen := time_of(c, "overlay"))
    ]
    if untuned:
        low, high = units.digits(min(untuned)), units.digits(max(untuned))
        told += f"; it is {low if low == high else f'{low} to {high}'} times as fast as untuned"
    return f"{told}."


def _against(longer: float) -> str:
    return f"takes {loss(longer)} longer than" if longer >= 0 else f"takes {loss(-longer)} less than"


def _apart(device: str, choices: Choices) -> bool | None:
    """Whether the intervals of the choice and of the device's own best do not overlap; None where one is unknown."""
    one, other = choices["overlay"]["time"], choices[f"own:{device}"]["time"]
    if None in (one["low_s"], one["high_s"], other["low_s"], other["high_s"]):
        return None
    return bool(one["low_s"] > other["high_s"] or other["low_s"] > one["high_s"])


def _network_row(device: str, choices: Choices) -> list[str]:
    chosen, own = choices.get("overlay"), choices.get(f"own:{device}")
    longer = _longer(device, choices)
    error = None if chosen is None else chosen["max_error"]
    row = [device]
    for one in (chosen, own):
        dead = one is not None and one["failure"] is not None
        time = None if one is None or dead else one["time"]
        row += ["failed" if dead else units.time(median_of(time)), interval_of(time)]
    row.append("-" if longer is None else f"{100 * longer + 0.0:.1f} %" if abs(longer) < 1 else loss(longer))
    return [*row, like(time_of(choices, "untuned"), time_of(choices, "overlay")), units.small(error)]


def devices_section(document: Mapping[str, Any], page: Page) -> None:
    """What each device loses by the sum of its layers, the most first, and in which layer it loses most."""
    layers, devices = document["layers"], document["devices"]
    if not layers or len(devices) < 2:
        return
    sums = {device: _sums(layers, device) for device in devices}
    ordered = sorted(devices, key=lambda device: -(sums[device][1] / sums[device][0] if sums[device][0] else 0.0))
    page.heading("Each device, by the sum of its layers")
    columns = [
        Column(title="device", number=False, least=12, most=32),
        Column(title="its own best"),
        Column(title="the choice"),
        Column(title="loses"),
        Column(title="most in layer", number=False, least=16, most=40),
        Column(title="there"),
    ]
    rows = []
    for device in ordered[:_MOST_DEVICES]:
        best, chosen = sums[device]
        worst = max(layers, key=lambda one: one["regret"].get(device) or 0.0)
        there = worst["regret"].get(device) or 0.0
        lost = loss(chosen / best - 1) if best else "-"
        rows.append([device, like(best, chosen), units.time(chosen), lost, *_there(worst["name"], there)])
    page.table(columns, rows)
    if len(ordered) > _MOST_DEVICES:
        page.line(f"and {len(ordered) - _MOST_DEVICES} more devices, which lose less: --json has all", indent=1)


def _there(name: str, regret: float) -> list[str]:
    return [name, loss(regret)] if regret > 0 else ["-", "-"]


def _sums(layers: Sequence[Mapping[str, Any]], device: str) -> tuple[float, float]:
    """The layers' best times on a device, and those of the choice, each as often as the network calls it."""
    both = [(one["weight"], one["theta"].get(device), one["times"].get(device)) for one in layers]
    known = [(weight, theta, time) for weight, theta, time in both if theta is not None and time is not None]
    return sum(w * theta for w, theta, _ in known), sum(w * time for w, _, time in known)


def others_section(document: Mapping[str, Any], page: Page) -> None:
    """What using one device's own best everywhere would lose, beside the choice."""
    own, total, count = document["own"], document["total"], len(document["devices"])
    if not own or not document["layers"] or count < 2:
        return
    page.heading("Beside one device's own best used on all of them (the network's mean, the worst layer)")
    known = sorted((host for host in own if own[host]["M"] is not None), key=lambda host: own[host]["M"])
    columns = [Column(title="used everywhere", number=False, least=16, most=40)]
    columns += [Column(title="M"), Column(title="mean loss"), Column(title="worst")]
    rows = [["the choice", metric(total["M"]), loss(total["mean_regret"]), loss(total["worst_regret"])]]
    for host in known[:_MOST_DEVICES]:
        one = own[host]
        rows.append([f"best of {named(host, 32)}", metric(one["M"]), loss(one["M"] / count), loss(one["worst_regret"])])
    page.table(columns, rows, bold=frozenset({0}))
    if len(known) > _MOST_DEVICES:
        page.line(f"and {len(known) - _MOST_DEVICES} more, which lose more: --json has all", indent=1, style="dim")
    lacking = [named(host, 24) for host in own if own[host]["M"] is None]
    if lacking:
        page.item(f"Not known for {listed(lacking)}: its best was not measured on all devices.")


def portfolio_section(document: Mapping[str, Any], page: Page) -> None:
    """What several configurations a layer would bring, and which devices each serves."""
    portfolio = document["portfolio"]
    if portfolio is None:
        return
    size, total = portfolio["size"], document["total"]
    each = many(size, "configuration")
    page.heading(f"With {each} a layer")
    count = max(1, len(document["devices"]))
    told = f"M is {metric(portfolio['M'])} in place of {metric(total['M'])}: the network loses "
    told += f"{'-' if portfolio['M'] is None else loss(portfolio['M'] / count)} on average"
    guessed = [named(one["name"], 32) for one in portfolio["layers"] if not one["proven"]]
    proof = f"; not proved the least for {listed(guessed)}" if guessed else "; proved the least there can be"
    say(page, f"{told}{proof if portfolio['layers'] else ''}.", indent=1)
    alone = {one["name"]: one["M"] for one in document["layers"]}
    columns = [Column(title="layer", number=False, least=16, most=40), Column(title="M"), Column(title="with one")]
    columns += [Column(title="used"), Column(title="devices each", number=False, least=12, most=60)]
    rows = []
    for one in portfolio["layers"][:_MOST_LAYERS]:
        used = list(dict.fromkeys(one["serves"].values()))
        served = "; ".join(_served(one["serves"], identity) for identity in used)
        rows.append([one["name"], metric(one["M"]), metric(alone.get(one["name"])), str(len(used)), served or "-"])
    page.table(columns, rows)
    if len(portfolio["layers"]) > _MOST_LAYERS:
        page.line(f"and {len(portfolio['layers']) - _MOST_LAYERS} more layers: --json has all", indent=1, style="dim")


def _served(serves: Mapping[str, str], identity: str) -> str:
    """The devices that a configuration serves, by name where they are few."""
    devices = [named(device, 16) for device, one in serves.items() if one == identity]
    return ", ".join(devices) if len(devices) <= 3 else many(len(devices), "device")

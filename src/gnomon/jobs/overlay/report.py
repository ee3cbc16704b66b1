"""The reports of `gnomon overlay collect` and `analyze`, made from their JSON documents alone."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.jobs.place.shared_report import doubts
from gnomon.jobs.tune.report import (
    FEW,
    device_key,
    device_words,
    failure_items,
    failure_words,
    interval_of,
    largest_first,
    like,
    loss,
    many,
    median_of,
    metric,
    named,
    notes,
    on_device,
    outputs,
    rest,
    share_of,
    wrong,
)
from gnomon.measure.environment import Doubt
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import listed, say, sentence

_MOST_DEVICES = 16

Choices = dict[str, Mapping[str, Any]]
"""What was measured of the network on a device, by choice: "overlay", "untuned", "own:<host>"."""

_MOST_LAYERS = 40
_MOST_ITEMS = 8


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
        say(page, network_sentence(found))


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
        Column(title="", number=False, least=12),
        Column(title="untuned"),
        Column(title="max error"),
    ]
    ordered = sorted(found, key=lambda device: -(longer_by(found[device]) or -2.0))
    page.table(columns, [_network_row(d, found[d]) for d in ordered[:_MOST_DEVICES]], split=7)
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


def longer_by(choices: Choices) -> float | None:
    """By what share the choice takes longer than the device's own best, paired; None where not both were measured."""
    ratio = choices["overlay"]["to_own"] if "overlay" in choices else None
    return None if ratio is None or ratio["ratio"] is None else float(ratio["ratio"]) - 1


def _longer_interval(choices: Choices) -> str:
    """The interval of that in percent: "[1.2, 3.4]"; "-" where it is unknown."""
    ratio = choices["overlay"]["to_own"] if "overlay" in choices else None
    if ratio is None or ratio["low"] is None or ratio["high"] is None:
        return "-"
    ends = [100 * (ratio[end] - 1) for end in ("low", "high")]
    digits = 1 if ends[1] < 100 else 0
    return f"[{', '.join(f'{round(end, digits) + 0.0:.{digits}f}' for end in ends)}]"


def network_sentence(found: Mapping[str, Choices]) -> str:
    """The measured network in one sentence."""
    longer = {device: value for device, c in found.items() if (value := longer_by(c)) is not None}
    if longer:
        worst = max(longer, key=lambda device: longer[device])
        mean = sum(longer.values()) / len(longer)
        if len(longer) == 1:
            told = f"Measured on {named(worst, 32)}, the whole network {_against(mean)} its own best"
        else:
            told = f"Measured on {many(len(longer), 'device')}, the whole network {_against(mean)} each one's own best "
            told += f"on average; on {named(worst, 32)}, the worst, it {_against(longer[worst])} its own"
        apart = [_apart(found[device]) for device in longer]
        if None in apart and True not in apart:
            told += "; how surely is unknown"
        elif True not in apart:
            told += "; paired by process no difference is proved"
    else:
        told = "The whole network was measured, without any device's own best beside the choice"
    untuned = [
        float(ratio["ratio"])
        for c in found.values()
        if (ratio := c["untuned"]["to_overlay"] if "untuned" in c else None) and ratio["ratio"] is not None
    ]
    if untuned:
        low, high = units.digits(min(untuned)), units.digits(max(untuned))
        told += f"; it is {low if low == high else f'{low} to {high}'} times as fast as untuned"
    return f"{told}."


def _against(longer: float) -> str:
    return f"takes {loss(longer)} longer than" if longer >= 0 else f"takes {loss(-longer)} less than"


def _apart(choices: Choices) -> bool | None:
    """Whether the choice and the device's own best surely differ; None where the interval is unknown."""
    ratio = choices["overlay"]["to_own"]
    if ratio["low"] is None or ratio["high"] is None:
        return None
    return bool(ratio["low"] > 1 or ratio["high"] < 1)


def _network_row(device: str, choices: Choices) -> list[str]:
    chosen, own = choices.get("overlay"), choices.get(f"own:{device}")
    longer = longer_by(choices)
    error = None if chosen is None else chosen["max_error"]
    row = [device]
    for one in (chosen, own):
        dead = one is not None and one["failure"] is not None
        time = None if one is None or dead else one["time"]
        row += ["failed" if dead else units.time(median_of(time)), interval_of(time)]
    row.append("-" if longer is None else f"{100 * longer + 0.0:.1f} %" if abs(longer) < 1 else loss(longer))
    row.append(_longer_interval(choices))
    return [*row, like(time_of(choices, "untuned"), time_of(choices, "overlay")), units.small(error)]


def devices_section(document: Mapping[str, Any], page: Page) -> None:
    """What each device loses by the sum of its layers, the most first, and in which layer it loses most."""
    layers, devices = document["layers"], document["devices"]
    if not layers or len(devices) < 2:
        return
    sums = {device: _sums(layers, device) for device in devices}
    ordered = sorted(devices, key=lambda device: -(sums[device][1] / sums[device][0] if sums[device][0] else 0.0))
    few = len(layers) < _decided(document)
    page.heading(f"Each device, by the sum of {'the layers listed here' if few else 'its layers'}")
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
    columns += [Column(title="M"), Column(title="mean regret"), Column(title="worst")]
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


def minimax_section(document: Mapping[str, Any], page: Page) -> None:
    """Where another configuration than that of least M loses less on its worst device, and what both lose."""
    rows = [layer for layer in document["layers"] if layer["minimax"] is not None]
    if len(document["devices"]) < 2 or not any(layer["worst_regret"] for layer in document["layers"]):
        return
    if not rows:
        page.item("No layer has a configuration that loses less on its worst device (minimax) than that of least M.")
        return
    page.heading("Least loss on the worst device (minimax), where that is another configuration")
    columns = [Column(title="layer", number=False, least=16, most=40)]
    columns += [Column(title=title) for title in ("worst", "least M's", "mean", "least M's")]
    columns += [Column(title="on", number=False, least=8, most=24)]
    columns += [Column(title="configuration", number=False, least=16), Column(title="found on", number=False, least=8)]
    ordered, made = largest_first(rows), []
    for layer in ordered[:_MOST_ITEMS]:
        one = layer["minimax"]
        losses = [loss(of[name]) for name in ("worst_regret", "mean_regret") for of in (one, layer)]
        made.append([layer["name"], *losses, one["worst_device"], one["configuration"], one["host"]])
    page.table(columns, made, split=6)
    rest(ordered[_MOST_ITEMS:], page)
    total, other = document["total"], document["total"]["minimax"]
    told = f"The network with all of these loses {loss(other['mean_regret'])} on average in place of "
    told += f"{loss(total['mean_regret'])}, and {_most(other['regret'])} in place of {_most(total['regret'])}."
    say(page, told, indent=1)


def _most(regret: Mapping[str, float | None]) -> str:
    """The device on which the sum of all layers loses most, and how much."""
    known = {device: value for device, value in regret.items() if value is not None}
    worst = max(known, key=lambda device: known[device], default="")
    return f"at worst {loss(known[worst])} ({named(worst, 24)})" if known else "an unknown part at worst"


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
    several = {one["name"] for one in _open_to_choice(document["layers"])}
    shown = [one for one in portfolio["layers"] if one["name"] in several]
    if not shown:
        return
    columns = [Column(title="layer", number=False, least=16, most=40), Column(title="M"), Column(title="with one")]
    columns += [Column(title="used"), Column(title="devices each", number=False, least=12, most=60)]
    rows = []
    for one in shown[:_MOST_LAYERS]:
        used = list(dict.fromkeys(one["serves"].values()))
        served = "; ".join(_served(one["serves"], identity) for identity in used)
        rows.append([one["name"], metric(one["M"]), metric(alone.get(one["name"])), str(len(used)), served or "-"])
    page.table(columns, rows)
    if len(shown) > _MOST_LAYERS:
        page.line(f"and {len(shown) - _MOST_LAYERS} more layers: --json has all", indent=1, style="dim")


def _served(serves: Mapping[str, str], identity: str) -> str:
    """The devices that a configuration serves, by name where they are few."""
    devices = [named(device, 16) for device, one in serves.items() if one == identity]
    return ", ".join(devices) if len(devices) <= 3 else many(len(devices), "device")


def collect_report(document: Mapping[str, Any], page: Page) -> None:
    """What another device's configurations do on this one, layer by layer."""
    layers, host, device = document["layers"], named(document["host"], 40), device_key(document["device"])
    total, measured = (sum(layer[name] for layer in layers) for name in ("configurations", "measured"))
    told = f"{many(total, 'configuration')} of {host} on {device}: {measured} measured"
    failed = sum(layer["failed"] for layer in layers)
    told += f", {failed} failed" if failed else ", none failed"
    say(page, f"{told}, in {units.duration(document['seconds'])}.", answer=True)
    say(page, _carried(layers, host, device))
    where = f"{named(document['model']['name'])} in {named(document['model']['dtype'])}"
    say(page, f"{many(len(layers), 'layer')} of {where} on {device_words(document['device'])}.")
    _collected(layers, page)
    failure_items(document["failures"], "Failures", page)
    notes(document["notes"], page)
    page.heading("Written")
    page.path("records", document["records"])
    page.path("from", document["source"])


def nothing_close(page: Page) -> None:
    """That no choice is so close that it is to be measured again."""
    say(page, "Every choice is sure, of 0.9 of the resamplings or more: nothing is measured again.", answer=True)


def collected_next(logs: Sequence[str], documents: Sequence[Mapping[str, Any]], page: Page) -> None:
    """The command that takes all that was collected, and all logs that were given."""
    files = dict.fromkeys([*logs, *(one["records"] for one in documents)])
    page.path("next", f"gnomon overlay analyze {' '.join(map(shlex.quote, files))}")


def _carried(layers: Sequence[Mapping[str, Any]], host: str, device: str) -> str:
    """How well the host's own best does here, beside the best of what was carried over."""
    known = [one for one in layers if one["best_s"] and one["host_best_here_s"] is not None]
    if not known:
        return f"Nothing is known of what is best on {host}: it has no time on {device}."
    same = [one for one in known if one["host_best_here_s"] <= one["best_s"]]
    told = f"What is best on {host} is the best of these on {device} too in {len(same)} of {many(len(known), 'layer')}"
    if len(same) == len(known):
        return f"{told}."
    worst = max(known, key=_behind)
    return f"{told}; elsewhere it takes up to {loss(_behind(worst))} longer ({named(worst['name'], 32)})."


def _behind(layer: Mapping[str, Any]) -> float:
    return float(layer["host_best_here_s"] / layer["best_s"] - 1)


def _collected(layers: Sequence[Mapping[str, Any]], page: Page) -> None:
    tried = [one for one in layers if one["configurations"]]
    if not tried:
        return
    page.heading("Layers (median of one call)")
    columns = [
        Column(title="layer", number=False, least=16, most=40),
        Column(title="tried"),
        Column(title="measured"),
        Column(title="failed"),
        Column(title="best here"),
        Column(title="the host's"),
        Column(title="longer by"),
    ]
    rows = []
    for one in tried[:_MOST_LAYERS]:
        best, carried = one["best_s"], one["host_best_here_s"]
        behind = loss(_behind(one)) if best and carried is not None else "-"
        counts = [str(one[name]) for name in ("configurations", "measured", "failed")]
        rows.append([one["name"], *counts, units.time(best), like(carried, best), behind])
    page.table(columns, rows)
    if len(tried) > _MOST_LAYERS:
        page.line(f"and {len(tried) - _MOST_LAYERS} more layers: --json has all", indent=1, style="dim")
    if len(tried) < len(layers):
        told = many(len(layers) - len(tried), "more layer has", "more layers have")
        page.line(f"{told} no configuration to measure.", indent=1, style="dim")


def analyze_report(document: Mapping[str, Any], page: Page) -> None:
    """One configuration a layer for all devices: what it loses, the proof, the layers, and what was skipped."""
    say(page, _answer(document), answer=True)
    proof_sentence(document, page)
    _about(document, page)
    network_section(document, page)
    _layers(document, page)
    devices_section(document, page)
    with page.details("other choices: one device's own, minimax, a portfolio"):
        others_section(document, page)
        minimax_section(document, page)
        portfolio_section(document, page)
    _skipped(document, page)
    doubts([Doubt(**row) for row in document.get("doubts") or []], page)
    with page.details("notes"):
        notes(document["notes"], page)
    _written(document, page)


def _answer(document: Mapping[str, Any]) -> str:
    """The answer in one sentence: what the choice loses on average, and where it loses most."""
    layers, devices, total = document["layers"], document["devices"], document["total"]
    if not layers:
        return f"No layer could be decided for {many(len(devices), 'device')}."
    told = f"One configuration a layer for {many(len(devices), 'device')}: "
    worst = max(layers, key=lambda one: one["worst_regret"])
    most = total["worst_regret"]
    if most <= 0:
        what = "nothing is lost" if len(devices) == 1 else "nothing is lost, each choice is the best on every device"
        return f"{told}{what}."
    # With --layer the network's worst layer may not be among those listed.
    where = f" (layer {named(worst['name'], 32)} on {named(worst['worst_device'], 32)})"
    where = where if worst["worst_regret"] >= most else ", in a layer that is not listed here"
    return (
        f"{told}the network loses {loss(total['mean_regret'])} on average against each device's own best, "
        f"at worst {loss(most)}{where}{_undiluted(layers)}."
    )


def _decided(document: Mapping[str, Any]) -> int:
    """How many layers have a choice, told of or not."""
    return int(document["total"].get("layers", len(document["layers"])))


def _open_to_choice(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The layers that have more than one configuration to choose from."""
    return [layer for layer in layers if layer["configurations"] > 1]


def _undiluted(layers: Sequence[Mapping[str, Any]]) -> str:
    """What is lost where there is a choice at all; an empty text if that is everywhere."""
    open_ = _open_to_choice(layers)
    share = sum(layer["share"] for layer in open_)
    if len(open_) == len(layers) or not share > 0:
        return ""
    lost = sum(layer["share"] * layer["mean_regret"] for layer in open_) / share
    where = f"{len(open_)} of {many(len(layers), 'layer')}, {share_of(share)} of the time"
    return f"; where there is something to choose ({where}) it loses {loss(lost)}"


def _about(document: Mapping[str, Any], page: Page) -> None:
    layers, model = document["layers"], document["model"]
    tried = sum(layer["configurations"] for layer in layers)
    hosts = [named(host, 24) for host in document["hosts"]]
    decided = _decided(document)
    few = f"{len(layers)} of " if len(layers) < decided else ""
    told = f"{few}{many(decided, 'layer')} of {named(model['name'])} in {named(model['dtype'])}, "
    told += f"{many(tried, 'configuration')} ranked"
    say(page, f"{told}{f', found on {listed(hosts)}' if hosts else ''}.")


def _layers(document: Mapping[str, Any], page: Page) -> None:
    layers = _open_to_choice(document["layers"])
    if not layers:
        return
    page.heading("The choice of each layer that has one, the largest share of the time first")
    sure = any(layer["confidence"] is not None for layer in layers)
    bounds = any(layer["M_low"] is not None and layer["M_high"] is not None for layer in layers)
    columns = [
        Column(title="layer", number=False, least=16, most=40),
        Column(title="share"),
        Column(title="M"),
        *([Column(title="95 % interval", number=False, least=14)] if bounds else []),
        Column(title="mean"),
        Column(title="worst"),
        Column(title="on", number=False, least=8, most=24),
        Column(title="ranked"),
        *([Column(title="sure")] if sure else []),
        Column(title="next M"),
        Column(title="configuration", number=False, least=16),
        Column(title="found on", number=False, least=8, most=24),
    ]
    ordered = largest_first(layers)
    most = FEW if page.brief else _MOST_LAYERS
    rows = [_layer_row(layer, bounds=bounds, sure=sure) for layer in ordered[:most]]
    page.table(columns, rows, split=7 if bounds else 6)
    rest(ordered[most:], page)
    if alone := [layer for layer in document["layers"] if layer not in layers]:
        told = f"{many(len(alone), 'more layer has', 'more layers have')} one configuration alone"
        page.line(f"{told}, with {share_of(sum(one['share'] for one in alone))} of the time.", indent=1, style="dim")
    count = len(document["devices"])
    told = f"M: the sum of relative regrets on {many(count, 'device')}, each against the best time there (theta); "
    told += "0 is best on all."
    known = "Sure: how often resampled times choose the same."
    told += f" {known if sure else 'How sure is not known: each time is a single sample.'}"
    page.line(told, indent=1, style="dim")
    doubtful = [named(one["name"], 32) for one in ordered if one["close"]]
    if doubtful:
        again = "; gnomon overlay collect --close measures them again, by themselves" if document["replayable"] else ""
        page.item(
            f"{many(len(doubtful), 'choice is', 'choices are')} not sure: {listed(doubtful)}.",
            f"The next ones are about as good{again}.",
        )


def _layer_row(layer: Mapping[str, Any], *, bounds: bool, sure: bool) -> list[str]:
    low, high, second = layer["M_low"], layer["M_high"], layer["runner_up"]
    interval = "-" if low is None or high is None else f"[{metric(low)}, {metric(high)}]"
    worst = layer["worst_device"] if layer["worst_regret"] > 0 else "-"
    return [
        layer["name"],
        share_of(layer["share"]),
        metric(layer["M"]),
        *([interval] if bounds else []),
        loss(layer["mean_regret"]),
        loss(layer["worst_regret"]),
        worst or "-",
        str(layer["configurations"]),
        *(["-" if layer["confidence"] is None else units.share(layer["confidence"])] if sure else []),
        "-" if second is None else metric(second["M"]),
        layer["configuration"],
        layer["host"],
    ]


def _skipped(document: Mapping[str, Any], page: Page) -> None:
    """Layers without a choice, and configurations that were not ranked or failed."""
    undecided, layers = document["undecided"], document["layers"]
    lost: Counter[str] = Counter()
    unranked = 0
    for layer in layers:
        unranked += len(layer["incomplete"])
        lost.update(named(device, 32) for one in layer["incomplete"] for device in one["missing"])
    failures: Counter[tuple[str, str, str]] = Counter()
    said: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for one in (row for layer in layers for row in layer["failed"]):
        kind = (str(one["device"]), str(one["stage"]), str(one["kind"]))
        failures[kind] += 1
        said.setdefault(kind, one)
    if not (undecided or unranked or failures):
        return
    page.heading("Skipped")
    for row in undecided[:_MOST_ITEMS]:
        page.item(f"Layer {named(row['name'])} has no choice: {sentence(named(row['reason'], 200))}")
    if len(undecided) > _MOST_ITEMS:
        page.item(f"{many(len(undecided) - _MOST_ITEMS, 'more layer has', 'more layers have')} no choice.")
    if unranked:
        where = [f"{name} ({count})" for name, count in lost.most_common()]
        page.item(
            f"{many(unranked, 'configuration is', 'configurations are')} not ranked, without a time on "
            f"{listed(where)}.",
            "gnomon overlay collect measures them there.",
        )
    for kind, count in failures.most_common(_MOST_ITEMS):
        times = f"{count} times " if count > 1 else ""
        page.item(f"On {named(kind[0], 32)}: {times}{sentence(failure_words(said[kind]))}")
    if len(failures) > _MOST_ITEMS:
        page.item(f"{many(len(failures) - _MOST_ITEMS, 'more kind')} of failure: --json has them.")


def _written(document: Mapping[str, Any], page: Page) -> None:
    written = document["written"]
    libraries = sorted(written["libraries"].items())
    if not (written["records"] or written["databases"] or libraries):
        return
    page.heading("Written")
    for label, paths in (("records", written["records"]), ("database", written["databases"])):
        for _, path in sorted(paths.items())[:_MOST_ITEMS]:
            page.path(label, path)
    for _, path in libraries[:_MOST_ITEMS]:
        page.path("library", path)
    if len(libraries) > _MOST_ITEMS:
        page.line(f"and {len(libraries) - _MOST_ITEMS} more libraries: --json has all", indent=2, style="dim")
    if libraries:
        page.path("run it", f"gnomon exec {shlex.quote(libraries[0][1])}{on_device(libraries[0][0])}")

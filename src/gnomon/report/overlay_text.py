"""The reports of `gnomon overlay collect` and `analyze`, made from their JSON documents alone."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report import units
from gnomon.report.overlay_sections import (
    devices_section,
    network_section,
    others_section,
    portfolio_section,
    proof_sentence,
)
from gnomon.report.space_words import listed, say, sentence
from gnomon.report.text import Column, Page
from gnomon.report.tune_words import (
    device_key,
    device_words,
    failure_items,
    failure_words,
    largest_first,
    like,
    loss,
    many,
    metric,
    named,
    notes,
    rest,
    share_of,
)

_MOST_LAYERS = 40
_MOST_ITEMS = 8
_SURE = 0.8
"""From which share of resamplings on a choice counts as decided."""


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
    page.path("next", f"gnomon overlay analyze {shlex.quote(document['source'])} {shlex.quote(document['records'])}")


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
    if not layers:
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
    for one in layers[:_MOST_LAYERS]:
        best, carried = one["best_s"], one["host_best_here_s"]
        behind = loss(_behind(one)) if best and carried is not None else "-"
        counts = [str(one[name]) for name in ("configurations", "measured", "failed")]
        rows.append([one["name"], *counts, units.time(best), like(carried, best), behind])
    page.table(columns, rows)
    if len(layers) > _MOST_LAYERS:
        page.line(f"and {len(layers) - _MOST_LAYERS} more layers: --json has all", indent=1, style="dim")


def analyze_report(document: Mapping[str, Any], page: Page) -> None:
    """One configuration a layer for all devices: what it loses, the proof, the layers, and what was left out."""
    say(page, _answer(document), answer=True)
    proof_sentence(document, page)
    _about(document, page)
    network_section(document, page)
    _layers(document, page)
    devices_section(document, page)
    others_section(document, page)
    portfolio_section(document, page)
    _left_out(document, page)
    notes(document["notes"], page)
    _written(document, page)


def _answer(document: Mapping[str, Any]) -> str:
    """The answer in one sentence: what the choice loses on average, and where it loses most."""
    layers, devices, total = document["layers"], document["devices"], document["total"]
    if not layers:
        return f"No layer could be decided for {many(len(devices), 'device')}."
    told = f"One configuration a layer for {many(len(devices), 'device')}: "
    worst = max(layers, key=lambda one: one["worst_regret"])
    if worst["worst_regret"] <= 0:
        what = "nothing is lost" if len(devices) == 1 else "nothing is lost, each choice is the best on every device"
        return f"{told}{what}."
    ends = [total.get(name) for name in ("M_low", "M_high")]
    known = None not in ends
    interval = f" [{', '.join(f'{100 * end / len(devices):.1f}' for end in ends)}]" if known else ""
    return (
        f"{told}the network loses {loss(total['mean_regret'])}{interval} on average against each device's own best, "
        f"at worst {loss(worst['worst_regret'])} (layer {named(worst['name'], 32)} on "
        f"{named(worst['worst_device'], 32)})."
    )


def _about(document: Mapping[str, Any], page: Page) -> None:
    layers, model = document["layers"], document["model"]
    tried = sum(layer["configurations"] for layer in layers)
    hosts = [named(host, 24) for host in document["hosts"]]
    told = f"{many(len(layers), 'layer')} of {named(model['name'])} in {named(model['dtype'])}, "
    told += f"{many(tried, 'configuration')} ranked"
    say(page, f"{told}{f', found on {listed(hosts)}' if hosts else ''}.")


def _layers(document: Mapping[str, Any], page: Page) -> None:
    layers = document["layers"]
    if not layers:
        return
    page.heading("The choice of each layer, the largest share of the time first")
    sure = any(layer["confidence"] is not None for layer in layers)
    bounds = any(layer["M_low"] is not None and layer["M_high"] is not None for layer in layers)
    columns = [
        Column(title="layer", number=False, least=16, most=40),
        Column(title="share"),
        Column(title="M"),
        *([Column(title="95 % interval", number=False, least=14)] if bounds else []),
        Column(title="mean loss"),
        Column(title="worst"),
        Column(title="on", number=False, least=8, most=24),
        Column(title="ranked"),
        *([Column(title="sure")] if sure else []),
        Column(title="next M"),
        Column(title="configuration", number=False, least=16),
        Column(title="found on", number=False, least=8, most=24),
    ]
    ordered = largest_first(layers)
    rows = [_layer_row(layer, bounds=bounds, sure=sure) for layer in ordered[:_MOST_LAYERS]]
    page.table(columns, rows, split=7 if bounds else 6)
    rest(ordered[_MOST_LAYERS:], page)
    count = len(document["devices"])
    told = f"M: the losses on {many(count, 'device')} added up, each against that device's own best; 0 is best on all."
    page.line(told if not sure else f"{told} Sure: how often resampled times choose the same.", indent=1, style="dim")
    doubtful = [
        named(one["name"], 32) for one in ordered if one["confidence"] is not None and one["confidence"] < _SURE
    ]
    if doubtful:
        page.item(
            f"{many(len(doubtful), 'choice is', 'choices are')} not sure: {listed(doubtful)}.",
            "The next ones are about as good; more samples would tell which is better.",
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


def _left_out(document: Mapping[str, Any], page: Page) -> None:
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
    page.heading("Left out")
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
        page.path("run it", f"gnomon exec {shlex.quote(libraries[0][1])}")

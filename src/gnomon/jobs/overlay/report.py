"""The reports of `gnomon overlay collect` and `analyze`, made from their documents alone."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from gnomon.jobs.overlay.document import (
    AnalyzeDocument,
    ChoicePart,
    ChosenLayer,
    CollectDocument,
    CollectedDocument,
    CollectedLayer,
    FailedTrialPart,
    MeasuredChoice,
)
from gnomon.jobs.place.shared_report import doubts, held
from gnomon.jobs.tune.report import (
    FEW,
    MOST_LAYERS,
    clock_name,
    device_key,
    failure_items,
    failure_words,
    in_folder,
    interval_of,
    largest_first,
    layer_table,
    like,
    loss,
    median_of,
    metric,
    named,
    notes,
    on_device,
    outputs,
    share_of,
    wrong,
)
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.parts import sentence
from gnomon.report.plain import listed, many

Choices = Mapping[str, MeasuredChoice]
"""The measured network on a device, by choice: "overlay", "untuned", "own:<host>"."""

_MOST_DEVICES = 16
_MOST_ITEMS = 8
_NOTES = 3
_VAGUE = 0.1


def measured_of(document: AnalyzeDocument) -> dict[str, dict[str, MeasuredChoice]]:
    """The measurements of the whole network, including failed ones, by device and choice."""
    measured: dict[str, dict[str, MeasuredChoice]] = {}
    for row in document.network:
        measured.setdefault(row.device, {})[row.choice] = row
    return measured


def time_of(choices: Choices, choice: str) -> float | None:
    """The network's time under a choice; None if the measurement is missing or failed."""
    row = choices.get(choice)
    return None if row is None or row.failure is not None else median_of(row.time)


def network_section(document: AnalyzeDocument, page: Page) -> None:
    """Write the whole network's times, if measured: under the choice, under each device's own best, and untuned."""
    measured = measured_of(document)
    if not measured:
        return
    clocks = {clock_name(row.time.clock) for row in document.network if row.time is not None}
    by = f", compared by {listed(sorted(clocks))}" if clocks else ""
    page.heading(f"The whole network{by} (median, [95 % interval])")
    rows = sorted(measured.items(), key=lambda row: -(longer_by(row[1]) or -2.0))
    page.draw("gnomon.jobs.overlay.picture:network_charts", document)
    page.table(
        Table(rows, most=_MOST_DEVICES, more="more devices, where it loses less", split=7)
        .text("device", lambda row: row[0], most=32)
        .number("overlay", lambda row: _time_words(row[1].get("overlay")))
        .text("", lambda row: _ends_words(row[1].get("overlay")), least=14)
        .number("its own best", lambda row: _time_words(row[1].get(f"own:{row[0]}")))
        .text("", lambda row: _ends_words(row[1].get(f"own:{row[0]}")), least=14)
        .number("longer by", lambda row: _longer_words(longer_by(row[1])))
        .text("", lambda row: _longer_interval(row[1]))
        .number("untuned", lambda row: like(time_of(row[1], "untuned"), time_of(row[1], "overlay")))
        .number("max error", lambda row: row[1]["overlay"].max_error if "overlay" in row[1] else None, units.small)
    )
    failed = [(row, row.failure) for row in document.network if row.failure is not None]
    for row, failure in failed[:_MOST_ITEMS]:
        page.item(f"{_choice_words(row)}: failed, {failure_words(failure)}.")
    if len(failed) > _MOST_ITEMS:
        page.item(f"{len(failed) - _MOST_ITEMS} more failed: --json lists them.")
    dtype = document.model.dtype
    for row in document.network:
        if row.failure is None and wrong(row.max_error, dtype):
            page.item(f"{_choice_words(row)}: measured, {outputs(row.max_error, dtype)}.", "Do not deploy the network.")


def _time_words(row: MeasuredChoice | None) -> str:
    return "failed" if row is not None and row.failure is not None else units.time(median_of(row.time if row else None))


def _ends_words(row: MeasuredChoice | None) -> str:
    return interval_of(None if row is None or row.failure is not None else row.time)


def _longer_words(longer: float | None) -> str:
    return "-" if longer is None else f"{100 * longer + 0.0:.1f} %" if abs(longer) < 1 else loss(longer)


def _choice_words(row: MeasuredChoice) -> str:
    """A device and a choice for it: "phone, its own best"."""
    host = row.choice.removeprefix("own:")
    own = "its own best" if host == row.device else f"the best of {named(host, 32)}"
    choice = own if row.choice.startswith("own:") else "the overlay" if host == "overlay" else named(host)
    return f"{named(row.device, 32)}, {choice}"


def longer_by(choices: Choices) -> float | None:
    """The overlay's time over the device's own best, paired by process, minus 1; None if either is missing."""
    ratio = choices["overlay"].to_own if "overlay" in choices else None
    return None if ratio is None else ratio.ratio - 1


def _ends(choices: Choices) -> tuple[float, float] | None:
    """The 95 % interval of `longer_by`; None if it is unknown."""
    ratio = choices["overlay"].to_own if "overlay" in choices else None
    return None if ratio is None or ratio.low is None or ratio.high is None else (ratio.low - 1, ratio.high - 1)


def _longer_interval(choices: Choices) -> str:
    """The 95 % interval of `longer_by` in percent: "[1.2, 3.4]"; "-" if it is unknown."""
    ends = _ends(choices)
    if ends is None:
        return "-"
    digits = 1 if ends[1] < 1 else 0
    return f"[{', '.join(f'{round(100 * end, digits) + 0.0:.{digits}f}' for end in ends)}]"


def network_sentence(measured: Mapping[str, Choices]) -> str:
    """The measured network in one sentence."""
    longer = {device: share for device, choices in measured.items() if (share := longer_by(choices)) is not None}
    if longer:
        devices = sorted(longer, key=lambda device: -longer[device])
        sure = [device for device in devices if _is_sure(_ends(measured[device]))]
        each = [f"{_against(longer[device])} its own best on {named(device, 32)}" for device in sure]
        mean = f"{_against(sum(longer.values()) / len(longer))} each device's own best on average: it "
        words = f"Measured on {many(len(devices), 'device')}, the whole network "
        words += f"{mean if len(sure) == len(devices) > 1 else ''}{listed(each)}"
        if vague := [named(device, 32) for device in devices if device not in sure]:
            words += f"{'; ' if sure else 'is '}undecided against the own best on {listed(vague)}, where the 95 % "
            words += "interval contains 0, is wider than 20 points or is unknown"
    else:
        words = "The whole network was measured, but no device's own best was measured with it"
    ratios = [choices["untuned"].to_overlay for choices in measured.values() if "untuned" in choices]
    if untuned := [ratio.ratio for ratio in ratios if ratio is not None]:
        low, high = units.digits(min(untuned)), units.digits(max(untuned))
        words += f"; the tuned network is {low if low == high else f'{low} to {high}'} times as fast as untuned"
    return f"{words}."


def _is_sure(ends: tuple[float, float] | None) -> bool:
    return ends is not None and ends[1] - ends[0] <= 2 * _VAGUE and (ends[0] > 0 or ends[1] < 0)


def _against(longer: float) -> str:
    return f"takes {loss(longer)} longer than" if longer >= 0 else f"takes {loss(-longer)} less than"


def devices_section(document: AnalyzeDocument, page: Page) -> None:
    """Write each device's loss over the sum of the layers, the largest first, and the layer that loses most there."""
    layers, devices = document.layers, document.devices
    if not layers or len(devices) < 2:
        return
    page.heading("Each device, by the sum of the layers listed here")
    sums = {device: _sums(layers, device) for device in devices}
    lost = {device: chosen / best - 1 if best else None for device, (best, chosen) in sums.items()}
    rows = [
        (device, *sums[device], max(layers, key=lambda layer: layer.regret.get(device) or 0.0))
        for device in sorted(devices, key=lambda device: -(lost[device] or 0.0))
    ]
    page.draw("gnomon.jobs.overlay.picture:losses_charts", document)
    page.table(
        Table(rows, most=_MOST_DEVICES, more="more devices, which lose less")
        .text("device", lambda row: row[0], most=32)
        .number("its own best", lambda row: like(row[1], row[2]))
        .number("the choice", lambda row: row[2], units.time)
        .number("loses", lambda row: lost[row[0]], loss)
        .text("most in layer", lambda row: row[3].name if row[3].regret.get(row[0]) else "-", least=16, most=40)
    )


def _sums(layers: Sequence[ChosenLayer], device: str) -> tuple[float, float]:
    """The sums of the layers' best and chosen times on a device, weighted by how often the network calls each layer."""
    both = [(layer.weight, layer.theta.get(device), layer.times.get(device)) for layer in layers]
    timed = [(weight, theta, time) for weight, theta, time in both if theta is not None and time is not None]
    return sum(weight * theta for weight, theta, _ in timed), sum(weight * time for weight, _, time in timed)


def others_section(document: AnalyzeDocument, page: Page) -> None:
    """Write the loss from using one device's own best everywhere, next to the loss of the choice."""
    own, total, count = document.own, document.total, len(document.devices)
    if not own or not document.layers or count < 2:
        return
    page.heading("Compared with one device's own best on all devices (mean over decided layers, worst layer)")
    rows = [("the choice", total.M, total.mean_regret, total.worst_regret)]
    ranked = [(part.M, host, part.worst_regret) for host, part in own.items() if part.M is not None]
    for value, host, worst in sorted(ranked, key=lambda row: row[0]):
        rows.append((f"best of {named(host, 32)}", value, value / count, worst))
    page.table(
        Table(rows, most=1 + _MOST_DEVICES, more="more, which lose more", chosen=lambda row: row is rows[0])
        .text("used everywhere", lambda row: row[0], least=16, most=40)
        .number("M", lambda row: row[1], metric)
        .number("mean regret", lambda row: row[2], loss)
        .number("worst", lambda row: row[3], loss)
    )
    if absent := [named(host, 32) for host in document.hosts if host not in {host for _, host, _ in ranked}]:
        page.line(f"Not compared: {listed(absent)}, failed or not timed in some layer.", indent=1, style="dim")


def minimax_section(document: AnalyzeDocument, page: Page) -> None:
    """Write the layers in which a configuration with a larger M loses less on its worst device, with both losses."""
    layers = [layer for layer in largest_first(document.layers) if layer.minimax is not None]
    if len(document.devices) < 2 or not any(layer.worst_regret for layer in document.layers):
        return
    if not layers:
        page.item("No configuration loses less on its worst device (minimax) than the layer's choice of least M.")
        return
    page.heading("Layers where another configuration loses least on the worst device (minimax)")
    page.table(
        layer_table(layers, most=_MOST_ITEMS, split=6)
        .number("worst", _least_loss(lambda choice: loss(choice.worst_regret)))
        .number("least M's", lambda layer: layer.worst_regret, loss)
        .number("mean", _least_loss(lambda choice: loss(choice.mean_regret)))
        .number("least M's", lambda layer: layer.mean_regret, loss)
        .text("on", _least_loss(lambda choice: choice.worst_device), least=8, most=24)
        .text("configuration", _least_loss(lambda choice: choice.configuration), least=16)
        .text("found on", _least_loss(lambda choice: choice.host), least=8, most=24)
    )


def _least_loss(show: Callable[[ChoicePart], str]) -> Callable[[ChosenLayer], str]:
    return lambda layer: "-" if layer.minimax is None else show(layer.minimax)


def portfolio_section(document: AnalyzeDocument, page: Page) -> None:
    """Write how much is lost with one, two or more configurations per layer, and which devices share each build."""
    portfolio = document.portfolio
    if portfolio is None:
        return
    page.heading(f"With up to {many(portfolio.size, 'configuration')} per layer")
    mean = None if portfolio.M is None else portfolio.M / max(1, len(document.devices))
    words = f"M is {metric(portfolio.M)} instead of {metric(document.total.M)}: the network loses "
    words += f"{loss(mean)} on average"
    guessed = [named(layer.name, 32) for layer in portfolio.layers if not layer.proven]
    proof = f"; not proven optimal for {listed(guessed)}" if guessed else "; proven optimal"
    page.line(f"{words}{proof if portfolio.layers else ''}.", indent=1)
    alone = {layer.name: layer.M for layer in document.layers}
    several = {layer.name for layer in _open_to_choice(document.layers)}
    if rows := [layer for layer in portfolio.layers if layer.name in several]:
        page.table(
            Table(rows, most=MOST_LAYERS, more="more layers")
            .text("layer", lambda layer: layer.name, least=16, most=40)
            .number("M", lambda layer: layer.M, metric)
            .number("with one", lambda layer: alone.get(layer.name), metric)
            .number("used", lambda layer: len({*layer.serves.values()}))
        )
    if portfolio.builds:
        loses = "" if portfolio.M_builds is None else loss(portfolio.M_builds / max(1, len(document.devices)))
        sure = "" if portfolio.builds_proven else ", not proven optimal"
        page.line(f"With one build for each group of devices, the network loses {loses} on average{sure}:", indent=1)
        for number, build in enumerate(portfolio.builds[:MOST_LAYERS], 1):
            page.item(f"{number}: {listed([named(device, 24) for device in build.devices])}.")


def collect_report(document: CollectDocument, page: Page) -> None:
    """Write the results of another device's configurations on this one, layer by layer."""
    layers, host, device = document.layers, named(document.host, 40), device_key(document.device.key)
    failed = sum(layer.failed for layer in layers)
    words = f"{many(sum(layer.configurations for layer in layers), 'configuration')} found on {host}, tried on "
    words += f"{device}: {sum(layer.measured for layer in layers)} measured, {failed or 'none'} failed"
    page.headline(f"{words}, in {units.duration(document.seconds)}.")
    held(named(document.model.name), device, document.conditions, page)
    _collected(layers, document.host, page)
    failure_items(document.failures, "Failures", page)
    notes(document.notes, page)
    page.heading("Written")
    page.path("records", document.records)
    page.path("from", document.source)


def collected_report(document: CollectedDocument, page: Page) -> None:
    """Write the collected times of each device, and the command that analyzes them together with the given logs."""
    if not document.collected:
        page.headline("Every choice is sure (chosen in 90 % of the resamplings or more): nothing was measured again.")
        return
    for part in document.collected:
        collect_report(part, page)
    files = dict.fromkeys([*document.logs, *(part.records for part in document.collected)])
    page.path("next", f"gnomon overlay analyze {shlex.join(files)}{in_folder(*reversed(files))}")


def _behind(layer: CollectedLayer) -> float | None:
    """The relative loss of the host's best configuration on this device; None if it has no time here."""
    if not layer.best_s or layer.host_best_here_s is None:
        return None
    return layer.host_best_here_s / layer.best_s - 1


def _collected(layers: Sequence[CollectedLayer], host: str, page: Page) -> None:
    tried = [layer for layer in layers if layer.configurations]
    if not tried:
        return
    page.heading("Layers (median of one call)")
    page.table(
        Table(tried, most=MOST_LAYERS, more="more layers")
        .text("layer", lambda layer: layer.name, least=16, most=40)
        .number("tried", lambda layer: layer.configurations)
        .number("measured", lambda layer: layer.measured)
        .number("failed", lambda layer: layer.failed)
        .number("best here", lambda layer: layer.best_s, units.time)
        .number(f"best of {named(host, 16)}", lambda layer: like(layer.host_best_here_s, layer.best_s))
        .number("longer by", _behind, loss)
    )
    if len(tried) < len(layers):
        words = many(len(layers) - len(tried), "more layer has", "more layers have")
        page.line(f"{words} no configuration to measure.", indent=1, style="dim")


def analyze_report(document: AnalyzeDocument, page: Page) -> None:
    """Write the choice of one configuration per layer: its loss, the network, the layers, and what was skipped."""
    page.headline(_answer(document))
    if document.network:
        page.line(network_sentence(measured_of(document)))
    _about(document, page)
    network_section(document, page)
    _layers(document, page)
    devices_section(document, page)
    with page.details("configurations, other choices: one device's own, minimax, a portfolio"):
        others_section(document, page)
        minimax_section(document, page)
        portfolio_section(document, page)
        _chosen_section(document, page)
    _skipped(document, page)
    doubts(document.doubts, page)
    notes(document.notes[:_NOTES], page)
    with page.details("more notes"):
        notes(document.notes[_NOTES:], page)
    _written(document, page)


def _answer(document: AnalyzeDocument) -> str:
    """The answer in one sentence: the choice's average loss, and the layer and device where it loses most."""
    layers, devices, total = document.layers, document.devices, document.total
    if not layers:
        return f"No layer could be decided for {many(len(devices), 'device')}."
    words = f"One configuration per layer for {many(len(devices), 'device')}: "
    if total.undecided:
        share = "" if total.decided_share is None else f", {share_of(total.decided_share)} of the time"
        others = "the other stays" if total.undecided == 1 else "the others stay"
        words = f"{total.layers} of {many(total.layers + total.undecided, 'layer')} decided for "
        words += f"{many(len(devices), 'device')}{share}; {others} untuned. In the decided layers, "
    worst, most = max(layers, key=lambda layer: layer.worst_regret or 0.0), total.worst_regret or 0.0
    if most <= 0:
        where = "" if len(devices) == 1 else " on every device"
        return f"{words}each choice is the fastest configuration{where}."
    # With --layer the network's worst layer may not be listed.
    where = f" (layer {named(worst.name, 32)} on {named(worst.worst_device, 32)})"
    where = where if (worst.worst_regret or 0.0) >= most else " in a layer that is not listed here"
    return (
        f"{words}the network loses {loss(total.mean_regret)} on average compared with each device's own best, and a "
        f"layer at worst {loss(most)}{where}{_undiluted(layers)}."
    )


def _open_to_choice(layers: Sequence[ChosenLayer]) -> list[ChosenLayer]:
    """The layers that have more than one configuration to choose from."""
    return [layer for layer in layers if layer.configurations > 1]


def _undiluted(layers: Sequence[ChosenLayer]) -> str:
    """The words about the loss in layers with several configurations; empty if all layers have several."""
    open_ = _open_to_choice(layers)
    share = sum(layer.share for layer in open_)
    if len(open_) == len(layers) or not share > 0:
        return ""
    lost = sum(layer.share * (layer.mean_regret or 0.0) for layer in open_) / share
    where = f"{len(open_)} of {many(len(layers), 'layer')}, {share_of(share)} of the time"
    return f"; layers with several configurations ({where}) lose {loss(lost)}"


def _about(document: AnalyzeDocument, page: Page) -> None:
    layers, model, decided = document.layers, document.model, document.total.layers
    hosts = [named(host, 24) for host in document.hosts]
    few = f"{len(layers)} of " if len(layers) < decided else ""
    words = f"{few}{many(decided, 'layer')} of {named(model.name)} in {named(model.dtype)}, "
    words += f"{many(sum(layer.configurations for layer in layers), 'configuration')} ranked"
    page.line(f"{words}{f', found on {listed(hosts)}' if hosts else ''}.")


def _layers(document: AnalyzeDocument, page: Page) -> None:
    layers = largest_first(_open_to_choice(document.layers))
    if not layers:
        return
    page.heading("Layers with several configurations, the largest share of the time first")
    sure = any(layer.confidence is not None for layer in layers)
    bounds = any(layer.M_low is not None and layer.M_high is not None for layer in layers)
    table = layer_table(layers, most=FEW if page.brief else MOST_LAYERS, split=7 if bounds else 6)
    table.number("share", lambda layer: layer.share, share_of).number("M", lambda layer: layer.M, metric)
    if bounds:
        table.text("95 % interval", _metric_ends, least=14)
    table.number("mean", lambda layer: layer.mean_regret, loss).number("worst", lambda layer: layer.worst_regret, loss)
    table.text("on", lambda layer: layer.worst_device if layer.worst_regret else "-", least=8, most=24)
    table.number("ranked", lambda layer: layer.configurations)
    if sure:
        table.number("sure", lambda layer: layer.confidence, units.share)
    table.number("next M", lambda layer: layer.runner_up.M if layer.runner_up else None, metric)
    table.text("configuration", lambda layer: layer.configuration, least=16)
    page.table(table.text("found on", lambda layer: layer.host, least=8, most=24))
    page.draw("gnomon.jobs.overlay.picture:layer_charts", document)
    if alone := [layer for layer in document.layers if layer not in layers]:
        words = f"{many(len(alone), 'more layer has', 'more layers have')} only one configuration"
        page.line(f"{words}, with {share_of(sum(layer.share for layer in alone))} of the time.", indent=1, style="dim")
    words = f"M: the sum of regrets on {many(len(document.devices), 'device')}, relative to the best time "
    note = "Sure: the share of resampled times with the same choice."
    note = note if sure else "The confidence is unknown, because each time is a single sample."
    page.line(f"{words}there (theta); 0: best on all devices. {note}", indent=1, style="dim")
    doubtful = [named(layer.name, 32) for layer in layers if layer.close]
    if doubtful:
        page.item(
            f"{many(len(doubtful), 'choice is', 'choices are')} not sure: {listed(doubtful)}.",
            f"Other configurations are about as good{'; to measure only these again:' if document.replayable else '.'}",
        )
        if document.replayable:
            words = shlex.join([*document.logs, *(word for key in document.devices for word in ("--device", key))])
            out = in_folder(*document.written.records.values(), *document.logs)
            page.path("again", f"gnomon overlay collect --close {words}{out}")


def _metric_ends(layer: ChosenLayer) -> str:
    return "-" if layer.M_low is None or layer.M_high is None else f"[{metric(layer.M_low)}, {metric(layer.M_high)}]"


def _skipped(document: AnalyzeDocument, page: Page) -> None:
    """Write the layers without a choice, and the configurations that were not ranked or that failed."""
    undecided = document.undecided
    incomplete = [(named(layer.name, 32), part) for layer in document.layers for part in layer.incomplete]
    lost = Counter(named(device, 32) for _, part in incomplete for device in part.missing)
    failures: dict[tuple[str, str, str, str], list[FailedTrialPart]] = {}
    for name, trial in ((layer.name, trial) for layer in document.layers for trial in layer.failed):
        failures.setdefault((name, trial.device, trial.stage, trial.kind), []).append(trial)
    if not (undecided or incomplete or failures):
        return
    page.heading("Skipped")
    for row in undecided[:_MOST_ITEMS]:
        page.item(f"Layer {named(row.name)} has no choice: {sentence(named(row.reason, 400))}")
    if len(undecided) > _MOST_ITEMS:
        page.item(f"{many(len(undecided) - _MOST_ITEMS, 'more layer has', 'more layers have')} no choice.")
    if incomplete:
        where = [f"{name} ({count})" for name, count in lost.most_common()]
        layers = listed([*dict.fromkeys(name for name, _ in incomplete)])
        page.item(
            f"{many(len(incomplete), 'configuration is', 'configurations are')} not ranked, because times are missing "
            f"on {listed(where)}, in {layers}.",
            "gnomon overlay collect measures the missing times." if document.replayable else "",
        )
    for (name, device, *_), trials in sorted(failures.items(), key=lambda row: -len(row[1]))[:_MOST_ITEMS]:
        times = f", {len(trials)} times" if len(trials) > 1 else ""
        page.item(f"On {named(device, 32)}, in {named(name, 32)}{times}: {sentence(failure_words(trials[0]))}")
    if len(failures) > _MOST_ITEMS:
        kinds = many(len(failures) - _MOST_ITEMS, "more kind of failure", "more kinds of failures")
        page.item(f"{kinds}: --json lists all.")


def _chosen_section(document: AnalyzeDocument, page: Page) -> None:
    """Write the chosen configurations of AutoTVM or Ansor, with the AutoTVM index for each device."""
    rows = [layer for layer in largest_first(document.layers) if layer.entity is not None]
    if rows:
        page.heading("The chosen configurations in the format of their tuner")
    for layer in rows[:MOST_LAYERS]:
        where = [f"{index} on {named(device, 24)}" for device, index in layer.index.items()]
        index = f"index {next(iter(layer.index.values()))}; " if len({*layer.index.values()}) == 1 else ""
        index = f"index {listed(where)}; " if where and not index else index
        page.item(f"{named(layer.name)}: {index}{json.dumps(layer.entity)}")


_USE = {
    ".atvm.log": "tvm.autotvm.apply_history_best(FILE), in the TVM that wrote the logs",
    ".ansor.log": "tvm.auto_scheduler.ApplyHistoryBest(FILE), in the TVM that wrote the logs",
}


def _written(document: AnalyzeDocument, page: Page) -> None:
    written, libraries = document.written, sorted(document.written.libraries.items())
    rows = [
        (label, path)
        for label, paths in (("lines", written.lines), ("records", written.records), ("database", written.databases))
        for _, path in sorted(paths.items())[:_MOST_ITEMS]
    ]
    rows += [("of all", written.whole), ("builds", written.selection), ("network", written.module)]
    rows += [("library", path) for _, path in libraries[:_MOST_ITEMS]]
    rows += [("use", words) for end, words in _USE.items() if written.whole.endswith(end)]
    if libraries:
        key, path = libraries[0]
        rows.append(("run it", f"gnomon exec {shlex.quote(path)}{on_device(key)}"))
    if document.pictures:
        rows.append(("pictures", f"{len(document.pictures)} in {PurePath(document.pictures[0]).parent}"))
    if rows := [(label, path) for label, path in rows if path]:
        page.heading("Written")
    for label, path in rows:
        page.path(label, path)
    devices = max(map(len, (written.lines, written.records, libraries)))
    if devices > _MOST_ITEMS:
        page.line(f"and {many(devices - _MOST_ITEMS, 'more device')}: --json lists all files", indent=2, style="dim")

"""The reports of `gnomon tune`, `tune list` and `exec`, made from their documents, and words that overlay's share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.jobs.place.shared_report import doubts
from gnomon.measure.environment import Doubt
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import listed, percent, ratio_interval, say, sentence
from gnomon.report.plain import shorten

_FACTORS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_FARTHEST = 1e3
"""From how many times apart on two times are told each in its own unit."""

_ROUNDING = {"float16": 2e-2, "bfloat16": 1e-1}
_ROUNDING_OF_OTHERS = 1e-3
"""Up to which difference, relative to the largest output, outputs are called equal: another order of the sums."""

_MOST_FAILURES = 8
_MOST_MESSAGE = 200
_PROPER = 16
"""Trials a layer from which on more bring little: docs/jobs/tune.md has the figures."""

FEW = 5
"""Rows of a table in a brief report."""

_MOST_LAYERS = 40
_MOST_FILES = 100
_STOPPED = {
    "trials": "all trials that were asked for are made",
    "plateau": "nothing better was found any more",
    "budget": "the time was up",
    "exhausted": "there was no further configuration",
}
_MOST_WINS = 6


def named(text: Any, most: int = 48) -> str:
    """A name from outside, cleaned and short."""
    return shorten(str(text), most)


def device_key(device: Any) -> str:
    """The key of a device, given as its document or as its key."""
    return named(device["key"] if isinstance(device, Mapping) else device, 40)


def on_device(name: str) -> str:
    """The option that names a device, where one must be named: " --device phone"."""
    return "" if name == "local" else f" --device {shlex.quote(name)}"


def target_words(target: Mapping[str, Any]) -> str:
    """What is compiled for: "llvm, cortex-a72"; an empty text where it is not known."""
    known = (target.get(name) for name in ("kind", "mcpu", "model", "tag"))
    return ", ".join([named(one, 40) for one in known if one][:2])


def device_words(device: Mapping[str, Any]) -> str:
    """A device with what is compiled for it: "phone (llvm, cortex-a72, 4 threads)"."""
    threads = device["threads"]
    told = [words for words in (target_words(device["target"]),) if words]
    told += [many(threads, "thread")] if threads else []
    return f"{device_key(device)} ({', '.join(told)})" if told else device_key(device)


def many(count: int, name: str, several: str = "") -> str:
    """A count of things: "1 layer", "2 layers"."""
    return f"{count} {name if count == 1 else several or name + 's'}"


def like(seconds: float | None, other_s: float | None) -> str:
    """A time in the unit of a longer one, so that both can be compared at sight: "0.601 ms" beside "11.6 ms"."""
    if seconds is None or other_s is None or not math.isfinite(seconds) or not math.isfinite(other_s):
        return units.time(seconds)
    if seconds >= other_s or seconds * _FARTHEST < other_s:
        return units.time(seconds)
    unit = units.time(other_s).rpartition(" ")[2]
    return f"{units.digits(seconds / _FACTORS[unit])} {unit}"


def median_of(summary: Mapping[str, Any] | None) -> float | None:
    """The median of a summary; None where there is none."""
    return None if summary is None else summary["median_s"]


def interval_of(summary: Mapping[str, Any] | None) -> str:
    """The interval of a summary in the unit of its median: "[590, 612]"; "-" without a summary."""
    if summary is None or summary["median_s"] is None:
        return "-"
    return units.interval(summary["low_s"], summary["high_s"], summary["median_s"])


def outputs(max_error: float | None, dtype: str) -> str:
    """What is known of the outputs: "outputs equal within 1.5e-08"."""
    if max_error is None or math.isnan(max_error):
        return "outputs not compared"
    if max_error == 0:
        return "outputs equal"
    if max_error <= _ROUNDING.get(dtype, _ROUNDING_OF_OTHERS):
        return f"outputs equal within {units.small(max_error)}"
    return f"but its outputs are off by up to {units.small(max_error)}, more than rounding explains"


def wrong(max_error: float | None, dtype: str) -> bool:
    """Whether outputs are further off than rounding explains."""
    return max_error is not None and max_error > _ROUNDING.get(dtype, _ROUNDING_OF_OTHERS)


def metric(value: float | None) -> str:
    """A value of M: "0.012", "3.141", "271"; "-" where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    if 0 < value < 0.0005:
        return "<0.001"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def loss(regret: float | None) -> str:
    """What is lost against the best: "1.2 %", "230 %"; from ten times as long on "11.4 times"; "-" where unknown."""
    if regret is None or not math.isfinite(regret):
        return "-"
    if regret >= 9.995:
        return f"{units.digits(1 + regret)} times"
    return percent(regret) if regret < 0.9995 else f"{100 * regret:.0f} %"


def failure_words(failure: Mapping[str, Any]) -> str:
    """A failure in one line: "hang at build: took longer than 20 s"."""
    told = f"{named(failure['kind'])} at {named(failure['stage'])}"
    message = named(failure.get("message") or "", _MOST_MESSAGE)
    return f"{told}: {message}" if message.strip() else told


def failure_items(rows: Sequence[Mapping[str, Any]], title: str, page: Page) -> None:
    """Failures that were counted, the most frequent first, under a title; nothing where there are none."""
    if not rows:
        return
    page.heading(title)
    ordered = sorted(rows, key=lambda row: -row["count"])
    for row in ordered[:_MOST_FAILURES]:
        page.item(f"{row['count']} times {sentence(failure_words(row))}")
    more = ordered[_MOST_FAILURES:]
    if more:
        told = f"and {sum(row['count'] for row in more)} more of {many(len(more), 'other kind')}: --json has them"
        page.line(told, indent=1, style="dim")


def notes(rows: Sequence[str], page: Page) -> None:
    """Notes as a list; nothing where there are none."""
    if not rows:
        return
    page.heading("Notes")
    for row in rows:
        page.item(sentence(named(row, 2 * _MOST_MESSAGE)))


def largest_first(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Layers by their share of the time, the largest first; those without one last, in their order."""
    return sorted(rows, key=lambda row: -1.0 if row["share"] is None else row["share"], reverse=True)


def share_of(value: float | None) -> str:
    """A share: "82 %", "0.4 %"; "-" where unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    return units.share(value) if value >= 0.0995 else f"{100 * value:.1f} %"


def rest(rows: Sequence[Mapping[str, Any]], page: Page) -> None:
    """How many layers a table leaves out, and how much of the time they take; nothing where there are none."""
    if rows:
        known = [row["share"] for row in rows if row["share"] is not None]
        told = f" with {share_of(sum(known))} of the time" if known else ""
        page.line(f"and {many(len(rows), 'more layer', 'more layers')}{told}: --json has all", indent=1, style="dim")


def tune_report(document: Mapping[str, Any], page: Page) -> None:
    """What tuning brought: the network's times first, then its layers, what failed, and where everything is.

    The network's `ratio` is the untuned time over the tuned one, so that above 1 tuning made it faster.
    """
    say(page, _tuned(document), answer=True)
    say(page, _spent(document))
    if by := document["network"]["compared_with"]:
        say(page, f"Outputs compared with: {named(by, 200).rstrip('.')}.")
    _beside(document.get("beside"), page)
    _tuned_layers(document["layers"], page)
    failure_items(document["failures"], "Failed trials", page)
    doubts([Doubt(**row) for row in document.get("doubts") or []], page)
    with page.details("notes"):
        notes(document["notes"], page)
    _tuned_files(document, page)


def _beside(found: Mapping[str, Any] | None, page: Page) -> None:
    """How the tuned network stands beside other runtimes, and which operators it is the fastest at."""
    if not found:
        return
    if found["failure"]:
        say(page, f"No other runtime was measured beside it: {named(found['failure'], 200).rstrip('.')}.")
        return
    fastest, tuned = found["columns"][0], next(row for row in found["columns"] if row["tuned"])
    over = tuned["over_fastest"]
    if len(found["columns"]) == 1:
        say(page, "No other runtime here runs this network.")
        return
    if tuned is fastest:
        told = "the tuned network is the fastest"
    elif over is not None:
        told = f"{named(fastest['label'])} is the fastest; the tuned network takes {units.digits(over['ratio'])} times "
        told += f"{ratio_interval(over['low'], over['high'])} as long"
    else:
        told = f"{named(fastest['label'])} is the fastest"
    where = "interleaved in fresh processes, TVM compiling for the device's own processor"
    say(page, f"Of the runtimes here, {where}: {told}.")
    rows = [
        [
            "tuned" if row["tuned"] else row["label"],
            units.time(median_of(row["time"])),
            interval_of(row["time"]),
        ]
        for row in found["columns"]
    ]
    page.table([Column(title="", number=False, least=12), Column(title="time"), Column(title="", number=False)], rows)
    wins = sorted(found["wins"], key=lambda row: row["tuned_s"] - row["other_s"])
    if tuned is not fastest and wins:
        shown = [
            f"{named(row['operator'], 32)} ({units.time(row['tuned_s'])} against {units.time(row['other_s'])})"
            for row in wins
        ]
        page.item(
            f"{many(len(wins), 'operator')} that it computes faster than all others: {listed(shown[:_MOST_WINS])}."
        )


def _tuned(document: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    where = f"{named(document['model']['name'])} on {device_key(document['device'])}"
    network = document["network"]
    if network["failure"] is not None:
        return f"{where}: the tuned network failed, {failure_words(network['failure'])}."
    tuned = network["tuned"]["median_s"]
    error = outputs(network["max_error"], document["model"]["dtype"])
    if not network["scheduled"]:
        return f"{where}: nothing is tuned yet, {units.time(tuned)}, {error}."
    untuned = median_of(network["untuned"])
    if untuned is None:
        return f"{where}: {units.time(tuned)} tuned, untuned not measured, {error}."
    times = f"{like(tuned, untuned)} tuned, {like(untuned, tuned)} untuned"
    slower, words = _speed(network["ratio"], tuned, untuned)
    return f"{where}: {'tuning made it slower, ' if slower else ''}{times} ({words}), {error}."


def _speed(ratio: Mapping[str, Any] | None, tuned_s: float, untuned_s: float) -> tuple[bool, str]:
    """Whether tuning surely made it slower, and how many times as fast it is, in words that claim no more."""
    if ratio is None or ratio["low"] is None or ratio["high"] is None:
        value = untuned_s / tuned_s if ratio is None else ratio["ratio"]
        return False, f"{units.digits(value)} times as fast, how surely is unknown"
    value, low, high = ratio["ratio"], ratio["low"], ratio["high"]
    if high < 1 and low > 0:
        ends = f"[{units.digits(1 / high)}, {units.digits(1 / low)}]"
        return True, f"{units.digits(1 / value)} times {ends} as long"
    told = f"{units.digits(value)} times [{units.digits(low)}, {units.digits(high)}] as fast"
    return False, told if low > 1 else f"{told}: no difference is proved"


def _spent(document: Mapping[str, Any]) -> str:
    network = document["network"]
    why = _STOPPED.get(document["stopped"], named(document["stopped"]))
    told = f"{many(len(document['layers']), 'layer')} in {named(document['model']['dtype'])} for "
    told += f"{device_words(document['device'])}: {_trials(document)}; the end: {why}."
    if network["failure"] is None:
        told += f" {network['scheduled']} of {many(network['functions'], 'function')} of the network run tuned."
    return f"{told} {_enough(document['trials'])}".rstrip()


def _enough(trials: Mapping[str, Any]) -> str:
    """How many trials a layer that matters has, where more are worth their time."""
    relevant, asked = trials.get("relevant") or 0, trials["asked"]
    if not relevant or asked >= _PROPER * relevant or trials["measured"] < asked:
        return ""
    each = f"{asked / relevant:.0f}" if asked >= relevant else "less than 1"
    told = f"{asked} trials are {each} for each of the {many(relevant, 'layer')} that take 99 % of the untuned time"
    return f"{told}; --trials {_PROPER * relevant} would be {_PROPER}."


def _trials(document: Mapping[str, Any]) -> str:
    trials = document["trials"]
    there, took = f"{trials['measured']} of {many(trials['asked'], 'trial')}", units.duration(document["seconds"])
    failed = f"{trials['failed']} failed" if trials["failed"] else "none failed"
    if not trials["before"]:
        return f"{there} measured in {took}, {failed}"
    return f"{there} are there, {trials['measured'] - trials['before']} of them measured now, in {took}; {failed}"


def _tuned_layers(layers: Sequence[Mapping[str, Any]], page: Page) -> None:
    page.heading("Layers, the largest share of the untuned time first (median of one call, [95 % interval])")
    if not layers:
        page.line("There are none: nothing in this model can be tuned.", indent=1)
        return
    failed, stopped = any(layer["failed"] for layer in layers), {layer["stopped"] for layer in layers}
    columns = [
        Column(title="layer", number=False, least=16, most=40),
        Column(title="calls"),
        Column(title="share"),
        Column(title="untuned"),
        Column(title="tuned"),
        Column(title="", number=False, least=14),
        Column(title="times as fast"),
        Column(title="trials"),
        *([Column(title="failed")] if failed else []),
        *([Column(title="ended by", number=False, least=8)] if len(stopped) > 1 else []),
    ]
    ordered = largest_first(layers)
    tried = [layer for layer in ordered if layer["trials"]] or ordered
    rows = []
    most = FEW if page.brief else _MOST_LAYERS
    for layer in tried[:most]:
        row = [layer["name"], str(layer["weight"]), share_of(layer["share"])]
        row += [units.time(median_of(layer["untuned"])), units.time(median_of(layer["best"]))]
        row += [interval_of(layer["best"]), _times(layer["speedup"]), str(layer["trials"])]
        row += [str(layer["failed"])] if failed else []
        rows.append(row + ([named(layer["stopped"], 12)] if len(stopped) > 1 else []))
    page.table(columns, rows, split=7)
    rest(tried[most:], page)
    with page.details("layers that gained nothing, or were not tried"):
        _behind(ordered, page)


def _behind(ordered: Sequence[Mapping[str, Any]], page: Page) -> None:
    """Which layers gained nothing, or were not tried."""
    same = [named(layer["name"], 32) for layer in ordered if layer["speedup"] is not None and layer["speedup"] <= 1]
    if same:
        page.item(f"{many(len(same), 'layer')} came out no faster than untuned: {listed(same)}.")
    untried = [named(layer["name"], 32) for layer in ordered if not layer["trials"]]
    if untried:
        page.item(f"{many(len(untried), 'layer')} not tried: {listed(untried)}.")
    none = [named(layer["name"], 32) for layer in ordered if layer["best"] is None and layer["trials"]]
    if none:
        page.item(f"{many(len(none), 'layer')} without any good trial: {listed(none)}.")


def _times(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else units.digits(value)


def _tuned_files(document: Mapping[str, Any], page: Page) -> None:
    page.heading("Written")
    records, library, network = document["records"], document["library"], document["network"]
    page.path("records", records)
    if wrong(network["max_error"], document["model"]["dtype"]):
        page.item("The outputs are wrong.", "Do not deploy the library; look at the layers' errors in the records.")
    if library is not None:
        page.path("library", library)
        name = document["device"].get("name", document["device"]["key"])
        page.path("run it", f"gnomon exec {shlex.quote(library)}{on_device(name)}")
    page.path("overlay", f"gnomon overlay collect {shlex.quote(records)} --device ANOTHER-DEVICE")


def tuned_next(documents: Sequence[Mapping[str, Any]], page: Page) -> None:
    """The command that measures what was found on several devices on all of them; nothing for one device."""
    if len(documents) > 1:
        names = [str(one["device"].get("name", one["device"]["key"])) for one in documents]
        words = [*(one["records"] for one in documents), *(word for name in names for word in ("--device", name))]
        page.path("next", f"gnomon overlay collect {shlex.join(words)}")


def exec_report(document: Mapping[str, Any], page: Page) -> None:
    """What one network takes on a device: its time first, then its layers and what they leave unexplained."""
    network, failure = document["network"], document["failure"]
    where = f"{named(document['model']['name'])} on {device_key(document['device'])}"
    if failure is not None:
        say(page, f"{where} failed, {failure_words(failure)}.", answer=True)
    else:
        error = outputs(document["max_error"], document["model"]["dtype"])
        time = f"{units.time(network['median_s'])} {interval_of(network)}"
        say(page, f"{where}: {time}, {error}.", answer=True)
        told = many(network["samples"], "sample")
        say(page, f"Median and 95 % interval of {told} in {many(network['processes'], 'process', 'processes')}.")
    if document["compared_with"]:
        say(page, f"Outputs compared with: {named(document['compared_with'], 200).rstrip('.')}.")
    built = target_words(document["built_for"])
    say(page, f"Device: {device_words(document['device'])}.{f' Built for {built}.' if built else ''}")
    _ran_layers(document, page)
    doubts([Doubt(**row) for row in document.get("doubts") or []], page)
    notes(document["notes"], page)
    page.line("")
    page.path("source", document["source"])


def _ran_layers(document: Mapping[str, Any], page: Page) -> None:
    layers, network = document["layers"], median_of(document["network"])
    if not layers:
        return
    page.heading("Layers, the largest share of the time first (median of one call, [95 % interval])")
    columns = [
        Column(title="layer", number=False, least=16, most=40),
        Column(title="calls"),
        Column(title="share"),
        Column(title="time"),
        Column(title="", number=False, least=14),
    ]
    ordered = largest_first(layers)
    rows = [
        [
            row["name"],
            str(row["weight"]),
            share_of(row["share"]),
            units.time(median_of(row["time"])),
            interval_of(row["time"]),
        ]
        for row in ordered[:_MOST_LAYERS]
    ]
    page.table(columns, rows)
    rest(ordered[_MOST_LAYERS:], page)
    total, left = document["layers_sum_s"], document["unaccounted_s"]
    if total is not None:
        told = f"The layers take {units.time(total)} together"
        if left is not None and network:
            kind = "are in no layer" if left >= 0 else "more than the whole: each is slower alone"
            told += f"; {units.time(abs(left))} ({share_of(abs(left) / network)} of the network) {kind}"
        say(page, f"{told}.", indent=1)
    for row in layers:
        if row["failure"] is not None:
            page.item(f"{named(row['name'])} failed, {failure_words(row['failure'])}.")


def view_report(document: Mapping[str, Any], page: Page) -> None:
    """What a folder holds: models, records of tuning, and compiled networks."""
    models, records, libraries = document["models"], document["records"], document["libraries"]
    counts = [many(len(models), "model"), many(len(records), "record file")]
    counts.append(many(len(libraries), "compiled network"))
    page.headline(f"{', '.join(counts[:2])} and {counts[2]} in {named(document['folder'], 200)}.")
    if not (models or records or libraries):
        page.item("There is nothing yet.", "gnomon tune MODEL writes records and a compiled network.")
    _files("Models", "model", [(row["path"], units.mebibytes(row["bytes"])) for row in models], page)
    _files("Records", "records", [(row["path"], _record(row)) for row in records], page)
    made = [(row["path"], f"{_of(row)}, {units.mebibytes(row['bytes'])}") for row in libraries]
    _files("Compiled networks", "library", made, page)
    if libraries:
        page.line("")
        page.path("run it", f"gnomon exec {shlex.quote(libraries[0]['path'])}")
    for row in (*records, *libraries):
        if row["problem"] is not None:
            page.item(f"{row['path']}: {row['problem']}")


def _of(row: Mapping[str, Any]) -> str:
    return f"{named(row['model'])} on {device_key(row['device'])}"


def _record(row: Mapping[str, Any]) -> str:
    """A record file in a line: whose it is, found where, how many layers and trials."""
    found = row["found_on"]
    told = _of(row) if found in ("", None, row["device"]) else f"{_of(row)}, found on {device_key(found)}"
    return f"{told}, {named(row['dtype'])}, {many(row['layers'], 'layer')}, {many(row['trials'], 'trial')}"


def _files(title: str, label: str, rows: Sequence[tuple[str, str]], page: Page) -> None:
    """Paths, whole so that they can be copied, each with what it is; nothing where there are none."""
    if not rows:
        return
    page.heading(title)
    for path, told in rows[:_MOST_FILES]:
        page.path(label, path)
        page.line(told, indent=11, style="dim")
    if len(rows) > _MOST_FILES:
        page.line(f"and {len(rows) - _MOST_FILES} more: --json has all", indent=1, style="dim")

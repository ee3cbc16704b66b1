"""The reports of `gnomon tune`, `tune list` and `exec`, from their documents, and wording shared with overlays."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gnomon.jobs.place.shared_report import doubts, first_warnings, held
from gnomon.jobs.tune.document import (
    BesidePart,
    ExecDocument,
    FailureCount,
    FailureKind,
    LibraryFile,
    RatioPart,
    RecordFile,
    RuntimePart,
    TimesPart,
    TrialsPart,
    TunedDocument,
    TunedFilesDocument,
    TunedLayerPart,
    TuneDocument,
)
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS
from gnomon.report.page import Page, Table, ends_of
from gnomon.report.parts import percent, sentence
from gnomon.report.plain import listed, many, shorten
from gnomon.report.units import ratio_interval
from gnomon.system.files import user_folder


class Layer(Protocol):
    """A layer with its name and its share of the network's time."""

    @property
    def name(self) -> str:
        """The name, from an untrusted source."""

    @property
    def share(self) -> float | None:
        """The share; None if it is unknown."""


L = TypeVar("L", bound=Layer)
Times = TimesPart | None
_FACTORS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_FARTHEST = 1e3
"""The ratio above which two times are shown in different units."""

_ROUNDING = {"float16": 2e-2, "bfloat16": 1e-1}
_ROUNDING_OF_OTHERS = 1e-3
"""The largest difference, relative to the largest output, that counts as rounding, as the order of sums may differ."""

_MOST_FAILURES = 8
_MOST_MESSAGE = 200
_PROPER = 16
"""The number of trials per layer beyond which more trials gain little: docs/jobs/tune.md has the figures."""

FEW = 5
"""The number of rows of a table in a brief report."""

MOST_LAYERS = 40
_MOST_FILES = 100
_STOPPED = {
    "trials": "all requested trials were done",
    "plateau": "no more improvement",
    "budget": "out of time",
    "exhausted": "no configurations left",
}
_MOST_WINS = 6


def named(text: object, most: int = 48) -> str:
    """A name from an untrusted source, cleaned and shortened."""
    return shorten(str(text), most)


def device_key(key: str) -> str:
    """The key of a device, cleaned and shortened."""
    return named(key, 40)


def on_device(name: str) -> str:
    """The option for a device: " --device phone"; empty for this machine."""
    return "" if name == "local" else f" --device {shlex.quote(name)}"


def in_folder(*paths: str) -> str:
    """The option for the tuning folder with the first of these files: " --out DIR"; empty for the user's own folder."""
    own, kept = (user_folder() / "tune").absolute(), [path.parent for path in map(Path, paths)]
    folder = next((place.parent for place in kept if place.name in ("records", "overlay")), own)
    return "" if folder.absolute() == own else f" --out {shlex.quote(str(folder))}"


def target_words(target: Mapping[str, Any]) -> str:
    """The compiler's target in words: "llvm, cortex-a72"; empty if it is unknown."""
    words = (target.get(name) for name in ("kind", "mcpu", "model", "tag"))
    return ", ".join([named(word, 40) for word in words if word][:2])


def like(seconds: float | None, other_s: float | None) -> str:
    """A time in the unit of a longer time: "0.601 ms" next to "11.6 ms"."""
    if seconds is None or other_s is None or not math.isfinite(seconds) or not math.isfinite(other_s):
        return units.time(seconds)
    if seconds >= other_s or seconds * _FARTHEST < other_s:
        return units.time(seconds)
    unit = units.time(other_s).rpartition(" ")[2]
    return f"{units.digits(seconds / _FACTORS[unit])} {unit}"


def median_of(times: Times) -> float | None:
    """The median; None if there are no times."""
    return None if times is None else times.median_s


def interval_of(times: Times) -> str:
    """The interval in the unit of the median: "[590, 612]"; "-" if there are no times."""
    return "-" if times is None else units.interval(times.low_s, times.high_s, times.median_s)


def outputs(max_error: float | None, dtype: str) -> str:
    """The outputs' difference in words: "outputs equal within 1.5e-08"."""
    if max_error is None or math.isnan(max_error):
        return "outputs not compared"
    if max_error == 0:
        return "outputs equal"
    if not wrong(max_error, dtype):
        return f"outputs equal within {units.small(max_error)}"
    return f"but its outputs are off by up to {units.small(max_error)}, more than rounding explains"


def clock_name(clock: str) -> str:
    """The clock in words: "CPU time"."""
    return units.CLOCKS.get(clock, named(clock))


def wrong(max_error: float | None, dtype: str) -> bool:
    """Return True if outputs differ by more than rounding explains."""
    return max_error is not None and max_error > _ROUNDING.get(dtype, _ROUNDING_OF_OTHERS)


def metric(value: float | None) -> str:
    """A value of M: "0.012", "3.141", "271"; "-" if it is unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    if 0 < value < 0.0005:
        return "<0.001"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def loss(regret: float | None) -> str:
    """A loss compared with the best: "1.2 %", "230 %", or "11.4 times" from ten times as long; "-" if it is unknown."""
    if regret is None or not math.isfinite(regret):
        return "-"
    if regret >= 9.995:
        return f"{units.digits(1 + regret)} times"
    return percent(regret) if regret < 0.9995 else f"{100 * regret:.0f} %"


def share_of(value: float | None) -> str:
    """A share: "82 %", "0.4 %"; "-" if it is unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    return units.share(value) if value >= 0.0995 else f"{100 * value:.1f} %"


def failure_words(failure: FailureKind) -> str:
    """A failure in one line: "hang at build: took longer than 20 s"."""
    where, message = f"{named(failure.kind)} at {named(failure.stage)}", named(failure.message, _MOST_MESSAGE)
    return f"{where}: {message}" if message.strip() else where


def failure_items(rows: Sequence[FailureCount], title: str, page: Page) -> None:
    """Write counted failures, the most frequent first, under a title; nothing if there are none."""
    if not rows:
        return
    page.heading(title)
    ordered = sorted(rows, key=lambda row: -row.count)
    for row in ordered[:_MOST_FAILURES]:
        page.item(f"{many(row.count, 'time')}: {sentence(failure_words(row))}")
    if more := ordered[_MOST_FAILURES:]:
        kinds = many(len(more), "other kind")
        page.line(f"and {sum(row.count for row in more)} more of {kinds}: --json has them", indent=1, style="dim")


def notes(rows: Sequence[str], page: Page) -> None:
    """Write notes as a list; nothing if there are none."""
    if not rows:
        return
    page.heading("Notes")
    for row in rows:
        page.item(sentence(named(row, 2 * _MOST_MESSAGE)))


def compared_with(words: str | None, times: TimesPart | None, page: Page) -> None:
    """Write which clock decided, and what the network's outputs were compared with, as far as these are known."""
    sentences = [] if times is None else [f"Decided by {clock_name(times.clock)}."]
    if words:
        sentences.append(f"Outputs compared with: {named(words, 200).rstrip('.')}.")
    if sentences:
        page.line(" ".join(sentences))


def largest_first(layers: Sequence[L]) -> list[L]:
    """Layers by their share of the time, the largest first; layers without a share come last, in their given order."""
    return sorted(layers, key=lambda layer: -1.0 if layer.share is None else layer.share, reverse=True)


def left_out(layers: Sequence[Layer], most: int = MOST_LAYERS) -> str:
    """The words for the layers beyond the first `most`: "more layers with 7 % of the time"."""
    shares = [layer.share for layer in layers[most:] if layer.share is not None]
    share = f" with {share_of(sum(shares))} of the time" if shares else ""
    return f"{'more layer' if len(layers) == most + 1 else 'more layers'}{share}"


def tune_report(document: TuneDocument, page: Page) -> None:
    """Write the report of tuning: the network's times first, then its layers, the failures, and the files."""
    page.headline(_tuned(document))
    held(named(document.model.name), device_key(document.device.key), document.conditions, page)
    first_warnings(document.doubts, page)
    page.line(_spent(document))
    compared_with(document.network.compared_with, document.network.tuned, page)
    whole = [("untuned", document.network.untuned, LOOKS[0]), ("tuned", document.network.tuned, CHOSEN)]
    page.table(
        Table(row for row in whole if row[1] is not None)
        .text("the whole network", lambda row: row[0], extra=True)
        .number("time", lambda row: median_of(row[1]), units.time, extra=True)
        .text("95 % interval", lambda row: interval_of(row[1]), extra=True)
        .bars("The whole network, with its 95 % interval", lambda row: ends_of(row[1]), lambda row: row[2])
    )
    _beside(document.beside, page)
    _layers(document.layers, page)
    with page.details("failed trials"):
        failure_items(document.failures, "Failed trials", page)
    doubts(document.doubts, page)
    with page.details("notes"):
        notes(document.notes, page)
    _written(document, page)


def tuned_report(document: TunedDocument, page: Page) -> None:
    """Write the reports of several devices, and the command that measures all configurations on all these devices."""
    for part in document.tuned:
        tune_report(part, page)
    words = [part.records for part in document.tuned]
    words += [word for part in document.tuned for word in ("--device", part.device.name or part.device.key)]
    page.path("next", f"gnomon overlay collect {shlex.join(words)}{in_folder(*words)}")


def _beside(beside: BesidePart | None, page: Page) -> None:
    """Write the comparison of the tuned network with other runtimes, and the operators at which it is the fastest."""
    if beside is None:
        return
    if beside.failure:
        page.line(f"Not compared with other runtimes: {named(beside.failure, 200).rstrip('.')}.")
        return
    if len(beside.columns) == 1:
        page.line("No other installed runtime runs this network.")
        return
    tuned = next(row for row in beside.columns if row.tuned)
    where = "run interleaved in fresh processes; TVM compiled for the device's own processor"
    clock = f", by {clock_name(beside.clock)}" if beside.clock else ""
    page.line(f"All runtimes{clock}, {where}: {_fastest(beside, tuned)}.")
    page.table(
        Table(beside.columns)
        .text("", lambda row: "tuned" if row.tuned else row.label)
        .times("time", lambda row: row.time)
        .bars(
            "Each runtime, side by side in fresh processes",
            lambda row: ends_of(row.time),
            lambda row: CHOSEN if row.tuned else LOOKS[0],
        )
    )
    if tuned.over_fastest is not None and beside.wins:
        wins = [
            f"{named(row.operator, 32)} ({units.time(row.tuned_s)} against {units.time(row.other_s)})"
            for row in sorted(beside.wins, key=lambda row: row.tuned_s - row.other_s)[:_MOST_WINS]
        ]
        page.item(f"By single medians, tuned is the fastest at {many(len(beside.wins), 'operator')}: {listed(wins)}.")


def _fastest(beside: BesidePart, tuned: RuntimePart) -> str:
    """The words about the fastest runtime, and whether the tuned network's difference from it is significant."""
    fastest, over = beside.columns[0], tuned.over_fastest
    near = [row for row in beside.columns if row.over_fastest and row.over_fastest.verdict != "slower"]
    if over is not None and over.verdict == "slower":
        words = f"{named(fastest.label)} is {'among the' if near else 'the'} fastest; the tuned network takes "
        return f"{words}{units.digits(over.ratio)} times {ratio_interval(over.low, over.high)} as long"
    equal = near if over is None else [fastest]
    if not equal:
        return "the tuned network is the fastest"
    names = listed([named(row.label) for row in equal])
    return f"the difference between the tuned network and {names} is within the noise"


def _tuned(document: TuneDocument) -> str:
    """The answer in one sentence."""
    where = f"{named(document.model.name)} on {device_key(document.device.key)}"
    network = document.network
    if network.failure is not None or network.tuned is None:
        return f"{where}: the tuned network failed{_why(network.failure)}."
    tuned, error = network.tuned.median_s, outputs(network.max_error, document.model.dtype)
    if not network.scheduled:
        return f"{where}: no layer is tuned yet, {units.time(tuned)}, {error}."
    untuned = median_of(network.untuned)
    if untuned is None:
        return f"{where}: {units.time(tuned)} tuned, untuned not measured, {error}."
    times = f"{like(tuned, untuned)} tuned, {like(untuned, tuned)} untuned"
    slower, words = _speed(network.ratio, tuned, untuned)
    return f"{where}: {'tuning made it slower, ' if slower else ''}{times} ({words}), {error}."


def _why(failure: FailureKind | None) -> str:
    return "" if failure is None else f", {failure_words(failure)}"


def _speed(ratio: RatioPart | None, tuned_s: float, untuned_s: float) -> tuple[bool, str]:
    """Whether tuning made the network significantly slower, and the speedup in words.

    `ratio` is the untuned time over the tuned time.
    """
    if ratio is None or ratio.low is None or ratio.high is None or units.vague(ratio.low, ratio.high):
        value = untuned_s / tuned_s if ratio is None else ratio.ratio
        return False, f"{units.digits(value)} times as fast, interval unknown from so few processes: raise --processes"
    value, low, high = ratio.ratio, ratio.low, ratio.high
    if high < 1:
        return True, f"{units.digits(1 / value)} times {ratio_interval(1 / high, 1 / low)} as long"
    words = f"{units.digits(value)} times {ratio_interval(low, high)} as fast"
    return False, words if low > 1 else f"{words}: within the noise"


def _spent(document: TuneDocument) -> str:
    network = document.network
    words = f"{many(len(document.layers), 'layer')}: {_trials(document.trials, document.seconds)}; "
    words += f"stopped: {_STOPPED.get(document.stopped, named(document.stopped))}."
    if network.failure is None:
        words += f" Tuned: {network.scheduled} of {many(network.functions, 'function')} of the network."
    return f"{words} {_enough(document.trials)}".rstrip()


def _enough(trials: TrialsPart) -> str:
    """A sentence about the trials per important layer; empty if more trials would not be worthwhile."""
    relevant, asked = trials.relevant, trials.asked
    if not relevant or asked >= _PROPER * relevant or trials.measured < asked:
        return ""
    each = f"{asked / relevant:.0f}" if asked >= relevant else "less than 1"
    words = f"{many(asked, 'trial')}: {each} for each of the {many(relevant, 'layer')} with 99 % of the untuned time"
    return f"{words}; for {_PROPER} each, give --trials {_PROPER * relevant}."


def _trials(trials: TrialsPart, seconds: float) -> str:
    there, took = f"{trials.measured} of {many(trials.asked, 'trial')}", units.duration(seconds)
    failed = f"{trials.failed} failed" if trials.failed else "none failed"
    if not trials.before:
        return f"{there} measured in {took}, {failed}"
    return f"{there} done, {trials.measured - trials.before} of them in this run of {took}; {failed}"


def layer_table(layers: Sequence[L], *, most: int = MOST_LAYERS, split: int = 0) -> Table[L]:
    """A table of layers in the given order; a last line has the share of the layers beyond the first `most`."""
    return Table(layers, most=most, more=left_out(layers, most), split=split).text(
        "layer", lambda layer: layer.name, least=16, most=40
    )


def _layers(layers: Sequence[TunedLayerPart], page: Page) -> None:
    page.heading("Layers, the largest share of the untuned time first (median of one call)")
    if not layers:
        page.line("This model has no layers that can be tuned.", indent=1)
        return
    ordered = largest_first(layers)
    tried = [layer for layer in ordered if layer.trials] or ordered
    table = (
        layer_table(tried, most=FEW if page.brief else MOST_LAYERS, split=7)
        .number("calls", lambda layer: layer.weight)
        .number("share", lambda layer: layer.share, share_of)
        .times("untuned", lambda layer: layer.untuned, None)
        .times("tuned", lambda layer: layer.best, None)
        .number("times as fast", lambda layer: "-" if layer.speedup is None else units.digits(layer.speedup))
        .number("trials", lambda layer: layer.trials)
        .bars("The best time of each layer, the largest share of the network first", lambda layer: ends_of(layer.best))
    )
    if any(layer.failed for layer in tried):
        table.number("failed", lambda layer: layer.failed)
    if len({layer.stopped for layer in tried}) > 1:
        table.text("ended by", lambda layer: named(layer.stopped, 12), least=8)
    page.table(table)
    if left := [named(layer.name, 32) for layer in ordered if not layer.trials]:
        page.item(f"{many(len(left), 'layer was', 'layers were')} not tried: {listed(left)}.")


def _written(document: TuneDocument, page: Page) -> None:
    if wrong(document.network.max_error, document.model.dtype):
        page.item("The outputs are wrong.", "Do not deploy the library; see the layers' errors in the records.")
    if document.library is not None:
        name = document.device.name or document.device.key
        page.path("run it", f"gnomon exec {shlex.quote(document.library)}{on_device(name)}")
    with page.details("the files"):
        page.path("records", document.records)
        if document.library is not None:
            page.path("library", document.library)


def exec_report(document: ExecDocument, page: Page) -> None:
    """Write the time of a network on a device: first the whole network, then its layers and the remaining time."""
    network = document.network
    where = f"{named(document.model.name)} on {device_key(document.device.key)}"
    if document.failure is not None or network is None:
        page.headline(f"{where} failed{_why(document.failure)}.")
    else:
        error = outputs(document.max_error, document.model.dtype)
        page.headline(f"{where}: {units.time(network.median_s)} {interval_of(network)}, {error}.")
        held(named(document.model.name), device_key(document.device.key), document.conditions, page)
        first_warnings(document.doubts, page)
        samples = many(network.samples, "sample")
        page.line(f"Median and 95 % interval of {samples} in {many(network.processes, 'process', 'processes')}.")
    compared_with(document.compared_with, network, page)
    built = target_words(document.built_for)
    if built:
        page.line(f"Built for {built}.")
    if document.layers:
        _ran_layers(document, page)
    doubts(document.doubts, page)
    notes(document.notes, page)
    page.line("")
    page.path("source", document.source)


def _ran_layers(document: ExecDocument, page: Page) -> None:
    page.heading("Layers, the largest share of the time first (median of one call, [95 % interval])")
    ordered = largest_first(document.layers)
    page.table(
        layer_table(ordered)
        .number("calls", lambda layer: layer.weight)
        .number("share", lambda layer: layer.share, share_of)
        .times("time", lambda layer: layer.time)
        .bars("Each layer by itself, with its 95 % interval", lambda layer: ends_of(layer.time))
    )
    if document.layers_sum_s is not None:
        words, left = f"The layers take {units.time(document.layers_sum_s)} together", document.unaccounted_s
        if left is not None and document.network:
            kind = "are outside the layers" if left >= 0 else "more than the network: layers are slower alone"
            share = share_of(abs(left) / document.network.median_s)
            words += f"; {units.time(abs(left))} ({share} of the network) {kind}"
        page.line(f"{words}.", indent=1)
    for layer in document.layers:
        if layer.failure is not None:
            page.item(f"{named(layer.name)} failed, {failure_words(layer.failure)}.")


def view_report(document: TunedFilesDocument, page: Page) -> None:
    """Write the contents of a folder: models, record files, and compiled networks."""
    models, records, libraries = document.models, document.records, document.libraries
    counts = f"{many(len(models), 'model')}, {many(len(records), 'record file')} and "
    page.headline(f"{counts}{many(len(libraries), 'compiled network')} in {named(document.folder, 200)}.")
    if not (models or records or libraries):
        page.item("The folder is empty.", "To write records and a compiled network: gnomon tune MODEL")
    _files("Models", "model", [(file.path, units.mebibytes(file.bytes)) for file in models], page)
    _files("Records", "records", [(file.path, _record(file)) for file in records], page)
    compiled = [(file.path, f"{_of(file)}, {units.mebibytes(file.bytes)}") for file in libraries]
    _files("Compiled networks", "library", compiled, page)
    if libraries:
        page.line("")
        page.path("run it", f"gnomon exec {shlex.quote(libraries[0].path)}")
    files: list[RecordFile | LibraryFile] = [*records, *libraries]
    for file in files:
        if file.problem is not None:
            page.item(f"{file.path}: {file.problem}")


def _of(file: RecordFile | LibraryFile) -> str:
    return f"{named(file.model)} on {device_key(file.device)}"


def _record(file: RecordFile) -> str:
    """A record file in one line: its model and devices, and the numbers of its layers and trials."""
    host = "" if file.found_on in ("", file.device) else f", found on {device_key(file.found_on)}"
    counts = f"{many(file.layers, 'layer')}, {many(file.trials, 'trial')}"
    return f"{_of(file)}{host}, {named(file.dtype)}, {counts}"


def _files(title: str, label: str, rows: Sequence[tuple[str, str]], page: Page) -> None:
    """Write full paths, which can be copied, each with a description; nothing if there are no rows."""
    if not rows:
        return
    page.heading(title)
    for path, words in rows[:_MOST_FILES]:
        page.path(label, path)
        page.line(words, indent=11, style="dim")
    if len(rows) > _MOST_FILES:
        page.line(f"and {len(rows) - _MOST_FILES} more: --json has all", indent=1, style="dim")

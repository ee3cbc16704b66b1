"""Words that the reports of tuning and of overlays have in common: times side by side, outputs, failures, places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.space_words import percent, sentence
from gnomon.report.text import Page

_FACTORS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_FARTHEST = 1e3
"""From how many times apart on two times are told each in its own unit."""

_ROUNDING = {"float16": 2e-2, "bfloat16": 1e-1}
_ROUNDING_OF_OTHERS = 1e-3
"""Up to which difference, relative to the largest output, outputs are called equal: another order of the sums."""

_MOST_FAILURES = 8
_MOST_MESSAGE = 200


def named(text: Any, most: int = 48) -> str:
    """A name from outside, cleaned and short."""
    return shorten(str(text), most)


def device_key(device: Any) -> str:
    """The key of a device, given as its document or as its key."""
    return named(device["key"] if isinstance(device, Mapping) else device, 40)


def target_words(target: Mapping[str, Any] | None) -> str:
    """What is compiled for: "llvm, cortex-a72"; an empty text where it is not known."""
    if not target:
        return ""
    known = (target.get(name) for name in ("kind", "mcpu", "arch", "model", "tag"))
    return ", ".join([named(one, 40) for one in known if one][:2])


def device_words(device: Any) -> str:
    """A device with what is compiled for it: "phone (llvm, cortex-a72, 4 threads)"."""
    if not isinstance(device, Mapping):
        return device_key(device)
    threads = device.get("threads") or 0
    told = [words for words in (target_words(device.get("target")),) if words]
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

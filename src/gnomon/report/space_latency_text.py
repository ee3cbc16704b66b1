"""What a profile says of latencies, a toolchain at a time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report import units
from gnomon.report.space_words import failures, family_of, is_single, listed, percent, say
from gnomon.report.text import Column, Page


def toolchain_sentence(one: Mapping[str, Any]) -> str:
    """A toolchain in one sentence: how fast networks are, and how a quantised one compares with its twin."""
    times = _times(one["networks"])
    if not times:
        return f"Nothing could be measured by {one['toolchain']}."
    told = f"By {one['toolchain']} networks take {spread(times)}"
    compared = one["compared"]
    if compared is not None:
        told += f", {units.digits(compared['ratio'])} times as long as by {compared['twin']}"
    return told + "."


def latency_sections(document: Mapping[str, Any], one: Mapping[str, Any], page: Page) -> None:
    """A toolchain: single swaps by family, how well mixed networks are predicted, its twin, and what failed."""
    clock = f", {one['clock']} time" if one["clock"] else ""
    page.heading(f"Latency by {one['toolchain']}{clock}")
    measured = _times(one["networks"])
    page.line(f"{len(measured)} of {len(one['networks'])} networks were measured.")
    families = document["families"]
    rows = [_single_row(name, families, one["networks"]) for name in families]
    if measured:
        titles = ("family", "single swaps", "median", "least to most", "95 % interval")
        page.table([Column(title=title, number=title != "family") for title in titles], rows)
        _predicted(one["predictors"], list(families), page)
    _compared(one, page)
    for reason, names in failures(one["failed"]):
        told = "1 network" if len(names) == 1 else f"{len(names)} networks"
        page.item(f"{told} failed: {reason}", listed(names))


def spread(times: Sequence[float]) -> str:
    """The least and the most of some times, in one unit: "1.29 to 4.20 ms"."""
    low, high = min(times), max(times)
    like = units.time(high)
    if units.time(low) == like:
        return like
    inside = units.interval(low, high, high, predicted=True)[1:-1].replace(", ", " to ")
    return f"{inside} {like.rpartition(' ')[2]}"


def _times(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["latency_s"] for row in rows if row["latency_s"] is not None and not row["reason"]]


def _single_row(name: str, families: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A family's single swaps: how many of them were measured, their median and range, and how well one is known."""
    mine = [r for r in rows if family_of(families, r["primitives"]) == name and is_single(families, r["primitives"])]
    times = _times(mine)
    if not times:
        return [name, f"0 of {families[name]['swaps']}", "-", "-", "-"]
    halves = [
        (row["high_s"] - row["low_s"]) / 2 / row["latency_s"]
        for row in mine
        if row["latency_s"] and None not in (row["low_s"], row["high_s"]) and not row["reason"]
    ]
    known = f"+- {100 * statistics.median(halves):.1f} %" if halves else "-"
    count = f"{len(times)} of {families[name]['swaps']}"
    return [name, count, units.time(statistics.median(times)), spread(times), known]


def _predicted(predictors: Mapping[str, Mapping[str, Any]], families: Sequence[str], page: Page) -> None:
    """How well any network's latency can be told from what was measured."""
    rows, untested = [], []
    for name in families:
        found = predictors.get(name)
        if found is None:
            untested.append(f"{name}: its default network has no latency, so that no mixed network can be predicted.")
            continue
        tested = found["held_out"].get(found["way"])
        if tested is None:
            untested.append(f"{name}: {found['way']}; {found['why']}.")
            continue
        tau = "-" if tested["tau"] is None else f"{tested['tau']:.2f}"
        errors = [percent(tested[key]) for key in ("mean", "median", "p90")]
        rows.append([name, found["way"], *errors, tau, str(tested["networks"])])
    page.line("")
    if rows:
        page.line("Mixed networks that were not fitted to: how far predictions are off.")
        titles = ("family", "predicted by", "mean", "median", "9 of 10", "tau", "networks")
        page.table([Column(title=title, number=k > 1) for k, title in enumerate(titles)], rows)
    for told in untested:
        page.item(told)


def _compared(one: Mapping[str, Any], page: Page) -> None:
    """A quantised toolchain against its twin in float32."""
    compared, least = one["compared"], one["least_quantised"]
    if compared is None and least is None:
        return
    page.line("")
    if compared is not None:
        ratio, low, high = (units.digits(compared[name]) for name in ("ratio", "low", "high"))
        say(
            page,
            f"Against {compared['twin']}: {ratio} times as long [{low}, {high}] by the median of "
            f"{compared['networks']} networks; faster on {compared['faster']} of {compared['networks']}.",
        )
        if compared["drop"] is None:
            page.line("What quantising costs in accuracy was not measured.")
        else:
            say(
                page,
                f"Accuracy drops by {100 * compared['drop']:.2f} points on average, by "
                f"{100 * compared['worst_drop']:.2f} at worst.",
            )
    if least is not None:
        part = "All" if least >= 1 else f"At least {units.share(least)} of the"
        say(page, f"{part} convolutions of each network read and give 8-bit values in its file.")

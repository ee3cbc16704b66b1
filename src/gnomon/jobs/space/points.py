"""What the charts of a search space show, taken from its documents: networks, and pairs of one by two toolchains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.core.front.dominance import nondominated
from gnomon.report.parts import family_of, is_single
from gnomon.report.plain import SEVERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A network: its latency in seconds and its accuracy as a share, each with a 95 % interval (None: not known).

    `trained` says whether the accuracy was measured, or else is believed by what its primitives do elsewhere. `chosen`
    are those of which each cell group keeps its primitive, `front` those that no other is better than in both.
    """

    name: str
    family: str
    single: bool
    latency_s: float
    latency: tuple[float, float] | None
    accuracy: float
    accuracies: tuple[float, float]
    trained: bool
    chosen: bool
    front: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A network measured by a quantised toolchain and by its twin, in seconds with 95 % intervals (None: not known)."""

    family: str
    plain_s: float
    plain: tuple[float, float] | None
    quantised_s: float
    quantised: tuple[float, float] | None


def points_of(
    document: Mapping[str, Any], toolchain: Mapping[str, Any], selection: Mapping[str, Any] | None
) -> list[Point]:
    """The networks that have both an accuracy and a latency by a toolchain."""
    families, accuracies = document["families"], _accuracies(document["accuracy"])
    groups = None if selection is None else [set(names) for names in selection["groups"]]
    found = []
    for row in toolchain["networks"]:
        told, names = accuracies.get(row["id"]), row["primitives"]
        if told is None or (row["latency_s"] or 0) <= 0 or row["reason"]:
            continue
        accuracy, low, high, trained = told
        fits = groups is not None and len(groups) == len(names)
        found.append(
            Point(
                name=row["id"],
                family=family_of(families, names) or SEVERAL,
                single=is_single(families, names),
                latency_s=row["latency_s"],
                latency=_interval(row),
                accuracy=accuracy,
                accuracies=(low, high),
                trained=trained,
                chosen=fits and all(name in kept for name, kept in zip(names, groups or (), strict=True)),
            )
        )
    return _with_front(found)


def pairs_of(document: Mapping[str, Any], toolchain: Mapping[str, Any]) -> list[Pair]:
    """The networks that a quantised toolchain and its twin both measured; none for one without a twin."""
    compared = toolchain["compared"]
    if compared is None:
        return []
    twin = next((one for one in document["latency"] if one["toolchain"] == compared["twin"]), {"networks": ()})
    plain = {row["id"]: row for row in twin["networks"] if row["latency_s"]}
    return [
        Pair(
            family=family_of(document["families"], row["primitives"]) or SEVERAL,
            plain_s=plain[row["id"]]["latency_s"],
            plain=_interval(plain[row["id"]]),
            quantised_s=row["latency_s"],
            quantised=_interval(row),
        )
        for row in toolchain["networks"]
        if row["latency_s"] and row["id"] in plain
    ]


def _accuracies(accuracy: Mapping[str, Any] | None) -> dict[str, tuple[float, float, float, bool]]:
    """Accuracy, the ends of its 95 % interval, and whether it was trained, by network."""
    found: dict[str, tuple[float, float, float, bool]] = {}
    for ranking in (accuracy or {}).get("rankings", ()):
        for one in ranking["networks"]:
            found[one["id"]] = one["accuracy"], one["low"], one["high"], False
    for one in (accuracy or {}).get("trained", ()):
        if one["accuracy"] is not None:
            half = 1.959964 * (one["error"] or 0.0)
            ends = max(0.0, one["accuracy"] - half), min(1.0, one["accuracy"] + half)
            found[one["id"]] = one["accuracy"], *ends, True
    return {name: told for name, told in found.items() if None not in told}


def _with_front(points: Sequence[Point]) -> list[Point]:
    if not points:
        return []
    best = set(nondominated([[one.latency_s, -one.accuracy] for one in points]).tolist())
    return [replace(one, front=place in best) for place, one in enumerate(points)]


def _interval(row: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = row["low_s"], row["high_s"]
    return None if low is None or high is None else (low, high)

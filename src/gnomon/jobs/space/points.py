"""What the charts of a search space show, taken from its document: networks, and pairs of one by two toolchains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.core.front.dominance import nondominated
from gnomon.jobs.space.document import (
    AccuracyPart,
    MeasuredNetwork,
    SelectionDocument,
    SpaceDocument,
    Three,
    ToolchainPart,
)
from gnomon.report.plain import SEVERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A network with a latency, and its accuracy as a share with the ends of a 95 % interval.

    `trained` says whether the accuracy was measured, or else is believed by what its primitives do elsewhere. `chosen`
    are those of which each cell group keeps its primitive, `front` those that no other is better than in both.
    """

    network: MeasuredNetwork
    latency_s: float
    accuracy: Three
    trained: bool
    family: str
    single: bool
    chosen: bool
    front: bool


def points_of(document: SpaceDocument, toolchain: ToolchainPart, selection: SelectionDocument | None) -> list[Point]:
    """The networks that have both an accuracy and a latency by a toolchain."""
    accuracies = {} if document.accuracy is None else _accuracies(document.accuracy)
    rows = [
        (network, network.latency_s, *accuracies[network.id])
        for network in toolchain.networks
        if network.id in accuracies and network.latency_s and not network.reason
    ]
    best = set(nondominated([[latency_s, -accuracy[0]] for _, latency_s, accuracy, _ in rows]).tolist() if rows else ())
    return [
        Point(
            network=network,
            latency_s=latency_s,
            accuracy=accuracy,
            trained=trained,
            family=family_words(document, network),
            single=document.is_single(network.primitives),
            chosen=selection is not None and _is_kept(network, selection),
            front=place in best,
        )
        for place, (network, latency_s, accuracy, trained) in enumerate(rows)
    ]


def _is_kept(network: MeasuredNetwork, selection: SelectionDocument) -> bool:
    names, groups = network.primitives, selection.groups
    return len(groups) == len(names) and all(name in kept for name, kept in zip(names, groups, strict=True))


def family_words(document: SpaceDocument, network: MeasuredNetwork) -> str:
    """The family of a network, or that it is of several."""
    return document.family_of(network.primitives) or SEVERAL


def pairs_of(document: SpaceDocument, toolchain: ToolchainPart) -> list[tuple[MeasuredNetwork, MeasuredNetwork]]:
    """The networks that a quantised toolchain and its twin both measured, as both did; none where it has no twin."""
    twin = toolchain.compared and toolchain.compared.twin
    plain = {
        network.id: network
        for other in document.latency
        if other.toolchain == twin
        for network in other.networks
        if network.latency_s
    }
    return [(network, plain[network.id]) for network in toolchain.networks if network.latency_s and network.id in plain]


def _accuracies(accuracy: AccuracyPart) -> Mapping[str, tuple[Three, bool]]:
    """Accuracies with the ends of a 95 % interval, and whether each was trained, by network."""
    believed: dict[str, tuple[Three, bool]] = {
        network.id: ((network.accuracy, network.low, network.high), False)
        for ranking in accuracy.rankings
        for network in ranking.networks
    }
    for network in accuracy.trained:
        half = 1.959964 * network.error
        ends = max(0.0, network.accuracy - half), min(1.0, network.accuracy + half)
        believed[network.id] = (network.accuracy, *ends), True
    return believed

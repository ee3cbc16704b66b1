"""The charts of a search space, from its documents alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.front.dominance import nondominated
from gnomon.jobs.space.document import (
    AccuracyPart,
    FrontNetwork,
    MeasuredNetwork,
    RankingPart,
    SelectionDocument,
    SpaceDocument,
    SpaceFrontDocument,
    Three,
    ToolchainPart,
)
from gnomon.jobs.space.report import share_words
from gnomon.report import units
from gnomon.report.chart import (
    BEHIND,
    CHOSEN,
    INK,
    LOOKS,
    PLAIN,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Row,
    Rule,
    Value,
    in_rows,
    line,
    shares,
    time_words,
    timed,
)
from gnomon.report.parts import networks, part, percent
from gnomon.report.plain import SEVERAL, many, shorten
from gnomon.report.render import stem, write_pictures

_FRONT = Look(colour=INK)
_RING = Look(colour=INK, shape="ring")
_PREDICTED = Look(colour="#777777", hollow=True)
_WAY = Look(colour="#bbbbbb")
_ACCURACY = Axis(title="accuracy, % of images")


def draw_pictures(document: SpaceDocument, selection: SelectionDocument | None, folder: Path) -> tuple[str, ...]:
    """Draw the charts of a profile into a folder, and return the paths of the pictures.

    `selection` is the last selection, if any. The pictures are accuracy-latency.<toolchain>, choice and quantised, each
    as .svg and as .png; pictures without data are left out. RuntimeMissingError without vl-convert, UsageError if the
    folder cannot be written to.
    """
    taken = set[str]()
    charts = {
        stem(f"accuracy-latency.{chain.toolchain}", taken): networks_charts(document, chain, selection)
        for chain in document.latency
    }
    charts["choice"] = [] if selection is None else choice_charts(selection)
    charts["quantised"] = [chart for chain in document.latency for chart in quantised_charts(document, chain)]
    return tuple(write_pictures(charts, folder))


def _looks(families: Iterable[str]) -> dict[str, Look]:
    """The look of each family's networks, and of networks whose primitives belong to several families."""
    return {**{name: LOOKS[k % 5] for k, name in enumerate(families)}, SEVERAL: LOOKS[5]}


def networks_charts(
    document: SpaceDocument, toolchain: ToolchainPart, selection: SelectionDocument | None = None
) -> list[Chart]:
    """Accuracy against latency for a toolchain's networks, with the front; no chart if no network has both values."""
    points = points_of(document, toolchain, selection)
    if not points:
        return []
    front = sorted((point for point in points if point.front), key=lambda point: point.latency_s)
    chosen = [point for point in points if point.chosen]
    groups = [Group(name="the front", marks=_places(front), look=_FRONT, kind="none", line="steps")]
    for name, look in _looks(document.families).items():
        mixed, single = (
            [_network(point) for point in points if point.family == name and point.single == is_single]
            for is_single in (False, True)
        )
        hollow = Look(colour=look.colour, shape=look.shape, hollow=True)
        groups += [
            Group(name=name, marks=mixed, look=look),
            Group(name="" if mixed else name, marks=single, look=hollow),
        ]
    groups.append(Group(name="all primitives kept", marks=_places(chosen), look=_RING))
    title = f"{len(points)} networks, {len(front)} of them on the front of accuracy and latency"
    if chosen:
        verb, inside = "has" if len(chosen) == 1 else "have", sum(point.chosen for point in front)
        title += f"; {len(chosen)} {verb} only kept primitives, {inside} of these on the front"
    estimated = sum(not point.trained for point in points)
    notes = ["Hollow: default or one-change variants; filled: mixed networks."]
    notes += [f"{many(estimated, 'accuracy is', 'accuracies are')} estimated, not measured."] if estimated else []
    return [
        Chart(
            title=f"{title}. Intervals: 95 %.",
            x=_latency_axis("latency by", toolchain.toolchain),
            y=_ACCURACY,
            groups=tuple(groups),
            height=400,
            note=" ".join(notes),
        )
    ]


def _latency_axis(words: str, toolchain: str, low: float | None = None) -> Axis:
    return Axis(title=f"{words} {shorten(toolchain, 40)}, ms", low=low)


def _network(point: Point) -> Mark:
    network, accuracy = point.network, point.accuracy
    estimated = "" if point.trained else " (estimated)"
    return Mark(
        x=_time(network),
        y=shares(*accuracy),
        label=shorten(network.id, 28) if point.front else "",
        tip=f"{network.id}: {percent(accuracy[0])}{estimated}, "
        f"{time_words(network.latency_s, network.low_s, network.high_s)}",
    )


def _time(network: MeasuredNetwork) -> Value:
    """A network's time, without an interval if either of its ends is unknown."""
    ends = (network.low_s, network.high_s)
    return timed(network.latency_s, *(ends if None not in ends else ()))


def _places(points: Iterable[Point]) -> list[Mark]:
    return [Mark(x=timed(point.latency_s), y=shares(point.accuracy[0])) for point in points]


def ranking_charts(ranking: RankingPart) -> list[Chart]:
    """A family's one-change variants by accuracy; no chart if it has none."""
    networks = ranking.networks
    rows = [
        Row(
            name=network.id,
            value=shares(network.accuracy, network.low, network.high),
            text=share_words((network.accuracy, network.low, network.high)),
            look=CHOSEN if not place else BEHIND if network.high < networks[0].low else LOOKS[0],
        )
        for place, network in enumerate(networks)
    ]
    title = f"One-change variants of {ranking.family}: accuracy with its 95 % interval"
    legend = {BEHIND: "significantly below the first"}
    return [in_rows(title, "% of images", rows, legend=legend, noun="networks")] if rows else []


def quantised_charts(document: SpaceDocument, toolchain: ToolchainPart) -> list[Chart]:
    """Each network's quantised latency against its float32 latency; no chart for a toolchain without a twin."""
    pairs, compared = pairs_of(document, toolchain), toolchain.compared
    if not pairs or compared is None:
        return []
    most = 1e3 * max(plain.latency_s or 0.0 for _, plain in pairs)
    ratio = f"median: {units.digits(compared.ratio)} times as long; {compared.faster} of {len(pairs)} faster"
    marks: dict[str, list[Mark]] = {}
    for network, plain in pairs:
        tip = f"{units.time(network.latency_s)} quantised, {units.time(plain.latency_s)} in float32"
        mark = Mark(x=_time(plain), y=_time(network), tip=tip)
        marks.setdefault(family_words(document, network), []).append(mark)
    return [
        Chart(
            title="Latency quantised and in float32: networks below the solid line are faster when quantised.",
            x=_latency_axis("by", compared.twin, low=0),
            y=_latency_axis("by", compared.toolchain, low=0),
            groups=(
                _through(1.0, most, _FRONT, "as long as in float32"),
                _through(compared.ratio, most, PLAIN, ratio),
                *(
                    Group(name=name, marks=marks.get(name, ()), look=look)
                    for name, look in _looks(document.families).items()
                ),
            ),
            height=300,
        )
    ]


def _through(ratio: float, most: float, look: Look, name: str) -> Group:
    return Group(name=name, marks=line([(0.0, 0.0), (most, ratio * most)]), look=look, kind="none", line="straight")


def choice_charts(selection: SelectionDocument) -> list[Chart]:
    """A matrix of primitives by cell group: how often each is on the front, with the kept primitives highlighted."""
    groups, meanings = selection.groups, selection.meanings
    frequencies = [{kept.name: kept.frequency for kept in group} for group in selection.primitives or ()]
    names = list(dict.fromkeys([*meanings, *(name for group in (*frequencies, *groups) for name in group)]))
    cells: dict[bool, list[Mark]] = {True: [], False: []}
    for column, group in enumerate(groups):
        for row, name in enumerate(names):
            share = frequencies[column].get(name) if column < len(frequencies) else None
            text = units.share(share) if share is not None else "kept" if name in group else ""
            cells[name in group].append(Mark(x=Value(value=column), y=Value(value=row), label=text, share=share or 0.0))
    after, before = selection.networks_after, selection.networks_before
    volume = selection.share_kept
    kept = "" if volume is None else f", with {share_words(volume)} of the expected hypervolume"
    return [
        Chart(
            title=f"Kept by the rule {selection.rule} for {selection.toolchain}: {networks(after)} of "
            f"{networks(before)} networks ({part(after, before)}){kept}.",
            x=Axis(names=tuple(f"group {column}" for column in range(len(groups)))),
            y=Axis(names=tuple(f"{name}, {meanings[name]}" if meanings.get(name) else name for name in names)),
            groups=(
                Group(marks=cells[False], kind="cells"),
                Group(name="kept", marks=cells[True], look=CHOSEN, kind="cells"),
            ),
            note="Shares of the posterior samples in which the primitive is on the front." if frequencies else "",
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A network's latency and accuracy, the latter as a share with the ends of its 95 % interval.

    `trained` is True if the accuracy was measured; otherwise it is predicted from other networks. `chosen` is True if
    each cell group keeps the network's primitive, and `front` is True if no other network is better in one of accuracy
    and latency and at least as good in the other.
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
    """The name of a network's family, or "several families"."""
    return document.family_of(network.primitives) or SEVERAL


def pairs_of(document: SpaceDocument, toolchain: ToolchainPart) -> list[tuple[MeasuredNetwork, MeasuredNetwork]]:
    """The measurements of each network by a quantised toolchain and by its twin; empty without a twin."""
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
    """Each network's accuracy, with the ends of its 95 % interval, and whether the network was trained."""
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


Prices = tuple[Three, Three]
"""The accuracy and the latency of a network."""


def space_front_charts(document: SpaceFrontDocument) -> list[Chart]:
    """The charts of a front: its networks as predicted and as measured, with the best joined by steps; then predicted
    against measured latencies.
    """
    rows = [(network, (network.predicted.accuracy, network.predicted.latency_s)) for network in document.networks]
    if not rows:
        return []
    measured = [(network, predicted, prices) for network, predicted in rows if (prices := _measured(network))]
    best = sorted((prices for network, _, prices in measured if network.best), key=lambda prices: prices[1][0])
    ways = [[_place(predicted), _place(prices)] for _, predicted, prices in measured]
    bound = document.latency_bound_s
    return [
        Chart(
            title=f"{len(rows)} networks that are predicted to be best. Intervals: 95 %.",
            x=_latency_axis("latency by", document.toolchain),
            y=_ACCURACY,
            groups=(
                *(Group(marks=marks, look=_WAY, kind="none", line="straight") for marks in ways),
                Group(name="predicted", marks=[_point(*row) for row in rows], look=_PREDICTED),
                Group(name="the best of these", marks=[*map(_place, best)], look=_FRONT, kind="none", line="steps"),
                Group(name="measured", marks=[_point(network, prices) for network, _, prices in measured]),
            ),
            rules=() if bound is None else (Rule(along="x", at=1e3 * bound, name="the bound"),),
            height=400,
        ),
        *_against(document.networks),
    ]


def _measured(network: FrontNetwork) -> Prices | None:
    """A network's measured accuracy and latency; None if either is missing."""
    point = network.measured
    return None if point is None or not point.accuracy or not point.latency_s else (point.accuracy, point.latency_s)


def _place(prices: Prices) -> Mark:
    accuracy, latency = prices
    return Mark(x=timed(latency[0]), y=shares(accuracy[0]))


def _point(network: FrontNetwork, prices: Prices) -> Mark:
    accuracy, latency = prices
    tip = f"{network.id}: {percent(accuracy[0])}, {time_words(*latency)}"
    return Mark(x=timed(*latency), y=shares(*accuracy), tip=tip)


def _against(networks: Sequence[FrontNetwork]) -> Iterator[Chart]:
    """Predicted against measured latencies, if there are any."""
    marks = [
        Mark(
            x=timed(*took),
            y=timed(*network.predicted.latency_s),
            tip=f"{network.id}: measured {time_words(*took)}, predicted {time_words(*network.predicted.latency_s)}",
        )
        for network in networks
        if network.measured is not None and (took := network.measured.latency_s) is not None
    ]
    if marks:
        title = "Latency: predicted and measured are equal on the line"
        x, y = Axis(title="measured, ms"), Axis(title="predicted, ms")
        yield Chart(title=title, x=x, y=y, groups=(Group(marks=marks),), equal=True)

"""The charts of an overlay, from its document alone: heat maps of what choices lose, and the network's times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gnomon.jobs.overlay.document import AnalyzeDocument, ByDevice, ChosenLayer
from gnomon.jobs.overlay.report import Choices, longer_by, measured_of, network_sentence, time_of
from gnomon.jobs.tune.report import largest_first, metric
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS, Axis, Chart, Group, Look, Mark, Rule, Value
from gnomon.report.render import stem

_DARKEST = 0.2
"""A loss from which a cell is darkest."""

_MOST_ROWS, _MOST_DEVICES, _MOST_LAYERS = 40, 16, 24
_LONGEST = 3.0
"""How many times its value an interval is drawn to: few processes may leave one without an end to speak of."""

_CHOICES = {
    "own": ("its own best (= 1)", LOOKS[3], -0.12),
    "overlay": ("the overlay's choice", CHOSEN, 0.0),
    "other": ("another device's best", LOOKS[0], 0.12),
    "untuned": ("untuned", Look(colour="#777777", shape="square", hollow=True), 0.0),
}
"""What a choice is called, how it is drawn, and how far from the middle of its row."""


def overlay_pictures(document: AnalyzeDocument) -> dict[str, list[Chart]]:
    """Each layer where there was something to choose, and what was measured of the network, by the names of files."""
    taken = set[str]()
    layers = {stem(f"layer.{one.name}", taken): [layer_chart(one, document.devices)] for one in _wide(document)}
    return {**layers, "network": network_charts(document)}


def layer_charts(document: AnalyzeDocument) -> list[Chart]:
    """The charts of the layers that have the largest share of the network."""
    return [layer_chart(layer, document.devices) for layer in _wide(document)[:_MOST_LAYERS]]


def _wide(document: AnalyzeDocument) -> list[ChosenLayer]:
    """The layers where there was something to choose, the largest first."""
    return [layer for layer in largest_first(document.layers) if len(layer.options) > 1]


def losses_charts(document: AnalyzeDocument) -> list[Chart]:
    """What the choice of each layer loses on each device; nothing without layers."""
    layers = largest_first(document.layers)
    rows = [(layer.name, (units.share(layer.share), metric(layer.M)), layer.regret) for layer in layers]
    title = "What the choice loses against each device's own best, the largest share of the network first"
    return [_heat(title, ("share", "M"), document.devices, rows)] if rows else []


def layer_chart(layer: ChosenLayer, devices: Sequence[str]) -> Chart:
    """What the configurations of least M lose on each device."""
    rows = [(one.configuration, (one.host or "-", metric(one.M)), one.regret) for one in layer.options]
    chosen = next((k for k, one in enumerate(layer.options) if one.configuration == layer.configuration), None)
    title = f"{layer.name}: what the configurations of least M lose on each device, of {layer.configurations}"
    return _heat(title, ("found on", "M"), devices, rows, chosen=chosen)


def _heat(
    title: str,
    heads: Sequence[str],
    devices: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str], ByDevice]],
    *,
    chosen: int | None = None,
) -> Chart:
    """A heat map: columns of words, then a column a device with a loss in each cell; of many devices the worst."""
    shown = rows[:_MOST_ROWS]
    worst = sorted(devices, key=lambda name: -max((_known(regret.get(name)) for _, _, regret in shown), default=0.0))
    kept = [name for name in devices if name in worst[:_MOST_DEVICES]]
    cells = [
        Mark(x=Value(value=column), y=Value(value=row), label=text, share=share)
        for row, (_, words, regret) in enumerate(shown)
        for column, (text, share) in enumerate(
            [*((word, 0.0) for word in words), *(_loss(regret.get(name)) for name in kept)]
        )
    ]
    notes = [f"The darkest is a loss of {100 * _DARKEST:.0f} % or more."]
    notes += [f"The first {len(shown)} of {len(rows)} rows."] if len(shown) < len(rows) else []
    notes += [f"The {len(kept)} of {len(devices)} devices that lose most."] if len(kept) < len(devices) else []
    return Chart(
        title=title,
        x=Axis(names=(*heads, *kept)),
        y=Axis(names=tuple(name for name, _, _ in shown), chosen=frozenset(() if chosen is None else (chosen,))),
        groups=(Group(marks=cells, kind="cells"),),
        note=" ".join(notes),
    )


def _known(loss: float | None) -> float:
    return loss if loss is not None and math.isfinite(loss) else 0.0


def _loss(loss: float | None) -> tuple[str, float]:
    """A loss as text, and how dark it is."""
    return ("0" if loss == 0 else units.percent(loss)), _known(loss) / _DARKEST


def network_charts(document: AnalyzeDocument) -> list[Chart]:
    """The network's time on each device under each choice, over that of its own best; none where none was measured."""
    measured = measured_of(document)
    timed = {device: choices for device, choices in measured.items() if _times(choices)}
    if not timed:
        return []
    order = sorted(timed, key=lambda device: -(longer_by(timed[device]) or -1.0)) if len(timed) > 6 else list(timed)
    shown, marks = order[:_MOST_ROWS], {name: list[Mark]() for name in _CHOICES}
    for row, device in enumerate(shown):
        for kind, mark in _marks(device, timed[device], row):
            marks[kind].append(mark)
    failed = sum(row.failure is not None for row in document.network)
    notes = [f"Choices that failed: {failed}."] if failed else []
    if len(shown) < len(order):
        notes.append(f"The {len(shown)} of {len(order)} devices where the choice loses most.")
    if far := [mark for mark in marks["untuned"] if (mark.x.value or 0.0) > _LONGEST * _furthest(marks)]:
        marks["untuned"] = [mark for mark in marks["untuned"] if mark not in far]
        notes.append("Untuned is far to the right, and left out.")
    return [
        Chart(
            title=network_sentence(measured),
            x=Axis(title="time of the whole network over that of the device's own best, with 95 % intervals"),
            y=Axis(names=tuple(_row_name(device, timed[device]) for device in shown)),
            groups=tuple(Group(name=name, marks=marks[kind], look=look) for kind, (name, look, _) in _CHOICES.items()),
            rules=(Rule(along="x", at=1.0),),
            note=" ".join(notes),
        )
    ]


def _furthest(marks: Mapping[str, Sequence[Mark]]) -> float:
    """The largest ratio of tuned networks."""
    values = [mark.x.value or 0.0 for kind, own in marks.items() if kind != "untuned" for mark in own]
    return max(values, default=math.inf)


def _times(choices: Choices) -> dict[str, float]:
    return {choice: time for choice in sorted(choices) if (time := time_of(choices, choice))}


def _one_s(device: str, choices: Choices) -> float:
    """What is 1 on a device: its own best, or else the fastest there."""
    times = _times(choices)
    return times.get(f"own:{device}") or min(times.values())


def _row_name(device: str, choices: Choices) -> str:
    fastest = "" if f"own:{device}" in _times(choices) else "fastest "
    return f"{device}, {fastest}{units.time(_one_s(device, choices))}"


def _marks(device: str, choices: Choices, row: int) -> Iterator[tuple[str, Mark]]:
    one_s = _one_s(device, choices)
    for choice, time_s in _times(choices).items():
        times, ratio, kind = choices[choice].time, choices[choice].to_own, _kind(device, choice)
        if ratio is not None:  # paired by process, which is surer than two times by themselves
            value, low, high = ratio.ratio, ratio.low, ratio.high
        elif times is None or f"own:{device}" in _times(choices):
            value, low, high = time_s / one_s, None, None  # what the others' intervals are relative to has none
        else:
            ends = Value(value=time_s, low=times.low_s, high=times.high_s).times(1 / one_s)
            value, low, high = time_s / one_s, ends.low, ends.high
        longest = None if high is None else min(high, _LONGEST * value)
        name, _, aside = _CHOICES[kind]
        tip = f"{device}, {name}: {units.time(time_s)}, {units.digits(value)} times as long"
        yield kind, Mark(x=Value(value=value, low=low, high=longest), y=Value(value=row + aside), tip=tip)


def _kind(device: str, choice: str) -> str:
    if choice in ("overlay", "untuned"):
        return choice
    return "own" if choice == f"own:{device}" else "other"

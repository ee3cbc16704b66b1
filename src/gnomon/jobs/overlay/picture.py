"""The charts of an overlay, from its document alone: heat maps of the choices' losses, and the network's times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.jobs.overlay.document import AnalyzeDocument, ByDevice, ChosenLayer
from gnomon.jobs.overlay.report import Choices, longer_by, measured_of, network_sentence, time_of
from gnomon.jobs.tune.report import largest_first, metric
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS, Axis, Chart, Group, Mark, Row, Rule, Value, in_rows
from gnomon.report.render import stem

_DARKEST = 0.2
"""The least loss that is drawn as the darkest cell."""

_MOST_ROWS, _MOST_DEVICES, _MOST_LAYERS = 40, 16, 24
_OWN, _OTHER = LOOKS[3], LOOKS[0]
_CHOICES = {CHOSEN: "the overlay's choice", _OWN: "its own best", _OTHER: "another device's best"}
"""The names of the choices in charts."""


def overlay_pictures(document: AnalyzeDocument) -> dict[str, list[Chart]]:
    """The charts of each layer with several configurations, and of the measured network, by file name."""
    taken = set[str]()
    layers = {stem(f"layer.{layer.name}", taken): [layer_chart(layer, document.devices)] for layer in _wide(document)}
    return {**layers, "network": network_charts(document)}


def layer_charts(document: AnalyzeDocument) -> list[Chart]:
    """The charts of the layers that have the largest shares of the network's time."""
    return [layer_chart(layer, document.devices) for layer in _wide(document)[:_MOST_LAYERS]]


def _wide(document: AnalyzeDocument) -> list[ChosenLayer]:
    """The layers with several configurations to choose from, the largest first."""
    return [layer for layer in largest_first(document.layers) if len(layer.options) > 1]


def losses_charts(document: AnalyzeDocument) -> list[Chart]:
    """The loss of each layer's choice on each device; no chart if there are no layers."""
    layers = largest_first(document.layers)
    rows = [(layer.name, (units.share(layer.share), metric(layer.M)), layer.regret) for layer in layers]
    title = "Loss of the choice compared with each device's own best, the largest share of the network first"
    return [_heat(title, ("share", "M"), document.devices, rows)] if rows else []


def layer_chart(layer: ChosenLayer, devices: Sequence[str]) -> Chart:
    """The loss on each device of the configurations with the least M."""
    rows = [(option.configuration, (option.host or "-", metric(option.M)), option.regret) for option in layer.options]
    chosen = next((k for k, option in enumerate(layer.options) if option.configuration == layer.configuration), None)
    title = f"{layer.name}: loss on each device of the configurations with the least M, out of {layer.configurations}"
    return _heat(title, ("found on", "M"), devices, rows, chosen=chosen)


def _heat(
    title: str,
    heads: Sequence[str],
    devices: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str], ByDevice]],
    *,
    chosen: int | None = None,
) -> Chart:
    """A heat map: columns of words, then a column of losses for each device, or for the worst if there are many."""
    shown = rows[:_MOST_ROWS]
    worst = sorted(devices, key=lambda name: -max((_finite(regret.get(name)) for _, _, regret in shown), default=0.0))
    kept = [name for name in devices if name in worst[:_MOST_DEVICES]]
    cells = [
        Mark(x=Value(value=column), y=Value(value=row), label=text, share=share)
        for row, (_, words, regret) in enumerate(shown)
        for column, (text, share) in enumerate(
            [*((word, 0.0) for word in words), *(_loss(regret.get(name)) for name in kept)]
        )
    ]
    notes = [f"Darkest: a loss of {100 * _DARKEST:.0f} % or more."]
    notes += [f"Shown: the first {len(shown)} of {len(rows)} rows."] if len(shown) < len(rows) else []
    notes += [f"Shown: the {len(kept)} devices of {len(devices)} that lose most."] if len(kept) < len(devices) else []
    return Chart(
        title=title,
        x=Axis(names=(*heads, *kept)),
        y=Axis(names=tuple(name for name, _, _ in shown), chosen=frozenset(() if chosen is None else (chosen,))),
        groups=(Group(marks=cells, kind="cells"),),
        note=" ".join(notes),
    )


def _finite(loss: float | None) -> float:
    return loss if loss is not None and math.isfinite(loss) else 0.0


def _loss(loss: float | None) -> tuple[str, float]:
    """A loss as text, and the darkness of its cell."""
    return ("0" if loss == 0 else units.percent(loss)), _finite(loss) / _DARKEST


def network_charts(document: AnalyzeDocument) -> list[Chart]:
    """The network's time on each device under each choice, relative to the device's own best; no chart without times.

    The untuned network is left out, because it is so slow that all other choices would look equal beside it.
    """
    measured = measured_of(document)
    devices = sorted(measured, key=lambda device: -(longer_by(measured[device]) or -1.0))
    rows = [row for device in devices for row in _rows(device, measured[device])]
    if not any(row.value.is_known for row in rows):
        return []
    title = "time of the whole network relative to the device's own best or, without it, to its fastest"
    chart = in_rows(network_sentence(measured), title, rows, legend=_CHOICES, noun="choices")
    return [replace(chart, rules=(Rule(along="x", at=1.0),))]


def _rows(device: str, choices: Choices) -> Iterator[Row]:
    own, tuned = f"own:{device}", sorted(choices.keys() - {"untuned"})
    times_s = {choice: time_s for choice in tuned if (time_s := time_of(choices, choice))}
    one_s = times_s.get(own) or min(times_s.values(), default=None)
    for choice in tuned:
        time_s, paired = times_s.get(choice), choices[choice].to_own
        value = Value(value=None if time_s is None or one_s is None else time_s / one_s)
        if time_s is not None and paired is not None:  # paired by process, which is more certain than separate times
            vague = paired.low is None or paired.high is None or units.vague(paired.low, paired.high)
            value = Value(value=paired.ratio) if vague else Value(value=paired.ratio, low=paired.low, high=paired.high)
        look = CHOSEN if choice == "overlay" else _OWN if choice == own else _OTHER
        yield Row(name=f"{device}, {_CHOICES[look]}", value=value, text=units.time(time_s), look=look)

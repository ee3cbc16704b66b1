"""The picture of an estimator: predicted against measured, what is left over by unit, and what more samples brought."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.plot import millis, new_figure, write

# Okabe and Ito's colours, which stay apart for people who are colour-blind; marks tell them apart in print.
_IN, _OUT, _SECOND, _BAND = "#0072B2", "#D55E00", "#009E73", "#e4e4e4"
_UNITS = 12
_MOST_BARS = 400
"""Of more nets the intervals would be a grey wall: their points alone are drawn."""


def evaluation_picture(evaluation: dict[str, Any], path: Path) -> list[Path]:
    """Draw PATH.svg and PATH.png of an evaluation's document; returns both. The same document gives the same bytes.

    Raises OSError where a file cannot be written.
    """
    paths = [path.with_name(f"{path.name}{suffix}") for suffix in (".svg", ".png")]
    draw_evaluation(evaluation, paths)
    return paths


def draw_evaluation(evaluation: dict[str, Any], paths: Sequence[Path]) -> None:
    """Draw into files whose suffix says how (.svg, .png). Raises OSError where a file cannot be written."""
    for path in paths:
        write(lambda: _figure(evaluation), path, font_size=9.0)


def _figure(evaluation: dict[str, Any]) -> Figure:
    figure = new_figure(6.2, 11.5)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.1, 1))
    _draw_nets(figure.add_subplot(grid[:, 0]), evaluation)
    upper, lower = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
    if evaluation["units"]:
        _draw_units(upper, evaluation)
    else:
        _draw_residuals(upper, evaluation)
    if len(evaluation["curve"]) > 1:
        _draw_curve(lower, evaluation)
    elif evaluation["units"]:
        _draw_residuals(lower, evaluation)
    else:
        lower.remove()
    scores, ceiling = evaluation["scores"], evaluation["ceiling"]
    title = f"Mean error {_percent(scores['mean_error'])}, {units.share(scores['within_10'])} within 10 %, "
    title += f"rank {scores['spearman']:.3f} ({evaluation['how']})"
    if ceiling:
        title += f"\nThe noise of measuring alone: mean error {_percent(ceiling['mean_error'])}, "
        title += f"{units.share(ceiling['within_10'])} within 10 %, rank {ceiling['spearman']:.3f}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure


def _draw_nets(axes: Any, evaluation: dict[str, Any]) -> None:
    """Predicted against measured, with intervals, in the band of 10 %."""
    nets, nominal = evaluation["nets"], units.share(evaluation["scores"]["nominal"])
    scale, unit = millis(max(max(net["measured_s"], net["mean_s"]) for net in nets))
    values = [net[name] * scale for net in nets for name in ("measured_s", "mean_s")]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.1 * high
    ends = [max(0.0, low - room), high + room]
    band = {"color": _BAND, "linewidth": 0, "zorder": 0}
    axes.fill_between(ends, [0.9 * e for e in ends], [1.1 * e for e in ends], label="within 10 %", **band)
    axes.plot(ends, ends, color="black", linewidth=0.8, zorder=1, label="predicted as measured")
    held = [net["low_s"] <= net["measured_s"] <= net["high_s"] for net in nets]
    looks = ((True, "o", _IN, f"in the {nominal} interval"), (False, "X", _OUT, "outside of it"))
    for inside, marker, colour, label in looks:
        own = [net for net, is_in in zip(nets, held, strict=True) if is_in == inside]
        if own:
            x, y = ([net[name] * scale for net in own] for name in ("measured_s", "mean_s"))
            bars = None
            if len(nets) <= _MOST_BARS:
                down = [(net["mean_s"] - net["low_s"]) * scale for net in own]
                bars = [down, [(net["high_s"] - net["mean_s"]) * scale for net in own]]
            axes.errorbar(
                x,
                y,
                yerr=bars,
                fmt=marker,
                color=colour,
                markersize=5 if inside else 7,
                elinewidth=0.7,
                alpha=0.8,
                zorder=3 if inside else 4,
                label=f"{label}: {len(own)} net{'' if len(own) == 1 else 's'}",
            )
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_aspect("equal")
    axes.set_xlabel(f"measured, {unit}")
    axes.set_ylabel(f"predicted, {unit}")
    # Above the axes, where no point and no interval can be.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, fontsize=8.5)


def _draw_units(axes: Any, evaluation: dict[str, Any]) -> None:
    """By how much nets that hold a unit are predicted too long, for the units where that is clearest."""
    shown = evaluation["units"][:_UNITS][::-1]
    for place, unit in enumerate(shown):
        value, low, high = (100 * unit[name] for name in ("mean", "low", "high"))
        clear = low > 0 or high < 0
        axes.plot([low, high], [place, place], color=_OUT if clear else _IN, linewidth=1.2, zorder=2)
        axes.plot(value, place, "D" if clear else "o", color=_OUT if clear else _IN, markersize=4.5, zorder=3)
    axes.axvline(0, color="black", linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(shown)), [f"{_brief(u['unit'])} ({u['nets']})" for u in shown], fontsize=6.5)
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel("nets with this unit (how many): predicted too long by, %", fontsize=8.5)


def _draw_residuals(axes: Any, evaluation: dict[str, Any]) -> None:
    """What is left over by predicted size."""
    nets = evaluation["nets"]
    scale, unit = millis(max(net["mean_s"] for net in nets))
    x = [net["mean_s"] * scale for net in nets]
    axes.axhspan(-10, 10, color=_BAND, linewidth=0, zorder=0)
    axes.axhline(0, color="black", linewidth=0.8, zorder=1)
    axes.plot(x, [100 * (net["mean_s"] / net["measured_s"] - 1) for net in nets], "o", color=_IN, markersize=3.5)
    axes.set_xlabel(f"predicted, {unit}")
    axes.set_ylabel("too long by, %")


def _draw_curve(axes: Any, evaluation: dict[str, Any]) -> None:
    """The error on nets held out, against the number of samples that were fitted to."""
    curve = evaluation["curve"]
    x = [spent["samples"] for spent in curve]
    errors = [100 * spent["mean_error"] for spent in curve]
    beyond = [100 * (1 - spent["within_10"]) for spent in curve]
    axes.plot(x, errors, "o-", color=_IN, linewidth=1.2, markersize=4.5, label="mean error, %")
    axes.plot(x, beyond, "s--", color=_SECOND, linewidth=1.2, markersize=4.5, label="nets off by more than 10 %, %")
    if evaluation["ceiling"]:
        noise = 100 * evaluation["ceiling"]["mean_error"]
        axes.axhline(noise, color="black", linewidth=0.8, linestyle=":", label="mean error of measuring alone, %")
    axes.set_xscale("symlog", linthresh=10)
    ticks = [n for n in (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if n <= max(x)]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.minorticks_off()
    axes.set_xlim(min(x) - 0.5, 1.08 * max(x))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.set_xlabel("nets fitted to, the first of the samples; all others held out")
    axes.legend(frameon=False, fontsize=8.5)


def _brief(unit: str) -> str:
    return shorten(unit.replace("BatchNormalization", "BN"), 40)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"

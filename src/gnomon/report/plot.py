"""What all pictures have in common: settings, marks that need no colour, scales, labels that cover nothing.

`write` draws one into a file. Points, lines with a name at their end, and second scales are drawn the same way in
every job's `picture.py`.
"""

from __future__ import annotations

import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from gnomon.report import units
from gnomon.report.plain import SEVERAL, shorten

WIDTH = 8.0
"""The width of each picture in inches: at 800 pixels its letters of 10 points are still read."""

_SETTINGS = {
    "svg.hashsalt": "gnomon",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.usetex": False,
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How the networks of a family are drawn."""

    shape: str
    colour: str


# Okabe and Ito's colours, which stay apart for people who are colour-blind; shapes tell them apart in print.
_MARKS = (
    Mark(shape="o", colour="#0072B2"),
    Mark(shape="s", colour="#D55E00"),
    Mark(shape="^", colour="#009E73"),
    Mark(shape="D", colour="#CC79A7"),
    Mark(shape="v", colour="#E69F00"),
    Mark(shape="P", colour="#56B4E9"),
    Mark(shape="h", colour="#8C6D1F"),
)
_OF_SEVERAL = Mark(shape="X", colour="#444444")


def marks_of(families: Sequence[str]) -> dict[str, Mark]:
    """A mark for each family, and one for networks of several."""
    return {**{name: _MARKS[k % len(_MARKS)] for k, name in enumerate(families)}, SEVERAL: _OF_SEVERAL}


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def millis(largest_s: float) -> tuple[float, str]:
    """What to multiply seconds with, and the unit that makes of them."""
    return next(((1 / f, u) for f, u in ((1e-6, "us"), (1e-3, "ms")) if largest_s < 999.5 * f), (1.0, "s"))


def write(draw: Callable[[], Figure], path: Path, *, font_size: float = 10.0) -> None:
    """Draw and write a picture as .svg or .png, by the suffix. The same document gives the same bytes.

    OSError where the file cannot be written.
    """
    settings: dict[str, Any] = {**matplotlib.rcParamsDefault, "backend": "agg", **_SETTINGS, "font.size": font_size}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes in the PNG; the SVG keeps its text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        metadata = {"Date": None, "Creator": "gnomon"} if path.suffix == ".svg" else {"Software": "gnomon"}
        draw().savefig(path, dpi=150, metadata=metadata, bbox_inches="tight", pad_inches=0.15)


CHOSEN = "#B00020"
BAND = "#9ecae1"
_BOUND = re.compile(r"(?<=\d) (?=(?:%|[num]?s\b|times\b|devices\b))")
_FAR = 4.0
"""A scale is logarithmic where the largest value is at least so many times the smallest."""

_THRESHOLD = 5.0
"""Up to which loss in percent a scale with 0 is linear."""

_APART = 1.35
"""How far apart labels stand, in heights of a letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a device's line is drawn."""

    colour: str
    dash: Any
    marker: str


# Okabe and Ito's colours, which stay apart for people who are colour-blind; dashes and markers do in print.
LOOKS = (
    Look(colour="#0072B2", dash="-", marker="o"),
    Look(colour="#D55E00", dash=(0, (5, 2)), marker="s"),
    Look(colour="#009E73", dash=(0, (1, 1.2)), marker="^"),
    Look(colour="#8C6D1F", dash=(0, (6, 1.5, 1, 1.5)), marker="D"),
    Look(colour="#CC79A7", dash=(0, (9, 3)), marker="v"),
    Look(colour="#444444", dash=(0, (3, 1, 1, 1, 1, 1)), marker="P"),
)
"""How devices are drawn, the first one first; of more of them the others are a band."""

MEAN = Look(colour="black", dash="-", marker="o")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLabel:
    """The name of a line, beside its last point."""

    at: tuple[float, float]
    text: str
    colour: str


def end_labels(axes: Any, labels: Sequence[EndLabel], *, size: float = 8.5) -> None:
    """Write labels right of axes whose limits are final, each at the height of its line, or as near as there is room.

    A thin line leads from the line's end to its label.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # the layout, without which nobody knows where a value lies
    pixels = figure.dpi / 72
    lines = [label.text.count("\n") + 1 for label in labels]
    heights = [_APART * size * pixels * count for count in lines]
    order = sorted(range(len(labels)), key=lambda k: (_height(axes, labels[k]), k))
    middles = _spread([_height(axes, labels[k]) for k in order], [heights[k] for k in order], axes.bbox.height)
    for k, middle in zip(order, middles, strict=True):
        label = labels[k]
        line = {"arrowstyle": "-", "linewidth": 0.6, "color": label.colour, "shrinkA": 1, "shrinkB": 1}
        axes.annotate(
            label.text,
            label.at,
            xytext=(1.035, middle / axes.bbox.height),
            textcoords="axes fraction",
            ha="left",
            va="center",
            fontsize=size,
            color=label.colour,
            linespacing=1.1,
            annotation_clip=False,
            arrowprops={**line, "relpos": (0.0, 0.5)},
        )


def _height(axes: Any, label: EndLabel) -> float:
    """The height of a label's line above the lower end of the axes, in pixels, within the axes."""
    found = float(axes.transData.transform(label.at)[1] - axes.bbox.y0)
    return min(max(found, 0.0), float(axes.bbox.height))


def _spread(wanted: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Middles in ascending order that are as near to the wanted ones as boxes of these heights allow."""
    placed: list[float] = []
    for want, height in zip(wanted, heights, strict=True):
        least = placed[-1] + (heights[len(placed) - 1] + height) / 2 if placed else height / 2
        placed.append(max(want, least))
    most = room
    for k in range(len(placed) - 1, -1, -1):  # what stands above the top pushes the others down
        placed[k] = min(placed[k], most - heights[k] / 2)
        most = placed[k] - heights[k] / 2
    return placed


def ratio_scale(axes: Any) -> None:
    """Scale the y axis of times relative to the best by what is drawn: logarithmic where they are far apart."""
    low, high = min(1.0, float(axes.dataLim.y0)), max(1.0, float(axes.dataLim.y1))
    if high / low > _FAR:
        _logarithmic(axes, low / 1.08, high * 1.15)
    else:
        room = max(0.05 * (high - low), 0.02)
        axes.set_ylim(low - room, high + room)
    _plain_ticks(axes)


def loss_scale(axes: Any) -> None:
    """Scale the y axis of losses in percent by what is drawn: linear around 0 and logarithmic above, if need be."""
    low, high = float(axes.dataLim.y0), float(axes.dataLim.y1)
    if low > 1 and high / low > _FAR:
        _logarithmic(axes, low / 1.15, high * 1.15)
    elif high > 100:
        axes.set_yscale("symlog", linthresh=_THRESHOLD, linscale=SYMLOG_SCALE)
        axes.set_ylim(-0.08 * _THRESHOLD, high * 1.15)
        axes.yaxis.set_major_locator(FixedLocator([0.0, *log_ticks(_THRESHOLD, high * 1.15)]))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(-0.03 * max(high, 1.0), max(high, 1.0) * 1.06)
    _plain_ticks(axes)


def _logarithmic(axes: Any, low: float, high: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.yaxis.set_minor_locator(NullLocator())


def _plain_ticks(axes: Any) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def plain(value: float, _: Any = None) -> str:
    """A number of an axis without an exponent: "0.25", "1", "1.5", "1 000"."""
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.4g}"


def second_scale(axes: Any, factor: float, label: str) -> Any:
    """A further y axis left of the first that shows the same heights times a factor, in round numbers of its own."""
    other = axes.twinx()
    other.yaxis.set_label_position("left")
    other.yaxis.set_ticks_position("left")
    other.spines["left"].set_position(("outward", 64))
    other.spines["left"].set_visible(True)
    low, high = axes.get_ylim()
    scale, least = axes.get_yscale(), low * factor
    if scale == "symlog":
        threshold = axes.yaxis.get_transform().linthresh
        other.set_yscale("symlog", linthresh=threshold * factor, linscale=SYMLOG_SCALE)
        least = threshold * factor
    else:
        other.set_yscale(scale)
    other.set_ylim(low * factor, high * factor)
    if scale != "linear":
        other.yaxis.set_major_locator(FixedLocator(([0.0] if low <= 0 else []) + log_ticks(least, high * factor)))
        other.yaxis.set_minor_locator(NullLocator())
    other.yaxis.set_major_formatter(FuncFormatter(plain))
    other.yaxis.set_minor_formatter(NullFormatter())
    other.set_ylabel(label)
    return other


SYMLOG_SCALE = 0.6
"""How many decades wide the linear part around 0 is drawn."""


def log_ticks(low: float, high: float, *, most: int = 8) -> list[float]:
    """Round numbers on a logarithmic axis, as many as there are up to `most`; of very many decades each some-th."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = [m * 10.0**e for e in range(first, last + 1) for m in steps if low <= m * 10.0**e <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def rank_axis(axes: Any, count: int, *, logarithmic: bool) -> None:
    """Scale the x axis for ranks from 1 on."""
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(0.9, count * 1.04)
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        room = max(0.5, 0.015 * count)
        axes.set_xlim(1 - room, count + room)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value) if 1 <= value <= count else ""))


def mark_choice(axes: Any, rank: int, text: str) -> None:
    """A labelled vertical line at the rank of the choice; the label stands above the axes."""
    axes.axvline(rank, color=CHOSEN, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2.5)
    low, high = (float(axes.transData.transform((x, 1))[0]) for x in axes.get_xlim())
    place = (float(axes.transData.transform((rank, 1))[0]) - low) / (high - low)
    side = "left" if place < 0.35 else "right" if place > 0.65 else "center"
    axes.annotate(
        text,
        (rank, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=9,
        color=CHOSEN,
        annotation_clip=False,
    )


def titled(figure: Any, sentence: str) -> None:
    """Write what a picture says above it; no line ends between a number and its unit."""
    held = _BOUND.sub("\0", shorten(sentence, 300))  # what is clean has no such character
    lines = [line.replace("\0", " ") for line in textwrap.wrap(held, 88, break_on_hyphens=False)]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11)


def device_label(name: str, best_s: float) -> str:
    """A device's name with the time that is 1 there."""
    return f"{name}\nbest {units.time(best_s)}"


_POINTS = 6.0
"""Half of a marker with its surroundings, in points of 1/72 inch."""

_OFFSETS = (
    *((6, 5), (6, -11), (-6, 5), (-6, -11)),
    *((14, y) for y in (17, -23, 29, -35)),
    *((-14, y) for y in (17, -23, 29, -35)),
    *((14, y) for y in (41, -47, 53, -59)),
)
"""Where a label may stand beside its point, in points of 1/72 inch, the best first; to the left it ends there."""

_NEAR = 6
"""A label that is farther from its point than this has a line to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a point is called: a mark, and a name for which there may be no room."""

    at: tuple[float, float]
    mark: str
    name: str


def label_points(axes: Any, labels: Sequence[Label]) -> None:
    """Write labels into axes whose layout is known, the first ones first.

    One for which there is no room is shortened to its mark; where there is none even for that, it is left out.
    """
    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    reach = _POINTS * figure.dpi / 72
    centres = [axes.transData.transform(label.at) for label in labels]
    taken = [Bbox.from_extents(x - reach, y - reach, x + reach, y + reach) for x, y in centres]
    page = Bbox.from_extents(axes.bbox.x0, axes.bbox.y0, figure.bbox.x1, axes.bbox.y1)
    for k, label in enumerate(labels):
        others = [box for j, box in enumerate(taken) if j != k]
        texts = [f"{label.mark}  {label.name}".strip(), label.mark]
        made = (_written(axes, label, text, offset) for text in texts if text for offset in _OFFSETS)
        for written in made:
            written.update_positions(renderer)
            box = Text.get_window_extent(written, renderer)  # that of the words, without the line
            if _inside(box, page) and not any(box.overlaps(other) for other in others):
                taken.append(box)
                break
            written.remove()


def _written(axes: Any, label: Label, text: str, offset: tuple[int, int]) -> Any:
    side = "left" if offset[0] > 0 else "right"
    line: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.5, "color": "#555555", "shrinkA": 0, "shrinkB": 3}
    line["relpos"] = (0.0 if side == "left" else 1.0, 0.5)
    return axes.annotate(
        text,
        label.at,
        xytext=offset,
        textcoords="offset points",
        ha=side,
        fontsize=8,
        zorder=4,
        annotation_clip=False,
        arrowprops=line if abs(offset[0]) > _NEAR else None,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
    )


def _inside(box: Bbox, page: Bbox) -> bool:
    return bool(box.x0 >= page.x0 and box.x1 <= page.x1 and box.y0 >= page.y0 and box.y1 <= page.y1)

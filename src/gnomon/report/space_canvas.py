"""What the pictures of search spaces have in common: settings, marks that need no colour, and how one is written."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gnomon.report.plain import shorten
from gnomon.report.space_points import SEVERAL

WIDTH = 8.0
"""The width of each picture in inches: at 800 pixels its letters of 10 points are still read."""

_SETTINGS = {
    "svg.hashsalt": "gnomon",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.0,
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


def new_figure(height: float) -> Figure:
    """An empty figure of the common width, so many inches high."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def titled(figure: Figure, sentence: str) -> None:
    """Write what the picture says above it, over as many lines as it takes."""
    figure.suptitle("\n".join(textwrap.wrap(shorten(sentence, 300), 88)), x=0.01, ha="left", fontsize=11)


def millis(largest_s: float) -> tuple[float, str]:
    """What to multiply seconds with, and the unit that makes of them."""
    return next(((1 / f, u) for f, u in ((1e-6, "us"), (1e-3, "ms")) if largest_s < 999.5 * f), (1.0, "s"))


def write(draw: Callable[[], Figure], path: Path) -> None:
    """Draw and write a picture as .svg or .png, by the suffix. The same document gives the same bytes.

    OSError where the file cannot be written.
    """
    settings: dict[str, Any] = {**matplotlib.rcParamsDefault, "backend": "agg", **_SETTINGS}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes in the PNG; the SVG keeps its text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        metadata = {"Date": None, "Creator": "gnomon"} if path.suffix == ".svg" else {"Software": "gnomon"}
        draw().savefig(path, dpi=150, metadata=metadata, bbox_inches="tight", pad_inches=0.15)

"""The pictures of a search space, from its documents alone; one picture a file, as .svg or .png."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnomon.core.installing import install_line
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.jobs.space.points import choice_of, pairs_of, points_of
from gnomon.report.plain import clean

_SUFFIXES = (".svg", ".png")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_INSTALL = install_line("plot", python=sys.executable)


def draw_pictures(document: Mapping[str, Any], extras: Mapping[str, Any], folder: Path) -> list[str]:
    """Draw what there is to see of a profile into a folder; returns the paths of the pictures.

    `document` is that of a look, `extras` holds its "selection" and its "validation", each None where there is none.
    accuracy-latency.<toolchain>, choice, distributions and quantised, each as .svg and as .png; what there is nothing
    to draw of is left out. RuntimeMissingError without matplotlib, UsageError where the folder cannot be written.
    """
    drawing, _ = _adapters()
    selection, validation = extras.get("selection"), extras.get("validation")
    families = list(document["families"])
    wanted: dict[str, Callable[[], Any]] = {}
    for one in document["latency"]:
        found = points_of(document, one, selection)
        if found:
            stem = f"accuracy-latency.{_UNFIT.sub('_', one['toolchain'])[:80]}"
            again = f".{len(wanted)}" if stem in wanted else ""
            wanted[f"{stem}{again}"] = _later(drawing.networks_figure, found, families, one["toolchain"])
    rows = [] if selection is None else choice_of(document, selection)
    if rows and rows[0].kept:
        wanted["choice"] = _later(drawing.choice_figure, rows, selection)
    if validation is not None and validation.get("spaces"):
        wanted["distributions"] = _later(drawing.distributions_figure, validation["spaces"])
    sides = [(one["compared"], pairs) for one in document["latency"] if (pairs := pairs_of(document, one))]
    if sides:
        wanted["quantised"] = _later(drawing.quantised_figure, sides, families)
    _folder(folder)
    return [str(_written(draw, folder / f"{stem}{kind}")) for kind in _SUFFIXES for stem, draw in wanted.items()]


def selection_picture(document: Mapping[str, Any], selection: Mapping[str, Any], path: Path) -> None:
    """Draw the choice of a selection: primitives by cell groups, how often each is on the front, what is kept.

    `document` is that of a look at the same profile. UsageError for another suffix than .svg or .png and where the file
    cannot be written, RuntimeMissingError without matplotlib.
    """
    if path.suffix not in _SUFFIXES:
        raise UsageError(f"{clean(str(path))} is not a picture", hint="Give a file that ends in .svg or .png.")
    drawing, _ = _adapters()
    rows = choice_of(document, selection)
    _written(_later(drawing.choice_figure, rows, selection), path)


def front_picture(document: Mapping[str, Any], path: Path) -> None:
    """Draw a front: what was predicted of its networks, and what was measured. Raises what `selection_picture` does."""
    if path.suffix not in _SUFFIXES:
        raise UsageError(f"{clean(str(path))} is not a picture", hint="Give a file that ends in .svg or .png.")
    drawing, _ = _adapters()
    _written(_later(drawing.front_figure, document), path)


def _adapters() -> tuple[Any, Any]:
    """What draws, which needs matplotlib."""
    try:
        from gnomon.jobs.space import drawing
        from gnomon.report import plot
    except ImportError as error:
        raise RuntimeMissingError("no picture: matplotlib is not installed", hint=_INSTALL) from error
    return drawing, plot


def _later(draw: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: draw(*arguments)


def _folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, error) from error


def _written(draw: Callable[[], Any], path: Path) -> Path:
    _, canvas = _adapters()
    try:
        canvas.write(draw, path)
    except OSError as error:
        raise _refused(path, error) from error
    return path


def _refused(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"no picture: {clean(str(path))} cannot be written: {error.strerror or error}",
        hint="Give a place that can be written and has room.",
    )

"""The pictures of an overlay, from its document and series alone; one picture a file, as .svg or .png."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.core.installing import install_line
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.report.plain import clean

_KINDS = ("svg", "png")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_INSTALL = install_line("plot", python=sys.executable)


def layer_pictures(
    document: Mapping[str, Any],
    series: Mapping[str, Mapping[str, Any]],
    folder: Path,
    kinds: Sequence[str] = _KINDS,
) -> list[str]:
    """Draw each layer's configurations into a folder; returns the paths of the pictures.

    `document` is that of an analysis; `series` holds for the name of each layer its "configurations", "hosts" and
    "devices", "times_s" (a row a configuration, a column a device, None where there is no time), "chosen", and
    "spread", which tells the intervals of rows (`gnomon.core.overlay.confidence.spread`); None without any.
    <layer>.times has them by time on the first device, <layer>.metric by M with what each device loses; a picture of
    nothing, or of a single configuration, is left out. The same document gives the same bytes. RuntimeMissingError
    without matplotlib, UsageError for another kind than svg and png and where the folder cannot be written.
    """
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise UsageError(f"no picture: unknown kind {clean(', '.join(unknown))}", hint="Ask for svg, png, or both.")
    drawing, _, canvas = _adapters()
    layers = {layer["name"]: layer for layer in document["layers"]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, error) from error
    made, taken = [], set[str]()
    for name, one in series.items():
        if not one["devices"] or not one["configurations"]:
            continue
        found = drawing.series_of(name, one, layers.get(name))
        stem = _stem(name, taken)
        for what, draw, there in (
            ("times", drawing.times_figure, found.by_time().size),
            ("metric", drawing.metric_figure, found.by_metric().size),
        ):
            if there > 1:
                paths = [folder / f"{stem}.{what}.{kind}" for kind in kinds]
                made += [_written(canvas, _later(draw, found), path) for path in paths]
    return [str(path) for path in made]


def network_picture(document: Mapping[str, Any], path: Path) -> None:
    """Draw the whole network's time on each device under each choice, relative to the device's own best.

    UsageError for another suffix than .svg or .png, where no time of the network was measured, and where the file
    cannot be written; RuntimeMissingError without matplotlib.
    """
    if path.suffix[1:] not in _KINDS:
        raise UsageError(f"{clean(str(path))} is not a picture", hint="Give a file that ends in .svg or .png.")
    _, network, canvas = _adapters()
    if not any(row["time"] is not None and row["failure"] is None for row in document["network"]):
        raise UsageError(
            "no picture: the network was measured on no device", hint="Analyse with measuring of the whole network."
        )
    _written(canvas, _later(network.network_figure, document), path)


def _stem(name: str, taken: set[str]) -> str:
    """A file's name for a layer, which no other layer has, on file systems without capitals too."""
    first = f"layer.{_UNFIT.sub('_', name)[:80]}"
    stem, number = first, 1
    while stem.lower() in taken:
        number += 1
        stem = f"{first}.{number}"
    taken.add(stem.lower())
    return stem


def _adapters() -> tuple[Any, Any, Any]:
    """What draws, which needs matplotlib."""
    try:
        from gnomon.jobs.overlay import layer_drawing, network_drawing
        from gnomon.report import plot
    except ImportError as error:
        raise RuntimeMissingError("no picture: matplotlib is not installed", hint=_INSTALL) from error
    return layer_drawing, network_drawing, plot


def _later(draw: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: draw(*arguments)


def _written(canvas: Any, draw: Callable[[], Any], path: Path) -> Path:
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

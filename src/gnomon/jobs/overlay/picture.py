"""The pictures of an overlay, from its document and series alone; one picture a file, as .svg, .png or .pdf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import UsageError
from gnomon.jobs.overlay.layer_drawing import metric_spec, series_of, times_spec
from gnomon.jobs.overlay.network_drawing import network_spec
from gnomon.report.plain import clean
from gnomon.report.render import SUFFIXES, suffixed, write_pictures
from gnomon.report.vega import Spec

_KINDS = ("svg", "png")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


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
    without vl-convert, UsageError for another kind than svg, png and pdf and where the folder cannot be written.
    """
    unknown = [kind for kind in kinds if f".{kind}" not in SUFFIXES]
    if unknown:
        raise UsageError(f"no picture: unknown kind {clean(', '.join(unknown))}", hint="Ask for svg, png or pdf.")
    return write_pictures(_of_layers(document, series, folder, kinds), folder)


def _of_layers(
    document: Mapping[str, Any], series: Mapping[str, Mapping[str, Any]], folder: Path, kinds: Sequence[str]
) -> Iterator[tuple[Spec, list[Path]]]:
    """The pictures of each layer with their files, one by one, since they are large."""
    layers = {layer["name"]: layer for layer in document["layers"]}
    taken = set[str]()
    for name, one in series.items():
        if not one["devices"] or not one["configurations"]:
            continue
        found = series_of(name, one, layers.get(name))
        stem = _stem(name, taken)
        for what, draw, order in (("times", times_spec, found.by_time()), ("metric", metric_spec, found.by_metric())):
            if order.size > 1:
                yield draw(found, order), [folder / f"{stem}.{what}.{kind}" for kind in kinds]


def network_picture(document: Mapping[str, Any], path: Path) -> None:
    """Draw the whole network's time on each device under each choice, relative to the device's own best.

    UsageError for another suffix than .svg, .png or .pdf, where no time of the network was measured, and where the
    file cannot be written; RuntimeMissingError without vl-convert.
    """
    suffixed(path)
    if not any(row["time"] is not None and row["failure"] is None for row in document["network"]):
        raise UsageError(
            "no picture: the network was measured on no device", hint="Analyse with measuring of the whole network."
        )
    write_pictures([(network_spec(document), [path])])


def _stem(name: str, taken: set[str]) -> str:
    """A file's name for a layer, which no other layer has, on file systems without capitals too."""
    first = f"layer.{_UNFIT.sub('_', name)[:80]}"
    stem, number = first, 1
    while stem.lower() in taken:
        number += 1
        stem = f"{first}.{number}"
    taken.add(stem.lower())
    return stem

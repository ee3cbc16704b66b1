"""The pictures of a search space, from its documents alone; one picture a file, as .svg, .png or .pdf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.jobs.space.drawing import choice_spec, front_spec, networks_spec, quantised_spec
from gnomon.jobs.space.points import choice_of, pairs_of, points_of
from gnomon.report.render import suffixed, write_pictures
from gnomon.report.vega import Spec

_SUFFIXES = (".svg", ".png")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def draw_pictures(document: Mapping[str, Any], selection: Mapping[str, Any] | None, folder: Path) -> list[str]:
    """Draw what there is to see of a profile into a folder; returns the paths of the pictures.

    `document` is that of a look, `selection` the last choice, None where there is none. The pictures are
    accuracy-latency.<toolchain>, choice and quantised, each as .svg and as .png; what there is nothing to draw of is
    left out. RuntimeMissingError without vl-convert, UsageError where the folder cannot be written.
    """
    families = list(document["families"])
    wanted: dict[str, Spec] = {}
    for one in document["latency"]:
        found = points_of(document, one, selection)
        if found:
            stem = f"accuracy-latency.{_UNFIT.sub('_', one['toolchain'])[:80]}"
            again = f".{len(wanted)}" if stem in wanted else ""
            wanted[f"{stem}{again}"] = networks_spec(found, families, one["toolchain"])
    rows = [] if selection is None else choice_of(document, selection)
    if selection is not None and rows and rows[0].kept:
        wanted["choice"] = choice_spec(rows, selection)
    sides = [(one["compared"], pairs) for one in document["latency"] if (pairs := pairs_of(document, one))]
    if sides:
        wanted["quantised"] = quantised_spec(sides, families)
    files = [(spec, [folder / f"{stem}{kind}" for kind in _SUFFIXES]) for stem, spec in wanted.items()]
    made = write_pictures(files, folder)
    return [path for kind in _SUFFIXES for path in made if path.endswith(kind)]


def selection_picture(document: Mapping[str, Any], selection: Mapping[str, Any], path: Path) -> None:
    """Draw the choice of a selection: primitives by cell groups, how often each is on the front, what is kept.

    `document` is that of a look at the same profile. UsageError for another suffix than .svg, .png or .pdf and where
    the file cannot be written, RuntimeMissingError without vl-convert.
    """
    suffixed(path)
    write_pictures([(choice_spec(choice_of(document, selection), selection), [path])])


def front_picture(document: Mapping[str, Any], path: Path) -> None:
    """Draw a front: what was predicted of its networks, and what was measured. Raises what `selection_picture` does."""
    suffixed(path)
    write_pictures([(front_spec(document), [path])])

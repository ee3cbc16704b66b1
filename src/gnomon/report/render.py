"""Writes pictures, which are Vega-Lite specifications, into files: the only place that asks vl-convert.

It has Vega, a renderer and fonts inside and is allowed no address, so that nothing is fetched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from gnomon.core.installing import install_line
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.report.plain import clean

SUFFIXES = (".svg", ".png", ".pdf")
"""How files of pictures may end."""

_VERSION = "5.21"
"""The Vega-Lite that draws: of the version that specifications name."""

_SCALE = 2.0
"""How many pixels of a PNG there are for one of the specification."""


def write(spec: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw a picture into files, each in the way its suffix says. The same specification gives the same bytes.

    RuntimeMissingError without vl-convert, OSError where a file cannot be written.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise RuntimeMissingError(
            "no picture: vl-convert-python is not installed", hint=install_line("plot", python=sys.executable)
        ) from error
    svg = vl_convert.vegalite_to_svg(dict(spec), vl_version=_VERSION, allowed_base_urls=[])
    svg = svg.replace("<svg ", f'<svg role="img" aria-label={quoteattr(spec["description"])} ', 1)
    for path in paths:
        if path.suffix == ".svg":
            content = svg.encode()
        elif path.suffix == ".pdf":
            content = vl_convert.svg_to_pdf(svg)
        else:
            content = vl_convert.svg_to_png(svg, scale=_SCALE)
        path.write_bytes(content)


def suffixed(path: Path) -> None:
    """UsageError for the name of a file that says no way to draw."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{clean(str(path))} is not a picture", hint="Give a file that ends in .svg, .png or .pdf.")


def write_pictures(
    pictures: Iterable[tuple[Mapping[str, Any], Sequence[Path]]], folder: Path | None = None
) -> list[str]:
    """Draw pictures, each into its files, and make the folder before, where one is told; returns the files' paths.

    RuntimeMissingError without vl-convert, UsageError where a file cannot be written.
    """
    made: list[Path] = []
    place = folder
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        for spec, paths in pictures:
            place = paths[0]
            write(spec, paths)
            made += paths
    except OSError as error:
        raise UsageError(
            f"no picture: {clean(str(place))} cannot be written: {error.strerror or error}",
            hint="Give a place that can be written and has room.",
        ) from error
    return [str(path) for path in made]

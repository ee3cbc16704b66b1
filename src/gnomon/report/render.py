"""Writes charts into files: gnomon writes SVG itself, and vl-convert converts the SVG to PNG and PDF.

vl-convert contains a renderer and fonts and downloads nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from gnomon.errors import UsageError, system_errors
from gnomon.installing import needed
from gnomon.report.chart import Chart
from gnomon.report.plain import clean, untaken
from gnomon.report.svg import picture

SUFFIXES = (".svg", ".png", ".pdf")
"""The allowed suffixes of picture files."""

_SCALE = 2.0
"""The number of PNG pixels per SVG pixel, in each direction."""


def write_picture(charts: Sequence[Chart], path: Path) -> str:
    """Draw charts into a file in the format of its suffix; return its path. The same charts give the same bytes.

    RuntimeMissingError without vl-convert; UsageError for another suffix or if the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{clean(str(path))} is not a picture", hint="Give a file that ends in .svg, .png or .pdf.")
    content = _drawn(picture(charts), path.suffix)
    with _writable(path):
        path.write_bytes(content)
    return str(path)


def _writable(path: Path) -> AbstractContextManager[None]:
    """UsageError if the path cannot be written."""
    message = f"the picture {clean(str(path))} cannot be written"
    return system_errors(UsageError, message, hint="Give a path in a writable folder with free space.")


def _drawn(svg: str, suffix: str) -> bytes:
    if suffix == ".svg":
        return svg.encode()
    with needed(f"a {suffix} file needs vl-convert-python, which cannot be loaded", "plot", python=sys.executable):
        import vl_convert
    return bytes(vl_convert.svg_to_pdf(svg) if suffix == ".pdf" else vl_convert.svg_to_png(svg, scale=_SCALE))


_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def stem(name: str, taken: set[str]) -> str:
    """A file name for any name, different from all `taken` ones, even on file systems that ignore case."""
    return untaken(_UNFIT.sub("_", name)[:86], taken, ".")


def write_pictures(pictures: Mapping[str, Sequence[Chart]], folder: Path) -> Iterator[str]:
    """Draw all pictures into a folder under their names, first as SVG, then as PNG; yield the paths one by one.

    Raises the same errors as `write_picture`.
    """
    for suffix in (".svg", ".png"):
        for name, charts in pictures.items():
            if charts:
                with _writable(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                yield write_picture(charts, folder / f"{name}{suffix}")

"""What is read in a picture, and whether it can be drawn here."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest

from gnomon.report.chart import Chart
from gnomon.report.svg import picture

SVG = "{http://www.w3.org/2000/svg}"


def needs_drawing() -> None:
    """Skip where nothing can make PNG of SVG."""
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed: no PNG to test")


def words_in(path: Path | str) -> list[str]:
    """The texts of an SVG, which is well-formed."""
    return _words(Path(path).read_text(encoding="utf-8"))


def words_of(charts: Sequence[Chart]) -> list[str]:
    """The texts of a picture of charts."""
    return _words(picture(charts))


def _words(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314 our own file
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]

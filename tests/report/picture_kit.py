"""What is read in a picture, and whether it can be drawn here."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

SVG = "{http://www.w3.org/2000/svg}"


def needs_drawing() -> None:
    """Skip where nothing can draw."""
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed: no pictures to test")


def words_in(path: Path | str) -> list[str]:
    """The lines of text in an SVG, which is well-formed."""
    root = ElementTree.fromstring(Path(path).read_text(encoding="utf-8"))  # noqa: S314 our own file
    return ["".join(line.itertext()) for text in root.iter(f"{SVG}text") for line in [*text] or [text]]


def layers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The layers of marks in a specification, those of its parts among them."""
    for parts in ("vconcat", "hconcat", "layer"):
        for part in spec.get(parts, ()):
            yield from layers_of(part)
    if "mark" in spec:
        yield spec


def told_in(spec: Mapping[str, Any]) -> list[str]:
    """The lines of text of a specification: its title, those of axes, and what is written beside marks."""
    found: list[Any] = [*spec["title"]["text"]] if "title" in spec else []
    for parts in ("vconcat", "hconcat", "layer"):
        for part in spec.get(parts, ()):
            found += told_in({key: value for key, value in part.items() if key != "title"})
    found += [
        channel["title"] for name, channel in spec.get("encoding", {}).items() if name in "xy" and channel.get("title")
    ]
    if spec.get("mark", {}).get("type") == "text":
        found += [row["text"] for row in spec["data"]["values"]]
    return [line for one in found for line in (one if isinstance(one, list) else [one])]

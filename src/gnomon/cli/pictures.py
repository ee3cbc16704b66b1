"""Draws the picture of a placement beside its package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_NAMES = ("plan.svg", "plan.png")


def draw(document: dict[str, Any], folder: Path, tell: Callable[[str], None]) -> list[str]:
    """Write plan.svg and plan.png into the package's folder; returns their paths.

    A picture is no part of the answer: without matplotlib, or without room for it, `tell` says so and none is made.
    """
    try:
        from gnomon.report.picture import draw_placement
    except ImportError:
        tell("no picture: matplotlib is not installed. Install it with: pip install 'gnomon[plot]'")
        return []
    paths = [folder / name for name in _NAMES]
    try:
        draw_placement(document, paths)
    except OSError as error:
        tell(f"no picture: it cannot be written to {folder}: {error.strerror or error}")
        return []
    return [str(path) for path in paths]

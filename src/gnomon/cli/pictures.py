"""Draws the picture of a placement beside its package, and that of a front where it is wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.core.installing import install_line

_NAMES = ("plan.svg", "plan.png")
_MISSING = f"no picture: matplotlib is not installed. Install it with: {install_line('plot', python=sys.executable)}"


def draw(document: dict[str, Any], folder: Path, tell: Callable[[str], None]) -> list[str]:
    """Write plan.svg and plan.png into the package's folder; returns their paths.

    A picture is not part of the answer: without matplotlib, or without room for it, `tell` says so and none is made.
    """
    try:
        from gnomon.jobs.place.picture import draw_placement
    except ImportError:
        tell(_MISSING)
        return []
    paths = [folder / name for name in _NAMES]
    try:
        draw_placement(document, paths)
    except OSError as error:
        tell(f"no picture: it cannot be written to {folder}: {error.strerror or error}")
        return []
    return [str(path) for path in paths]


def draw_pareto(document: dict[str, Any], to: Path, tell: Callable[[str], None]) -> list[str]:
    """Write PATH.svg and PATH.png of a front; returns their paths. As for `draw`, it may be that none is made."""
    try:
        from gnomon.jobs.pareto.picture import draw_front
    except ImportError:
        tell(_MISSING)
        return []
    paths = [to.with_name(f"{to.name}{suffix}") for suffix in (".svg", ".png")]
    try:
        draw_front(document, paths)
    except OSError as error:
        tell(f"no picture: it cannot be written to {to.parent}: {error.strerror or error}")
        return []
    return [str(path) for path in paths]


def draw_evaluation(evaluation: dict[str, Any], to: Path, tell: Callable[[str], None]) -> list[str]:
    """Write PATH.svg and PATH.png of an estimator's evaluation; returns their paths. As for `draw`, it may be none."""
    try:
        from gnomon.jobs.estimator.picture import evaluation_picture
    except ImportError:
        tell(_MISSING)
        return []
    try:
        return [str(path) for path in evaluation_picture(evaluation, to)]
    except OSError as error:
        tell(f"no picture: it cannot be written to {to.parent}: {error.strerror or error}")
        return []

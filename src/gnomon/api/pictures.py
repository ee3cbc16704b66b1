"""Draws the pictures of answers: those of a placement into its package, those of other answers on request.

An answer is complete without its picture: if a picture cannot be drawn, `tell` is called with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.errors import GnomonError, RuntimeMissingError
from gnomon.report.answer import function_at

if TYPE_CHECKING:
    from gnomon.jobs.overlay.document import AnalyzeDocument

Tell = Callable[[str], None] | None

EVALUATION = "gnomon.jobs.estimator.picture:evaluation_charts"
"""The charts of an estimator's evaluation."""


def draw(charts: str, document: Any, to: Path, tell: Tell) -> list[str]:
    """Draw the charts that "module:function" makes from a document to TO.svg and TO.png; return their paths."""
    return _written(lambda: {to.name: function_at(charts)(document)}, to.parent, tell)


def draw_overlay(document: AnalyzeDocument, folder: Path, tell: Tell) -> list[str]:
    """Draw an overlay's layers, and its network if it was measured, into a folder; return the paths."""

    def pictures() -> Mapping[str, Sequence[Any]]:
        from gnomon.jobs.overlay.picture import overlay_pictures

        return overlay_pictures(document)

    return _written(pictures, folder, tell)


def _written(pictures: Callable[[], Mapping[str, Sequence[Any]]], folder: Path, tell: Tell) -> list[str]:
    from gnomon.report.render import write_pictures

    paths: list[str] = []
    try:
        paths.extend(write_pictures(pictures(), folder))
        return paths
    except RuntimeMissingError as error:
        reason = f"{error}. Install it with: {error.hint}"
    except GnomonError as error:
        reason = f"{error.message}. {error.hint}"
    except Exception as error:  # a defect in drawing must not hide the measurements
        reason = f"the picture cannot be drawn: {type(error).__name__}: {error}"
    if tell is not None:
        tell(reason)
    return paths

"""The pictures that a document names: that of a placement in its package, and those that are wanted of others.

An answer does without its picture: where one cannot be drawn, `tell` is called with the reason.
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
    """Write TO.svg and TO.png of the charts that "module:function" makes of a document; returns their paths."""
    return _written(lambda: {to.name: function_at(charts)(document)}, to.parent, tell)


def draw_overlay(document: AnalyzeDocument, folder: Path, tell: Tell) -> list[str]:
    """Write the pictures of an overlay's layers, and of its network where one was measured; returns their paths."""

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
    except Exception as error:  # a defect of what draws hides nothing of what was measured
        reason = f"no picture: it cannot be drawn: {type(error).__name__}: {error}"
    if tell is not None:
        tell(reason)
    return paths

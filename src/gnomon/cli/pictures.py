"""Draws the pictures that a document names: of a placement beside its package, and those that are wanted of others.

A picture is not part of the answer: where one cannot be drawn, `tell` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, RuntimeMissingError

Tell = Callable[[str], None]
Pictures = Callable[[], Mapping[str, Sequence[Any]]]


def draw(document: dict[str, Any], folder: Path, tell: Tell) -> list[str]:
    """Write plan.svg and plan.png into the package's folder; returns their paths."""

    def pictures() -> Mapping[str, Sequence[Any]]:
        from gnomon.jobs.place.picture import placement_charts

        return {"plan": placement_charts(document)}

    return _written(pictures, folder, tell)


def draw_pareto(document: dict[str, Any], to: Path, tell: Tell) -> list[str]:
    """Write PATH.svg and PATH.png of a front; returns their paths."""

    def pictures() -> Mapping[str, Sequence[Any]]:
        from gnomon.jobs.pareto.picture import front_charts

        return {to.name: front_charts(document)}

    return _written(pictures, to.parent, tell)


def draw_evaluation(evaluation: dict[str, Any], to: Path, tell: Tell) -> list[str]:
    """Write PATH.svg and PATH.png of an estimator's evaluation; returns their paths."""

    def pictures() -> Mapping[str, Sequence[Any]]:
        from gnomon.jobs.estimator.picture import evaluation_charts

        return {to.name: evaluation_charts(evaluation)}

    return _written(pictures, to.parent, tell)


def draw_overlay(document: dict[str, Any], folder: Path, tell: Tell) -> list[str]:
    """Write the pictures of an overlay's layers, and of its network where one was measured; returns their paths."""

    def pictures() -> Mapping[str, Sequence[Any]]:
        from gnomon.jobs.overlay.picture import overlay_pictures

        return overlay_pictures(document)

    return _written(pictures, folder, tell)


def _written(pictures: Pictures, folder: Path, tell: Tell) -> list[str]:
    from gnomon.report.render import write_pictures

    paths: list[str] = []
    try:
        paths.extend(write_pictures(pictures(), folder))
    except RuntimeMissingError as error:
        tell(f"{error}. Install it with: {error.hint}")
    except GnomonError as error:
        tell(f"{error.message}. {error.hint}")
    except Exception as error:  # a defect of what draws hides nothing of what was measured
        tell(f"no picture: it cannot be drawn: {type(error).__name__}: {error}")
    return paths

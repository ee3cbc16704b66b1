"""Draws the pictures that a document names: of a placement beside its package, and those that are wanted of others.

A picture is not part of the answer: where none can be drawn, `tell` says why, and none is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gnomon.core.installing import install_line
from gnomon.errors import GnomonError

_NAMES = ("plan.svg", "plan.png")
_MISSING = f"no picture: matplotlib is not installed. Install it with: {install_line('plot', python=sys.executable)}"

Tell = Callable[[str], None]


def draw(document: dict[str, Any], folder: Path, tell: Tell) -> list[str]:
    """Write plan.svg and plan.png into the package's folder; returns their paths."""

    def made() -> list[Path]:
        from gnomon.jobs.place.picture import draw_placement

        paths = [folder / name for name in _NAMES]
        draw_placement(document, paths)
        return paths

    return _drawn(made, folder, tell)


def draw_pareto(document: dict[str, Any], to: Path, tell: Tell) -> list[str]:
    """Write PATH.svg and PATH.png of a front; returns their paths."""

    def made() -> list[Path]:
        from gnomon.jobs.pareto.picture import draw_front

        paths = [to.with_name(f"{to.name}{suffix}") for suffix in (".svg", ".png")]
        draw_front(document, paths)
        return paths

    return _drawn(made, to.parent, tell)


def draw_evaluation(evaluation: dict[str, Any], to: Path, tell: Tell) -> list[str]:
    """Write PATH.svg and PATH.png of an estimator's evaluation; returns their paths."""

    def made() -> list[Path]:
        from gnomon.jobs.estimator.picture import evaluation_picture

        return evaluation_picture(evaluation, to)

    return _drawn(made, to.parent, tell)


def draw_overlay(
    document: dict[str, Any], series: Mapping[str, Mapping[str, Any]], folder: Path, tell: Tell
) -> list[str]:
    """Write the pictures of an overlay's layers, and of its network where one was measured; returns their paths."""

    def made() -> list[str]:
        from gnomon.jobs.overlay.picture import layer_pictures, network_picture

        paths = layer_pictures(document, series, folder)
        for kind in ("svg", "png") if document["network"] else ():
            network_picture(document, folder / f"network.{kind}")
            paths.append(str(folder / f"network.{kind}"))
        return paths

    return _drawn(made, folder, tell)


def _drawn(made: Callable[[], Iterable[str | Path]], folder: Path, tell: Tell) -> list[str]:
    try:
        return [str(path) for path in made()]
    except ImportError:
        tell(_MISSING)
    except OSError as error:
        tell(f"no picture: it cannot be written to {folder}: {error.strerror or error}")
    except GnomonError as error:
        tell(f"{error.message}. {error.hint}")
    except Exception as error:  # a defect of what draws hides nothing of what was measured
        tell(f"no picture: it cannot be drawn: {type(error).__name__}: {error}")
    return []

"""Draws the pictures that a document names: of a placement beside its package, and those that are wanted of others.

A picture is not part of the answer: where none can be drawn, `tell` says why, and none is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, RuntimeMissingError

Tell = Callable[[str], None]


def draw(document: dict[str, Any], folder: Path, tell: Tell) -> list[str]:
    """Write plan.svg and plan.png into the package's folder; returns their paths."""

    def made() -> list[Path]:
        from gnomon.jobs.place.picture import placement_spec

        return _written(placement_spec(document), [folder / name for name in ("plan.svg", "plan.png")])

    return _drawn(made, folder, tell)


def draw_pareto(document: dict[str, Any], to: Path, tell: Tell) -> list[str]:
    """Write PATH.svg and PATH.png of a front; returns their paths."""

    def made() -> list[Path]:
        from gnomon.jobs.pareto.picture import front_spec

        return _written(front_spec(document), _both(to))

    return _drawn(made, to.parent, tell)


def draw_evaluation(evaluation: dict[str, Any], to: Path, tell: Tell) -> list[str]:
    """Write PATH.svg and PATH.png of an estimator's evaluation; returns their paths."""

    def made() -> list[Path]:
        from gnomon.jobs.estimator.picture import evaluation_spec

        return _written(evaluation_spec(evaluation), _both(to))

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


def _both(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}{suffix}") for suffix in (".svg", ".png")]


def _written(spec: Mapping[str, Any] | None, paths: list[Path]) -> list[Path]:
    from gnomon.report.render import write

    if spec is None:
        return []
    write(spec, paths)
    return paths


def _drawn(made: Callable[[], Iterable[str | Path]], folder: Path, tell: Tell) -> list[str]:
    try:
        return [str(path) for path in made()]
    except RuntimeMissingError as error:
        tell(f"{error}. Install it with: {error.hint}")
    except OSError as error:
        tell(f"no picture: it cannot be written to {folder}: {error.strerror or error}")
    except GnomonError as error:
        tell(f"{error.message}. {error.hint}")
    except Exception as error:  # a defect of what draws hides nothing of what was measured
        tell(f"no picture: it cannot be drawn: {type(error).__name__}: {error}")
    return []

"""Draws the picture of a placement beside its package, and those of a front and of an evaluation where they are wanted.

A picture is not part of the answer: without what draws it, or without room for it, `tell` says so and none is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import RuntimeMissingError


def draw(document: dict[str, Any], folder: Path, tell: Callable[[str], None]) -> list[str]:
    """Write plan.svg and plan.png into the package's folder; returns their paths."""
    from gnomon.jobs.place.picture import placement_spec

    return _written(placement_spec(document), [folder / name for name in ("plan.svg", "plan.png")], tell)


def draw_pareto(document: dict[str, Any], to: Path, tell: Callable[[str], None]) -> list[str]:
    """Write PATH.svg and PATH.png of a front; returns their paths."""
    from gnomon.jobs.pareto.picture import front_spec

    return _written(front_spec(document), _both(to), tell)


def draw_evaluation(evaluation: dict[str, Any], to: Path, tell: Callable[[str], None]) -> list[str]:
    """Write PATH.svg and PATH.png of an estimator's evaluation; returns their paths."""
    from gnomon.jobs.estimator.picture import evaluation_spec

    return _written(evaluation_spec(evaluation), _both(to), tell)


def _both(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}{suffix}") for suffix in (".svg", ".png")]


def _written(spec: Mapping[str, Any] | None, paths: Sequence[Path], tell: Callable[[str], None]) -> list[str]:
    from gnomon.report.render import write

    if spec is None:
        return []
    try:
        write(spec, paths)
    except RuntimeMissingError as error:
        tell(f"{error}. Install it with: {error.hint}")
        return []
    except OSError as error:
        tell(f"no picture: it cannot be written to {paths[0].parent}: {error.strerror or error}")
        return []
    return [str(path) for path in paths]

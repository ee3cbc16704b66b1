"""The pictures that a document names: that of a placement in its package, and those that are wanted of others.

An answer does without its picture: where none can be drawn, `tell` is called with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, RuntimeMissingError
from gnomon.report.answer import function_at

Tell = Callable[[str], None] | None

EVALUATION = "gnomon.jobs.estimator.picture:evaluation_spec"
"""The chart of an estimator's evaluation."""


def svg_and_png(path: Path) -> list[Path]:
    """PATH.svg and PATH.png."""
    return [path.with_name(f"{path.name}{suffix}") for suffix in (".svg", ".png")]


def draw(chart: str, document: Mapping[str, Any], paths: Sequence[Path], tell: Tell) -> list[str]:
    """Write the chart that "module:function" makes of a document into files; returns their paths."""

    def write() -> list[str]:
        from gnomon.report.render import write

        spec = function_at(chart)(document)
        if spec is None:
            return []
        write(spec, paths)
        return [str(path) for path in paths]

    return _drawn(write, paths[0].parent, tell)


def draw_overlay(
    document: dict[str, Any], series: Mapping[str, Mapping[str, Any]], folder: Path, tell: Tell
) -> list[str]:
    """Write the pictures of an overlay's layers, and of its network where one was measured; returns their paths."""

    def write() -> list[str]:
        from gnomon.jobs.overlay.picture import layer_pictures, network_picture

        paths = layer_pictures(document, series, folder)
        for kind in ("svg", "png") if document["network"] else ():
            network_picture(document, folder / f"network.{kind}")
            paths.append(str(folder / f"network.{kind}"))
        return paths

    return _drawn(write, folder, tell)


def _drawn(write: Callable[[], list[str]], folder: Path, tell: Tell) -> list[str]:
    try:
        return write()
    except RuntimeMissingError as error:
        reason = f"{error}. Install it with: {error.hint}"
    except OSError as error:
        reason = f"no picture: it cannot be written to {folder}: {error.strerror or error}"
    except GnomonError as error:
        reason = f"{error.message}. {error.hint}"
    except Exception as error:  # a defect of what draws hides nothing of what was measured
        reason = f"no picture: it cannot be drawn: {type(error).__name__}: {error}"
    if tell is not None:
        tell(reason)
    return []

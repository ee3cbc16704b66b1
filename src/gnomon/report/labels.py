"""Labels of points in a picture, each where it covers neither another label nor a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.text import Text
from matplotlib.transforms import Bbox

_POINTS = 6.0
"""Half of a marker with its surroundings, in points of 1/72 inch."""

_OFFSETS = (
    *((6, 5), (6, -11), (-6, 5), (-6, -11)),
    *((14, y) for y in (17, -23, 29, -35)),
    *((-14, y) for y in (17, -23, 29, -35)),
    *((14, y) for y in (41, -47, 53, -59)),
)
"""Where a label may stand beside its point, in points of 1/72 inch, the best first; to the left it ends there."""

_NEAR = 6
"""Offsets beyond it have a line to the point, lest the label be taken for another one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a point is called: a mark, and a name for which there may be no room."""

    at: tuple[float, float]
    mark: str
    name: str


def label_points(axes: Any, labels: Sequence[Label]) -> None:
    """Write labels into axes whose layout is known, the first ones first.

    One for which there is no room is shortened to its mark; where there is none even for that, it is left out.
    """
    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    reach = _POINTS * figure.dpi / 72
    centres = [axes.transData.transform(label.at) for label in labels]
    taken = [Bbox.from_extents(x - reach, y - reach, x + reach, y + reach) for x, y in centres]
    page = Bbox.from_extents(axes.bbox.x0, axes.bbox.y0, figure.bbox.x1, axes.bbox.y1)
    for k, label in enumerate(labels):
        others = [box for j, box in enumerate(taken) if j != k]
        texts = [f"{label.mark}  {label.name}".strip(), label.mark]
        made = (_written(axes, label, text, offset) for text in texts if text for offset in _OFFSETS)
        for written in made:
            written.update_positions(renderer)
            box = Text.get_window_extent(written, renderer)  # that of the words, without the line
            if _inside(box, page) and not any(box.overlaps(other) for other in others):
                taken.append(box)
                break
            written.remove()


def _written(axes: Any, label: Label, text: str, offset: tuple[int, int]) -> Any:
    side = "left" if offset[0] > 0 else "right"
    line: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.5, "color": "#555555", "shrinkA": 0, "shrinkB": 3}
    line["relpos"] = (0.0 if side == "left" else 1.0, 0.5)
    return axes.annotate(
        text,
        label.at,
        xytext=offset,
        textcoords="offset points",
        ha=side,
        fontsize=8,
        zorder=4,
        annotation_clip=False,
        arrowprops=line if abs(offset[0]) > _NEAR else None,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
    )


def _inside(box: Bbox, page: Bbox) -> bool:
    return bool(box.x0 >= page.x0 and box.x1 <= page.x1 and box.y0 >= page.y0 and box.y1 <= page.y1)

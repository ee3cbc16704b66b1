"""The picture of a choice: which primitives each cell group keeps, and how often each is on the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.space_canvas import new_figure, titled
from gnomon.report.space_points import ChoiceRow
from gnomon.report.space_words import networks, part, percent, points

_FILL, _KEPT, _CELL = "#0072B2", "black", "#dddddd"
_LEAST = 0.005
"""Below this frequency nothing is drawn: it would be a speck."""

_MOST_NUMBERS = 6
"""With more cell groups there is no room for numbers beside the bars."""

_ROOM, _WHOLE = 0.5, 0.86
_ROW = 0.27
_TALLEST = 60.0


def choice_figure(rows: Sequence[ChoiceRow], selection: Mapping[str, Any]) -> Figure:
    """A matrix of primitives and cell groups: a bar as long as the frequency, a thick frame around what is kept."""
    groups = len(rows[0].kept)
    figure = new_figure(min(_TALLEST, 1.9 + _ROW * len(rows)))
    axes = figure.subplots()
    known = any(share is not None for row in rows for share in row.frequencies)
    for y, row in enumerate(rows):
        for x in range(groups):
            _cell(axes, (x, y), row, known=known)
    for y in range(1, len(rows)):
        if rows[y].family != rows[y - 1].family:
            axes.plot([-0.5, groups - 0.5], [y - 0.5, y - 0.5], color="black", linewidth=1.4, zorder=4)
    axes.set_xlim(-0.52, groups - 0.48)
    axes.set_ylim(len(rows) - 0.48, -0.52)
    axes.set_xticks(range(groups), [str(g) for g in range(groups)])
    axes.set_xlabel("cell group")
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), [shorten(row.name, 26) for row in rows], fontsize=9)
    for y, row in enumerate(rows):
        axes.annotate(shorten(row.meaning, 24), (groups - 0.44, y), va="center", fontsize=9, annotation_clip=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    keys: list[Any] = [Patch(facecolor="none", edgecolor=_KEPT, linewidth=2.0)]
    names = ["framed: kept"]
    if known:
        keys.append(Patch(facecolor=_FILL))
        names.append("bar: how often the primitive is on the front, in worlds that the measurements allow")
    else:
        keys[0].set_hatch("////")
    figure.legend(keys, names, loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    titled(figure, _title(selection))
    return figure


def _cell(axes: Any, at: tuple[int, int], row: ChoiceRow, *, known: bool) -> None:
    """A cell: a thin border, what is filled of it, and the frame of what is kept."""
    x, y = at
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="none", edgecolor=_CELL, linewidth=0.6, zorder=1))
    share, room = row.frequencies[x], _ROOM if len(row.kept) <= _MOST_NUMBERS else _WHOLE
    if share is not None and share >= _LEAST:
        bar = (x - 0.43, y - 0.22), room * min(share, 1.0), 0.44
        axes.add_patch(Rectangle(*bar, facecolor=_FILL, edgecolor="none", zorder=2))
    if share is not None and room < _WHOLE:
        axes.annotate(units.share(share), (x + 0.42, y), ha="right", va="center", fontsize=8, zorder=4)
    if row.kept[x]:
        hatch = None if known else "////"
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": _KEPT, "linewidth": 2.0, "hatch": hatch, "zorder": 3}
        axes.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, **look))


def _title(selection: Mapping[str, Any]) -> str:
    after, before = selection["networks_after"], selection["networks_before"]
    told = (
        f"Kept by the rule {selection['rule']} for {selection['toolchain']}: {networks(after)} of {networks(before)} "
        f"networks ({part(after, before)})"
    )
    if selection.get("share_kept"):
        value, low, high = selection["share_kept"]
        told += f", with {percent(value)} [{points(low)}, {points(high)}] of the expected hypervolume"
    return f"{told}."

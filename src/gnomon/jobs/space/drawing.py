"""How the pictures of a search space are drawn; needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from gnomon.jobs.space.points import ChoiceRow, Pair, Point
from gnomon.report import units
from gnomon.report.parts import networks, part, percent, points
from gnomon.report.plain import shorten
from gnomon.report.plot import Label, Mark, label_points, marks_of, millis, new_figure, titled

_FRONT, _FULL, _REDUCED = "black", "#777777", "#0072B2"


_MOST_BARS = 400


"""Of more networks the intervals would be a grey wall: their points alone are drawn."""


def networks_figure(points: Sequence[Point], families: Sequence[str], toolchain: str) -> Figure:
    """Accuracy against latency of every network: a shape a family, one-change variants hollow, the front as steps."""
    figure = new_figure(6.0)
    axes = figure.subplots()
    marks, (scale, unit) = marks_of(families), millis(max(one.latency_s for one in points))
    for one in points:
        if len(points) <= _MOST_BARS:
            _bars(axes, one, marks[one.family].colour, scale)
    for name, mark in marks.items():
        for single in (True, False):
            mine = [one for one in points if one.family == name and one.single == single]
            _dots(axes, [(scale * one.latency_s, 100 * one.accuracy) for one in mine], mark, hollow=single)
    chosen = [one for one in points if one.chosen]
    ring: dict[str, Any] = {
        "linestyle": "none",
        "marker": "o",
        "markersize": 13,
        "markerfacecolor": "none",
        "color": "black",
    }
    axes.plot([scale * p.latency_s for p in chosen], [100 * p.accuracy for p in chosen], zorder=5, **ring)
    front = sorted((one for one in points if one.front), key=lambda one: one.latency_s)
    at = [(scale * one.latency_s, 100 * one.accuracy) for one in front]
    right = axes.get_xlim()[1]
    steps = [*at, (right, at[-1][1])]
    axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color=_FRONT, linewidth=1.1, zorder=2)
    axes.set_xlim(right=right)
    axes.set_xlabel(f"latency by {shorten(toolchain, 40)}, {unit}")
    axes.set_ylabel("validation accuracy, %")
    axes.grid(color="#eeeeee", linewidth=0.7)
    axes.set_axisbelow(True)
    _networks_legend(figure, points, marks)
    titled(figure, _networks_title(points, front, chosen))
    figure.draw_without_rendering()  # the layout, without which nobody knows what overlaps
    named = [Label(at=place, mark="", name=shorten(p.name, 28)) for p, place in zip(front, at, strict=True)]
    others = [Label(at=(scale * p.latency_s, 100 * p.accuracy), mark="", name="") for p in points if not p.front]
    label_points(axes, [*named, *others])  # those without a name are not to be covered
    return figure


def _networks_title(points: Sequence[Point], front: Sequence[Point], chosen: Sequence[Point]) -> str:
    told = f"{len(points)} networks, {len(front)} of them on the front of accuracy and latency"
    if chosen:
        verb, inside = "is" if len(chosen) == 1 else "are", sum(one.chosen for one in front)
        told += f"; {len(chosen)} {verb} made of kept primitives alone, {inside} of these on the front"
    return f"{told}. Intervals are of 95 %."


def _bars(axes: Any, one: Point, colour: str, scale: float) -> None:
    """The intervals of a network; a dotted one where the accuracy is believed, not measured."""
    x, y = scale * one.latency_s, 100 * one.accuracy
    look = {"color": colour, "linewidth": 0.8, "alpha": 0.45, "zorder": 1}
    axes.plot([x, x], [100 * end for end in one.accuracies], linestyle="-" if one.trained else ":", **look)
    if one.latency is not None:
        axes.plot([scale * end for end in one.latency], [y, y], **look)


def _dots(axes: Any, at: Sequence[tuple[float, float]], mark: Mark, *, hollow: bool) -> None:
    if at:
        axes.plot(
            [x for x, _ in at],
            [y for _, y in at],
            linestyle="none",
            marker=mark.shape,
            markersize=6.5,
            color=mark.colour,
            markerfacecolor="white" if hollow else mark.colour,
            markeredgewidth=1.2,
            zorder=3,
        )


def _networks_legend(figure: Figure, points: Sequence[Point], marks: Mapping[str, Mark]) -> None:
    there = [name for name in marks if any(one.family == name for one in points)]
    handles = [_key(marks[name].shape, marks[name].colour) for name in there]
    names = [shorten(name, 24) for name in there]
    for single, told in ((True, "hollow: default or one-change variant"), (False, "filled: mixed")):
        if any(one.single == single for one in points):
            handles.append(_key("o", "#555555", "white" if single else "#555555"))
            names.append(told)
    if any(one.chosen for one in points):
        handles.append(Line2D([], [], linestyle="none", marker="o", markersize=12, color="black", mfc="none"))
        names.append("ring: all its primitives are kept")
    handles.append(Line2D([], [], color=_FRONT, linewidth=1.1))
    names.append("the front")
    if not all(one.trained for one in points):
        handles.append(Line2D([], [], color="#555555", linewidth=1.0, linestyle=":"))
        names.append("dotted: accuracy believed, not trained")
    figure.legend(handles, names, loc="outside lower left", ncols=3, frameon=False, fontsize=9)


def _key(shape: str, colour: str, face: str | None = None) -> Line2D:
    return Line2D([], [], linestyle="none", marker=shape, markersize=7, color=colour, mfc=face or colour)


def front_figure(document: Mapping[str, Any]) -> Figure:
    """Accuracy against latency of a front's networks: hollow as predicted, filled as measured, the best as steps."""
    figure = new_figure(5.4)
    axes = figure.subplots()
    rows = document["networks"]
    scale, unit = millis(max(one["predicted"]["latency_s"][0] for one in rows))
    for one in rows:
        told, found = one["predicted"], one["measured"]
        at = [_front_point(axes, told, scale, _FULL, "white")]
        if found is not None and None not in (found["accuracy"], found["latency_s"]):
            at.append(_front_point(axes, found, scale, _REDUCED, _REDUCED))
            axes.plot(*zip(*at, strict=True), color="#cccccc", linewidth=0.8, zorder=1)
    best = sorted(_place(one["measured"], scale) for one in rows if one["best"])
    if best:
        right = axes.get_xlim()[1]
        steps = [*best, (right, best[-1][1])]
        axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color=_FRONT, linewidth=1.1, zorder=2)
        axes.set_xlim(right=right)
    bound = document["latency_bound_s"]
    if bound is not None:
        axes.axvline(scale * bound, color=_FRONT, linewidth=0.9, linestyle=":")
    axes.set_xlabel(f"latency by {shorten(document['toolchain'], 40)}, {unit}")
    axes.set_ylabel("validation accuracy, %")
    axes.grid(color="#eeeeee", linewidth=0.7)
    axes.set_axisbelow(True)
    handles, names = [_key("o", _FULL, "white")], ["predicted"]
    if document["measured"] is not None:
        handles += [_key("o", _REDUCED), Line2D([], [], color=_FRONT, linewidth=1.1)]
        names += ["measured", "the best of these"]
    figure.legend(handles, names, loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    titled(figure, f"{len(rows)} networks that are predicted to be best. Intervals are of 95 %.")
    return figure


def _place(told: Mapping[str, Any], scale: float) -> tuple[float, float]:
    return scale * told["latency_s"][0], 100 * told["accuracy"][0]


def _front_point(axes: Any, told: Mapping[str, Any], scale: float, colour: str, face: str) -> tuple[float, float]:
    """A network with its intervals; returns where it is."""
    x, y = _place(told, scale)
    look = {"color": colour, "linewidth": 0.8, "alpha": 0.45, "zorder": 1}
    axes.plot([x, x], [100 * end for end in told["accuracy"][1:]], **look)
    axes.plot([scale * end for end in told["latency_s"][1:]], [y, y], **look)
    axes.plot([x], [y], "o", color=colour, markerfacecolor=face, markersize=6, zorder=3)
    return x, y


def distributions_figure(spaces: Mapping[str, Any]) -> Figure:
    """The share of networks with at most an error, of the reduced and of the full space, with both medians."""
    figure = new_figure(4.6)
    axes = figure.subplots()
    errors = [100 * value for value in spaces["thresholds"]]
    room = 0.04 * (errors[-1] - errors[0]) or 1.0
    looks = (("reduced", _REDUCED, "-", "o"), ("full", _FULL, "--", "s"))
    for name, colour, line, shape in looks:
        value, low, high = (100 * end for end in spaces[f"median_{name}"])
        x, y = [errors[0] - room, *errors, errors[-1] + room], [0.0, *spaces[name], spaces[name][-1]]
        told = f"{name} space: median {value:.1f} % [{low:.1f}, {high:.1f}]"
        axes.step(x, [100 * share for share in y], where="post", color=colour, linestyle=line, linewidth=1.8)
        axes.plot([low, high], [50, 50], color=colour, linewidth=3.0, alpha=0.5, solid_capstyle="butt", zorder=3)
        axes.plot([value], [50], shape, color=colour, markersize=8, zorder=4)
        axes.plot([], [], marker=shape, color=colour, linestyle=line, linewidth=1.8, markersize=8, label=told)
    axes.axhline(50, color="#cccccc", linewidth=0.8, zorder=0)
    axes.set_xlim(errors[0] - room, errors[-1] + room)
    axes.set_ylim(0, 102)
    axes.set_xlabel("validation error, %")
    axes.set_ylabel("networks with at most this error, %")
    figure.legend(loc="outside lower left", ncols=1, frameon=False, fontsize=9.5)
    p = spaces["p_ahead"]
    chance = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    titled(
        figure, f"Errors of mixed networks at equal latency; a lead of the reduced space as large by chance: {chance}."
    )
    return figure


def quantised_figure(sides: Sequence[tuple[Mapping[str, Any], Sequence[Pair]]], families: Sequence[str]) -> Figure:
    """The latency of each network quantised against that in float32, a row for each quantised toolchain."""
    figure = new_figure(1.0 + 4.6 * len(sides))
    marks = marks_of(families)
    for axes, (compared, pairs) in zip(figure.subplots(len(sides), 1, squeeze=False)[:, 0], sides, strict=True):
        scale, unit = millis(max(max(one.plain_s, one.quantised_s) for one in pairs))
        for one in pairs:
            look = {"color": marks[one.family].colour, "linewidth": 0.8, "alpha": 0.45, "zorder": 1}
            x, y = scale * one.plain_s, scale * one.quantised_s
            if one.plain is not None and len(pairs) <= _MOST_BARS:
                axes.plot([scale * end for end in one.plain], [y, y], **look)
            if one.quantised is not None and len(pairs) <= _MOST_BARS:
                axes.plot([x, x], [scale * end for end in one.quantised], **look)
        for name, mark in marks.items():
            mine = [(scale * one.plain_s, scale * one.quantised_s) for one in pairs if one.family == name]
            _dots(axes, mine, mark, hollow=False)
        most = 1.06 * scale * max(max(one.plain_s, one.quantised_s) for one in pairs)
        ratio = compared["ratio"]
        axes.plot([0, most], [0, most], color="black", linewidth=0.9, zorder=0, label="as long as in float32")
        told = f"{units.digits(ratio)} times as long, the median; faster on {compared['faster']} of {len(pairs)}"
        axes.plot([0, most], [0, ratio * most], color="black", linewidth=1.1, linestyle="--", zorder=0, label=told)
        axes.set_xlim(0, 1.06 * scale * max(one.plain_s for one in pairs))
        axes.set_ylim(
            0, 1.06 * scale * max(max(one.quantised_s for one in pairs), ratio * max(p.plain_s for p in pairs))
        )
        axes.set_xlabel(f"by {shorten(compared['twin'], 40)}, {unit}")
        axes.set_ylabel(f"by {shorten(compared['toolchain'], 30)}, {unit}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, fontsize=9)
    titled(figure, "Networks quantised and in float32: below the full line quantising makes them faster.")
    there = [name for name in marks if any(one.family == name for _, pairs in sides for one in pairs)]
    keys = [_key(marks[name].shape, marks[name].colour) for name in there]
    figure.legend(keys, [shorten(n, 24) for n in there], loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    return figure


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
        names.append("bar: share of posterior samples in which the primitive is on the front")
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

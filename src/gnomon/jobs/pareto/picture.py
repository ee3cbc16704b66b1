"""The picture of a front: every sampled point, the front with its error bars, and what the search reached when."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gnomon.jobs.pareto.report import headline
from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.plot import Label, label_points, millis, new_figure, write

# Okabe and Ito's colours, which stay apart for people who are colour-blind; marks tell them apart in print.
_SAMPLE, _FRONT, _BEHIND, _CHOSEN = "#999999", "#0072B2", "#E69F00", "#D55E00"
_LINES = (("black", "-"), ("#0072B2", "--"), ("#D55E00", "-."), ("#009E73", ":"), ("#CC79A7", (0, (6, 1, 1, 1, 1, 1))))
_FARTHEST = 5.0
"""How many times the front's largest value a sample may be to be drawn."""

_LONGEST_BAR = 3.0
"""How many times its value an interval is drawn to: two processes may leave one without an end to speak of."""

_LEAST_SPAN = 0.1
"""The least span of an axis, as a share of its largest value: a difference below 1 % shall not look like one."""

_Places = tuple[float, float, "dict[str, int] | None"]
"""What to multiply the values of both axes with; and, where there is one objective alone, the place of each code."""


def draw_front(document: dict[str, Any], paths: Sequence[Path]) -> None:
    """Draw a pareto document into files whose suffix says how (.svg, .png). The same document gives the same bytes.

    The first two objectives are the axes; a single one is drawn over the evaluations. Raises OSError where a file
    cannot be written.
    """
    for path in paths:
        write(lambda: _figure(document), path, font_size=9.0)


def _figure(document: dict[str, Any]) -> Figure:
    document = _by_one_clock(document)
    figure = new_figure(7.2, 10.0)
    if any(search["volume"] for search in document["searches"]):
        upper, lower = figure.subplots(2, 1, height_ratios=(3.2, 1))
        _draw_volume(lower, document)
    else:
        upper = figure.subplots()
    labels = _draw_points(upper, document)
    figure.draw_without_rendering()  # the layout, without which nobody knows what overlaps
    label_points(upper, labels)
    return figure


def _by_one_clock(document: dict[str, Any]) -> dict[str, Any]:
    """The document with all latencies by wall time, where the clocks of its points differ."""
    if document["clock"] != "mixed":
        return document
    which = next((k for k, o in enumerate(document["objectives"]) if o["name"] == "latency"), None)

    def one(point: dict[str, Any]) -> dict[str, Any]:
        if which is None or point["estimates"] is None:
            return point
        return point | {"estimates": [point["wall"] if k == which else e for k, e in enumerate(point["estimates"])]}

    named = [o | {"name": "latency by wall time"} if k == which else o for k, o in enumerate(document["objectives"])]
    return document | {"objectives": named, "points": [one(p) for p in document["points"]]}


def _axis(document: dict[str, Any], number: int) -> tuple[float, str]:
    """What to multiply an objective's values with, and the axis's label."""
    objective = document["objectives"][number]
    largest = max(p["estimates"][number]["value"] for p in document["points"] if p["number"] is not None)
    name = objective["name"].replace("-", " ")
    if objective["unit"] == "B":
        return 2.0**-20, f"{name}, MiB"
    if objective["unit"] in ("s", "J"):
        scale, unit = millis(largest)
        return scale, f"{name}, {unit.removesuffix('s')}{objective['unit']}"
    return 1.0, f"{name}, {objective['unit']}" if objective["unit"] else name


def _draw_points(axes: Any, document: dict[str, Any]) -> list[Label]:
    """The samples, the front and what is behind it; returns what the points are called, in order of rank."""
    single = len(document["objectives"]) == 1
    x_scale, x_label = (1.0, "evaluation") if single else _axis(document, 0)
    y_scale, y_label = _axis(document, 0 if single else 1)
    y_axis = 0 if single else 1
    order = {sample["code"]: k + 1 for k, sample in enumerate(document["samples"])}
    samples = [(k + 1, s["cost"]) for k, s in enumerate(document["samples"]) if s["cost"] is not None]
    within = _within(document)
    costs = [(k, cost) for k, cost in samples if all(c <= most for c, most in zip(cost[:2], within, strict=False))]
    sampled_x = [k if single else cost[0] * x_scale for k, cost in costs]
    sampled_y = [cost[y_axis] * y_scale for _, cost in costs]
    axes.plot(
        sampled_x,
        sampled_y,
        ".",
        color=_SAMPLE,
        markersize=5,
        zorder=1,
        label=_sampled(document, beyond=len(samples) - len(costs)),
    )
    places = (x_scale, y_scale, order if single else None)
    _draw_measured(axes, document, places)
    if not single and len(document["objectives"]) == 2:
        _stairs(axes, document, (x_scale, y_scale))
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    _no_magnifying_glass(axes, single)
    name = Path((document["model"] or {"path": document["source"]})["path"]).name
    where = f" on {shorten(document['device'], 30)}" if document["device"] else ""
    title = f"{shorten(name, 50)}{where}. {shorten(headline(document), 220)}"
    axes.figure.suptitle("\n".join(textwrap.wrap(title, 105)), x=0.01, ha="left", fontsize=10.5)
    # Above the axes, where no point can be.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.0, fontsize=8.5)

    letters = iter(ascii_lowercase)
    labels = []
    for point in document["points"]:
        if point["estimates"] is not None:
            mark = str(point["number"]) if point["number"] is not None else next(letters, "")
            labels.append(Label(at=_place(point, places), mark=mark, name=shorten(point["label"], 44)))
    return labels


def _no_magnifying_glass(axes: Any, single: bool) -> None:
    for which in "y" if single else "xy":
        low, high = getattr(axes, f"get_{which}lim")()
        missing = _LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
        if missing > 0:
            getattr(axes, f"set_{which}lim")(low - missing / 2, high + missing / 2)


def _draw_measured(axes: Any, document: dict[str, Any], places: _Places) -> None:
    """The points with estimates: the front, what is behind it, the choice."""
    groups: dict[str, list[dict[str, Any]]] = {"front": [], "behind": [], "chosen": []}
    for point in document["points"]:
        if point["estimates"] is None:
            continue
        chosen = point["number"] is not None and point["number"] == document["chosen"]
        groups["chosen" if chosen else "front" if point["number"] is not None else "behind"].append(point)
    proved = f"the front, with 95 % intervals{_cut(document)}" if document["proved"] else "the front, as sampled"
    looks = {
        "behind": ("s", _BEHIND, "measured again and dominated", "none"),
        "front": ("o", _FRONT, proved, _FRONT),
        "chosen": ("*", _CHOSEN, "the choice", _CHOSEN),
    }
    single = places[2] is not None
    for kind, (marker, colour, label, face) in looks.items():
        members = groups[kind]
        if not members:
            continue
        where = [_place(point, places) for point in members]
        axes.errorbar(
            [x for x, _ in where],
            [y for _, y in where],
            xerr=None if single else _bars(members, 0, places[0]),
            yerr=_bars(members, 0 if single else 1, places[1]),
            fmt=marker,
            color=colour,
            markerfacecolor=face,
            markersize=14 if marker == "*" else 7,
            elinewidth=1.2,
            capsize=2.5,
            zorder=3,
            label=label,
        )


def _place(point: dict[str, Any], places: _Places) -> tuple[float, float]:
    """Where a point lies: by two objectives, or by its evaluation and the only one."""
    x_scale, y_scale, order = places
    found = point["estimates"]
    if order is not None:
        return order.get(point["code"], 0), found[0]["value"] * y_scale
    return found[0]["value"] * x_scale, found[1]["value"] * y_scale


def _within(document: dict[str, Any]) -> list[float]:
    """How large a sample of the first objectives may be to be drawn: others would leave the front no room."""
    found = [point["estimates"] for point in document["points"] if point["estimates"] and point["number"] is not None]
    return [_FARTHEST * max(estimates[k]["value"] for estimates in found) for k in range(len(found[0][:2]))]


def _sampled(document: dict[str, Any], *, beyond: int) -> str:
    if document["search"]["predicted"]:
        return "by the prices"
    told = "sampled, one process each" if document["model"] else "in the dump"
    return f"{told} ({beyond} far outside)" if beyond else told


def _cut(document: dict[str, Any]) -> str:
    """Words for the legend where an interval is longer than it is drawn."""
    drawn = [e for p in document["points"] for e in (p["estimates"] or [])[:2]]
    longer = any(e["high"] is not None and e["high"] > _LONGEST_BAR * e["value"] for e in drawn)
    return f" (drawn to {_LONGEST_BAR:g} times a value at most)" if longer else ""


def _bars(points: Sequence[dict[str, Any]], axis: int, scale: float) -> list[list[float]]:
    """How far the error bars reach down and up; not at all where an interval is unknown, nor beyond thrice a value."""
    down, up = [], []
    for point in points:
        found = point["estimates"][axis]
        value, low, high = found["value"], found["low"], found["high"]
        down.append(0.0 if low is None else max(0.0, value - low) * scale)
        up.append(0.0 if high is None else max(0.0, min(high, _LONGEST_BAR * value) - value) * scale)
    return [down, up]


def _stairs(axes: Any, document: dict[str, Any], scales: tuple[float, float]) -> None:
    """The border of what the front dominates."""
    front = [[e["value"] for e in p["estimates"]] for p in document["points"] if p["number"] is not None]
    best: list[tuple[float, float]] = []
    for x, y in sorted(front):
        if not best or y < best[-1][1]:
            best.append((x, y))
    if len(best) > 1:
        x = [p[0] * scales[0] for p in best]
        y = [p[1] * scales[1] for p in best]
        axes.step(x, y, where="post", color=_FRONT, linewidth=0.8, linestyle="--", zorder=2)


def _draw_volume(axes: Any, document: dict[str, Any]) -> None:
    """What each search had reached after so many evaluations, all in one box."""
    searches = document["searches"]
    for search, (colour, line) in zip(searches, itertools.cycle(_LINES)):
        volume = search["volume"]
        told = f"{search['name']}, {units.duration(search['seconds'])}"
        reached = [100 * share for share in volume]
        # The last evaluation counts as much as any: its step is drawn too.
        axes.step(
            range(1, len(volume) + 2), [*reached, *reached[-1:]], where="post", color=colour, linestyle=line, label=told
        )
    most = max(len(search["volume"]) for search in searches)
    axes.set_xlabel("evaluations" if len(searches) > 1 else f"evaluations ({told})")
    axes.set_ylabel("hypervolume, %")
    axes.set_xlim(1, most + 1)
    axes.set_ylim(0, 102)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(searches) > 1:
        axes.legend(frameon=False, loc="lower right", ncols=min(len(searches), 3), fontsize=8)

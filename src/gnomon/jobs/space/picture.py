"""The charts of a search space, from its documents alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.jobs.space.points import Pair, Point, pairs_of, points_of
from gnomon.report import units
from gnomon.report.chart import (
    CHOSEN,
    INK,
    LOOKS,
    PLAIN,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Rule,
    Value,
    line,
    shares,
    time_words,
    timed,
)
from gnomon.report.parts import networks, part, percent
from gnomon.report.parts import points as in_points
from gnomon.report.plain import SEVERAL, finite, shorten
from gnomon.report.render import write_picture, write_pictures

Document = Mapping[str, Any]

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_FRONT = Look(colour=INK)
_RING = Look(colour=INK, shape="ring")
_ACCURACY = Axis(title="accuracy, % of images")


def draw_pictures(document: Document, selection: Document | None, folder: Path) -> list[str]:
    """Draw what there is to see of a profile into a folder; returns the paths of the pictures.

    `document` is that of a look, `selection` the last choice, None where there is none. The pictures are
    accuracy-latency.<toolchain>, choice and quantised, each as .svg and as .png; what there is nothing to draw of is
    left out. RuntimeMissingError without vl-convert, UsageError where the folder cannot be written.
    """
    found: dict[str, list[Chart]] = {}
    for one in document["latency"]:
        stem = f"accuracy-latency.{_UNFIT.sub('_', one['toolchain'])[:80]}"
        found[f"{stem}.{len(found)}" if stem in found else stem] = networks_charts(document, one, selection)
    found["choice"] = [] if selection is None else choice_charts(selection)
    found["quantised"] = [chart for one in document["latency"] for chart in quantised_charts(document, one)]
    return list(write_pictures(found, folder))


def selection_picture(selection: Document, path: Path) -> None:
    """Draw the choice of a selection. UsageError for another suffix than .svg, .png or .pdf and where the file cannot
    be written, RuntimeMissingError without vl-convert for another one than .svg.
    """
    write_picture(choice_charts(selection), path)


def front_picture(document: Document, path: Path) -> None:
    """Draw a front: what was predicted of its networks, and what was measured. Raises what `selection_picture` does."""
    write_picture(space_front_charts(document), path)


def _looks(families: Iterable[str]) -> dict[str, Look]:
    """How the networks of each family are drawn, and those of several."""
    return {**{name: LOOKS[k % 5] for k, name in enumerate(families)}, SEVERAL: LOOKS[5]}


def networks_charts(document: Document, toolchain: Document, selection: Document | None = None) -> list[Chart]:
    """Accuracy against latency of every network by a toolchain, with the front; nothing where no network has both."""
    found = points_of(finite(document), finite(toolchain), selection)
    if not found:
        return []
    front = [one for one in found if one.front]
    chosen = [one for one in found if one.chosen]
    groups = [Group(name="the front", marks=_steps(front), look=_FRONT, kind="none", line="steps")]
    for name, look in _looks(document["families"]).items():
        mixed, single = (
            [_network(one) for one in found if one.family == name and one.single == single] for single in (False, True)
        )
        hollow = Look(colour=look.colour, shape=look.shape, hollow=True)
        groups += [
            Group(name=name, marks=mixed, look=look),
            Group(name="" if mixed else name, marks=single, look=hollow),
        ]
    ring = "all its primitives are kept"
    groups.append(
        Group(name=ring, marks=[Mark(x=timed(one.latency_s), y=shares(one.accuracy)) for one in chosen], look=_RING)
    )
    told = f"{len(found)} networks, {len(front)} of them on the front of accuracy and latency"
    if chosen:
        verb, inside = "is" if len(chosen) == 1 else "are", sum(one.chosen for one in front)
        told += f"; {len(chosen)} {verb} made of kept primitives alone, {inside} of these on the front"
    believed = sum(not one.trained for one in found)
    notes = ["Hollow: default or one-change variants; filled: mixed."]
    notes += [f"Of {believed} networks the accuracy is believed, not trained."] if believed else []
    return [
        Chart(
            title=f"{told}. Intervals are of 95 %.",
            x=Axis(title=f"latency by {shorten(toolchain['toolchain'], 40)}, ms"),
            y=_ACCURACY,
            groups=tuple(groups),
            height=400,
            note=" ".join(notes),
        )
    ]


def _network(one: Point) -> Mark:
    low, high = one.latency or (None, None)
    accuracy = shares(one.accuracy, *one.accuracies)
    believed = "" if one.trained else " (believed, not trained)"
    return Mark(
        x=timed(one.latency_s, low, high),
        y=accuracy,
        label=shorten(one.name, 28) if one.front else "",
        tip=f"{one.name}: {percent(one.accuracy)}{believed}, {time_words(one.latency_s, low, high)}",
    )


def _steps(front: Sequence[Point]) -> list[Mark]:
    """The border of what a front dominates."""
    best = sorted(front, key=lambda one: one.latency_s)
    return [Mark(x=timed(one.latency_s), y=shares(one.accuracy)) for one in best]


def quantised_charts(document: Document, toolchain: Document) -> list[Chart]:
    """The latency of each network quantised against that in float32; nothing for a toolchain without a twin."""
    toolchain = finite(toolchain)
    pairs = pairs_of(finite(document), toolchain)
    if not pairs:
        return []
    compared = toolchain["compared"]
    ratio, most = compared["ratio"] or 0.0, 1e3 * max(one.plain_s for one in pairs)
    told = f"{units.digits(ratio)} times as long, the median; faster on {compared['faster']} of {len(pairs)}"
    return [
        Chart(
            title="Networks quantised and in float32: below the full line quantising makes them faster.",
            x=Axis(title=f"by {shorten(compared['twin'], 40)}, ms", low=0),
            y=Axis(title=f"by {shorten(compared['toolchain'], 40)}, ms", low=0),
            groups=(
                _through(1.0, most, _FRONT, "as long as in float32"),
                _through(ratio, most, PLAIN, told),
                *(
                    Group(name=name, marks=[_pair(one) for one in pairs if one.family == name], look=look)
                    for name, look in _looks(document["families"]).items()
                ),
            ),
            height=300,
        )
    ]


def _through(ratio: float, most: float, look: Look, name: str) -> Group:
    return Group(name=name, marks=line([(0.0, 0.0), (most, ratio * most)]), look=look, kind="none", line="straight")


def _pair(one: Pair) -> Mark:
    tip = f"{units.time(one.quantised_s)} quantised, {units.time(one.plain_s)} in float32"
    return Mark(x=timed(one.plain_s, *(one.plain or ())), y=timed(one.quantised_s, *(one.quantised or ())), tip=tip)


def choice_charts(selection: Document) -> list[Chart]:
    """A matrix of primitives and cell groups: how often each is on the front, with a frame around what is kept."""
    groups, meanings = selection["groups"], selection["meanings"]
    known = [{one["name"]: one["frequency"] for one in group} for group in selection["primitives"] or ()]
    names = list(dict.fromkeys([*meanings, *(name for group in (*known, *groups) for name in group)]))
    cells: dict[bool, list[Mark]] = {True: [], False: []}
    for column, group in enumerate(groups):
        for row, name in enumerate(names):
            share = known[column].get(name) if column < len(known) else None
            text = units.share(share) if share is not None else "kept" if name in group else ""
            cells[name in group].append(Mark(x=Value(value=column), y=Value(value=row), label=text, share=share or 0.0))
    return (
        [
            Chart(
                title=_choice_title(selection),
                x=Axis(names=tuple(f"group {column}" for column in range(len(groups)))),
                y=Axis(names=tuple(f"{name}, {meanings[name]}" if meanings.get(name) else name for name in names)),
                groups=(
                    Group(marks=cells[False], kind="cells"),
                    Group(name="kept", marks=cells[True], look=CHOSEN, kind="cells"),
                ),
                note="Shares of the posterior samples in which the primitive is on the front." if known else "",
            )
        ]
        if names and groups
        else []
    )


def _choice_title(selection: Document) -> str:
    after, before = selection["networks_after"], selection["networks_before"]
    told = (
        f"Kept by the rule {selection['rule']} for {selection['toolchain']}: {networks(after)} of {networks(before)} "
        f"networks ({part(after, before)})"
    )
    if selection.get("share_kept"):
        value, low, high = selection["share_kept"]
        told += f", with {percent(value)} [{in_points(low)}, {in_points(high)}] of the expected hypervolume"
    return f"{told}."


def space_front_charts(document: Document) -> list[Chart]:
    """A front's networks: as predicted, and as measured with the best of them as steps; measured against predicted."""
    document = finite(document)
    rows = [one for one in document["networks"] if _complete(one["predicted"])]
    if not rows:
        return []
    measured = [(one, one["measured"]) for one in rows if one["measured"]]
    whole = [(one, found) for one, found in measured if _complete(found)]
    ways = [
        Group(
            marks=[_place(one["predicted"]), _place(found)], look=Look(colour="#bbbbbb"), kind="none", line="straight"
        )
        for one, found in whole
    ]
    best = sorted((found for one, found in whole if one["best"]), key=lambda found: found["latency_s"][0])
    bound = document["latency_bound_s"]
    return [
        Chart(
            title=f"{len(rows)} networks that are predicted to be best. Intervals are of 95 %.",
            x=Axis(title=f"latency by {shorten(document['toolchain'], 40)}, ms"),
            y=_ACCURACY,
            groups=(
                *ways,
                Group(
                    name="predicted",
                    marks=[_point(one["id"], one["predicted"]) for one in rows],
                    look=Look(colour="#777777", hollow=True),
                ),
                Group(
                    name="the best of these",
                    marks=[_place(one) for one in best],
                    look=_FRONT,
                    kind="none",
                    line="steps",
                ),
                Group(name="measured", marks=[_point(one["id"], found) for one, found in whole]),
            ),
            rules=() if bound is None else (Rule(along="x", at=1e3 * bound, name="the bound"),),
            height=400,
        ),
        *_against(measured),
    ]


def _complete(found: Document) -> bool:
    """Whether both are known."""
    return all(found[key] is not None and found[key][0] is not None for key in ("accuracy", "latency_s"))


def _place(found: Document) -> Mark:
    return Mark(x=timed(found["latency_s"][0]), y=shares(found["accuracy"][0]))


def _point(name: str, found: Document) -> Mark:
    tip = f"{name}: {percent(found['accuracy'][0])}, {time_words(*found['latency_s'])}"
    return Mark(x=timed(*found["latency_s"]), y=shares(*found["accuracy"]), tip=tip)


def _against(measured: Sequence[tuple[Document, Document]]) -> Iterator[Chart]:
    """The measured latencies against those that were predicted."""
    marks = [
        Mark(
            x=timed(*found["latency_s"]),
            y=timed(*one["predicted"]["latency_s"]),
            tip=f"{one['id']}: measured {time_words(*found['latency_s'])}, "
            f"predicted {time_words(*one['predicted']['latency_s'])}",
        )
        for one, found in measured
        if found["latency_s"] is not None and found["latency_s"][0] is not None
    ]
    if marks:
        title = "Latency: on the line they are equal"
        x, y = Axis(title="measured, ms"), Axis(title="predicted, ms")
        yield Chart(title=title, x=x, y=y, groups=(Group(marks=marks),), equal=True)

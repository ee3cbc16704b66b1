"""The reports of a selection of primitives, and of what became of its promises."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report import units
from gnomon.report.space_words import networks, part, percent, points, row, say
from gnomon.report.text import Column, Page

_RULES = {
    "pareto": "what the front of mixed networks is made of, in worlds that the measurements allow",
    "published": "the published rule to the letter, which depends on the unit of latency (here ms)",
    "relative": "the published rule with latencies relative to the default networks, whatever their unit",
}
_SURE = 0.05
_WALKED = 8


def selection_report(document: Mapping[str, Any], page: Page) -> None:
    """Which primitives each cell group keeps, why, and where it was written."""
    groups = document["groups"]
    before, after = document["networks_before"], document["networks_after"]
    counts = sorted({len(names) for names in groups})
    each = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    family = f" of {document['family']}" if document["family"] else ""
    say(
        page,
        f"Each cell group keeps {each} primitive{'' if counts == [1] else 's'}{family}: {networks(after)} of "
        f"{networks(before)} networks are left ({part(after, before)}).",
        answer=True,
    )
    if "share_kept" in document:
        kept, low, high = document["share_kept"]
        told = f"{percent(kept)} [{points(low)}, {points(high)}]"
        say(page, f"They keep {told} of the expected hypervolume of accuracy and latency.")
    page.line(f"Rule {document['rule']}: {_RULES.get(document['rule'], 'a rule of its own')}.")
    page.line(f"Accuracies by the method {document['method']}, latencies by the toolchain {document['toolchain']}.")
    _family(document, page)
    for number, names in enumerate(groups):
        _group(document, number, names, page)
    _rare(document, page)
    _numbering(document, page)
    page.line("")
    page.path("config", document["output"])
    if document["lookup"] is not None:
        page.path("lookup", document["lookup"])
    else:
        page.item("There is no lookup table: a kept primitive has no latency in some place.")
    page.path("check it", f"gnomon space validate {shlex.quote(document['profile'])}")


def _family(document: Mapping[str, Any], page: Page) -> None:
    """Why this family, or all: the contenders of the rule pareto, or the networks that the published rule walked."""
    contenders, walked = document.get("contenders") or (), document.get("networks") or ()
    if document.get("why"):
        name = document["family"]
        page.line(f"Why {name}: {document['why']}." if name else f"Families: {document['why']}.")
    if contenders:
        page.heading("Hypervolume by family (it means something beside the others only)")
        rows = [[one["family"], *(units.digits(one[key]) for key in ("expected", "measured"))] for one in contenders]
        titles = ("family", "expected of its front", "of its measured networks")
        page.table([Column(title=title, number=k > 0) for k, title in enumerate(titles)], rows)
    if walked:
        counted = ", ".join(f"{name} {count}" for name, count in document.get("counts", {}).items())
        page.line(f"Why {document['family']}: it was first to have enough cheap networks ({counted}).")
        page.heading("The networks that decided, the cheapest first")
        columns = [Column(title="network", number=False), Column(title="cost")]
        page.table(columns, [[one["id"], f"{one['cost']:.5g}"] for one in walked[:_WALKED]])
        if len(walked) > _WALKED:
            page.line(f"and {len(walked) - _WALKED} more: --json has all of them", indent=1, style="dim")


def _group(document: Mapping[str, Any], number: int, names: Sequence[str], page: Page) -> None:
    """The primitives that a cell group keeps, with how often each is on the front; then the dropped ones."""
    page.heading(f"Cell group {number}")
    meanings = document["meanings"]
    known = {one["name"]: one for one in document.get("primitives", ())[number : number + 1] for one in one}
    columns = [Column(title="kept", number=False), Column(title="made of", number=False)]
    if known:
        columns[1:1] = [Column(title="on the front"), Column(title="95 % interval")]
    rows = []
    for name in names:
        one = known.get(name)
        often = [] if not known else ["-", "-"] if one is None else [units.share(one["frequency"]), _interval(one)]
        rows.append([name, *often, meanings.get(name, "")])
    page.table(columns, rows)
    if known:
        dropped = [f"{name} ({units.share(one['frequency'])})" for name, one in known.items() if name not in names]
    else:
        family = document["family"]
        dropped = [name for name in meanings if name not in names and family in (None, name.rpartition("block_")[0])]
    row(page, "dropped: ", dropped or ["none"], indent=1)


def _interval(one: Mapping[str, Any]) -> str:
    return f"[{100 * one['low']:.0f}, {100 * one['high']:.0f}]"


def _rare(document: Mapping[str, Any], page: Page) -> None:
    """Says why primitives stay that are on the front less often than one that goes."""
    rare = []
    for group in document.get("primitives", ()):
        most = max((one["frequency"] for one in group if not one["stays"]), default=0.0)
        rare += [one for one in group if one["stays"] and one["frequency"] < most]
    kept = sum(map(len, document["groups"]))
    if rare:
        page.line("")
        say(
            page,
            f"{len(rare)} of the {kept} kept {'is' if len(rare) == 1 else 'are'} on the front less often than a "
            "dropped one of the same cell group. What counts is how much would be lost, not how often; and where the "
            "measurements do not speak clearly against it, an even layout of each family stays (--inertia 0 turns "
            "that off, --threshold 0.5 keeps by frequency alone).",
        )


def _numbering(document: Mapping[str, Any], page: Page) -> None:
    """Which numbering the names are in, and which of them aw_nas would read as something else."""
    unlike = document["unlike_aw_nas"]
    page.heading("Numbering")
    page.line(f"All names are in the numbering {document['numbering']}.")
    if not unlike:
        page.line("Each means the same block in aw_nas.")
        return
    verb = "means" if len(unlike) == 1 else "mean"
    page.item(
        f"{len(unlike)} of the kept names {verb} another block in aw_nas, or none: {', '.join(unlike)}.",
        "A search with aw_nas's own blocks would search others: profile with --numbering aw_nas, or register these "
        "blocks there.",
    )


def validation_report(document: Mapping[str, Any], page: Page) -> None:
    """What was promised against what was measured, and the reduced space against the full one."""
    spaces = document["spaces"]
    say(page, _verdict(spaces), answer=True)
    count = document["networks"]
    say(page, f"{count} mixed networks that were never seen, measured by the toolchain {document['toolchain']}.")
    if spaces is not None:
        page.heading("Both spaces at equal latency")
        rows = [_median_row("reduced", spaces["median_reduced"]), _median_row("full", spaces["median_full"])]
        page.table(
            [Column(title="space", number=False), Column(title="median error"), Column(title="95 % interval")], rows
        )
        say(
            page,
            f"Their distributions are {units.share(spaces['statistic'])} apart at most: as far by chance with "
            f"{_p(spaces['p_value'])}; the reduced one as far ahead with {_p(spaces['p_ahead'])}.",
            indent=1,
        )
    page.heading("Predicted before, measured now")
    rows = []
    accuracy, latency = document["accuracy"], document["latency"]
    if accuracy is not None:
        off = f"{100 * accuracy['mean_error']:.2f} points"
        inside = f"{units.share(accuracy['inside'])} in their 95 %"
        rows.append(["accuracy", str(accuracy["networks"]), off, inside, _tau(accuracy["tau"])])
    if latency is not None:
        worst = f"worst {percent(latency['worst_error'])}"
        rows.append(["latency", str(latency["networks"]), percent(latency["mean_error"]), worst, _tau(latency["tau"])])
    titles = ("", "networks", "mean error", "intervals, worst", "tau")
    if rows:
        page.table([Column(title=title, number=k not in (0, 3)) for k, title in enumerate(titles)], rows)
    for name, found in (("accuracies", accuracy), ("latencies", latency)):
        if found is None:
            page.item(f"No {name} could be held against predictions: no new network has one.")
    page.line("")
    if spaces is None or spaces["p_ahead"] >= _SURE:
        page.path("more", f"gnomon space validate {shlex.quote(document['profile'])} --networks N")
    page.path("profile", document["profile"])


def _verdict(spaces: Mapping[str, Any] | None) -> str:
    if spaces is None:
        return "Too few networks have both an accuracy and a latency to compare the reduced space with the full one."
    reduced, full = spaces["median_reduced"][0], spaces["median_full"][0]
    told = f"median error {percent(reduced)} against {percent(full)}"
    if spaces["p_ahead"] < _SURE:
        return f"The reduced space is better than the full one at equal latency: {told}."
    if spaces["p_value"] < _SURE:
        return f"The reduced space differs from the full one at equal latency, and is not clearly ahead: {told}."
    return f"No difference between the reduced and the full space is proved at equal latency: {told}."


def _median_row(name: str, found: Sequence[float]) -> list[str]:
    return [name, percent(found[0]), f"[{points(found[1])}, {points(found[2])}]"]


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

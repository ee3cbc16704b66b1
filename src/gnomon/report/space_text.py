"""The reports of `gnomon space`: what a profile holds, and the lists of primitives and of toolchains."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping
from typing import Any

from gnomon.report import units
from gnomon.report.space_latency_text import latency_sections, toolchain_sentence
from gnomon.report.space_select_text import selection_report, validation_report
from gnomon.report.space_words import failures, listed, percent, points, say, sentence, swap_words
from gnomon.report.text import Column, Page

__all__ = ["primitives_report", "profile_report", "selection_report", "toolchains_report", "validation_report"]

_BEST = 8
_AGREE = (
    (0.8, "they agree closely"),
    (0.6, "they agree in the main"),
    (0.4, "the ends can be told apart, neighbours cannot"),
    (0.2, "most of the order is noise"),
    (-1.0, "the order is noise"),
)
"""What an expected Kendall's tau of two rankings from as much evidence means, from this value on."""

_NOISE = 0.4
"""Below it an order is told to be mostly noise."""


def profile_report(document: Mapping[str, Any], page: Page) -> None:
    """What a profile says: the answer first, then accuracies, latencies, and how well both can be believed."""
    accuracy, toolchains = document["accuracy"], document["latency"]
    say(page, _answer(document), answer=True)
    say(page, _searched(document))
    if accuracy is not None:
        _accuracy(document, accuracy, page)
    for one in toolchains:
        latency_sections(document, one, page)
    notes = document.get("notes", ())
    if notes:
        page.heading("Notes")
        for note in notes:
            page.item(sentence(note))
    _next(document, page)
    seconds = document.get("seconds") or {}
    if seconds:
        told = ", ".join(f"{name} {units.duration(value)}" for name, value in seconds.items())
        say(page, f"This time it took: {told}.", indent=2)


def _answer(document: Mapping[str, Any]) -> str:
    """The first sentences: the best family and network, how far to believe it, and how fast networks are."""
    told = []
    accuracy = document["accuracy"]
    rankings = [one for one in (accuracy or {"rankings": ()})["rankings"] if one["networks"]]
    if rankings:
        first = max(rankings, key=lambda one: float(one["networks"][0]["accuracy"]))
        best = first["networks"][0]
        interval = f"[{points(best['low'])}, {points(best['high'])}]"
        told.append(
            f"The most accurate single swap is {best['id']}: {percent(best['accuracy'])} {interval} of the images."
        )
        noise = [one["family"] for one in rankings if one["repeatability"] < _NOISE]
        if noise:
            told.append(f"The order within {listed(noise)} is mostly noise.")
    elif accuracy is None:
        told.append("No network was trained.")
    told += [toolchain_sentence(one) for one in document["latency"]] or ["No latency was measured."]
    return " ".join(told)


def _searched(document: Mapping[str, Any]) -> str:
    families = document["families"]
    told = ", ".join(f"{name} with {len(one['primitives'])} primitives" for name, one in families.items())
    groups = document["groups"]
    kinds = "family" if len(families) == 1 else "families"
    return (
        f"{groups} cell group{'' if groups == 1 else 's'}, {len(families)} {kinds}: {told}; "
        f"names in the numbering {document['numbering']}."
    )


def _accuracy(document: Mapping[str, Any], accuracy: Mapping[str, Any], page: Page) -> None:
    page.heading("Accuracy")
    images = f", by {accuracy['images']} validation images" if accuracy["images"] else ""
    data = f" on {document['data']}" if document["data"] else ""
    count = accuracy["trainings"]
    say(
        page,
        f"Trained{data}{images}: {count} training{'' if count == 1 else 's'} by the method "
        f"{accuracy['method']}, {units.duration(accuracy['cpu_seconds'])} of processor time.",
    )
    if accuracy["noise"] is None:
        say(
            page,
            "How much one training differs from the next is not known, since no network was trained twice; "
            "a standard deviation of 0.5 points is taken.",
        )
    else:
        say(
            page,
            f"The same network trained from another seed differs by {100 * accuracy['noise']:.2f} points "
            "(standard deviation).",
        )
    for reason, names in failures(accuracy["failed"]):
        page.item(f"{len(names)} training{'' if len(names) == 1 else 's'} failed: {reason}", listed(names))
    for one in accuracy["rankings"]:
        if one["networks"]:
            _ranking(document, one, page)


def _ranking(document: Mapping[str, Any], ranking: Mapping[str, Any], page: Page) -> None:
    """A family's single swaps: the best, the default and the worst, and how much of the order is noise."""
    family, networks = ranking["family"], ranking["networks"]
    count = len(networks)
    page.heading(f"{family}: its {count} single swaps by accuracy, from {ranking['trainings']} trainings")
    default = document["families"].get(family, {}).get("default", "")
    whole = [default] * document["groups"]
    shown = {*range(min(_BEST, count)), count - 1}
    shown |= {place for place, one in enumerate(networks) if list(one["primitives"]) == whole}
    rows, last = [], -1
    for place in sorted(shown):
        if place > last + 1:
            rows.append(["..", "", "", "", ""])
        one = networks[place]
        rows.append(
            [
                str(place + 1),
                one["id"],
                swap_words(document["families"].get(family, {}), one["primitives"]),
                percent(one["accuracy"]),
                f"[{points(one['low'])}, {points(one['high'])}]",
            ]
        )
        last = place
    page.table(
        [
            Column(title="rank"),
            Column(title="network", number=False, most=24),
            Column(title="swapped", number=False, most=40),
            Column(title="accuracy"),
            Column(title="95 % interval"),
        ],
        rows,
    )
    tau = ranking["repeatability"]
    words = next(words for least, words in _AGREE if tau >= least or least == -1.0)
    say(page, f"Of two such rankings tau {tau:.2f} is expected: {words}.", indent=1)
    like = sum(one["high"] >= networks[0]["low"] for one in networks[1:])
    if like:
        those = f"all other {like}" if like == count - 1 else f"{like} of the other {count - 1}"
        say(page, f"The intervals of {those} reach into that of the first.", indent=1)


def _next(document: Mapping[str, Any], page: Page) -> None:
    """What to do next, by what there is and what there is not."""
    accuracy, profile = document["accuracy"], document["profile"]
    rankings = accuracy["rankings"] if accuracy else []
    timed = any(row["latency_s"] is not None for one in document["latency"] for row in one["networks"])
    page.heading("Next")
    if not rankings:
        page.item("Accuracies are missing.", "The command that made the profile, with --accuracy balanced.")
    if not timed:
        page.item("Latencies are missing.", "The command that made the profile, with --toolchain NAME.")
    noisy = [one["family"] for one in rankings if one["repeatability"] < _NOISE]
    if noisy and statistics.fmean(one["repeatability"] for one in rankings) < 0.6:
        page.item(
            f"The order within {listed(noisy)} does not repeat itself.",
            "More networks (--networks), longer trainings (--epochs) or more seeds (--seeds) tell more apart.",
        )
    failed = (accuracy["failed"] if accuracy else []) or any(one["failed"] for one in document["latency"])
    if failed:
        page.path("logs", f"{profile}/log_files")
    if rankings and timed:
        page.path("choose", f"gnomon space select {shlex.quote(profile)}")
    for path in document.get("pictures", ()):
        page.path("picture", path)
    page.path("profile", profile)


def primitives_report(document: Mapping[str, Any], page: Page) -> None:
    """The primitives that are known: name, family, what it is made of, and the digest that says so in any numbering."""
    rows = document["primitives"]
    page.headline(f"{len(rows)} primitive{'' if len(rows) == 1 else 's'} in the numbering {document['numbering']}.")
    page.table(
        [
            Column(title="primitive", number=False),
            Column(title="family", number=False),
            Column(title="made of", number=False),
            Column(title="digest", number=False, least=16),
        ],
        [[row["name"], row["family"], row["meaning"], row["digest"][:16]] for row in rows],
    )
    page.line("")
    page.line("The digest is of the block itself: equal digests are equal blocks, whatever their numbers.")


def toolchains_report(document: Mapping[str, Any], page: Page) -> None:
    """The toolchains, which can be used here, and what to install for the others."""
    rows = document["toolchains"]
    ready = [row["name"] for row in rows if not row["missing"]]
    page.headline(f"{len(ready)} of {len(rows)} toolchains can be used here: {listed(ready) or 'none'}.")
    page.table(
        [
            Column(title="toolchain", number=False),
            Column(title="measured by", number=False),
            Column(title="", number=False),
        ],
        [[row["name"], row["measured_by"], _missing(len(row["missing"]))] for row in rows],
    )
    for row in rows:
        if row["missing"]:
            page.heading(f"For {row['name']}")
        for one in row["missing"]:
            page.item(sentence(one["what"]), one["hint"])


def _missing(count: int) -> str:
    return "ready" if not count else f"{count} thing{'' if count == 1 else 's'} missing"

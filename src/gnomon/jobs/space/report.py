"""The reports of `gnomon space`: a profile, a selection, a front, a validation, and lists of what there is."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.jobs.space.profiling.methods import IMPORTED
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import (
    failures,
    family_of,
    is_single,
    listed,
    networks,
    part,
    percent,
    points,
    row,
    say,
    sentence,
    swap_words,
)

_RULES = {
    "pareto": "what the front of mixed networks is made of, over posterior samples",
    "published": "the published rule to the letter, which depends on the unit of latency (here ms)",
}
_WALKED, _BEST, _ROWS = 8, 8, 6
"""Networks of the published rule, of a ranking and of a front that a report shows; --json has all."""

_AGREE = (
    (0.8, "they agree closely"),
    (0.6, "they agree in the main"),
    (0.4, "the ends can be distinguished, neighbours cannot"),
    (0.2, "most of the order is noise"),
    (-1.0, "the order is noise"),
)
"""What an expected Kendall's tau of two rankings from as much evidence means, from this value on."""

_NOISE = 0.4
"""Below it an order is reported as mostly noise."""


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
    if document.get("share_kept") is not None:
        kept, low, high = document["share_kept"]
        told = f"{percent(kept)} [{points(low)}, {points(high)}]"
        say(page, f"They keep {told} of the expected hypervolume of accuracy and latency.")
    if document.get("stability") is not None:
        say(
            page,
            f"From networks measured again the choice is expected to be {units.share(document['stability'])} the same.",
        )
    page.line(f"Rule {document['rule']}: {_RULES.get(document['rule'], 'a rule of its own')}.")
    page.line(f"Accuracies by the method {document['method']}, latencies by the toolchain {document['toolchain']}.")
    for what, origins in document.get("imported", {}).items():
        for origin, count in origins.items():
            page.line(f"{count} {what} are imported from {origin}.")
    _family(document, page)
    for number, names in enumerate(groups):
        _group(document, number, names, page)
    with page.details("why rare primitives stay, and the numbering"):
        _rare(document, page)
        _numbering(document, page)
    page.line("")
    page.path("config", document["output"])
    if document["lookup"] is not None:
        page.path("lookup", document["lookup"])
        model = document["lookup_model"]
        page.line(f"It is of {model['model']}: {model['why']}.", indent=1)
        if not document["latency_file"]:
            page.item("The config names no lookup table.", "Give it to aw_nas as objective_cfg.latency_file.")
    else:
        page.item("There is no lookup table: a kept primitive has no latency in some place.")
    if document.get("images_known", True):
        page.path("check it", f"gnomon space validate {shlex.quote(document['profile'])}")
    else:
        page.item("It cannot be validated: the profile was made of tables, and nothing is known of the images.")


def _family(document: Mapping[str, Any], page: Page) -> None:
    """Why this family, or all: the contenders of the rule pareto, or the networks that the published rule walked."""
    contenders, walked = document.get("contenders") or (), document.get("networks") or ()
    if document.get("why"):
        name = document["family"]
        page.line(f"Why {name}: {document['why']}." if name else f"Families: {document['why']}.")
    with page.details("the families beside each other"):
        _families(contenders, page)
    if walked:
        counted = ", ".join(f"{name} {count}" for name, count in (document.get("counts") or {}).items())
        page.line(f"Why {document['family']}: it was first to have enough cheap networks ({counted}).")
        _kind(document["accuracies"], page)
        with page.details("the networks that decided"):
            _walked(walked, page)


def _families(contenders: Sequence[Mapping[str, Any]], page: Page) -> None:
    """The contenders of the rule pareto; nothing where there are none."""
    if contenders:
        page.heading("Hypervolume by family (it means something beside the others only)")
        rows = [[one["family"], *(units.digits(one[key]) for key in ("expected", "measured"))] for one in contenders]
        titles = ("family", "expected of its front", "of its measured networks")
        page.table([Column(title=title, number=k > 0) for k, title in enumerate(titles)], rows)


def _walked(walked: Sequence[Mapping[str, Any]], page: Page) -> None:
    page.heading("The networks that decided, the cheapest first")
    columns = [Column(title="network", number=False), Column(title="cost")]
    page.table(columns, [[one["id"], f"{one['cost']:.5g}"] for one in walked[:_WALKED]])
    if len(walked) > _WALKED:
        page.line(f"and {len(walked) - _WALKED} more: --json has all of them", indent=1, style="dim")


def _kind(accuracies: Mapping[str, Any], page: Page) -> None:
    """Whether the rule saw accuracies as they were measured."""
    count, trained = accuracies["networks"], accuracies["trained"]
    if accuracies["kind"] == "measured":
        page.line(f"Accuracies: as measured of all {count} one-change variants.")
        return
    page.item(
        f"Accuracies: what is believed of each of the {count} one-change variants, as {trained} of them were trained.",
        "For the rule to the letter train all: gnomon space profile --accuracy published (or fair).",
    )


def _group(document: Mapping[str, Any], number: int, names: Sequence[str], page: Page) -> None:
    """The primitives that a cell group keeps, with how often each is on the front; then the dropped ones."""
    page.heading(f"Cell group {number}")
    meanings = document["meanings"]
    known = {one["name"]: one for group in (document.get("primitives") or ())[number : number + 1] for one in group}
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
    for group in document.get("primitives") or ():
        most = max((one["frequency"] for one in group if not one["stays"]), default=0.0)
        rare += [one for one in group if one["stays"] and one["frequency"] < most]
    kept = sum(map(len, document["groups"]))
    if rare:
        page.line("")
        say(
            page,
            f"{len(rare)} of the {kept} kept {'is' if len(rare) == 1 else 'are'} on the front less often than a "
            "dropped one of the same cell group. What counts is how much would be lost, not how often.",
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


def front_report(document: Mapping[str, Any], page: Page) -> None:
    """The best networks of the full space: how many, how far they reach, a few of them, predicted and measured."""
    rows, held, bound = document["networks"], document["measured"], document["latency_bound_s"]
    within = "" if bound is None else f" within {units.time(bound)}"
    say(page, _front_answer(document, within), answer=True)
    count, shown = document["on_front"], sum(one["on_front"] for one in rows)
    told = f"{count} of {networks(document['space'])} networks {'is' if count == 1 else 'are'} on the predicted front"
    told += f"{within}, exactly as sums of effects have it; {'all' if shown == count else shown} of them are here"
    say(page, told + (f", and {len(rows) - shown} that may be on it." if len(rows) > shown else "."))
    if held is not None:
        right, took = held["accuracy"], held["latency"]
        off = f"{100 * right['mean_error']:.2f} points and {percent(took['mean_error'])} on average"
        within = f"{units.share(right['inside'])} and {units.share(took['inside'])} are in their 95 % intervals"
        rounds = document["rounds"]
        told = f"Measured in {rounds} rounds, each predicted from the rounds before. " if rounds > 1 else ""
        say(page, f"{told}Predictions were off by {off}; {within}.")
    elif document["latency_model"] is not None:
        off = document["latency_model"]
        say(page, f"Such latencies were off by {percent(off['mean'])} on average of {off['networks']} others.")
    best = [one for one in rows if one["best"]] or [one for one in rows if one["on_front"]]
    picks = sorted({round(k * (len(best) - 1) / (_ROWS - 1)) for k in range(_ROWS)})
    titles = ("accuracy", "latency") if held is None else ("accuracy", "predicted", "latency", "predicted")
    columns = [Column(title="network", number=False), *(Column(title=title) for title in titles)]
    page.table(columns, [[best[k]["id"], *_prices(best[k])] for k in picks])
    failed = [one["measured"] for one in rows if one["measured"] is not None and None in _pair(one["measured"])]
    if failed:
        reason = next((one["reason"] for one in failed if one["reason"]), "")
        page.item(
            f"{len(failed)} of {len(rows)} {'has' if len(failed) == 1 else 'have'} no accuracy or no latency.", reason
        )
    page.path("all of them", f"{document['profile']}/front.json")


def _front_answer(document: Mapping[str, Any], within: str) -> str:
    rows, held = document["networks"], document["measured"]
    if held is None:
        share = "are expected to reach"
        measured = document["measure"] and "None could be trained and measured. "
        return f"{measured or ''}{len(rows)} networks{within} {share} {_kept(document)} of the hypervolume of all."
    ratio = held["hypervolume"]
    told = f"{held['networks']} networks were measured, {held['best']} of them are best{within}"
    reached = f"They reach {_kept(held)} of the hypervolume that all are believed to reach"
    if ratio["predicted"] > 0:
        reached += f", {units.share(ratio['measured'] / ratio['predicted'])} of what was predicted of them"
    return f"{told}. {reached}."


def _kept(found: Mapping[str, Any]) -> str:
    kept, low, high = found["share"]
    return f"{percent(kept)} [{points(low)}, {points(high)}]"


def _pair(told: Mapping[str, Any]) -> tuple[Any, Any]:
    return told["accuracy"], told["latency_s"]


def _prices(one: Mapping[str, Any]) -> list[str]:
    """What was measured of a network beside what was predicted, or the latter with its intervals; "-" if not known."""
    (right, took), found = _pair(one["predicted"]), one["measured"]
    if found is None:
        return [_share_of_three(right), _time_of_three(took)]
    seen, timed = _pair(found)
    return [_share_of_three(seen), percent(right[0]), _time_of_three(timed), units.time(took[0])]


def _share_of_three(told: Sequence[float] | None) -> str:
    return "-" if told is None else f"{percent(told[0])} [{points(told[1])}, {points(told[2])}]"


def _time_of_three(told: Sequence[float] | None) -> str:
    return "-" if told is None else f"{units.time(told[0])} {units.interval(told[1], told[2], told[0], predicted=True)}"


def validation_report(document: Mapping[str, Any], page: Page) -> None:
    """The predicted front of the reduced space against that of the full one, and predictions against measurements."""
    _fronts(document["fronts"], page)
    page.heading("Predicted before, measured now")
    count = document["networks"]
    say(page, f"{count} mixed networks that were never seen, measured by the toolchain {document['toolchain']}.")
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
    page.path("profile", document["profile"])


def _fronts(fronts: Mapping[str, Any] | None, page: Page) -> None:
    """The answer: what the predicted front of the reduced space reaches of that of the full one, as measured."""
    if fronts is None:
        say(page, "The reduced space is not compared with the full one: no front was measured.", answer=True)
        return
    (reduced, full), same = fronts["networks"], fronts["in_both"]
    if same == reduced == full:
        told = f"The predicted front of both spaces is the same {full} networks: nothing of it is lost."
        say(page, told, answer=True)
        return
    ratio, low, high = fronts["ratio"]
    told = f"The predicted front of the reduced space reaches {percent(ratio)} [{points(low)}, {points(high)}] of the "
    say(page, f"{told}hypervolume that the front of the full space reaches.", answer=True)
    plain = fronts["measured_ratio"]
    noisy = "" if plain is None else f" By their noisy measurements alone it is {percent(plain)}."
    say(page, f"{reduced} and {full} networks of the fronts were measured, {same} are in both.{noisy}")


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def toolchain_sentence(one: Mapping[str, Any]) -> str:
    """A toolchain in one sentence: how fast networks are, and how a quantised one compares with its twin."""
    times = _times(one["networks"])
    if not times:
        return f"Nothing could be measured by {one['toolchain']}."
    by = "As imported" if one["toolchain"] == IMPORTED else f"By {one['toolchain']}"
    told = f"{by} networks take {spread(times)}"
    compared = one["compared"]
    if compared is not None:
        told += f", {units.digits(compared['ratio'])} times as long as by {compared['twin']}"
    return told + "."


def latency_sections(document: Mapping[str, Any], one: Mapping[str, Any], page: Page) -> None:
    """A toolchain: one-change variants by family, how well mixed networks are predicted, its twin, and what failed."""
    context = one.get("context", {})
    parts = [f"on {context['device']}"] if "device" in context else []
    parts += [f"{count} thread{'' if count == '1' else 's'}"] if (count := context.get("threads")) else []
    parts += [f"{one['clock']} time"] if one["clock"] else []
    page.heading(", ".join([f"Latency by {one['toolchain']}", *parts]))
    measured = _times(one["networks"])
    page.line(f"{len(measured)} of {len(one['networks'])} networks were measured.")
    _imported(one.get("imported", {}), page)
    families = document["families"]
    rows = [_single_row(name, families, one["networks"]) for name in families]
    if measured:
        titles = ("family", "one-change variants", "median", "least to most", "95 % interval")
        page.table([Column(title=title, number=title != "family") for title in titles], rows)
        _predicted(one["predictors"], list(families), page)
    _compared(one, page)
    for reason, names in failures(one["failed"]):
        told = "1 network" if len(names) == 1 else f"{len(names)} networks"
        page.item(f"{told} failed: {reason}", listed(names))


def _imported(origins: Mapping[str, int], page: Page) -> None:
    """What was not trained or measured here, and where it came from."""
    for origin, count in origins.items():
        say(page, f"{count} imported from {origin}.")


def spread(times: Sequence[float]) -> str:
    """The least and the most of some times, in one unit: "1.29 to 4.20 ms"."""
    low, high = min(times), max(times)
    like = units.time(high)
    if units.time(low) == like:
        return like
    inside = units.interval(low, high, high, predicted=True)[1:-1].replace(", ", " to ")
    return f"{inside} {like.rpartition(' ')[2]}"


def _times(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["latency_s"] for row in rows if row["latency_s"] is not None and not row["reason"]]


def _single_row(name: str, families: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A family's one-change variants: how many were measured, their median and range, and how well one is known."""
    mine = [r for r in rows if family_of(families, r["primitives"]) == name and is_single(families, r["primitives"])]
    times = _times(mine)
    if not times:
        return [name, f"0 of {families[name]['swaps']}", "-", "-", "-"]
    halves = [
        (row["high_s"] - row["low_s"]) / 2 / row["latency_s"]
        for row in mine
        if row["latency_s"] and None not in (row["low_s"], row["high_s"]) and not row["reason"]
    ]
    known = f"+- {100 * statistics.median(halves):.1f} %" if halves else "-"
    count = f"{len(times)} of {families[name]['swaps']}"
    return [name, count, units.time(statistics.median(times)), spread(times), known]


def _predicted(predictors: Mapping[str, Mapping[str, Any]], families: Sequence[str], page: Page) -> None:
    """How well any network's latency can be told from what was measured."""
    rows, untested = [], []
    for name in families:
        found = predictors.get(name)
        if found is None:
            untested.append(f"{name}: its default network has no latency, so that no mixed network can be predicted.")
            continue
        tested = found["held_out"].get(found["way"])
        if tested is None:
            untested.append(f"{name}: {found['way']}; {found['why']}.")
            continue
        tau = "-" if tested["tau"] is None else f"{tested['tau']:.2f}"
        errors = [percent(tested[key]) for key in ("mean", "median", "p90")]
        rows.append([name, found["way"], *errors, tau, str(tested["networks"])])
    page.line("")
    if rows:
        page.line("Mixed networks that were not fitted to: how far predictions are off.")
        titles = ("family", "predicted by", "mean", "median", "9 of 10", "tau", "networks")
        page.table([Column(title=title, number=k > 1) for k, title in enumerate(titles)], rows)
    for told in untested:
        page.item(told)


def _compared(one: Mapping[str, Any], page: Page) -> None:
    compared, least = one["compared"], one["least_quantised"]
    if compared is None and least is None:
        return
    page.line("")
    if compared is not None:
        ratio, low, high = (units.digits(compared[name]) for name in ("ratio", "low", "high"))
        say(
            page,
            f"Against {compared['twin']}: {ratio} times as long [{low}, {high}] by the median of "
            f"{compared['networks']} networks; faster on {compared['faster']} of {compared['networks']}.",
        )
        if compared["drop"] is None:
            page.line("What quantising costs in accuracy was not measured.")
        else:
            say(
                page,
                f"Accuracy drops by {100 * compared['drop']:.2f} points on average, by "
                f"{100 * compared['worst_drop']:.2f} at worst.",
            )
    if least is not None:
        part = "All" if least >= 1 else f"At least {units.share(least)} of the"
        say(page, f"{part} convolutions of each network read and give 8-bit values in its file.")


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
            f"The most accurate one-change variant is {best['id']}: {percent(best['accuracy'])} {interval} of images."
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
    counts = {name: len(one["primitives"]) for name, one in families.items()}
    told = ", ".join(f"{name} with {count} primitive{'' if count == 1 else 's'}" for name, count in counts.items())
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
    count = accuracy["trainings"] - sum(accuracy.get("imported", {}).values())
    if count:
        say(
            page,
            f"Trained{data}{images}: {count} training{'' if count == 1 else 's'} by the method "
            f"{accuracy['method']}, {units.duration(accuracy['cpu_seconds'])} of processor time.",
        )
    _imported(accuracy.get("imported", {}), page)
    if not count and accuracy["noise"] is None:
        if unsure := accuracy.get("without_error", 0):
            say(page, f"Without a standard error came {unsure} of them; 0.5 points are taken.")
    elif accuracy["noise"] is None:
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
    """A family's one-change variants: the best, the default and the worst, and how much of the order is noise."""
    family, networks = ranking["family"], ranking["networks"]
    count = len(networks)
    variants = "only network" if count == 1 else f"{count} one-change variants"
    page.heading(f"{family}: its {variants} by accuracy, from {ranking['trainings']} trainings")
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
    if count == 1:  # which has no order
        return
    tau = ranking["repeatability"]
    words = next(words for least, words in _AGREE if tau >= least or least == -1.0)
    say(page, f"Of two such rankings tau {round(tau, 2) + 0.0:.2f} is expected: {words}.", indent=1)
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
        page.item("Latencies are missing.", _latencies_missing(document))
    noisy = [one["family"] for one in rankings if one["repeatability"] < _NOISE]
    if noisy and statistics.fmean(one["repeatability"] for one in rankings) < 0.6:
        page.item(
            f"The order within {listed(noisy)} does not repeat itself.",
            "More networks (--networks), longer trainings (--epochs) or more seeds (--seeds) distinguish more of them.",
        )
    failed = (accuracy["failed"] if accuracy else []) or any(one["failed"] for one in document["latency"])
    if failed:
        page.path("logs", f"{profile}/log_files")
    if rankings and timed:
        page.path("choose", f"gnomon space select {shlex.quote(profile)}")
    for path in document.get("pictures", ()):
        page.path("picture", path)
    page.path("profile", profile)


def _latencies_missing(document: Mapping[str, Any]) -> str:
    """The next step where nothing has a latency: whether any was tried, and whether images are known at all."""
    if document["latency"]:
        return "See why above, or measure by another one: the command that made the profile, with --toolchain NAME."
    if document["data"]:
        return "The command that made the profile, without --no-latency."
    return f"gnomon space import FILE --profile-dir {shlex.quote(document['profile'])}, with latencies in the file."


def exported_report(document: Mapping[str, Any], page: Page) -> None:
    """What was written: how many rows have an accuracy, and how many a latency."""
    page.headline(
        f"{document['rows']} rows, {document['accuracies']} with an accuracy, {document['latencies']} with a latency."
    )
    page.path("nets", document["file"])


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
    for chain in rows:
        if chain["missing"]:
            page.heading(f"For {chain['name']}")
        for one in chain["missing"]:
            page.item(sentence(one["what"]), one["hint"])


def _missing(count: int) -> str:
    return "ready" if not count else f"{count} thing{'' if count == 1 else 's'} missing"

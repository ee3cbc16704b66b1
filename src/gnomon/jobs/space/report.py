"""The reports of `gnomon space`: a profile, a selection, a front, and lists of primitives and toolchains."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from gnomon.jobs.space.document import (
    AccuracyPart,
    FailedNetwork,
    FamilyPart,
    MeasuredNetwork,
    PrimitivesDocument,
    RankingPart,
    RuleAccuracies,
    SelectionDocument,
    SpaceDocument,
    SpaceExportDocument,
    SpaceFrontDocument,
    Three,
    ToolchainPart,
    ToolchainsDocument,
)
from gnomon.jobs.space.profiling.folder import IMPORTED
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.parts import networks, part, percent, points, sentence
from gnomon.report.plain import listed, many
from gnomon.spaces.selection.pareto import Kept

_RULES = {
    "pareto": "the primitives of networks on the front, over posterior samples",
    "published": "exactly as published, where the choice depends on the unit of latency (here ms)",
}
_WALKED, _BEST, _ROWS = 8, 8, 6
"""The most rows shown of the published rule's networks, of a ranking, and of other tables; --json has all of them."""

_AGREE = (
    (0.8, "they agree closely"),
    (0.6, "they agree mostly"),
    (0.4, "the ends can be distinguished, neighbours cannot"),
    (0.2, "most of the order is noise"),
    (-1.0, "the order is noise"),
)
"""What a Kendall's tau of at least this value says about two rankings from equal amounts of evidence."""

_NOISE = 0.4
"""The tau below which an order is reported as mostly noise."""


def share_words(share: Three | None) -> str:
    """A share with its interval: "91.3 % [90.1, 92.2]"; "-" for an unknown share."""
    return "-" if share is None else f"{percent(share[0])} {_ends_words(*share[1:])}"


def _ends_words(low: float, high: float) -> str:
    """The interval of a share, in per cent: "[90.1, 92.2]"."""
    return f"[{points(low)}, {points(high)}]"


def selection_report(document: SelectionDocument, page: Page) -> None:
    """Write the primitives that each cell group keeps, the reasons, and the paths of the files."""
    before, after = document.networks_before, document.networks_after
    counts = sorted({len(names) for names in document.groups})
    each = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    family = f" of {document.family}" if document.family else ""
    page.headline(
        f"Each cell group keeps {each} primitive{'' if counts == [1] else 's'}{family}: {networks(after)} of "
        f"{networks(before)} networks are left ({part(after, before)})."
    )
    if document.share_kept is not None:
        share = share_words(document.share_kept)
        page.line(f"These networks keep {share} of the expected hypervolume of accuracy and latency.")
    if document.stability is not None:
        page.line(f"With new measurements, {units.share(document.stability)} of the choice is expected to stay.")
    with page.details("the rule"):
        page.line(f"Rule {document.rule}: {_RULES.get(document.rule, 'unknown to this version')}.")
    page.line(f"Accuracies by the method {document.method}, latencies by the toolchain {document.toolchain}.")
    for what, origins in document.imported.items():
        for origin, count in origins.items():
            page.line(f"Imported from {origin}: {count} {what}.")
    page.draw("gnomon.jobs.space.picture:choice_charts", document)
    _family(document, page)
    if page.brief:
        groups = document.slots or tuple(map(str, range(len(document.groups))))
        table = Table(zip(groups, document.groups, strict=True), most=_ROWS, more="more cell groups")
        table.text("cell group", lambda row: row[0])
        page.table(table.text("kept", lambda row: ", ".join(row[1]), most=72))
    with page.details("what each cell group drops"):
        for number, names in enumerate(document.groups):
            _group(document, number, names, page)
    with page.details("why rare primitives stay, and the numbering"):
        _rare(document, page)
        _numbering(document, page)
    page.line("")
    page.path("config", document.output)
    if document.lookup is not None:
        page.path("lookup", document.lookup)
        if document.lookup_model is not None and not page.brief:
            page.line(f"The table has {document.lookup_model.model}; {document.lookup_model.why}.", indent=1)
        if not document.latency_file and not document.slots:
            page.item("The config names no lookup table.", "Set objective_cfg.latency_file to the lookup file.")
    else:
        page.item("No lookup table was written: a kept primitive has no latency in some cell group.")
    if document.images_known:
        kept = f"--kept {shlex.quote(document.output)}"
        page.path("prove it", f"gnomon space front {shlex.quote(document.profile)} {kept}")
    else:
        page.item("The selection cannot be proved: the profile was made from tables, so its images are unknown.")


def _family(document: SelectionDocument, page: Page) -> None:
    """Write why the published rule chose this family, and the networks that decided."""
    if document.networks:
        counts = ", ".join(f"{name} {count}" for name, count in (document.counts or {}).items())
        page.line(f"Why {document.family}: this family was the first with enough cheap networks ({counts}).")
        if document.accuracies is not None:
            _kind(document.accuracies, page)
        with page.details("the networks that decided"):
            page.heading("The networks that decided, cheapest first")
            walked = Table(document.networks, most=_WALKED).text("network", lambda network: network.id)
            page.table(walked.number("cost", lambda network: f"{network.cost:.5g}"))


def _kind(accuracies: RuleAccuracies, page: Page) -> None:
    """Write whether the rule used measured or estimated accuracies."""
    if accuracies.kind == "measured":
        page.line(f"Accuracies: measured for all {accuracies.networks} one-change variants.")
        return
    page.item(
        f"Accuracies: estimated for all {accuracies.networks} one-change variants, because only {accuracies.trained} "
        "of them were trained.",
        "To apply the rule exactly as published, train all: gnomon space profile --accuracy published (or fair).",
    )


def _group(document: SelectionDocument, number: int, names: Sequence[str], page: Page) -> None:
    """Write the primitives that a cell group keeps, with their shares on the front, and the dropped primitives."""
    page.heading("".join(document.slots[number : number + 1]) or f"Cell group {number}")
    meanings = document.meanings
    by_name = {kept.name: kept for group in (document.primitives or ())[number : number + 1] for kept in group}
    table = Table(names).text("kept", str)
    if by_name:
        table.number("on the front", lambda name: units.share(by_name[name].frequency) if name in by_name else "-")
        table.number("95 % interval", lambda name: _front_ends(by_name.get(name)))
    page.table(table.text("made of", lambda name: meanings.get(name, "")))
    if by_name:
        dropped = [f"{name} ({units.share(kept.frequency)})" for name, kept in by_name.items() if name not in names]
    else:
        others = [name for name in meanings if name not in names]
        dropped = [name for name in others if document.family in (None, name.rpartition("block_")[0])]
    page.line(f"dropped: {', '.join(dropped or ['none'])}", indent=1)


def _front_ends(kept: Kept | None) -> str:
    return "-" if kept is None else f"[{100 * kept.low:.0f}, {100 * kept.high:.0f}]"


def _rare(document: SelectionDocument, page: Page) -> None:
    """Explain why some kept primitives are on the front less often than a dropped primitive."""
    rare = 0
    for group in document.primitives or ():
        most = max((kept.frequency for kept in group if not kept.stays), default=0.0)
        rare += sum(kept.stays and kept.frequency < most for kept in group)
    if rare:
        page.line("")
        page.line(
            f"{rare} of the {sum(map(len, document.groups))} kept primitives {'is' if rare == 1 else 'are'} on the "
            "front less often than a dropped primitive of the same cell group: the rule weighs how much hypervolume "
            "would be lost, not how often a primitive is on the front."
        )


def _numbering(document: SelectionDocument, page: Page) -> None:
    """Write the numbering of the names, and the names that aw_nas would read differently."""
    unlike = document.unlike_aw_nas
    page.heading("Numbering")
    page.line(f"All names are in the numbering {document.numbering}.")
    if not unlike:
        page.line("Each name means the same block in aw_nas.")
        return
    verb = "means" if len(unlike) == 1 else "mean"
    page.item(
        f"{len(unlike)} of the kept names {verb} another block, or no block, in aw_nas: {', '.join(unlike)}.",
        "Before a search with aw_nas, profile with --numbering aw_nas, or register these blocks in aw_nas.",
    )


def front_report(document: SpaceFrontDocument, page: Page) -> None:
    """Write the best networks of a space: their number, their hypervolume, and the accuracy and latency of a few."""
    rows, held, bound = document.networks, document.measured, document.latency_bound_s
    within = "" if bound is None else f" within {units.time(bound)}"
    within += " with kept primitives only" if document.kept else ""
    page.headline(_front_answer(document, within))
    count, shown = document.on_front, sum(network.on_front for network in rows)
    page.line(
        f"{count} of {networks(document.space)} networks {'is' if count == 1 else 'are'} on the predicted front"
        f"{within}; front.json has {'all' if shown == count else shown} of them"
        + (f", and {len(rows) - shown} that may be on the true front." if len(rows) > shown else ".")
    )
    if held is not None:
        off = f"{100 * held.accuracy.mean_error:.2f} points and {percent(held.latency.mean_error)} on average"
        inside = f"{units.share(held.accuracy.inside)} and {units.share(held.latency.inside)}"
        rounds = document.rounds
        first = f"Measured in {rounds} rounds, each predicted from the rounds before. " if rounds > 1 else ""
        page.line(
            f"{first}Predicted accuracies and latencies were off by {off}; {inside} of the measurements are in the "
            "predictions' 95 % intervals."
        )
    elif document.latency_model is not None:
        model = document.latency_model
        page.line(
            f"Latencies predicted this way were off by {percent(model.mean)} on average for {model.networks} other "
            "networks."
        )
    best = [network for network in rows if network.best] or [network for network in rows if network.on_front]
    picks = sorted({round(k * (len(best) - 1) / (_ROWS - 1)) for k in range(_ROWS)})
    table = Table(rows if page.every else [best[k] for k in picks], chosen=lambda network: page.every and network.best)
    table.text("network", lambda network: network.id)
    is_whole = held is None or page.every  # predictions are shown with their intervals
    if held is not None:
        table.number("accuracy", lambda network: share_words(network.measured.accuracy if network.measured else None))
    table.number(
        "predicted" if held else "accuracy",
        lambda network: network.predicted.accuracy,
        share_words if is_whole else lambda share: percent(share[0]),
    )
    if held is not None:
        table.number("latency", lambda network: _time_words(network.measured.latency_s if network.measured else None))
    table.number(
        "predicted" if held else "latency",
        lambda network: network.predicted.latency_s,
        _time_words if is_whole else lambda time: units.time(time[0]),
    )
    table.number("parameters", lambda network: network.size.parameters, units.count, extra=True)
    table.number("MACs", lambda network: network.size.macs, units.count, extra=True)
    table.number("memory at most", lambda network: units.value(network.size.peak_bytes, "B"), extra=True)
    table.number("chance to be on the front", lambda network: network.chance, units.share, extra=True)
    table.text("primitives", lambda network: ", ".join(network.primitives), extra=True)
    page.draw("gnomon.jobs.space.picture:space_front_charts", document)
    page.table(table)
    measured = [network.measured for network in rows if network.measured is not None]
    failed = [point.reason for point in measured if point.accuracy is None or point.latency_s is None]
    if failed:
        verb = "has" if len(failed) == 1 else "have"
        page.item(f"{len(failed)} of {len(rows)} {verb} no accuracy or no latency.", next(filter(None, failed), ""))
    page.path("all of them", f"{document.profile}/front.json")


def _front_answer(document: SpaceFrontDocument, within: str) -> str:
    held = document.measured
    if held is None:
        nothing = "No network could be trained and measured. " if document.measure else ""
        return (
            f"{nothing}{len(document.networks)} networks{within} are expected to reach {share_words(document.share)} "
            "of the hypervolume of the full space."
        )
    volume = held.hypervolume
    reached = f"They reach {share_words(held.share)} of the hypervolume expected of the full space"
    if volume.predicted > 0:
        reached += f", {units.share(volume.measured / volume.predicted)} of their predicted hypervolume"
    return f"{many(held.networks, 'network')} measured, {held.best} of them on the measured front{within}. {reached}."


def _time_words(time: Three | None) -> str:
    return "-" if time is None else f"{units.time(time[0])} {units.interval(time[1], time[2], time[0], predicted=True)}"


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _toolchain_sentence(toolchain: ToolchainPart) -> str:
    """A toolchain in one sentence: its networks' latencies, compared with those of its float32 twin if it has one."""
    times = _times(toolchain.networks)
    if not times:
        return f"No network could be measured by {toolchain.toolchain}."
    by = "as imported" if toolchain.toolchain == IMPORTED else f"by {toolchain.toolchain}"
    if "commands" in toolchain.context:
        by += f", measured on {toolchain.context['device']}"
    twin = toolchain.compared
    beside = "" if twin is None else f", {units.digits(twin.ratio)} times as long as by {twin.twin}"
    return f"Networks take {_spread(times)} {by}{beside}."


def _conditions(toolchain: ToolchainPart) -> str:
    """The conditions under which a toolchain's times were measured, in one sentence."""
    device, threads = (toolchain.context.get(name, "") for name in ("device", "threads"))
    count = threads and f"{threads} thread{'' if threads == '1' else 's'}"
    parts = [device and f"on {device}", count, units.CLOCKS.get(toolchain.clock), units.day(toolchain.began_s)]
    return f"{', '.join(filter(None, [f'Latency by {toolchain.toolchain}', *parts]))}."


def _latency(document: SpaceDocument, toolchain: ToolchainPart, page: Page) -> None:
    """Write the details of a toolchain: one-change variants by family, prediction errors, its twin, and failures."""
    page.heading(f"Latency by {toolchain.toolchain}")
    measured = len(_times(toolchain.networks))
    page.line(f"{measured} of {len(toolchain.networks)} networks were measured.")
    _imported(toolchain.imported, page)
    if measured:
        page.table(
            Table(_single_row(document, name, toolchain.networks) for name in document.families)
            .text("family", itemgetter(0))
            .number("one-change variants", itemgetter(1))
            .number("median", itemgetter(2))
            .number("least to most", itemgetter(3))
            .number("95 % interval", itemgetter(4))
        )
        _predicted(toolchain, page)
    _compared(toolchain, page)
    right = {row.id: row.accuracy for row in document.accuracy.trained} if document.accuracy else {}
    page.draw("gnomon.jobs.space.picture:networks_charts", document, toolchain)
    page.table(
        Table(toolchain.networks)
        .text("network", lambda row: row.id, extra=True)
        .number("latency", lambda row: row.latency_s, units.time, extra=True)
        .number("95 % interval", lambda row: units.interval(row.low_s, row.high_s, row.latency_s), extra=True)
        .number("accuracy", lambda row: right.get(row.id), percent, extra=True)
        .number("parameters", lambda row: row.size.parameters, units.count, extra=True)
        .number("MACs", lambda row: row.size.macs, units.count, extra=True)
        .number("memory at most", lambda row: units.value(row.size.peak_bytes, "B"), extra=True)
        .text("reason", lambda row: row.reason, extra=True)
    )
    _failures(toolchain.failed, "network", page)


def _failures(failed: Sequence[FailedNetwork], what: str, page: Page) -> None:
    """Write the networks that failed, by reason, beginning with the most frequent reason."""
    names: dict[str, list[str]] = {}
    for row in failed:
        names.setdefault(sentence(row.reason), []).append(row.network)
    for reason, ones in sorted(names.items(), key=lambda item: -len(item[1])):
        page.item(f"{many(len(ones), what)} failed: {reason}", listed(ones))


def _imported(origins: Mapping[str, int], page: Page) -> None:
    """Write how many rows were imported from each file."""
    for origin, count in origins.items():
        page.line(f"Imported from {origin}: {many(count, 'row')}.")


def _spread(times: Sequence[float]) -> str:
    """The range of times, in one unit: "1.29 to 4.20 ms"."""
    low, high = min(times), max(times)
    like = units.time(high)
    if units.time(low) == like:
        return like
    inside = units.interval(low, high, high, predicted=True)[1:-1].replace(", ", " to ")
    return f"{inside} {like.rpartition(' ')[2]}"


def _times(rows: Sequence[MeasuredNetwork]) -> list[float]:
    return [network.latency_s for network in rows if network.latency_s is not None and not network.reason]


def _single_row(document: SpaceDocument, name: str, rows: Sequence[MeasuredNetwork]) -> list[str]:
    """The cells for a family's one-change variants: the number measured, the median, the range and the interval."""
    mine = [row for row in rows if document.family_of(row.primitives) == name and document.is_single(row.primitives)]
    times, count = _times(mine), f"of {document.families[name].swaps}"
    if not times:
        return [name, f"0 {count}", "-", "-", "-"]
    halves = [
        (row.high_s - row.low_s) / 2 / row.latency_s
        for row in mine
        if row.latency_s and row.low_s is not None and row.high_s is not None and not row.reason
    ]
    margin = f"+- {100 * statistics.median(halves):.1f} %" if halves else "-"
    return [name, f"{len(times)} {count}", units.time(statistics.median(times)), _spread(times), margin]


def _predicted(toolchain: ToolchainPart, page: Page) -> None:
    """Write the errors of latencies predicted from the measured networks."""
    page.line("")
    if not toolchain.held_out:
        page.item("Too few mixed networks were measured to estimate the error of predictions.")
        return
    page.line("Errors for mixed networks, each predicted from all other networks:")
    page.table(
        Table(toolchain.held_out.items())
        .text("family", lambda row: row[0])
        .number("mean", lambda row: row[1].mean, percent)
        .number("median", lambda row: row[1].median, percent)
        .number("9 of 10", lambda row: row[1].p90, percent)
        .number("tau", lambda row: row[1].tau, _tau)
        .number("networks", lambda row: row[1].networks)
    )


def _compared(toolchain: ToolchainPart, page: Page) -> None:
    compared, least = toolchain.compared, toolchain.least_quantised
    if compared is None and least is None:
        return
    page.line("")
    if compared is not None:
        ratio, low, high = map(units.digits, (compared.ratio, compared.low, compared.high))
        page.line(
            f"Compared with {compared.twin}: {ratio} times as long [{low}, {high}] in the median of "
            f"{many(compared.networks, 'network')}; {compared.faster} of them faster."
        )
        if compared.drop is None or compared.worst_drop is None:
            page.line("The loss of accuracy from quantising was not measured.")
        else:
            mean, worst = 100 * compared.drop, 100 * compared.worst_drop
            page.line(f"Accuracy drops by {mean:.2f} points on average, by {worst:.2f} at worst.")
    if least is not None:
        share = "All" if least >= 1 else f"At least {units.share(least)} of the"
        page.line(f"{share} convolutions of each network read and return 8-bit values.")


def profile_report(document: SpaceDocument, page: Page) -> None:
    """Write a profile: the answer first, then accuracies, latencies, and the reliability of both."""
    page.headline(_answer(document))
    for toolchain in document.latency:
        page.conditions(_conditions(toolchain))
    with page.details("the space"):
        page.line(_searched(document))
    if page.brief:
        _families(document, page)
    with page.details("accuracies, network by network"):
        if document.accuracy is not None:
            _accuracy(document, document.accuracy, page)
    with page.details("latencies, family by family"):
        for toolchain in document.latency:
            _latency(document, toolchain, page)
    if document.notes:
        page.heading("Notes")
        for note in document.notes:
            page.item(sentence(note))
    _next(document, page)
    if document.seconds:
        parts = ", ".join(f"{name} {units.duration(value)}" for name, value in document.seconds.items())
        page.line(f"Time of this run: {parts}.", indent=2)


def _families(document: SpaceDocument, page: Page) -> None:
    """Write the families: the best variant of each, and the median time of its variants by each toolchain."""
    best = {ranking.family: ranking.networks[0] for ranking in _rankings(document) if ranking.networks}
    table = Table(document.families, most=_ROWS, more="more families").text("family", str)
    table.text("most accurate", lambda name: best[name].id if name in best else "-", most=24)
    table.number("accuracy", lambda name: percent(best[name].accuracy) if name in best else "-")
    for toolchain in document.latency:
        table.number(f"by {toolchain.toolchain}", _median_of(document, toolchain))
    page.table(table)


def _median_of(document: SpaceDocument, toolchain: ToolchainPart) -> Callable[[str], str]:
    return lambda name: _single_row(document, name, toolchain.networks)[2]


def _answer(document: SpaceDocument) -> str:
    """The first sentences: the best network, the families whose order is mostly noise, and the latencies."""
    sentences = []
    rankings = [ranking for ranking in _rankings(document) if ranking.networks]
    if rankings:
        best = max(rankings, key=lambda ranking: ranking.networks[0].accuracy).networks[0]
        accuracy = share_words((best.accuracy, best.low, best.high))
        sentences.append(f"The most accurate one-change variant is {best.id}: {accuracy} of images.")
        if noise := _noisy(rankings):
            sentences.append(f"The order within {listed(noise)} is mostly noise.")
    elif document.accuracy is None:
        sentences.append("No network was trained.")
    else:
        sentences.append("There are too few accuracies to name the best network: fewer than a family has primitives.")
    sentences += [_toolchain_sentence(toolchain) for toolchain in document.latency] or ["No latency was measured."]
    return " ".join(sentences)


def _rankings(document: SpaceDocument) -> tuple[RankingPart, ...]:
    """The rankings from at least as many trainings as the family has primitives; other rankings mean little."""
    rankings = () if document.accuracy is None else document.accuracy.rankings
    return tuple(row for row in rankings if row.trainings >= len(document.families[row.family].primitives))


def _noisy(rankings: Sequence[RankingPart]) -> list[str]:
    return [ranking.family for ranking in rankings if ranking.repeatability < _NOISE]


def _searched(document: SpaceDocument) -> str:
    families = document.families
    counts = [f"{name} with {many(len(family.primitives), 'primitive')}" for name, family in families.items()]
    kinds = "family" if len(families) == 1 else "families"
    return (
        f"{many(document.groups, 'cell group')}, {len(families)} {kinds}: {', '.join(counts)}; "
        f"names in the numbering {document.numbering}."
    )


def _accuracy(document: SpaceDocument, accuracy: AccuracyPart, page: Page) -> None:
    page.heading("Accuracy")
    images = f", by {accuracy.images} validation images" if accuracy.images else ""
    data = f" on {document.data}" if document.data else ""
    count = accuracy.trainings - sum(accuracy.imported.values())
    if count:
        page.line(
            f"Trained{data}{images}: {many(count, 'training')} by the method {accuracy.method}, "
            f"{units.duration(accuracy.cpu_seconds)} of processor time."
        )
    _imported(accuracy.imported, page)
    if accuracy.noise is not None:
        page.line(
            f"Trainings of the same network from different seeds differ by {100 * accuracy.noise:.2f} points "
            "(standard deviation)."
        )
    elif count:
        page.line("No network was trained twice, so a standard deviation of 0.5 points between trainings is assumed.")
    elif accuracy.without_error:
        page.line(f"Accuracies without a standard error: {accuracy.without_error}; 0.5 points are assumed.")
    _failures(accuracy.failed, "training", page)
    for ranking in _rankings(document):
        if ranking.networks:
            _ranking(document, ranking, page)


def _ranking(document: SpaceDocument, ranking: RankingPart, page: Page) -> None:
    """Write a family's one-change variants: the best, the default, the worst, and the noise in their order."""
    name, networks = ranking.family, ranking.networks
    count = len(networks)
    variants = "only network" if count == 1 else f"{count} one-change variants"
    page.heading(f"{name}: its {variants} by accuracy, from {many(ranking.trainings, 'training')}")
    family = document.families.get(name)
    shown = {*range(count if page.every else min(_BEST, count)), count - 1}
    shown |= {k for k, network in enumerate(networks) if family and not family.swapped(network.primitives)}
    page.draw("gnomon.jobs.space.picture:ranking_charts", ranking)
    page.table(
        Table((place + 1, networks[place]) for place in sorted(shown))
        .number("rank", lambda row: row[0])
        .text("network", lambda row: row[1].id, most=24)
        .text("swapped", lambda row: _swap_words(family, row[1].primitives), most=40)
        .number("accuracy", lambda row: row[1].accuracy, percent)
        .number("95 % interval", lambda row: _ends_words(row[1].low, row[1].high))
    )
    if count == 1:  # a single variant has no order
        return
    tau = ranking.repeatability
    words = next(words for least, words in _AGREE if tau >= least or least == -1.0)
    page.line(f"Expected Kendall's tau of two such rankings: {round(tau, 2) + 0.0:.2f}; {words}.", indent=1)
    like = sum(network.high >= networks[0].low for network in networks[1:])
    if like:
        those = "all others" if like == count - 1 else f"{like} of the other {count - 1}"
        page.line(f"The first variant's interval overlaps with those of {those}.", indent=1)


def _swap_words(family: FamilyPart | None, primitives: Sequence[str]) -> str:
    """The differences between a network and its family's default: "cell 2: 7x7, expansion 4"."""
    meanings = {primitive.name: primitive.meaning for primitive in (family.primitives if family else ())}
    swaps = range(len(primitives)) if family is None else family.swapped(primitives)
    if not swaps:
        return "the default"
    if len(swaps) > 1:
        return f"{len(swaps)} cell groups"
    name = primitives[swaps[0]]
    return f"cell {swaps[0]}: {meanings.get(name) or name}"


def _next(document: SpaceDocument, page: Page) -> None:
    """Write the next steps, which depend on what the profile has and lacks."""
    profile, rankings = document.profile, _rankings(document)
    timed = any(network.latency_s is not None for toolchain in document.latency for network in toolchain.networks)
    page.heading("Next")
    if document.accuracy is None:
        page.item("Accuracies are missing.", "Repeat the command that made the profile with --accuracy balanced.")
    if not timed:
        page.item("Latencies are missing.", _latencies_missing(document))
    noisy = _noisy(rankings)
    if document.data and noisy and statistics.fmean(ranking.repeatability for ranking in rankings) < 0.6:
        page.item("With higher --networks, --epochs or --seeds, more primitives can be distinguished.")
    if any(journal.failed for journal in (document.accuracy, *document.latency) if journal is not None):
        page.path("logs", f"{profile}/log_files")
    if document.accuracy is not None and timed:
        page.path("choose", f"gnomon space select {shlex.quote(profile)}")
    for path in document.pictures:
        page.path("picture", path)
    page.path("profile", profile)


def _latencies_missing(document: SpaceDocument) -> str:
    """The next step if no network has a latency: it depends on whether measuring was tried and images are known."""
    if document.latency:
        return "See the reasons above, or repeat the command that made the profile with another --toolchain NAME."
    if document.data:
        return "Repeat the command that made the profile without --no-latency."
    return f"Import a FILE with latencies: gnomon space import FILE --profile-dir {shlex.quote(document.profile)}"


def exported_report(document: SpaceExportDocument, page: Page) -> None:
    """Write how many rows the csv has, and how many of them have an accuracy or a latency."""
    page.headline(f"{document.rows} rows, {document.accuracies} with an accuracy, {document.latencies} with a latency.")
    page.path("nets", document.file)


def primitives_report(document: PrimitivesDocument, page: Page) -> None:
    """Write all primitives: name, family, layers, and the digest, which is the same in any numbering."""
    page.headline(f"{many(len(document.primitives), 'primitive')} in the numbering {document.numbering}.")
    page.table(
        Table(document.primitives)
        .text("primitive", lambda row: row.name)
        .text("family", lambda row: row.family)
        .text("made of", lambda row: row.meaning)
        .text("digest", lambda row: row.digest[:16], least=16)
    )
    page.line("")
    page.line("Primitives with equal digests are the same block, even if their names differ.")


def toolchains_report(document: ToolchainsDocument, page: Page) -> None:
    """Write which toolchains can be used, and what the others lack."""
    toolchains = document.toolchains
    ready = [toolchain.name for toolchain in toolchains if not toolchain.missing]
    usable = f": {listed(ready)}" if ready else ""
    page.headline(f"{len(ready)} of {len(toolchains)} toolchains can be used here{usable}.")
    table = Table(toolchains).text("toolchain", lambda row: row.name).text("measured by", lambda row: row.measured_by)
    words = ("requirement missing", "requirements missing")
    page.table(table.text("", lambda row: many(len(row.missing), *words) if row.missing else "ready"))
    for toolchain in toolchains:
        if toolchain.missing:
            page.heading(f"Missing for {toolchain.name}")
        for missing in toolchain.missing:
            page.item(sentence(missing.what), missing.hint)

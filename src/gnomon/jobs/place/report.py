"""The reports of `gnomon place` (on one or several devices) and `gnomon profile`, also for several sizes or inputs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from gnomon.core.stats import Comparison
from gnomon.jobs.place.document import (
    ColumnPart,
    ContenderPart,
    DeployDocument,
    FleetDocument,
    InsidePart,
    PlaceDocument,
    PlacedOperator,
    ProfileDocument,
    Seconds,
    SweepDocument,
    SweepPart,
)
from gnomon.jobs.place.shared_report import (
    closing,
    conditions_line,
    doubts,
    fed_inputs,
    first_warnings,
    missing,
    model_line,
    unproved,
)
from gnomon.jobs.place.sustained_report import sustained_text
from gnomon.jobs.solve.report import limit_line
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS
from gnomon.report.page import Page, Table, ends_of
from gnomon.report.parts import (
    assignment_text,
    bounds,
    bounds_and_outcome,
    certainty,
    counted,
    failure_text,
    is_open,
    numbers,
)
from gnomon.report.plain import listed, many
from gnomon.session.kernels import KernelPart

_EXPENSIVE = 10
_NO_OPERATOR = "(no operator)"


def place_report(document: PlaceDocument, page: Page) -> None:
    """Write the report: the answer first, then its evidence, then the warnings."""
    page.headline(document.decision.reason)
    _measured_model(document, page)
    contenders_table(document, page)
    _limits(document, page)
    with page.details("why nothing is mixed"):
        _why_not_mixed(document, page)
    with page.details("the solver's proof"):
        _solved(document, page)
    with page.details("the choice operator by operator"):
        _plan(document, page)
    package_proof(document, page)
    _what_speaks_against(document, page, {c.label for c in document.contenders if c.failure})
    _files(document, page)
    if document.deployed:
        deploy_report(document.deployed, page)
    _closing(document, page)


def _measured_model(document: PlaceDocument | ProfileDocument, page: Page) -> None:
    """Write the conditions of the answer, and the warnings about it."""
    page.conditions(conditions_line(document.model, document.device, document.conditions))
    first_warnings(document.doubts, page)
    if not page.brief:
        page.line(model_line(document.model, document.device, document.versions))


def _what_speaks_against(document: PlaceDocument | ProfileDocument, page: Page, explained: set[str]) -> None:
    fed_inputs(document.conditions, page)
    missing(document.missing, page, explained=explained)
    doubts(document.doubts, page)


def _closing(document: PlaceDocument | ProfileDocument, page: Page) -> None:
    closing(
        page,
        record=document.record,
        campaign=document.campaign,
        seconds=document.seconds,
        waited_s=document.waited_s,
        resumed_from="an interrupted run" if document.resumed else "",
    )


def contenders_table(document: PlaceDocument, page: Page) -> None:
    """Write each configuration's time and its ratio to the best single backend, then the failed configurations."""
    clock, decision, best = document.clock, document.decision, document.decision.best_single
    if not page.brief:
        page.heading(f"One inference, decided by {units.CLOCKS[clock]} (median, [95 % interval])")
    summaries = {c.label: summary for c in document.contenders if (summary := c.summary(clock))}
    alive = sorted((c for c in document.contenders if c.label in summaries), key=lambda c: c.level_s or 0.0)
    shown = _first_rows(alive, document) if page.brief else alive
    table = (
        Table(shown, split=6, chosen=lambda c: c.label == decision.chosen)
        .text("configuration", lambda c: c.label, least=20)
        .times("CPU" if clock == "cpu" else "wall", lambda c: summaries[c.label], least=16)
        .times("wall" if clock == "cpu" else "CPU", lambda c: c.summary("wall" if clock == "cpu" else "cpu"), None)
        .number("ratio", lambda c: "1" if c.label == best else units.digits(r.ratio) if (r := c.against_best) else "-")
        .text("to the best backend", lambda c: _against_best(c, document), least=21)
        .number("predicted", lambda c: c.predicted_s, units.time)
        .number("peak memory", lambda c: c.peak_rss_bytes, units.mebibytes)
        .number("max abs error", lambda c: c.difference.absolute if c.difference else None, units.small)
        .number("unattributed", lambda c: c.unattributed_s, units.time, extra=True)
        .number("profiler overhead", lambda c: c.profiler_overhead_s or None, units.time, extra=True)
        .number("p90", lambda c: summaries[c.label].p90_s, units.time, extra=True)
        .number("p99", lambda c: summaries[c.label].p99_s, units.time, extra=True)
        .number("load", lambda c: c.runs.load_s, units.time, extra=True)
        .number("first call", lambda c: c.runs.first_call_s, units.time, extra=True)
        .number("samples", lambda c: f"{summaries[c.label].n} in {summaries[c.label].processes}", extra=True)
        .bars(
            f"Median {units.CLOCKS[clock]} of one inference, with its 95 % interval",
            lambda c: ends_of(summaries[c.label]),
        )
    )
    page.table(table)
    page.draw("gnomon.jobs.place.picture:predicted_charts", document)
    if len(shown) < len(alive):
        page.omitted.append(many(len(alive) - len(shown), "more configuration"))
    kinds = {c.kind for c in shown}
    notes = ["> is the choice", "a ratio below 1 is faster"]
    if "plan" in kinds:
        notes.append("plan: the solver's choice")
    if "greedy" in kinds:
        notes.append("greedy: each part on the backend that runs it fastest")
    if any(c.usual for c in shown):
        notes.append("default: the runtime's own settings")
    if clock == "wall":
        notes += _why_wall(document.contenders)
        if any(c.threads == 1 and not c.usual for c in alive):
            notes.append("single-threaded rows compare by CPU time, others by wall time of the fastest 20 % of calls")
        else:
            notes.append("order and ratio are those of the fastest 20 % of calls, which nothing else interrupted")
    notes.append(counted(list(summaries.values())))
    with page.details("what the columns are"):
        page.note("; ".join(notes) + ".")
    processes = max(summary.processes for summary in summaries.values())
    if not decision.undecided:  # a warning names what is undecided, and what to do
        certainty([(c.label, c.against_best) for c in shown], decision.best_single, processes, page)
    for contender in document.contenders:
        if contender.failure:
            how = "was refused" if contender.failure.kind in ("wrong-output", "refused") else "failed"
            page.item(f"{contender.label} {how}: {failure_text(contender.failure)}")
    with page.details("what rose or fell while measuring"):
        _restless([c.label for c in alive if summaries[c.label].trend], page)


def _limits(document: PlaceDocument, page: Page) -> None:
    """Write the uses of each limit, the cost of the limits, and the contenders that break them."""
    if document.limits:
        cost_s, names = document.limits_cost_s, listed([limit.name for limit in document.limits])
        cost = f", which cost {units.time(cost_s)}" if cost_s else "" if cost_s is None else ", which cost nothing"
        page.heading(f"Within limits of {names}{cost}")
    for limit in document.limits:
        page.line(limit_line(limit, units.time), indent=1)
    for contender in document.contenders:
        if contender.breaks:
            page.item(f"{contender.label} is not a candidate: {contender.breaks}.")


def _restless(labels: Sequence[str], page: Page) -> None:
    if labels:
        page.item(f"Times rose or fell while measuring: {listed(labels)}.", "Measure again at a quieter time.")


_MOST_ROWS = 6


def _first_rows(alive: Sequence[ContenderPart], document: PlaceDocument) -> list[ContenderPart]:
    """The rows of a brief table: the choice, the contenders it is compared with, and the fastest of the others."""
    decision = document.decision
    named = {decision.chosen, decision.best_single, decision.default.label if decision.default else ""}
    first = [c for c in alive if c.label in named]
    kept = {c.label for c in [*first, *(c for c in alive if c not in first)][:_MOST_ROWS]}
    return [c for c in alive if c.label in kept]


def _why_wall(contenders: Sequence[ContenderPart]) -> list[str]:
    """The reason why wall time decides, if an accelerator computes alongside the processor."""
    beside = dict.fromkeys(accelerator.backend for c in contenders for accelerator in c.accelerators)
    computes = f"{' and '.join(beside)} compute{'s' if len(beside) == 1 else ''} beside the processor"
    return [f"wall time decides, because {computes} and CPU time is not the whole time"] if beside else []


def _against_best(contender: ContenderPart, document: PlaceDocument) -> str:
    ratio, best = contender.against_best, contender.label == document.decision.best_single
    asked = document.conditions.precisions if document.conditions else (contender.precision,)
    # A precision that was not requested and is therefore never chosen.
    coarser = "" if contender.precision in (*asked, "") else f" in {contender.precision}"
    return ("(best backend)" if best else bounds_and_outcome(ratio) if ratio else "") + coarser


def _why_not_mixed(document: PlaceDocument, page: Page) -> None:
    if document.why_not_mixed and all(c.kind == "single" for c in document.contenders):
        ideal, why = document.ideal_s, document.why_not_mixed
        free = f" Every block on its best runtime would take {units.time(ideal)}." if ideal and not page.brief else ""
        why = f"N{why[1:]}" if why.startswith("not cut") else f"Not mixed: {why}"
        page.line(f"{why}.{free}")


def _solved(document: PlaceDocument, page: Page) -> None:
    for name, solution in document.solutions.items():
        proof = (
            "the exact minimum of the prices"
            if solution.optimal
            else "the best solution found, not proved to be the minimum"
        )
        page.line(f"Solver ({name}): {proof}, {units.time(solution.value_s)}, by {solution.method}.")


def _plan(document: PlaceDocument, page: Page) -> None:
    chosen = document.chosen
    page.heading("The choice, operator by operator")
    page.line(assignment_text(chosen.assignment), indent=1)
    columns = list(document.operators[0].times_s) if document.operators else []
    if not columns:
        return
    used = set(chosen.assignment)
    first = sorted(columns, key=lambda name: name not in used and name.rpartition(":")[2] not in used)
    shown = [name for name in columns if name in first[: 3 if page.width < 100 else 5]]
    own = [(c.label, kernel) for c in document.contenders if c.label in shown for kernel in c.kernels]
    mute = [label for label, kernel in own if kernel.operators]
    if mute:
        page.line(f"No times of operators are reported by {listed(mute)}.", indent=1)
    _expensive(document, shown, [(label, kernel) for label, kernel in own if not kernel.operators], bool(mute), page)
    if len(shown) < len(columns):
        page.note(f"--json has {many(len(columns) - len(shown), 'more column')}.")


def _expensive(
    document: PlaceDocument, shown: Sequence[str], own: Sequence[tuple[str, KernelPart]], mute: bool, page: Page
) -> None:
    """Write the most expensive operators and kernels without an operator; if `mute`, only those with a time."""
    chosen, resolutions_s = document.chosen, document.resolutions_s
    rows: list[tuple[float, bool, list[str]]] = []  # seconds, whether they belong to the choice, and cells
    for row, time_s in zip(document.operators, chosen.operators_s, strict=True):
        cells = [_cell(row, name, document) for name in shown]
        rows.append((time_s or 0.0, True, [f"{row.index} {row.name}", row.type, row.planned or "-", *cells]))
    for label, kernel in own:
        took = units.counted_time(kernel.time_s, resolutions_s.get(label, 0.0))
        cells = [took if name == label else "-" for name in shown]
        rows.append((kernel.time_s, label == chosen.label, [kernel.name, _NO_OPERATOR, "-", *cells]))
    ranked = sorted((row for row in rows if row[0] or not mute), key=lambda row: -row[0])[:_EXPENSIVE]
    if not ranked:
        return
    has_kernels = any(cells[1] == _NO_OPERATOR for _, _, cells in ranked)
    known_s = sum(time_s for time_s, is_chosen, _ in ranked if is_chosen)  # 0 if the choice itself was not profiled
    share = f", {units.share(known_s / chosen.level_s)} of the whole" if known_s and chosen.level_s else ""
    what = "operators and kernels" if has_kernels else "operators"
    page.heading(f"The {len(ranked)} most expensive {what}{share} ({units.CLOCKS[document.clock]})")
    table = Table(cells for _, _, cells in ranked)
    table.text("operator", itemgetter(0), least=16).text("type", itemgetter(1), most=20)
    table.text("planned", itemgetter(2), least=8, most=32)
    for place, name in enumerate(shown, 3):
        table.number(name, itemgetter(place))
    page.table(table)
    notes = ["traced by the runtimes, scaled to calls without the profiler"]
    if any(cell.startswith("with ") for _, _, cells in ranked for cell in cells[3:]):
        notes.append("with 3: computed in one kernel with operator 3, whose time includes both")
    if has_kernels:
        notes.append(f"{_NO_OPERATOR}: a kernel that belongs to no single operator of the model")
    page.note("Times: " + "; ".join(notes) + ".")


def _cell(row: PlacedOperator, name: str, document: PlaceDocument) -> str:
    if name in row.within:
        return f"with {row.within[name]}"
    return units.counted_time(row.times_s[name], document.resolutions_s.get(name, 0.0))


def _proven(document: PlaceDocument) -> tuple[int, int]:
    """The number of the package's operators that ran where planned, and the number that were planned."""
    planned = sum(row.planned is not None for row in document.operators)
    return planned - len(document.verified.moved), planned


def package_proof(document: PlaceDocument, page: Page) -> None:
    """Write where the operators ran when the package was run from its own files, and whether its outputs were right."""
    verified, difference = document.verified, document.verified.difference
    why = unproved(document.doubts, document.reference, document.reference_checked_by)
    checked, (good, planned) = document.reference_checked_by, _proven(document)
    if page.brief and not (verified.failure or verified.skipped or verified.moved):
        off = difference.relative if difference else None
        near = "" if off is None else f"; its outputs equal the reference within {units.small(off)} of the largest"
        near = "; its outputs equal the reference" if off == 0 else near
        ran = f"{planned} of {planned} operators of the package ran where planned"
        by = f", which {checked} confirms" if checked and near else ""
        page.line(f"{ran}; {why}." if why else f"Proved: {ran}{near}{by}.")
        return
    page.heading("The package, run from its own files")
    if verified.failure:
        page.item(f"It failed: {failure_text(verified.failure)}", "Do not deploy it; measure again.")
        return
    if verified.skipped:
        page.line("The package was not run, because no more measurements were allowed.", indent=1)
        return
    page.line(f"{good} of {planned} operators ran where planned, as reported by the runtime.", indent=1)
    if verified.moved:
        page.item(f"Ran elsewhere: operators {numbers(verified.moved)}.", "Do not deploy it before you know why.")
    if difference and difference.absolute == 0 and not why:
        page.line("Its outputs equal the reference.", indent=1)
    elif difference and difference.absolute is not None:
        page.line(
            f"Its outputs differ from the reference by at most {units.small(difference.absolute)}, which is "
            f"{units.small(difference.relative)} of the largest.",
            indent=1,
        )
    if document.reference:
        page.line(f"The reference: {document.reference}{f'; {checked} confirms it' if checked else ''}.", indent=1)
    if why:
        page.item(f"{why[:1].upper()}{why[1:]}.")


def _files(document: PlaceDocument, page: Page) -> None:
    with page.details("the files"):
        page.heading("Written")
    package, device, verified = document.package, document.device, document.verified
    if package is None:
        good = "run" if unproved(document.doubts, document.reference, document.reference_checked_by) else "proved"
        done = "not run" if verified.skipped else good if verified.ok else "not proved"
        page.line(f"The package was {done} and, because of --no-package, not kept.", indent=2)
        return
    if device != "local" and document.deployed is None:
        page.path("deploy", f"gnomon deploy {shlex.quote(package)} {shlex.quote(device)}")
    with page.details("the files"):
        page.path("package", package)
    page.path("run it", f"cd {shlex.quote(package)} && {document.run} --output out.npz")
    if document.program:
        page.path("in code", f"{package}/{document.program}")
    with page.details("the files"):
        for picture in document.pictures:
            page.path("picture", picture)


def deploy_report(document: DeployDocument, page: Page) -> None:
    """Write the location of a package on a device, the command that starts it there, and the time of a call."""
    page.headline(f"{document.headline()[1]}.")
    if document.unlike:
        page.item(f"The package was {document.unlike}.")
    page.path("folder", document.folder)
    page.path("run it", document.run)
    page.path("service", f"systemctl --user enable --now {shlex.quote(document.unit)}")


def profile_report(document: ProfileDocument, page: Page) -> None:
    """Write the report: the configurations, then the most expensive kernels of each."""
    columns = sorted(document.columns, key=lambda c: (c.against_fastest is not None, c.level_s))
    page.headline(_profile_headline(columns, document.clock))
    _measured_model(document, page)
    with page.details("what the columns are"):
        clock = units.CLOCKS[document.clock]
        page.heading(f"One inference (median, [95 % interval]; a ratio above 1 is slower, by {clock})")
    shown = columns[:_MOST_ROWS] if page.brief else columns
    if len(shown) < len(columns):
        page.omitted.append(many(len(columns) - len(shown), "more configuration"))
    page.table(
        Table(shown, split=6)
        .text("configuration", lambda c: c.label, least=20)
        .times("wall", lambda c: c.wall, least=16)
        .number("CPU", lambda c: units.time(c.cpu.median_s) if c.cpu else "not reported")
        .number("ratio", lambda c: units.digits(r.ratio) if (r := c.against_fastest) else "1")
        .text("to the fastest", lambda c: bounds_and_outcome(r) if (r := c.against_fastest) else "", least=21)
        .number("p90", lambda c: c.wall.p90_s, units.time)
        .number("load", lambda c: c.load_s, units.time)
        .number("first call", lambda c: c.first_call_s, units.time)
        .number("peak memory", lambda c: c.peak_rss_bytes, units.mebibytes)
        .number("max abs error", lambda c: c.difference.absolute if c.difference else None, units.small)
        .number("unattributed", lambda c: c.unattributed_s, units.time, extra=True)
        .number("profiler overhead", lambda c: c.profiler_overhead_s or None, units.time, extra=True)
        .number("p10", lambda c: c.wall.p10_s, units.time, extra=True)
        .number("p99", lambda c: c.wall.p99_s, units.time, extra=True)
        .number("samples", lambda c: f"{c.wall.n} in {c.wall.processes}", extra=True)
        .bars(
            f"Median {units.CLOCKS[document.clock]} of one inference, with its 95 % interval",
            lambda c: ends_of(c.summary(document.clock)),
            lambda c: CHOSEN if c.label == document.fastest else LOOKS[0],
        )
    )
    with page.details("what the columns are"):
        page.note(f"{counted([c.wall for c in columns])}.")
    compared = [(c.label, c.against_fastest) for c in columns]
    certainty(compared, columns[0].label, max(c.wall.processes for c in columns), page)
    _restless([c.label for c in columns if c.wall.trend], page)
    if document.sustained:
        sustained_text(document.sustained, page)
    with page.details("the most expensive kernels"):
        for column in columns:
            _kernels(column, document, page)
    for column in columns:
        _inside(column, document, page)
    _what_speaks_against(document, page, set())
    _closing(document, page)


def _profile_headline(columns: Sequence[ColumnPart], clock: str) -> str:
    """The winner with its interval, or a tie. `columns` are sorted, the fastest first."""
    fastest, *others = columns
    took = f"{units.time(fastest.typical_s(clock))} of {units.CLOCKS[clock]}"
    if _on_software(fastest):
        return f"{fastest.label} takes {took}, on a software device: no ratio is reported."
    compared = [(c, c.against_fastest) for c in others if c.against_fastest and not _on_software(c)]
    if not compared:
        return f"{fastest.label} takes {took}{'' if others else '; nothing else was compared'}."
    ties = [(c, against) for c, against in compared if is_open(against)]
    if ties:
        names = " and ".join(f"{c.label} ({units.time(c.typical_s(clock))})" for c in [fastest, *(c for c, _ in ties)])
        only = f", ratio {_ratio(ties[0][1])}" if len(ties) == 1 else ""
        return f"No clear winner by {units.CLOCKS[clock]}: {names} are within the noise{only}."
    nearest, against = min(compared, key=lambda pair: pair[1].ratio)
    if against.verdict == "tie" or against.unit != "process":
        return (
            f"Too few processes for a certain winner: {fastest.label} takes {took}, {nearest.label} "
            f"{_ratio(against)} times as long."
        )
    gain = f"{units.digits(against.ratio)} times as fast as {nearest.label} {bounds(against)}"
    return f"{fastest.label} is fastest: {took}, {gain}."


def _on_software(column: ColumnPart) -> bool:
    return any(device.software for device in column.accelerators)


def _ratio(compared: Comparison) -> str:
    return f"{units.digits(compared.ratio)} {bounds(compared)}"


def _kernels(column: ColumnPart, document: ProfileDocument, page: Page) -> None:
    kernels, label = column.kernels, column.label
    total_s = sum(kernel.time_s for kernel in kernels)
    if total_s <= 0:
        return
    top = sorted(kernels, key=lambda kernel: -kernel.time_s)[:_EXPENSIVE]
    page.heading(f"{label}: the {len(top)} most expensive of {len(kernels)} kernels (with the profiler on)")
    # A converted model has operators of its own, which the document does not contain.
    own = any(row.times_s.get(label) is not None for row in document.operators)
    types = {row.index: row.type for row in document.operators} if own else {}
    table = (
        Table(top)
        .text("kernel", lambda kernel: kernel.name, least=20)
        .number("time", lambda kernel: units.counted_time(kernel.time_s, document.resolutions_s.get(label, 0.0)))
        .number("share", lambda kernel: kernel.time_s / total_s, units.share)
        .text("operators", lambda kernel: (numbers(kernel.operators, most=3) if types else "") or "-")
        .text("types", lambda kernel: _types(kernel.operators, types) or (_NO_OPERATOR if types else "(converted)"))
    )
    if page.width >= 100:
        table.text("backend", lambda kernel: kernel.backend, least=8, most=24)
    page.table(table)


def _types(operators: Iterable[int], types: Mapping[int, str]) -> str:
    """The types of operators, each once; empty if the types are not known."""
    return ", ".join(dict.fromkeys(types[index] for index in operators if types))


def _inside(column: ColumnPart, document: ProfileDocument, page: Page) -> None:
    """Write the kernels that were taken apart; every time is marked, because none was measured inside the model."""
    most = 1 if page.brief else _EXPENSIVE
    apart = [part for part in column.inside if part.steps]
    whole = [part for part in column.inside if part.why]
    if apart:
        page.heading(f"{column.label}: inside its kernels, derived (~) by {units.CLOCKS[document.clock]}")
        types = {row.index: row.type for row in document.operators}
        processes = min(part.saved.processes for part in apart if part.saved)
        page.table(
            Table(
                [row for part in apart[:most] for row in _inside_rows(part, types)],
                split=4,
                note="The parts of a kernel were cut out and run alone. price: the time that a part adds to the parts "
                "before it (the first part includes the call); saved: the additional time if the parts are run one by "
                f"one, each with its own call. Each part ran in {many(processes, 'process', 'processes')}.",
            )
            .text("kernel", itemgetter(0), least=16)
            .text("operators", itemgetter(1))
            .text("types", itemgetter(2))
            .number("price", itemgetter(3))
            .text("[95 % interval]", itemgetter(4), least=16)
            .number("alone", itemgetter(5))
        )
        if len(apart) > most:
            page.note(f"{many(len(apart) - most, 'more kernel was', 'more kernels were')} taken apart: see --json.")
    for part in whole[:most]:
        page.item(f"{column.label}, {part.kernel}: {part.why}")
    if whole[most:]:
        page.line(f"{many(len(whole), 'kernel')} could not be cut completely; --json has the reasons.", indent=1)


def _inside_rows(part: InsidePart, types: dict[int, str]) -> list[list[str]]:
    """A row for each step of a kernel, and one for the saved time."""
    rows = []
    for step in part.steps:
        operators = numbers(sorted(step.operators), most=3)
        rows.append([part.kernel, operators, _types(step.operators, types), *_prices(step.derived, step.alone)])
    return [*rows, [part.kernel, "saved", "(as one)", *_prices(part.saved, part.together)]]


def _prices(price: Seconds | None, alone: Seconds | None) -> list[str]:
    if price is None or alone is None:
        return ["-", "", "-"]
    return [f"~{_signed(price.value_s)}", _between(price), f"~{units.time(alone.value_s)}"]


def _signed(value: float) -> str:
    return f"-{units.time(-value)}" if value < 0 else units.time(value)


def _between(seconds: Seconds) -> str:
    if seconds.low_s is None or seconds.high_s is None:
        return "[not bounded]"
    return f"[{_signed(seconds.low_s)}, {_signed(seconds.high_s)}]"


def fleet_report(document: FleetDocument, page: Page) -> None:
    """Write the report: a row per device, then the warnings and the locations of the packages."""
    placements = document.placements
    page.headline(document.headline()[1])
    if placements:
        page.heading("Each device's own plan (median, [95 % interval])")
        page.table(
            Table(
                placements.items(),
                note="gain: speed relative to the best single backend of the device; proven: operators that ran where "
                "planned, as reported by the runtime.",
            )
            .text("device", lambda row: row[0], least=8, most=20)
            .text("plan", lambda row: row[1].decision.chosen, most=32)
            .times("time", lambda row: row[1].chosen.summary(row[1].clock))
            .number("gain", lambda row: units.digits(g.ratio) if (g := row[1].decision.speedup_vs_best_single) else "-")
            .number("proven", lambda row: _ran_where_planned(row[1]))
            .number("warnings", lambda row: len(row[1].doubts) or "-")
        )
    for device in document.devices:
        if device.error:
            page.item(f"{device.name} has no plan: {device.error.message}", device.error.hint)
    if any(placement.doubts for placement in placements.values()):
        page.heading("Warnings")
    for name, placement in placements.items():
        for doubt in placement.doubts:
            page.item(f"{name}: {doubt.message}.", doubt.hint)
    page.heading("Written")
    for placement in placements.values():
        if placement.package:
            page.path("package", placement.package)
    page.path("record", document.record)
    page.line(f"Elapsed: {units.duration(document.seconds)}.", indent=2)


def _ran_where_planned(placement: PlaceDocument) -> str:
    verified = placement.verified
    good, planned = _proven(placement)
    return "failed" if verified.failure else "not run" if verified.skipped else f"{good} of {planned}"


def sweep_report(document: SweepDocument, page: Page) -> None:
    """Write the report: a row per part, then the warnings and the locations of the packages."""
    page.headline(document.headline()[1])
    answers = document.answers
    first = answers[0]
    page.conditions(f"The first answer: {conditions_line(first.model, first.device, first.conditions)}")
    warnings = list({doubt.message: doubt for answer in answers for doubt in answer.doubts}.values())
    first_warnings(warnings, page)
    table = Table(document.parts)
    for name in document.parts[0].values:
        table.text(name, _part_value(name))
    table.text("choice", lambda part: part.answer.chosen.label if part.answer else "no answer", least=16)
    table.times(
        "time",
        lambda part: part.answer.chosen.summary(part.answer.clock) if part.answer else None,
        "[95 % interval]",
        least=16,
    )
    page.table(table.number("times as fast as the next", lambda part: _over_next(part.answer)))
    for part in document.parts:
        if part.error:
            page.item(f"{part.label}: {part.error.message}", part.error.hint)
    doubts(warnings, page)
    page.heading("Kept")
    for answer in answers:
        if isinstance(answer, PlaceDocument) and answer.package:
            page.path("package", answer.package)
        page.path("show it", f"gnomon runs show {answer.campaign[:8]}")
    page.line(f"Elapsed: {units.duration(document.seconds)}.", indent=2)


def _part_value(name: str) -> Callable[[SweepPart], str]:
    return lambda part: part.values[name]


def _over_next(answer: PlaceDocument | ProfileDocument | None) -> str:
    """The speedup of an answer's choice over the next fastest."""
    if answer is None:
        return "-"
    chosen, ratios = answer.chosen.label, answer.ratios()
    others = [ratio / ratios[chosen] for label, ratio in ratios.items() if label != chosen]
    return units.digits(min(others)) if others else "-"

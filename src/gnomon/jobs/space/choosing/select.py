"""The job `space select`: which primitives are worth searching, from what a profile holds; nothing is measured.

It writes the lookup table that goes to a searcher: milliseconds of each layer under each kept primitive, which it adds
up.

Two models are sums over layers: the costs of each family's own one-change variants, and the effects of all networks
that were measured. The first is exact for one-change variants and knows nothing of what a family's block costs between
another's. That one is written which is less off on mixed networks that it was not made of: on those across families
where the choice has several of them, as nearly all networks of such a space are.

Its error is told beside it, in a file of its own: aw_nas reads each line of the table as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gnomon.core import codec
from gnomon.core.cost import Floats, Ints
from gnomon.core.strict_json import indented
from gnomon.errors import UsageError
from gnomon.formats.aw_nas.tables import write_lookup
from gnomon.jobs.space.document import LookupErrorPart, LookupPart, RuleAccuracies, SelectionDocument
from gnomon.jobs.space.profiling.estimates import (
    Seen,
    accuracy_evidence,
    default_latencies,
    evidence_of,
    latency_evidence,
    method_of,
    milliseconds,
    mixed_space,
    proved_networks,
    swap_accuracies,
    toolchain_of,
)
from gnomon.jobs.space.profiling.folder import OUTPUT, LatencyRow, read_question
from gnomon.jobs.space.profiling.look import SELECTION, beside, imported, read_rows, study_of
from gnomon.jobs.space.profiling.study import Study
from gnomon.spaces.cells.costs import FOLDS, LEAST_MIXED, layer_costs
from gnomon.spaces.cells.effects import Effects, Evidence, fit_effects
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.selection.pareto import ParetoOptions, select_pareto
from gnomon.system.files import save_text

if TYPE_CHECKING:
    from gnomon.spaces.selection.published import Network as OfFamily

Rule = Literal["pareto", "published"]
RULES: tuple[Rule, ...] = get_args(Rule)

Choice = dict[str, Any]
"""The fields of the document that a rule fills: the primitives of each cell group, the family that they are of, .."""

SWAPS, EFFECTS = "one-change variants", "effects of all networks"

Table = tuple[Floats, ...]
"""Milliseconds of each layer under each primitive of the study."""

Rows = tuple[tuple[float, ...], ...]
"""Milliseconds by layer and kept primitive."""


def select_primitives(
    profile: Path,
    rule: Rule = "pareto",
    *,
    method: str | None = None,
    toolchain: str | None = None,
    proofs: bool = False,
    options: ParetoOptions | None = None,
    output: Path | None = None,
    blocks: Sequence[str] = (),
) -> SelectionDocument:
    """Select, and write the config with the selection and, beside it, its lookup table and what was selected.

    `method` and `toolchain` say whose accuracies and latencies; None: the first there are. What `front` measured
    has no part in it unless `proofs` says so. `options` are for the rule "pareto"; the published rule has its constants
    in the config. `output` is where the config with the selection filled in goes (None: into the profile).
    `blocks` are the files of own primitives of the profile.

    UsageError for what the profile lacks, ProblemError for values that the rule cannot use.
    """
    if rule not in RULES:
        raise UsageError(f"there is no rule {rule!r}", hint=f"Rules: {', '.join(RULES)}.")
    study = study_of(profile, blocks)
    accuracies, latencies = read_rows(profile, study)
    method, toolchain = method_of(accuracies, method), toolchain_of(latencies, toolchain)
    seen, rows = evidence_of(study, (accuracies, latencies), method, toolchain, proofs=proofs)
    chosen = _by_pareto(study, seen, rows, options) if rule == "pareto" else _by_published_rule(study, seen, rows)
    groups, family = chosen["groups"], chosen["family"]
    output, known = output or profile / OUTPUT, lookup_of(study, groups, rows)
    lookup, model = None if known is None else write_lookup_files(output, *known), known and known[0]
    text = study.document.output(groups, latency_file=None if lookup is None else str(lookup.absolute()))
    mark = text[: text.startswith("\ufeff")]  # a byte-order mark is one at the beginning alone
    remark = _remark(rule, study.numbering, model if study.document.names_latency_file else None)
    save_text(mark + remark + text[len(mark) :], output, option="--output-yaml")
    candidates = sum(len(one.primitives) for name, one in study.families.items() if family in (None, name))
    selection = SelectionDocument(
        profile=str(profile),
        rule=rule,
        method=method,
        toolchain=toolchain,
        imported={
            "accuracies": imported(row for row in accuracies if row.method == method),
            "latencies": imported(rows.values()),
        },
        images_known=bool(read_question(profile)["data"]["digest"]),
        proofs=proved_networks(accuracies, latencies) if proofs else (),
        numbering=study.numbering,
        meanings={name: one.meaning for name, one in study.primitives.items()},
        unlike_aw_nas=tuple(unlike_aw_nas(study, groups)),
        networks_before=str(candidates**study.layout.group_count),
        networks_after=str(math.prod(map(len, groups))),
        output=str(output),
        lookup=None if lookup is None else str(lookup),
        lookup_model=model,
        latency_file=lookup is not None and study.document.names_latency_file,
        **chosen,
    )
    save_text(indented(selection.document()), beside(output, SELECTION), option="--output-yaml")
    return selection


def unlike_aw_nas(study: Study, groups: Sequence[Sequence[str]]) -> list[str]:
    """The kept primitives whose names stand for other blocks, or for none, in the search framework's own numbering."""
    theirs = published_primitives("aw_nas")
    kept = sorted({name for names in groups for name in names})
    return [name for name in kept if name not in theirs or theirs[name].digest != study.primitives[name].digest]


def _remark(rule: Rule, numbering: str, model: LookupPart | None) -> str:
    """Comments that say where the values come from which were filled in."""
    told = f"# cell_shared_primitives: by gnomon space select --rule {rule}; names in the numbering {numbering!r}.\n"
    return told + ("" if model is None else f"# latency_file: of {model.model}; {model.why}.\n")


def published_prices(
    study: Study, seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow]
) -> tuple[dict[OfFamily, tuple[float, float]], RuleAccuracies]:
    """Accuracies, all of one kind, and milliseconds of the one-change variants that have a latency; and which kind."""
    timed = {
        network.id: (network, milliseconds(row.call_s))
        for family in study.families.values()
        for network in family.swaps()
        if (row := rows.get(network.id)) is not None and row.call_s is not None
    }
    accuracies, kind = swap_accuracies(study, seen, (network for network, _ in timed.values()))
    both = ((*timed[name], accuracy) for name, accuracy in accuracies.items())
    return {(network.family, network.assignment): (accuracy, ms) for network, ms, accuracy in both}, kind


def _by_published_rule(study: Study, seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow]) -> Choice:
    from gnomon.spaces.selection.published import PublishedRule, select_published

    constants = PublishedRule(**codec.fields_of(PublishedRule, study.config.profiler))
    prices, accuracies = published_prices(study, seen, rows)
    primitives = {name: [one.name for one in family.primitives] for name, family in study.families.items()}
    selection = select_published(primitives, prices, constants)
    return {**codec.fields_of(SelectionDocument, selection), "accuracies": accuracies}


def _by_pareto(
    study: Study, seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow], options: ParetoOptions | None
) -> Choice:
    accuracies, latencies = accuracy_evidence(study, seen), latency_evidence(study, rows)
    selection = select_pareto(mixed_space(study), accuracies, latencies, options)
    return codec.fields_of(SelectionDocument, selection)


def lookup_of(
    study: Study, groups: Sequence[Sequence[str]], rows: Mapping[str, LatencyRow]
) -> tuple[LookupPart, Rows] | None:
    """What the table of a choice is of, and the table; None where a kept primitive has no latency in some place."""
    families = {study.primitives[name].family for names in groups for name in names}
    measured = measured_networks(study, rows, families)
    tables = {SWAPS: _of_swaps(study, rows), EFFECTS: _of_effects(study, measured)}
    there = {model: table for model, table in tables.items() if table is not None and _known(study, groups, table)}
    if not there or measured is None:
        return None
    errors = _held_out(study, measured, there)
    model = min(errors, key=lambda name: errors[name].mean) if errors else _untested(families, there)
    kept = tuple(
        tuple(float(there[model][layer][study.places[name]]) for name in groups[group])
        for layer, group in enumerate(study.layout.groups)
    )
    return LookupPart(model=model, why=_why(errors), held_out=errors), kept


def write_lookup_files(output: Path, part: LookupPart, rows: Rows) -> Path:
    """Write the table of an output and, beside it, what it is of and how far it is off; returns the table's path."""
    path = beside(output, "lookup.txt")
    save_text(write_lookup(rows), path, option="--output-yaml")
    about = {"table": path.name, "unit": "ms", **codec.document(part)}
    save_text(indented(about), path.with_suffix(".json"), option="--output-yaml")
    return path


def measured_networks(study: Study, rows: Mapping[str, LatencyRow], families: set[str]) -> Evidence | None:
    """Networks of primitives of these families alone with their latencies in ms; None without any."""
    own = {
        name: row
        for name, row in rows.items()
        if row.call_s is not None and all(study.primitives[n].family in families for n in row.primitives)
    }
    if not own:
        return None
    found = latency_evidence(study, own)
    return replace(found, values=1e3 * found.values, errors=1e3 * found.errors)


def _of_swaps(study: Study, rows: Mapping[str, LatencyRow]) -> Table:
    """The costs of each family's one-change variants; NaN where there is none."""
    table = tuple(np.full(len(study.places), math.nan) for _ in study.layout.groups)
    for cells, measured in default_latencies(study, rows).values():
        costs = layer_costs(cells, measured)
        for layer, (group, row) in enumerate(zip(study.layout.groups, costs.cost_s, strict=True)):
            for name, cost_s in zip(costs.cells.choices[group], row.tolist(), strict=True):
                table[layer][study.places[name]] = cost_s * 1e3
    return table


def _of_effects(study: Study, measured: Evidence | None) -> Table | None:
    """The effects of all networks, a group's evenly over its layers; NaN where a primitive was never measured."""
    if measured is None:
        return None
    effects = _fitted(study, measured)
    constant, tables = float(effects.mean[0]), np.split(effects.mean[1:], study.layout.group_count)
    groups = study.layout.groups
    found = []
    for group in groups:
        row = constant / len(groups) + tables[group] / groups.count(group)
        row[np.setdiff1d(np.arange(len(row)), measured.assignments[:, group])] = math.nan
        found.append(row)
    return tuple(found)


def _fitted(study: Study, measured: Evidence) -> Effects:
    return fit_effects(mixed_space(study), measured, scale="plain")


def _known(study: Study, groups: Sequence[Sequence[str]], table: Table) -> bool:
    """Whether each kept primitive has a number in each layer of its group."""
    return all(
        math.isfinite(table[layer][study.places[name]])
        for layer, group in enumerate(study.layout.groups)
        for name in groups[group]
    )


def _held_out(study: Study, measured: Evidence, tables: Mapping[str, Table]) -> dict[str, LookupErrorPart]:
    """How far each model is off on mixed networks that it was not made of; none where there are too few of these."""
    mixed = _tested(study, measured)
    if len(mixed) < LEAST_MIXED:
        return {}
    found: dict[str, LookupErrorPart] = {}
    truth = measured.values[mixed]
    if SWAPS in tables:
        told = sum(
            tables[SWAPS][layer][measured.assignments[mixed, group]] for layer, group in enumerate(study.layout.groups)
        )
        off = np.abs(np.asarray(told) / truth - 1)
        if np.isfinite(off).all():
            found[SWAPS] = _error(off)
    if EFFECTS in tables:
        off = np.empty(len(mixed))
        fold = np.random.default_rng(0).permutation(len(mixed)) % min(FOLDS, len(mixed))
        for k in range(int(fold.max()) + 1):
            rest = np.setdiff1d(np.arange(len(measured.values)), mixed[fold == k])
            one = _fitted(study, _rows(measured, rest))
            off[fold == k] = np.abs(one.predict(measured.assignments[mixed[fold == k]])[0] / truth[fold == k] - 1)
        found[EFFECTS] = _error(off)
    return found


def _tested(study: Study, measured: Evidence) -> Ints:
    """The networks that models are tested on: mixed ones, of several families if there are enough of these."""
    networks = [study.at(row) for row in measured.assignments.tolist()]
    single = {one.id for family in study.families.values() for one in family.swaps()}
    mixed = np.array([one.id not in single for one in networks])
    across = np.array([not one.family for one in networks])
    return np.flatnonzero(across if across.sum() >= LEAST_MIXED else mixed)


def _rows(measured: Evidence, rows: Ints) -> Evidence:
    return Evidence(assignments=measured.assignments[rows], values=measured.values[rows], errors=measured.errors[rows])


def _error(off: Floats) -> LookupErrorPart:
    return LookupErrorPart(networks=len(off), mean=float(off.mean()), worst=float(off.max()))


def _untested(families: set[str], there: Mapping[str, Table]) -> str:
    """Where nothing can be tested: what is exact for a family's own variants, or knows of several families."""
    wanted = SWAPS if len(families) == 1 else EFFECTS
    return wanted if wanted in there else next(iter(there))


def _why(errors: Mapping[str, LookupErrorPart]) -> str:
    if not errors:
        return f"fewer than {LEAST_MIXED} mixed networks were measured, so that nothing could be tested"
    told = "; ".join(
        f"{name} {100 * one.mean:.1f} % off on average, {100 * one.worst:.1f} % at worst"
        for name, one in errors.items()
    )
    count = next(iter(errors.values())).networks
    return f"on {count} mixed networks that were not fitted to: {told}"

"""The job `space select`: chooses, from a profile, the primitives that are worth searching; nothing is measured.

It writes a lookup table for a searcher: the milliseconds of each layer with each kept primitive, which the searcher
adds up. Of all tables without negative numbers, this is the one whose sums are closest, in relative terms, to the
estimated times of the selected networks. The table's intervals and error are in a separate file, because aw_nas reads
each line of the table as numbers.
"""

from __future__ import annotations

import itertools
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
    LEAST_MIXED,
    NORMAL_95,
    Accuracy,
    accuracy_evidence,
    evidence_of,
    latency_evidence,
    method_of,
    milliseconds,
    proved_networks,
    swap_accuracies,
    toolchain_of,
)
from gnomon.jobs.space.profiling.folder import OUTPUT, LatencyRow, read_question
from gnomon.jobs.space.profiling.look import SELECTION, beside, imported, read_rows, study_of
from gnomon.jobs.space.profiling.study import OF_SPACE, Study
from gnomon.spaces.cells.effects import Evidence, Learned, learn
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.selection.pareto import ParetoOptions, select_pareto
from gnomon.system.files import save_text

if TYPE_CHECKING:
    from gnomon.spaces.selection.published import Network as OfFamily

Rule = Literal["pareto", "published"]
RULES: tuple[Rule, ...] = get_args(Rule)

Choice = dict[str, Any]
"""The fields of the document that a rule fills in: the primitives of each cell group, their family, .."""

SUMS = "costs of all networks"

Rows = tuple[tuple[tuple[float, float, float], ...], ...]
"""Milliseconds by layer and kept primitive, each with the ends of its 95 % interval."""

_FOLDS = 8
_SUMMED = 1000  # the most networks whose sums are considered
_STEPS, _HELD = 8, 1e-3  # iterations for the closest costs, and the weight that keeps them near the estimates


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
    """Select primitives; write the config with them and, next to it, the lookup table and the selection's document.

    The accuracies of `method` and the latencies of `toolchain` are used (None: the first available), and with `proofs`
    also the measurements of `front`. `options` are for the rule "pareto"; the constants of the published rule are in
    the config. `output` is the path of the config with the selection (None: in the profile). `blocks` are the files of
    the profile's own primitives.

    UsageError if the profile lacks accuracies or latencies, ProblemError for values that the rule cannot use.
    """
    if rule not in RULES:
        raise UsageError(f"there is no rule {rule!r}", hint=f"Rules: {', '.join(RULES)}.")
    study = study_of(profile, blocks)
    accuracies, latencies = read_rows(profile, study)
    method, toolchain = method_of(accuracies, method), toolchain_of(latencies, toolchain)
    seen, rows = evidence_of(study, (accuracies, latencies), method, toolchain, proofs=proofs)
    if rule == "pareto":
        evidence = accuracy_evidence(study, seen), latency_evidence(study.space, rows)
        chosen = codec.fields_of(SelectionDocument, select_pareto(study.space, *evidence, options))
    else:
        chosen = _by_published_rule(study, seen, rows)
    groups, family = chosen["groups"], chosen.get("family")
    output, table = output or profile / OUTPUT, lookup_of(study, groups, rows)
    lookup, model = None if table is None else write_lookup_files(output, *table), table and table[0]
    text = study.document.output(groups, latency_file=None if lookup is None else str(lookup.absolute()))
    mark = text[: text.startswith("\ufeff")]  # a byte-order mark is valid only at the beginning
    remark = _remark(rule, study.numbering, model if study.document.names_latency_file else None)
    save_text(mark + remark + text[len(mark) :], output, option="--output-yaml")
    sizes = [own.counts for name, own in study.families.items() if family in (None, name)]
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
        slots=tuple(slot.name for slot in study.space.slots) if study.numbering == OF_SPACE else (),
        meanings={name: primitive.meaning for name, primitive in study.primitives.items()},
        unlike_aw_nas=tuple(unlike_aw_nas(study, groups)),
        networks_before=str(math.prod(map(sum, zip(*sizes, strict=True)))),
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
    """The kept primitives whose names mean a different block, or no block, in aw_nas's numbering."""
    if study.numbering == OF_SPACE:
        return []
    theirs = published_primitives("aw_nas")
    kept = sorted({name for names in groups for name in names})
    return [name for name in kept if name not in theirs or theirs[name].digest != study.primitives[name].digest]


def _remark(rule: Rule, numbering: str, model: LookupPart | None) -> str:
    """Comments about the origin of the values that gnomon wrote into the config."""
    text = f"# cell_shared_primitives: by gnomon space select --rule {rule}; names in the numbering {numbering!r}.\n"
    return text + ("" if model is None else f"# latency_file: {model.model}; {model.why}.\n")


def published_prices(
    study: Study, seen: Mapping[str, Accuracy], rows: Mapping[str, LatencyRow]
) -> tuple[dict[OfFamily, tuple[float, float]], RuleAccuracies]:
    """The accuracy and the milliseconds of each one-change variant with a latency, and the kind of these accuracies."""
    timed = {
        network.id: (network, milliseconds(row.call_s))
        for family in study.families.values()
        for network in family.swaps()
        if (row := rows.get(network.id)) is not None and row.call_s is not None
    }
    accuracies, kind = swap_accuracies(study, seen, (network for network, _ in timed.values()))
    both = ((*timed[name], accuracy) for name, accuracy in accuracies.items())
    return {(network.family, network.assignment): (accuracy, ms) for network, ms, accuracy in both}, kind


def _by_published_rule(study: Study, seen: Mapping[str, Accuracy], rows: Mapping[str, LatencyRow]) -> Choice:
    from gnomon.spaces.selection.published import PublishedRule, select_published

    constants = PublishedRule(**codec.fields_of(PublishedRule, study.config.profiler))
    prices, accuracies = published_prices(study, seen, rows)
    primitives = {name: [primitive.name for primitive in family.primitives] for name, family in study.families.items()}
    selection = select_published(primitives, prices, constants)
    return {**codec.fields_of(SelectionDocument, selection), "accuracies": accuracies}


def lookup_of(
    study: Study, groups: Sequence[Sequence[str]], rows: Mapping[str, LatencyRow]
) -> tuple[LookupPart, Rows] | None:
    """The model behind the lookup table of a selection, and the table; None if a kept primitive lacks a latency."""
    families = {study.primitives[name].family for names in groups for name in names}
    measured, kept = measured_networks(study, rows, families), study.places(groups)
    if measured is None or not all(np.isin(own, measured.assignments[:, g]).all() for g, own in enumerate(kept)):
        return None
    learned = learn(study.space, measured, scale="sums")
    costs, spreads, layers = _closest(learned, kept), _spreads(learned), study.layout.groups
    table = []
    for g in layers:
        ms, spread = 1e3 * costs[g][kept[g]] / layers.count(g), spreads[g][kept[g]]
        table.append(tuple(map(tuple, np.column_stack([ms, ms / spread, ms * spread]).tolist())))
    error = sums_held_out(study, measured)
    part = LookupPart(model=SUMS, why=_why(error), held_out={} if error is None else {SUMS: error})
    return part, tuple(table)


def _closest(learned: Learned, kept: Sequence[Sequence[int]]) -> list[Floats]:
    """The costs of each group's choices, fitted so that their sums are close to the kept networks' estimated times."""
    effects, rng = learned.effects, np.random.default_rng(0)
    if math.prod(map(len, kept)) <= _SUMMED:
        networks = np.array(list(itertools.product(*kept)), dtype=np.intp)
    else:
        networks = np.column_stack([rng.choice(own, _SUMMED) for own in kept])
    wanted = np.log(learned.predict(networks)[0])
    first = effects.mean
    for _ in range(_STEPS):
        design = effects.design(networks)[:, 1:]
        off = wanted - np.log(effects.totals(effects.mean[None], networks)[0])
        hold = _HELD * len(networks) * np.eye(design.shape[1])
        back = design.T @ off - hold @ (effects.mean - first)[1:]
        step = np.linalg.solve(design.T @ design + hold, back)
        effects = replace(effects, mean=effects.mean + np.concatenate([[0.0], step]))
    return [table[0] for table in effects.tables(effects.mean[None])]


def _spreads(learned: Learned) -> list[Floats]:
    """The factor by which each cost of each group may be larger or smaller, with 95 % probability."""
    slots, covariance = learned.effects.space.slots, learned.effects.covariance
    variance = np.diag(covariance)[1:] + covariance[0, 0] + 2 * covariance[0, 1:]
    half = NORMAL_95 * learned.loose * np.sqrt(np.maximum(variance, 0.0))
    return np.split(np.exp(half), np.cumsum([len(slot.choices) for slot in slots])[:-1])


def write_lookup_files(output: Path, part: LookupPart, rows: Rows) -> Path:
    """Write the lookup table of a config and, next to it, its model and its error. Returns the table's path."""
    path = beside(output, "lookup.txt")
    middle, low, high = ([[cell[k] for cell in row] for row in rows] for k in range(3))
    save_text(write_lookup(middle), path, option="--output-yaml")
    about = {"table": path.name, "unit": "ms", "low": low, "high": high, **codec.document(part)}
    save_text(indented(about), path.with_suffix(".json"), option="--output-yaml")
    return path


def measured_networks(study: Study, rows: Mapping[str, LatencyRow], families: set[str]) -> Evidence | None:
    """The measured networks whose primitives are all from these families, with their latencies; None without any."""
    own = {
        name: row
        for name, row in rows.items()
        if row.call_s is not None and all(study.primitives[n].family in families for n in row.primitives)
    }
    return latency_evidence(study.space, own) if own else None


def sums_held_out(study: Study, measured: Evidence) -> LookupErrorPart | None:
    """The error of summed costs for mixed networks outside the fit; None if there are too few such networks."""
    mixed = _tested(study, measured)
    if len(mixed) < LEAST_MIXED:
        return None
    off = np.empty(len(mixed))
    fold = np.random.default_rng(0).permutation(len(mixed)) % min(_FOLDS, len(mixed))
    for k in range(int(fold.max()) + 1):
        out = mixed[fold == k]
        learned = learn(study.space, measured.at(np.setdiff1d(np.arange(len(measured.values)), out)), scale="sums")
        costs = _closest(learned, [np.unique(column).tolist() for column in measured.assignments.T])
        predicted = sum(own[measured.assignments[out, g]] for g, own in enumerate(costs))
        off[fold == k] = np.abs(predicted / measured.values[out] - 1)
    return LookupErrorPart(networks=len(off), mean=float(off.mean()), worst=float(off.max()))


def _tested(study: Study, measured: Evidence) -> Ints:
    """The mixed networks on which models are tested: only those of several families, if there are enough of them."""
    networks = [study.at(row) for row in measured.assignments.tolist()]
    single = {network.id for family in study.families.values() for network in family.swaps()}
    mixed = np.array([network.id not in single for network in networks])
    across = np.array([not network.family for network in networks])
    return np.flatnonzero(across if across.sum() >= LEAST_MIXED else mixed)


def _why(error: LookupErrorPart | None) -> str:
    if error is None:
        return f"fewer than {LEAST_MIXED} mixed networks were measured, too few for a test of the sums"
    off = f"off by {100 * error.mean:.1f} % on average and {100 * error.worst:.1f} % at worst"
    return f"their sums were {off} for {error.networks} mixed networks outside the fit"

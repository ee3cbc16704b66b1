"""The job `space select`: which primitives are worth searching, from what a profile holds; nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from gnomon.core.strict_json import indented
from gnomon.errors import UsageError
from gnomon.jobs.space.choosing.lookup import lookup_of, write_lookup_files
from gnomon.jobs.space.document import ContenderPart, LookupPart, RuleAccuracies, SelectionDocument, WalkedPart
from gnomon.jobs.space.profiling.estimates import (
    Seen,
    accuracy_evidence,
    evidence_of,
    latency_evidence,
    method_of,
    milliseconds,
    mixed_space,
    proved_networks,
    swap_accuracies,
    toolchain_of,
)
from gnomon.jobs.space.profiling.folder import LatencyRow, read_question
from gnomon.jobs.space.profiling.look import SELECTION, imported, read_rows, study_of
from gnomon.jobs.space.profiling.study import Study
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.selection.pareto import ParetoOptions, select_pareto
from gnomon.spaces.selection.published import Network as OfFamily
from gnomon.spaces.selection.published import PublishedRule, select_published
from gnomon.system.files import save_text

Rule = Literal["pareto", "published"]
RULES: tuple[Rule, ...] = get_args(Rule)
OUTPUT = "output.yaml"

Choice = tuple[tuple[tuple[str, ...], ...], str | None, dict[str, Any]]
"""The primitives of each cell group, the family that they are of, and the fields of the document that a rule fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRequest:
    """What to select by. `method` and `toolchain` say whose accuracies and latencies; None: the first there are.

    What `validate` and `front` measured has no part in it unless `proofs` says so. `options` are for the rule "pareto";
    the published rule has its constants in the config. `output` is where the config with the selection filled in goes
    (None: into the profile). `blocks` are the files of own primitives of the profile.
    """

    profile: Path
    rule: Rule = "pareto"
    method: str | None = None
    toolchain: str | None = None
    proofs: bool = False
    options: ParetoOptions = field(default_factory=ParetoOptions)
    output: Path | None = None
    blocks: tuple[str, ...] = ()


def select_primitives(asked: SelectRequest) -> SelectionDocument:
    """Select, and write the config with the selection, the lookup table of its latencies, and `selection.json`.

    UsageError for what the profile lacks, ProblemError for values that the rule cannot use.
    """
    if asked.rule not in RULES:
        raise UsageError(f"there is no rule {asked.rule!r}", hint=f"Rules: {', '.join(RULES)}.")
    study = study_of(asked.profile, asked.blocks)
    accuracies, latencies = read_rows(asked.profile, study)
    method = method_of(accuracies, asked.method)
    toolchain = toolchain_of(latencies, asked.toolchain)
    seen, rows = evidence_of(study, (accuracies, latencies), method, toolchain, proofs=asked.proofs)
    if asked.rule == "pareto":
        groups, family, details = _by_pareto(study, seen, rows, asked.options)
    else:
        groups, family, details = _by_published_rule(study, seen, rows)
    output, known = asked.output or asked.profile / OUTPUT, lookup_of(study, groups, rows)
    lookup, model = None if known is None else write_lookup_files(asked.profile, toolchain, *known), known and known[0]
    text = study.document.output(groups, latency_file=None if lookup is None else str(lookup.absolute()))
    mark = text[: text.startswith("\ufeff")]  # a byte-order mark is one at the beginning alone
    remark = _remark(asked.rule, study.numbering, model if study.document.names_latency_file else None)
    save_text(mark + remark + text[len(mark) :], output, option="--output-yaml")
    candidates = sum(len(one.primitives) for name, one in study.families.items() if family in (None, name))
    selection = SelectionDocument(
        profile=str(asked.profile),
        rule=asked.rule,
        method=method,
        toolchain=toolchain,
        imported={
            "accuracies": imported(row for row in accuracies if row.method == method),
            "latencies": imported(rows.values()),
        },
        images_known=bool(read_question(asked.profile)["data"]["digest"]),
        proofs=proved_networks(accuracies, latencies) if asked.proofs else (),
        numbering=study.numbering,
        family=family,
        groups=groups,
        meanings={name: one.meaning for name, one in study.primitives.items()},
        unlike_aw_nas=tuple(unlike_aw_nas(study, groups)),
        networks_before=str(candidates**study.layout.group_count),
        networks_after=str(math.prod(map(len, groups))),
        output=str(output),
        lookup=None if lookup is None else str(lookup),
        lookup_model=model,
        latency_file=lookup is not None and study.document.names_latency_file,
        **details,
    )
    save_text(indented(selection.document()), asked.profile / SELECTION, option="--profile-dir")
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
    own = study.config.profiler
    constants = PublishedRule(
        accuracy_threshold=own.accuracy_threshold,
        accuracy_cost_scale=own.accuracy_cost_scale,
        latency_cost_coeff=own.latency_cost_coeff,
        select_ss_threshold=own.select_ss_threshold,
    )
    prices, accuracies = published_prices(study, seen, rows)
    primitives = {name: [one.name for one in family.primitives] for name, family in study.families.items()}
    selection = select_published(primitives, prices, constants)
    walked = tuple(
        WalkedPart(id=study.families[family].network(assignment).id, cost=cost)
        for (family, assignment), cost in zip(selection.networks, selection.costs, strict=True)
    )
    details = {"networks": walked, "counts": selection.counts, "accuracies": accuracies}
    return selection.groups, selection.family, details


def _by_pareto(
    study: Study, seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow], options: ParetoOptions
) -> Choice:
    accuracies, latencies = accuracy_evidence(study, seen), latency_evidence(study, rows)
    selection = select_pareto(mixed_space(study), accuracies, latencies, options)
    contenders = (
        ContenderPart(family=one.family, expected=one.expected, measured=one.measured) for one in selection.contenders
    )
    details = {
        "why": selection.why,
        "share_kept": selection.share_kept,
        "stability": selection.stability,
        "primitives": selection.primitives,
        "contenders": tuple(contenders),
    }
    return selection.groups, selection.family, details

"""The job `space select`: which primitives are worth searching, from what a profile holds; nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from gnomon.core.strict_json import indented
from gnomon.errors import UsageError
from gnomon.jobs.space.choosing.lookup import Lookup, lookup_of, write_lookup_files
from gnomon.jobs.space.profiling.estimates import (
    Seen,
    SwapAccuracies,
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
from gnomon.report.answer import Answer
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.selection.pareto import ParetoOptions, ParetoSelection, select_pareto
from gnomon.spaces.selection.published import NetworkTables, PublishedRule, select_published
from gnomon.system.files import save_text

Rule = Literal["pareto", "published"]
RULES: tuple[Rule, ...] = get_args(Rule)
OUTPUT = "output.yaml"

_DETAILS = ("why", "share_kept", "stability", "primitives", "contenders", "networks", "counts", "accuracies")
"""Keys of the document that one rule fills; null where the other decided."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selected(Answer):
    """The primitives that each cell group keeps, in the numbering of the config, and what speaks for them.

    `proofs` are the networks of earlier proofs that had a part in it.
    """

    asked: SelectRequest
    study: Study
    method: str
    toolchain: str
    groups: tuple[tuple[str, ...], ...]
    family: str | None
    details: Mapping[str, Any]
    imported: Mapping[str, Mapping[str, int]]
    images_known: bool
    proofs: tuple[str, ...]
    output: Path
    lookup: Path | None
    model: Lookup | None

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The profile and the rule, and what each group keeps."""
        kept = "; ".join(", ".join(names) for names in self.groups)
        return f"{self.asked.profile} by {self.asked.rule}", f"Kept: {kept}."

    def document(self) -> dict[str, Any]:
        """As JSON values for reports."""
        families = self.study.families
        counts = [len(one.primitives) for name, one in families.items() if self.family in (None, name)]
        before = sum(counts) ** self.study.layout.group_count
        return {
            "format": "gnomon-space-select",
            "version": 1,
            "profile": str(self.asked.profile),
            "rule": self.asked.rule,
            "method": self.method,
            "toolchain": self.toolchain,
            "imported": {what: dict(origins) for what, origins in self.imported.items()},
            "images_known": self.images_known,
            "proofs": list(self.proofs),
            "numbering": self.study.numbering,
            "family": self.family,
            "groups": [list(names) for names in self.groups],
            "meanings": {name: one.meaning for name, one in self.study.primitives.items()},
            "unlike_aw_nas": unlike_aw_nas(self.study, self.groups),
            "networks_before": str(before),
            "networks_after": str(math.prod(map(len, self.groups))),
            "output": str(self.output),
            "lookup": None if self.lookup is None else str(self.lookup),
            "lookup_model": None if self.model is None else self.model.document(),
            "latency_file": self.lookup is not None and self.study.document.names_latency_file,
            **dict.fromkeys(_DETAILS),
            **self.details,
        }


def select_primitives(asked: SelectRequest) -> Selected:
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
        found = select_pareto(
            mixed_space(study), accuracy_evidence(study, seen), latency_evidence(study, rows), asked.options
        )
        groups, family, details = found.groups, found.family, _pareto_details(found)
    else:
        groups, family, details = _by_published_rule(study, seen, rows)
    output, model = asked.output or asked.profile / OUTPUT, lookup_of(study, groups, rows)
    lookup = None if model is None else write_lookup_files(asked.profile, toolchain, model)
    text = study.document.output(groups, latency_file=None if lookup is None else str(lookup.absolute()))
    mark = text[: text.startswith("\ufeff")]  # a byte-order mark is one at the beginning alone
    remark = _remark(asked.rule, study.numbering, model if study.document.names_latency_file else None)
    save_text(mark + remark + text[len(mark) :], output, option="--output-yaml")
    selected = Selected(
        asked=asked,
        study=study,
        method=method,
        toolchain=toolchain,
        groups=groups,
        family=family,
        details=details,
        imported={
            "accuracies": imported(row for row in accuracies if row.method == method),
            "latencies": imported(rows.values()),
        },
        images_known=bool(read_question(asked.profile)["data"]["digest"]),
        proofs=proved_networks(accuracies, latencies) if asked.proofs else (),
        output=output,
        lookup=lookup,
        model=model,
    )
    text = indented(selected.document())
    save_text(text, asked.profile / SELECTION, option="--profile-dir")
    return selected


def unlike_aw_nas(study: Study, groups: Sequence[Sequence[str]]) -> list[str]:
    """The kept primitives whose names stand for other blocks, or for none, in the search framework's own numbering."""
    theirs = published_primitives("aw_nas")
    kept = sorted({name for names in groups for name in names})
    return [name for name in kept if name not in theirs or theirs[name].digest != study.primitives[name].digest]


def _remark(rule: Rule, numbering: str, model: Lookup | None) -> str:
    """Comments that say where the values come from which were filled in."""
    told = f"# cell_shared_primitives: by gnomon space select --rule {rule}; names in the numbering {numbering!r}.\n"
    return told + ("" if model is None else f"# latency_file: of {model.model}; {model.why}.\n")


def published_tables(
    study: Study, seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow]
) -> tuple[NetworkTables, SwapAccuracies]:
    """The one-change variants of all families that have a latency, with accuracies of one kind, and which kind."""
    timed = {
        network.id: (network, milliseconds(row.call_s))
        for family in study.families.values()
        for network in family.swaps()
        if (row := rows.get(network.id)) is not None and row.call_s is not None
    }
    known = swap_accuracies(study, seen, (network for network, _ in timed.values()))
    both = [(*timed[name], accuracy) for name, accuracy in known.values.items()]
    tables = NetworkTables(
        primitives={name: tuple(one.name for one in family.primitives) for name, family in study.families.items()},
        accuracies={(network.family, network.assignment): accuracy for network, _, accuracy in both},
        latencies={(network.family, network.assignment): milliseconds for network, milliseconds, _ in both},
    )
    return tables, known


def _by_published_rule(
    study: Study, seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow]
) -> tuple[tuple[tuple[str, ...], ...], str, dict[str, Any]]:
    own = study.config.profiler
    constants = PublishedRule(
        accuracy_threshold=own.accuracy_threshold,
        accuracy_cost_scale=own.accuracy_cost_scale,
        latency_cost_coeff=own.latency_cost_coeff,
        select_ss_threshold=own.select_ss_threshold,
    )
    tables, known = published_tables(study, seen, rows)
    found = select_published(tables, constants)
    walked = [
        {"id": study.families[family].network(assignment).id, "cost": cost}
        for (family, assignment), cost in zip(found.networks, found.costs, strict=True)
    ]
    accuracies = {
        "kind": "measured" if known.measured else "believed",
        "trained": known.trained,
        "networks": len(known.values),
    }
    return found.groups, found.family, {"networks": walked, "counts": found.counts, "accuracies": accuracies}


def _pareto_details(found: ParetoSelection) -> dict[str, Any]:
    return {
        "why": found.why,
        "share_kept": [found.share_kept, found.share_low, found.share_high],
        "stability": found.stability,
        "primitives": [
            [
                {
                    "name": one.name,
                    "frequency": one.frequency,
                    "low": one.low,
                    "high": one.high,
                    "stays": one.stays,
                    "again": one.again,
                }
                for one in group
            ]
            for group in found.primitives
        ],
        "contenders": [
            {"family": one.family, "expected": one.expected, "measured": one.measured} for one in found.contenders
        ],
    }

"""The lookup table that goes to a searcher: milliseconds of each layer under each kept primitive, which it adds up.

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

import numpy as np

from gnomon.core import codec
from gnomon.core.cost import Floats, Ints
from gnomon.core.strict_json import indented
from gnomon.formats.aw_nas.tables import write_lookup
from gnomon.jobs.space.document import LookupErrorPart, LookupPart
from gnomon.jobs.space.profiling.estimates import latency_evidence, mixed_space, predictors
from gnomon.jobs.space.profiling.folder import LatencyRow
from gnomon.jobs.space.profiling.predict import FOLDS, LEAST_MIXED
from gnomon.jobs.space.profiling.study import Study
from gnomon.spaces.cells.effects import Effects, Evidence, fit_effects
from gnomon.system.files import save_text

SWAPS, EFFECTS = "one-change variants", "effects of all networks"

Table = tuple[Floats, ...]
"""Milliseconds of each layer under each primitive of the study."""


Rows = tuple[tuple[float, ...], ...]
"""Milliseconds by layer and kept primitive."""


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


def write_lookup_files(profile: Path, toolchain: str, part: LookupPart, rows: Rows) -> Path:
    """Write the table and, beside it, what it is of and how far it is off; returns the table's path."""
    path = profile / f"lookup_table.{toolchain}.txt"
    save_text(write_lookup(rows), path, option="--profile-dir")
    about = {"table": path.name, "unit": "ms", **codec.document(part)}
    save_text(indented(about), path.with_suffix(".json"), option="--profile-dir")
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
    for known in predictors(study, rows).values():
        costs = known.costs
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

"""The published tables of a profile: accuracies and latencies of the single swaps, by their published names."""

from __future__ import annotations

import math
from pathlib import Path

from gnomon.errors import UsageError
from gnomon.formats.flat_tables import write_flat_table
from gnomon.jobs.saving import save_text
from gnomon.jobs.space_estimates import accuracy_effects, method_of, seen_networks
from gnomon.jobs.space_folder import ProfileFolder
from gnomon.jobs.space_latencies import latest, toolchains_of
from gnomon.jobs.space_study import Study

ACCURACIES, LATENCIES = "accuracy_table.yaml", "latency_table.yaml"


def write_tables(folder: ProfileFolder, study: Study) -> list[str]:
    """Write the tables of what the journals hold; returns sentences about what they lack.

    `accuracy_table.yaml` is as published: a share of images by network. Networks that were trained have what was
    measured of them, the others what is believed of them; none where nothing was trained. `latency_table.yaml` has the
    milliseconds of the first toolchain, and `latency_table.<toolchain>.yaml` those of each.
    """
    notes = _accuracies(folder, study)
    swaps = [n.id for family in study.families.values() for n in family.swaps()]
    for number, toolchain in enumerate(toolchains_of(folder.latency.values())):
        rows = latest(folder.latency.values(), toolchain)
        table = {name: row.call_s * 1e3 for name in swaps if (row := rows.get(name)) and row.call_s is not None}
        failed = [name for name in swaps if name not in table]
        if failed:
            notes.append(f"{toolchain}: {len(failed)} of {len(swaps)} single swaps have no latency ({failed[0]}, ..)")
        if table:
            _write(folder.path / f"latency_table.{toolchain}.yaml", write_flat_table(table))
            if number == 0:
                _write(folder.path / LATENCIES, write_flat_table(table))
    return notes


def _accuracies(folder: ProfileFolder, study: Study) -> list[str]:
    try:
        method = method_of(folder.accuracy.values(), None)
    except UsageError:
        return ["no network was trained: there is no table of accuracies"]
    seen = seen_networks(study, folder.accuracy.values(), method)
    table: dict[str, float] = {}
    for family in study.families.values():
        networks = family.swaps()
        effects = accuracy_effects(family, seen)
        if effects is None:
            continue
        believed = effects.predict([n.assignment for n in networks])[0]
        for network, value in zip(networks, believed.tolist(), strict=True):
            table[network.id] = seen[network.id].accuracy if network.id in seen else float(value)
    if table and all(math.isfinite(value) for value in table.values()):
        _write(folder.path / ACCURACIES, write_flat_table(table))
    failed = [row for row in folder.accuracy.values() if row.method == method and row.reason]
    return [f"{len(failed)} trainings failed: {failed[0].network}, {failed[0].reason}"] if failed else []


def _write(path: Path, text: str) -> None:
    save_text(text, path, option="--profile-dir")

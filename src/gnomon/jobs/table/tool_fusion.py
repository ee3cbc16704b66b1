"""Which layers a vendor's converter made one of: by the layers' names in what its tool told, else by times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from gnomon.jobs.table.fusion import together
from gnomon.jobs.table.tool_bench import ToolBench, Write, level_of
from gnomon.models.units import write_net, write_unit
from gnomon.spaces.fuse import (
    UNFUSED,
    Chain,
    Evidence,
    FusionRules,
    Timed,
    candidates,
    from_groups,
    from_times,
    fuse,
    rules_of,
)
from gnomon.spaces.loading import SearchSpace, draw
from gnomon.spaces.unit import Net, Unit

_NETS = 2
_ROUNDS = 4

_HEAVY = (".Conv", ".Linear")
_BENCHES = 3
"""Benches of a unit where times must tell: fewer have no interval."""


def found_chains(
    bench: ToolBench, space: SearchSpace, *, seed: int, benches: int
) -> tuple[FusionRules, list[dict[str, Any]]]:
    """The chains that run as one, and why: whole nets are measured once for the names of their layers.

    Where the names do not tell, units a and b and ab are timed, as where a runtime leaves no trace.
    """
    nets = [space.net(a.tolist()) for a in draw(space.tables(UNFUSED), _NETS, seed=seed)]
    seen = []
    for net in nets:
        told = bench.bench(_net(net, seed))
        groups = [] if isinstance(told, str) else layer_groups(net, told.layers)
        if groups:
            seen.append(from_groups(net, groups))
    evidence = together(seen) if seen else _timed(bench, nets, seed, max(_BENCHES, benches))
    documents = [one.document() for one in evidence]
    return rules_of(evidence), [{**one, "source": "layer names"} for one in documents] if seen else documents


def layer_groups(net: Net, listed: Sequence[str]) -> list[list[str]]:
    """The operators of each layer that a tool lists, by the net's names; none where the names do not tell.

    An operator that is in no layer's name ran within what makes its first input, as a batch normalisation does that was
    folded into its convolution. Tools that name a layer by the last of its operators are known by the first operator of
    all, which no layer names: there it ran within the only one that reads it. Names do not tell where a layer would
    have two convolutions. They count also with "_" in the place of ".", which converters write.
    """
    names = {index: name for name, index, _ in net.layer_names()}
    if len(names) < 2 or any(len(node.unit.layers) > 1 for node in net.nodes):
        return []
    group_of: dict[int, int] = {}
    for number, text in enumerate(listed):
        for index, name in names.items():
            if _names(text, name):
                group_of.setdefault(index, number)
    if len(set(group_of.values())) < 2:
        return []
    if 0 not in group_of:
        behind = _behind(net)
        for index in reversed(names):
            if index not in group_of and behind.get(index) in group_of and net.nodes[index].unit.kinds[0] != "Add":
                group_of[index] = group_of[behind[index]]
    for index, node in enumerate(net.nodes):
        if index not in group_of:
            # An addition is added to what was made last.
            before = max(node.inputs) if node.unit.kinds[0] == "Add" else node.inputs[0]
            if before not in group_of:
                return []
            group_of[index] = group_of[before]
    made: dict[int, list[str]] = {}
    for index, number in sorted(group_of.items()):
        made.setdefault(number, []).append(names[index])
    heavy = [sum(name.endswith(_HEAVY) for name in group) for group in made.values()]
    return [] if max(heavy) > 1 else list(made.values())


def _behind(net: Net) -> dict[int, int]:
    """By node the only one that reads it, where there is but one."""
    readers = net.readers()
    return {ref: index for index, node in enumerate(net.nodes) for ref in node.inputs if ref >= 0 and readers[ref] == 1}


def _names(text: str, name: str) -> bool:
    """Whether a layer's name holds an operator's, by itself and not within a longer one."""
    spelled = "[._]".join(map(re.escape, name.split(".")))
    return re.search(rf"(?<![A-Za-z0-9]){spelled}(?![A-Za-z0-9])", text) is not None


def _timed(bench: ToolBench, nets: Sequence[Net], seed: int, benches: int) -> list[Evidence]:
    """What times tell of one triple of each chain, chains growing by a layer a round."""
    found: list[Evidence] = []
    asked: set[Chain] = set()
    for _ in range(_ROUNDS):
        in_force = rules_of(found)
        new = {c: units for c, units in candidates(fuse(n, in_force) for n in nets).items() if c not in asked}
        asked |= new.keys()
        for chain, triples in sorted(new.items()):
            times = list(_times(bench, triples[0], seed, benches))
            if len(times) == len(triples[0]):
                found.append(from_times(chain, *times))
        if not new:
            break
    return found


def _times(bench: ToolBench, units: Iterable[Unit], seed: int, benches: int) -> Iterable[Timed]:
    """The times of units; fewer where one does not run, or has no interval."""
    for unit in units:
        told = bench.benches(_unit(unit, seed), benches)
        if isinstance(told, str):
            return
        level = level_of([one.time_s for one in told], told[0].floor_s)
        if level.low_s is None or level.high_s is None:
            return
        yield Timed(low_s=level.low_s, mid_s=level.time_s, high_s=level.high_s)


def _net(net: Net, seed: int) -> Write:
    return lambda path: write_net(net, path, seed=seed)


def _unit(unit: Unit, seed: int) -> Write:
    return lambda path: write_unit(unit, path, seed=seed)

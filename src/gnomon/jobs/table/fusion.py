"""Which chains of operators a runtime runs as one: by its own trace of whole nets, else by timing a, b and ab."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gnomon.measure.campaign import Measured
from gnomon.session.bench.baseline import clock_of, place_each, placed_net, placed_unit, timed
from gnomon.session.bench.bench import Bench, Placed
from gnomon.session.contender import traced_candidate
from gnomon.session.kernels import kernels
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
    rules,
    rules_of,
)
from gnomon.spaces.latency_table import Table
from gnomon.spaces.loading import SearchSpace, draw
from gnomon.spaces.unit import Net, Unit, empty

_NETS, _FEW = 2, 16
"""Whole nets that are traced: together they have nearly all kinds of neighbours of a space; all where it has few."""

MULTIPLY = (".Conv", ".Linear", ".MatMul")
"""How the names of layers end that multiply: no runtime runs two of them as one."""

_LEAST = 3
"""Processes of a unit where times must tell: fewer have no interval that is worth the name."""

_PAIRS = 3
"""Different units that are timed for each chain, where no trace tells."""

_ROUNDS = 4
"""The longest chain that times are asked for grows by one layer a round."""


def fused_chains(
    bench: Bench, space: SearchSpace, asked: FusionRules | None, known: Table | None
) -> tuple[FusionRules, list[dict[str, object]]]:
    """The chains that run as one, and why: as the user says, as a table has it, or as the runtime shows."""
    if asked is not None:
        return asked, [{"source": "the user"}]
    if known is not None:
        return rules(known.manifest.rules), [dict(e) for e in known.manifest.evidence]
    single = space.tables(UNFUSED)
    count = single.nets() if single.nets() <= _FEW else _NETS
    nets = [space.net(a.tolist()) for a in draw(single, count, seed=bench.request.seed)]
    traced = list(_traced(bench, nets))
    evidence = from_groups(traced) if traced else _timed(bench, nets)
    return rules_of(evidence), [one.document() for one in evidence]


def _traced(bench: Bench, nets: Sequence[Net]) -> Iterator[tuple[Net, list[list[str]]]]:
    """The layers of each kernel by the runtime's trace of each net; without nets that fail or leave no trace."""
    on_device, _ = place_each(range(len(nets)), lambda number: placed_net(bench, nets[number], "trace"))
    for number, placed in on_device.items():
        net = nets[number]
        effort = replace(bench.request.effort, processes_least=1, processes_most=1)
        candidate = replace(traced_candidate(placed.candidate, len(placed.graph.operators)), process=None)
        bench.runner.sources = placed.sources
        found = bench.runner.measure("fusion", [candidate], effort)[candidate.key]
        grouped = _groups(placed, found, {name for name, _, _ in net.layer_names()}) if found.ok else []
        if len(grouped) > 1:
            yield net, grouped


def _groups(placed: Placed, found: Measured, layers: Collection[str]) -> list[list[str]]:
    """The layers of each kernel, by name. Of a layer that was written as several operators the main one counts.

    A kernel that the runtime does not name leaves its operators to the one behind it: each convolution, and each
    product, begins a group of its own.
    """
    names = [operator.name for operator in placed.graph.operators]
    made: list[list[str]] = []
    for kernel in kernels(placed.graph, found):
        group: list[str] = []
        for name in (names[i] for i in kernel.operators if names[i] in layers):
            if group and name.endswith(MULTIPLY) and any(one.endswith(MULTIPLY) for one in group):
                made.append(group)
                group = []
            group.append(name)
        made.append(group)
    return [group for group in made if group]


def _timed(bench: Bench, nets: Sequence[Net]) -> list[Evidence]:
    """What the times of a, b and ab tell, chains growing by a layer a round."""
    found: list[Evidence] = []
    asked: set[Chain] = set()
    for _ in range(_ROUNDS):
        in_force = rules_of(found)
        new = {c: t[:_PAIRS] for c, t in candidates(fuse(n, in_force) for n in nets).items() if c not in asked}
        if not new:
            break
        asked |= new.keys()
        times = _times(bench, {unit for triples in new.values() for triple in triples for unit in triple})
        for chain, triples in sorted(new.items()):
            told = [[times[unit] for unit in triple] for triple in triples if all(unit in times for unit in triple)]
            ones = [from_times(chain, *three) for three in told]
            if ones:
                # The middle one by what is saved: one unlucky triple decides nothing.
                found.append(sorted(ones, key=lambda e: e.saved or 0.0)[len(ones) // 2])
    return found


def _times(bench: Bench, units: Collection[Unit]) -> dict[Unit, Timed]:
    """What the units that run take without the overhead of a call, each with its interval."""
    first = None if bench.bare else placed_unit(bench, empty((1, 1, 1, 1)), "fusion-empty")
    # One that cannot be placed has no time, and its chain no evidence.
    ordered = sorted(units, key=lambda unit: unit.id)
    placed, _ = place_each(ordered, lambda unit: placed_unit(bench, unit, f"fusion-{unit.id}"))
    processes = max(_LEAST, bench.request.effort.processes_least)
    effort = replace(bench.request.effort, processes_least=processes, processes_most=processes)
    wanted = [*([first] if first else []), *placed.values()]
    found = bench.runner.measure("fusion", [one.candidate for one in wanted], effort)
    if first and not found[first.key].ok:
        return {}
    clock = clock_of(bench, list(found.values()))
    overhead = timed(found[first.key], clock).call_s if first else 0.0
    made = {}
    for unit, one in placed.items():
        told = timed(found[one.key], clock)
        if not told.reason and told.low_s is not None and told.high_s is not None:
            low, mid, high = (max(0.0, end - overhead) for end in (told.low_s, told.call_s, told.high_s))
            made[unit] = Timed(low_s=low, mid_s=mid, high_s=high)
    return made

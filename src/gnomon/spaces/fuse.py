"""Fused groups: single operators joined to the chains that a runtime runs as one.

Which chains a runtime fuses is told by the groups in its optimised graph, or by the times of two units and of both
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gnomon.errors import ProblemError
from gnomon.spaces.layers import kind_of
from gnomon.spaces.unit import Net, Node, Unit

Chain = tuple[str, ...]
Verdict = Literal["fused", "not fused", "cannot tell"]

SHARE = 0.5
"""The share of the shorter time that fused operators save at least, as in nn-Meter (Zhang et al., MobiSys 2021)."""


@dataclass(frozen=True, slots=True)
class FusionRules:
    """The chains of kinds that run as one, such as ("Conv", "BatchNormalization", "Relu6").

    What begins a chain is a chain too: who fuses three fuses the first two, so that groups grow layer by layer.
    """

    chains: frozenset[Chain] = frozenset()

    def __post_init__(self) -> None:
        closed = {chain[:n] for chain in self.chains for n in range(2, len(chain) + 1)}
        for chain in closed:
            for kind in chain:
                kind_of(kind)
        object.__setattr__(self, "chains", frozenset(closed))

    def go_on(self, chain: Chain) -> bool:
        """Whether a group of these kinds could grow."""
        return any(len(longer) > len(chain) and longer[: len(chain)] == chain for longer in self.chains)

    def document(self) -> list[str]:
        """The chains as texts, sorted; `rules` reads them."""
        return sorted("+".join(chain) for chain in self.chains)


UNFUSED = FusionRules()
"""Every operator runs by itself."""


def rules(texts: Iterable[str]) -> FusionRules:
    """The rules of chains such as "Conv+BatchNormalization+Relu6". ProblemError for unknown kinds."""
    return FusionRules(frozenset(tuple(text.split("+")) for text in texts))


def fuse(net: Net, in_force: FusionRules) -> Net:
    """The net whose nodes are the fused groups.

    Nodes join in their order. A node joins the group that makes its first input (or either input of an Add, the later
    one first) where it alone reads that, the net's output counting as a reader, and the rules have the longer chain.
    """
    if not in_force.chains:
        return net
    kinds = [node.unit.kinds for node in net.nodes]
    grouped = groups(kinds, [node.inputs for node in net.nodes], net.readers(), in_force)
    number = {members[-1]: index for index, members in enumerate(grouped)}
    made: list[Node] = []
    for members in grouped:
        unit, inputs = _joined(net, members)
        made.append(Node(unit, tuple(number.get(ref, ref) for ref in inputs)))
    return Net(inputs=net.inputs, nodes=tuple(made), output=number.get(net.output, net.output))


def groups(
    kinds: Sequence[Chain], inputs: Sequence[tuple[int, ...]], readers: Sequence[int], in_force: FusionRules
) -> list[list[int]]:
    """The numbers of the nodes of each group, in an order in which groups can run.

    For each node come its kinds (a group made before has several), what it reads, and how many read it.
    """
    chains = in_force.chains
    members: list[list[int]] = []
    chain_of: list[Chain] = []
    group_of: list[int] = []
    for index, own in enumerate(kinds):
        joins = -1
        for ref in _joinable(own[0], inputs[index]):
            if ref >= 0 and readers[ref] == 1 and chain_of[group_of[ref]] + own in chains:
                joins = group_of[ref]
                break
        if joins < 0:
            joins = len(members)
            members.append([])
            chain_of.append(())
        members[joins].append(index)
        chain_of[joins] += own
        group_of.append(joins)
    return sorted(members, key=lambda group: group[-1])


def joins(net: Net) -> Iterator[tuple[Unit, Unit, Unit]]:
    """Units a, b and ab for each pair of neighbouring nodes that could run as one: what to time to find out."""
    readers = net.readers()
    for index, node in enumerate(net.nodes):
        if len(node.unit.layers) > 1:
            continue
        for ref in _joinable(node.unit.kinds[0], node.inputs):
            if ref >= 0 and readers[ref] == 1:
                yield net.nodes[ref].unit, node.unit, _joined(net, [ref, index])[0]


def _joinable(kind: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """The inputs by which a node may join a group: a unit's chain runs through the first input of its layers."""
    if kind != "Add":
        return inputs[:1]
    return inputs if inputs[0] >= inputs[1] else (inputs[1], inputs[0])


def _joined(net: Net, members: list[int]) -> tuple[Unit, tuple[int, ...]]:
    first = net.nodes[members[0]]
    layers, refs = list(first.unit.layers), list(first.inputs)
    for before, index in pairwise(members):
        node = net.nodes[index]
        others = list(node.inputs)
        others.remove(before)
        layers += node.unit.layers
        refs += others
    unit = Unit(layers=tuple(layers), inputs=tuple(net.shape(ref) for ref in refs), dtype=first.unit.dtype)
    return unit, tuple(refs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Whether a chain runs as one, and by what it was seen.

    `source` is "graph" or "times". From a graph `seen` places had the chain and `fused` of them ran it as one; from
    times `saved` is the share of the shorter one that ran together they save, `low` to `high` its interval.
    """

    chain: Chain
    verdict: Verdict
    source: Literal["graph", "times"]
    seen: int = 0
    fused: int = 0
    saved: float | None = None
    low: float | None = None
    high: float | None = None

    def document(self) -> dict[str, object]:
        """The evidence as JSON values."""
        made: dict[str, object] = {"chain": "+".join(self.chain), "verdict": self.verdict, "source": self.source}
        if self.source == "graph":
            return {**made, "seen": self.seen, "fused": self.fused}
        return {**made, "saved": self.saved, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A time without the overhead of a call, with its interval."""

    low_s: float
    mid_s: float
    high_s: float


def from_times(chain: Chain, a: Timed, b: Timed, ab: Timed) -> Evidence:
    """Whether a and b run as one in ab: they do where much more than `SHARE` of the shorter of them is saved.

    "cannot tell" where the interval of what is saved holds `SHARE`, or the shorter time cannot be told from nothing.
    """
    shorter = min(a, b, key=lambda timed: timed.mid_s)
    if shorter.low_s <= 0:
        return Evidence(chain=chain, verdict="cannot tell", source="times")
    saved = (a.mid_s + b.mid_s - ab.mid_s) / shorter.mid_s
    ends = [
        (a_s + b_s - ab_s) / (a_s if shorter is a else b_s)
        for a_s in (a.low_s, a.high_s)
        for b_s in (b.low_s, b.high_s)
        for ab_s in (ab.low_s, ab.high_s)
    ]
    low, high = min(ends), max(ends)
    verdict: Verdict = "fused" if low > SHARE else "not fused" if high < SHARE else "cannot tell"
    return Evidence(chain=chain, verdict=verdict, source="times", saved=saved, low=low, high=high)


def from_groups(traces: Iterable[tuple[Net, Iterable[Sequence[str]]]]) -> list[Evidence]:
    """What a runtime's optimised graphs of nets tell: of each net the operators that became one kernel, by name.

    The names are those of the written model (see `Net.layer_names`); of a layer that was written as several operators
    any will do. Names of other operators are passed over, and an operator in no group is taken to be alone. A chain
    that is fused in at least half of the places that have it counts as fused. ProblemError where an operator is in two
    groups.
    """
    chains = [told for net, groups in traces for told in _chains(net, _kernels(net, groups))]
    found: list[Evidence] = []
    for chain in sorted({chain for chain, _ in chains}):
        places = [together for other, together in chains if other == chain]
        fused = sum(places)
        verdict: Verdict = "fused" if 2 * fused >= len(places) else "not fused"
        found.append(Evidence(chain=chain, verdict=verdict, source="graph", seen=len(places), fused=fused))
    return found


def _kernels(net: Net, groups: Iterable[Sequence[str]]) -> dict[int, int]:
    """The number of the kernel that each node is in, of those that are in one."""
    named = {name: node for name, node, _ in net.layer_names()}
    group_of: dict[int, int] = {}
    for number, names in enumerate(groups):
        for node in {named[known] for name in names if (known := _known(name, named)) is not None}:
            if group_of.setdefault(node, number) != number:
                raise ProblemError(f"node {node} is in two groups of the runtime", hint="Give each operator once.")
    return group_of


def rules_of(evidence: Iterable[Evidence]) -> FusionRules:
    """The rules of the chains that are fused, by the evidence."""
    return FusionRules(frozenset(one.chain for one in evidence if one.verdict == "fused"))


def candidates(nets: Iterable[Net]) -> dict[Chain, tuple[tuple[Unit, Unit, Unit], ...]]:
    """What to time to find the next rules: for each chain that could be one, the different units a, b and ab.

    Give nets that are fused by the rules found so far: chains then grow by a layer a round until none is found.
    """
    found: dict[Chain, dict[tuple[Unit, Unit, Unit], None]] = {}
    for net in nets:
        for a, b, ab in joins(net):
            found.setdefault(ab.kinds, {})[a, b, ab] = None
    return {chain: tuple(units) for chain, units in found.items()}


def _known(name: str, named: dict[str, int]) -> str | None:
    """The layer that an operator's name belongs to: "n3.0.Linear" for "n3.0.Linear.Flatten"."""
    while name and name not in named:
        name = name.rpartition(".")[0]
    return name or None


def _chains(net: Net, group_of: dict[int, int]) -> list[tuple[Chain, bool]]:
    """Each chain that the runtime has, and each that it would have with one more layer, with whether it is one."""
    readers = net.readers()
    chain_to: list[Chain] = []
    found: list[tuple[Chain, bool]] = []
    for index, node in enumerate(net.nodes):
        kinds = node.unit.kinds
        refs = [ref for ref in node.inputs if ref >= 0 and readers[ref] == 1]
        refs = refs if kinds[0] == "Add" else [ref for ref in refs if ref == node.inputs[0]]
        together = [ref for ref in refs if ref in group_of and group_of.get(index) == group_of[ref]]
        before = max(together, default=max(refs, default=-1))
        if before >= 0:
            found.append((chain_to[before] + kinds, bool(together)))
        chain_to.append(chain_to[before] + kinds if together else kinds)
    return found

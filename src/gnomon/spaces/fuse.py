"""Fused groups: single operators joined to the chains that a runtime runs as one.

Which chains a runtime fuses is evidence (see `gnomon.spaces.fusion_evidence`) and comes as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gnomon.errors import ProblemError
from gnomon.spaces.layers import kind_of
from gnomon.spaces.net import Net, Node
from gnomon.spaces.unit import Unit

Chain = tuple[str, ...]


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

    def joined(self, other: FusionRules) -> FusionRules:
        """The rules of both."""
        return FusionRules(self.chains | other.chains)


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
        if node.unit.dtype != first.unit.dtype or node.unit.layout != first.unit.layout:
            raise ProblemError("units of two data types cannot be fused", hint="Use one data type.")
        others = list(node.inputs)
        others.remove(before)
        layers += node.unit.layers
        refs += others
    unit = Unit(
        layers=tuple(layers),
        inputs=tuple(net.shape(ref) for ref in refs),
        dtype=first.unit.dtype,
        layout=first.unit.layout,
    )
    return unit, tuple(refs)

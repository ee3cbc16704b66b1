"""Fused groups: operators joined into the chains that a runtime runs as one kernel.

The groups in a runtime's optimised graph show which chains the runtime fuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Literal

from gnomon.spaces.layers import ELEMENTWISE, kind_of, layer
from gnomon.spaces.unit import Net, Node, Unit

Chain = tuple[str, ...]
Verdict = Literal["fused", "not fused"]


@dataclass(frozen=True, slots=True)
class FusionRules:
    """The chains of kinds that run as one kernel, such as ("Conv", "BatchNormalization", "Relu6").

    Each beginning of a chain is a chain too: a runtime that fuses three layers also fuses the first two, and groups
    grow layer by layer.
    """

    chains: frozenset[Chain] = frozenset()

    def __post_init__(self) -> None:
        closed = {chain[:n] for chain in self.chains for n in range(2, len(chain) + 1)}
        for kind in {kind for chain in closed for kind in chain}:
            kind_of(kind)
        object.__setattr__(self, "chains", frozenset(closed))

    def go_on(self, chain: Chain) -> bool:
        """Return True if a group of these kinds could grow."""
        return any(len(longer) > len(chain) and longer[: len(chain)] == chain for longer in self.chains)

    def document(self) -> list[str]:
        """The chains as texts, sorted; `rules` reads them."""
        return sorted("+".join(chain) for chain in self.chains)


UNFUSED = FusionRules()
"""Every operator runs on its own."""


def rules(texts: Iterable[str]) -> FusionRules:
    """The rules for chains such as "Conv+BatchNormalization+Relu6". ProblemError for unknown kinds."""
    return FusionRules(frozenset(tuple(text.split("+")) for text in texts))


USUAL = FusionRules(
    frozenset(
        (*product, *shift, activation)
        for product, shift in ((("Conv",), ()), (("Conv", "BatchNormalization"), ()), (("Linear",), ()))
        for activation in ELEMENTWISE
        if activation not in ("Identity", "Zeros")
    )
)
"""The chains that most runtimes fuse: a product with its normalisation and activation."""


def kernels_of(in_force: FusionRules) -> FusionRules:
    """The rules, extended for models in which the exporter folded the normalisation into the convolution."""
    return FusionRules(in_force.chains | {chain for own in in_force.chains if len(chain := _folded(own)) > 1})


def kernel_of(unit: Unit) -> Unit:
    """The unit as an exporter writes it: a convolution and its normalisation become a convolution with a bias."""
    first = unit.layers[0]
    if _folded(unit.kinds) == unit.kinds:
        return unit
    biased = layer("Conv", **{**dict(first.attributes), "bias": True})
    return replace(unit, layers=(biased, *unit.layers[2:]))


def _folded(chain: Chain) -> Chain:
    return (chain[0], *chain[2:]) if chain[:2] == ("Conv", "BatchNormalization") else chain


def fuse(net: Net, in_force: FusionRules) -> Net:
    """The net whose nodes are the fused groups, as `fused` makes them."""
    return fused(net, in_force)[0]


def fused(net: Net, in_force: FusionRules) -> tuple[Net, list[int]]:
    """The net whose nodes are the fused groups, and for each node of the given net the number of its group.

    Nodes join groups one after the other, in the net's order. A node joins the group that makes its first input if no
    other node reads this input and the rules contain the resulting chain. An Add may join by either input; the later
    one is tried first. The net's output counts as a reader.
    """
    if not in_force.chains:
        return net, list(range(len(net.nodes)))
    kinds = [node.unit.kinds for node in net.nodes]
    grouped = groups(kinds, [node.inputs for node in net.nodes], net.readers(), in_force)
    number = {members[-1]: index for index, members in enumerate(grouped)}
    nodes: list[Node] = []
    group_of = [0] * len(net.nodes)
    for index, members in enumerate(grouped):
        unit, inputs = _joined(net, members)
        nodes.append(Node(unit, tuple(number.get(ref, ref) for ref in inputs)))
        for node in members:
            group_of[node] = index
    return Net(inputs=net.inputs, nodes=tuple(nodes), output=number.get(net.output, net.output)), group_of


def groups(
    kinds: Sequence[Chain], inputs: Sequence[tuple[int, ...]], readers: Sequence[int], in_force: FusionRules
) -> list[list[int]]:
    """The numbers of the nodes of each group, in an order in which groups can run.

    Each node is given by its kinds (several if the node is a group already), its inputs, and the number of its readers.
    """
    chains = in_force.chains
    members: list[list[int]] = []
    chain_of: list[Chain] = []
    group_of: list[int] = []
    for index, own in enumerate(kinds):
        joinable = (group_of[ref] for ref in _joinable(own[0], inputs[index]) if ref >= 0 and readers[ref] == 1)
        joins = next((group for group in joinable if chain_of[group] + own in chains), len(members))
        if joins == len(members):
            members.append([])
            chain_of.append(())
        members[joins].append(index)
        chain_of[joins] += own
        group_of.append(joins)
    return sorted(members, key=lambda group: group[-1])


def _joinable(kind: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """The inputs through which a node may join a group, in the order in which they are tried: both for an Add,
    otherwise only the first.
    """
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
    """The evidence for a chain: it occurs in `seen` places, and ran as one kernel in `fused` of them."""

    chain: Chain
    verdict: Verdict
    seen: int
    fused: int

    def document(self) -> dict[str, object]:
        """The evidence as JSON values."""
        return {**asdict(self), "chain": "+".join(self.chain), "source": "graph"}


def from_groups(traces: Iterable[tuple[Net, Iterable[Sequence[int]]]]) -> list[Evidence]:
    """The evidence in a runtime's optimised graphs. Each net comes with groups of node numbers; each group became one
    kernel.

    A node in no group is assumed to run alone. If a node is in several groups, the last group counts, because it makes
    the node's result. A chain counts as fused if it is fused in at least half of the places where it occurs.
    """
    chains = [chain for net, groups in traces for chain in _chains(net, groups)]
    evidence: list[Evidence] = []
    for chain in sorted({chain for chain, _ in chains}):
        places = [together for other, together in chains if other == chain]
        fused = sum(places)
        verdict: Verdict = "fused" if 2 * fused >= len(places) else "not fused"
        evidence.append(Evidence(chain=chain, verdict=verdict, seen=len(places), fused=fused))
    return evidence


def rules_of(evidence: Iterable[Evidence]) -> FusionRules:
    """The rules for the chains that are fused according to the evidence."""
    return FusionRules(frozenset(entry.chain for entry in evidence if entry.verdict == "fused"))


def _chains(net: Net, groups: Iterable[Sequence[int]]) -> list[tuple[Chain, bool]]:
    """The chains that the runtime ran as one kernel (True), and the chains one layer longer that it did not run as one
    kernel (False).
    """
    group_of = {node: number for number, nodes in enumerate(groups) for node in nodes}
    readers = net.readers()
    chain_to: list[Chain] = []
    chains: list[tuple[Chain, bool]] = []
    for index, node in enumerate(net.nodes):
        kinds = node.unit.kinds
        refs = [ref for ref in node.inputs if ref >= 0 and readers[ref] == 1]
        refs = refs if kinds[0] == "Add" else [ref for ref in refs if ref == node.inputs[0]]
        together = [ref for ref in refs if ref in group_of and group_of.get(index) == group_of[ref]]
        before = max(together, default=max(refs, default=-1))
        if before >= 0:
            chains.append((chain_to[before] + kinds, bool(together)))
        chain_to.append(chain_to[before] + kinds if together else kinds)
    return chains

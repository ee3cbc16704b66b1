"""Nets: units wired to a whole network, from which counts are taken and a real model can be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnomon.errors import ProblemError
from gnomon.spaces.layers import Shape
from gnomon.spaces.unit import Unit


@dataclass(frozen=True, slots=True)
class Node:
    """A unit and where its inputs come from: the number of an earlier node, or -1 - k for the net's input k."""

    unit: Unit
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """Nodes in an order in which they can run; `output` is the number of the node that makes the result.

    `inputs` are the shapes of the net's inputs. A net without nodes hands its input on: its output is -1.
    ProblemError where a node reads what is not there yet, or a shape that is not its unit's.
    """

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    output: int

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if not all(-len(self.inputs) <= ref < index for ref in node.inputs):
                raise ProblemError(f"node {index} reads what is not there yet", hint="Put nodes in running order.")
            if tuple(self.shape(ref) for ref in node.inputs) != node.unit.inputs:
                raise ProblemError(f"the inputs of node {index} do not have its unit's shapes", hint="Wire it anew.")
        if not -len(self.inputs) <= self.output < len(self.nodes):
            raise ProblemError("the net's output is not one of its nodes", hint="Give the number of a node.")

    def shape(self, ref: int) -> Shape:
        """The shape of a node's output, or of an input."""
        return self.nodes[ref].unit.output if ref >= 0 else self.inputs[-1 - ref]

    def counts(self) -> dict[Unit, int]:
        """How often each unit occurs, in the order of its first node."""
        return dict(Counter(node.unit for node in self.nodes))

    def readers(self) -> list[int]:
        """How many inputs of nodes each node's output is read by; the net's output counts as one more."""
        read = [0] * len(self.nodes)
        for ref in (*(ref for node in self.nodes for ref in node.inputs), self.output):
            if ref >= 0:
                read[ref] += 1
        return read

    def layer_names(self) -> Iterator[tuple[str, int, int]]:
        """For each layer: its name in a written model, its node, its position in the node's chain."""
        for index, node in enumerate(self.nodes):
            for position, kind in enumerate(node.unit.kinds):
                yield layer_name(index, position, kind), index, position


def layer_name(node: int, position: int, kind: str) -> str:
    """The name of a layer in a written model: "n12.0.Conv". Operators that it becomes are named so, or begin so."""
    return f"n{node}.{position}.{kind}"


def net_of(unit: Unit) -> Net:
    """A unit as a net of its own."""
    refs = tuple(-1 - k for k in range(len(unit.inputs)))
    return Net(inputs=unit.inputs, nodes=(Node(unit, refs),), output=0)


def live(net: Net) -> Net:
    """The net without what cannot change its output, or cannot be changed by its input.

    Whatever is computed of `Zeros` alone is constant; a constant that is added is dropped, as a runtime folds it away,
    and one that multiplies makes a constant. Nodes that the output does not need go too. A net whose output is
    constant has no node left. ProblemError for a net whose units are chains: drop first, fuse then.
    """
    constant = -len(net.inputs) - 1
    stands: list[int] = []  # what each node's output is, as a reference of the given net, or `constant`
    rewired: list[Node] = []
    for index, node in enumerate(net.nodes):
        if len(node.unit.layers) > 1:
            raise ProblemError("dead parts can be dropped of single layers only", hint="Drop them before fusing.")
        kind = node.unit.layers[0].kind
        refs = tuple(stands[ref] if ref >= 0 else ref for ref in node.inputs)
        moving = tuple(ref for ref in refs if ref != constant)
        if kind == "Zeros" or not moving or (kind == "Mul" and len(moving) < 2):
            stands.append(constant)
        elif kind == "Add" and len(moving) == 1:
            stands.append(moving[0])
        elif len(moving) < len(refs):
            raise ProblemError(f"a {kind} of zeros and something else cannot be simplified", hint="Keep dead parts.")
        else:
            stands.append(index)
        rewired.append(replace(node, inputs=refs))
    output = stands[net.output] if net.output >= 0 else net.output
    if output == constant:
        return Net(inputs=net.inputs, nodes=(), output=-1)
    return _needed(net.inputs, rewired, output)


def _needed(inputs: tuple[Shape, ...], nodes: list[Node], output: int) -> Net:
    """Only the nodes that the output needs, numbered anew."""
    wanted: set[int] = set()
    waiting = [output]
    while waiting:
        ref = waiting.pop()
        if ref >= 0 and ref not in wanted:
            wanted.add(ref)
            waiting.extend(nodes[ref].inputs)
    number = {old: new for new, old in enumerate(sorted(wanted))}
    kept = [Node(nodes[old].unit, tuple(number.get(ref, ref) for ref in nodes[old].inputs)) for old in sorted(wanted)]
    return Net(inputs=inputs, nodes=tuple(kept), output=number.get(output, output))

"""The networks of a cell space as a value that travels: a few of them, of whose layers any other is put together.

A `CellSpace` has functions, which no process can send to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.spaces.cell_space import CellLayout, CellSpace, TaggedNet
from gnomon.spaces.net import Net
from gnomon.spaces.symbol import Symbol, Trace

_HEAD = "head"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathSpace:
    """All networks of a cell space: of `counts` primitives in each cell group.

    `covers[k]` is the network with primitive k in each group that has so many, else the group's last.
    """

    layout: CellLayout
    counts: tuple[int, ...]
    covers: tuple[TaggedNet, ...]

    def tagged(self, path: Sequence[int]) -> TaggedNet:
        """The network of an assignment, with the tag of each node, as `CellSpace.tagged` makes it.

        Layers keep their attributes, and take the shapes that reach them.
        """
        trace, tags = Trace((self.layout.input_shape,)), list[str]()
        x = trace.input()
        for layer, group in enumerate(self.layout.groups):
            x = _apply(self.covers[path[group]], f"l{layer}", x, tags)
        x = _apply(self.covers[0], _HEAD, x, tags)
        return TaggedNet(net=trace.net(x), tags=tuple(tags))


def path_space(space: CellSpace | PathSpace) -> PathSpace:
    """A cell space as such a value."""
    if isinstance(space, PathSpace):
        return space
    counts = tuple(len(ones) for ones in space.choices)
    covers = tuple(space.tagged([min(k, count - 1) for count in counts]) for k in range(max(counts)))
    return PathSpace(layout=space.layout, counts=counts, covers=covers)


def _apply(cover: TaggedNet, owner: str, x: Symbol, tags: list[str]) -> Symbol:
    """What the nodes of one layer, or the head, make of a value; whatever they read of others is that value."""
    owned = [index for index, tag in enumerate(cover.tags) if tag.split("/", 1)[0] == owner]
    made: dict[int, Symbol] = {}
    for index in owned:
        node = cover.net.nodes[index]
        made[index] = x.trace.apply(node.unit.layers[0], *(made.get(ref, x) for ref in node.inputs))
        tags.append(cover.tags[index])
    return made.get(_output(cover.net, owned), x)


def _output(net: Net, owned: list[int]) -> int:
    """The node of these whose output others read, or the net's output; -1 where none is."""
    inside = set(owned)
    for index in range(owned[-1] + 1 if owned else len(net.nodes), len(net.nodes)):
        for ref in net.nodes[index].inputs:
            if ref in inside:
                return ref
    return net.output if net.output in inside else -1

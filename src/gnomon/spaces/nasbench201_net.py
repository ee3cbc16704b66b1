"""The nets of NAS-Bench-201 written down, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.spaces.net import Net
from gnomon.spaces.symbol import Symbol, Trace

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""From node, to node; the slots are in this order."""

CELLS = 5
CHANNELS = (16, 32, 64)
CLASSES = 10
SIZE = 32


def whole_net(operations: Sequence[int]) -> Net:
    """The net with these operations on the edges of each of its cells, dead parts and all."""
    trace = Trace(((1, 3, SIZE, SIZE),))
    x = stem(trace.input())
    for stage, channels in enumerate(CHANNELS):
        if stage:
            x = residual(x, channels)
        for _ in range(CELLS):
            x = cell(x, operations)
    return trace.net(head(x))


def stem(x: Symbol) -> Symbol:
    """What stands before the first cell."""
    return x.conv(CHANNELS[0], 3).batch_norm()


def residual(x: Symbol, channels: int) -> Symbol:
    """What stands between two stages: a ResNet basic block with stride 2."""
    y = x.relu().conv(channels, 3, stride=2).batch_norm()
    y = y.relu().conv(channels, 3).batch_norm()
    return x.average_pool(2, stride=2).conv(channels, 1) + y


def head(x: Symbol) -> Symbol:
    """What stands behind the last cell."""
    return x.batch_norm().relu().global_average_pool().linear(CLASSES)


def cell(x: Symbol, operations: Sequence[int]) -> Symbol:
    """A cell: each node is the sum of the operations on its edges."""
    nodes = [x]
    for target in (1, 2, 3):
        terms = [
            operation(OPERATIONS[choice], nodes[source])
            for (source, end), choice in zip(EDGES, operations, strict=True)
            if end == target
        ]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        nodes.append(total)
    return nodes[-1]


def operation(name: str, x: Symbol) -> Symbol:
    """What stands on an edge."""
    if name == "skip_connect":
        return x
    if name == "none":
        return x.layer("Zeros")
    if name == "avg_pool_3x3":
        return x.average_pool(3, pad=1)
    return x.relu().conv(x.channels, 1 if name == "nor_conv_1x1" else 3).batch_norm()

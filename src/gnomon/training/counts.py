"""Parameters and multiply-accumulates of a net, by arithmetic on its layers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gnomon.spaces.layers import Layer, Shape
from gnomon.spaces.net import Net
from gnomon.spaces.unit import shapes


def params(net: Net) -> int:
    """Trained numbers: weights, biases, and the scale and bias of batch normalisations, not their statistics."""
    total = 0
    for one, source, _ in _layers(net):
        if one.kind == "Conv":
            out = one.integer("out_channels")
            total += out * (source[1] // one.integer("group") * math.prod(one.pair("kernel")) + bool(one["bias"]))
        elif one.kind == "Linear":
            total += one.integer("out_features") * (source[1] + bool(one["bias"]))
        elif one.kind == "BatchNormalization":
            total += 2 * source[1]
    return total


def macs(net: Net) -> int:
    """Multiply-accumulates of convolutions and linear layers, for the batch that the net is written down with."""
    total = 0
    for one, source, made in _layers(net):
        if one.kind == "Conv":
            total += math.prod(made) * source[1] // one.integer("group") * math.prod(one.pair("kernel"))
        elif one.kind == "Linear":
            total += math.prod(made) * source[1]
    return total


def _layers(net: Net) -> Iterator[tuple[Layer, Shape, Shape]]:
    """Each layer, the shape of its first input, and that of its output."""
    for node in net.nodes:
        source = node.unit.inputs[0]
        for one, made in zip(node.unit.layers, shapes(node.unit), strict=True):
            yield one, source, made
            source = made

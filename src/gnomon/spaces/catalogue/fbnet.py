"""The FBNet search space: 22 layers and nine kinds of blocks. Wu et al., FBNet, CVPR 2019, tables 1 and 2.

Kinds are named and ordered as in HW-NAS-Bench and HELP. As in mobile-vision's FBNet builder, the shuffle of a grouped
kind comes after the first convolution, and a `skip` that changes the shape is a 1x1 convolution with batch
normalisation and ReLU. The shapes for which the published latencies were measured are not stated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.spaces.blocks import BlockSpace, Choice
from gnomon.spaces.catalogue.inverted_residual import Classifier, ConvBlock, InvertedResidual, layers_of
from gnomon.spaces.unit import Symbol

STAGES = ((16, 1, 1), (24, 4, 2), (32, 4, 2), (64, 4, 2), (112, 4, 1), (184, 4, 2), (352, 1, 1))
"""For each stage: its channels, its number of layers, and the stride of its first layer."""

KINDS = {
    "k3_e1": (3, 1, 1),
    "k3_e1_g2": (3, 1, 2),
    "k3_e3": (3, 3, 1),
    "k3_e6": (3, 6, 1),
    "k5_e1": (5, 1, 1),
    "k5_e1_g2": (5, 1, 2),
    "k5_e3": (5, 3, 1),
    "k5_e6": (5, 6, 1),
}
"""The kernel, the expansion and the groups of each kind of block except `skip`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """No layer if the shape stays the same, otherwise a 1x1 convolution that changes it."""

    channels: int
    stride: int

    def __call__(self, x: Symbol) -> Symbol:
        """The output of the block for `x`."""
        if self.stride == 1 and x.channels == self.channels:
            return x
        return x.conv(self.channels, 1, stride=self.stride).batch_norm().relu()


def fbnet(resolution: int = 224, classes: int = 1000) -> BlockSpace:
    """The space for square images of this size."""
    return BlockSpace(
        name="fbnet" if (resolution, classes) == (224, 1000) else f"fbnet-{resolution}-{classes}",
        inputs=((1, 3, resolution, resolution),),
        parts=(
            ConvBlock(channels=16, kernel=3, stride=2, activation="Relu"),
            *_layers(),
            ConvBlock(channels=1984, kernel=1, activation="Relu"),
            Classifier(classes=classes),
        ),
    )


def _layers() -> Iterator[Choice]:
    for number, (channels, stride) in enumerate(layers_of(STAGES)):
        blocks = {
            name: InvertedResidual(
                channels=channels,
                kernel=kernel,
                expansion=expansion,
                stride=stride,
                activation="Relu",
                expand_by_one=True,
                group=group,
            )
            for name, (kernel, expansion, group) in KINDS.items()
        }
        yield Choice(f"layer{number}", {**blocks, "skip": Skip(channels=channels, stride=stride)})

"""The inverted residual block, which the MobileNet-like spaces share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.spaces.unit import Symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedResidual:
    """A 1x1 convolution to `expansion` times the channels, a depthwise convolution, and a 1x1 convolution to
    `channels`.

    Each is followed by batch normalisation, and the first two also by the activation; the input is added to the result
    if the shape stays the same. Sandler et al., MobileNetV2, CVPR 2018. With `expand_by_one`, the first convolution is
    kept even if the expansion is 1; `group` groups the 1x1 convolutions and shuffles channels after the first one
    (FBNet); `squeeze` adds squeeze and excitation after the depthwise convolution (MobileNetV3).
    """

    channels: int
    kernel: int
    expansion: int
    stride: int = 1
    activation: str = "Relu6"
    expand_by_one: bool = False
    group: int = 1
    squeeze: bool = False

    def __call__(self, x: Symbol) -> Symbol:
        """The output of the block for `x`."""
        y = x
        if self.expansion != 1 or self.expand_by_one:
            y = y.conv(x.channels * self.expansion, 1, group=self.group).batch_norm().layer(self.activation)
            if self.group > 1:
                y = y.channel_shuffle(self.group)
        y = y.depthwise(self.kernel, stride=self.stride).batch_norm().layer(self.activation)
        if self.squeeze:
            y = squeeze_and_excite(y)
        y = y.conv(self.channels, 1, group=self.group).batch_norm()
        return x + y if x.shape == y.shape and self.stride == 1 else y


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvBlock:
    """Convolution, batch normalisation, activation."""

    channels: int
    kernel: int
    stride: int = 1
    activation: str = "Relu6"

    def __call__(self, x: Symbol) -> Symbol:
        """The output of the block for `x`."""
        return x.conv(self.channels, self.kernel, stride=self.stride).batch_norm().layer(self.activation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Mean over height and width, then a linear layer."""

    classes: int

    def __call__(self, x: Symbol) -> Symbol:
        """The output of the block for `x`."""
        return x.global_average_pool().linear(self.classes)


def layers_of(stages: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The channels and the stride of each layer, from the channels, the number of layers and the first stride of each
    stage.
    """
    return [(channels, 1 if index else stride) for channels, count, stride in stages for index in range(count)]


def squeeze_and_excite(x: Symbol, width: int | None = None) -> Symbol:
    """The channels, scaled by a gate that is computed from their means (Hu et al., CVPR 2018).

    `width` is the number of channels inside the gate; None means a quarter of the channels, as in MobileNetV3.
    """
    gate = x.global_average_pool().conv(width or divisible(x.channels // 4), 1, bias=True).relu()
    return x * gate.conv(x.channels, 1, bias=True).hard_sigmoid()


def divisible(channels: float) -> int:
    """The multiple of 8 nearest to a number of channels, but never more than a tenth below it, as in the MobileNets."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near

"""Writing a net down as a computation: `x.conv(32, 3).batch_norm().relu()`; shapes follow."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnomon.errors import ProblemError
from gnomon.spaces.layers import Layer, Shape, Value, layer
from gnomon.spaces.net import Net, Node
from gnomon.spaces.unit import single

Pair = int | tuple[int, int]


@dataclass(slots=True)
class Trace:
    """Collects the layers that are applied to symbols, in the order in which they are."""

    inputs: tuple[Shape, ...]
    dtype: str = "float32"
    nodes: list[Node] = field(default_factory=list)

    def input(self, number: int = 0) -> Symbol:
        """One of the inputs."""
        return Symbol(self, -1 - number, self.inputs[number])

    def apply(self, one: Layer, *symbols: Symbol) -> Symbol:
        """What a layer makes of symbols of this trace. ProblemError where shapes do not fit."""
        if any(symbol.trace is not self for symbol in symbols):
            raise ProblemError("a layer joins values of two nets", hint="Use the values that the block is called with.")
        unit = single(one, tuple(symbol.shape for symbol in symbols), self.dtype)
        self.nodes.append(Node(unit, tuple(symbol.ref for symbol in symbols)))
        return Symbol(self, len(self.nodes) - 1, unit.output)

    def net(self, output: Symbol) -> Net:
        """The net of all layers that were applied."""
        return Net(inputs=self.inputs, nodes=tuple(self.nodes), output=output.ref)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A value in a net that is being written down: it has a shape and no content. Each method adds layers."""

    trace: Trace
    ref: int
    shape: Shape

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.shape[1]

    def layer(self, kind: str, *others: Symbol, **attributes: Value) -> Symbol:
        """A layer of any kind of `gnomon.spaces.layers.KINDS`; `others` are its further inputs."""
        return self.trace.apply(layer(kind, **attributes), self, *others)

    def conv(
        self, channels: int, kernel: int, *, stride: int = 1, group: int = 1, bias: bool = False, dilation: int = 1
    ) -> Symbol:
        """A convolution with a square kernel, padded so that stride 1 keeps height and width (odd kernels)."""
        pad = dilation * (kernel - 1) // 2
        return self.layer(
            "Conv",
            out_channels=channels,
            kernel=kernel,
            stride=stride,
            pad=pad,
            dilation=dilation,
            group=group,
            bias=bias,
        )

    def depthwise(self, kernel: int, *, stride: int = 1) -> Symbol:
        """A convolution of each channel by itself, padded as `conv` does."""
        return self.conv(self.channels, kernel, stride=stride, group=self.channels)

    def batch_norm(self) -> Symbol:
        """Batch normalisation with fixed statistics, as in a deployed net."""
        return self.layer("BatchNormalization")

    def relu(self) -> Symbol:
        """max(x, 0)."""
        return self.layer("Relu")

    def relu6(self) -> Symbol:
        """min(max(x, 0), 6)."""
        return self.layer("Relu6")

    def hard_swish(self) -> Symbol:
        """x times its hard sigmoid."""
        return self.layer("HardSwish")

    def hard_sigmoid(self) -> Symbol:
        """min(max(x / 6 + 1/2, 0), 1)."""
        return self.layer("HardSigmoid")

    def average_pool(self, kernel: Pair, *, stride: Pair = 1, pad: Pair = 0) -> Symbol:
        """Means of windows, without the padding."""
        return self.layer("AveragePool", kernel=kernel, stride=stride, pad=pad)

    def max_pool(self, kernel: Pair, *, stride: Pair = 1, pad: Pair = 0) -> Symbol:
        """Maxima of windows."""
        return self.layer("MaxPool", kernel=kernel, stride=stride, pad=pad)

    def global_average_pool(self) -> Symbol:
        """The mean of each channel, as (N, C, 1, 1)."""
        return self.layer("GlobalAveragePool")

    def channel_shuffle(self, groups: int) -> Symbol:
        """Interleaves the channels of so many groups."""
        return self.layer("ChannelShuffle", groups=groups)

    def linear(self, features: int, *, bias: bool = True) -> Symbol:
        """A fully connected layer, of (N, C) or (N, C, 1, 1)."""
        return self.layer("Linear", out_features=features, bias=bias)

    def concat(self, other: Symbol) -> Symbol:
        """The channels of both."""
        return self.layer("Concat", other)

    def __add__(self, other: Symbol) -> Symbol:
        return self.layer("Add", other)

    def __mul__(self, other: Symbol) -> Symbol:
        return self.layer("Mul", other)

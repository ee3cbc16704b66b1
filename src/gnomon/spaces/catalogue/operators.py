"""Nineteen made-up nets with the operators of common networks over a wide range of shapes.

This space is not for finding accurate nets: its table shows the costs of operators on a device, so that models that
belong to no space can be priced. The families are those of published networks (residual and bottleneck blocks, inverted
residuals with squeeze-and-excitation, dense and parallel branches, shuffled groups, text lines, transformer encoders, a
decoder's step). Widths, sizes and kernels cover the range of such networks; only some are multiples of eight.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from gnomon.spaces.catalogue.inverted_residual import squeeze_and_excite
from gnomon.spaces.models import ModelSpace
from gnomon.spaces.unit import Net, Symbol, Trace

NAME = "operators"


def operators() -> ModelSpace:
    """The space, whose only slot chooses the net."""
    return ModelSpace(name=NAME, nets={name: _net(shape, build) for name, (shape, build) in _NETS.items()})


def _net(shape: Sequence[int], build: Callable[[Symbol], Symbol]) -> Net:
    trace = Trace((tuple(shape),))
    return trace.net(build(trace.input()))


def _text(values: Any) -> str:
    """The text of constants or attributes, in the form that units of models use."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _scaled(x: Symbol) -> Symbol:
    """A normalisation as two operators, as some exporters write it."""
    return x.layer("Scale").layer("Bias")


def _apart(x: Symbol) -> Symbol:
    """A hard swish as several operators, as some exporters write it."""
    gate = _generic(x, "Add", x.shape, constants=[("float32", ())]).relu6()
    return _generic(x * gate, "Div", x.shape, constants=[("float32", ())])


def _classified(x: Symbol, classes: int) -> Symbol:
    return x.global_average_pool().linear(classes).softmax()


def _residual(x: Symbol) -> Symbol:
    x = x.conv(64, 7, stride=2).batch_norm().relu().max_pool(3, stride=2, pad=1)
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        kept = x if stride == 1 else x.conv(width, 1, stride=stride).batch_norm()
        y = x.conv(width, 3, stride=stride).batch_norm().relu().conv(width, 3).batch_norm()
        x = (y + kept).relu()
    return _classified(x, 1000)


def _bottleneck(x: Symbol) -> Symbol:
    x = x.conv(48, 3, stride=2, bias=True).relu().conv(64, 3, stride=2, bias=True).relu()
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        kept = x.conv(4 * width, 1, stride=stride, bias=True)
        y = x.conv(width, 1, bias=True).relu().conv(width, 3, stride=stride, bias=True).relu()
        x = (y.conv(4 * width, 1, bias=True) + kept).relu()
        y = x.conv(width, 1, bias=True).relu().conv(width, 3, bias=True).relu()
        x = (y.conv(4 * width, 1, bias=True) + x).relu()
    return _classified(x, 1000)


def _plain(x: Symbol) -> Symbol:
    for width in (24, 64, 128, 320, 448):
        x = x.conv(width, 3, bias=True).relu().conv(width, 3, bias=True).relu().max_pool(2, stride=2)
    return x.reshape(1, 448 * 16).linear(3072).relu().linear(4096).relu().linear(1000).softmax()


def _inverted(x: Symbol) -> Symbol:
    x = x.conv(32, 3, stride=2).batch_norm().relu6().depthwise(3).batch_norm().relu6().conv(16, 1).batch_norm()
    for width, stride in ((24, 2), (32, 2), (64, 2), (96, 1), (160, 2), (320, 1)):
        y = x.conv(6 * x.channels, 1).batch_norm().relu6().depthwise(3, stride=stride).batch_norm().relu6()
        x = y.conv(width, 1).batch_norm()
        again = x.conv(6 * width, 1).batch_norm().relu6().depthwise(3).batch_norm().relu6()
        x = again.conv(width, 1).batch_norm() + x
    return _classified(x.conv(1280, 1).batch_norm().relu6(), 1000)


def _excited(x: Symbol) -> Symbol:
    x = x.conv(16, 3, stride=2, bias=True).hard_swish()
    for width, kernel, stride in ((24, 3, 2), (40, 5, 2), (80, 3, 2), (112, 5, 1), (160, 5, 2)):
        y = x.conv(4 * x.channels, 1, bias=True).hard_swish()
        y = y.conv(y.channels, kernel, stride=stride, group=y.channels, bias=True).hard_swish()
        x = squeeze_and_excite(y).conv(width, 1, bias=True)
        y = x.conv(3 * width, 1, bias=True).relu()
        y = y.conv(y.channels, kernel, group=y.channels, bias=True).relu()
        x = y.conv(width, 1, bias=True) + x
    return _classified(x.conv(960, 1, bias=True).hard_swish(), 1000)


def _gated(x: Symbol) -> Symbol:
    """A net like a detector: strided convolutions with SiLU, halves that take two paths, pools of stride 1."""
    x = x.conv(16, 3, stride=2, bias=True).swish()
    for width in (32, 64, 128, 256):
        x = x.conv(width, 3, stride=2, bias=True).swish().conv(width, 1, bias=True).swish()
        half = x.conv(width // 2, 1, bias=True).swish()
        y = half.conv(width // 2, 3, bias=True).swish().conv(width // 2, 3, bias=True).swish() + half
        x = half.concat(y).conv(width, 1, bias=True).swish()
    pooled = x.max_pool(5, pad=2)
    x = x.concat(pooled).concat(pooled.max_pool(5, pad=2)).conv(256, 1, bias=True).swish()
    return x.conv(80, 3, bias=True).swish().conv(84, 1, bias=True).layer("Sigmoid")


def _dense(x: Symbol) -> Symbol:
    x = x.conv(32, 5, stride=2).batch_norm().relu().max_pool(3, stride=2, pad=1)
    for count in (3, 4, 4, 3):
        for _ in range(count):
            x = x.concat(_scaled(x.batch_norm()).relu().conv(128, 1).batch_norm().relu().conv(32, 3))
        x = x.batch_norm().relu().conv(2 * x.channels // 3 // 2 * 2, 1).average_pool(2, stride=2)
    return _classified(x, 1000)


def _parallel(x: Symbol) -> Symbol:
    x = x.conv(64, 7, stride=2, bias=True).relu().max_pool(3, stride=2, pad=1).conv(192, 3, bias=True).relu()
    x = x.conv(192, 5, group=2, bias=True).relu()
    for width, pool in ((48, 2), (96, 2), (160, 1)):
        first = x.conv(width, 1, bias=True).relu()
        second = x.conv(width, 1, bias=True).relu().conv(2 * width, 3, bias=True).relu()
        third = x.conv(width // 4, 1, bias=True).relu().conv(width // 2, 5, bias=True).relu()
        fourth = x.max_pool(3, pad=1).conv(width // 2, 1, bias=True).relu()
        x = first.concat(second).concat(third.concat(fourth)).max_pool(3, stride=pool, pad=1)
    return _classified(x, 365)


def _shuffled(x: Symbol) -> Symbol:
    x = x.conv(24, 3, stride=2).batch_norm().relu().max_pool(3, stride=2, pad=1)
    for width, stride in ((120, 2), (240, 2), (480, 2)):
        x = x.conv(width, 1).batch_norm().depthwise(3, stride=stride).batch_norm()
        y = x.conv(width // 4, 1, group=3).batch_norm().relu().channel_shuffle(3).depthwise(3).batch_norm()
        x = (y.conv(width, 1, group=3).batch_norm() + x).relu()
        x = x.conv(width, 3, group=4).batch_norm().relu()
    return _classified(x, 200)


def _line(x: Symbol) -> Symbol:
    """A net like a reader of text lines: height is halved more often than width."""
    x = x.conv(16, 3, stride=2, bias=True).hard_swish()
    for width, stride, kernel in ((32, (2, 1), 3), (64, (2, 1), 3), (120, (2, 1), 5), (240, (1, 1), 5)):
        own = x.channels
        x = x.layer(
            "Conv", out_channels=own, group=own, kernel=kernel, stride=stride, pad=kernel // 2, bias=True
        ).hard_swish()
        x = _apart(squeeze_and_excite(_scaled(x.conv(width, 1, bias=True)), width // 4))
    x = x.average_pool((x.shape[2], 2), stride=(x.shape[2], 2))
    rows = x.reshape(1, x.channels, x.shape[3]).transpose(0, 2, 1)
    return _encoded(_encoded(rows, 8), 8).layer_norm().linear(6625).softmax()


def _encoded(x: Symbol, heads: int, wide: int = 2) -> Symbol:
    """A layer of a transformer's encoder."""
    length, width = x.shape[1:]

    def split(perm: Sequence[int]) -> Symbol:
        return x.linear(width).reshape(1, length, heads, width // heads).transpose(*perm)

    scores = split((0, 2, 1, 3)).matmul(split((0, 2, 3, 1)))
    scores = _generic(scores, "Div", scores.shape, constants=[("float32", ())]).softmax()
    y = scores.matmul(split((0, 2, 1, 3))).transpose(0, 2, 1, 3).reshape(1, length, width)
    x = (y.linear(width) + x).layer_norm()
    return (x.linear(wide * width).gelu().linear(width) + x).layer_norm()


def _words(x: Symbol) -> Symbol:
    x = x.embedding(10000, 312).layer_norm()
    return _encoded(_encoded(x, 12, 4).linear(512, bias=False), 8, 3)


def _patches(x: Symbol) -> Symbol:
    x = x.conv(192, 16, stride=16, bias=True)
    rows = x.reshape(1, 192, x.shape[2] * x.shape[3]).transpose(0, 2, 1)
    return _encoded(_encoded(rows, 3, 4).linear(768), 12, 4).linear(100)


def _step(x: Symbol) -> Symbol:
    """A decoder's step for one word, in which every product is of a matrix with a vector."""
    x = x.embedding(32000, 768).layer_norm()
    gate = x.linear(2048, bias=False).swish() * x.linear(2048, bias=False)
    x = gate.linear(768, bias=False) + x.linear(768)
    return x.linear(8192, bias=False)


def _small(x: Symbol) -> Symbol:
    x = x.conv(6, 5, bias=True).layer("Tanh").average_pool(2, stride=2).conv(16, 3, bias=True).layer("Sigmoid")
    x = x.max_pool(2, stride=2).conv(28, 3, bias=True).relu().conv(60, 3, stride=2, bias=True).relu()
    x = x.depthwise(7).relu().conv(100, 1, bias=True).relu()
    return x.reshape(1, x.channels * x.shape[2] * x.shape[3]).linear(120).relu().linear(10).softmax()


def _generic(
    x: Symbol,
    kind: str,
    shape: Sequence[int],
    *,
    macs: int = 0,
    constants: Sequence[tuple[Any, ...]] = (),
    **attributes: object,
) -> Symbol:
    """Any other ONNX operator; each constant is (type, shape) or (type, shape, values)."""
    names = ("dtype", "shape", "values")
    operands = _text([None, *(dict(zip(names, constant, strict=False)) for constant in constants)])
    text = _text(attributes)
    return x.layer(f"onnx.{kind}", shape=tuple(shape), macs=macs, attributes=text, operands=operands)


def _enlarged(x: Symbol, channels: int) -> Symbol:
    """A transposed convolution that doubles height and width."""
    n, c, h, w = x.shape
    shape, weights = (n, channels, 2 * h, 2 * w), [("float32", (c, channels, 2, 2))]
    macs = h * w * c * channels * 4
    return _generic(x, "ConvTranspose", shape, macs=macs, constants=weights, kernel_shape=[2, 2], strides=[2, 2])


def _repeated(x: Symbol, **attributes: Any) -> Symbol:
    """An enlargement that repeats each pixel, so that height and width double."""
    n, c, h, w = x.shape
    scales = [("float32", (0,), []), ("float32", (4,), [1.0, 1.0, 2.0, 2.0])]
    return _generic(x, "Resize", (n, c, 2 * h, 2 * w), constants=scales, mode="nearest", **attributes)


def _recurrent(x: Symbol, hidden: int) -> Symbol:
    """An LSTM over (L, N, C) with the output (L, 1, N, hidden)."""
    length, n, width = x.shape
    sizes = [("float32", (1, 4 * hidden, width)), ("float32", (1, 4 * hidden, hidden)), ("float32", (1, 8 * hidden))]
    macs = length * 4 * hidden * (width + hidden)
    return _generic(x, "LSTM", (length, 1, n, hidden), macs=macs, constants=sizes, hidden_size=hidden)


def _rare(x: Symbol) -> Symbol:
    """Operators that only some networks have, each at two sizes."""
    for width, stride in ((96, 4), (192, 2)):
        x = x.conv(width, 5, stride=stride, bias=True).relu()
        n, c, h, w = x.shape
        gated = (x.max_pool(3, pad=1).relu6() + x).batch_norm().layer("Sigmoid") * x
        x = x.max_pool(3, pad=1).layer("Tanh") + gated.average_pool(3, pad=1).relu()
        x = _generic(x, "LRN", x.shape, size=5, alpha=1e-4, beta=0.75)
        x = _generic(x, "LeakyRelu", x.shape, alpha=0.1)
        x = _generic(x, "PRelu", x.shape, constants=[("float32", (c, 1, 1))])
        x = _generic(x, "Elu", x.shape, alpha=1.0)
        x = _generic(x, "Softplus", x.shape)
        x = _generic(x, "Sub", x.shape, constants=[("float32", (1, c, 1, 1))])
        x = _generic(x, "Div", x.shape, constants=[("float32", ())])
        x = _generic(_generic(x, "Abs", x.shape), "Sqrt", x.shape)
        x = _generic(x, "Pow", x.shape, constants=[("float32", (), [2.0])])
        x = _generic(x, "Exp", x.shape)
        x = _generic(x, "InstanceNormalization", x.shape, constants=[("float32", (c,)), ("float32", (c,))])
        large = _enlarged(x, c // 2)
        x = large.concat(_repeated(x, coordinate_transformation_mode="asymmetric", nearest_mode="floor"))
        ends = [("int64", (1,), [v]) for v in (0, c, 1)]
        x = _generic(x, "Slice", (n, c, 2 * h, 2 * w), constants=ends)
        pads = [("int64", (8,), [0, 0, 1, 1, 0, 0, 1, 1])]
        x = _generic(x, "Pad", (n, c, 2 * h + 2, 2 * w + 2), constants=pads, mode="reflect")
        x = x.average_pool(3, stride=2)
    x = x.conv(64, 1, bias=True)
    for hidden in (64, 256):
        n, width, h, w = x.shape
        rows = _recurrent(x.reshape(n, width, h * w).transpose(2, 0, 1), hidden)
        x = rows.reshape(h * w, n, hidden).transpose(1, 2, 0).reshape(n, hidden, h, w)
    mean = _generic(x, "ReduceMean", (*x.shape[:3], 1), axes=[3], keepdims=1)
    return mean.global_average_pool().linear(100)


def _large(x: Symbol) -> Symbol:
    """A net like a reader of pages: large images with few channels, which do not fit into a cache."""
    x = _apart(x.conv(16, 3, stride=2, bias=True))
    first = x.depthwise(3).batch_norm().relu().conv(24, 1, bias=True)
    x = _apart(first.conv(48, 1, bias=True)).depthwise(5, stride=2).batch_norm().hard_swish()
    x = x.conv(48, 3, bias=True).relu() + x
    x = x * x.conv(48, 1, bias=True).layer("Sigmoid")
    x = _repeated(x).concat(first).conv(16, 3, bias=True).swish()
    return _enlarged(x, 8).relu().conv(2, 1, bias=True).layer("Sigmoid")


def _sound(x: Symbol) -> Symbol:
    """A net like a speech recogniser: long kernels over a signal, then images of time and pitch."""
    x = _long(x, 80, (1, 320), (1, 80)).relu()
    n, c, _, length = x.shape
    x = _long(x.reshape(n, 1, c, length), 8, (3, 31)).relu().conv(16, 5, bias=True).batch_norm().relu()
    x = _long(_long(_scaled(x), 32, (7, 3), (2, 1)).relu(), 4, (1, 9))
    return x.softmax()


def _narrow(x: Symbol) -> Symbol:
    """A network that fits into a cache as a whole: few channels, small images."""
    x = _apart(x.conv(8, 3, stride=2, bias=True))
    for width, kernel, stride, gate in ((12, 3, 2, False), (20, 5, 2, True), (28, 3, 1, True), (44, 5, 2, False)):
        y = x.conv(3 * x.channels, 1).batch_norm().relu()
        y = y.depthwise(kernel, stride=stride).batch_norm()
        y = _apart(squeeze_and_excite(y) if gate else y).conv(width, 1, bias=True)
        x = (y.conv(width, 3, bias=True).relu() + y).hard_swish()
    x = x.concat(x.max_pool(3, pad=1)).conv(24, 1, bias=True).swish()
    n, c, h, w = x.shape
    x = x.reshape(n, c, h * w).transpose(0, 2, 1).layer_norm().linear(32)
    return (x.softmax() + x.linear(32).gelu()).linear(10).layer("Sigmoid")


def _pulse(x: Symbol) -> Symbol:
    """A net like a keyword spotter: about a thousand samples, convolutions along time, a small memory."""
    for width, kernel, stride in ((130, 128, 64), (64, 3, 1), (32, 3, 2), (64, 3, 1)):
        n, c, length = x.shape
        after = (length + 2 * (kernel // 2) - kernel) // stride + 1
        sizes = [("float32", (width, c, kernel)), ("float32", (width,))]
        window: dict[str, Any] = {"kernel_shape": [kernel], "pads": [kernel // 2, kernel // 2], "strides": [stride]}
        x = _generic(x, "Conv", (n, width, after), macs=width * c * kernel * after, constants=sizes, **window).relu()
        x = _generic(_generic(x, "Sqrt", x.shape), "Log", x.shape).layer("Tanh")
    n, c, length = x.shape
    x = _recurrent(x.transpose(2, 0, 1), c).reshape(length * n, c)
    return x.linear(16).relu().linear(4).softmax()


def _long(x: Symbol, channels: int, kernel: tuple[int, int], stride: tuple[int, int] = (1, 1)) -> Symbol:
    pad = (kernel[0] // 2, kernel[1] // 2)
    return x.layer("Conv", out_channels=channels, kernel=kernel, stride=stride, pad=pad, bias=True)


_NETS: dict[str, tuple[Sequence[int], Callable[[Symbol], Symbol]]] = {
    "residual": ((1, 3, 224, 224), _residual),
    "bottleneck": ((1, 3, 192, 192), _bottleneck),
    "plain": ((1, 3, 128, 128), _plain),
    "inverted": ((1, 3, 224, 224), _inverted),
    "excited": ((1, 3, 192, 192), _excited),
    "gated": ((1, 3, 320, 320), _gated),
    "dense": ((1, 3, 224, 224), _dense),
    "parallel": ((1, 3, 224, 224), _parallel),
    "shuffled": ((1, 3, 224, 224), _shuffled),
    "line": ((1, 3, 48, 256), _line),
    "words": ((1, 64), _words),
    "patches": ((1, 3, 224, 224), _patches),
    "step": ((1, 1), _step),
    "small": ((1, 1, 32, 32), _small),
    "rare": ((1, 3, 160, 160), _rare),
    "large": ((1, 3, 640, 640), _large),
    "sound": ((1, 1, 1, 40000), _sound),
    "narrow": ((1, 3, 48, 160), _narrow),
    "pulse": ((1, 1, 1024), _pulse),
}

"""The three published families of primitives, in the two numberings that are in use.

Structure (the same in both): Mobile is 1x1, kxk, 1x1, each with batch normalisation, with a residual where shapes
allow; its kxk is a full convolution, not a depthwise one. Res adds two branches, 1x1 - kxk - 1x1 and kxk - 1x1. VGG is
a row of convolutions, with a max pooling behind them where it reduces. What stands between the 1x1 of a branch is as
wide as the block's input times the expansion.

Numberings: "ssprofile", expansions 1, 3, 6 (Mobile; kernels slowest) and 1, 2, 4 (Res), as the published profiler
numbers them; "aw_nas", expansions 1, 1/3, 1/6 (kernels fastest) and 1, 1/2, 1/4, as the search framework that reads its
result does (aw_nas, examples/research/bbssp). Only Mobile 0, Res 0 to 2 and VGG are the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, get_args

from gnomon.errors import UsageError
from gnomon.spaces.primitives import Primitive, PrimitiveBlock
from gnomon.spaces.symbol import Symbol

Numbering = Literal["ssprofile", "aw_nas"]
NUMBERINGS: tuple[Numbering, ...] = get_args(Numbering)

_KERNELS = (3, 5, 7)
_VGG: tuple[tuple[int, ...], ...] = (
    (1,),
    (3,),
    (1, 3),
    (5,),
    (1, 5),
    (3, 3),
    (1, 3, 3),
    (7,),
    (1, 7),
    (3, 5),
    (1, 3, 5),
    (3, 3, 3),
    (1, 3, 3, 3),
)
_DEFAULTS = {"Mobile": 1, "Res": 1, "VGG": 1}
"""The published default of each family, as a number."""


def published_primitives(numbering: str = "ssprofile") -> dict[str, Primitive]:
    """All primitives of the three families by name. UsageError for an unknown numbering."""
    if numbering not in NUMBERINGS:
        raise UsageError(f"there is no numbering {numbering!r}", hint=f"Known: {', '.join(NUMBERINGS)}.")
    if numbering == "ssprofile":
        mobile = [(k, Fraction(e)) for k in _KERNELS for e in (1, 3, 6)]
        res = [(k, Fraction(e)) for e in (1, 2, 4) for k in _KERNELS]
    else:
        mobile = [(k, Fraction(1, e)) for e in (1, 3, 6) for k in _KERNELS]
        res = [(k, Fraction(1, e)) for e in (1, 2, 4) for k in _KERNELS]
    made = [
        Primitive(
            family=family,
            number=number,
            block=block(kernel, expansion),
            meaning=f"{kernel}x{kernel}, expansion {expansion}",
        )
        for family, block, rows in (("Mobile", _mobile, mobile), ("Res", _res, res))
        for number, (kernel, expansion) in enumerate(rows)
    ]
    made += [
        Primitive(family="VGG", number=number, block=_vgg(kernels), meaning=" ".join(f"{k}x{k}" for k in kernels))
        for number, kernels in enumerate(_VGG)
    ]
    return {one.name: one for one in made}


def default_of(family: str, primitives: Sequence[Primitive]) -> Primitive:
    """The default of a family among these of it: the published one where it is there, else the first."""
    wanted = _DEFAULTS.get(family)
    return next((one for one in primitives if one.number == wanted), primitives[0])


def _inner(x: Symbol, expansion: Fraction) -> int:
    return max(1, int(x.channels * expansion))


def _mobile(kernel: int, expansion: Fraction) -> PrimitiveBlock:
    def block(x: Symbol, channels: int, stride: int) -> Symbol:
        y = x.conv(_inner(x, expansion), 1).batch_norm().relu()
        y = y.conv(y.channels, kernel, stride=stride).batch_norm().relu()
        y = y.conv(channels, 1).batch_norm()
        return ((x + y) if stride == 1 and x.channels == channels else y).relu()

    return block


def _res(kernel: int, expansion: Fraction) -> PrimitiveBlock:
    def block(x: Symbol, channels: int, stride: int) -> Symbol:
        a = x.conv(_inner(x, expansion), 1).batch_norm().relu()
        a = a.conv(a.channels, kernel, stride=stride).batch_norm().relu()
        a = a.conv(channels, 1).batch_norm()
        b = x.conv(x.channels, kernel, stride=stride).batch_norm().relu()
        b = b.conv(channels, 1).batch_norm()
        return (a + b).relu()

    return block


def _vgg(kernels: Sequence[int]) -> PrimitiveBlock:
    def block(x: Symbol, channels: int, stride: int) -> Symbol:
        for kernel in kernels:
            x = x.conv(channels, kernel).batch_norm().relu()
        return x.max_pool(stride, stride=stride) if stride > 1 else x

    return block

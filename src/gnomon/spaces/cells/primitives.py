"""Primitives: the blocks that a cell group can consist of, by name.

A block is a function of a `Symbol`, an output width and a stride, or a function that makes a PyTorch module from an
input width, an output width and a stride. The published names are `<Family>block_<i>`. There are two numberings, in
which the same number can mean different blocks. So every primitive describes its structure in words and has a digest of
this structure.

There are three published families. Mobile is 1x1, kxk, 1x1, each with batch normalisation, and a residual if the shapes
allow it; its kxk is a full convolution, not a depthwise one. Res adds two branches, 1x1 - kxk - 1x1 and kxk - 1x1. VGG
is a sequence of convolutions, followed by a max pooling if the group reduces. Between the 1x1 convolutions of a branch,
the width is that of the block's input times the expansion.

The numbering "ssprofile", of the published profiler, has the expansions 1, 3, 6 (Mobile) and 1, 2, 4 (Res); "aw_nas",
of the search framework that reads the profiler's result (aw_nas, examples/research/bbssp), has 1, 1/3, 1/6 and 1, 1/2,
1/4. Numbers run through the kernels of one expansion, then of the next; for Mobile in "ssprofile" they run through the
expansions of one kernel, then of the next. Only Mobile 0, Res 0 to 2 and VGG are the same in both numberings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal, get_args

from gnomon.errors import ProblemError, UsageError, did_you_mean
from gnomon.spaces.unit import Symbol, Trace

Numbering = Literal["ssprofile", "aw_nas"]
NUMBERINGS: tuple[Numbering, ...] = get_args(Numbering)

PrimitiveBlock = Callable[[Symbol, int, int], Symbol]
"""A function that writes the layers of a block: it makes the output from the input, the number of output channels and
the stride.
"""

ModuleFactory = Callable[[int, int, int], Any]
"""A function that makes a `torch.nn.Module` for inputs (N, C, H, W) from the number of its input channels, the number
of its output channels, and its stride.
"""

STEM, HEAD = "stem", "head"
"""The names of a user's own blocks before and after all cells."""

_NAME = re.compile(r"(?P<family>[A-Za-z][A-Za-z0-9_]*?)block_(?P<number>[0-9]{1,6})", re.ASCII)
_DIGEST_DIGITS = 12
_STEM = re.compile(r"conv(?P<bn>_bn)?(?P<relu>_relu)?_(?P<kernel>[1-9])x(?P=kernel)")
_STEM1 = "imagenet_stem1"
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
"""The published default of each family, as its position among the family's primitives in a config, sorted by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A block by its published name; `meaning` describes its structure in words.

    It has either a `block` or a `module`; otherwise ProblemError is raised. `gnomon.training.modules` makes the block
    of a module. For a choice of a space written in Python, `called` is the name of the choice.
    """

    family: str
    number: int
    block: PrimitiveBlock | None = None
    module: ModuleFactory | None = None
    meaning: str = ""
    called: str = ""

    def __post_init__(self) -> None:
        if (self.block is None) == (self.module is None):
            raise ProblemError(
                f"{self.name} has {'neither a block nor a module' if self.block is None else 'a block and a module'}",
                hint="Give either block=, a function of a Symbol, or module=, a function that makes a torch.nn.Module.",
            )

    @property
    def name(self) -> str:
        """The name in configs and tables: "Mobileblock_3"."""
        return self.called or f"{self.family}block_{self.number}"

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the structure, regardless of name and number.

        They are a digest of the layers of the block with 8 input channels, for 8 output channels with stride 1 and for
        16 with stride 2; the block of a module has a digest of its own.
        """
        if (own := getattr(self.block, "digest", None)) is not None:
            return str(own)
        layers = []
        for channels, stride in ((8, 1), (16, 2)):
            trace = Trace(((1, 8, 16, 16),))
            net = trace.net(self.write(trace.input(), channels, stride))
            layers.append([[node.unit.canonical(), *node.inputs] for node in net.nodes])
        return digest_of(layers)

    def write(self, x: Symbol, channels: int, stride: int) -> Symbol:
        """The output of the block for `x`. ProblemError for a module whose block has not been made."""
        if self.block is None:
            raise ProblemError(
                f"{self.name} is a PyTorch module, whose shapes are known only after PyTorch has created it",
                hint="Read the primitives with gnomon.training.modules.known_blocks.",
            )
        return self.block(x, channels, stride)


def digest_of(document: Any) -> str:
    """Twelve hexadecimal digits of a JSON document."""
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:_DIGEST_DIGITS]


def parse_name(name: str) -> tuple[str, int]:
    """The family and the number of a primitive's name. ProblemError for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ProblemError(
            f"{name!r} is not the name of a primitive",
            hint="Give a family, 'block_' and a number, such as Mobileblock_3.",
        )
    return match["family"], int(match["number"])


def family_of(name: str) -> str:
    """The family of a primitive's name; all choices of a space written in Python belong to one nameless family."""
    match = _NAME.fullmatch(name)
    return "" if match is None else match["family"]


def families_of(primitives: Iterable[Primitive]) -> dict[str, tuple[Primitive, ...]]:
    """Primitives by family, with families in the order of their first primitive and primitives sorted by number."""
    families: dict[str, list[Primitive]] = {}
    for primitive in primitives:
        families.setdefault(primitive.family, []).append(primitive)
    return {family: tuple(sorted(ones, key=lambda p: p.number)) for family, ones in families.items()}


def named(primitives: Mapping[str, Primitive], names: Sequence[str]) -> tuple[Primitive, ...]:
    """The primitives with these names. ProblemError for unknown names; it lists them and the known names."""
    unknown = [name for name in names if name not in primitives]
    if unknown:
        families = {name.rpartition("_")[0] for name in primitives}
        near = (did_you_mean(name, primitives) for name in unknown if name.rpartition("_")[0] not in families)
        raise ProblemError(
            f"these primitives are not known: {', '.join(unknown)}",
            hint=" ".join([*filter(None, near), f"Known: {', '.join(primitives)}. To add your own: --blocks FILE.py"]),
        )
    return tuple(primitives[name] for name in names)


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
    families = {
        "Mobile": [(partial(_mobile, kernel=k, expansion=e), f"{k}x{k}, expansion {e}") for k, e in mobile],
        "Res": [(partial(_res, kernel=k, expansion=e), f"{k}x{k}, expansion {e}") for k, e in res],
        "VGG": [(partial(_vgg, kernels=kernels), " ".join(f"{k}x{k}" for k in kernels)) for kernels in _VGG],
    }
    primitives = (
        Primitive(family=family, number=number, block=block, meaning=meaning)
        for family, blocks in families.items()
        for number, (block, meaning) in enumerate(blocks)
    )
    return {p.name: p for p in primitives}


def default_of(family: str, primitives: Sequence[Primitive]) -> Primitive:
    """The default among the primitives of a family, which are sorted by number: the second one of a published family,
    otherwise the first or only one.
    """
    return primitives[min(_DEFAULTS.get(family, 0), len(primitives) - 1)]


def stem(x: Symbol, *, operation: str, channels: int, stride: int = 1) -> Symbol:
    """The output of one of aw_nas's operations (in `aw_nas/ops/ops.py`) as a stem, before the first layer.

    `operation` is its name in aw_nas. A convolution is followed by a batch normalisation if the name contains "bn", and
    then by a ReLU if it contains "relu"; without "bn" it has a bias. Operations that are named after ImageNet have
    strides of their own.
    """
    match = _STEM.fullmatch(operation)
    if match is not None:
        kernel = int(match["kernel"])
        if not match["bn"]:
            return x.conv(channels, kernel, stride=stride, bias=True)
        y = x.conv(channels, kernel, stride=stride).batch_norm()
        return y.relu() if match["relu"] else y
    if operation == "imagenet_stem0_7x7":
        return x.conv(channels, 7, stride=2).batch_norm().relu()
    y = x.conv(max(1, channels // 2), 3, stride=2).batch_norm().relu()
    y = y.conv(channels, 3, stride=2).batch_norm()
    return y.relu().conv(channels, 3, stride=2).batch_norm().relu() if operation == _STEM1 else y


def _expanded(x: Symbol, channels: int, stride: int, kernel: int, expansion: Fraction) -> Symbol:
    y = x.conv(max(1, int(x.channels * expansion)), 1).batch_norm().relu()
    y = y.conv(y.channels, kernel, stride=stride).batch_norm().relu()
    return y.conv(channels, 1).batch_norm()


def _mobile(x: Symbol, channels: int, stride: int, *, kernel: int, expansion: Fraction) -> Symbol:
    y = _expanded(x, channels, stride, kernel, expansion)
    return ((x + y) if stride == 1 and x.channels == channels else y).relu()


def _res(x: Symbol, channels: int, stride: int, *, kernel: int, expansion: Fraction) -> Symbol:
    a = _expanded(x, channels, stride, kernel, expansion)
    b = x.conv(x.channels, kernel, stride=stride).batch_norm().relu()
    b = b.conv(channels, 1).batch_norm()
    return (a + b).relu()


def _vgg(x: Symbol, channels: int, stride: int, *, kernels: Sequence[int]) -> Symbol:
    for kernel in kernels:
        x = x.conv(channels, kernel).batch_norm().relu()
    return x.max_pool(stride, stride=stride) if stride > 1 else x

"""Schedules that a layer's search begins with where nothing is known of it: blocks of the output that fit registers.

As libraries of kernels do it: the innermost loop is whole vectors of the output's last axis, and so many places of the
axes before it are summed up side by side that the sums stay in registers. Everything else is left to the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm

from . import carry

_SPLIT, _UNROLL, _PLACE = "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation"
_LEVELS, _SUMMED = 4, 2
"""Into how many loops a rule of MetaSchedule's splits an axis of the output, and one that is summed over."""

_WIDTHS = {"avx512f": 512, "avx": 256}
"""Bits of a vector by LLVM's name of the instructions, the widest first; all others have 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """How many vectors are summed up side by side, so many steps of the innermost sum at a time; whether all of the
    other sums (a kernel's rows and columns) are inside; and whether what is padded is so in one go before all else,
    or for each block.
    """

    vectors: int
    steps: int
    inside: bool
    first: bool


_BLOCKS = (
    _Block(vectors=12, steps=4, inside=False, first=False),
    _Block(vectors=6, steps=16, inside=True, first=False),
    _Block(vectors=12, steps=4, inside=False, first=True),
    _Block(vectors=6, steps=16, inside=True, first=True),
)


def candidates(designs: list[Any], context: Any, target: Any) -> Iterator[Any]:
    """Candidates of a layer by its designs, the likeliest first; none of a layer whose designs are of another kind."""
    fitting = [design for design in map(carry.plain, (one.trace for one in designs)) if _splits(design)]
    if not fitting:
        return
    design = fitting[-1]  # the one whose sums have a place of their own, where the rules made such
    lanes = _lanes(context.mod, target)
    for block in _BLOCKS:
        made = carry.applied(_decided(design, block, lanes), context)
        if made is not None:
            yield made


def _lanes(module: Any, target: Any) -> int:
    """How many of a function's results the processor's vectors hold."""
    function = next(f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    features = {str(name) for name in tvm.target.codegen.llvm_get_cpu_features(target)}
    width = next((bits for name, bits in _WIDTHS.items() if name in features), 128)
    return max(1, width // int(tvm.runtime.DataType(str(function.params[-1].dtype)).bits))


def _splits(design: Any) -> list[tuple[Any, int]]:
    """The splits of a design with their sizes, the output's axes first; none where they are of another kind."""
    found = [(one, carry.size(design, one)) for one in design.insts if one.kind.name == _SPLIT]
    levels = [int(one.attrs[0]) for one, _ in found]
    fits = levels == sorted(levels, reverse=True) and set(levels) <= {_LEVELS, _SUMMED} and _LEVELS in levels
    return found if fits else []


def _decided(design: Any, block: _Block, lanes: int) -> Any:
    """The design with the decisions of a block."""
    splits = _splits(design)
    axes = [one for one in splits if int(one[0].attrs[0]) == _LEVELS]
    sums = splits[len(axes) :]
    width = vector(axes[-1][1], lanes)
    inner = [1] * len(axes)
    inner[-1], left = width, max(1, block.vectors // math.ceil(width / lanes))
    for place in range(len(axes) - 2, -1, -1):
        inner[place] = _divisor(axes[place][1], left)
        left //= inner[place]
    made = design
    for (one, size), most in zip(axes, inner, strict=True):
        made = made.with_decision(one, [size // most, 1, 1, most], remove_postproc=True)
    for place, (one, size) in enumerate(sums):
        last = place == len(sums) - 1
        most = _divisor(size, block.steps) if last else size if block.inside else 1
        made = made.with_decision(one, [size // most, most], remove_postproc=True)
    for one in design.insts:
        if one.kind.name == _UNROLL:
            made = made.with_decision(one, len(one.attrs[0]) - 1, remove_postproc=True)
        elif one.kind.name == _PLACE:
            # Among the loops of the output's axes, the last of the second level has one block inside.
            made = made.with_decision(one, -1 if block.first else 2 * len(axes) - 1, remove_postproc=True)
    return made


def vector(size: int, lanes: int) -> int:
    """How much of an axis of `size` is innermost: two whole vectors, one, or half of one; else what fills most of one.

    (What fills more than one and not all of it is compiled to code that is many times as slow.)
    """
    whole = math.gcd(size, 2 * lanes)
    return whole if 2 * whole >= lanes else _divisor(size, lanes)


def _divisor(size: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if size % n == 0)

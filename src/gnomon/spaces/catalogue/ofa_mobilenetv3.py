"""The Once-for-All MobileNetV3 space (width 1.0): kernel, expansion, depth and resolution. Cai et al., ICLR 2020.

Widths, strides, activations and squeeze-and-excitation are those of mit-han-lab/once-for-all, OFAMobileNetV3.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import ProblemError
from gnomon.spaces.blocks import BlockSpace, Choice, Stage
from gnomon.spaces.catalogue.inverted_residual import ConvBlock, InvertedResidual
from gnomon.spaces.features import Ints
from gnomon.spaces.unit import Symbol

STAGES = (
    (24, 2, "Relu", False),
    (40, 2, "Relu", True),
    (80, 2, "HardSwish", False),
    (112, 1, "HardSwish", True),
    (160, 2, "HardSwish", True),
)
"""For each stage: its channels, its first stride, its activation, and whether it has squeeze and excitation."""

RESOLUTIONS = tuple(range(128, 225, 4))
KERNELS = (3, 5, 7)
EXPANSIONS = (3, 4, 6)
DEPTHS = (2, 3, 4)
_MOST_LAYERS = max(DEPTHS)


def ofa_mobilenetv3(classes: int = 1000) -> BlockSpace:
    """The space. Slots: the resolution, then for each stage its depth and, for each of four layers, its kernel and
    expansion.
    """
    return BlockSpace(
        name="ofa-mobilenetv3" if classes == 1000 else f"ofa-mobilenetv3-{classes}",
        inputs=tuple((1, 3, size, size) for size in RESOLUTIONS),
        parts=(
            ConvBlock(channels=16, kernel=3, stride=2, activation="HardSwish"),
            InvertedResidual(channels=16, kernel=3, expansion=1, activation="Relu"),
            *(_stage(number, *stage) for number, stage in enumerate(STAGES)),
            ConvBlock(channels=960, kernel=1, activation="HardSwish"),
            _head,
            partial(Symbol.linear, features=classes),
        ),
    )


def assignments_of(kernels: ArrayLike, expansions: ArrayLike, depths: ArrayLike, resolutions: ArrayLike) -> Ints:
    """The assignments of nets given as values: (n, 20) kernels and expansions, (n, 5) depths, (n,) image sizes.

    ProblemError for a value that is not in the space.
    """
    kernel, expansion = _index(kernels, KERNELS, "kernel"), _index(expansions, EXPANSIONS, "expansion")
    depth, size = _index(depths, DEPTHS, "depth"), _index(resolutions, RESOLUTIONS, "resolution")
    layers = kernel * len(EXPANSIONS) + expansion
    columns = [size[:, None]]
    for stage in range(len(STAGES)):
        columns += [depth[:, stage : stage + 1], layers[:, stage * _MOST_LAYERS : (stage + 1) * _MOST_LAYERS]]
    return np.concatenate(columns, axis=1)


def _stage(number: int, channels: int, first_stride: int, activation: str, squeeze: bool) -> Stage:
    positions = []
    for index in range(_MOST_LAYERS):
        blocks = {
            f"k{kernel}_e{expansion}": InvertedResidual(
                channels=channels,
                kernel=kernel,
                expansion=expansion,
                stride=first_stride if index == 0 else 1,
                activation=activation,
                squeeze=squeeze,
            )
            for kernel in KERNELS
            for expansion in EXPANSIONS
        }
        positions.append(Choice(f"stage{number}.layer{index}", blocks))
    return Stage(f"stage{number}", DEPTHS, tuple(positions))


def _head(x: Symbol) -> Symbol:
    """The mixing of features after the pool: a 1x1 convolution on the means."""
    return x.global_average_pool().conv(1280, 1).hard_swish()


def _index(values: ArrayLike, allowed: tuple[int, ...], what: str) -> Ints:
    given = np.asarray(values).astype(np.int64)
    position = np.searchsorted(allowed, given).clip(max=len(allowed) - 1)
    wrong = given[np.asarray(allowed)[position] != given]
    if wrong.size:
        raise ProblemError(
            f"{what} {wrong.flat[0]} is not in this space", hint=f"Choose from: {', '.join(map(str, allowed))}."
        )
    return position

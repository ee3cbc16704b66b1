"""The prior of the linear model: the table's prices as its mean, and blocks of directions in which it may be wrong.

A block is a set of directions in the space of coefficients with one unknown size: the bias, the scale of the table, the
columns of one kind, the mean of other devices, the ways in which they differ. The model's special cases are limits of
these sizes: all zero is the raw sum, bias and table free is scale-and-bias, kinds free is the inverse table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.estimate.columns import Columns, Floats

BIAS_SIZE = 1.0
TABLE_SIZE = 0.3
KIND_SIZE = 0.5
PRICED_SIZE = 0.1
BESIDE_SOURCES_SIZE = 0.1
SIZE_SPREAD = 1.5  # of the logarithm of a block's size
_LEAST_VARIATION = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Directions with one unknown size: `design` their effect on the samples (n, r), `directions` (1 + columns, r).

    Row 0 of the directions is the bias. `size` is the median of the size's log-normal prior.
    """

    name: str
    directions: Floats
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The prior of the coefficients, bias first, in units of the level: mean and blocks."""

    mean: Floats
    blocks: tuple[Block, ...]


def build(columns: Columns, x: Floats, level_s: float, sources: Sequence[Floats]) -> Prior:
    """The prior for samples `x` (n, columns) whose times have this level (their median).

    `sources` are coefficients (1 + columns) of other devices, each divided by that device's level.
    """
    width = 1 + len(columns)
    mean = np.zeros(width)
    blocks: list[Block] = []
    if len(x):
        blocks.append(Block(name="bias", directions=_unit(0, width), size=BIAS_SIZE))
    priced = _priced(columns)
    if priced.any() and columns.prior_s is not None:
        mean[1:][priced] = columns.prior_s[priced] / level_s
        blocks.append(Block(name="table", directions=mean[:, None].copy(), size=TABLE_SIZE))
    if sources:
        blocks += _source_blocks(sources)
    for kind in dict.fromkeys(columns.kinds):
        members = columns.of_kind(kind)
        size = PRICED_SIZE if priced[members].all() else BESIDE_SOURCES_SIZE if sources else KIND_SIZE
        directions = np.zeros((width, len(members)))
        directions[1 + members, np.arange(len(members))] = _sizes(columns, members, x, mean)
        blocks.append(Block(name=kind, directions=directions, size=size))
    return Prior(mean=mean, blocks=tuple(blocks))


def _priced(columns: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if columns.prior_s is None:
        return np.zeros(len(columns), dtype=bool)
    return ~np.isnan(columns.prior_s)


def _unit(index: int, width: int) -> Floats:
    direction = np.zeros((width, 1))
    direction[index] = 1.0
    return direction


def _source_blocks(sources: Sequence[Floats]) -> list[Block]:
    stack = np.stack([np.asarray(s, dtype=float) for s in sources], axis=1)
    middle = stack.mean(axis=1, keepdims=True)
    blocks = [Block(name="other devices", directions=middle, size=1.0)]
    if stack.shape[1] > 1:
        blocks.append(Block(name="differences of devices", directions=stack - middle, size=KIND_SIZE))
    return blocks


def _sizes(columns: Columns, members: np.ndarray[tuple[int], np.dtype[np.intp]], x: Floats, mean: Floats) -> Floats:
    """The size of one step of a kind's prior, a column: its price, or what moves the level by one at the usual
    variation."""
    scale = np.ones(len(members)) if columns.scale is None else columns.scale[members]
    own = mean[1:][members]
    if (own > 0).all():
        return own
    inner = x[:, members] / scale
    if len(x) > 1:
        inner = inner - inner.mean(axis=0)
    variation = float(np.sqrt((inner**2).sum(axis=1).mean())) if inner.size else 0.0
    usual = 1.0 / variation if variation > _LEAST_VARIATION else 1.0
    if (own > 0).any():  # a table that prices some of the kind: the others cost what those do
        usual = float(np.exp(np.log(own[own > 0] * scale[own > 0]).mean()))
    return np.where(own > 0, own, usual / scale)

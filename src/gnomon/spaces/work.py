"""What a unit works, from its shapes alone: what units of different shapes have in common.

A unit that was never measured costs about what its work costs elsewhere, and a few whole nets say what each sort of
work costs: far fewer numbers than there are units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError
from gnomon.spaces.layers import Shape
from gnomon.spaces.unit import Unit, shapes

WORK = ("pointwise", "depthwise", "dense", "bytes", "weights", "pooled", "plain", "units")
"""Multiply-adds of convolutions with a 1x1 kernel, of those that keep channels apart, and of all others with those of
fully connected layers; bytes that are read and written, weights among them; weights; elements that a pool reads;
elements that anything else makes which is no convolution; and one for the unit itself."""


def told_work(units: Sequence[Unit], told: Callable[[Unit], Mapping[str, float]]) -> NDArray[np.float64]:
    """What a user's function tells of units, a column a name; a name that it leaves out is 0.

    ProblemError where it fails or tells anything but numbers.
    """
    said = []
    for unit in units:
        try:
            said.append({str(name): float(value) for name, value in told(unit).items()})
        except GnomonError:
            raise
        except Exception as error:  # whatever a user's function does
            raise ProblemError(
                f"the work of '{unit.label}' is not told: {type(error).__name__}: {error}",
                hint="The function is given a gnomon.spaces.Unit and returns {name: number}.",
            ) from error
    names = list(dict.fromkeys(name for row in said for name in row))
    found = np.array([[row.get(name, 0.0) for name in names] for row in said], dtype=np.float64)
    return found.reshape(len(units), len(names))


def relative_size(done: NDArray[np.float64]) -> NDArray[np.float64]:
    """How large units are beside the average one, over all sorts of work that any of them does: (units,), above 0."""
    mean = done.mean(axis=0)
    found: NDArray[np.float64] = (done[:, mean > 0] / mean[mean > 0]).mean(axis=1)
    return found


_BYTES = {"float32": 4, "float16": 2}
_POOLS = frozenset({"AveragePool", "MaxPool", "GlobalAveragePool"})


def work(units: Sequence[Unit]) -> NDArray[np.float64]:
    """The work of units, of shape (units, len(WORK))."""
    return np.array([_work(unit) for unit in units], dtype=np.float64).reshape(len(units), len(WORK))


@lru_cache(maxsize=1 << 16)
def _work(unit: Unit) -> tuple[float, ...]:
    found = dict.fromkeys(WORK, 0.0)
    made = shapes(unit)
    came: Shape = unit.inputs[0]
    for index, (one, shape) in enumerate(zip(unit.layers, made, strict=True)):
        if one.kind in ("Conv", "Linear"):
            weights = _weights(unit, index, came)
            found["weights"] += weights
            # Each weight meets each place of the output once.
            found[_sort(unit, index, came)] += weights * math.prod(shape) / shape[1]
        elif one.kind in _POOLS:
            found["pooled"] += math.prod(came)
        elif index == 0:  # what follows in a unit is done while its values are at hand
            found["plain"] += math.prod(shape)
        came = shape
    moved = sum(map(math.prod, unit.inputs)) + math.prod(made[-1]) + found["weights"]
    found["bytes"] = moved * _BYTES[unit.dtype]
    found["units"] = 1.0
    return tuple(found.values())


def _weights(unit: Unit, index: int, came: Shape) -> int:
    one = unit.layers[index]
    if one.kind == "Linear":
        return came[1] * one.integer("out_features")
    return came[1] // one.integer("group") * one.integer("out_channels") * math.prod(one.pair("kernel"))


def _sort(unit: Unit, index: int, came: Shape) -> str:
    one = unit.layers[index]
    if one.kind == "Linear":
        return "dense"
    if one.integer("group") == came[1] > 1:
        return "depthwise"
    return "pointwise" if one.pair("kernel") == (1, 1) else "dense"

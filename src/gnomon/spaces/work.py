"""The work of a unit, from its shapes alone, and its features: what units of different shapes have in common.

A unit that was never measured costs about what its work costs elsewhere, and a few whole nets say what each sort of
work costs: far fewer numbers than there are units.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError
from gnomon.spaces.layers import ELEMENTWISE, GENERIC, MOST_ELEMENTS, Layer, Shape, features_of
from gnomon.spaces.loading import users_errors
from gnomon.spaces.unit import VIEWS, Net, NetSize, Unit, shapes

WORK = ("pointwise", "depthwise", "dense", "bytes", "weights", "pooled", "plain", "units")
"""Multiply-adds of convolutions with a 1x1 kernel, of those that keep channels apart, and of all others with those of
fully connected layers; bytes that are read and written, weights among them; weights; elements that a pool reads;
elements that anything else makes which is not a convolution; and one for the unit itself."""

_BYTES = {"float32": 4, "float16": 2}
_POOLS = frozenset({"AveragePool", "MaxPool", "GlobalAveragePool"})
_IN_PLACE = frozenset({*ELEMENTWISE, *VIEWS, "BatchNormalization", "Scale", "Bias", "Add", "Mul"})


def size_of(net: Net) -> NetSize:
    """What a net needs, by its layers; each node of it is one layer."""
    done = dict(zip(WORK, work([node.unit for node in net.nodes]).sum(axis=0).tolist(), strict=True))
    return NetSize(
        parameters=round(done["weights"]) + sum(_beside_weights(n.unit.layers[0], n.unit.inputs[0]) for n in net.nodes),
        macs=round(done["pointwise"] + done["depthwise"] + done["dense"]),
        peak_bytes=None if any(node.unit.kinds == ("Module",) for node in net.nodes) else _peak_bytes(net),
    )


def _beside_weights(one: Layer, came: Shape) -> int:
    """The trained numbers of a layer beside its weights: biases, and the scales and shifts of normalisations."""
    if one.kind in ("Conv", "Linear"):
        return _outputs(one) if one["bias"] else 0
    axis = {"BatchNormalization": 1, "LayerNormalization": -1}.get(one.kind)
    return 0 if axis is None else 2 * came[axis]


def _peak_bytes(net: Net) -> int:
    last = {ref: index for index, node in enumerate(net.nodes) for ref in node.inputs}
    last[net.output] = len(net.nodes)
    there, peak = {ref for ref in last if ref < 0}, 0
    for index, node in enumerate(net.nodes):
        ended = {ref for ref in node.inputs if last[ref] == index}
        if node.unit.kinds[0] in _IN_PLACE:
            there -= ended
        there.add(index)
        peak = max(peak, sum(math.prod(net.shape(ref)) for ref in there) * _BYTES[node.unit.dtype])
        there -= ended
    return peak


def told_work(units: Sequence[Unit], told: Callable[[Unit], Mapping[str, float]]) -> NDArray[np.float64]:
    """What a user's function tells of units, a column a name; a name that it leaves out is 0.

    ProblemError where it fails or tells anything but numbers.
    """
    said = []
    for unit in units:
        hint = "The function is given a gnomon.spaces.Unit and returns {name: number}."
        with users_errors(f"the work of '{unit.label}' cannot be computed", hint, ProblemError):
            said.append({str(name): float(value) for name, value in told(unit).items()})
    names = list(dict.fromkeys(name for row in said for name in row))
    found = np.array([[row.get(name, 0.0) for name in names] for row in said], dtype=np.float64)
    return found.reshape(len(units), len(names))


def relative_size(done: NDArray[np.float64]) -> NDArray[np.float64]:
    """How large units are beside the average one, over all sorts of work that any of them does: (units,), above 0."""
    if not len(done):
        return np.zeros(0)
    mean = done.mean(axis=0)
    return np.asarray((done[:, mean > 0] / mean[mean > 0]).mean(axis=1))


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
            found[_sort(unit, index, came)] += weights * math.prod(shape) / _outputs(one)
        elif products := _products(unit, index, came, shape):
            found["weights"] += _constants(one)
            found["dense"] += products
        elif one.kind in _POOLS:
            found["pooled"] += math.prod(came)
        elif index == 0:  # what follows in a unit is done while its values are at hand
            found["weights"] += _constants(one)
            found["plain"] += math.prod(shape)
        came = shape
    moved = sum(map(math.prod, unit.inputs)) + math.prod(made[-1]) + found["weights"]
    found["bytes"] = moved * _BYTES[unit.dtype]
    found["units"] = 1.0
    return tuple(found.values())


def _weights(unit: Unit, index: int, came: Shape) -> int:
    one = unit.layers[index]
    if one.kind == "Linear":
        return features_of(came) * one.integer("out_features")
    return came[1] // one.integer("group") * one.integer("out_channels") * math.prod(one.pair("kernel"))


def _outputs(one: Layer) -> int:
    return one.integer("out_features" if one.kind == "Linear" else "out_channels")


def _products(unit: Unit, index: int, came: Shape, made: Shape) -> int:
    """The multiply-adds of what multiplies computed values, and of ONNX operators that are not a kind of their own."""
    one = unit.layers[index]
    if one.kind == "MatMul":
        return math.prod(made) * came[-1]
    if one.kind == "Attention":  # scores, and sums of values by them
        return 2 * math.prod(made) * (unit.inputs[-1][1] + one.integer("past"))
    if one.kind == "CachedAttention":
        return 2 * math.prod(made) * one.integer("past")
    if one.kind == "Module":
        return made[0] * one.integer("macs")
    return one.integer("macs") if GENERIC.fullmatch(one.kind) else 0


@lru_cache(maxsize=1 << 14)
def _constants(one: Layer) -> int:
    """The numbers that a module, or an ONNX operator which is not a kind of its own, has as constants."""
    if one.kind == "Module":
        return one.integer("params")
    if not GENERIC.fullmatch(one.kind):
        return 0
    try:
        operands = json.loads(str(one["operands"]))
        count = sum(math.prod(operand["shape"]) for operand in operands if operand)
        return count if count <= MOST_ELEMENTS else 0
    except (ValueError, TypeError, KeyError):
        return 0


def _sort(unit: Unit, index: int, came: Shape) -> str:
    one = unit.layers[index]
    if one.kind == "Linear":
        return "dense"
    if one.integer("group") == came[1] > 1:
        return "depthwise"
    return "pointwise" if one.pair("kernel") == (1, 1) else "dense"


def multiplies(unit: Unit) -> bool:
    """Whether a unit has products: no runtime runs two such operators as one."""
    return any(_work(unit)[: WORK.index("dense") + 1])


def families(units: Sequence[Unit]) -> tuple[str, ...]:
    """What the heaviest layer of each unit does, as "multiplies:dense" or "moves:Relu".

    Units of one family are priced by each other, and by those that share what stands before the colon.
    """
    return tuple(_family(unit) for unit in units)


def features(units: Sequence[Unit]) -> NDArray[np.float64]:
    """What the time of a unit depends on, mostly as logarithms: (units, 11).

    Work, elements moved, weights, channels that come and go, places of the output, kernel and stride of the heaviest
    layer (of a transposition how many numbers stay side by side); whether channels that come and go are not multiples
    of eight, as vectors are; how many layers run as one.
    """
    return np.array([_features(unit) for unit in units], dtype=np.float64).reshape(len(units), 11)


def _heaviest(unit: Unit) -> tuple[Layer, Shape, Shape]:
    """The first layer that multiplies, else the first, with what comes to it and what it makes."""
    came = unit.inputs[0]
    for index, (one, made) in enumerate(zip(unit.layers, shapes(unit), strict=True)):
        if one.kind in ("Conv", "Linear") or _products(unit, index, came, made):
            return one, came, made
        came = made
    return unit.layers[0], unit.inputs[0], shapes(unit)[0]


@lru_cache(maxsize=1 << 16)
def _family(unit: Unit) -> str:
    one, came, _ = _heaviest(unit)
    # Whole numbers are computed by other kernels than those that have a fraction.
    types = " of whole numbers" if any(layer.of_whole_numbers for layer in unit.layers) else ""
    if one.kind != "Conv":
        name = GENERIC.sub(r"\g<name>", one.kind)
        return f"{'multiplies' if _work(unit)[WORK.index('dense')] else 'moves'}:{name}{types}"
    group = one.integer("group")
    if group > 1:
        return f"multiplies:{'depthwise' if group == came[1] else 'grouped'}{types}"
    return f"multiplies:{'pointwise' if one.pair('kernel') == (1, 1) else 'dense'}{types}"


def _kept(perm: Sequence[int], shape: Shape) -> int:
    """How many numbers stay side by side in another order of the axes."""
    kept = 1
    for axis in reversed(range(len(perm))):
        if perm[axis] != axis:
            break
        kept *= shape[axis]
    return kept


@lru_cache(maxsize=1 << 16)
def _features(unit: Unit) -> tuple[float, ...]:
    one, came, made = _heaviest(unit)
    done = dict(zip(WORK, _work(unit), strict=True))
    moved = sum(map(math.prod, unit.inputs)) + math.prod(unit.output)
    axis = -1 if one.kind == "Linear" or one.kind.startswith("tflite.") else min(1, len(came) - 1, len(made) - 1)
    reads = features_of(came) if one.kind == "Linear" else came[axis] if came else 1
    makes = made[axis] if made else 1
    names = dict(one.attributes)
    kernel, stride = (math.prod(one.pair(name)) if name in names else 1 for name in ("kernel", "stride"))
    if one.kind == "Transpose":
        kernel = _kept(one.numbers("perm"), came)
    return (
        math.log(done["pointwise"] + done["depthwise"] + done["dense"] + moved),
        math.log(moved),
        math.log1p(done["weights"]),
        math.log(reads),
        math.log(makes),
        math.log(max(1.0, math.prod(made) / makes)),
        math.log(kernel),
        math.log(stride),
        float(reads % 8 > 0),
        float(makes % 8 > 0),
        float(len(unit.layers) - 1),
    )

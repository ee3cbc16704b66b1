"""The work of a unit, from its shapes alone, and its features, by which units of different shapes are compared.

A unit that has never been measured costs about as much as the same work in other units. A few whole nets show the cost
of each sort of work, because there are far fewer sorts of work than units.
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
"""The sorts of work: multiply-adds of convolutions with a 1x1 kernel, of depthwise convolutions, and of all other
convolutions and fully connected layers; bytes read and written, including weights; weights; elements that a pool reads;
elements that any other layer makes, if it is the first in its unit; and 1 for the unit itself.
"""

_BYTES = {"float32": 4, "float16": 2}
_POOLS = frozenset({"AveragePool", "MaxPool", "GlobalAveragePool"})
_IN_PLACE = frozenset({*ELEMENTWISE, *VIEWS, "BatchNormalization", "Scale", "Bias", "Add", "Mul"})


def size_of(net: Net) -> NetSize:
    """The size of a net whose nodes are single layers."""
    done = dict(zip(WORK, work([node.unit for node in net.nodes]).sum(axis=0).tolist(), strict=True))
    return NetSize(
        parameters=round(done["weights"]) + sum(_beside_weights(n.unit.layers[0], n.unit.inputs[0]) for n in net.nodes),
        macs=round(done["pointwise"] + done["depthwise"] + done["dense"]),
        peak_bytes=None if any(node.unit.kinds == ("Module",) for node in net.nodes) else _peak_bytes(net),
    )


def _beside_weights(op: Layer, came: Shape) -> int:
    """The parameters of a layer in addition to its weights: biases, and the scales and shifts of normalisations."""
    if op.kind in ("Conv", "Linear"):
        return _outputs(op) if op["bias"] else 0
    axis = {"BatchNormalization": 1, "LayerNormalization": -1}.get(op.kind)
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


def told_work(units: Sequence[Unit], function: Callable[[Unit], Mapping[str, float]]) -> NDArray[np.float64]:
    """The results of a user's function for units, with a column for each name; names that a result lacks count as 0.

    ProblemError if the function fails or returns anything but numbers.
    """
    said = []
    for unit in units:
        hint = "The function gets a gnomon.spaces.Unit and returns {name: number}."
        with users_errors(f"the work of '{unit.label}' cannot be computed", hint, ProblemError):
            said.append({str(name): float(value) for name, value in function(unit).items()})
    names = list(dict.fromkeys(name for row in said for name in row))
    table = np.array([[row.get(name, 0.0) for name in names] for row in said], dtype=np.float64)
    return table.reshape(len(units), len(names))


def relative_size(done: NDArray[np.float64]) -> NDArray[np.float64]:
    """The size of each unit relative to the average unit, as a mean over the sorts of work that occur (units,); above
    0.
    """
    if not len(done):
        return np.zeros(0)
    mean = done.mean(axis=0)
    return np.asarray((done[:, mean > 0] / mean[mean > 0]).mean(axis=1))


def work(units: Sequence[Unit]) -> NDArray[np.float64]:
    """The work of units, of shape (units, len(WORK))."""
    return np.array([_work(unit) for unit in units], dtype=np.float64).reshape(len(units), len(WORK))


@lru_cache(maxsize=1 << 16)
def _work(unit: Unit) -> tuple[float, ...]:
    done = dict.fromkeys(WORK, 0.0)
    outputs = shapes(unit)
    came: Shape = unit.inputs[0]
    for index, (op, shape) in enumerate(zip(unit.layers, outputs, strict=True)):
        if op.kind in ("Conv", "Linear"):
            weights = _weights(unit, index, came)
            done["weights"] += weights
            # Each weight is used once for each place of the output.
            done[_sort(unit, index, came)] += weights * math.prod(shape) / _outputs(op)
        elif products := _products(unit, index, came, shape):
            done["weights"] += _constants(op)
            done["dense"] += products
        elif op.kind in _POOLS:
            done["pooled"] += math.prod(came)
        elif index == 0:  # later layers of a unit run while its values are still in fast memory
            done["weights"] += _constants(op)
            done["plain"] += math.prod(shape)
        came = shape
    moved = sum(map(math.prod, unit.inputs)) + math.prod(outputs[-1]) + done["weights"]
    done["bytes"] = moved * _BYTES[unit.dtype]
    done["units"] = 1.0
    return tuple(done.values())


def _weights(unit: Unit, index: int, came: Shape) -> int:
    op = unit.layers[index]
    if op.kind == "Linear":
        return features_of(came) * op.integer("out_features")
    return came[1] // op.integer("group") * op.integer("out_channels") * math.prod(op.pair("kernel"))


def _outputs(op: Layer) -> int:
    return op.integer("out_features" if op.kind == "Linear" else "out_channels")


def _products(unit: Unit, index: int, came: Shape, output: Shape) -> int:
    """The multiply-adds of a layer that multiplies computed values, or of an operator in a model's own format."""
    op = unit.layers[index]
    if op.kind == "MatMul":
        return math.prod(output) * came[-1]
    if op.kind == "Attention":  # scores, and sums of values weighted by them
        return 2 * math.prod(output) * (unit.inputs[-1][1] + op.integer("past"))
    if op.kind == "CachedAttention":
        return 2 * math.prod(output) * op.integer("past")
    if op.kind == "Module":
        return output[0] * op.integer("macs")
    return op.integer("macs") if GENERIC.fullmatch(op.kind) else 0


@lru_cache(maxsize=1 << 14)
def _constants(op: Layer) -> int:
    """The number of constants of a module, or of an operator in a model's own format."""
    if op.kind == "Module":
        return op.integer("params")
    if not GENERIC.fullmatch(op.kind):
        return 0
    try:
        operands = json.loads(str(op["operands"]))
        count = sum(math.prod(operand["shape"]) for operand in operands if operand)
        return count if count <= MOST_ELEMENTS else 0
    except (ValueError, TypeError, KeyError):
        return 0


def _sort(unit: Unit, index: int, came: Shape) -> str:
    op = unit.layers[index]
    if op.kind == "Linear":
        return "dense"
    if op.integer("group") == came[1] > 1:
        return "depthwise"
    return "pointwise" if op.pair("kernel") == (1, 1) else "dense"


def multiplies(unit: Unit) -> bool:
    """Return True if a unit has multiply-adds. No runtime runs two such operators as one kernel."""
    return any(_work(unit)[: WORK.index("dense") + 1])


def families(units: Sequence[Unit]) -> tuple[str, ...]:
    """The family of each unit, by its heaviest layer, such as "multiplies:dense" or "moves:Relu".

    Units are priced from other units of the same family, and from families with the same word before the colon.
    """
    return tuple(_family(unit) for unit in units)


def features(units: Sequence[Unit]) -> NDArray[np.float64]:
    """The properties on which the time of a unit depends, mostly as logarithms: (units, 11).

    They are the work, the elements moved and the weights; the input and output channels, the places of the output, the
    kernel (for a transposition, the number of values that stay adjacent) and the stride of the heaviest layer; whether
    the numbers of its input and output channels are not multiples of eight, the width of vectors; and the number of
    layers minus 1.
    """
    return np.array([_features(unit) for unit in units], dtype=np.float64).reshape(len(units), 11)


def _heaviest(unit: Unit) -> tuple[Layer, Shape, Shape]:
    """The first layer with multiply-adds, otherwise the first layer, and its input and output shapes."""
    came = unit.inputs[0]
    for index, (op, output) in enumerate(zip(unit.layers, shapes(unit), strict=True)):
        if op.kind in ("Conv", "Linear") or _products(unit, index, came, output):
            return op, came, output
        came = output
    return unit.layers[0], unit.inputs[0], shapes(unit)[0]


@lru_cache(maxsize=1 << 16)
def _family(unit: Unit) -> str:
    op, came, _ = _heaviest(unit)
    # Runtimes have different kernels for integers and for floats.
    types = " of whole numbers" if any(layer.of_whole_numbers for layer in unit.layers) else ""
    if op.kind != "Conv":
        name = GENERIC.sub(r"\g<name>", op.kind)
        return f"{'multiplies' if _work(unit)[WORK.index('dense')] else 'moves'}:{name}{types}"
    group = op.integer("group")
    if group > 1:
        return f"multiplies:{'depthwise' if group == came[1] else 'grouped'}{types}"
    return f"multiplies:{'pointwise' if op.pair('kernel') == (1, 1) else 'dense'}{types}"


def _kept(perm: Sequence[int], shape: Shape) -> int:
    """The number of values that stay adjacent when the axes are reordered."""
    kept = 1
    for axis in reversed(range(len(perm))):
        if perm[axis] != axis:
            break
        kept *= shape[axis]
    return kept


@lru_cache(maxsize=1 << 16)
def _features(unit: Unit) -> tuple[float, ...]:
    op, came, output = _heaviest(unit)
    done = dict(zip(WORK, _work(unit), strict=True))
    moved = sum(map(math.prod, unit.inputs)) + math.prod(unit.output)
    axis = -1 if op.kind == "Linear" or op.kind.startswith("tflite.") else min(1, len(came) - 1, len(output) - 1)
    reads = features_of(came) if op.kind == "Linear" else came[axis] if came else 1
    makes = output[axis] if output else 1
    names = dict(op.attributes)
    kernel, stride = (math.prod(op.pair(name)) if name in names else 1 for name in ("kernel", "stride"))
    if op.kind == "Transpose":
        kernel = _kept(op.numbers("perm"), came)
    return (
        math.log(done["pointwise"] + done["depthwise"] + done["dense"] + moved),
        math.log(moved),
        math.log1p(done["weights"]),
        math.log(reads),
        math.log(makes),
        math.log(max(1.0, math.prod(output) / makes)),
        math.log(kernel),
        math.log(stride),
        float(reads % 8 > 0),
        float(makes % 8 > 0),
        float(len(unit.layers) - 1),
    )

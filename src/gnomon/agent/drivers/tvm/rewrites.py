"""Rewrites every network before its layers are extracted: batch norms are folded into weights, and channels become the
last axis.

TVM's child program uses this file through a link, because records match only if the agent and the child create the same
layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

_CONVOLUTIONS_A_TURN = 4
"""Transposing a whole tensor costs time: at least this many convolutions per transposition must gain from it."""

_NORM, _ADD, _MATMUL = "relax.nn.batch_norm", "relax.add", "relax.matmul"
_MOVED = ("relax.reshape", "relax.expand_dims", "relax.permute_dims")
_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


def rewritten(module: Any) -> Any:
    """The network from which the layers are extracted."""
    return channels_last(norms_folded(module))


def bindings(function: Any) -> Iterator[Any]:
    """The bindings of a function, in order."""
    for block in function.body.blocks:
        yield from block.bindings


def is_call(value: Any, *operators: str) -> bool:
    """Return True if a value calls one of these operators."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in operators


def norms_folded(module: Any) -> Any:
    """The network without batch norms whose parameters are constants; TVM would turn these into separate functions.

    A norm is folded into the weights and the bias of the convolution or product before it if these weights are constant
    and nothing else reads the result. Any other norm becomes a multiplication and an addition, which are fused with
    their neighbours.
    """
    if not any(is_call(binding.value, _NORM) for binding in bindings(module["main"])):
        return module
    module = relax.transform.DeadCodeElimination()(module)  # statistics that nothing reads
    plan = _Plan.of(module["main"])
    folded = tvm.IRModule(dict(module.functions.items()))
    folded["main"] = _Folding(plan).visit_expr(module["main"])
    return relax.transform.DeadCodeElimination()(folded)


@dataclass(slots=True, kw_only=True)
class _Plan:
    """Planned changes, by variable.

    `weights` are the new weights of a call, with the name of its result. `sums` are the values that replace a sum with
    a bias. `norms` are the input of a norm, its factors (None if they are in the weights) and its summands.
    """

    weights: dict[Any, tuple[Any, str]] = field(default_factory=dict)
    sums: dict[Any, Any] = field(default_factory=dict)
    norms: dict[Any, tuple[Any, Any, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Any) -> _Plan:
        values = {binding.var: binding.value for binding in bindings(function)}
        uses = Counter(var for value in values.values() for var in relax.analysis.free_vars(value))
        uses.update(relax.analysis.free_vars(function.body.body))
        plan = cls()
        for var, value in values.items():
            if not isinstance(value, relax.TupleGetItem) or value.index != 0:
                continue
            norm: Any = values.get(value.tuple_value)
            if is_call(norm, _NORM) and uses[value.tuple_value] == 1 and not norm.attrs.training:
                plan._add(var, norm, values, uses)
        return plan

    def _add(self, var: Any, norm: Any, values: Mapping[Any, Any], uses: Mapping[Any, int]) -> None:
        """Plan a norm's change, unless one of its parameters is not constant."""
        given = [_constant(argument, values) for argument in norm.args[1:]]
        if any(array is None for array in given):
            return
        factor, summand, mean, variance = (array.astype("float64") for array in given)
        attrs, rank = norm.attrs, len(var.ty.shape)
        axis = int(attrs.axis) % rank
        factor = (factor if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        summand = (summand if attrs.center else 0.0) - mean * factor
        data = norm.args[0]
        source, bias = data, 0.0
        of: Any = values.get(data)
        if is_call(of, _ADD) and uses[data] == 1:
            added = _constant(of.args[1], values)
            if added is not None and _along(added, axis, rank):
                source, bias = of.args[0], added.astype("float64").reshape(-1)
        weights = None if uses[source] != 1 else _scaled(values.get(source), factor, axis, rank, values)
        dtype = str(var.ty.dtype)
        shape = [-1 if place == axis else 1 for place in range(rank)]
        if weights is None:
            self.norms[var] = (data, *(relax.const(array.reshape(shape).astype(dtype)) for array in (factor, summand)))
            return
        self.weights[source] = relax.const(weights.astype(dtype)), str(data.name)
        if source is not data:
            self.sums[data] = source
        self.norms[var] = (source, None, relax.const((bias * factor + summand).reshape(shape).astype(dtype)))


def _scaled(call: Any, factor: Any, axis: int, rank: int, values: Mapping[Any, Any]) -> Any:
    """The weights of a call multiplied by a factor for each output channel; None unless its weights are constant and in
    a known layout.
    """
    if not is_call(call, *_CONVOLUTIONS, _MATMUL):
        return None
    weights = _constant(call.args[1], values)
    if weights is None:
        return None
    if is_call(call, _MATMUL):
        return weights * factor if weights.ndim == 2 and axis == rank - 1 else None
    if axis != 1 or not (call.attrs.data_layout.startswith("NC") and call.attrs.kernel_layout.startswith("OI")):
        return None
    return weights * factor.reshape(-1, *[1] * (rank - 1))


def _along(value: Any, axis: int, rank: int) -> bool:
    """Return True if an added value has size 1 along all axes except this one."""
    shape = [1] * (rank - value.ndim) + list(value.shape)
    return len(shape) == rank and all(size == 1 for place, size in enumerate(shape) if place != axis)


def _constant(value: Any, values: Mapping[Any, Any]) -> Any:
    """The numbers of a constant, even if it is reshaped or transposed; None for any other value."""
    value = values.get(value, value) if isinstance(value, relax.Var) else value
    if isinstance(value, tvm.ir.expr.GenericConst):
        return value.value.numpy()
    given = _constant(value.args[0], values) if is_call(value, *_MOVED) else None
    if given is None:
        return None
    if is_call(value, "relax.permute_dims"):
        axes = value.attrs.axes
        return given.transpose(None if axes is None else [int(axis) for axis in axes])
    return given.reshape([int(dim) for dim in value.ty.shape])


@relax.expr_functor.mutator
class _Folding(relax.PyExprMutator):  # type: ignore[misc]
    """Carries out a plan. Bound values keep their names, because the agent identifies a model's operators by them."""

    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self._plan = plan

    def visit_var_binding_(self, binding: Any) -> None:
        var, value, plan = binding.var, binding.value, self._plan
        name = str(var.name)
        if var in plan.sums:
            self.set_var_remap(var, self.visit_expr(plan.sums[var]))
            return
        if var in plan.weights:
            weights, name = plan.weights[var]
            value = relax.Call(value.op, [value.args[0], weights], value.attrs)
        elif var in plan.norms:
            source, factor, summand = plan.norms[var]
            if factor is not None:
                source = self.builder_.emit(self.visit_expr(relax.op.multiply(source, factor)), name)
            value = relax.op.add(source, summand)
        else:
            super().visit_var_binding_(binding)
            return
        emit = self.builder_.emit if isinstance(var, relax.DataflowVar) else self.builder_.emit_output
        self.set_var_remap(var, emit(self.visit_expr(value), name))


def channels_last(module: Any) -> Any:
    """The network with its convolutions' channels last if only a few other tensors must be transposed for this, and
    otherwise the unchanged network. With channels last, they fill whole vectors even if an image is small.
    """
    given = wildcard()

    def leaky(call: Any, matched: Any) -> Any:
        # TVM does not know that this operator works with any order of axes, and would transpose before and after it.
        alpha, x = float(call.attrs.alpha), matched[given]
        if not 0 <= alpha <= 1:
            return call
        return relax.op.maximum(x, relax.op.multiply(x, relax.const(np.array(alpha, str(x.ty.dtype)))))

    moved = tvm.IRModule(dict(module.functions.items()))
    try:
        moved["main"] = rewrite_call(is_op("relax.nn.leakyrelu")(given), leaky, module["main"])
        moved = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(moved)
    except Exception:  # a network that this TVM pass does not accept stays unchanged
        return module
    (convolutions, turned), (_, before) = _counts(moved["main"]), _counts(module["main"])
    return moved if convolutions and turned - before <= convolutions // _CONVOLUTIONS_A_TURN else module


def _counts(function: Any) -> tuple[int, int]:
    """The number of convolutions, and the number of transposed values that depend on the input."""
    convolutions, turned = 0, 0
    varying = set(function.params)
    for binding in bindings(function):
        if varying.isdisjoint(relax.analysis.free_vars(binding.value)):
            continue
        varying.add(binding.var)
        convolutions += is_call(binding.value, "relax.nn.conv2d")
        turned += is_call(binding.value, "relax.permute_dims")
    return convolutions, turned

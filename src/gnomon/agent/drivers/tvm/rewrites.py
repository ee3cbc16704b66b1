"""What is done to every network before its layers are told apart: batch norms go into weights, products of bytes are of
bytes, channels go last.

TVM's child program does the same by the same file, a link to this one, as records are of the layers that both make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.dpl import is_op, rewrite_call, wildcard
from tvm.s_tir import TensorIntrin

_CONVOLUTIONS_A_TURN = 4
"""Turning a whole tensor costs time: so many convolutions have to gain by it."""

_LANES, _SUMMED = 16, 4
"""How many numbers of 32 bits a dot-product instruction sums at once, and how many products of bytes go into each."""

DOT = "gnomon_dot_16x4"
"""What traces call the instruction that sums products of bytes. (TVM has such of its own, whose argument is of a type
that the LLVM in today's wheel refuses, and whose reading takes 15 s with all others.)
"""

DOT_NEEDS = "avx512vnni"
"""LLVM's name of the instructions that it is one of."""

_DOTS = (
    """
@T.prim_func(s_tir=True)
def meant(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((16, 4), "int8", offset_factor=1),
    C: T.Buffer((16,), "int32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        for i in T.serial(0, 16):
            for k in T.serial(0, 4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
""",
    """
@T.prim_func(s_tir=True)
def done(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((16, 4), "int8", offset_factor=1),
    C: T.Buffer((16,), "int32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        four = T.reinterpret(A.vload([0], "uint8x4"), dtype="int32")
        C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            C.vload([0], dtype="int32x16"),
            T.reinterpret(T.broadcast(four, 16), dtype="uint8x64"),
            B.vload([0, 0], dtype="int8x64"),
            dtype="int32x16",
        )
""",
)

_NORM, _ADD, _MATMUL = "relax.nn.batch_norm", "relax.add", "relax.matmul"
_MOVED = ("relax.reshape", "relax.expand_dims", "relax.permute_dims")
_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


def rewritten(module: Any) -> Any:
    """The network as its layers are taken from it."""
    return channels_last(bytes_multiplied(norms_folded(module)))


def has_dot(target: Any) -> bool:
    """Whether a target's processor has `DOT_NEEDS`."""
    return DOT_NEEDS in {str(name) for name in tvm.target.codegen.llvm_get_cpu_features(target)}


def register_dot() -> None:
    """Let schedules name `DOT`; what they make of it runs on processors that have `DOT_NEEDS` alone."""
    if TensorIntrin.get(DOT, allow_missing=True) is None:
        TensorIntrin.register(DOT, *(tvm.script.from_source(text) for text in _DOTS))


def bindings(function: Any) -> Iterator[Any]:
    """What a function binds, in order."""
    for block in function.body.blocks:
        yield from block.bindings


def is_call(value: Any, *operators: str) -> bool:
    """Whether a value calls one of these operators."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in operators


def norms_folded(module: Any) -> Any:
    """The network without batch norms by constants, which TVM would make functions of their own.

    One behind a convolution or a product with constant weights, which nothing else reads, goes into weights and bias.
    Any other is a multiplication and an addition, which are fused to what stands beside them.
    """
    if not any(is_call(one.value, _NORM) for one in bindings(module["main"])):
        return module
    module = relax.transform.DeadCodeElimination()(module)  # statistics that nothing reads
    plan = _Plan.of(module["main"])
    made = tvm.IRModule(dict(module.functions.items()))
    made["main"] = _Folding(plan).visit_expr(module["main"])
    return relax.transform.DeadCodeElimination()(made)


@dataclass(slots=True, kw_only=True)
class _Plan:
    """By what is bound: the weights that a call has instead of its own, and the name of what it makes then; the value
    that stands for a bias's sum; and the value that a norm is of, with its factors (None: in the weights) and summands.
    """

    weights: dict[Any, tuple[Any, str]] = field(default_factory=dict)
    sums: dict[Any, Any] = field(default_factory=dict)
    norms: dict[Any, tuple[Any, Any, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Any) -> _Plan:
        values = {one.var: one.value for one in bindings(function)}
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
        """Plan a norm; nothing where it depends on what is not a constant."""
        given = [_constant(one, values) for one in norm.args[1:]]
        if any(one is None for one in given):
            return
        factor, summand, mean, variance = (one.astype("float64") for one in given)
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
            self.norms[var] = (data, *(relax.const(one.reshape(shape).astype(dtype)) for one in (factor, summand)))
            return
        self.weights[source] = relax.const(weights.astype(dtype)), str(data.name)
        if source is not data:
            self.sums[data] = source
        self.norms[var] = (source, None, relax.const((bias * factor + summand).reshape(shape).astype(dtype)))


def _scaled(call: Any, factor: Any, axis: int, rank: int, values: Mapping[Any, Any]) -> Any:
    """The weights of a call with a factor for each channel of what it makes; None for any other call."""
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
    """Whether a value that is added has one size along an axis, and 1 along all others."""
    shape = [1] * (rank - value.ndim) + list(value.shape)
    return len(shape) == rank and all(size == 1 for place, size in enumerate(shape) if place != axis)


def _constant(value: Any, values: Mapping[Any, Any]) -> Any:
    """The numbers of a constant, also of one that others are made of; None where it is none."""
    value = values.get(value, value) if isinstance(value, relax.Var) else value
    if isinstance(value, tvm.ir.expr.GenericConst):
        return value.value.numpy()
    if not is_call(value, *_MOVED, "relax.astype", "relax.subtract"):
        return None
    given = [_constant(one, values) for one in value.args[: 2 if is_call(value, "relax.subtract") else 1]]
    if any(one is None for one in given):
        return None
    if is_call(value, "relax.subtract"):
        return given[0] - given[1]
    if is_call(value, "relax.astype"):
        return given[0].astype(str(value.ty.dtype))
    if is_call(value, "relax.permute_dims"):
        axes = value.attrs.axes
        return given[0].transpose(None if axes is None else [int(one) for one in axes])
    return given[0].reshape([int(dim) for dim in value.ty.shape])


@relax.expr_functor.mutator
class _Folding(relax.PyExprMutator):  # type: ignore[misc]
    """Carries out a plan. What it binds keeps its names, by which the agent knows the operators of a model."""

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


def bytes_multiplied(module: Any) -> Any:
    """The network whose products of whole numbers, which the importer widens to 32 bits, take bytes: unsigned ones, by
    constant signed ones that lie as dot-product instructions read them.

    What is subtracted from the bytes first comes off the sums instead.
    """
    function = module["main"]
    values = {one.var: one.value for one in bindings(function)}
    products = {var: found for var, value in values.items() if (found := _product(value, values)) is not None}
    if not products:
        return module
    making = _Multiplying(module, products)
    made = making.visit_expr(function)
    making.builder_.update_func(module.get_global_var("main"), made)
    return relax.transform.DeadCodeElimination()(making.builder_.get())


def _product(value: Any, values: Mapping[Any, Any]) -> tuple[Any, Any, Any] | None:
    """The bytes, what is subtracted from them (None: nothing), and the weights of a product; None for any other."""
    if not is_call(value, _MATMUL) or str(value.ty.dtype) != "int32":
        return None
    weights, subtracted = _constant(value.args[1], values), None
    widened: Any = values.get(value.args[0])
    if is_call(widened, "relax.subtract"):
        widened, subtracted = values.get(widened.args[0]), widened.args[1]
    if not is_call(widened, "relax.astype") or str(widened.args[0].ty.dtype) != "uint8" or weights is None:
        return None
    if weights.ndim != 2 or weights.shape[0] % _SUMMED or weights.shape[1] % _LANES:
        return None
    if weights.min() < -128 or weights.max() > 127 or (subtracted is not None and len(subtracted.ty.shape)):
        return None
    return widened.args[0], subtracted, weights


@relax.expr_functor.mutator
class _Multiplying(relax.PyExprMutator):  # type: ignore[misc]
    """Makes products of bytes of the values that are named."""

    def __init__(self, module: Any, products: Mapping[Any, tuple[Any, Any, Any]]) -> None:
        super().__init__(module)
        self._products = products

    def visit_var_binding_(self, binding: Any) -> None:
        var = binding.var
        if var not in self._products:
            super().visit_var_binding_(binding)
            return
        given, subtracted, weights = self._products[var]
        summed, width = weights.shape
        packed = weights.reshape(summed // _SUMMED, _SUMMED, width // _LANES, _LANES).transpose(2, 0, 3, 1)
        dot = self.builder_.call_te(
            _dot, self.visit_expr(given), relax.const(packed.astype("int8")), primfunc_name_hint="dot"
        )
        name = str(var.name)
        if subtracted is not None:
            sums = relax.const(weights.sum(axis=0).astype("int32"))
            off = self.builder_.emit(relax.op.multiply(self.visit_expr(subtracted), sums), name)
            dot = relax.op.subtract(self.builder_.emit(dot, name), off)
        emit = self.builder_.emit if isinstance(var, relax.DataflowVar) else self.builder_.emit_output
        self.set_var_remap(var, emit(dot, name))


def _dot(given: Any, packed: Any) -> Any:
    """The product of bytes and of packed weights."""
    summed = te.reduce_axis((0, given.shape[-1]), "k")

    def one(*at: Any) -> Any:
        byte = given(*at[:-1], summed)
        weight = packed(at[-1] // _LANES, summed // _SUMMED, at[-1] % _LANES, summed % _SUMMED)
        return te.sum(byte.astype("int32") * weight.astype("int32"), axis=summed)

    return te.compute((*given.shape[:-1], packed.shape[0] * _LANES), one, name="dot")


def channels_last(module: Any) -> Any:
    """The network with the channels of its convolutions last, where little else has to be turned for it: of channels
    there are whole vectors also where an image is small.
    """
    given = wildcard()

    def leaky(call: Any, matched: Any) -> Any:
        # TVM does not know that this operator takes axes in any order, and would turn them before and behind it.
        alpha, x = float(call.attrs.alpha), matched[given]
        if not 0 <= alpha <= 1:
            return call
        return relax.op.maximum(x, relax.op.multiply(x, relax.const(np.array(alpha, str(x.ty.dtype)))))

    made = tvm.IRModule(dict(module.functions.items()))
    try:
        made["main"] = rewrite_call(is_op("relax.nn.leakyrelu")(given), leaky, module["main"])
        made = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(made)
    except Exception:  # what this pass of TVM does not take stays as it is
        return module
    (convolutions, turned), (_, before) = _counts(made["main"]), _counts(module["main"])
    return made if convolutions and turned - before <= convolutions // _CONVOLUTIONS_A_TURN else module


def _counts(function: Any) -> tuple[int, int]:
    """How many convolutions there are, and how many values that depend on the input are turned."""
    convolutions, turned = 0, 0
    varying = set(function.params)
    for binding in bindings(function):
        if varying.isdisjoint(relax.analysis.free_vars(binding.value)):
            continue
        varying.add(binding.var)
        convolutions += is_call(binding.value, "relax.nn.conv2d")
        turned += is_call(binding.value, "relax.permute_dims")
    return convolutions, turned

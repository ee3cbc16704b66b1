"""Reads an ONNX model into TVM, and follows its nodes into the fused functions.

TVM forgets the nodes: fusing gives equal functions the same name, and renames their results. So each node's result is
marked when the node is read, and the fused functions are then followed call by call. The nodes of a call are found by
looking up its function and arguments among the calls before fusing. If any call is not found, no call gets nodes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from ...driver import Refused, refusing
from .marking import MARK, imported
from .rewrites import bindings, is_call, rewritten

_SMALL = 64
#: Represents a value; tokens are equal for values computed by the same functions from the same values.
_Token = tuple[Any, ...]


def read_onnx(path: str, shapes: Mapping[str, Sequence[int]]) -> tuple[Any, list[str], list[str], list[str]]:
    """The module of an ONNX file whose inputs get these shapes, the names of its inputs and of its outputs, in order,
    and the first output of each node, which identifies a node without a name.

    Refused for an open shape, or if the file is not an ONNX model.
    """
    import onnx

    with refusing("this is not an ONNX model: ", tell=lambda error: f"{type(error).__name__}: {str(error)[:200]}"):
        model = onnx.load(path)
    if not model.graph.output:
        raise Refused("this is not an ONNX model: it has no outputs")
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    for value in inputs:
        kind = value.type.tensor_type
        if value.name in shapes:
            continue
        if not kind.HasField("shape") or any(not d.HasField("dim_value") for d in kind.shape.dim):
            raise Refused(
                f"the shape of input {value.name!r} is left open; TVM compiles only fixed shapes: set it with "
                f"--shape {shlex.quote(f'{value.name}=1,3,224,224')}"
            )
    module = imported(model, shapes)
    kind = module["main"].ret_ty
    for output in kind.fields if isinstance(kind, relax.TupleType) else [kind]:
        dims = getattr(getattr(output, "shape", None), "values", None)
        if not isinstance(output, relax.TensorType) or dims is None or any(not hasattr(d, "value") for d in dims):
            raise Refused("the shape of an output depends on the values of inputs; TVM needs fixed shapes")
    written = [next(iter(node.output), "") for node in model.graph.node]
    return module, [v.name for v in inputs], [v.name for v in model.graph.output], written


def planned_calls(module: Any) -> tuple[Any, list[tuple[str, list[int] | None]]]:
    """The fused module, and its functions in the order of their calls, each with the nodes that it computes."""
    marks = _marks(module["main"])
    module = rewritten(module)
    with tvm.transform.PassContext(opt_level=3):
        plain = tvm.transform.Sequential(
            [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), relax.transform.FoldConstant()]
        )(module)
        fused = relax.transform.FuseOps()(plain)
        lowered = relax.transform.FuseTIR()(fused)
    names = [str(b.value.args[0].name_hint) for b in bindings(lowered["main"]) if is_call(b.value, "relax.call_tir")]
    try:
        calls = _Followed(plain["main"], marks).through(fused)
    except LookupError:
        calls = []
    if [name for name, _ in calls] != names:
        return lowered, [(name, None) for name in names]
    return lowered, [(name, sorted(nodes)) for name, nodes in calls]


def _marks(function: Any) -> list[int]:
    """The nodes whose results are marked, in order."""
    return sorted({node for binding in bindings(function) if (node := _marked(binding.var)) is not None})


def _marked(variable: Any) -> int | None:
    name = str(variable.name)
    return int(name.removeprefix(MARK).partition("_")[0]) if name.startswith(MARK) else None


def _homes(function: Any, marks: list[int]) -> dict[Any, int]:
    """The node of each variable. Variables bound before a mark belong to the mark's node, and variables bound after all
    marks belong to the last node, whose mark is lost if the order of its axes was changed. LookupError if another mark
    is lost.
    """
    last = marks[-1] if marks else None
    if marks and not {*marks[:-1]} <= {*_marks(function)}:
        raise LookupError("a mark is lost")
    homes: dict[Any, int] = {}
    waiting: list[Any] = []
    for binding in bindings(function):
        waiting.append(binding.var)
        if (node := _marked(binding.var)) is not None:
            homes.update(dict.fromkeys(waiting, node))
            waiting = []
    if last is not None and last not in homes.values():
        homes.update(dict.fromkeys(waiting, last))
    return homes


class _Followed:
    """The values of a function before fusing, used to identify the values of the fused module.

    LookupError for anything that is not understood.
    """

    def __init__(self, plain: Any, marks: list[int]) -> None:
        homes = _homes(plain, marks)
        self._waiting: dict[_Token, list[tuple[_Token, int | None]]] = {}
        tokens = self._parameters(plain)
        for serial, binding in enumerate(bindings(plain)):
            if is_call(binding.value, "relax.call_tir"):
                key = self._key(binding.value, tokens)
                self._waiting.setdefault(key, []).append((("made", serial), homes.get(binding.var)))
                tokens[binding.var] = ("made", serial)
            else:
                tokens[binding.var] = self._token(binding.value, tokens)

    def through(self, fused: Any) -> list[tuple[str, set[int]]]:
        """The calls of the fused module's main function, and the nodes of each."""
        return self._calls(fused["main"], self._parameters(fused["main"]), fused)

    def _calls(self, function: Any, tokens: dict[Any, _Token], fused: Any) -> list[tuple[str, set[int]]]:
        """The calls in a function and their nodes; the values that it binds are added to `tokens`."""
        calls: list[tuple[str, set[int]]] = []
        for binding in bindings(function):
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                inner = fused[value.op]
                given = dict(zip(inner.params, (self._token(a, tokens) for a in value.args), strict=True))
                nodes = {node for _, own in self._calls(inner, given, fused) for node in own}
                tokens[binding.var] = self._token(inner.body.body, given)
                calls.append((str(value.op.name_hint), nodes))
            elif is_call(value, "relax.call_tir"):
                tokens[binding.var], node = self._waiting[self._key(value, tokens)].pop(0)
                calls.append((str(value.args[0].name_hint), set() if node is None else {node}))
            else:
                tokens[binding.var] = self._token(value, tokens)
        return calls

    def _parameters(self, function: Any) -> dict[Any, _Token]:
        return {param: ("given", k) for k, param in enumerate(function.params)}

    def _key(self, call: Any, tokens: dict[Any, _Token]) -> _Token:
        return (str(call.args[0].name_hint), self._token(call.args[1], tokens))

    def _token(self, value: Any, tokens: dict[Any, _Token]) -> _Token:
        if isinstance(value, relax.Var):
            return tokens[value]
        if isinstance(value, relax.Tuple):
            return ("several", *(self._token(field, tokens) for field in value.fields))
        if isinstance(value, relax.TupleGetItem):
            whole, place = self._token(value.tuple_value, tokens), int(value.index)
            return whole[1 + place] if whole[0] == "several" else ("part", whole, place)
        if isinstance(value, tvm.ir.expr.GenericConst):
            array = value.value.numpy()
            # TVM merges functions that differ only in a small constant of their own.
            held = array.tobytes() if array.size <= _SMALL else hash(value)
            return ("constant", str(array.dtype), array.shape, held)
        raise LookupError(type(value).__name__)

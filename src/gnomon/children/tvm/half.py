"""Networks in half precision."""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..frame import refusing

HALF = "float16"
_EXTREME = re.compile(r"(maximum|minimum)[0-9]*")


def in_half(module: Any) -> Any:
    """The module with matrix products and convolutions in float16, and the operators after them as far as possible.

    Inputs and outputs keep their types. Refused if TVM's pass does not know an operator.
    """
    rewriter = _Extremes(module)
    for name, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(name, rewriter.visit_expr(function))
    # The bounds of a Clip are computed from constants; once folded into constants, they get the type of the value that
    # they bound.
    folded = relax.transform.FoldConstant()(relax.transform.DeadCodeElimination()(rewriter.builder_.get()))
    with refusing(
        f"TVM cannot compute this network in {HALF}; tune it in float32",
        tell=lambda error: " ".join(str(error).split())[:300],
    ):
        return relax.transform.ToMixedPrecision(out_dtype=HALF)(folded)


@mutator
class _Extremes(PyExprMutator):  # type: ignore[misc]
    """Replaces the functions that the ONNX importer creates for a Clip with operators, because the pass to mixed
    precision stops at a function.
    """

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op != tvm.ir.Op.get("relax.call_tir"):
            return call
        match = _EXTREME.fullmatch(call.args[0].name_hint)
        operands = call.args[1].fields
        if match is None or len(operands) != 2:
            return call
        return {"maximum": relax.op.maximum, "minimum": relax.op.minimum}[match[1]](*operands)

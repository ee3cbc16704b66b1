"""Traces of mix.circle on onert's backends, without a run."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.core.sample import Origin, Spread, Trace, TraceOperator
from gnomon.formats.onert.operators import IR_OPCODES
from gnomon.models.model import Model

ON_RUY = {"Conv2D", "FullyConnected"}


def us(avg: int) -> Spread:
    return Spread(avg_us=avg, min_us=avg, max_us=avg)


def ruy_wins_late(index: int, opcode: str, backend: str) -> int:
    """Ruy is faster from operator 3 on, slower before; Reshape takes 0 us."""
    if opcode == "Reshape":
        return 0
    return (3 if index >= 3 else 700) if backend == "ruy" else 50


def trace_for(
    model: Model,
    backend: str,
    *,
    whole: int = 900,
    threads: int = 1,
    time_us: Callable[[int, str, str], int] = ruy_wins_late,
) -> Trace:
    """A trace of a backend; `time_us` has the time of an operator by its index, opcode and backend."""
    rows = []
    for operator in model.graph.operators:
        opcode = IR_OPCODES[operator.type]
        here = backend if opcode in ON_RUY else "cpu"
        name = "MaxPool2D" if opcode == "Pool2D" else opcode
        time = us(time_us(operator.index, opcode, here))
        rows.append(TraceOperator(index=operator.index, type=name, backend=here, time=time, subgraph=0))
    origin = Origin(
        model_sha256=model.graph.digest,
        device="board",
        backend=backend,
        threads=threads,
        runtime="onert 0.1.0",
        taken_at_s=1e9,
        runs=50,
    )
    return Trace(operators=tuple(rows), graph=us(whole), origin=origin)

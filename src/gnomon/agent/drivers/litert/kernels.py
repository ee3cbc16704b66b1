"""Finds the operators of a TFLite model to which the events of LiteRT's profiler belong.

A builtin kernel's event names its operator. An XNNPACK event names a kernel and its number within the delegate. Kernels
follow the order of the operators, so both sequences are matched to find the operators of each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.wire import KernelTimes

    from ...arrays import Array

#: Event types of tflite/core/api/profiler.h.
OPERATOR, DELEGATE_KERNEL = 2, 8

_CONV, _DEPTHWISE, _DENSE, _TRANSPOSED, _MATMUL = 3, 4, 9, 67, 126
#: Operators that XNNPACK always computes with a separate kernel.
_HEAVY = {_CONV, _DEPTHWISE, _DENSE, _TRANSPOSED, _MATMUL}
#: The operators that an XNNPACK kernel may compute.
_KERNELS = {
    "Convolution": {_CONV, _DEPTHWISE},
    "Deconvolution": {_TRANSPOSED},
    "Fully Connected": {_CONV, _DENSE},
    "Dynamic Fully Connected": {_DENSE, _MATMUL},
    "Batch Matrix Multiply": {_MATMUL, _DENSE},
    "Abs": {101},
    "Add": {0},
    "Average Pooling": {1},
    "Bankers Rounding": {116},
    "Ceiling": {104},
    "Clamp": {19, 20, 21, 152, 55, 57},
    "Concatenate": {2},
    "Constant Pad": {34, 60},
    "Convert": {6, 53, 114},
    "Copy": {22, 43, 70},
    "Depth To Space": {5},
    "Divide": {42},
    "ELU": {111},
    "Exp": {47},
    "Floor": {8},
    "GELU": {150},
    "Global Average Pooling": {1, 40},
    "HardSwish": {117},
    "Leaky ReLU": {98},
    "Max Pooling": {17},
    "Maximum": {55},
    "Mean": {40},
    "Minimum": {57},
    "Multiply": {18},
    "Negate": {59},
    "PReLU": {54},
    "Reciprocal Square Root": {76},
    "Resize Bilinear": {23},
    "Sigmoid": {14},
    "Slice": {45, 65},
    "Softmax": {25},
    "Space To Depth": {26},
    "Split": {49, 102},
    "Square": {92},
    "Square Root": {75},
    "Squared Difference": {99},
    "Static Reshape": {22, 43, 70},
    "Static Slice": {45, 65},
    "Subtract": {41},
    "Sum": {74},
    "Tanh": {28},
    "Transpose": {39},
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the profiler: its name, its type, and its operator (or kernel) and subgraph."""

    name: str
    type: int
    index: int
    subgraph: int


def on_builtin(events: Sequence[Event], count: int) -> frozenset[int] | None:
    """The operators (of `count`) that builtin kernels ran; None if the model has control flow."""
    own = [e for e in events if e.type == OPERATOR]
    if any(e.subgraph for e in own):
        return None
    return frozenset(e.index for e in own if 0 <= e.index < count)


def rows(events: Sequence[Event], codes: Sequence[int], elapsed_us: Array) -> list[KernelTimes] | None:
    """A row for each kernel in order of execution; None if the events cannot be matched to operators.

    `elapsed_us` has one row per call, with the time of each event. If XNNPACK's kernels cannot be matched to its
    operators, they are combined in one row.
    """

    def row(name: str, sources: Sequence[int], backend: str, places: list[int]) -> KernelTimes:
        wall_ns = [int(us) * 1000 for us in elapsed_us[:, places].sum(axis=1)]
        return {"name": name, "sources": list(sources), "backend": backend, "wall_ns": wall_ns}

    builtin = on_builtin(events, len(codes))
    if builtin is None:
        return None
    kernels = [k for k, e in enumerate(events) if e.type == DELEGATE_KERNEL]
    delegated = [i for i in range(len(codes)) if i not in builtin]
    if delegated and not kernels:
        return None
    matched = match([events[k].name for k in kernels], {i: codes[i] for i in delegated})
    table = []
    for number, event in enumerate(events):
        if event.type == OPERATOR and event.index in builtin:
            table.append(row(f"{event.name} {event.index}", [event.index], "builtin", [number]))
        elif event.type == DELEGATE_KERNEL and matched is not None:
            place = kernels.index(number)
            table.append(row(f"{event.name} #{place}", matched[place], "xnnpack", [number]))
    if kernels and matched is None:
        table.append(row("xnnpack", delegated, "xnnpack", kernels))
    return table


def match(kernels: Sequence[str], operators: dict[int, int]) -> list[tuple[int, ...]] | None:
    """The operators of each XNNPACK kernel; None if the computing kernels do not fit the operators.

    `operators` maps indices, in order, to builtin codes. Convolutions and matrix products have one kernel each, in the
    operators' order. Other operators' kernels come between those of their neighbours. A kernel that fits no operator
    there (a reshape or conversion that XNNPACK added) gets no operator, and an operator may have no kernel (if it was
    folded into another).
    """
    order = list(operators)
    anchors = [i for i in order if operators[i] in _HEAVY]
    heavy = [k for k, name in enumerate(kernels) if _codes_of(name) & _HEAVY]
    if len(anchors) != len(heavy) or any(
        operators[i] not in _codes_of(kernels[k]) for i, k in zip(anchors, heavy, strict=True)
    ):
        return None
    sources: list[tuple[int, ...]] = [() for _ in kernels]
    for i, k in zip(anchors, heavy, strict=True):
        sources[k] = (i,)
    place = 0
    for k, name in enumerate(kernels):
        if sources[k]:
            place = order.index(sources[k][0]) + 1
            continue
        wanted = _codes_of(name)
        for later in range(place, len(order)):
            if operators[order[later]] in _HEAVY:
                break
            if operators[order[later]] in wanted:
                sources[k], place = (order[later],), later + 1
                break
    return sources


def _codes_of(name: str) -> set[int]:
    """The operator codes that a kernel may compute, given its name; the part from the parenthesis on (layout and type)
    is ignored.
    """
    return _KERNELS.get(name.partition(" (")[0].strip(), set())

"""ExecuTorch's programs (.pte) as graphs: the instructions of one method, with the values that they read and write.

The fields' numbers are those of ``schema/program.fbs`` in ExecuTorch 1.5. A program names the kernels and delegates
that it calls, but only a delegate's backend understands the delegate's content.
"""

from __future__ import annotations

import hashlib
from mmap import mmap

from gnomon.core.graph import Graph, Tensor
from gnomon.errors import ModelError
from gnomon.models.model import Row, named_operators, typed_tensor
from gnomon.models.pytorch.types import TYPES, macs
from gnomon.models.tflite.file import Buffer, Table, broken

_TENSOR, _BOOL, _LISTS = 5, 3, (10, 11)
_KERNEL, _DELEGATE = 1, 2
_OTHERS = {3: "executorch move", 4: "executorch jump", 5: "executorch free"}
_UNBOUND, _EXTERNAL = 2, 1
_MOST_RANK = 64


def read_pte(data: bytes | mmap, name: str) -> tuple[Graph, int]:
    """The graph of a program's method `forward`, or of its only method, and the number of its methods. ModelError if
    the program is broken.
    """
    program = Buffer(data).root()
    plans = {plan.text(0): plan for plan in program.tables(1)}
    if not plans:
        broken("it has no method")
    if "forward" not in plans and len(plans) > 1:
        raise ModelError(
            f"the program has the methods {', '.join(plans)[:200]}, but no method called forward",
            hint="Export the method that you want to measure as forward.",
        )
    plan = plans.get("forward") or next(iter(plans.values()))
    return _Reader(plan).graph(name, hashlib.sha256(data).hexdigest()), len(plans)


class _Reader:
    def __init__(self, plan: Table) -> None:
        self.plan = plan
        self.values = plan.tables(2)
        self.inputs, self.outputs = self.indices(plan, 3), self.indices(plan, 4)
        self.codes = [".".join(part for part in (op.text(0), op.text(1)) if part) for op in plan.tables(6)]
        self.delegates = [delegate.text(0) or "delegate" for delegate in plan.tables(7)]
        names = {value: f"output_{k}" for k, value in enumerate(self.outputs)}
        names |= {value: f"input_{k}" for k, value in enumerate(self.inputs)}
        self.numbers: dict[int, int] = {}
        self.tensors: list[Tensor] = []
        for index, value in enumerate(self.values):
            table = value.table(1)
            if value.integer(0, 1) == _TENSOR and table is not None:
                self.numbers[index] = len(self.tensors)
                self.tensors.append(_tensor(table, names.get(index, f"value_{index}")))
        for index in (*self.inputs, *self.outputs):
            if index not in self.numbers:
                raise ModelError(
                    "an input or output of the program is not a tensor, but gnomon supports only tensors",
                    hint="Export the model with tensors as its inputs and outputs, and numbers as constants.",
                )

    def graph(self, name: str, digest: str) -> Graph:
        chains = self.plan.tables(5)
        if len(chains) != 1:
            broken(f"its method has {len(chains)} chains of instructions, but ExecuTorch writes one")
        inputs, outputs = (tuple(self.numbers[i] for i in those) for those in (self.inputs, self.outputs))
        written = {*inputs, *(number for number, tensor in enumerate(self.tensors) if tensor.constant)}
        rows = [self.instruction(table, written) for table in chains[0].tables(2)]
        return Graph(
            name=name,
            format="pte",
            digest=digest,
            tensors=tuple(self.tensors),
            operators=named_operators(rows, [""] * len(rows)),
            inputs=inputs,
            outputs=outputs,
        )

    def instruction(self, table: Table, written: set[int]) -> Row:
        """The type of an instruction, the tensors that it reads, those that it is the first to write (added to
        `written`), and its multiply-accumulates.
        """
        kind, call = table.integer(0, 1), table.table(1)
        if kind in _OTHERS:
            return _OTHERS[kind], (), (), 0
        if kind not in (_KERNEL, _DELEGATE) or call is None:
            broken("an instruction is of an unknown kind")
        listed = self.codes if kind == _KERNEL else self.delegates
        code = call.integer(0, 4)
        if not 0 <= code < len(listed):
            broken("an instruction's operator or delegate is not listed")
        values = self.indices(call, 1)
        tensors = [number for value in values for number in self.tensors_of(value)]
        makes = tuple(dict.fromkeys(t for t in tensors if t not in written))
        reads = tuple(dict.fromkeys(t for t in tensors if t in written))
        written.update(makes)
        if kind == _DELEGATE:
            return listed[code], reads, makes, None
        shapes = [self.tensors[t].shape or () for t in reads]
        called = listed[code].partition("::")[2].partition(".")[0]
        result = self.tensors[makes[0]].shape if makes else None
        return listed[code], reads, makes, macs(called, shapes, result, transposed=any(map(self.is_true, values)))

    def tensors_of(self, value: int) -> list[int]:
        """The tensors that an argument refers to: one, those of a list, or none."""
        table = self.values[value].table(1)
        if value in self.numbers:
            return [self.numbers[value]]
        if self.values[value].integer(0, 1) in _LISTS and table is not None:
            return [self.numbers[item] for item in table.integers(0) or () if item in self.numbers]
        return []

    def is_true(self, value: int) -> bool:
        table = self.values[value].table(1)
        return self.values[value].integer(0, 1) == _BOOL and table is not None and table.integer(0, 1) != 0

    def indices(self, table: Table, field: int) -> tuple[int, ...]:
        values = table.integers(field) or ()
        if any(not 0 <= value < len(self.values) for value in values):
            broken("a value's index is out of range")
        return values


def _tensor(table: Table, name: str) -> Tensor:
    """A tensor; a shape with an upper bound counts as that bound, for which ExecuTorch has planned the tensor's
    memory.
    """
    shape = table.integers(2) or ()
    if len(shape) > _MOST_RANK or any(n < 0 for n in shape):
        broken("a tensor has an impossible shape")
    if table.integer(8, 1) == _UNBOUND:
        raise ModelError("the program has a tensor of unbounded shape", hint="Export it with bounded or fixed shapes.")
    extra = table.table(9)
    if extra is not None and extra.integer(2, 1) == _EXTERNAL:
        raise ModelError("the program's weights are in another file (.ptd)", hint="Export it with its weights inside.")
    # A tensor with data and without planned memory is constant; with both it is a state that starts with this data.
    constant = table.unsigned(5) > 0 and table.table(6) is None
    return typed_tensor(name, shape, TYPES.get(table.integer(0, 1), ""), constant=constant)

"""TFLite and Circle models as graphs, with the multiply-accumulates of their operators, computed from the shapes of the
tensors.

Circle's schema extends TFLite's, so one reader is enough for both. The fields' numbers are those of
``circle_schema.fbs`` of Samsung ONE (and of TensorFlow's ``schema.fbs``). Only the first subgraph is placed; the others
are the bodies of control flow, or unused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from mmap import mmap

from gnomon.core.graph import Graph, Tensor
from gnomon.formats.onert import operators as tflite_codes
from gnomon.models.model import FLAT_MAGICS, MOST_BYTES, Row, named_operators
from gnomon.models.tflite.file import Buffer, Table, broken

Shape = tuple[int, ...]


def macs(kind: str, inputs: Sequence[Tensor | None], tensors: Sequence[Tensor], outputs: Sequence[int]) -> int | None:
    """The multiply-accumulates of one operator; None if a shape on which they depend is not fixed.

    `inputs` are in the operator's order, None for an absent one; `outputs` index into `tensors`.
    """
    shapes = [None if t is None else t.shape for t in inputs]
    if kind in _RECURRENT:
        return _recurrent(shapes[0] if shapes else None, shapes[slice(*_RECURRENT[kind])])
    if kind not in _WEIGHTS:
        return 0
    result = tensors[outputs[0]].shape if outputs else None
    turned = kind in _TRANSPOSED
    data, weights = (*shapes[2 if turned else 0 :], None)[0], (*shapes[1:], None)[0]
    if not _fixed(data) or not _fixed(weights) or not _fixed(result):
        return None
    if kind == "BATCH_MATMUL":
        return _batch_matmul(data or (), result or ())
    return math.prod((data if turned else result) or ()) * math.prod((weights or ())[_WEIGHTS[kind]])


def _fixed(shape: Shape | None) -> bool:
    return shape is not None and -1 not in shape


def _batch_matmul(data: Shape, result: Shape) -> int:
    """Left [.., m, k] or [.., k, m]; the result [.., m, n] shows which of the two is k."""
    if len(data) < 2 or len(result) < 2 or result[-2] == 0:
        return 0
    return math.prod(result) * (data[-1] * data[-2] // result[-2])


_RECURRENT = {
    "UNIDIRECTIONAL_SEQUENCE_RNN": (1, 3),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (1, 9),
}
"""For each operator that multiplies by all its weights at each step: the range of its inputs that are weights."""


def _recurrent(data: Shape | None, weights: Sequence[Shape | None]) -> int | None:
    """Data [.., .., inputs]; an absent weight is one that this form of the operator does not have."""
    present = [shape for shape in weights if shape is not None]
    if data is None or not all(_fixed(shape) for shape in (data, *present)):
        return None
    return math.prod(data[:-1]) * sum(math.prod(shape) for shape in present)


_WEIGHTS = {
    "CONV_2D": slice(1, None),
    "DEPTHWISE_CONV_2D": slice(1, -1),
    "TRANSPOSE_CONV": slice(-1),
    "CONV_3D": slice(-1),
    "CONV_3D_TRANSPOSE": slice(-1),
    "FULLY_CONNECTED": slice(-1, None),
    "BATCH_MATMUL": slice(0),
}
"""The axes of the weights that are used for each number of the result, or (`_TRANSPOSED`) for each number of the data.

Weights are [outputs, height, width, inputs of a group], in 3-D [depth, height, width, inputs, outputs]; depthwise [1,
height, width, channels]; transposed [outputs, height, width, inputs], in 3-D [depth, height, width, outputs, inputs].
"""
_TRANSPOSED = frozenset({"TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"})
"""Operators that read (output shape, weights, data)."""


_MAX_RANK = 64


def read_flat(data: bytes | mmap, name: str) -> tuple[Graph, int]:
    """The first subgraph of a TFLite or Circle model, and the number of subgraphs. Raises ModelError if it is broken.

    `name` is the graph's name if the file has none.
    """
    if len(data) < 8 or data[4:8] not in FLAT_MAGICS:
        broken("it has neither TFLite's identifier TFL3 nor Circle's CIR0")
    model = Buffer(data).root()
    subgraphs = model.tables(2)
    if not subgraphs:
        broken("it has no subgraph")
    constant_buffers = [len(held_by(buffer)) > 0 for buffer in model.tables(4)]
    codes = [_operator_type(code) for code in model.tables(1)]
    graph = _Reader(subgraphs[0], codes, constant_buffers).graph(
        name=name, kind=FLAT_MAGICS[data[4:8]], digest=hashlib.sha256(data).hexdigest()
    )
    return graph, len(subgraphs)


def flat_weights(data: bytes | mmap) -> Iterator[tuple[str, str, memoryview]]:
    """The constants of all subgraphs within the FlatBuffers part: name, type and bytes. Raises ModelError."""
    model = Buffer(data).root()
    buffers = model.tables(4)
    for table in (table for subgraph in model.tables(2) for table in subgraph.tables(0)):
        place = table.unsigned(2)
        if 0 < place < len(buffers):
            yield table.text(3), tflite_codes.type_name(table.integer(1, 1)), buffers[place].content(0)


def signatures_of(data: bytes | mmap) -> dict[str, int]:
    """The number of the subgraph that each signature of a TFLite or Circle model runs, by signature name. Raises
    ModelError.
    """
    return {table.text(2): table.unsigned(4) for table in Buffer(data).root().tables(7)}


def called_graphs(model: Table) -> set[int] | None:
    """The numbers of the subgraphs that operators call; None if some operators may call further ones."""
    codes = [_operator_type(code) for code in model.tables(1)]
    called: set[int] = set()
    for operator in (operator for graph in model.tables(2) for operator in graph.tables(3)):
        kind = codes[operator.unsigned(0)] if operator.unsigned(0) < len(codes) else ""
        options, *fields = _CALLS.get(kind, (0,))
        table = operator.table(options) if options else None
        if table is None and (options or kind.startswith("STABLEHLO")):
            return None
        called.update(table.integer(field, 4) for field in fields if table is not None)
    return called


_CALLS = {"CALL": (4, 0), "CALL_ONCE": (4, 0), "IF": (4, 0, 1), "STABLEHLO_COMPOSITE": (12, 1), "WHILE": (4, 0, 1)}
"""For each operator that calls subgraphs: the field with its options, and the fields of these options with the
subgraphs' numbers.
"""


def held_by(buffer: Table) -> memoryview:
    """The content of a buffer, without a copy. In files over 2 GB it may come after the FlatBuffers part."""
    data, offset, size = buffer.buffer.data, buffer.integer(1, 8), buffer.integer(2, 8)
    if offset <= 1:
        return buffer.content(0)
    if offset + size > len(data):
        broken("a buffer lies outside the file")
    return memoryview(data)[offset : offset + size]


def _operator_type(code: Table) -> str:
    # The 8-bit field is the older one: either field may be left at 0, and 127 in the older one refers to the newer one.
    # Circle's own codes are below zero.
    old, new = code.integer(0, 1), code.integer(3, 4)
    number = min(old, new) if min(old, new) < 0 else max(old, new)
    if number == tflite_codes.CUSTOM:
        return code.text(1) or "CUSTOM"
    return tflite_codes.OPERATOR_NAMES.get(number, f"BUILTIN_{number}")


class _Reader:
    def __init__(self, subgraph: Table, codes: list[str], constant_buffers: list[bool]) -> None:
        self.subgraph = subgraph
        self.codes = codes
        self.constant_buffers = constant_buffers
        self.tables = subgraph.tables(0)
        self.variables = {i for i, table in enumerate(self.tables) if table.integer(5, 1)}

    def graph(self, *, name: str, kind: str, digest: str) -> Graph:
        inputs, outputs = self.indices(self.subgraph, 1), self.indices(self.subgraph, 2)
        rows = [self.operator(table) for table in self.subgraph.tables(3)]
        written = {index for _, _, results in rows for index in results}
        fixed = written | set(inputs)
        tensors = tuple(self.tensor(i, table, i in fixed) for i, table in enumerate(self.tables))
        self.check_order(rows)
        counted: list[Row] = []
        for kind_of, sources, results in rows:
            count = macs(kind_of, [tensors[i] if i >= 0 else None for i in sources], tensors, results)
            counted.append((kind_of, tuple(i for i in sources if i >= 0), results, count))
        return Graph(
            name=self.subgraph.text(4) or name,
            format=kind,
            digest=digest,
            tensors=tensors,
            operators=named_operators(counted, [tensors[out[0]].name if out else "" for _, _, out in rows]),
            inputs=inputs,
            outputs=outputs,
        )

    def operator(self, table: Table) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        code = table.unsigned(0)
        if code >= len(self.codes):
            broken("an operator's code is not listed")
        return self.codes[code], self.indices(table, 1, optional=True), self.indices(table, 2)

    def indices(self, table: Table, field: int, *, optional: bool = False) -> tuple[int, ...]:
        values = table.integers(field) or ()
        low = -1 if optional else 0
        if any(not low <= value < len(self.tables) for value in values):
            broken("a tensor's index is out of range")
        return values

    def tensor(self, index: int, table: Table, fixed: bool) -> Tensor:
        shape = table.integers(7) or table.integers(0) or ()
        if len(shape) > _MAX_RANK or any(n < -1 for n in shape):
            broken("a tensor has an impossible shape")
        buffer = table.unsigned(2)
        if buffer and buffer >= len(self.constant_buffers):
            broken("a tensor's buffer is not listed")
        kind = table.integer(1, 1)
        size = None if -1 in shape else tflite_codes.size_bytes(kind, math.prod(shape))
        if size is not None and size > MOST_BYTES:
            broken("a tensor is larger than any memory")
        return Tensor(
            name=table.text(3) or f"tensor_{index}",
            shape=shape,
            dtype=tflite_codes.type_name(kind),
            size_bytes=size,
            constant=not fixed and buffer < len(self.constant_buffers) and self.constant_buffers[buffer],
        )

    def check_order(self, rows: list[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> None:
        """Check that operators are in execution order, and that each tensor is written once (except variables)."""
        pending = {i for _, _, results in rows for i in results} - self.variables
        for _, sources, results in rows:
            if pending.intersection(sources):
                broken("an operator reads a tensor that a later one writes")
            for index in set(results) - self.variables:
                if index not in pending:
                    broken("a tensor is written twice")
                pending.discard(index)

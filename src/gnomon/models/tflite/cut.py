"""Cut a TFLite model into segments. See `gnomon.models.cut`.

A segment is a model of its own: some operators of the first subgraph, and the data that they need. Content that a
segment cannot have (variables, other subgraphs, weights outside the file) is refused. The fields' numbers are those of
``tensorflow/compiler/mlir/lite/schema/schema.fbs`` of TensorFlow, as LiteRT 2.3 has it.

`FlatWriter` writes FlatBuffers, parents before children, and copies tables and vectors from other FlatBuffers. The
layout is described at https://flatbuffers.dev/internals/. Scalars are copied byte for byte, so a table of scalars needs
no schema except the number of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.errors import ModelError
from gnomon.models.cut import Cutter
from gnomon.models.model import Limits, model_errors, read_regular, unique_names
from gnomon.models.tflite.file import Buffer, Table
from gnomon.models.tflite.graph import held_by, read_flat
from gnomon.system.files import in_place_of

# Writes the target of an offset at a position of the source; returns its place in the new file.
Child = Callable[[Buffer, int], int]
#: Writes a table; returns its place in the new file.
Maker = Callable[[], int]

_I32, _U32 = struct.Struct("<i"), struct.Struct("<I")


class FlatWriter:
    """A FlatBuffers file being written. `limit_bytes` is its largest size; ModelError beyond it."""

    def __init__(self, identifier: bytes, limit_bytes: int) -> None:
        self.data = bytearray(4) + identifier
        self._limit = limit_bytes

    def model(
        self,
        version: int,
        *,
        codes: Sequence[Maker],
        tensors: Sequence[Maker],
        inputs: Sequence[int],
        outputs: Sequence[int],
        operators: Sequence[Maker],
        name: str,
        buffers: Sequence[Maker],
    ) -> bytes:
        """The file of a TFLite model with one subgraph; the given functions write its tables."""
        subgraph: dict[int, Maker] = {
            0: partial(self._tables, tensors),
            1: partial(self.integers, inputs),
            2: partial(self.integers, outputs),
            3: partial(self._tables, operators),
            4: partial(self.text, name),
        }
        graphs = [partial(self.table, {}, subgraph)]
        listed = {field: partial(self._tables, each) for field, each in ((1, codes), (2, graphs), (4, buffers))}
        self.point(0, self.table({0: (4, version)}, listed))
        return bytes(self.data)

    def point(self, at: int, target: int) -> None:
        """Make the offset at a position point to a later position."""
        _U32.pack_into(self.data, at, target - at)

    def table(self, scalars: Mapping[int, tuple[int, int]], children: Mapping[int, Maker]) -> int:
        """Write a table of scalars, each ``(bytes, value)``, and of offsets to children, which follow it; return its
        position.
        """
        values = {**scalars, **dict.fromkeys(children, (4, 0))}
        offsets, size = {}, 4
        for field, (width, _) in sorted(values.items(), key=lambda item: (-item[1][0], item[0])):
            size += -size % width
            offsets[field] = size
            size += width
        fields = max(values, default=-1) + 1
        vtable = struct.pack(f"<HH{fields}H", 4 + 2 * fields, size, *(offsets.get(f, 0) for f in range(fields)))
        body = bytearray(size)
        for field, (width, value) in values.items():
            body[offsets[field] : offsets[field] + width] = value.to_bytes(width, "little", signed=value < 0)
        position = self._with_vtable(vtable, body, 0)
        for field, child in children.items():
            self.point(position + offsets[field], child())
        return position

    def copied_table(self, table: Table, count: int, children: Mapping[int, Child]) -> int:
        """A copy of a table with `count` known fields: `children` are offsets, all others are scalars.

        ModelError if the table has a further field, which may be an offset to anything.
        """
        fields = (table.vtable_size - 4) // 2
        if any(table.find(field) is not None for field in range(count, fields)):
            raise ModelError("the model has settings that gnomon does not know", hint="Use a newer version of gnomon.")
        data = table.buffer.data
        vtable = data[table.vtable : table.vtable + table.vtable_size]
        body = bytearray(data[table.position : table.position + table.size])
        position = self._with_vtable(vtable, body, table.position % 8)
        for field, child in children.items():
            at = table.find(field)
            if at is not None:
                target = child(table.buffer, table.buffer.offset(at))
                self.point(position + at - table.position, target)
        return position

    def vector(self, count: int, payload: bytes | memoryview, alignment: int) -> int:
        """Write a vector of scalars, given as its bytes."""
        alignment = max(4, alignment)
        self._reserve(len(payload) + alignment + 4)
        self.data += bytes(-(len(self.data) + 4) % alignment)
        position = len(self.data)
        self.data += _U32.pack(count)
        self.data += payload
        return position

    def text(self, value: str) -> int:
        """Write a string."""
        raw = value.encode()
        return self.vector(len(raw), raw + b"\0", 4)

    def integers(self, values: Sequence[int]) -> int:
        """Write a vector of signed 32-bit integers."""
        return self.vector(len(values), struct.pack(f"<{len(values)}i", *values), 4)

    def _tables(self, makers: Sequence[Maker]) -> int:
        """Write a vector of offsets to tables."""
        position = self.vector(len(makers), bytes(4 * len(makers)), 4)
        for number, make in enumerate(makers, start=1):
            self.point(position + 4 * number, make())
        return position

    def copy_vector(self, item_bytes: int, *, alignment: int = 0, terminated: bool = False) -> Child:
        """A function that copies a vector of scalars; with `terminated`, also the final zero of a string."""

        def copy(buffer: Buffer, position: int) -> int:
            start, count = buffer.vector(position, item_bytes)
            payload = buffer.data[start : start + count * item_bytes] + (b"\0" if terminated else b"")
            return self.vector(count, payload, alignment or item_bytes)

        return copy

    def _with_vtable(self, vtable: bytes, body: bytearray, residue: int) -> int:
        """Write a table after its vtable, at a position with this residue modulo 8, so that its fields stay aligned."""
        self._reserve(len(vtable) + len(body) + 16)
        self.data += bytes(len(self.data) % 2)
        before = len(self.data)
        self.data += vtable
        self.data += bytes((residue - len(self.data)) % 8)
        position = len(self.data)
        _I32.pack_into(body, 0, position - before)
        self.data += body
        return position

    def _reserve(self, count: int) -> None:
        if len(self.data) + count > self._limit:
            raise ModelError(
                f"the part of the model would have more than {self._limit} bytes",
                hint="Cut somewhere else, or give a model with fewer shared parts.",
            )


# The number of fields in operators' options, by kind (BuiltinOptions 1 to 126).
OPTION_FIELDS = (
    *(7, 7, 3, 1, 6, 3, 2, 6, 1, 2, 2, 1, 4, 5, 4, 1, 1, 3, 1, 1, 1, 0, 2, 0, 0, 0, 1, 2, 1, 1, 3, 6, 0, 0, 1, 0, 2),
    *(0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 1, 0, 1, 4, 2, 0, 1, 0, 0, 2, 0, 0, 0, 0, 6, 4, 6, 0, 0, 2),
    *(1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 2, 1, 0, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 8, 3, 0, 0, 0, 2),
    *(0, 0, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
)
#: By kind of options: the fields that are vectors of 32-bit numbers.
OPTION_VECTORS = {3: (1, 2), 17: (0,), 30: (0,), 115: (0,)}
# By kind of options: the fields that are other offsets. Options that set them are refused.
OPTION_REFUSED = {8: (5,), 111: (0, 1)}

REFUSED_TYPES = {
    **dict.fromkeys(("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"), "variables"),
    **dict.fromkeys(("CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE"), "calls of other subgraphs"),
    **dict.fromkeys(("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"), "hash tables"),
    **dict.fromkeys(("IF", "WHILE"), "control flow"),
    **dict.fromkeys(("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"), "random numbers"),
}
_SHAPE, _TYPE, _BUFFER, _NAME, _QUANTIZATION, _SIGNATURE, _HAS_RANK = 0, 1, 2, 3, 4, 7, 8
# By field that a segment cannot have: the bytes of the scalar (0 for an offset), and the meaning.
_TENSOR_REFUSED = {5: (1, "is a variable"), 6: (0, "is sparse"), 9: (0, "is a variant"), 10: (4, "is stored elsewhere")}
_OPERATOR_REFUSED = {9: (8, "has large settings elsewhere"), 11: (1, "is an operator of StableHLO")}
_MUTATING = 7  # a vector of booleans that marks the inputs that the operator changes, which are variables
_HINT = "The whole model can still be placed: choose runtimes that can run all of it."


class FlatCutter(Cutter):
    """Cuts one TFLite model: weights are copied, with their quantisation, wherever they are read.

    The names of `graph.tensors` are made unique, because a chain of segments identifies its tensors by name; the names
    of the model's own inputs and outputs stay.
    """

    def __init__(self, path: Path) -> None:
        """Read the model. Raises ModelError, also if it has variables, control flow or further subgraphs."""
        with model_errors(path):
            data = read_regular(path, Limits().max_bytes)
            graph, _ = read_flat(data, path.stem)
            if graph.format != "tflite":
                raise ModelError(f"{graph.format} models cannot be cut", hint="Give an ONNX or TFLite model.")
            graph = _with_unique_names(graph)
            self._read(data, graph)
        super().__init__(graph)

    def _read(self, data: bytes, graph: Graph) -> None:
        """Read the tables of the file. ModelError for content that a segment cannot have."""
        model = Buffer(data).root()
        subgraphs = model.tables(2)
        if len(subgraphs) != 1:
            _refuse(f"it has {len(subgraphs)} subgraphs")
        self._size_bytes = len(data)
        self._version = model.unsigned(0)
        self._codes, self._buffers = model.tables(1), model.tables(4)
        self._tensors, self._operators = subgraphs[0].tables(0), subgraphs[0].tables(3)
        self._wires = [(op.integers(1) or (), op.integers(2) or (), op.integers(8)) for op in self._operators]
        for operator in graph.operators:
            if operator.type in REFUSED_TYPES:
                _refuse(f"operator {operator.index} ({operator.type}) uses {REFUSED_TYPES[operator.type]}")
        for number, table in enumerate(self._tensors):
            _check(f"tensor {graph.tensors[number].name!r}", table, _TENSOR_REFUSED)
        for number, table in enumerate(self._operators):
            _check(f"operator {number}", table, _OPERATOR_REFUSED)
            if any(table.content(_MUTATING)):
                _refuse(f"operator {number} changes a variable")

    def write(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], dest: Path) -> None:
        """Write the operators as a TFLite model; ModelError if the file has content that gnomon cannot copy."""
        with model_errors(dest):
            content = self._content(nodes, inputs, outputs)
            with in_place_of(dest) as partial:
                partial.write_bytes(content)

    def _content(self, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The model that computes `outputs` from `inputs` with these operators, in this order; all are indices."""
        wires = [t for i in operators for row in self._wires[i] for t in row or ()]
        used = list(dict.fromkeys(t for t in (*inputs, *outputs, *wires) if t >= 0))
        number = {t: k for k, t in enumerate(used)}
        codes = list(dict.fromkeys(self._operators[i].unsigned(0) for i in operators))
        # Buffer 0 is the empty buffer of all computed tensors.
        sources = [self._tensors[t].unsigned(_BUFFER) for t in used]
        held = [0, *dict.fromkeys(b for t, b in zip(used, sources, strict=True) if self.graph.tensors[t].constant)]
        writer = FlatWriter(b"TFL3", min(2 * self._size_bytes + (1 << 20), (1 << 31) - 1))
        places, letters = {b: k for k, b in enumerate(held)}, writer.copy_vector(1, terminated=True)
        return writer.model(
            self._version,
            codes=[partial(writer.copied_table, self._codes[c], 4, {1: letters}) for c in codes],
            tensors=[partial(self._tensor, writer, t, places) for t in used],
            inputs=[number[t] for t in inputs],
            outputs=[number[t] for t in outputs],
            operators=[partial(self._operator, writer, i, codes, number) for i in operators],
            name=self.graph.name,
            buffers=[partial(self._buffer, writer, b) for b in held],
        )

    def _tensor(self, writer: FlatWriter, index: int, places: dict[int, int]) -> int:
        source = self._tensors[index]
        constant = self.graph.tensors[index].constant
        scalars = {
            _TYPE: (1, source.integer(_TYPE, 1)),
            _BUFFER: (4, places[source.unsigned(_BUFFER)] if constant else 0),
            _HAS_RANK: (1, source.integer(_HAS_RANK, 1)),
        }
        copies: dict[int, Child] = {
            _SHAPE: writer.copy_vector(4),
            _SIGNATURE: writer.copy_vector(4),
            _QUANTIZATION: lambda buffer, at: self._quantization(writer, buffer.table(at)),
        }
        name: Maker = partial(writer.text, self.graph.tensors[index].name)
        return writer.table(scalars, {_NAME: name, **_copied(source, copies)})

    @staticmethod
    def _quantization(writer: FlatWriter, table: Table) -> int:
        children: dict[int, Child] = {field: writer.copy_vector(4) for field in (0, 1, 2)}
        children[3] = writer.copy_vector(8)
        kind = table.integer(4, 1)
        if kind > 1 or (kind == 0 and table.find(5) is not None):
            _refuse("it is quantised in a way that gnomon does not know")
        raw = writer.copy_vector(1, alignment=16)
        children[5] = lambda buffer, at: writer.copied_table(buffer.table(at), 1, {0: raw})
        return writer.copied_table(table, 7, children)

    def _operator(self, writer: FlatWriter, index: int, codes: list[int], number: dict[int, int]) -> int:
        source = self._operators[index]
        inputs, outputs, inner = self._wires[index]
        kind = source.integer(3, 1) & 0xFF
        copies: dict[int, Child] = {
            4: lambda buffer, at: self._options(writer, buffer.table(at), kind),
            5: writer.copy_vector(1),
        }
        children = _copied(source, copies)
        for field, wires in ((1, inputs), (2, outputs), (8, inner)):
            if wires is not None:
                children[field] = partial(writer.integers, [number.get(t, -1) for t in wires])
        scalars = {0: (4, codes.index(source.unsigned(0))), 6: (1, source.integer(6, 1))}
        return writer.table(scalars | ({3: (1, kind)} if 4 in children else {}), children)

    @staticmethod
    def _options(writer: FlatWriter, table: Table, kind: int) -> int:
        if not 0 < kind <= len(OPTION_FIELDS) or any(table.find(f) is not None for f in OPTION_REFUSED.get(kind, ())):
            _refuse(f"it has settings of operators that gnomon does not know (kind {kind})")
        vectors = dict.fromkeys(OPTION_VECTORS.get(kind, ()), writer.copy_vector(4))
        return writer.copied_table(table, OPTION_FIELDS[kind - 1], vectors)

    def _buffer(self, writer: FlatWriter, index: int) -> int:
        if index == 0:
            return writer.table({}, {})
        payload = held_by(self._buffers[index])
        return writer.table({}, {0: lambda: writer.vector(len(payload), payload, 16)})


def _copied(source: Table, copies: Mapping[int, Child]) -> dict[int, Maker]:
    """Functions that copy the fields of a table."""
    there = {field: place for field in copies if (place := source.find(field)) is not None}
    return {field: partial(copies[field], source.buffer, source.buffer.offset(at)) for field, at in there.items()}


def _check(label: str, table: Table, refused: Mapping[int, tuple[int, str]]) -> None:
    for field, (width, what) in refused.items():
        if table.find(field) is not None and (width == 0 or table.integer(field, width)):
            _refuse(f"{label} {what}")


def _refuse(why: str) -> None:
    raise ModelError(f"the TFLite model cannot be cut: {why}", hint=_HINT)


def _with_unique_names(graph: Graph) -> Graph:
    outer = list(dict.fromkeys((*graph.inputs, *graph.outputs)))
    own = [graph.tensors[t].name for t in outer]
    if len(set(own)) < len(own):
        raise ModelError(
            "the TFLite model cannot be cut: two of its inputs and outputs have the same name",
            hint="Give them different names when you export the model.",
        )
    order = [*outer, *(t for t in range(len(graph.tensors)) if t not in set(outer))]
    names = unique_names([graph.tensors[t].name for t in order], ["tensor"] * len(order))
    tensors = list(graph.tensors)
    for t, name in zip(order, names, strict=True):
        tensors[t] = replace(tensors[t], name=name)
    return replace(graph, tensors=tuple(tensors))

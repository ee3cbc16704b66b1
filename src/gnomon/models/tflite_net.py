"""A TFLite model as a net of layers: except for views, each layer is one of the model's operators in TFLite's own
format.

See `gnomon.models.net`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.graph import Operator
from gnomon.models.model import Limits, Model, model_errors, read_regular
from gnomon.models.net import MOST_VALUES, ModelNet, NetReader, deciding
from gnomon.models.order import moving_operators
from gnomon.models.tflite.cut import OPTION_FIELDS, OPTION_VECTORS, REFUSED_TYPES
from gnomon.models.tflite.file import Buffer, Table
from gnomon.models.tflite.graph import held_by
from gnomon.spaces.layers import layer

_VIEWS = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})


def net_of_tflite(model: Model, name: object) -> ModelNet:
    """The net of a TFLite model whose input shapes are fixed. ModelError, which names the model by `name`, if it has no
    layer.
    """
    graph = model.graph
    with model_errors(model.path):
        root = Buffer(read_regular(model.path, Limits().max_bytes)).root()
        subgraph, buffers = root.tables(2)[0], root.tables(4)
        # Several tensors of these files may have the same name, so their numbers are used as names here.
        reader = _Reader(
            graph=graph,
            tensors={str(number): tensor for number, tensor in enumerate(graph.tensors)},
            tables=subgraph.tables(3),
            buffers=[buffers[table.unsigned(2)] for table in subgraph.tables(0)],
        )
        reader.read()
    return reader.model_net(map(str, graph.outputs), name)


@dataclass(slots=True, kw_only=True)
class _Reader(NetReader):
    """`tables` are the operators, and `buffers` hold the constants, one buffer for each tensor."""

    tables: Sequence[Table]
    buffers: Sequence[Table]

    def read(self) -> None:
        """Fill the net."""
        moving = moving_operators(self.graph)
        computed = {*self.graph.inputs, *(tensor for operator in moving for tensor in operator.outputs)}
        for operator in moving:
            before = len(self.nodes)
            self._operator(operator, computed)
            if len(self.nodes) > before:
                self.owner[operator.name] = before

    def _operator(self, operator: Operator, computed: set[int]) -> None:
        table, outputs = self.tables[operator.index], list(map(str, operator.outputs))
        reads = [str(number) for number in operator.inputs if number in computed]
        if operator.type in REFUSED_TYPES:
            self.leave_out(operator, outputs, REFUSED_TYPES[operator.type])
        elif any(self.shape(name) is None for name in (*reads, *outputs)):
            self.leave_out(operator, outputs, "its shape depends on values")
        elif operator.type not in _VIEWS or not self.add(
            layer("Reshape", shape=self.shape(outputs[0]) or ()), reads, outputs[0]
        ):
            operands = [
                {} if number < 0 else None if number in computed else self._constant(number, operator)
                for number in table.integers(1) or ()
            ]
            self.add_as_it_is(operator, (reads, outputs), dict(_options(table)), operands)

    def _constant(self, number: int, operator: Operator) -> dict[str, object]:
        tensor, data = self.graph.tensors[number], held_by(self.buffers[number])
        constant: dict[str, object] = {"dtype": tensor.dtype, "shape": list(tensor.shape or ())}
        if tensor.dtype in deciding(operator) and 0 < len(data) <= MOST_VALUES * np.dtype(tensor.dtype).itemsize:
            constant["values"] = np.frombuffer(data, np.dtype(tensor.dtype).newbyteorder("<")).tolist()
        return constant


def _options(operator: Table) -> Iterator[tuple[str, object]]:
    """The settings of an operator that are not 0, by the numbers of their fields, and as "own" a digest of its custom
    settings.

    Only the schema says how wide a field is: here, each field is read up to the next one instead, which gives the same
    value because writers put zeros between fields.
    """
    kind, table = operator.integer(3, 1) & 0xFF, operator.table(4)
    if own := operator.content(5):
        yield "own", hashlib.sha256(own).hexdigest()[:12]
    if table is None or not 0 < kind <= len(OPTION_FIELDS):
        return
    places = {field: at for field in range(OPTION_FIELDS[kind - 1]) if (at := table.find(field)) is not None}
    for field, at in places.items():
        end = min((other for other in places.values() if other > at), default=table.position + table.size)
        if field in OPTION_VECTORS.get(kind, ()):
            yield str(field), table.integers(field)
        elif value := int.from_bytes(table.buffer.data[at:end], "little"):
            yield str(field), value

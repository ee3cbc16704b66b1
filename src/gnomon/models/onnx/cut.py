"""Cut an ONNX model into segments, each of which is a model of its own with some of the nodes. See
`gnomon.models.cut`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.errors import ModelError
from gnomon.models.cut import Cutter
from gnomon.models.model import Limits, model_errors
from gnomon.models.onnx.file import all_tensors, node_names, onnx_package, parse_onnx, read_external, read_onnx
from gnomon.models.onnx.graph import Shapes, onnx_graph, tensor_shapes
from gnomon.system.files import in_place_of

if TYPE_CHECKING:
    import onnx

MAX_INLINE_BYTES = 1_900_000_000
"""If a segment's weights have more bytes than this, they go into a file of external data next to it."""


def save(model: onnx.ModelProto, dest: Path) -> None:
    """Write a model; if its weights take more than `MAX_INLINE_BYTES`, they go into ``<dest>.data`` next to it."""
    onnx = onnx_package()
    if sum(len(tensor.raw_data) for tensor in all_tensors(model)) > MAX_INLINE_BYTES:
        data = dest.name + ".data"
        (dest.parent / data).unlink(missing_ok=True)
        onnx.save_model(model, str(dest), save_as_external_data=True, location=data, size_threshold=1024)
        return
    with in_place_of(dest) as partial:
        partial.write_bytes(model.SerializeToString())


def with_weights(source: Path, dest: Path, limits: Limits) -> None:
    """Copy an ONNX file, and store external weights inside the copy: pnnx would look for them under a name of its
    own.
    """
    read = parse_onnx(source, limits)
    if not read.external:
        shutil.copyfile(source, dest)
        return
    _read_external(read.model, source)
    save(read.model, dest)


def _typed(name: str, values: dict[str, onnx.ValueInfoProto], shapes: Shapes) -> onnx.ValueInfoProto:
    kind, shape = shapes.get(name, (0, None))
    if kind:
        dims = None if shape is None else [None if n < 0 else n for n in shape]
        if dims is None or None in dims:
            recorded = values.get(name)
            if recorded is not None and (shape is None or recorded.type.tensor_type.HasField("shape")):
                return recorded
        helper = onnx_package().helper
        return helper.make_tensor_value_info(name, kind, dims)  # type: ignore[no-any-return]
    if name in values:
        return values[name]
    raise ModelError(
        f"the type of tensor {name!r} is unknown, so the model cannot be cut there",
        hint="Add the types to the model with onnx.shape_inference.infer_shapes, or cut somewhere else.",
    )


def _read_external(model: onnx.ModelProto, path: Path) -> None:
    """Read external data into the tensors."""
    external = onnx_package().TensorProto.EXTERNAL
    for tensor in all_tensors(model):
        if tensor.data_location == external:
            read_external(tensor, path, Limits())


class OnnxCutter(Cutter):
    """Cuts one ONNX model: nodes that compute constants are repeated, and initializers copied, in each segment that
    reads them.
    """

    def __init__(self, path: Path | str) -> None:
        """Read the model. Raises ModelError and RuntimeMissingError."""
        self._path = Path(path)
        with model_errors(path):
            read = read_onnx(self._path, Limits())
            self._model, self._shapes = read.model, tensor_shapes(read.model, Limits())
            graph = onnx_graph(read.model, self._shapes, name=self._path.stem, digest=read.digest)
        super().__init__(graph)

    def write(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], dest: Path) -> None:
        """Write the nodes as an ONNX model; ModelError if a boundary's type is unknown."""
        save(self._submodel(nodes, inputs, outputs), dest)

    def _submodel(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> onnx.ModelProto:
        """The nodes, in this order, as a model; `inputs` and `outputs` are tensors of the graph.

        Operator sets, functions and metadata stay, nodes get their unique names from the graph, and weights in external
        files are read in. Raises ModelError if the type of an input or output is unknown.
        """
        onnx = onnx_package()
        original, names = self._model, [tensor.name for tensor in self.graph.tensors]
        result = onnx.ModelProto(
            **{field.name: value for field, value in original.ListFields() if field.name != "graph"}
        )
        graph = result.graph
        graph.name = original.graph.name or self.graph.name
        read: set[str] = set()
        for index in nodes:
            node = graph.node.add()
            node.CopyFrom(original.graph.node[index])
            node.name = self.graph.operators[index].name
            read.update(node_names(node)[0])
        boundary = {names[t] for t in (*inputs, *outputs)}
        read |= {names[t] for t in outputs}
        graph.initializer.extend(t for t in original.graph.initializer if t.name in read)
        graph.sparse_initializer.extend(t for t in original.graph.sparse_initializer if t.values.name in read)
        # Sequences and named dimensions are known only from the types that the file records.
        recorded = (*original.graph.value_info, *original.graph.output, *original.graph.input)
        values = {value.name: value for value in recorded if value.type.WhichOneof("value")}
        graph.input.extend(_typed(names[t], values, self._shapes) for t in inputs)
        graph.output.extend(_typed(names[t], values, self._shapes) for t in outputs)
        inner = {name for node in graph.node for name in node.output if name} - boundary
        typed = {name for name in inner if name in values or self._shapes.get(name, (0, None))[0]}
        graph.value_info.extend(_typed(name, values, self._shapes) for name in sorted(typed))
        held = inner | boundary | read
        graph.quantization_annotation.extend(
            note for note in original.graph.quantization_annotation if note.tensor_name in held
        )
        _read_external(result, self._path)
        return result  # type: ignore[no-any-return]

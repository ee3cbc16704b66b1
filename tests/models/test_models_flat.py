"""TFLite and Circle reading: the published schema's own accessors are the oracle."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

flatbuffers = pytest.importorskip("flatbuffers")
schema = pytest.importorskip("circle_schema").circle

from gnomon.errors import ModelError  # noqa: E402
from gnomon.formats.onert import operators as onert_ops  # noqa: E402
from gnomon.formats.onert import operators as tflite_codes  # noqa: E402
from gnomon.models import dynamic_inputs, load  # noqa: E402
from gnomon.models.tflite.graph import read_flat  # noqa: E402

OP = schema.BuiltinOperator.BuiltinOperator


def members(enum: Any) -> dict[str, int]:
    return {k: v for k, v in vars(enum).items() if not k.startswith("_")}


def build(rows: list[Any], tensors: list[Any], *, kind: bytes = b"CIR0", subgraphs: int = 1, **more: Any) -> bytes:
    """rows: ((old code, new code, custom name), inputs, outputs); tensors: dicts of TensorT's fields."""
    model = schema.Model.ModelT()
    model.operatorCodes = []
    operators: list[Any] = []
    for (old, new, custom), reads, writes in rows:
        code = schema.OperatorCode.OperatorCodeT()
        code.deprecatedBuiltinCode, code.builtinCode, code.customCode = old, new, custom
        model.operatorCodes.append(code)
        operator = schema.Operator.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = len(operators), reads, writes
        operators.append(operator)
    model.buffers = [schema.Buffer.BufferT()]
    listed = []
    for fields in tensors:
        tensor = schema.Tensor.TensorT()
        data = fields.pop("data", None)
        for key, content in fields.items():
            setattr(tensor, key, content)
        if data is not None:
            buffer = schema.Buffer.BufferT()
            buffer.data = np.frombuffer(data, np.uint8)
            model.buffers.append(buffer)
            tensor.buffer = len(model.buffers) - 1
        listed.append(tensor)
    graph = schema.SubGraph.SubGraphT()
    graph.tensors, graph.operators, graph.name = listed, operators, more.get("name", "main")
    graph.inputs, graph.outputs = more.get("inputs", [0]), more.get("outputs", [len(listed) - 1])
    model.subgraphs = [graph] + [schema.SubGraph.SubGraphT() for _ in range(subgraphs - 1)]
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), kind)
    return bytes(builder.Output())


def small() -> bytes:
    """A model with optional inputs, a constant, a custom operator and a dynamic tensor."""
    tensors: list[Any] = [
        {"name": "x", "shape": [1, 4], "shapeSignature": [-1, 4]},
        {"name": "w", "shape": [3, 4], "data": bytes(48)},
        {"name": "h", "shape": [1, 3]},
        {"name": "h", "shape": [1, 3], "type": 9},
        {"name": "", "shape": []},
    ]
    rows = [
        ((9, 9, None), [0, 1, -1], [2]),
        ((32, 32, "Mine"), [2], [3]),
        ((127, 150, None), [3], [4]),
    ]
    return build(rows, tensors, subgraphs=2)


def test_codes_and_types_are_those_of_the_schema() -> None:
    assert {v: k for k, v in members(OP).items()} == tflite_codes.OPERATOR_NAMES
    for name, code in members(schema.TensorType.TensorType).items():
        assert tflite_codes.type_name(code) == name.lower()
    assert tflite_codes.type_name(99) == "type_99"
    assert [tflite_codes.size_bytes(c, 33) for c in (0, 17, -2, 5, 99)] == [132, 17, 36, None, None]


def test_ir_opcodes_are_known_to_the_schema_and_to_onert() -> None:
    assert set(onert_ops.IR_OPCODES) <= set(members(OP))
    onert = pytest.importorskip("onert")
    (core,) = Path(onert.__file__).parent.rglob("libonert_core.so")
    binary = core.read_bytes()
    for opcode in set(onert_ops.IR_OPCODES.values()):
        assert f"config{len(opcode) + 11}OP_BACKEND_{opcode}E".encode() in binary
    assert onert_ops.ir_opcode("MAX_POOL_2D") == "Pool2D"
    assert onert_ops.ir_opcode("STABLEHLO_CBRT") is None


@pytest.mark.parametrize("name", ["mix", "efficientnet-lite0.circle", "efficientnet-lite0.tflite"])
def test_reading_agrees_with_the_schemas_accessors(name: str, zoo_model: Callable[[str], Path]) -> None:
    path = zoo_model(name)
    graph = load(path).graph
    root = schema.Model.Model.GetRootAs(path.read_bytes(), 0)
    sub = root.Subgraphs(0)
    assert graph.format == path.suffix[1:]
    assert list(graph.inputs) == sub.InputsAsNumpy().tolist()
    assert list(graph.outputs) == sub.OutputsAsNumpy().tolist()
    assert len(graph.tensors) == sub.TensorsLength()
    for i, tensor in enumerate(graph.tensors):
        expected = sub.Tensors(i)
        assert tensor.name == expected.Name().decode()
        assert list(tensor.shape or ()) == expected.ShapeAsNumpy().tolist()
        held = root.Buffers(expected.Buffer()).DataLength()
        assert tensor.constant == (held > 0)
        assert not held or tensor.size_bytes == held
    assert len(graph.operators) == sub.OperatorsLength()
    for i, operator in enumerate(graph.operators):
        wanted = sub.Operators(i)
        code = root.OperatorCodes(wanted.OpcodeIndex()).BuiltinCode()
        assert operator.type == tflite_codes.OPERATOR_NAMES[code]
        assert list(operator.inputs) == wanted.InputsAsNumpy().tolist()
        assert list(operator.outputs) == wanted.OutputsAsNumpy().tolist()


def test_one_network_has_the_same_macs_in_every_format(zoo_model: Callable[[str], Path]) -> None:
    found = {load(zoo_model(f"efficientnet-lite0.{kind}")).graph.macs for kind in ("circle", "tflite", "onnx")}
    assert found == {385_187_552}
    # By hand: 3x3x3x16 over 32x32, 3x3x16x16 over 16x16, 24 times 16x16 over 2x2, 64x10.
    assert load(zoo_model("mix")).graph.macs == 27 * 16 * 1024 + 144 * 16 * 256 + 24 * 256 * 4 + 640


def test_names_optional_inputs_custom_and_late_codes() -> None:
    graph, subgraphs = read_flat(small(), "stem")
    assert subgraphs == 2
    assert [(op.name, op.type) for op in graph.operators] == [
        ("h", "FULLY_CONNECTED"),
        ("Mine_1", "Mine"),
        ("tensor_4", "GELU"),
    ]
    assert graph.operators[0].inputs == (0, 1)
    assert graph.operators[0].macs is None
    assert [t.constant for t in graph.tensors] == [False, True, False, False, False]
    assert [t.size_bytes for t in graph.tensors] == [None, 48, 12, 3, 4]
    assert [t.name for t in dynamic_inputs(graph)] == ["x"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (0, 0, "ADD"),
        (3, 0, "CONV_2D"),
        (0, 3, "CONV_2D"),
        (127, 132, "CONV_3D"),
        (0, -4, "BCQ_GATHER"),
        (-4, -4, "BCQ_GATHER"),
        (127, -9, "ATTENTION"),
        (127, 900, "BUILTIN_900"),
        (32, 32, "CUSTOM"),
    ],
)
def test_operator_codes_of_all_ages(old: int, new: int, expected: str) -> None:
    data = build([((old, new, None), [0], [1])], [{"name": "x", "shape": [1]}, {"name": "y", "shape": [1]}])
    assert read_flat(data, "m")[0].operators[0].type == expected


@pytest.mark.parametrize(
    ("code", "shapes", "expected"),
    [
        (OP.CONV_2D, ([1, 8, 8, 4], [6, 3, 3, 2], [1, 4, 4, 6]), 16 * 6 * 18),  # two groups
        (OP.DEPTHWISE_CONV_2D, ([1, 8, 8, 4], [1, 3, 3, 8], [1, 8, 8, 8]), 64 * 8 * 9),
        (OP.TRANSPOSE_CONV, ([4], [6, 2, 2, 3], [1, 5, 5, 3], [1, 10, 10, 6]), 25 * 3 * 24),
        (OP.CONV_3D, ([1, 4, 4, 4, 2], [3, 3, 3, 2, 5], [1, 4, 4, 4, 5]), 64 * 5 * 54),
        (OP.FULLY_CONNECTED, ([2, 3, 4], [7, 4], [6, 7]), 6 * 7 * 4),
        (OP.BATCH_MATMUL, ([2, 3, 4], [2, 4, 5], [2, 3, 5]), 2 * 3 * 5 * 4),
        (OP.BATCH_MATMUL, ([2, 4, 3], [2, 4, 5], [2, 3, 5]), 2 * 3 * 5 * 4),
        (OP.UNIDIRECTIONAL_SEQUENCE_RNN, ([7, 2, 5], [3, 5], [3, 3], [3], [2, 3], [7, 2, 3]), 14 * 24),
        (OP.SOFTMAX, ([2], [2]), 0),
    ],
)
def test_macs_by_hand(code: int, shapes: tuple[list[int], ...], expected: int) -> None:
    count = len(shapes) - 1
    tensors: list[Any] = [{"name": f"t{i}", "shape": s} for i, s in enumerate(shapes)]
    data = build([((min(code, 127), code, None), list(range(count)), [count])], tensors, inputs=list(range(count)))
    assert read_flat(data, "m")[0].operators[0].macs == expected


def test_what_cannot_be_is_refused() -> None:
    x, y, z = ({"name": n, "shape": [2]} for n in "xyz")
    add, relu = (0, 0, None), (19, 19, None)
    cases = {
        "reads a tensor that a later": build([(relu, [2], [1]), (relu, [0], [2])], [dict(x), dict(y), dict(z)]),
        "written twice": build([(relu, [0], [1]), (relu, [0], [1])], [dict(x), dict(y)]),
        "index is out of range": build([(add, [0, 9], [1])], [dict(x), dict(y)]),
        "has an impossible shape": build([(relu, [0], [1])], [dict(x), {"name": "y", "shape": [2, -7]}]),
        "larger than any": build([(relu, [0], [1])], [dict(x), {"name": "y", "shape": [2**31 - 1] * 3}]),
        "buffer is not listed": build([(relu, [0], [1])], [dict(x), {"name": "y", "shape": [1], "buffer": 7}]),
        "neither TFLite": b"\x10\x00\x00\x00ABCD" + bytes(64),
    }
    cases["impossible shape"] = build([(relu, [0], [1])], [dict(x), {"name": "y", "shape": [1] * 65}])
    for message, data in cases.items():
        with pytest.raises(ModelError, match=message) as caught:
            read_flat(data, "m")
        assert caught.value.hint


def test_variables_may_be_read_before_they_are_written() -> None:
    tensors: list[Any] = [{"name": n, "shape": [2]} for n in "xsy"]
    tensors[1]["isVariable"] = True
    rows = [((0, 0, None), [0, 1], [2]), ((19, 19, None), [2], [1])]
    assert len(read_flat(build(rows, tensors), "m")[0].operators) == 2


def test_buffers_behind_the_flatbuffer_are_constants() -> None:
    model = schema.Model.ModelT()
    full, empty = schema.Buffer.BufferT(), schema.Buffer.BufferT()
    tensors = []
    for index in range(3):
        tensor = schema.Tensor.TensorT()
        tensor.name, tensor.shape, tensor.buffer = f"t{index}", [2], index
        tensors.append(tensor)
    graph = schema.SubGraph.SubGraphT()
    graph.tensors, graph.inputs, graph.outputs, graph.operators = tensors, [], [], []
    model.subgraphs, model.buffers = [graph], [schema.Buffer.BufferT(), full, empty]

    def pack(offset: int) -> bytes:
        full.offset, full.size = offset, 8
        builder = flatbuffers.Builder(256)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output()) + bytes(8)

    length = len(pack(1000)) - 8
    assert [t.constant for t in read_flat(pack(length), "m")[0].tensors] == [False, True, False]
    with pytest.raises(ModelError, match="buffer lies out"):
        read_flat(pack(length + 1), "m")


def test_shared_parts_do_not_blow_a_small_file_up() -> None:
    """Twenty thousand operators that share one list of twenty thousand inputs would be 4e8 numbers."""
    tensors: list[Any] = [{"name": n, "shape": [2]} for n in "xy"]
    honest = build([((0, 0, None), [0], [1])], tensors)
    graph = schema.Model.Model.GetRootAs(honest, 0).Subgraphs(0)._tab
    field = graph.Pos + graph.Offset(10)  # where the subgraph points to its operators
    count, start = 20000, len(honest)
    # Behind the honest file: a list of offsets that all lead to one operator, whose inputs are a long list.
    table = start + 4 + 4 * count + 8
    steps = [table - (start + 4 + 4 * i) for i in range(count)]
    operator = struct.pack("<HHHH", 8, 8, 0, 4) + struct.pack("<iI", 8, 4)
    inputs = struct.pack("<I", count) + bytes(4 * count)
    data = bytearray(honest + struct.pack(f"<I{count}I", count, *steps) + operator + inputs)
    struct.pack_into("<I", data, field, start - field)
    with pytest.raises(ModelError, match="shared so often"):
        read_flat(bytes(data), "m")

"""Cutting TFLite models: the segments one after the other compute the whole, bit by bit of what the file holds."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circle_schema import circle as schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.models.modelkit import check_chain, run_chain
from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution, reshape

from gnomon.errors import GnomonError, ModelError, UsageError
from gnomon.models.cut import Cutter
from gnomon.models.cutters import open_cutter
from gnomon.models.load import load
from gnomon.models.tflite.cut import OPTION_FIELDS, OPTION_REFUSED, OPTION_VECTORS, FlatCutter

Array = np.ndarray[Any, Any]
SHAPE = (1, 2, 2, 4)
TYPE = schema.TensorType.TensorType

needs_litert = pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed")


def run(path: Path, inputs: Sequence[Array]) -> list[Array]:
    """The model's outputs by LiteRT's builtin kernels."""
    from ai_edge_litert import interpreter as package

    kernels = package.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    made = package.Interpreter(model_path=str(path), experimental_op_resolver_type=kernels)
    made.allocate_tensors()
    for detail, value in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], value)
    made.invoke()
    return [made.get_tensor(detail["index"]) for detail in made.get_output_details()]


def noise(cutter: Cutter, seed: int = 0) -> dict[str, Array]:
    rng, made = np.random.default_rng(seed), {}
    for t in cutter.graph.inputs:
        tensor = cutter.graph.tensors[t]
        drawn = (
            rng.standard_normal(tensor.shape) if tensor.dtype == "float32" else rng.integers(-100, 100, tensor.shape)
        )
        made[tensor.name] = drawn.astype(tensor.dtype)
    return made


def check(cutter: Cutter, whole: Path, places: Sequence[int], folder: Path) -> None:
    check_chain(cutter, whole, places, noise(cutter), folder, run, rtol=1e-5)


@needs_litert
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inner=st.sets(st.integers(1, 61), max_size=5))
def test_a_real_model_cut_anywhere_computes_the_whole(
    zoo_model: Callable[[str], Path], tmp_path: Path, inner: set[int]
) -> None:
    path = zoo_model("efficientnet-lite0.tflite")
    cutter = FlatCutter(path)
    check(cutter, path, [0, *sorted(inner), len(cutter.order)], tmp_path)


def test_a_real_models_segments_hold_its_weights_once(zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    path = zoo_model("efficientnet-lite0.tflite")
    cutter = FlatCutter(path)
    parts = [cutter.segment(a, b, tmp_path / f"{a}.tflite") for a, b in ((0, 20), (20, 41), (41, 62))]
    assert sum(p.path.stat().st_size for p in parts) < 1.02 * path.stat().st_size
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    graph = cutter.graph
    for part in parts:
        made = load(part.path).graph
        assert [op.type for op in made.operators] == [graph.operators[i].type for i in part.operators]
        assert [op.macs for op in made.operators] == [graph.operators[i].macs for i in part.operators]
        assert [made.tensors[t] for t in made.inputs] == list(part.inputs)
        assert [made.tensors[t] for t in made.outputs] == list(part.outputs)


class Random:
    """A random TFLite model: what is added, folded, multiplied, reshaped, made of constants alone; several outputs."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.writer = FlatWriter()
        rng = np.random.default_rng(draw(st.integers(0, 9)))
        inputs = [self.writer.value(f"x{k}", SHAPE) for k in range(draw(st.integers(1, 2)))]
        values, made = list(inputs), []
        values.append(self.writer.constant("k", rng.standard_normal(SHAPE).astype(np.float32)))
        for number in range(draw(st.integers(1, 7))):
            # Names are not unique: files do not promise that.
            out = self.writer.value(draw(st.sampled_from([f"t{number}", "twin"])), SHAPE)
            kind = draw(st.sampled_from(["add", "conv", "dense", "reshape"]))
            source = draw(st.sampled_from(values))
            if kind == "add":
                options = schema.AddOptions.AddOptionsT()
                self.writer.operator(
                    OPERATOR.ADD, [source, draw(st.sampled_from(values))], [out], OPTIONS.AddOptions, options
                )
            elif kind == "conv":
                w = self.writer.constant(f"w{number}", 0.4 * rng.standard_normal((4, 1, 1, 4)).astype(np.float32))
                code, options_kind, made_options = convolution(1, ACTIVATION.RELU, depthwise=False)
                bias = self.writer.constant(f"b{number}", np.ones(4, np.float32))
                self.writer.operator(code, [source, w, bias], [out], options_kind, made_options)
            elif kind == "dense":
                w = self.writer.constant(f"w{number}", 0.4 * rng.standard_normal((4, 4)).astype(np.float32))
                dense = schema.FullyConnectedOptions.FullyConnectedOptionsT()
                dense.keepNumDims = True
                absent = -1  # the bias
                self.writer.operator(
                    OPERATOR.FULLY_CONNECTED, [source, w, absent], [out], OPTIONS.FullyConnectedOptions, dense
                )
            else:
                shape = self.writer.constant(f"s{number}", np.asarray(SHAPE, np.int32))
                self.writer.operator(OPERATOR.RESHAPE, [source, shape], [out], OPTIONS.ReshapeOptions, reshape(SHAPE))
            values.append(out)
            made.append(out)
        names = {self.writer._tensors[t].name: t for t in made}
        chosen = draw(st.lists(st.sampled_from(sorted(names)), min_size=1, unique=True))
        self.data = self.writer.pack(inputs, [names[n] for n in chosen], b"TFL3")


@needs_litert
@settings(max_examples=20)
@given(st.data())
def test_random_models_cut_anywhere_compute_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = folder / "m.tflite"
    path.write_bytes(Random(data.draw).data)
    try:
        cutter = FlatCutter(path)
    except ModelError as error:
        assert "computes nothing" in error.message
        return
    end = len(cutter.order)
    check(cutter, path, sorted({0, end, *data.draw(st.sets(st.integers(0, end)))}), folder)


def quantised(inner: bool = True) -> bytes:
    """An int8 model of two convolutions, with weights quantised by channel."""
    writer = FlatWriter()

    def scaled(index: int, kind: int, scales: Sequence[float], zeros: Sequence[int], axis: int = 0) -> int:
        tensor = writer._tensors[index]
        tensor.type = kind
        tensor.quantization = schema.QuantizationParameters.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = list(scales), list(zeros)
        tensor.quantization.quantizedDimension = axis
        return index

    source = last = scaled(writer.value("x", SHAPE), TYPE.INT8, [0.02], [3])
    for number in range(2):
        weights = np.random.default_rng(number).integers(-127, 127, (4, 1, 1, 4))
        w = writer.constant(f"w{number}", weights.astype(np.int32))
        writer._buffers[writer._tensors[w].buffer].data = weights.astype(np.int8).tobytes()
        scaled(w, TYPE.INT8, [0.01, 0.02, 0.005, 0.015], [0] * 4, 0)
        b = scaled(writer.constant(f"b{number}", np.arange(4, dtype=np.int32)), TYPE.INT32, [2e-4] * 4, [0] * 4)
        out = scaled(writer.value(f"y{number}", SHAPE), TYPE.INT8, [0.03 + 0.01 * number], [-5])
        code, kind, options = convolution(1, ACTIVATION.NONE, depthwise=False)
        writer.operator(code, [last, w, b], [out], kind, options)
        last = out
    return writer.pack([source], [last], b"TFL3")


@needs_litert
def test_a_quantised_model_keeps_its_quantisation(tmp_path: Path) -> None:
    from ai_edge_litert import interpreter as package

    path = tmp_path / "m.tflite"
    path.write_bytes(quantised())
    cutter = FlatCutter(path)
    feeds = noise(cutter)
    values = run_chain(cutter, [0, 1, 2], feeds, tmp_path, run)
    assert (values["y1"] == run(path, list(feeds.values()))[0]).all()
    assert values["y1"].std() > 5
    first = package.Interpreter(model_path=str(tmp_path / "0-1.tflite"))
    (given_,), (made,) = first.get_input_details(), first.get_output_details()
    assert given_["quantization"] == pytest.approx((0.02, 3))
    assert made["quantization"] == pytest.approx((0.03, -5))
    weights = next(d for d in first.get_tensor_details() if d["name"] == "w0")
    assert list(weights["quantization_parameters"]["scales"]) == pytest.approx([0.01, 0.02, 0.005, 0.015])


def chain(*codes: int, names: Sequence[str] = ()) -> FlatWriter:
    writer = FlatWriter()
    last = writer.value("x", SHAPE)
    for number, code in enumerate(codes):
        out = writer.value(names[number] if names else f"t{number}", SHAPE)
        writer.operator(code, [last], [out], 0, None)
        last = out
    return writer


def refused(path: Path, writer: FlatWriter) -> str:
    path.write_bytes(writer.pack([0], [len(writer._tensors) - 1], b"TFL3"))
    with pytest.raises(ModelError) as error:
        cutter = FlatCutter(path)
        cutter.segment(0, len(cutter.order), path.with_name("s.tflite"))
    assert error.value.hint
    assert not path.with_name("s.tflite").exists()
    return error.value.message


def test_what_cannot_be_cut_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    assert "control flow" in refused(path, chain(OPERATOR.ABS, OPERATOR.WHILE))
    assert "variables" in refused(path, chain(OPERATOR.READ_VARIABLE))
    assert "random" in refused(path, chain(OPERATOR.RANDOM_UNIFORM))
    variable = chain(OPERATOR.ABS)
    variable._tensors[0].isVariable = True
    assert "'x' is a variable" in refused(path, variable)
    mutating = chain(OPERATOR.ABS)
    mutating._operators[0].mutatingVariableInputs = [True]
    assert "changes a variable" in refused(path, mutating)
    sparse = chain(OPERATOR.ABS)
    sparse._tensors[0].sparsity = schema.SparsityParameters.SparsityParametersT()
    assert "sparse" in refused(path, sparse)
    large = chain(OPERATOR.ABS)
    large._operators[0].largeCustomOptionsOffset = 77
    assert "settings elsewhere" in refused(path, large)
    blockwise = chain(OPERATOR.ABS)
    quantised_so = schema.QuantizationParameters.QuantizationParametersT()
    quantised_so.detailsType = 2
    blockwise._tensors[0].quantization = quantised_so
    assert "quantised" in refused(path, blockwise)
    unknown = chain(OPERATOR.ABS)
    unknown._operators[0].builtinOptionsType = OPTIONS.RmsNormOptions
    unknown._operators[0].builtinOptions = schema.RmsNormOptions.RmsNormOptionsT()
    assert "kind 250" in refused(path, unknown)
    path.write_bytes(chain(OPERATOR.ABS, names=["x"]).pack([0], [1], b"TFL3"))
    with pytest.raises(ModelError, match="same name"):
        FlatCutter(path)


def test_several_subgraphs_are_refused(tmp_path: Path) -> None:
    import flatbuffers

    path = tmp_path / "m.tflite"
    model = schema.Model.ModelT.InitFromPackedBuf(chain(OPERATOR.ABS).pack([0], [1], b"TFL3"), 0)
    model.subgraphs = model.subgraphs * 2
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    with pytest.raises(ModelError, match="2 subgraphs"):
        FlatCutter(path)


def test_circle_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.circle"
    path.write_bytes(chain(OPERATOR.ABS).pack([0], [1], b"CIR0"))
    for make in (FlatCutter, lambda p: open_cutter(p, "circle")):
        with pytest.raises(ModelError, match="circle models cannot be cut") as error:
            make(path)
        assert "TFLite" in error.value.hint


def test_custom_operators_keep_their_name_and_settings(tmp_path: Path) -> None:
    writer = chain(OPERATOR.ABS, OPERATOR.CUSTOM, OPERATOR.ABS)
    writer._codes[1].customCode = "MyOwn"
    writer._operators[1].customOptions = b"\x01\x02\x03"
    path = tmp_path / "m.tflite"
    path.write_bytes(writer.pack([0], [3], b"TFL3"))
    part = FlatCutter(path).segment(1, 2, tmp_path / "s.tflite")
    assert [op.type for op in load(part.path).graph.operators] == ["MyOwn"]
    made = schema.Model.ModelT.InitFromPackedBuf(part.path.read_bytes(), 0)
    assert bytes(made.subgraphs[0].operators[0].customOptions) == b"\x01\x02\x03"


def test_places_out_of_range_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(chain(OPERATOR.ABS, OPERATOR.ABS).pack([0], [2], b"TFL3"))
    cutter = FlatCutter(path)
    for first, last in ((0, 0), (1, 3), (-1, 1), (2, 1)):
        with pytest.raises(UsageError):
            cutter.segment(first, last, tmp_path / "s.tflite")


def test_settings_that_a_newer_schema_adds_are_not_copied_blindly(tmp_path: Path) -> None:
    """A field that gnomon does not know may be an offset: its bytes alone would lead anywhere."""
    writer = FlatWriter()
    x, y = writer.value("x", SHAPE), writer.value("y", SHAPE)
    # SoftmaxOptions has one field; StridedSliceOptions, with five, stands for its successor.
    later = schema.StridedSliceOptions.StridedSliceOptionsT()
    later.endMask = later.ellipsisMask = 7
    writer.operator(OPERATOR.SOFTMAX, [x], [y], OPTIONS.StridedSliceOptions, later)
    writer._operators[0].builtinOptions = later
    data = bytearray(writer.pack([x], [y], b"TFL3"))
    place = data.index(bytes([OPTIONS.StridedSliceOptions]), 8)
    while place >= 0:
        changed = bytes(data[:place]) + bytes([OPTIONS.SoftmaxOptions]) + bytes(data[place + 1 :])
        model = schema.Model.ModelT.InitFromPackedBuf(changed, 0)
        if model.subgraphs[0].operators[0].builtinOptionsType == OPTIONS.SoftmaxOptions:
            break
        place = data.find(bytes([OPTIONS.StridedSliceOptions]), place + 1)
    path = tmp_path / "m.tflite"
    path.write_bytes(changed)
    with pytest.raises(ModelError, match="does not know"):
        FlatCutter(path).segment(0, 1, tmp_path / "s.tflite")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8), st.booleans())
def test_hostile_files_end_in_one_clear_error(tmp_path: Path, edits: list[tuple[int, int]], cut: bool) -> None:
    data = bytearray(quantised())
    for place, value in edits:
        data[place % len(data)] = value
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(data[: len(data) // 2] if cut else data))
    try:
        cutter = FlatCutter(path)
        for place in range(len(cutter.order)):
            made = cutter.segment(place, place + 1, tmp_path / "s.tflite")
            assert made.path.stat().st_size < 2 * len(data) + (1 << 20)
    except GnomonError as error:
        assert error.message
        assert error.hint


@needs_litert
def test_the_options_are_those_of_the_schema() -> None:
    """The fields of each kind of options, read from the schema's generated source (which is not imported)."""
    found = find_spec("ai_edge_litert")
    assert found is not None
    assert found.origin is not None
    source = (Path(found.origin).parent / "schema_py_generated.py").read_text()
    listed = source[source.index("class BuiltinOptions(object)") :]
    kinds = re.findall(r"    (\w+) = (\d+)\n", listed[: listed.index("def ")])
    fields, vectors = [], {}
    for name, number in kinds[1:]:
        count = re.search(rf"\ndef {name}Start\(builder\):\n    builder.StartObject\((\d+)\)", source)
        assert count
        fields.append(int(count[1]))
        adders = rf"\ndef {name}Add\w+\(builder[^\n]*\n[^\n]*PrependUOffsetTRelativeSlot\((\d+)"
        if offsets := re.findall(adders, source):
            vectors[int(number)] = tuple(map(int, offsets))
    assert tuple(fields) == OPTION_FIELDS
    assert vectors == OPTION_VECTORS | OPTION_REFUSED


def test_no_process_of_gnomon_loads_the_runtime_to_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(chain(OPERATOR.ABS, OPERATOR.ABS).pack([0], [2], b"TFL3"))
    script = (
        "import sys; from pathlib import Path\n"
        "from gnomon.models.cutters import open_cutter\n"
        "open_cutter(Path(sys.argv[1]), 'tflite').segment(0, 1, sys.argv[1] + '.s')\n"
        "print([m for m in sys.modules if m.split('.')[0] in {'ai_edge_litert', 'flatbuffers', 'circle_schema'}])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

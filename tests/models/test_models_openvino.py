"""OpenVINO's files as graphs: held against what OpenVINO itself reads, and against files that are broken."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.agent.drivers.openvino import driver
from gnomon.core.graph import Graph
from gnomon.errors import ModelError, UsageError
from gnomon.models.load import copy_model, files_beside, load, plausible_feeds
from gnomon.session.model import place_model, read_model
from gnomon.session.model_session import own_tolerance
from gnomon.session.request import ModelRequest

GOLDEN = Path(__file__).parent / "golden" / "small.xml"
TEXT = GOLDEN.read_text(encoding="utf-8")


def written(folder: Path, text: str = TEXT) -> Path:
    """The golden file, or a changed one, with its weights beside it."""
    (folder / "m.xml").write_text(text, encoding="utf-8")
    shutil.copyfile(GOLDEN.with_suffix(".bin"), folder / "m.bin")
    return folder / "m.xml"


def names(graph: Graph, tensors: Sequence[int]) -> list[str]:
    return [graph.tensors[t].name for t in tensors]


def test_a_file_of_the_older_version() -> None:
    model = load(GOLDEN)
    graph = model.graph
    assert (model.kind, graph.format, graph.name) == ("openvino", "openvino", "small")
    assert model.size_bytes == len(TEXT.encode()) + 108
    # Weights in half precision and their conversion are constants; the second operator of a name gets another.
    assert [(op.index, op.name, op.type) for op in graph.operators] == [
        (0, "conv", "Convolution"),
        (1, "ReLU_1", "ReLU"),
    ]
    assert (names(graph, graph.inputs), names(graph, graph.outputs)) == (["image"], ["conv"])
    assert graph.macs == 1 * 3 * 2 * 2 * 2 * 3 * 3
    weights = graph.tensors[graph.operators[0].inputs[1]]
    assert (weights.shape, weights.dtype, weights.size_bytes, weights.constant) == ((3, 2, 3, 3), "float32", 216, True)
    assert [(e.producer, e.consumer) for e in graph.edges()] == [(0, 1)]


def test_the_digest_is_of_the_weights_too(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = load(path).graph.digest
    (tmp_path / "m.bin").write_bytes(bytes([1] * 108))
    assert load(path).graph.digest != before
    (tmp_path / "m.bin").unlink()
    with pytest.raises(ModelError, match=r"m\.bin does not exist"):
        load(path)


def test_layers_in_another_order_are_brought_into_that_of_execution(tmp_path: Path) -> None:
    layers = re.findall(r"<layer .*?</layer>", TEXT, flags=re.DOTALL)
    turned = TEXT
    for place, layer in enumerate(layers):
        turned = turned.replace(layer, f"@{place}@")
    for place, layer in enumerate(reversed(layers)):
        turned = turned.replace(f"@{place}@", layer)
    assert turned != TEXT
    graph = load(written(tmp_path, turned)).graph
    assert [op.type for op in graph.operators] == ["Convolution", "ReLU"]


def test_layers_in_the_bodies_of_others_are_theirs(tmp_path: Path) -> None:
    body = f"<body>{TEXT[TEXT.index('<layers>') : TEXT.index('<meta_data>')]}</body>"
    held = TEXT.replace('type="ReLU" version="opset1">', f'type="Loop" version="opset5">{body}')
    graph = load(written(tmp_path, held)).graph
    assert [op.type for op in graph.operators] == ["Convolution", "Loop"]
    assert graph.macs is None, "what a loop computes is not known"


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("<net ", "<!DOCTYPE net [<!ENTITY a 'aaaa'>]><net ", "document type"),
        ("</net>", "", "XML file is broken"),
        ('version="10"', 'version="7"', "version '7'"),
        ('to-layer="3"', 'to-layer="30"', "layer that does not exist"),
        ('from-port="2"', 'from-port="3"', "port that does not exist"),
        ('to-layer="3" to-port="1"', 'to-layer="3" to-port="0"', "has another edge"),
        ('from-layer="0" from-port="0" to-layer="3"', 'from-layer="4" from-port="1" to-layer="3"', "form a cycle"),
        ('id="7"', 'id="0"', "two layers have the id '0'"),
        ('id="7" name="weights"', 'id="7"', "has no name"),
        ("<dim>4</dim>", "<dim>four</dim>", "not a number"),
        ("<dim>4</dim>", "<dim>4</dim>" * 70, "more than 64 dimensions"),
        ("<dim>4</dim>", "<dim>999999999999999999</dim>", "larger than any memory"),
        ('type="Result"', 'type="ReLU"', "no outputs"),
        ("<meta_data>", "<meta_data>" + "<a>" * 200, "nested deeper"),
    ],
)
def test_what_is_broken_is_told(tmp_path: Path, old: str, new: str, match: str) -> None:
    with pytest.raises(ModelError, match=match) as told:
        load(written(tmp_path, TEXT.replace(old, new)))
    assert told.value.hint


def test_a_long_name_is_told_in_short(tmp_path: Path) -> None:
    text = TEXT.replace('name="image"', f'name="{"image" * 10_000}"').replace('from-port="0"', 'from-port="9"')
    with pytest.raises(ModelError, match="port that does not exist") as told:
        load(written(tmp_path, text))
    assert len(str(told.value)) < 400


def test_other_xml_is_told_by_its_root(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the XML file has the root <svg>"):
        load(written(tmp_path, '<?xml version="1.0"?><svg/>'))


def test_the_weights_go_where_the_file_goes(tmp_path: Path) -> None:
    path, there = written(tmp_path), tmp_path / "there"
    there.mkdir()
    assert files_beside(path) == {Path("m.bin"): tmp_path / "m.bin"}
    copy_model(path, there / "m.xml")
    assert load(there / "m.xml").graph == load(path).graph
    sent: list[dict[str, bytes]] = []

    def push(source: Path, name: str) -> str:
        sent.append({file.name: file.read_bytes() for file in source.iterdir()})
        return f"/there/{name}"

    placed = place_model(load(path), path, push)
    assert placed.path == "/there/model/m.xml"
    assert [sorted(found) for found in sent] == [["m.bin", "m.xml"]]


def read(path: Path, **shapes: tuple[int, ...]) -> Graph:
    with ExitStack() as stack:
        return read_model(ModelRequest(model=path, shapes=shapes), stack).model.graph


def test_open_shapes_are_fixed_by_what_is_fed(tmp_path: Path) -> None:
    open_batch = TEXT.replace("<dim>1</dim>", "<dim>-1</dim>").replace('shape="1, ', 'shape="?, ')
    path = written(tmp_path, open_batch)
    assert load(path).graph.macs is None
    for given_shapes, expected in (({}, (1, 2, 4, 4)), ({"image": (5, 2, 4, 4)}, (5, 2, 4, 4))):
        graph = read(path, **given_shapes)
        assert graph.tensors[graph.inputs[0]].shape == expected
    with pytest.raises(UsageError, match="contradicts"):
        read(path, image=(1, 3, 4, 4))
    with pytest.raises(UsageError, match="contradicts"):
        read(written(tmp_path), image=(2, 2, 4, 4))


@pytest.fixture(scope="module")
def ov() -> Any:
    """OpenVINO without its telemetry, as the agent imports it."""
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("openvino is not installed")
    return driver._openvino()


def saved(ov: Any, folder: Path, results: Sequence[Any], parameters: Sequence[Any]) -> tuple[Graph, Any]:
    """A model as gnomon and as OpenVINO read it from its file."""
    path = folder / "m.xml"
    ends = [ov.opset13.result(result) for result in results]
    ov.save_model(ov.Model(ends, list(parameters), "m"), path)
    return load(path).graph, ov.Core().read_model(path)


def test_ends_are_named_shaped_and_typed_as_openvino_does(ov: Any, tmp_path: Path) -> None:
    op = ov.opset13
    x = op.parameter([-1, 3, 8, 8], np.float32, name="x")
    x.output(0).set_names({"a,b"})
    any_rank = op.parameter(ov.PartialShape.dynamic(), ov.Type.i64, name="any")
    flag = op.parameter([], ov.Type.boolean, name="flag")
    split = op.split(op.relu(x, name="relu"), op.constant(np.int64(2)), 2, name="split")
    graph, model = saved(
        ov,
        tmp_path,
        [split.output(1), split.output(0), op.non_zero(any_rank), op.logical_not(flag)],
        [x, any_rank, flag],
    )
    for ends, ports in ((graph.inputs, model.inputs), (graph.outputs, model.outputs)):
        told = [graph.tensors[t] for t in ends]
        assert [tensor.name in port.get_names() for tensor, port in zip(told, ports, strict=True)] == [True] * len(told)
        for tensor, port in zip(told, ports, strict=True):
            shape = port.get_partial_shape()
            known = None if shape.rank.is_dynamic else tuple(-1 if d.is_dynamic else d.get_length() for d in shape)
            assert (tensor.shape, tensor.dtype) == (known, np.dtype(port.get_element_type().to_dtype()).name)
    assert {t.name: t.shape for t in graph.tensors}["a,b"] == (-1, 3, 8, 8)


def test_multiply_accumulates_are_those_of_the_shapes(ov: Any, tmp_path: Path) -> None:
    op, ones, pads = ov.opset13, [1, 1], [0, 0]
    x = op.parameter([2, 4, 6, 6], np.float32, name="x")

    def weights(*shape: int) -> Any:
        return op.constant(np.zeros(shape, np.float32))

    plain = op.convolution(x, weights(8, 4, 3, 3), ones, pads, pads, ones, name="plain")
    grouped = op.group_convolution(x, weights(2, 3, 2, 3, 3), ones, pads, pads, ones, name="grouped")
    back = op.convolution_backprop_data(x, weights(4, 5, 3, 3), ones, name="back")
    turned = op.matmul(x, weights(4, 6, 7), True, False, name="turned")
    graph, _ = saved(ov, tmp_path, [plain, grouped, back, turned], [x])
    assert {op.name: op.macs for op in graph.operators} == {
        "plain": 2 * 8 * 4 * 4 * 4 * 9,
        "grouped": 2 * 6 * 4 * 4 * 2 * 9,
        "back": 2 * 4 * 6 * 6 * 5 * 9,
        "turned": 2 * 4 * 6 * 7 * 6,
    }


def test_what_is_rounded_may_be_off_by_steps_of_eight_bits(ov: Any, tmp_path: Path) -> None:
    op = ov.opset13
    x = op.parameter([1, 5], np.float32, name="x")
    graph, _ = saved(ov, tmp_path, [op.relu(x)], [x])
    assert own_tolerance(graph) < 0.01
    ends = [op.constant(np.float32(end)) for end in (-1, 1, -1, 1)]
    graph, _ = saved(ov, tmp_path, [op.fake_quantize(x, *ends, 256)], [x])
    assert own_tolerance(graph) > 0.01, "kernels compute in eight bits"


def test_an_assignment_of_a_constant_is_an_operator(ov: Any, tmp_path: Path) -> None:
    op = ov.opset6
    x = op.parameter([1, 2], np.float32, name="x")
    start = op.constant(np.zeros((1, 2), np.float32))
    kept = op.assign(op.relu(op.constant(np.ones((1, 2), np.float32))), "state")
    end = op.result(op.add(x, op.read_value(start, "state")))
    ov.save_model(ov.Model(results=[end], sinks=[kept], parameters=[x], name="m"), tmp_path / "m.xml")
    assert sorted(op.type for op in load(tmp_path / "m.xml").graph.operators) == ["Add", "Assign", "ReadValue"]


WORDS = {
    **{f"{short}{bits}": f"{word}{bits}" for short, word in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
    "boolean": "bool",
}
"""Types by OpenVINO's names, and by numpy's."""


def test_ends_of_the_older_version_have_the_types_that_openvino_gives_them(ov: Any, tmp_path: Path) -> None:
    start = TEXT.index('<layer id="7"')
    image, relu = TEXT[:start], TEXT[TEXT.index('<layer id="4"') : TEXT.index("</layers>")]
    relu = relu.replace("<dim>2</dim>", "<dim>4</dim>").replace("<dim>3</dim>", "<dim>2</dim>")
    edges = "</layers><edges>" + "".join(
        f'<edge from-layer="{a}" from-port="{p}" to-layer="{b}" to-port="0"/>' for a, p, b in ((0, 0, 4), (4, 1, 5))
    )
    plain = image + relu.replace("ReLU", "Squeeze") + edges + "</edges></net>"
    for kind in WORDS:
        port = "BOOL" if kind == "boolean" else kind.upper().replace("F", "FP").replace("BFP", "BF")
        text = plain.replace("f32", kind).replace("FP32", port)
        path = written(tmp_path, text)
        graph, model = load(path).graph, ov.Core().read_model(path)
        for ends, ports in ((graph.inputs, model.inputs), (graph.outputs, model.outputs)):
            told = [WORDS[port.get_element_type().get_type_name()] for port in ports]
            assert [graph.tensors[t].dtype for t in ends] == told, kind


LOOK_UP = GOLDEN.with_name("look-up.xml")


def test_what_is_looked_up_lies_along_the_axis(tmp_path: Path) -> None:
    """As language models are exported: numbers of words, converted, look rows up in a table."""
    assert plausible_feeds(load(LOOK_UP)) == {"words": {"least": 0, "most": 4}}
    text = LOOK_UP.read_text(encoding="utf-8")
    path = tmp_path / "m.xml"
    for axis, changed, most in ((1, text, 1), (-1, text, 1), (7, text, 0), (0, text.replace("<dim>5", "<dim>-1"), 0)):
        path.write_text(changed.replace("<dim>-1</dim>5", "<dim>-1</dim>"), encoding="utf-8")
        path.with_suffix(".bin").write_bytes(bytes(40) + axis.to_bytes(8, "little", signed=True))
        assert plausible_feeds(load(path)) == {"words": {"least": 0, "most": most}}


def test_of_several_names_the_layers_own_is_taken_or_the_shortest() -> None:
    graph = load(LOOK_UP).graph
    assert (names(graph, graph.inputs), names(graph, graph.outputs)) == (["words"], ["out"])


@pytest.mark.parametrize("start", ["", "\ufeff", "<!-- made by hand -->\n"])
def test_however_it_begins_it_is_read(tmp_path: Path, start: str) -> None:
    text = TEXT if not start.startswith("<") else TEXT.partition("?>")[2].lstrip()
    assert load(written(tmp_path, start + text)).graph.operators


@pytest.mark.parametrize("encoding", ["gbk", "utf-7", "no-such"])
def test_an_encoding_that_has_no_reader_is_told(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(ModelError, match="XML file is broken"):
        load(written(tmp_path, TEXT.replace("?>", f' encoding="{encoding}"?>')))


def test_weights_that_were_not_fetched_are_told(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.with_suffix(".bin").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"m\.bin is not the model but a Git LFS pointer"):
        load(path)


def test_a_file_of_ports_alone_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.models.openvino._MOST_PARTS", 1 << 10)
    ports = "".join(f'<port id="{k}"/>' for k in range(1 << 10))
    with pytest.raises(ModelError, match=r"more than \d+ layers, ports and names"):
        load(written(tmp_path, TEXT.replace("<output>", f"<output>{ports}", 1)))

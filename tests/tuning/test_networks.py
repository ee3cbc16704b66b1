"""Networks read, told apart into layers and compiled whole; what is broken, open or hostile is refused in words."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from tests.agent.drivers.tvm_models import (
    bytes_net,
    deep_net,
    norm_net,
    shortcut_net,
    small_net,
    two_ends,
    write_records,
)
from tests.models.modelkit import model, node, value
from tests.tuning.conftest import TARGET, Kit

from gnomon.core.overlay.records import TunedDevice
from gnomon.core.sample import Failure
from gnomon.errors import ModelError, UsageError
from gnomon.tuning.networks import Network, Source

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
needs_ort = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="no ONNX Runtime here")
with_tflite = pytest.mark.skipif(
    importlib.util.find_spec("tflite") is None, reason="the package tflite is not installed"
)

DEVICE = TunedDevice(key="local", target=TARGET)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Ends = Mapping[str, tuple[int, Sequence[int | str] | None]]


def graph(nodes: Sequence[Any], inputs: Ends, outputs: Ends, **weights: np.ndarray[Any, Any]) -> Any:
    """An ONNX model; inputs and outputs by their names with data type and shape."""
    reads, writes = ([value(name, shape, kind) for name, (kind, shape) in ends.items()] for ends in (inputs, outputs))
    return model(nodes, reads, writes, weights)


def relu(shape: Sequence[int | str] | None, kind: int = FLOAT) -> bytes:
    return bytes(graph([node("Relu", ["x"], ["y"])], {"x": (kind, shape)}, {"y": (kind, shape)}).SerializeToString())


def saved(kit: Kit, content: bytes, suffix: str = ".onnx") -> Path:
    path = kit.path(suffix)
    path.write_bytes(content)
    return path


def refusal(kit: Kit, path: Path, **more: Any) -> str:
    """Why a file is refused, by a child that goes on."""
    starts = kit.worker.starts
    said = kit.worker.ask("load", {"do": "open", "path": str(path), "dtype": "float32", "shapes": {}, **more})
    assert isinstance(said, Failure) and said.kind == "refused", said
    assert kit.worker.starts == starts or starts == 0
    return said.message


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def run(
    kit: Kit, library: Path, inputs: Path, reference: Path | str = "", tolerance: float = 1e-3
) -> Mapping[str, Any]:
    """Run a compiled network here; the facts, with its outputs as `arrays`."""
    keep = kit.path(".npz")
    kit.asked(do="connect", server=None, threads=2, timeout_s=60)
    said = kit.asked(
        do="run",
        library=str(library),
        inputs=str(inputs),
        reference=str(reference),
        keep=str(keep),
        repeat=1,
        min_repeat_ms=0,
        tolerance=tolerance,
    )
    return {**said, "arrays": arrays(keep)}


def whole(kit: Kit, source: Source, tolerance: float = 1e-3) -> tuple[str, Mapping[str, Any]]:
    """Compile a network untuned, and compare it with its maker's reference: who that is, and the facts of the run."""
    network = kit.network(source)
    library, inputs, keep = kit.path(".so"), kit.path(".npz"), kit.path(".npz")
    made = network.compile(DEVICE, (), library, inputs=inputs, seed=4)
    assert not isinstance(made, Failure), made
    by = network.reference(inputs, keep)
    assert isinstance(by, str), by
    return by, run(kit, library, inputs, keep, tolerance)


# What is read


def test_the_layers_of_a_network(kit: Kit) -> None:
    layers = {layer.name: layer for layer in kit.layers}
    assert len({layer.layer for layer in kit.layers}) == len(kit.layers) == 7
    conv = layers["fused_conv2d1_add_relu"]
    image, bias = ("float32", (1, 4, 4, 4)), ("float32", (1, 4, 1, 1))
    assert conv.arguments == (image, ("float32", (4, 4, 3, 3)), bias, image)
    assert conv.flops == pytest.approx(2 * 4 * 4 * 4 * 4 * 9, rel=0.05)
    scalar = ("float32", ())
    assert layers["fused_conv2d_add_maximum_minimum"].arguments.count(scalar) == 2, "a clipping has scalars"
    assert all(layer.weight == 1 and layer.workload and layer.layer.isdigit() for layer in kit.layers)


def test_a_function_that_is_called_twice_is_one_layer_of_weight_two(kit: Kit) -> None:
    nodes = [node("MatMul", [a, "w"], [b]) for a, b in (("x", "h"), ("h", "y"))]
    model = graph(nodes, {"x": (FLOAT, [4, 4])}, {"y": (FLOAT, [4, 4])}, w=np.ones((4, 4), np.float32))
    (layer,) = kit.network(Source(path=saved(kit, model.SerializeToString()))).layers(TARGET)
    assert layer.weight == 2 and layer.flops == 128


def test_reading_again_gives_the_same_layers(kit: Kit) -> None:
    assert kit.network(Source(path=kit.model)).layers(TARGET) == kit.layers


def test_open_shapes_are_refused_with_the_option_and_fixed_by_it(kit: Kit) -> None:
    path = saved(kit, relu(["n", 3, "h", 5]))
    network = kit.network(Source(path=path, shapes={"x": (2, 3, 7, 5)}))
    assert network.inputs == (("x", "float32", (2, 3, 7, 5)),)
    assert network.layers(TARGET)[0].arguments[0] == ("float32", (2, 3, 7, 5))
    unranked = saved(kit, relu(None))
    assert kit.network(Source(path=unranked, shapes={"x": (2, 3)})).inputs[0][2] == (2, 3)
    for one in (path, unranked):
        with pytest.raises(ModelError, match="leaves the shape of the input 'x' open") as raised:
            Source(path=one).check()
        assert "--shape x=" in raised.value.hint
    for wrong in ((2, 4, 7, 5), (2, 3, 7), (2, 3, 0, 5), (2, 3, -1, 5), ()):
        with pytest.raises(ModelError, match=r"does not fit the input 'x', which is \?,3,\?,5"):
            Source(path=path, shapes={"x": wrong}).check()
    with pytest.raises(ModelError, match="no input 'z'"):
        Source(path=path, shapes={"x": (2, 3, 7, 5), "z": (1,)}).check()


@pytest.mark.parametrize(
    ("suffix", "told"), [(".txt", "cannot be tuned"), ("", "cannot be tuned"), (".pt2", "not an exported")]
)
def test_what_is_no_network_is_refused_without_tvm(suffix: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(relu([3]))
    with pytest.raises(ModelError, match=told):
        Source(path=path).check()


@pytest.mark.parametrize(
    ("content", "suffix", "told"),
    [
        (b"", ".onnx", "IR version"),
        (b"\x08\x07garbage" * 100, ".onnx", "wire|corrupt"),
        (small_net()[:-300], ".onnx", "wire|corrupt"),
        (relu([3], TensorProto.STRING), ".onnx", "dtype"),
        (relu([3], TensorProto.BFLOAT16), ".onnx", "of type bfloat16"),
        (relu([3]).replace(b"Relu", b"Rexu"), ".onnx", "Rexu"),
        (b"PK\x03\x04garbage", ".pt2", "zip"),
        (b"", ".pt2", "."),
    ],
)
def test_broken_files_are_refused_in_words(kit: Kit, content: bytes, suffix: str, told: str) -> None:
    message = refusal(kit, saved(kit, content, suffix))
    assert re.search(told, message, re.IGNORECASE), message


def test_shapes_that_are_computed_are_folded_before_the_import(kit: Kit) -> None:
    """TVM's importer takes a shape that is written down; ONNX Runtime computes one that is not."""
    nodes = [
        node("Shape", ["x"], ["dims"]),
        node("Gather", ["dims", "first"], ["batch"]),
        node("Cast", ["batch"], ["real"], to=TensorProto.FLOAT),
        node("Ceil", ["real"], ["whole"]),
        node("Cast", ["whole"], ["again"], to=TensorProto.INT64),
        node("Concat", ["again", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["flat"]),
        node("Relu", ["flat"], ["y"]),
    ]
    model = graph(nodes, {"x": (FLOAT, [2, 3, 4])}, {"y": (FLOAT, [2, 12])}, first=np.array([0]), rest=np.array([12]))
    network = kit.network(Source(path=saved(kit, model.SerializeToString())))
    (layer,) = [one for one in network.layers(TARGET) if one.arguments]
    assert layer.arguments[-1][1] == (2, 12)


def test_operators_that_the_importer_lacks_are_named(kit: Kit) -> None:
    nodes = [node("Det", ["x"], ["det"]), node("Relu", ["det"], ["y"])]
    message = refusal(kit, saved(kit, graph(nodes, {"x": (FLOAT, [4, 4])}, {"y": (FLOAT, [])}).SerializeToString()))
    assert "lacks Det;" in message and "gnomon place" in message


def test_a_data_type_that_is_not_tuned_is_refused(kit: Kit) -> None:
    assert "'int8'" in refusal(kit, kit.model, dtype="int8")


def test_weights_of_a_file_elsewhere_are_not_read(kit: Kit) -> None:
    model = graph(
        [node("Add", ["x", "w"], ["y"])],
        {"x": (FLOAT, [3])},
        {"y": (FLOAT, [3])},
        w=np.ones(3, np.float32),
    )
    (weight,) = model.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../../../etc/passwd"
    assert "outside" in refusal(kit, saved(kit, model.SerializeToString()))


def test_a_network_too_large_for_this_machine_costs_a_job(kit: Kit) -> None:
    network = kit.network(Source(path=saved(kit, relu([1 << 20, 1 << 20]))))
    assert network.layers(TARGET)[0].arguments[0][1] == (1 << 20, 1 << 20)
    said = network.compile(DEVICE, (), kit.path(".so"), inputs=kit.path(".npz"))
    assert isinstance(said, Failure) and (said.stage, said.kind) == ("compile", "memory")
    network = kit.network(Source(path=saved(kit, relu([1 << 62, 1 << 62]))))
    said = network.compile(DEVICE, (), kit.path(".so"))
    assert isinstance(said, Failure) and said.kind == "refused"
    assert kit.asked(do="here")


def test_a_target_that_is_none_is_no_fault_of_the_model(kit: Kit) -> None:
    network = kit.network(Source(path=kit.model))
    with pytest.raises(
        UsageError, match="LLVM does not know the target's processor 'cortex-a27' for aarch64-linux-gnu"
    ) as refused:
        network.layers({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a27"})
    assert "target" in (refused.value.hint or "")


def test_a_file_that_cannot_be_read_is_an_error_with_the_next_step(kit: Kit) -> None:
    network = Network(kit.pool, Source(path=saved(kit, b"", ".tflite" if not _tflite() else ".onnx")))
    with pytest.raises(ModelError) as refused:
        network.layers(TARGET)
    assert str(network.source.path) in refused.value.message
    assert ".onnx" in (refused.value.hint or "") or "ONNX" in (refused.value.hint or "")
    network.worker.close()


def _tflite() -> bool:
    return importlib.util.find_spec("tflite") is not None


@with_tflite
def test_a_tflite_file_of_real_weights(kit: Kit, zoo_model: Callable[[str], Path]) -> None:
    network = Network(kit.pool, Source(path=zoo_model("efficientnet-lite0.tflite")))
    layers = network.layers({"kind": "llvm", "num-cores": 1})
    assert sum(layer.weight for layer in layers) > len(layers) > 20
    assert all(layer.workload and layer.arguments for layer in layers)
    inputs, outputs = kit.path(".npz"), kit.path(".npz")
    (name, dtype, dims), *_ = network.inputs
    np.savez(inputs, names=np.array(json.dumps([name])), in_0=np.zeros(dims, dtype))
    said = network.reference(inputs, outputs)
    assert isinstance(said, str) and said.startswith("LiteRT"), said
    with np.load(outputs) as stored:
        assert stored["out_0"].shape == (1, 1000) and float(stored["out_0"].sum()) == pytest.approx(1, abs=1e-3)


def test_without_its_package_a_tflite_file_is_refused_with_what_to_install(kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "tflite.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    worker = kit.pool.worker(environment={"PYTHONPATH": str(tmp_path)})
    said = worker.ask("load", {"do": "open", "path": str(saved(kit, b"garbage", ".tflite"))})
    worker.close()
    assert isinstance(said, Failure) and "-m pip install 'tflite>=2.10'" in said.message


# What is compiled


def scheduled(kit: Kit) -> tuple[Any, Any]:
    """A layer with a trace that tiles its loops."""
    layer = kit.named("fused_matmul")
    kit.asked(**_search(layer))
    trace = kit.asked(do="ask", layer=layer.layer)["traces"][0]
    kit.asked(do="tell", layer=layer.layer, times_s=[None, None])
    return layer, trace


def _search(layer: Any) -> dict[str, Any]:
    return {
        "do": "search",
        "layer": layer.layer,
        "workload": layer.workload,
        "target": TARGET,
        "strategy": "random",
        "start": False,
        "trials": 8,
        "per_round": 2,
        "seed": 1,
        "told": [],
    }


def test_records_schedule_the_functions_that_they_are_of(kit: Kit) -> None:
    layer, trace = scheduled(kit)
    network = kit.network(Source(path=kit.model))
    library, plain, layers, inputs = (kit.path(s) for s in (".so", ".so", ".so", ".npz"))
    tuned = network.compile(DEVICE, [(layer, trace), (kit.heavy, None)], library, layers=layers, inputs=inputs, seed=9)
    untuned = network.compile(DEVICE, [], plain)
    assert not isinstance(tuned, Failure) and not isinstance(untuned, Failure), (tuned, untuned)
    assert (tuned.functions, tuned.scheduled, untuned.functions, untuned.scheduled) == (7, 1, 7, 0)
    assert library.is_file() and plain.is_file() and layers.is_file()
    stored = arrays(inputs)
    assert json.loads(str(stored["names"])) == ["x"] and stored["in_0"].shape == (1, 3, 4, 4)
    reference = kit.path(".npz")
    by = network.reference(inputs, reference)
    assert isinstance(by, str), by
    for one in (library, plain):
        assert run(kit, one, inputs, reference)["error"] < 1e-5
    again = kit.path(".npz")
    network.compile(DEVICE, [], plain, inputs=again, seed=9)
    assert np.array_equal(arrays(again)["in_0"], stored["in_0"])
    network.compile(DEVICE, [], plain, inputs=again, seed=10)
    assert not np.array_equal(arrays(again)["in_0"], stored["in_0"])


def test_a_network_with_channels_last_has_the_layers_that_the_runtime_knows(kit: Kit) -> None:
    path, records = saved(kit, deep_net()), kit.path(".json")
    network = kit.network(Source(path=path))
    layers = network.layers(TARGET)
    write_records(path, records)
    known = {json.loads(line).get("layer") for line in records.read_text().splitlines()[1:]}
    assert {layer.layer for layer in layers} == known
    assert (8, 6, 6) not in {layer.arguments[0][1][1:] for layer in layers if "conv2d" in layer.name}
    library, inputs, reference = kit.path(".so"), kit.path(".npz"), kit.path(".npz")
    made = network.compile(DEVICE, [], library, inputs=inputs)
    assert not isinstance(made, Failure), made
    assert not isinstance(network.reference(inputs, reference), Failure)
    assert run(kit, library, inputs, reference)["error"] < 1e-5


@pytest.mark.parametrize("name", ["marking", "rewrites"])
def test_what_is_read_and_rewritten_is_so_for_the_runtime_too(name: str) -> None:
    package = resources.files("gnomon")
    texts = [package / "children" / "tvm" / f"{name}.py", package / "agent" / "drivers" / "tvm" / f"{name}.py"]
    assert len({text.read_text(encoding="utf-8") for text in texts}) == 1


@pytest.mark.parametrize("content", [shortcut_net(), bytes_net(), norm_net()], ids=["shortcut", "bytes", "norms"])
def test_the_runtime_knows_all_layers(kit: Kit, content: bytes) -> None:
    path, records = saved(kit, content), kit.path(".json")
    layers = kit.network(Source(path=path)).layers(TARGET)
    write_records(path, records)
    known = {json.loads(line).get("layer") for line in records.read_text().splitlines()[1:]}
    assert {layer.layer for layer in layers} == known


@needs_ort
def test_batch_norms_are_no_layers(kit: Kit) -> None:
    path = saved(kit, norm_net())
    layers = kit.network(Source(path=path)).layers(TARGET)
    assert not [layer.name for layer in layers if "norm" in layer.name] and len(layers) == 6
    for dtype, most in (("float32", 1e-5), ("float16", 1e-2)):
        _, facts = whole(kit, Source(path=path, dtype=dtype), tolerance=most)
        assert facts["error"] < most


@needs_torch
def test_batch_norms_of_an_exported_program(kit: Kit) -> None:
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, bias=False),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 5),
        torch.nn.BatchNorm1d(5),
    )
    net.train()(torch.randn(64, 3, 5, 5))  # for statistics that are not 0 and 1
    path = kit.path(".pt2")
    torch.export.save(torch.export.export(net.eval(), (torch.randn(1, 3, 5, 5),)), path)
    by, facts = whole(kit, Source(path=path))
    assert by.startswith("PyTorch") and facts["error"] < 1e-5
    assert not [one.name for one in kit.network(Source(path=path)).layers(TARGET) if "norm" in one.name]


def test_records_of_another_network_are_refused(kit: Kit) -> None:
    layer, trace = scheduled(kit)
    network, library = kit.network(Source(path=saved(kit, two_ends()))), kit.path(".so")
    said = network.compile(DEVICE, [(layer, trace)], library)
    assert isinstance(said, Failure) and said.kind == "refused" and "do not belong to it" in said.message
    assert not library.exists()
    broken = dataclasses.replace(layer, workload="AAAA")
    said = network.compile(DEVICE, [(broken, trace)], library)
    assert isinstance(said, Failure) and "cannot be read by this TVM" in said.message


# What it computes


@needs_ort
@pytest.mark.parametrize("kind", [FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32])
def test_inputs_of_any_type_and_scalars(kit: Kit, kind: int) -> None:
    for shape in ([3, 5], []):
        by, said = whole(kit, Source(path=saved(kit, relu(shape, kind))))
        assert by.startswith("ONNX Runtime") and said["error"] == 0 and said["times_s"]


@needs_ort
def test_several_inputs_and_outputs_of_several_types(kit: Kit) -> None:
    by, said = whole(kit, Source(path=saved(kit, two_ends())))
    assert by.startswith("ONNX Runtime") and said["error"] < 1e-6
    place, left = said["arrays"]["out_0"], said["arrays"]["out_1"]
    assert (place.dtype, place.shape, left.dtype, left.shape) == (np.int64, (3, 1), np.float32, (3, 4))
    model = graph(
        [
            node("Gather", ["table", "index"], ["rows"]),
            node("Sqrt", ["x"], ["roots"]),
            node("Add", ["rows", "roots"], ["y"]),
            node("Not", ["flag"], ["no"]),
        ],
        {"unused": (FLOAT, [2]), "index": (INT64, [4]), "x": (FLOAT, [4, 3]), "flag": (BOOL, [2])},
        {"y": (FLOAT, [4, 3]), "no": (BOOL, [2]), "x": (FLOAT, [4, 3])},
        table=np.arange(30, dtype=np.float32).reshape(10, 3),
    )
    _, said = whole(kit, Source(path=saved(kit, model.SerializeToString())))
    assert said["error"] == 0, "roots of numbers below 0 are not numbers on both sides"
    assert np.isnan(said["arrays"]["out_0"]).any() and said["arrays"]["out_1"].all()
    assert len([name for name in said["arrays"] if name.startswith("out_")]) == 3


@needs_ort
def test_half_precision_is_near_the_reference_and_not_equal(kit: Kit) -> None:
    _, said = whole(kit, Source(path=kit.model, dtype="float16"), tolerance=2e-2)
    assert 0 < said["error"] < 2e-2 and said["times_s"]
    layers = kit.network(Source(path=kit.model, dtype="float16")).layers(TARGET)
    conv = next(layer for layer in layers if "conv2d" in layer.name and layer.flops)
    assert conv.arguments[0][0] == "float16"
    clip = next(layer for layer in layers if "maximum" in layer.name)
    assert clip.arguments[-1][0] == "float16", "what the importer makes of a Clip follows"
    assert {layer.layer for layer in layers}.isdisjoint({kit.heavy.layer})


@needs_torch
def test_an_exported_program(kit: Kit, tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.conv, self.dense = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8, 5)

        def forward(self, x: Any, z: Any) -> Any:
            y = torch.relu(self.conv(x))
            return self.dense(y.mean((2, 3))), {"sum": y + z}

    path = tmp_path / "n.pt2"
    program = torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8), torch.randn(1, 8, 8, 8)))
    torch.export.save(program, str(path))
    by, said = whole(kit, Source(path=path))
    assert by == f"PyTorch {torch.__version__}" and said["error"] < 1e-5
    assert [said["arrays"][f"out_{i}"].shape for i in range(2)] == [(1, 5), (1, 8, 8, 8)]
    with pytest.raises(ModelError, match=r"n\.pt2 has fixed shapes"):
        Source(path=path, shapes={"x": (1,)}).check()


class Hostile:
    """What writes a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@needs_torch
def test_an_exported_program_cannot_run_what_it_likes(kit: Kit, tmp_path: Path) -> None:
    import torch

    good, bad, traces = tmp_path / "good.pt2", tmp_path / "bad.pt2", tmp_path / "traces"
    model = torch.nn.Sequential(torch.nn.Linear(3, 3)).eval()
    torch.export.save(torch.export.export(model, (torch.randn(1, 3),)), str(good))
    torch.save(Hostile(traces), str(tmp_path / "hostile.pt"))
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as made:
        for info in source.infolist():
            own = info.filename.endswith("sample_inputs/model.pt")
            name = info.filename.replace("good/", "bad/", 1)
            made.writestr(name, (tmp_path / "hostile.pt").read_bytes() if own else source.read(info))
    assert refusal(kit, bad)
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, names=np.array(json.dumps(["x"])), in_0=np.zeros((1, 3), np.float32))
    said = kit.worker.ask(
        "x", {"do": "reference", "path": str(bad), "inputs": str(inputs), "keep": str(kit.path(".npz"))}
    )
    assert isinstance(said, Failure) and said.kind == "refused"
    assert not traces.exists()
    assert kit.network(Source(path=good)).inputs[0][2] == (1, 3)


def test_a_reference_needs_who_made_the_network(kit: Kit) -> None:
    said = kit.worker.ask("x", {"do": "reference", "path": "n.xmodel", "inputs": "", "keep": ""})
    assert isinstance(said, Failure) and said.kind == "refused" and "only TVM runs .xmodel" in said.message
    assert onnx.load(str(kit.model)).graph.node

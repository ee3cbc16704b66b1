"""Runtimes are given the user's own bytes; a copy only where they refuse them, and then it is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("openvino", reason="needs openvino")

from onnx import TensorProto  # noqa: E402
from tests.agent.drivers.litertkit import tflite, with_signatures  # noqa: E402
from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.core.sample import Failure  # noqa: E402
from gnomon.errors import UsageError  # noqa: E402
from gnomon.jobs.place.across import AcrossPlacer  # noqa: E402
from gnomon.measure.effort import Effort  # noqa: E402
from gnomon.models.load import files_beside, load  # noqa: E402
from gnomon.report.conditions import held_for  # noqa: E402
from gnomon.session.contender import profile_singles, trace_of  # noqa: E402
from gnomon.session.kernels import kernels  # noqa: E402
from gnomon.session.model_session import ModelSession, conditions_part, open_session  # noqa: E402
from gnomon.session.package import write_package  # noqa: E402
from gnomon.session.prove import verify  # noqa: E402
from gnomon.session.reference import reference  # noqa: E402
from gnomon.session.request import ModelRequest  # noqa: E402

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((64, 64)).astype(np.float32)


def two_products(*names: str) -> Any:
    """x * w, reshaped, * w: of float32 [batch, 64]."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"], names[0]),
        node("Reshape", ["a", "shape"], ["b"], names[1]),
        node("MatMul", ["b", "w"], ["y"], names[2]),
    ]
    constants = {"w": W, "shape": np.array([-1, 64])}
    return model(nodes, [value("x", ["batch", 64])], [value("y", ["batch", 64])], constants)


@contextmanager
def opened(path: Path, effort: Effort, *runtimes: str, **more: Any) -> Iterator[ModelSession]:
    with open_session(
        ModelRequest(model=path, runtimes=runtimes, effort=effort, **more), kind="test", question={}
    ) as session:
        assert {t.runtime.name for t in session.targets} == set(runtimes), session.missing
        yield session


def loaded(session: ModelSession) -> Mapping[str, set[bytes]]:
    """What each runtime loads in its configurations."""
    found: dict[str, set[bytes]] = {}
    for target in session.targets:
        segment = target.runtime.segment(target.placed, target.configuration, {})
        found.setdefault(target.runtime.name, set()).add(Path(segment["model"]).read_bytes())
    return found


def copied(session: ModelSession) -> list[str]:
    return [d.message for d in session.doubts if d.kind == "copy"]


def test_open_dimensions_are_fixed_by_the_runtimes_own_means(small: Effort, tmp_path: Path) -> None:
    path = save(two_products("p", "q", "r"), tmp_path / "m.onnx")
    others = ("openvino", *(["mnn"] if pytest.importorskip("MNN", reason="needs MNN") else []))
    with opened(path, small, "onnxruntime", *others, shapes={"x": (3, 64)}) as session:
        assert loaded(session) == {name: {path.read_bytes()} for name in ("onnxruntime", *others)}
        assert copied(session) == []
        assert session.read.source.read_bytes() != path.read_bytes(), "chains are cut from the analysed copy"
        assert reference(session)["by"].startswith("onnxruntime")
        placer = AcrossPlacer(session, session.targets, tmp_path)
        wholes = [placer.whole(target) for target in session.targets]
        assert wholes[0].candidate.job["segments"][0]["options"]["dims"] == {"batch": 3}
        assert len(profile_singles(session, wholes, traces=1)) == len(wholes)
        for whole in wholes:
            package = write_package(session, whole, tmp_path / whole.key, overwrite=False)
            assert (package / "m.onnx").read_bytes() == path.read_bytes()


def test_a_profile_needs_names_and_only_a_profile_runs_a_copy_with_them(small: Effort, tmp_path: Path) -> None:
    path = save(two_products("", "", ""), tmp_path / "m.onnx")
    with opened(path, small, "onnxruntime", "openvino") as session:
        assert loaded(session) == {name: {path.read_bytes()} for name in ("onnxruntime", "openvino")}
        wholes = {t.runtime.name: AcrossPlacer(session, (t,), tmp_path).whole(t) for t in session.targets}
        traced = {name: trace_of(whole).job["segments"][0]["model"] for name, whole in wholes.items()}
        assert traced["openvino"] == session.placed.path, "it names operators by what they write, too"
        proto = onnx.load(traced["onnxruntime"])
        assert [one.name for one in proto.graph.node] == [op.name for op in session.graph.operators]
        for one in proto.graph.node:
            one.ClearField("name")
        assert proto == onnx.load(path)


def test_nodes_of_one_name_are_refused_by_one_runtime_and_run_by_others(small: Effort, tmp_path: Path) -> None:
    path = save(two_products("same", "q", "same"), tmp_path / "m.onnx")
    with opened(path, small, "onnxruntime", "openvino") as session:
        found = loaded(session)
        assert found["openvino"] == {path.read_bytes()} and found["onnxruntime"] != found["openvino"]
        (told,) = copied(session)
        assert told.startswith("onnxruntime does not run the file as it is") and "same node name" in told
        (target,) = (t for t in session.targets if t.runtime.name == "onnxruntime")
        whole = AcrossPlacer(session, (target,), tmp_path).whole(target)
        package = write_package(session, whole, tmp_path / "out", overwrite=False)
        assert {(package / "m.onnx").read_bytes()} == found["onnxruntime"], "what ships is what was measured"


def test_nodes_out_of_order_are_run_as_they_are_and_told_apart(small: Effort, tmp_path: Path) -> None:
    proto = two_products("p", "q", "r")
    proto.graph.node.append(node("Softmax", ["z"], ["y"], "s"))
    proto.graph.node[2].output[0] = "z"
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    path = save(proto, tmp_path / "m.onnx")
    with opened(path, small, "onnxruntime", "openvino", shapes={"x": (3, 64)}) as session:
        assert loaded(session) == {name: {path.read_bytes()} for name in ("onnxruntime", "openvino")}
        assert [op.name for op in session.graph.operators] == ["p", "q", "r", "s"]
        reference(session)
        placer = AcrossPlacer(session, session.targets, tmp_path)
        alive = profile_singles(session, [placer.whole(target) for target in session.targets], traces=1)
        rows = {whole.label: kernels(session.graph, session.runner.known(trace_of(whole).key)) for whole in alive}
        told = [(row.name, row.named) for row in rows["onnxruntime"]]
        assert told == [("MatMul p", (0,)), ("Reshape q", (1,)), ("MatMul r", (2,)), ("Softmax s", (3,))]
        assert {index for row in rows["openvino"] for index in row.named} >= {0, 2, 3}


@pytest.mark.parametrize("laid", ["alone", "open"])
def test_onnx_runtimes_own_file_is_run_by_it_alone(laid: str, small: Effort, tmp_path: Path) -> None:
    import onnxruntime

    proto = two_products("p", "", "r")
    if laid == "alone":
        for end in (*proto.graph.input, *proto.graph.output):
            end.type.tensor_type.shape.dim[0].dim_value = 3
    path, options = tmp_path / "m.ort", onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shapes = {"x": (3, 64)} if laid == "open" else {}
    with opened(path, small, "onnxruntime", shapes=shapes) as session:
        assert loaded(session) == {"onnxruntime": {path.read_bytes()}} and copied(session) == []
        reference(session)
        assert session.sole_judge == "onnxruntime"
        (target,) = {t.configuration.name: t for t in session.targets if not t.configuration.usual}.values()
        whole = AcrossPlacer(session, (target,), tmp_path).whole(target)
        assert profile_singles(session, [whole], traces=1) == [whole]
        rows = kernels(session.graph, session.runner.known(trace_of(whole).key))
        assert {index for row in rows for index in row.named} == {op.index for op in session.graph.operators}
        package = write_package(session, whole, tmp_path / "out", overwrite=False)
        assert (package / "m.ort").read_bytes() == path.read_bytes()
        verified, places = verify(session, package, whole)
        assert verified.ok and set(places) == {op.index for op in session.graph.operators}, verified
    with pytest.raises(UsageError, match="does not load ort models"), opened(path, small, "openvino"):
        pass


def test_a_signature_is_run_where_it_is_asked_for_and_the_others_are_named(small: Effort, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="needs LiteRT")
    onert = ["onert"] if pytest.importorskip("onert", reason="needs onert") else []
    path = tmp_path / "m.tflite"
    path.write_bytes(with_signatures({"small": tflite("softmax"), "large": tflite("conv", "softmax")}))

    def doubted(session: ModelSession) -> list[tuple[str, str]]:
        return [(d.message, d.hint) for d in session.doubts if d.kind == "signature"]

    with opened(path, small, "litert", "openvino", *onert) as session:
        ((message, hint),) = doubted(session)
        assert "'small' was measured, but not 'large'" in message and "--signature large" in hint
        assert {part for parts in loaded(session).values() for part in parts} == {path.read_bytes()}
    with opened(path, small, "litert", "openvino", *onert, signature="large") as session:
        assert [op.type for op in session.graph.operators] == ["CONV_2D", "SOFTMAX"]
        ((message, hint),) = doubted(session)
        assert "'large' was measured on a copy" in message
        assert "unmodified" not in reference(session)["by"]
        assert session.runner.campaign.context.options["signature"] == "large"
        assert session.graph.digest == session.runner.campaign.context.model_digest
        assert ", signature large, " in held_for("m.tflite", "local", conditions_part(session))
        placer = AcrossPlacer(session, session.targets, tmp_path)
        wholes = [placer.whole(target) for target in session.targets]
        assert len(profile_singles(session, wholes, traces=1)) == len(wholes), session.missing
        package = write_package(session, wholes[0], tmp_path / "out", overwrite=False)
        assert list(load(package / "m.tflite").signatures) == ["large"]
    with pytest.raises(UsageError, match="no signature 'other'"), opened(path, small, "litert", signature="other"):
        pass


def test_weights_of_which_most_are_zero_are_run(small: Effort, tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 64])], [value("y", [2, 64])])
    values, places = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"), np.array([0, 70, 4095])
    indices = onnx.numpy_helper.from_array(places, "w indices")
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [64, 64]))
    with opened(save(proto, tmp_path / "m.onnx"), small, "onnxruntime") as session:
        assert copied(session) == []
        assert reference(session)["runtime"] == "onnxruntime"


def test_subnormal_weights_are_told_and_taken_for_zero_too(small: Effort, tmp_path: Path) -> None:
    proto = two_products("p", "q", "r")
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full((64, 64), 3e-40, np.float32), "w"))
    with opened(save(proto, tmp_path / "m.onnx"), small, "onnxruntime", shapes={"x": (1, 64)}) as session:
        assert "subnormal" in [doubt.kind for doubt in session.doubts]
        names = [target.configuration.name for target in session.targets]
        assert names == ["onnxruntime", "onnxruntime[session.set_denormal_as_zero=1]"]


def test_a_program_of_which_nothing_is_delegated_says_so(small: Effort) -> None:
    pytest.importorskip("executorch", reason="needs executorch")
    path = Path(__file__).parents[1] / "models" / "golden" / "small-portable.pte"
    with opened(path, small, "executorch") as session:
        (told,) = (doubt for doubt in session.doubts if doubt.kind == "undelegated")
        assert "XnnpackPartitioner" in told.hint


@pytest.mark.parametrize(("laid", "refusing"), [("shapes outside", "onnxruntime"), ("links", "openvino")])
def test_data_where_a_runtime_does_not_look_are_moved_for_it(
    laid: str, refusing: str, small: Effort, tmp_path: Path
) -> None:
    path = tmp_path / "shown" / "m.onnx"
    path.parent.mkdir()
    proto = two_products("p", "q", "r")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    size = 0 if laid == "shapes outside" else 1024
    onnx.save_model(proto, str(path), save_as_external_data=True, location="m.data", size_threshold=size)
    if laid == "links":
        held = tmp_path / "blobs"
        held.mkdir()
        for name in ("m.onnx", "m.data"):
            (path.parent / name).rename(held / f"{name}.1f3c")
            (path.parent / name).symlink_to(f"../blobs/{name}.1f3c")
    with opened(path, small, "onnxruntime", "openvino") as session:
        assert [message.split()[0] for message in copied(session)] == [refusing]
        taking = next(t for t in session.targets if t.runtime.name != refusing)
        assert taking.support.copy == "" and taking.placed.path == str(path)
        copy = next(t for t in session.targets if t.runtime.name == refusing).model
        assert all(not file.is_symlink() for file in (copy.path, *files_beside(copy.path).values()))
        reference(session)
        placer = AcrossPlacer(session, session.targets, tmp_path)
        assert len(profile_singles(session, [placer.whole(target) for target in session.targets], traces=1)) == 2


def test_a_tflite_file_with_an_open_batch_is_run_as_it_is(small: Effort, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="needs LiteRT")
    onert = ["onert"] if pytest.importorskip("onert", reason="needs onert") else []
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite("conv", "softmax", signature=(-1, 4, 4, 8)))
    with opened(path, small, "litert", "openvino", *onert, shapes={"input": (2, 4, 4, 8)}) as session:
        assert loaded(session) == {name: {path.read_bytes()} for name in ("litert", "openvino", *onert)}
        reference(session)
        placer = AcrossPlacer(session, session.targets, tmp_path)
        wholes = [placer.whole(target) for target in session.targets]
        assert len(profile_singles(session, wholes, traces=1)) == len(wholes), session.missing


def test_weights_of_eight_bits_stay_so_in_every_copy(small: Effort, tmp_path: Path) -> None:
    weights = RANDOM.integers(-128, 128, (64, 64)).astype(np.int8)
    nodes = [
        node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "scale"], ["s"]),
        node("MatMul", ["x", "s"], ["a"]),
        node("DequantizeLinear", ["w", "scale"], ["d"]),
        node("MatMul", ["a", "d"], ["y"]),
    ]
    constants = {"w": weights, "scale": np.float32(0.01)}
    path = save(model(nodes, [value("x", ["n", 64])], [value("y", ["n", 64])], constants), tmp_path / "m.onnx")
    with opened(path, small, "onnxruntime", shapes={"x": (2, 64)}) as session:
        assert session.placed.named
        for copy in (session.read.source, Path(session.placed.named)):
            held = {t.name: (t.data_type, len(t.raw_data)) for t in onnx.load(copy).graph.initializer}
            assert held["w"] == (TensorProto.INT8, weights.nbytes)
            assert copy.stat().st_size < 1.2 * path.stat().st_size


def test_operators_are_placed_one_by_one_on_the_copy_alone(small: Effort, tmp_path: Path) -> None:
    from gnomon.runtimes.base import Configuration, Support
    from gnomon.runtimes.registry import chosen_runtimes
    from gnomon.session.targets import support_of_file

    (runtime,) = chosen_runtimes(("openvino",), "onnx")
    path = save(two_products("p", "q", "r"), tmp_path / "m.onnx")
    with opened(path, small, "openvino") as session:
        copy = (session.read.model, session.placed)
        asked: list[Any] = []

        def ask(runtime: Any, placed: Any, configuration: Configuration) -> Support:
            asked.append(placed)
            return Support(operators={"cpu": frozenset({0})})

        several = Configuration(runtime="openvino", name="devices", backends=("cpu", "gpu"), options={})
        found = support_of_file(ask, lambda refused: copy, runtime, session.placed, several, python=True)
        assert "one by one" in found.copy and asked == [copy[1]]
        found = support_of_file(ask, lambda refused: None, runtime, session.placed, several, python=True)
        assert found.copy == ""

        def hangs(runtime: Any, placed: Any, configuration: Configuration) -> Support:
            assert placed is session.placed, "a copy would take as long again"
            return Support(
                operators={}, failures={"cpu": Failure(stage="load", kind="hang", message="", transient=False)}
            )

        single = replace(several, backends=("cpu",))
        assert support_of_file(hangs, lambda refused: copy, runtime, session.placed, single, python=True).failures


def test_pnnx_finds_weights_beside_the_file(small: Effort, tmp_path: Path) -> None:
    pytest.importorskip("ncnn", reason="needs ncnn")
    path = tmp_path / "net.onnx"
    conv = RANDOM.standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [node("Conv", ["x", "c"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["y"])]
    inputs, outputs = [value("x", [1, 3, 16, 16])], [value("y", [1, 8, 16, 16])]
    proto = model(nodes, inputs, outputs, {"c": conv})
    onnx.save_model(proto, str(path), save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    with opened(path, small, "ncnn") as session:
        assert reference(session)["by"].startswith("onnxruntime"), "what did not convert it judges it"
        assert profile_singles(
            session, [AcrossPlacer(session, session.targets, tmp_path).whole(session.targets[0])], traces=1
        )

"""`profile` and `place` with the real runtimes on real models: what they find, prove and write. No times are judged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.bad_days.livekit import add_circle, matmul_onnx
from tests.models.modelkit import model, node, save, value
from tests.runtimes.openvinokit import net

from gnomon.errors import PackageError, UsageError
from gnomon.jobs.place.across import AcrossPlacer
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.models.load import load
from gnomon.models.nnpackage import write_nnpackage
from gnomon.runtimes.base import RunSettings
from gnomon.session.contender import choose_clock, profile_singles
from gnomon.session.model_session import open_session
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest

GOLDEN = Path(__file__).parents[2] / "models" / "golden"
Zoo = Callable[[str], Path]


def run_package(folder: Path, *more: str) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Run a package as its README says, in a fresh process that knows nothing of gnomon."""
    done = subprocess.run(
        [sys.executable, "-I", "gnomon-agent.pyz", "run", "plan.json", "--output", "out.npz", "--seconds", "0", *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["outputs"]
    with np.load(folder / "out.npz", allow_pickle=False) as saved:
        return {name: saved[name] for name in saved.files}


WHOLE = ("onnxruntime", "openvino")


def check_structure(found: PlaceDocument) -> None:
    contenders = {contender.label: contender for contender in found.contenders}
    chosen = contenders[found.decision.chosen]
    assert found.verified.ok, found.verified
    assert contenders[found.decision.best_single].kind == "single"
    assert [row.index for row in found.operators] == list(range(found.model.operators))
    assert all(row.ran_on == row.planned for row in found.operators)
    for contender in found.contenders:
        if contender.failure is None:
            own_s = sum(kernel.time_s for kernel in contender.kernels)
            divided_s = sum(time_s or 0.0 for time_s in contender.operators_s) + own_s + (contender.unattributed_s or 0)
            assert divided_s == pytest.approx(contender.level_s)
            assert contender.difference and contender.difference.relative == pytest.approx(0, abs=5e-2)
    if chosen.kind != "single":
        assert chosen.against_best is not None
        assert chosen.against_best.verdict == "faster"
    for solution in found.solutions.values():
        assert solution.optimal
        assert solution.bound_s == pytest.approx(solution.value_s)
        assert solution.value_s > 0
    assert found.package is not None
    plan = json.loads(Path(found.package, "plan.json").read_text())
    assert [op["backend"] for op in plan["operators"]] == [row.planned for row in found.operators]
    assert plan["model"]["sha256"] == found.model.sha256


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_profile_of_a_circle_model(zoo_model: Zoo, small: Effort) -> None:
    found = profile(ModelRequest(model=zoo_model("mix.circle"), effort=small))
    assert [c.label for c in found.columns] == ["onert:cpu", "onert:ruy (+cpu for 2 of 29)"]
    for column in found.columns:
        assert sorted(i for k in column.kernels for i in k.operators) == list(range(29))  # the trace has them all
        assert all(row.times_s[column.label] is not None for row in found.operators)
        assert column.wall.median_s > 0
        assert column.peak_rss_bytes is not None
        assert column.peak_rss_bytes > 1 << 20
        assert column.difference and column.difference.relative == pytest.approx(0, abs=1e-3)
    assert {k.backend for k in found.columns[0].kernels} == {"cpu"}
    assert {k.backend for k in found.columns[1].kernels} == {"cpu", "ruy"}


def test_place_of_a_circle_model(zoo_model: Zoo, small: Effort, tmp_path: Path) -> None:
    path = zoo_model("mix.circle")
    found = place(ModelRequest(model=path, effort=small), tmp_path / "out")
    check_structure(found)
    solution = found.solutions["onert"]
    singles = [contender.predicted_s for contender in found.contenders if contender.kind == "single"]
    assert singles
    assert all(s is None or solution.value_s <= s * (1 + 1e-9) for s in singles)  # exact: no single is predicted better
    (output,) = run_package(tmp_path / "out").values()
    assert output.shape == (1, 10)
    x = np.zeros((1, 64, 64, 3), np.float32)
    np.save(tmp_path / "x.npy", x)
    (zero,) = run_package(tmp_path / "out", "--input", f"input={tmp_path / 'x.npy'}").values()
    assert not zero.any()  # the model has no biases


def test_a_per_operator_map_is_proved_by_the_trace(small: Effort, tmp_path: Path) -> None:
    from gnomon.jobs.place.inside import InsidePlacer
    from gnomon.session.package import write_package
    from gnomon.session.prove import verify

    path = saved(tmp_path / "a.circle", add_circle())
    with open_session(ModelRequest(model=path, effort=small), kind="test", question={}) as session:
        reference(session)
        placer = InsidePlacer(session, session.targets[0])
        for assignment in ((0, 0, 1), (1, 0, 0)):
            contender = placer.contender("plan", "by hand", assignment, None)
            verified, places = verify(
                session, write_package(session, contender, tmp_path / "p", overwrite=True), contender
            )
            assert verified.ok
            assert [places[i] for i in range(3)] == [placer.backends[b] for b in assignment]


def test_an_nnpackages_own_config_is_a_row_and_what_steers_in_it_is_not_written(small: Effort, tmp_path: Path) -> None:
    (tmp_path / "a.circle").write_bytes(add_circle())
    settings = {"EXECUTOR": "Parallel", "USE_MINE": "1"}
    package = write_nnpackage(load(tmp_path / "a.circle"), tmp_path / "own", settings)
    config_file = package / "metadata" / "config.cfg"
    config_file.write_text("# mine\n" + config_file.read_text())
    before = {file: file.read_bytes() for file in package.glob("metadata/*")}
    request = ModelRequest(model=package, effort=small, runtimes=("onert",), settings=RunSettings(usual=True))
    found = place(request, tmp_path / "out")
    assert found.verified.ok, found.verified
    rows = {contender.label: contender for contender in found.contenders}
    assert rows["onert[default]"].failure is None and rows["onert[default]"].usual
    assert rows["onert[default]"].settings["onert[default]"]["usual"] is True
    assert {file: file.read_bytes() for file in package.glob("metadata/*")} == before  # the source is untouched
    config = (tmp_path / "out" / "nnpackage" / "metadata" / "config.cfg").read_text()
    assert config.startswith("# mine\n")
    assert "USE_MINE=1" in config.splitlines()
    if found.chosen.usual:
        assert "EXECUTOR=Parallel" in config
        return
    assert "BACKENDS" in config and "EXECUTOR" not in config
    [doubt] = [d for d in found.doubts if d.kind == "package-config"]
    assert doubt.message == (
        "the nnpackage's own config sets EXECUTOR=Parallel; the choice was measured without these settings, and the "
        "written package does not have them; onert[default] ran with them"
    )


def test_the_one_backend_of_a_runtime_is_packaged_as_it_was_measured(small: Effort, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.circle", add_circle())
    settings = RunSettings(backends=("cpu",))
    found = place(ModelRequest(model=path, effort=small, runtimes=("onert",), settings=settings), tmp_path / "out")
    check_structure(found)
    assert "OP_BACKEND_MAP" not in (tmp_path / "out/nnpackage/metadata/config.cfg").read_text()
    assert {row.ran_on for row in found.operators} == {"onert"}
    assert set(run_package(tmp_path / "out"))


def test_openvinos_own_file_is_placed_with_its_weights(small: Effort, tmp_path: Path) -> None:
    """One of the older version, which names neither its inputs nor its outputs; a convolution and ReLU."""
    path = GOLDEN / "small.xml"
    found = place(ModelRequest(model=path, effort=small), tmp_path / "out")
    check_structure(found)
    assert [row.ran_on for row in found.operators] == ["openvino", "openvino"]
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    weights = np.fromfile(path.with_suffix(".bin"), np.float16).reshape(3, 2, 3, 3).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    expected = np.maximum(np.einsum("chwij,ocij->ohw", windows, weights), 0)[None]
    outputs = run_package(tmp_path / "out", "--input", f"image={tmp_path / 'x.npy'}")
    np.testing.assert_allclose(outputs["conv"], expected, rtol=1e-3, atol=1e-3)


def test_a_model_of_bfloat16_is_placed_and_its_package_run(small: Effort, tmp_path: Path) -> None:
    half = TensorProto.BFLOAT16
    nodes = [
        node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        node("Add", ["wide", "wide"], ["twice"]),
        node("Cast", ["twice"], ["y"], to=half),
    ]
    save(model(nodes, [value("x", [1, 4], half)], [value("y", [1, 4], half)]), tmp_path / "half.onnx")
    found = place(ModelRequest(model=tmp_path / "half.onnx", effort=small, runtimes=("onnxruntime",)), tmp_path / "out")
    check_structure(found)
    given = np.asarray([[0.5, -1.25, 3.0, 0.1]], np.float32)
    np.save(tmp_path / "x.npy", given)
    (made,) = run_package(tmp_path / "out", "--input", f"x={tmp_path / 'x.npy'}").values()
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, 2 * given, rtol=1 / 256)


@pytest.mark.usefixtures("on_software_gpu")
def test_vulkan_that_nobody_asked_for_is_in_no_package(small: Effort, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.onnx", matmul_onnx())
    found = place(ModelRequest(model=path, effort=small, runtimes=("ncnn",)), tmp_path / "out")
    check_structure(found)
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert [segment["options"]["vulkan"] for segment in plan["job"]["segments"]] == [[]]


@pytest.mark.slow
@pytest.mark.usefixtures("few_blocks")
def test_place_of_an_onnx_model(small: Effort, tmp_path: Path) -> None:
    path = Path(__file__).parents[3] / "docs" / "examples" / "digits.onnx"
    found = place(ModelRequest(model=path, effort=small, runtimes=WHOLE), tmp_path / "out")
    check_structure(found)
    assert {contender.label for contender in found.contenders if contender.kind == "single"} == set(WHOLE)
    assert set(run_package(tmp_path / "out"))


def lstm_onnx(path: Path) -> Path:
    """A product, an LSTM and a product: OpenVINO's kernel of the LSTM has a name of its own making."""
    shapes = {"first": (16, 16), "w": (1, 128, 16), "r": (1, 128, 32), "b": (1, 256), "last": (32, 4)}
    rng = np.random.default_rng(0)
    weights = {name: (rng.standard_normal(shape) * 0.05).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        node("MatMul", ["x", "first"], ["a"], "fc0"),
        node("LSTM", ["a", "w", "r", "b"], ["y"], "/lstm/LSTM", hidden_size=32),
        node("Squeeze", ["y", "axes"], ["s"], "squeeze"),
        node("MatMul", ["s", "last"], ["out"], "fc1"),
    ]
    held = {**weights, "axes": np.array([1])}
    return save(model(nodes, [value("x", [20, 1, 16])], [value("out", [20, 1, 4])], held), path)


def test_an_lstm_has_the_time_of_its_kernel(small: Effort, tmp_path: Path) -> None:
    found = profile(ModelRequest(model=lstm_onnx(tmp_path / "lstm.onnx"), effort=small, runtimes=WHOLE))
    lstm = next(op for op in found.operators if op.type == "LSTM")
    for column in found.columns:
        (kernel,) = [k for k in column.kernels if "LSTM" in k.name]
        assert lstm.index in kernel.operators
        assert 0 < (lstm.times_s[column.label] or 0.0) <= kernel.time_s


@pytest.mark.slow
def test_a_chain_over_two_runtimes_computes_what_the_whole_does(small: Effort, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", matmul_onnx(width=64, depth=6))
    with open_session(ModelRequest(model=path, effort=small, runtimes=WHOLE), kind="test", question={}) as session:
        reference(session)
        placer = AcrossPlacer(session, session.targets, tmp_path, most_blocks=3)
        alive = profile_singles(session, [placer.whole(target) for target in session.targets])
        found = placer.run(alive, choose_clock(session, (session.runner.known(c.key) for c in alive)), always=True)
        assert found.solution is not None, found.why
        count = len(placer.files.places) - 1
        chain = placer.chain("plan", "by hand", tuple((k, k + 1, k % 2) for k in range(count)), None)
        measured = session.runner.measure("test", [chain.candidate], small)[chain.key]
        assert measured.ok, measured.failure
        assert measured.fact("difference")["relative"] < 1e-3  # checked against the whole in one runtime
        planned = sorted(i for part in chain.parts for i in part.operators)
        assert len(planned) == len(set(planned))


def test_a_package_in_the_way(small: Effort, tmp_path: Path, own_home: Path) -> None:
    path = saved(tmp_path / "m.onnx", matmul_onnx(depth=1))
    request = ModelRequest(model=path, effort=small, runtimes=("onnxruntime",))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("kept")
    for overwrite in (False, True):
        with pytest.raises(PackageError) as refused:
            place(request, tmp_path / "mine", overwrite=overwrite)
        assert refused.value.hint
    assert not own_home.exists(), "refused before anything is measured"
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "kept"
    place(request, tmp_path / "out")
    with pytest.raises(PackageError):
        place(request, tmp_path / "out")
    assert place(request, tmp_path / "out", overwrite=True).verified.ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "m.onnx", "mine", "out"]


def test_a_package_that_was_changed_is_refused(small: Effort, tmp_path: Path) -> None:
    from gnomon.session.package import write_package
    from gnomon.session.prove import verify

    path = saved(tmp_path / "m.onnx", matmul_onnx(depth=1))
    with open_session(ModelRequest(model=path, effort=small, runtimes=("openvino",)), kind="t", question={}) as session:
        reference(session)
        contender = AcrossPlacer(session, session.targets, tmp_path).whole(session.targets[0])
        folder = write_package(session, contender, tmp_path / "p", overwrite=False)
        other = matmul_onnx(depth=3)
        (folder / "m.onnx").write_bytes(other)
        verified, _ = verify(session, folder, contender)
    assert not verified.ok
    assert verified.failure is not None
    assert verified.failure.kind == "wrong-output"


def test_inputs_that_do_not_fit(small: Effort, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", matmul_onnx(depth=1))
    request = ModelRequest(model=path, effort=small, runtimes=WHOLE)
    for wrong in (
        replace(request, feeds={"z": tmp_path / "x.npy"}),
        replace(request, feeds={"x": tmp_path / "absent.npy"}),
        replace(request, shapes={"z": (1, 8)}),
        replace(request, runtimes=("onert",)),
    ):
        with pytest.raises(UsageError) as refused:
            profile(wrong)
        assert refused.value.hint
    np.save(tmp_path / "x.npy", np.ones((1, 8), np.float32))
    found = profile(replace(request, feeds={"x": tmp_path / "x.npy"}, runtimes=WHOLE[:1]))
    assert len(found.columns) == 1


def test_what_openvino_chooses_of_its_devices_itself_is_measured_too(small: Effort, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    request = ModelRequest(
        model=net(tmp_path / "net.onnx"),
        effort=small,
        runtimes=("openvino",),
        settings=RunSettings(backends=("cpu", "cpu-f32"), by_itself="too"),
    )
    found = place(request, tmp_path / "out")
    assert found.verified.ok, found.verified
    ran = {contender.label: contender for contender in found.contenders if contender.failure is None}
    chosen = {"openvino[auto]", "openvino[hetero]"}
    assert chosen < ran.keys()
    assert found.decision.chosen in ran
    for label in chosen - {found.decision.best_single}:
        assert (versus := ran[label].against_best) is not None and versus.verdict != "faster"

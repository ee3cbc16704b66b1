"""Who computes the reference outputs, who confirms them, who decides between two, and what is then said."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("openvino", reason="needs openvino")
pytest.importorskip("MNN", reason="needs MNN")

from onnx import TensorProto, helper
from tests.models.modelkit import model, node, save, value

from gnomon.cli import main
from gnomon.core.sample import Failure
from gnomon.errors import PROVES_NOTHING, UNDECIDED, MeasurementError
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import place
from gnomon.jobs.place.report import place_report
from gnomon.measure.campaign import CampaignRunner
from gnomon.measure.effort import Effort
from gnomon.report.page import Page
from gnomon.runtimes import registry
from gnomon.runtimes.base import RunSettings
from gnomon.session import judges
from gnomon.session.judges import JudgedReference
from gnomon.session.model_session import ModelSession, open_session
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest

pytestmark = pytest.mark.usefixtures("confirmed")

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
Judged = Callable[..., Any]


def saved(path: Path, nodes: list[Any], held: dict[str, Any], *, dtype: int = FLOAT, ml: bool = False) -> Path:
    """A model from x to y, both of shape (8, 16), in a file."""
    domains = [helper.make_opsetid("", 17), *([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])]
    ends = ([value("x", (8, 16), dtype)], [value("y", (8, 16), dtype)])
    return save(model(nodes, *ends, held, opset_imports=domains), path)


def agreed(path: Path) -> Path:
    return saved(path, [node("Mul", ["x", "k"], ["m"], "m"), node("Tanh", ["m"], ["y"], "t")], {"k": np.float32(2)})


def disputed(path: Path) -> Path:
    """MNN ignores the sign rule of fmod."""
    return saved(path, [node("Mod", ["x", "k"], ["y"], "m", fmod=1)], {"k": np.float32(0.3)})


def sole(path: Path) -> Path:
    """An operator of another domain, which only ONNX Runtime has."""
    scaled = node("Scaler", ["x"], ["y"], "s", domain="ai.onnx.ml", offset=[0.5] * 16, scale=[2.0] * 16)
    return saved(path, [scaled], {}, ml=True)


@pytest.fixture
def judged(small: Effort, tmp_path: Path) -> Judged:
    """The reference of a model for runtimes that are named, with the lab that it was computed in."""

    @contextmanager
    def run(path: Path, *runtimes: str) -> Iterator[tuple[JudgedReference, ModelSession]]:
        request = ModelRequest(model=path, runtimes=runtimes, effort=small)
        with open_session(request, kind="profile", question={}) as session:
            yield reference(session), session

    return run


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes some runtimes all that judges know of."""

    def keep(*names: str) -> None:
        good, broken = registry.all_runtimes()
        few = tuple(runtime for runtime in good if runtime.name in names)
        monkeypatch.setattr(judges, "all_runtimes", lambda: (few, broken))

    return keep


def kinds(session: ModelSession) -> set[str]:
    return {doubt.kind for doubt in session.doubts}


def test_another_runtime_confirms_the_reference_also_where_only_one_is_asked_for(
    judged: Judged, tmp_path: Path
) -> None:
    path = agreed(tmp_path / "m.onnx")
    with judged(path, "onnxruntime", "openvino") as (found, session):
        assert (found["runtime"], found["checked_by"].split()[0]) == ("onnxruntime", "openvino")
        assert found["agreement"] < 1e-5
        assert not kinds(session) & {"judges-disagree", "judges-undecided"}
    with judged(path, "onnxruntime") as (found, session):
        assert found["checked_by"]
        assert session.sole_judge == ""


def test_the_evaluator_decides_between_two_that_disagree(judged: Judged, only: Any, tmp_path: Path) -> None:
    path = disputed(tmp_path / "m.onnx")
    with judged(path, "onnxruntime", "mnn") as (found, session):
        assert found["runtime"] == "onnxruntime"
        assert found["checked_by"] == "ONNX's reference evaluator"
        (told,) = (d.message for d in session.doubts if d.kind == "judges-disagree")
        assert "onnxruntime" in told.split(" and ")[0]
        assert "mnn" in told.split(" and ")[1]
    only("mnn", "openvino")
    with judged(path, "mnn", "openvino") as (found, session):
        assert (found["runtime"], found["checked_by"]) == ("openvino", "ONNX's reference evaluator")
        assert "judge-outvoted" in kinds(session)


def test_without_a_third_it_is_undecided(
    judged: Judged, only: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only("mnn", "onnxruntime")
    monkeypatch.setattr(judges, "_EVALUATED_BYTES", 0)
    with judged(disputed(tmp_path / "m.onnx"), "onnxruntime", "mnn") as (found, session):
        assert (found["runtime"], found.get("checked_by")) == ("onnxruntime", None)
        assert "judges-undecided" in kinds(session)


@pytest.fixture
def placed(small: Effort, tmp_path: Path) -> Callable[..., tuple[PlaceDocument, str]]:
    """Places a model with little effort: the answer, and its page."""

    def run(path: Path, *runtimes: str, **more: Any) -> tuple[PlaceDocument, str]:
        request = ModelRequest(model=path, runtimes=runtimes, effort=small, **more)
        found = place(request, tmp_path / "out", overwrite=True)
        out = io.StringIO()
        place_report(found, Page(out, brief=True, width=400))
        return found, out.getvalue()

    return run


def test_what_one_runtime_alone_computed_is_not_called_proved(placed: Any, tmp_path: Path) -> None:
    found, page = placed(sole(tmp_path / "m.onnx"), "onnxruntime")
    assert found.exit_code == 0
    assert "only onnxruntime computed the reference; nobody checked it" in page
    assert "Proved" not in page
    assert "nobody checked them" in (tmp_path / "out" / "README.txt").read_text(encoding="utf-8")
    found, page = placed(agreed(tmp_path / "n.onnx"), "onnxruntime")
    assert "Proved" in page
    assert found.reference_checked_by


def test_the_command_exits_with_it_and_writes_the_package(
    short_visits: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [node("Abs", ["x"], ["a"]), node("Neg", ["a"], ["n"]), node("Log", ["n"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {})
    options = ["--runtime", "onnxruntime", "-n", "1", "--processes", "1", "--quiet", "--no-picture"]
    code = main.run(["place", str(path), *options, "--out", str(tmp_path / "out")])
    assert code == PROVES_NOTHING
    out = capsys.readouterr().out
    assert "its outputs prove nothing" in out and "Warning" in out
    assert (tmp_path / "out" / "plan.json").is_file()


def test_inputs_that_a_runtime_refuses_leave_another_unproved(placed: Any, only: Any, tmp_path: Path) -> None:
    """ONNX Runtime refuses an index that is out of range; others take what they find."""
    inputs = [value("x", (8, 16)), value("i", (4,), TensorProto.INT64)]
    save(model([node("Gather", ["x", "i"], ["y"], "g")], inputs, [value("y", (4, 16))]), tmp_path / "m.onnx")
    np.save(tmp_path / "i.npy", np.array([0, 1, 2, 5000]))
    only("onnxruntime", "openvino")
    found, page = placed(tmp_path / "m.onnx", "onnxruntime", "openvino", feeds={"i": tmp_path / "i.npy"})
    assert "onnxruntime" in next(d.message for d in found.doubts if d.kind == "reference-refused")
    assert "only openvino computed the reference; nobody checked it" in page


def test_a_file_that_a_runtime_refuses_is_no_matter_of_inputs(placed: Any, only: Any, tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["r"], "one"), node("Tanh", ["r"], ["y"], "one")]
    only("onnxruntime", "openvino")
    found, _ = placed(saved(tmp_path / "m.onnx", nodes, {}), "onnxruntime", "openvino")
    kinds = [doubt.kind for doubt in found.doubts]
    assert "copy" in kinds and "reference-refused" not in kinds


def double(path: Path) -> Path:
    rng = np.random.default_rng(0)
    nodes = [node("MatMul", ["x", "w"], ["m"], "m"), node("Tanh", ["m"], ["y"], "t")]
    return saved(path, nodes, {"w": rng.standard_normal((16, 16)) / 4}, dtype=DOUBLE)


def test_float64_is_not_given_to_runtimes_that_compute_float32(placed: Any, tmp_path: Path) -> None:
    path = double(tmp_path / "m.onnx")
    found, page = placed(path, "onnxruntime", "mnn", "openvino")
    assert [contender.label for contender in found.contenders] == ["onnxruntime"]
    told = [d for d in found.doubts if d.kind in ("precision", "precision-no-gain")]
    assert {"mnn", "openvino"} >= {d.message.partition("[")[0] for d in told} >= {"mnn"}
    assert "--precision float32" in told[0].hint
    found, page = placed(path, "onnxruntime", "mnn", settings=RunSettings(precisions=("float32",)))
    assert {"mnn[float32]", "onnxruntime"} <= {contender.label for contender in found.contenders}
    found, page = placed(path, "mnn")
    assert "the model computes in float64, but was measured only in lower precisions: mnn[float32]" in page


def rounding(path: Path, layers: int, scale: float) -> Path:
    """Dynamically quantised layers behind a step that multiplies what an optimiser rounds otherwise."""
    rng = np.random.default_rng(3)
    kinds = [("Div", "x", "root"), ("Erf", "", ""), ("Add", "", "one"), ("Mul", "", "x"), ("Mul", "", "half")]
    nodes, last = [], "x"
    for k, (kind, _, other) in enumerate([*kinds, ("Mul", "", "gain"), ("Sin", "", "")]):
        nodes.append(node(kind, [last, *([other] if other else [])], [f"e{k}"], f"e{k}"))
        last = f"e{k}"
    held: dict[str, Any] = {"root": 2**0.5, "one": 1, "half": 0.5, "gain": 1e4, "scale": scale}
    held = {name: np.float32(value) for name, value in held.items()} | {"zero": np.int8(0)}
    for k in range(layers):
        # Of 7 bits: processors without VNNI saturate sums of larger ones, and compute something else.
        held[f"w{k}"] = rng.integers(-63, 64, (16, 16)).astype(np.int8)
        nodes += [
            node("DynamicQuantizeLinear", [last], [f"q{k}", f"s{k}", f"z{k}"], f"q{k}"),
            node("MatMulInteger", [f"q{k}", f"w{k}", f"z{k}", "zero"], [f"i{k}"], f"i{k}"),
            node("Cast", [f"i{k}"], [f"c{k}"], f"c{k}", to=FLOAT),
            node("Mul", [f"s{k}", "scale"], [f"t{k}"], f"t{k}"),
            node("Mul", [f"c{k}", f"t{k}"], [f"o{k}"], f"o{k}"),
            node("Sin", [f"o{k}"], ["y" if k == layers - 1 else f"y{k}"], f"y{k}"),
        ]
        last = f"y{k}"
    return saved(path, nodes, held)


def test_a_runtime_that_differs_from_itself_is_not_refused_for_that(
    judged: Judged, placed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rounding(tmp_path / "m.onnx", 2, 0.04)
    with judged(path, "onnxruntime") as (_, session):
        (told,) = (d for d in session.doubts if d.kind in {"near-itself", "unlike-itself"})
        assert "with and without optimisations" in told.message
        assert session.tolerance(session.targets[0].configuration) > 0.05
    found, page = placed(path, "onnxruntime")
    assert found.decision.chosen == "onnxruntime"
    assert "with and without optimisations" in " ".join(page.splitlines()[1:5])


def test_outputs_that_are_nearly_right_are_timed_and_never_chosen(
    placed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ModelSession, "tolerance", lambda session, configuration: 1e-9 if configuration.runtime == "mnn" else 1e-3
    )
    rng = np.random.default_rng(0)
    nodes = [node("MatMul", ["x", "w"], ["m"], "m"), node("Tanh", ["m"], ["y"], "t")]
    path = saved(tmp_path / "m.onnx", nodes, {"w": rng.standard_normal((16, 16)).astype(np.float32)})
    monkeypatch.setattr("gnomon.session.precision._NEARLY", 1e6)
    found, page = placed(path, "onnxruntime", "mnn")
    assert found.decision.chosen == "onnxruntime"
    assert "mnn is refused: outputs differ by" in " ".join(page.splitlines()[1:5])
    assert "mnn was refused" in page


def test_the_highest_code_counts() -> None:
    from gnomon.errors import exit_code_of

    assert exit_code_of(["busy"]) == 0
    assert exit_code_of(["busy", "judges-undecided"]) == UNDECIDED
    assert exit_code_of(["judges-undecided", "unrepeatable"]) == PROVES_NOTHING


@pytest.mark.parametrize("answers", [True, False], ids=["other-outputs", "no-answer"])
def test_dimensions_stay_open_where_fixing_them_in_advance_changes_the_outputs_or_takes_too_long(
    answers: bool, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed is made up here: a published voice model does so, and none that is small."""
    x, y = (value(name, ["n", 16]) for name in "xy")
    save(model([node("Tanh", ["x"], ["y"], "t")], [x], [y]), tmp_path / "m.onnx")

    def computed(link: Any, session: ModelSession, judge: Any, **files: str) -> dict[str, Any] | None:
        fixed = bool(judge.job["segments"][0]["options"].get("dims"))
        return {"difference": {"relative": float(fixed), "absolute": float(fixed)}} if answers else None

    monkeypatch.setattr(judges, "_computed", computed)
    request = ModelRequest(model=tmp_path / "m.onnx", runtimes=("onnxruntime",), effort=small, dims={"n": 64})
    with open_session(request, kind="profile", question={}) as session:
        assert session.placed.dims == {"n": 64}
        found = reference(session)
        assert "left-open" in kinds(session)
        assert [t.configuration.options["dims"] for t in session.targets] == [{}]
        assert (session.slack, found["runtime"]) == (0.0, "onnxruntime")


def test_where_none_answers_in_time_the_error_names_the_inputs_and_the_time_to_give(
    small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = value("x", [1, 16]), value("y", [1, 16])
    save(model([node("Tanh", ["x"], ["y"], "t")], [x], [y]), tmp_path / "m.onnx")

    def hangs(runner: Any, job: Any, *, timeout_s: float) -> tuple[None, Failure]:
        return None, Failure(stage="load", kind="hang", message="no answer to 'open'", transient=False)

    monkeypatch.setattr(CampaignRunner, "reference", hangs)
    request = ModelRequest(model=tmp_path / "m.onnx", runtimes=("onnxruntime", "openvino"), effort=small)
    with open_session(request, kind="profile", question={}) as session, pytest.raises(MeasurementError) as told:
        reference(session)
    assert f"--timeout {5 * small.timeout_s:.0f}" in told.value.hint


def test_inputs_that_were_not_given_and_ask_for_much_work_are_asked_for(
    small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node("Range", ["zero", "n", "one"], ["y"], "r")]
    constants = {"zero": np.int64(0), "one": np.int64(1)}
    n, y = value("n", [], TensorProto.INT64), value("y", ["m"], TensorProto.INT64)
    save(model(nodes, [n], [y], constants), tmp_path / "m.onnx")
    np.save(tmp_path / "n.npy", np.int64(5))
    limits_s = []

    def hangs(runner: Any, job: Any, *, timeout_s: float) -> tuple[None, Failure]:
        limits_s.append(timeout_s)
        return None, Failure(stage="load", kind="hang", message="no answer to 'open'", transient=False)

    monkeypatch.setattr(CampaignRunner, "reference", hangs)
    request = ModelRequest(model=tmp_path / "m.onnx", runtimes=("onnxruntime",), effort=small)
    with (
        open_session(request, kind="profile", question={}) as session,
        pytest.raises(MeasurementError, match="made-up") as slow,
    ):
        reference(session)
    assert "--input n=n.npy" in slow.value.hint and "--timeout" in slow.value.hint
    assert len(limits_s) == 1 and limits_s[0] < small.timeout_s
    given = replace(request, feeds={"n": tmp_path / "n.npy"})
    with (
        open_session(given, kind="profile", question={}) as session,
        pytest.raises(MeasurementError, match="no runtime"),
    ):
        reference(session)
    assert limits_s[1] == small.timeout_s

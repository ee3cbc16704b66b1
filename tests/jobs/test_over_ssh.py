"""Jobs on a device behind SSH that has nothing but a Python: all is brought, proven there, and left clean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.bad_days.boardkit import Board, python_with, running_board
from tests.bad_days.livekit import add_circle, circle_with, matmul_onnx, recorded
from tests.jobs.place.test_place_real import check_structure
from zoo.flat import ACTIVATION, convolution

from gnomon.devices.local import LocalDevice
from gnomon.devices.pushed import Part, contents
from gnomon.errors import RuntimeMissingError
from gnomon.jobs.place.across import AcrossPlacer
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import place, profile
from gnomon.jobs.where.job import where
from gnomon.measure.campaign import CampaignRunner, Measured
from gnomon.measure.effort import Effort
from gnomon.models.load import convert
from gnomon.models.ncnn.convert import find_pnnx
from gnomon.runtimes.base import RunSettings
from gnomon.runtimes.registry import all_runtimes
from gnomon.session import model as modelling
from gnomon.session.model_session import ModelSession, open_session
from gnomon.session.reference import doubts, reference
from gnomon.session.request import ModelRequest

pytestmark = pytest.mark.devices

RUNTIMES = {runtime.name: runtime for runtime in all_runtimes()[0]}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board with a bare Python."""
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield running


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory, board: Board) -> Board:
    """The same board with another Python, which has a runtime for ONNX models."""
    folder = tmp_path_factory.mktemp("equipped") / "python"
    return replace(board, python=python_with(folder, ("numpy", "onnxruntime")))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes went to devices, call by call."""
    counts: list[int] = []

    def counted(part: Part) -> Iterator[bytes]:
        for chunk in contents(part):
            counts.append(len(chunk))
            yield chunk

    monkeypatch.setattr("gnomon.devices.shell.ssh.contents", counted)
    return counts


def saved(folder: Path, data: bytes, name: str = "m.onnx") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def kept(board: Board) -> dict[str, int]:
    """What is in the board's cache of pushed things: by digest, which folder it is; what is sent again is a new one."""
    return {p.name: p.stat().st_ino for p in board.cache.iterdir() if p.is_dir()}


def placed_there(found: PlaceDocument, record: Path) -> None:
    """What the package's run on the device recorded is of this campaign."""
    assert any(key.startswith("package/") for campaign, key, *_ in recorded(record) if campaign == found.campaign)


def test_weights_in_a_file_of_their_own_go_with_the_model(board: Board, small: Effort, tmp_path: Path) -> None:
    folder = tmp_path / "apart"
    folder.mkdir()
    model = onnx.load_from_string(matmul_onnx(64))
    onnx.save_model(model, str(folder / "m.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "private.txt").write_text("nobody else's affair")
    request = ModelRequest(
        model=folder / "m.onnx",
        device=board.config(),
        runtimes=("onnxruntime",),
        effort=small,
        record=tmp_path / "record.sqlite",
    )
    assert profile(request).columns
    assert not list(board.cache.rglob("private.txt"))


def test_where_asks_the_device(equipped: Board, tmp_path: Path) -> None:
    model = saved(tmp_path, matmul_onnx())
    found = where(ModelRequest(model=model, device=equipped.config(), runtimes=("onnxruntime",)))
    assert found.device == "board"
    assert [(part.asked, part.share) for part in found.loaded] == [(("onnxruntime",), 1.0)]
    assert equipped.clean()


@pytest.mark.slow
def test_place_with_everything_to_be_brought(board: Board, small: Effort, tmp_path: Path, sent: list[int]) -> None:
    record, told = tmp_path / "record.sqlite", list[str]()
    model = saved(tmp_path, add_circle(), "a.circle")
    request = ModelRequest(model=model, device=board.config(), effort=small, record=record)
    found = place(request, tmp_path / "out", tell=told.append)
    check_structure(found)
    assert found.device == "board"
    assert len([s for s in told if s.startswith("installs numpy") and "onert" in s]) == 1
    assert len(found.operators) == 3  # by the trace of the package, which was run there
    assert {row.ran_on for row in found.operators} <= {"cpu", "ruy"}
    placed_there(found, record)
    assert board.clean()
    first, brought = kept(board), sum(sent)
    assert brought > 10_000_000
    assert not list(board.cache.glob(".part-*"))

    sent.clear()
    told.clear()
    again = place(request, tmp_path / "out", overwrite=True, tell=told.append)
    check_structure(again)
    assert not told
    assert sum(sent) < 1_000_000  # requests, and a package that may be of another plan
    assert first.items() <= kept(board).items()
    assert again.campaign != found.campaign
    assert board.clean()


@pytest.mark.slow
def test_decisions_from_the_record(
    equipped: Board, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.sqlite"
    model = saved(tmp_path, matmul_onnx(depth=1))
    request = ModelRequest(
        model=model, device=equipped.config(), effort=small, record=record, runtimes=("onnxruntime",)
    )
    live = place(request, tmp_path / "live")
    check_structure(live)
    gone = equipped.config(ssh_options=("ProxyCommand=false",))
    unmeasured = replace(request, measure=False, device=gone)  # there is no way to it
    before = recorded(record)
    found = place(unmeasured, tmp_path / "same")
    assert (found.campaign, found.device) == (live.campaign, "board")
    assert (found.fingerprint, found.versions) == (live.fingerprint, live.versions)
    assert (found.decision.chosen, found.decision.reason) == (live.decision.chosen, live.decision.reason)
    assert found.verified.skipped
    assert (tmp_path / "same" / "plan.json").is_file()
    assert recorded(record) == before

    fewer = replace(unmeasured, runtimes=())
    found = place(fewer, tmp_path / "all")
    others = {name for name, runtime in RUNTIMES.items() if runtime.formats & {"onnx", "ncnn"}} - {"onnxruntime"}
    assert {m.name for m in found.missing} == others
    with pytest.raises(RuntimeMissingError, match="openvino: it was not measured in that campaign"):
        place(replace(unmeasured, runtimes=("openvino",)), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_each_of_two_backends_is_decided_from_what_was_measured_of_both(
    board: Board, small: Effort, tmp_path: Path
) -> None:
    code, kind, options = convolution(1, ACTIVATION.RELU, depthwise=False)
    weights = [np.ones((8, 1, 1, 8), np.float32), np.zeros(8, np.float32)]
    model = saved(tmp_path, circle_with(code, kind, options, weights), "c.circle")
    request = ModelRequest(model=model, device=board.config(), effort=small, record=tmp_path / "record.sqlite")
    live = place(request, tmp_path / "live")
    runs = {contender.label: contender.runs for contender in live.contenders}
    assert set(runs) >= {"onert:cpu", "onert:ruy"}
    for backend in ("cpu", "ruy"):
        found = place(replace(request, measure=False, settings=RunSettings(backends=(backend,))), tmp_path / backend)
        (contender,) = found.contenders
        assert contender.label == f"onert:{backend}"
        assert contender.runs == runs[contender.label]
        assert {row.planned for row in found.operators} == {backend}
        assert found.campaign == live.campaign


# Reference outputs where the device loads no ONNX model


@pytest.fixture(scope="module")
def convertible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX model that the converter to ncnn takes."""
    try:
        find_pnnx()
    except RuntimeMissingError as error:
        pytest.skip(error.message)
    return saved(tmp_path_factory.mktemp("model"), matmul_onnx(depth=1))


def measured_by_ncnn(session: ModelSession, small: Effort) -> Measured:
    assert [t.runtime.name for t in session.targets] == ["ncnn"]
    contender = AcrossPlacer(session, session.targets, Path()).whole(session.targets[0])
    return session.runner.measure("test", [contender.candidate], small)[contender.key]


@pytest.mark.parametrize("runtime_here", [True, False])
def test_a_conversion_is_checked_by_this_machine_if_it_can(
    board: Board, convertible: Path, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime_here: bool
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if not runtime_here:
        bare = python_with(tmp_path / "here", ("numpy",))
        true = LocalDevice.describe
        monkeypatch.setattr(LocalDevice, "describe", lambda self: replace(true(self), python=str(bare)))
    monkeypatch.chdir(convertible.parent)  # a model is named as users do
    feed = np.full((1, 8), 0.5, np.float32)
    np.save(tmp_path / "x.npy", feed)
    request = ModelRequest(
        model=Path(convertible.name),
        device=board.config(),
        effort=small,
        runtimes=("ncnn",),
        feeds={"x": tmp_path / "x.npy"},
    )
    with open_session(request, kind="test", question={}) as session:
        sensitivity = reference(session)
        assert sensitivity["relative"] > 1e-3
        found = measured_by_ncnn(session, small)
        assert found.ok, found.failure
        assert found.fact("difference")["relative"] < 1e-2
        kinds = {d.kind for d in doubts(session, sensitivity)}
        assert ("unchecked-conversion" in kinds) == (not runtime_here)
        assert session.link is not None
        assert isinstance(session.runner, CampaignRunner)
        session.link.device.pull(session.runner._reference, tmp_path / "reference.npz")
    with np.load(tmp_path / "reference.npz", allow_pickle=False) as held:
        assert len(held.files) >= 2
    assert board.clean()


def test_an_unchecked_conversion_stays_one_in_the_record(
    board: Board, convertible: Path, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = python_with(tmp_path / "here", ("numpy",))
    true = LocalDevice.describe
    monkeypatch.setattr(LocalDevice, "describe", lambda self: replace(true(self), python=str(bare)))
    request = ModelRequest(model=convertible, device=board.config(), effort=small, runtimes=("ncnn",))
    told = []
    for measure in (True, False):
        with open_session(replace(request, measure=measure), kind="test", question={}) as session:
            told.append({d.kind for d in doubts(session, reference(session))})
    assert ["unchecked-conversion" in kinds for kinds in told] == [True, True]


def test_a_wrong_conversion_is_refused(
    board: Board, convertible: Path, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    other = saved(tmp_path, matmul_onnx(width=8, depth=2), "other.onnx")
    monkeypatch.setattr(
        modelling, "convert", lambda model, source, wanted, folder: convert(model, other, wanted, folder)
    )
    request = ModelRequest(model=convertible, device=board.config(), effort=small, runtimes=("ncnn",))
    with open_session(request, kind="test", question={}) as session:
        reference(session)
        found = measured_by_ncnn(session, small)
    assert found.failure is not None
    assert found.failure.kind == "wrong-output"

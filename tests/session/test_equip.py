"""What a device lacks is brought, beside what it has of its own; what cannot be brought is told with the next step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bad_days.boardkit import Board, give_version, python_with, running_board, site_of
from tests.bad_days.livekit import add_circle
from tests.devices.packages.test_wheels import wheel

from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import opened
from gnomon.errors import RuntimeMissingError
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Probe
from gnomon.runtimes.registry import all_runtimes
from gnomon.session.request import ModelRequest
from gnomon.session.targets import Missing, equip

RUNTIMES = {runtime.name: runtime for runtime in all_runtimes()[0]}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board with a bare Python."""
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield running


def equipped_with(device: DeviceConfig, *names: str) -> tuple[dict[str, Probe], dict[str, Missing], AgentLink]:
    with opened(device) as there, AgentLink(there) as link:
        probes, missing = equip(link, tuple(RUNTIMES[name] for name in names), device, None)
    return probes, {m.name: m for m in missing}, link


def cannot_be_brought(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(type(RUNTIMES[name]), "wheels", ("there-is-no-such-wheel>=1",))


def test_what_cannot_be_brought_leaves_the_others(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    cannot_be_brought(monkeypatch, "onert")
    probes, missing, link = equipped_with(board.config(), "onert", "ncnn")
    assert list(probes) == ["ncnn"]
    assert list(missing) == ["onert"]
    assert missing["onert"].reason.startswith("not installed, and cannot be installed: no packages here fit Python 3.")
    assert "there-is-no-such-wheel>=1" in missing["onert"].reason
    assert "--fetch" in missing["onert"].hint
    assert len(link.paths) == 1


def test_when_nothing_can_be_brought_the_next_step_is_told(
    board: Board, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_be_brought(monkeypatch, "onert")
    model = tmp_path / "a.circle"
    model.write_bytes(add_circle())
    with pytest.raises(RuntimeMissingError, match="on the device board runs the model") as told:
        place(ModelRequest(model=model, device=board.config(), effort=small, runtimes=("onert",)), tmp_path / "out")
    assert "there-is-no-such-wheel>=1" in told.value.message
    assert "--fetch" in told.value.hint
    assert "wheels" in told.value.hint
    assert not (tmp_path / "out").exists()
    assert board.clean()


def test_the_devices_own_runtime_is_used_beside_what_is_brought(board: Board, tmp_path: Path) -> None:
    python = python_with(tmp_path / "python", ("numpy", "onnxruntime"))
    give_version(tmp_path / "python", "onnxruntime", "9.9.9")
    probes, missing, _ = equipped_with(board.config(python=str(python)), "onnxruntime", "ncnn")
    assert not missing
    assert probes["onnxruntime"].version == "9.9.9"
    assert probes["ncnn"].version != "9.9.9"
    alone, _, link = equipped_with(board.config(python=str(python)), "onnxruntime")
    # What is brought for the other runtime lies beside it, numpy among it.
    assert (alone["onnxruntime"].version, alone["onnxruntime"].backends) == ("9.9.9", probes["onnxruntime"].backends)
    assert link.paths == []  # nothing was lacking


def test_what_is_brought_does_not_hide_what_the_devices_environment_names(board: Board, tmp_path: Path) -> None:
    python_with(tmp_path / "python", ("numpy", "onnxruntime"))
    give_version(tmp_path / "python", "onnxruntime", "9.9.9")
    device = board.config(environment={"PYTHONPATH": str(site_of(tmp_path / "python"))})
    probes, missing, _ = equipped_with(device, "onnxruntime", "ncnn")
    assert not missing
    assert probes["onnxruntime"].version == "9.9.9"


def test_what_would_stop_the_devices_own_runtime_is_not_brought(board: Board, tmp_path: Path) -> None:
    python = python_with(tmp_path / "python", ("numpy", "onnxruntime"))
    strict = "import numpy; assert 'pushed' not in numpy.__file__, 'built against another numpy'"
    give_version(tmp_path / "python", "onnxruntime", "9.9.9", strict)
    probes, missing, link = equipped_with(board.config(python=str(python)), "onnxruntime", "ncnn")
    assert list(probes) == ["onnxruntime"]
    assert link.paths == []
    assert "the device's own onnxruntime would not start" in missing["ncnn"].reason
    assert "--runtime ncnn" in missing["ncnn"].hint
    alone, none, _ = equipped_with(board.config(python=str(python)), "ncnn")
    assert list(alone) == ["ncnn"]
    assert not none


def test_needs_that_contradict_each_other_leave_one(
    board: Board, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in ("1.0", "2.0"):
        wheel(own_home / "wheels", "gnomontestneed", number)
    monkeypatch.setattr(type(RUNTIMES["ncnn"]), "wheels", ("ncnn", "gnomontestneed==1.0"))
    monkeypatch.setattr(type(RUNTIMES["onert"]), "wheels", ("onert", "gnomontestneed==2.0"))
    probes, missing, _ = equipped_with(board.config(), "ncnn", "onert")
    assert list(probes) == ["ncnn"]
    assert "gnomontestneed" in missing["onert"].reason


@pytest.mark.parametrize("lacking", ["numpy", "a library"])
def test_what_a_runtime_lacks_is_brought(board: Board, tmp_path: Path, lacking: str) -> None:
    python = python_with(tmp_path / "python", ("ncnn",) if lacking == "numpy" else ("numpy",))
    if lacking == "a library":
        broken = site_of(tmp_path / "python") / "ncnn"
        broken.mkdir()
        (broken / "__init__.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object file')\n")
    probes, missing, link = equipped_with(board.config(python=str(python)), "ncnn")
    assert list(probes) == ["ncnn"]
    assert not missing
    assert len(link.paths) == 1

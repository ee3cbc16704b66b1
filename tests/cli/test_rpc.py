"""`gnomon rpc` as a user types it: in the foreground, in the background, and what is told of state that is stale."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tuning.tvmkit import needs_tvm, rpc_devices  # noqa: F401 - a fixture

from gnomon.cli.main import run
from gnomon.errors import DeviceError
from gnomon.jobs.rpc import RpcState, read_state, start_of, state_path, write_state
from gnomon.tuning.servers import Arrangement, living
from gnomon.tuning.tracker import tracker_at

COMMAND = [sys.executable, "-c", "from gnomon.cli.main import main; main()", "rpc"]


@pytest.fixture(autouse=True)
def no_tracker_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TVM_TRACKER_HOST", "TVM_TRACKER_PORT"):
        monkeypatch.delenv(name, raising=False)


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run(["rpc", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def eventually(truth: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not truth():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def groups_of(process: int) -> list[int]:
    """The groups that the children of a process lead, but for that of its guard."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (folder / "stat").exists():
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == process and b"tvm.exec" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["up", "--devices", "0"], 2, "--devices"),
        (["up", "--port", "70000"], 2, "--port"),
        (["up", "--bind", "0.0.0.0"], 2, "every address"),  # noqa: S104 - it is refused
        (["up", "--bind", "board"], 2, "no address"),
        (["up", "--detach", "--bind", "203.0.113.7"], 2, "cannot be listened on"),
        (["status"], 6, "no tracker is known here"),
        (["status", "--tracker", "board:x"], 2, "no port"),
    ],
)
def test_what_cannot_be_done(words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, *words, code=code)["error"]
    assert told in found["message"]
    assert found["hint"]


def test_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "down") == {"ended": None, "cleaned": ""}
    assert run(["rpc", "down"]) == 0
    assert capsys.readouterr().out == "Nothing runs in the background.\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 9999,
        "x" * 100_000,
        '{"process": 1, "started": "", "document": {}}',
        '{"process": -1, "started": "a", "document": {}}',
        '{"process": 1e9, "started": "a", "document": {}}',
        '{"process": 4194305, "started": "a", "document": {}}',
        '{"process": 7, "started": 7, "document": {}}',
        '{"process": 7, "started": "a"}',
    ],
)
def test_a_file_that_says_nothing_is_told_and_removed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    state_path().parent.mkdir(parents=True)
    state_path().write_text(text, encoding="utf-8")
    assert str(state_path()) in answer(capsys, "down")["cleaned"]
    assert not state_path().exists()


def test_a_process_with_the_same_number_is_never_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        started = start_of(other.pid)
        boot, _, ticks = started.partition("/")
        assert int(ticks) > 0
        state_path().parent.mkdir(parents=True)
        write_state(RpcState(process=other.pid, started=f"{boot}/{int(ticks) - 1}", document={"tracker": "a:1"}))
        found = answer(capsys, "down")
        assert found["ended"] is None
        assert str(other.pid) in found["cleaned"]
        assert not state_path().exists()
        assert other.poll() is None
        assert start_of(other.pid) == started
        other.kill()
    assert start_of(other.pid) == ""


def test_a_process_that_has_ended_is_told_by_status(capsys: pytest.CaptureFixture[str]) -> None:
    state_path().parent.mkdir(parents=True)
    write_state(RpcState(process=os.getpid(), started="another boot/1", document={}))
    assert "had ended without a word" in answer(capsys, "status", code=6)["error"]["message"]
    assert read_state() is None


@needs_tvm
def test_the_status_of_a_tracker(
    rpc_devices: Arrangement,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = rpc_devices.tracker.address
    found = answer(capsys, "status", "--tracker", address)
    assert (found["tracker"], found["from"], found["detached"]) == (address, "option", None)
    assert {"narrow", "wide"} <= {key["key"] for key in found["keys"]}
    host, _, port = address.partition(":")
    monkeypatch.setenv("TVM_TRACKER_HOST", host)
    monkeypatch.setenv("TVM_TRACKER_PORT", port)
    assert run(["rpc", "status"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"The tracker at {address} has ")
    assert rpc_devices.devices[1].address in text


@needs_tvm
def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*COMMAND, "up"], stderr=subprocess.PIPE, text=True, env=environment) as process:
        eventually(lambda: bool(groups_of(process.pid)))
        groups = groups_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == "gnomon: ended: nothing is left behind\n"
    assert process.returncode == 130
    assert not any(living(group) for group in groups)
    assert list(tmp_path.glob("gnomon-rpc-*")) == []


@needs_tvm
def test_nothing_is_left_of_a_gnomon_that_was_killed(tmp_path: Path) -> None:
    """By kill -9, once it runs in the foreground and has told what there is."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "up", "--devices", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        headline = next(lines)
        assert headline.startswith("A tracker listens at 127.0.0.1:")
        tracker = tracker_at(headline.split()[-1].rstrip("."))
        told = next(line for line in lines if "try" in line).split(maxsplit=1)[1].strip()
        assert told == f"gnomon tune MODEL.onnx --tracker {tracker.address} --key wide --target native"
        assert tracker.summary().keys == ("wide",)
        groups = groups_of(process.pid)
        assert [len(living(group)) for group in groups] == [2, 2]
        (folder,) = tmp_path.glob("gnomon-rpc-*")
        process.send_signal(signal.SIGKILL)
        process.wait()
    eventually(lambda: not any(living(group) for group in groups))
    eventually(lambda: not folder.exists())
    with pytest.raises(DeviceError, match="no tracker can be reached"):
        tracker.summary()


@needs_tvm
def test_in_the_background_until_down(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "up", "--devices", "1", "--detach", "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    started = json.loads(done.stdout)
    try:
        assert [device["key"] for device in started["devices"]] == ["wide"]
        assert Path(started["log"]).is_file()
        groups = groups_of(started["process"])
        assert len(groups) == 2
        found = answer(capsys, "status")
        assert (found["tracker"], found["from"]) == (started["tracker"], "background")
        assert found["detached"]["process"] == started["process"]
        refused = answer(capsys, "up", "--detach", code=2)["error"]
        assert "run in the background already" in refused["message"]
        assert started["tracker"] in refused["message"]
        # One who lost the file is refused as well: the process holds a lock.
        text = state_path().read_text(encoding="utf-8")
        state_path().unlink()
        assert "already" in answer(capsys, "up", "--detach", code=2)["error"]["message"]
        state_path().write_text(text, encoding="utf-8")
    finally:
        ended = answer(capsys, "down")["ended"]
    assert ended["tracker"] == started["tracker"]
    assert not any(living(group) for group in groups)
    assert start_of(started["process"]) == ""
    assert not state_path().exists()
    assert answer(capsys, "status", code=6)["error"]["kind"] == "device"

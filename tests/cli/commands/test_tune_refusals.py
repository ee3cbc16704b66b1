"""What is known without TVM is refused before TVM is started, whose start takes seconds."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.cli.commands.test_tune_commands import GOLDEN, logs
from tests.jobs.tune.tunekit import tiny_net

from gnomon.cli.main import run
from gnomon.core.overlay.records import TunedDevice
from gnomon.jobs.tune.folder import given_model, tune_folder
from gnomon.system.locks import lock_file
from gnomon.tuning import tvm


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The children of TVM that were asked for; none is started."""
    found: list[Any] = []

    def refuse(*given: Any) -> NoReturn:
        found.append(given)
        raise OSError("no child of TVM")

    monkeypatch.setattr(tvm, "ChildProcess", refuse)
    for name in ("TVM_TRACKER_HOST", "TVM_TRACKER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes a connection and is not a tracker: it hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        server.settimeout(30)

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        stack.callback(thread.join, 30)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def files(folder: Path) -> dict[str, Any]:
    """Networks, good and not, and records."""
    made = {
        "model": folder / "tiny.onnx",
        "open": folder / "open.onnx",
        "broken": folder / "broken.onnx",
        "lite": folder / "broken.tflite",
        "program": folder / "broken.pt2",
        "text": folder / "model.txt",
        "none": folder / "none.onnx",
        "file": folder / "a file",
        "old": folder / "phone.net.float32.atvm.json",
    }
    made["model"].write_bytes(tiny_net())
    made["open"].write_bytes(tiny_net(size="n"))
    for name in ("broken", "lite", "program", "text", "file"):
        made[name].write_bytes(b"hello, this is not a network of any kind")
    made["old"].write_bytes((GOLDEN / "autotvm-log.json").read_bytes())
    one, other, *_ = logs(folder)
    return {**made, "a": one, "b": other, "out": folder / "out"}


GONE = "tvm://127.0.0.1:1/a"


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (3, "tune {none}", "does not exist .. Check the path"),
        (3, "tune {broken}", "not a model"),
        (3, "tune {lite}", "not a model"),
        (3, "tune {program}", "not an exported PyTorch program"),
        (3, "tune {text}", "cannot be tuned"),
        (3, "tune {open}", "leaves the shape of the input 'x' open: 1,3,?,?"),
        (3, "tune {open} --shape x=1,3,8", "does not fit the input 'x', which is 1,3,?,?"),
        (3, "tune {open} --shape x=1,4,8,8", "does not fit the input 'x'"),
        (3, "tune {open} --shape y=1,3,8,8", "no input 'y'"),
        (2, "tune {model} --target abacus", "there is no target .. x86-64-v3"),
        (2, "tune {model} --target {{", "not JSON"),
        (2, "tune {model} --linker no-such-linker", "no linker .. compiler"),
        (2, "tune {model} --device nobody", "no device named .. gnomon devices add"),
        (2, "tune {model} --device adb:", "cannot start TVM's server .. tvm://HOST:PORT/KEY"),
        (2, "tune {model} --device tvm:///a --target generic", "no tracker is named .. TVM_TRACKER_HOST"),
        (2, f"tune {{model}} --device {GONE}", "the target of the device"),
        (6, f"tune {{model}} --device {GONE} --target generic --wait 0.1", "no tracker can be reached"),
        (6, f"tune {{model}} --device local --device {GONE} --target generic --wait 0.1", "no tracker can be reached"),
        (2, "tune {model} --device local --device nobody", "no device named"),
        (8, "tune {model} --out {file}", "cannot be written"),
        (2, "exec {none}", "No such file .. gnomon tune list"),
        (3, "exec {old}", "cannot be replayed"),
        (2, "exec {a} --model {broken}", "not the network"),
        (6, f"overlay collect {{a}} --device {GONE} --target generic --wait 0.1", "no tracker can be reached"),
        (6, f"overlay collect {{a}} --device local --device {GONE} --target generic --wait 0.1", "no tracker"),
        (3, "overlay collect {old}", "cannot be replayed"),
        (8, "overlay collect {a} --out {file}", "cannot be written"),
        (2, "overlay analyze {a} {b} --prove --model {model}", "the address of the device 'a' .. --device tvm://"),
        (2, "overlay analyze {old} --prove", "cannot be compiled .. Leave out --prove"),
        (2, "overlay analyze {a} {b} --device c", "no log belongs to the device 'c'"),
    ],
)
def test_it_is_refused_before_tvm_is_started(
    code: int, words: str, message: str, tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    named = files(tmp_path)
    given = [word.format(**named) for word in words.split()]
    if "--out" not in given:
        given += ["--out", str(named["out"])]
    found = run([*given, "--json", "--quiet"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert all(part in f"{error['message']} {error['hint']}" for part in message.split(" .. ")), error
    assert (found, started) == (code, [])
    assert error["hint"]
    assert not named["out"].exists()


def test_what_is_no_tracker_is_refused_before_tvm_is_started(
    silent: str, tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    device = f"tvm://{silent}/a"
    words = [
        "tune",
        str(files(tmp_path)["model"]),
        "--device",
        device,
        "--target",
        "generic",
        "--wait",
        "0.1",
        "--json",
    ]
    assert (run(words), started) == (6, [])
    assert "tracker" in json.loads(capsys.readouterr().out)["error"]["hint"]


def test_records_that_another_writes_are_refused_before_tvm_is_started(
    tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = files(tmp_path)["model"], tmp_path / "out"
    path = tune_folder(out).record(TunedDevice(key="local", target={}), given_model(model, "float32"))
    path.parent.mkdir(parents=True)
    handle = lock_file(path)
    assert (run(["tune", str(model), "--out", str(out), "--json"]), started) == (8, [])
    assert "another gnomon process is writing" in json.loads(capsys.readouterr().out)["error"]["message"]
    os.close(handle)
    assert path.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_refused_before_tvm_is_started(
    tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = files(tmp_path)["model"], tmp_path / "out"
    out.mkdir(stat.S_IRUSR | stat.S_IXUSR)
    assert (run(["tune", str(model), "--out", str(out), "--json"]), started) == (8, [])
    assert "Permission denied" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_what_is_not_refused_starts_it(tmp_path: Path, started: list[Any]) -> None:
    named = files(tmp_path)
    assert run(["tune", str(named["open"]), "--shape", "x=1,3,8,8", "--out", str(named["out"]), "--json"]) == 70
    assert len(started) == 1

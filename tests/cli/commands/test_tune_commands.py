"""`gnomon tune`, `tune list`, `exec` and `overlay` as a user types them: options, errors in two lines, exit codes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.jobs.tune.tunekit import hand_made, tiny_net
from tests.report.tuning_kit import PHONE, tune

from gnomon.cli.main import run
from gnomon.devices.opening import resolve
from gnomon.jobs.documents import read_document
from gnomon.jobs.tune.records import write_records
from gnomon.jobs.tune.request import DeviceOptions, TuneEffort, TuneRequest
from gnomon.measure.progress import Progress, Watch
from gnomon.tuning.tracker import Queue, TrackedServer, Tracker, TrackerSummary

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"


@pytest.fixture(autouse=True)
def no_tracker_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TVM_TRACKER_HOST", "TVM_TRACKER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_net())
    return path


def logs(folder: Path) -> list[str]:
    """Hand-made records of two devices, and of one's configurations on the other."""
    made = {
        "a": hand_made("a", {"conv": {None: (9.0,), 1: (1.0, 1.1, 1.2), 2: (2.0, 2.1)}}),
        "b": hand_made("b", {"conv": {None: (9.0,), 3: (1.0, 1.1)}}),
        "a_b": hand_made("a", {"conv": {3: (3.0, 3.1)}}, found_on="b"),
        "b_a": hand_made("b", {"conv": {1: (1.5, 1.5), 2: (1.2, 1.2)}}, found_on="a"),
    }
    for name, records in made.items():
        write_records(folder / f"{name}.json", records)
    return [str(folder / f"{name}.json") for name in made]


def told(capsys: pytest.CaptureFixture[str], code: int, *words: str | Path) -> tuple[str, str]:
    """The error of a command, as two lines, and what its JSON says of it."""
    arguments = [str(word) for word in words]
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 2, captured.err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith(("hint: ", "hint:"))
    if "--help" not in lines[1]:
        assert run([*arguments, "--json"]) == code
        error = json.loads(capsys.readouterr().out)["error"]
        assert (f"error: {error['message']}", f"hint: {error['hint']}") == (lines[0], lines[1])
    return lines[0], lines[1]


@pytest.mark.parametrize(
    ("code", "words", "message", "hint"),
    [
        (2, ["tune", "{model}", "--device", "tvm://a:b/x"], "not a number from 1 to 65535", "local"),
        (
            2,
            ["tune", "{model}", "--device", "tvm://a:1"],
            "does not name a device of a TVM tracker",
            "tvm://HOST:PORT/KEY",
        ),
        (3, ["exec", "{model}"], "has no tuning records", "gnomon tune"),
        (2, ["overlay", "collect", "{a}", "{a}"], "several logs have configurations of a", "one log"),
        (2, ["overlay", "collect", "{a}", "--layer", "pool"], "no layer 'pool'", "0 conv"),
        (
            2,
            ["overlay", "analyze", "{a}", "--prove", "--device", "tvm://127.0.0.1:1/a"],
            "the network net is not in",
            "--model",
        ),
        (2, ["overlay", "analyze", "{a}", "--prove", "--no-write"], "--prove cannot be combined", "--no-write"),
    ],
)
def test_errors_are_two_lines_with_the_next_step(
    code: int,
    words: list[str],
    message: str,
    hint: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {"model": model, "a": logs(tmp_path)[0]}
    first, second = told(capsys, code, *[word.format(**named) for word in words], "--quiet", "--out", tmp_path / "out")
    assert message in first
    assert hint in second
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune"], "Missing argument"),
        (["tune", "x", "--plateau", "-1"], "--plateau"),
        (["tune", "x", "--budget", "soon"], "--budget"),
        (["tune", "x", "--search", "prayer"], "prayer"),
        (["tune", "x", "--dtype", "int8"], "int8"),
        (["tune", "x", "--processes", "0"], "--processes"),
        (["tune", "x", "--threads", "-1"], "--threads"),
        (["exec", "x", "--wait", "never"], "--wait"),
        (["exec", "x", "--device", "a", "--device", "b"], "--device only once"),
        (["overlay", "analyze"], "Missing argument"),
        (["overlay", "analyze", "{a}", "--portfolio", "1"], "--portfolio"),
        (["overlay", "deploy"], "No such command"),
    ],
)
def test_options_that_cannot_be_meant(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = logs(tmp_path)
    first, second = told(capsys, 2, *[word.format(a=paths[0], b=paths[1]) for word in words])
    assert message in first
    assert "--help" in second


class Asked(Exception):
    """A job was asked for."""


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """No job is done; what would have been asked of it is here."""
    asked: list[Any] = []

    def take(request: Any, **reported: Any) -> NoReturn:
        asked.append(request)
        assert all(map(callable, reported.values()))
        raise Asked

    for place in ("tune.job.tune", "tune.execute.execute", "overlay.collect.collect"):
        monkeypatch.setattr(f"gnomon.jobs.{place}", take)
    return asked


def ask(*words: str) -> None:
    assert run(list(words)) == 70  # what was raised is not an error of gnomon's


def test_options_reach_the_job(requests: list[Any]) -> None:
    ask(
        *("tune", "m.onnx", "--trials", "7", "--search", "random", "--per-round", "3", "--plateau", "0"),
        *("--first-round", "2", "--no-start", "--no-compare", "--from", "a.json", "--from", "folder"),
        *("--budget", "90", "--layer", "conv", "--layer", "dense", "--dtype", "float16", "--shape", "x=1,3,8,8"),
        *("--fresh", "--device", "local", "--fetch", "--target", "generic", "--linker", "cc", "--threads", "2"),
        *("--wait", "5", "--processes", "4", "--repeat", "5", "--min-repeat-ms", "6", "--timeout", "7"),
        *("--build-timeout", "8", "--seed", "9", "--out", "there"),
    )
    device = DeviceOptions(
        config=replace(resolve("local"), fetch=True), target="generic", linker="cc", threads=2, wait_s=5.0
    )
    effort = TuneEffort(processes=4, repeat=5, min_repeat_ms=6, timeout_s=7.0, build_timeout_s=8.0, seed=9)
    assert requests == [
        TuneRequest(
            model=Path("m.onnx"),
            device=device,
            effort=effort,
            out=Path("there"),
            trials=7,
            strategy="random",
            start=False,
            per_round=3,
            first_round=2,
            plateau=0,
            budget_s=90.0,
            layers=("conv", "dense"),
            dtype="float16",
            shapes={"x": (1, 3, 8, 8)},
            fresh=True,
            logs=(Path("a.json"), Path("folder")),
            compare=False,
        )
    ]


def test_what_no_option_says_is_left_to_the_request(requests: list[Any]) -> None:
    ask("tune", "m.onnx")
    assert requests == [TuneRequest(model=Path("m.onnx"))]


def test_collect_takes_all_logs_and_this_machine_where_no_device_is_named(requests: list[Any]) -> None:
    ask("overlay", "collect", "a", "b", "--best", "4")
    (request,) = requests
    assert (request.logs, request.device.key, request.best) == ((Path("a"), Path("b")), "local", 4)


def test_each_device_is_tuned_for(
    model: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_home.mkdir(exist_ok=True)
    lines = [f'[devices.{name}]\naddress = "local"\n' for name in ("a", "b")]
    (own_home / "devices.toml").write_text("".join(lines), encoding="utf-8")
    told: list[str] = []

    def tuned(request: TuneRequest, *, watch: Watch, tell: Callable[[str], None]) -> Any:
        watch(Progress(stage="trials", done=0, total=1, left_s=None))
        tell("hello")
        return read_document(tune(device={**PHONE, "key": request.device.key}))

    monkeypatch.setattr("gnomon.jobs.tune.job.tune", tuned)
    monkeypatch.setattr("gnomon.jobs.tune.request.check_device", lambda settings: told.append(settings.key))
    assert run(["tune", str(model), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["device"]["key"] == "local"
    assert err.splitlines() == ["gnomon: trials (1 steps)", "gnomon: hello"]
    assert run(["tune", str(model), "--device", "a", "--device", "b", "--device", "a", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [one["device"]["key"] for one in json.loads(out)["tuned"]] == ["a", "b"]
    assert err.splitlines()[2:] == ["gnomon: b: trials (1 steps)", "gnomon: b: hello"]
    assert told == ["b"], "the job looks at the first one"


def test_the_shape_of_records_can_be_given(requests: list[Any]) -> None:
    ask("exec", "a.json", "--shape", "x=1,3,8,8", "--no-layers")
    assert (requests[0].shapes, requests[0].layers) == ({"x": (1, 3, 8, 8)}, False)


def test_the_tracker_of_the_environment_is_asked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TVM_TRACKER_HOST", "desk")
    monkeypatch.setenv("TVM_TRACKER_PORT", "9300")
    narrow = TrackedServer(key="narrow", addr=("board", 9090))
    summary = TrackerSummary(server_info=(narrow,), queue_info={"narrow": Queue(free=1, pending=0)})
    monkeypatch.setattr(Tracker, "summary", lambda tracker: summary)
    at = ("--out", tmp_path / "out", "--wait", "0.2")
    first, second = told(capsys, 6, "tune", model, "--device", "tvm:///narow", "--target", "x86-64", *at)
    assert "desk:9300" in first and "narrow" in second
    first, second = told(capsys, 2, "tune", model, "--device", "tvm:///narrow", *at)
    assert "the target of the device 'narrow' is unknown" in first and "--target" in second


def test_analyze_says_its_answer_first_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths, out = logs(tmp_path), ("--out", str(tmp_path / "out"))
    assert run(["overlay", "analyze", *paths, "--portfolio", "2", "--quiet", *out]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("One configuration per layer for 2 devices")
    assert run(["overlay", "analyze", *paths, "--json", "--plot", str(tmp_path / "p"), "--no-write", *out]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert not any(document["written"].values())
    # M: 1 -> 0 + 1.5 / 1.05 - 1; the others lose more
    (row,) = document["layers"]
    assert row["M"] == pytest.approx(1.5 / 1.05 - 1)
    assert all(Path(path).is_file() for path in document["pictures"])


def test_a_log_that_does_not_say_its_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.log"
    shutil.copyfile(GOLDEN / "ansor-log.json", path)
    first, second = told(capsys, 2, "overlay", "analyze", path)
    assert "device" in first and "device" in second
    assert run(["overlay", "analyze", str(path), "--device", f"phone={path}", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == ["phone"]


def test_the_list_tells_what_is_there_and_what_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "list", "--out", str(tmp_path / "none")]) == 0
    assert "The folder is empty." in capsys.readouterr().out
    assert not (tmp_path / "none").exists()
    (tmp_path / "records").mkdir()
    logs(tmp_path / "records")
    (tmp_path / "records" / "bad\x1b[31m.json").write_text("{")
    assert run(["tune", "list", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "5 record files" in text
    assert "has no tuning records" in text
    assert "\x1b" not in text
    assert run(["tune", "list", "--out", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["records"]
    assert sum(row["problem"] is not None for row in rows) == 1
    assert {row["device"] for row in rows} == {"a", "b", "unknown"}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["tune", "m.onnx", "-k", "android"], "--device tvm://HOST:PORT/KEY"),
        (["tune", "m.onnx", "-p", "9090"], "TVM_TRACKER_PORT"),
        (["tune", "m.onnx", "--rpc_tracker_host", "h"], "TVM_TRACKER_HOST"),
        (["tune", "m.onnx", "-T", "llvm"], "--target"),
        (["tune", "m.onnx", "-H", "llvm"], "--target is enough"),
        (["tune", "m.onnx", "-m", "xgb"], "--search"),
        (["tune", "ansor", "m.onnx"], "gnomon tune m.onnx"),
        (["tune", "atvm", "m.onnx", "-k", "android"], "--device tvm://HOST:PORT/KEY"),
        (["exec", "m.so", "-k", "android"], "--device tvm://HOST:PORT/KEY"),
        (["overlay", "collect", "a.json", "-b", "5"], "--best N"),
        (["overlay", "collect", "a.json", "-l", "5"], "--layer N"),
        (["cross-compile", "tune", "atvm", "m"], "docs/jobs/tune.md"),
        (["overlay", "a.json", "b.json", "-k", "meizu"], "gnomon overlay analyze LOG.."),
        (["config-overlay", "a.json", "-k", "a"], "docs/jobs/tune.md"),
    ],
)
def test_who_types_ferules_options_is_told_what_is_given_instead(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = told(capsys, 2, *words)
    assert hint in second


def test_the_list_of_the_users_own_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(Path(os.environ["GNOMON_HOME"]) / "tune")

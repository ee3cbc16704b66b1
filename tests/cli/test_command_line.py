"""The command line itself: help, options, errors for people and as JSON, signals, and what it imports."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.placement_kit import placement, profiled

import gnomon
from gnomon.cli import main as command_line
from gnomon.cli.main import cli, run
from gnomon.core.sample import Campaign, Context, Event
from gnomon.errors import CLOSED_PIPE, GnomonError, MeasurementError, ProblemError, RuntimeMissingError
from gnomon.jobs.runs.document import CampaignRow, RunDocument
from gnomon.jobs.runs.report import run_report
from gnomon.report.page import Page
from gnomon.runtimes.base import RunSettings
from gnomon.session.request import ModelRequest
from gnomon.values import shape

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "scipy", "highspy", "vl_convert", "rich", "onnx", "onnxruntime", "openvino", "onert", "sqlite3")
PROBLEM: dict[str, Any] = {
    "format": "gnomon-problem",
    "version": 1,
    "objectives": [{"name": "latency", "unit": "s"}],
    "slots": [
        {"name": "conv1", "choices": ["cpu", "gpu"], "cost": [[1.0], [0.5]]},
        {"name": "conv2", "choices": ["cpu", "gpu"], "cost": [[1.0], None]},
    ],
}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GNOMON_DEBUG", raising=False)


def gnomon_process(*args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    code = "from gnomon.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("code", ["import gnomon", "from gnomon.cli.main import run; run(['--help'])"])
def test_help_and_import_load_nothing_heavy(code: str) -> None:
    look = f"{code}\nimport sys; print('LOADED', *sorted(m for m in sys.modules if m.split('.')[0] in {HEAVY}))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines()[-1] == "LOADED"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"gnomon {gnomon.__version__}\n"


def test_the_command_that_is_meant_is_named_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plaec", "m"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: there is no command 'plaec'. Did you mean 'place'?"


def test_the_reference_has_every_command_and_option() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "command_reference.py")]
    text = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    sections = dict(re.findall(r"^### `([^`]+)`\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    seen = set()
    for path, command in walked("gnomon", cli):
        shown = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", sections[path]))
        options = [o for o in command.params if isinstance(o, click.Option) and not o.hidden]
        assert {name for option in options for name in option.opts + option.secondary_opts} <= shown, path
        seen.add(path)
    assert seen == set(sections)


def walked(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Each command that help lists, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (below := command.get_command(context, name)) is not None:
                yield from walked(f"{path} {name}", below)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["place"], "Missing argument 'MODEL'"),
        (["place", "m", "--thread", "2"], "--threads"),
        (["place", "m", "--threads", "0"], "'0' is not a number of threads from 1 to 1024"),
        (["place", "m", "-n", "1,2,"], "'' is not a number of threads"),
        (["place", "m", "-n", "1,1025"], "'1025' is not a number of threads"),
        (["place", "m", "--max-time", "0"], "'0' is not a finite number of seconds above 0"),
        (["place", "m", "--processes", "0"], "0 is not in the range"),
        (["place", "m", "--budget", "-1"], "'-1' is not a finite number of seconds above 0"),
        (["place", "m", "--budget", "nan"], "'nan' is not a finite number of seconds above 0"),
        (["place", "m", "--timeout", "inf"], "'inf' is not a finite number of seconds above 0"),
        (["place", "m", "--shape", "x"], "'x' is not a shape: give NAME=1,3,224,224"),
        (["place", "m", "--shape", "x=1,-1"], "is not a shape"),
        (["place", "m", "--shape", "x=1,\x1e3"], "is not a shape"),
        (["place", "m", "--shape", "x=1", "--shape", "x=2"], "--shape gives 'x' twice"),
        (["place", "m", "--input", "x"], "'x' names no file: give NAME=FILE.npy"),
        (["place", "m", "--env", "x"], "'x' is not an environment variable"),
        (["place", "m", "--env", "1x=2"], "'1x=2' is not an environment variable"),
        (["place", "m", "--env", "A=1,A=2"], "A is given twice"),
        (["place", "m", "--option", "a=1"], "'a=1' does not set each option of a runtime once"),
        (["place", "m", "--option", "o:a=1,a=2"], "does not set each option of a runtime once"),
        (["place", "m", "--option", "o:a"], "does not set each option of a runtime once"),
        (["solve", "p.json", "--weights", "latency"], "'latency' is not a weight"),
        (["solve", "p.json", "--weights", "a=1,a=2"], "'a' is given twice"),
        (["solve", "p.json", "--under", "memory"], "'memory' is not a limit: give NAME=4GB"),
        (["solve", "p.json", "--memory", "gpu=4 cows"], "'4 cows' is not an amount"),
        (["place", "m", "--memory", "gpu"], "'gpu' is not a limit: give NAME=4GB"),
        (["pareto", "m", "--under", "peak-memory=80ms"], "give an amount in B, not in ms"),
        (["pareto", "m", "--memory", "gpu=4GB"], "gnomon place MODEL --under memory:gpu=4GB"),
        (["pareto", "m", "--memory", "80ms"], "give an amount in B, not in ms"),
        (["solve", "p.json", "--method", "magic"], "'magic' is not one of"),
        (["runs", "export", "last", "--format", "xml"], "'xml' is not one of"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_wrong_options_are_told(args: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert told in err
    assert "hint: See: gnomon" in err


def requested(monkeypatch: pytest.MonkeyPatch, *args: str) -> ModelRequest:
    """The request that a command line means."""
    found: list[ModelRequest] = []

    def job(request: ModelRequest, *_: object, **__: object) -> None:
        found.append(request)
        raise RuntimeMissingError("enough", hint="")

    monkeypatch.setattr("gnomon.jobs.place.job.place", job)
    assert run(["place", *args]) == RuntimeMissingError.exit_code
    return found[0]


def test_a_command_that_takes_one_number_of_threads_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pareto", "m", "-n", "1,2"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        "error: only place and profile take several numbers of threads (1, 2)\nhint: Give one number."
    )


def test_several_threads_and_the_most_time_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    found = requested(monkeypatch, "m.onnx", "-n", "1,4,2", "--max-time", "90")
    assert found.settings.thread_counts == (1, 4, 2)
    assert found.max_time_s == 90.0
    assert requested(monkeypatch, "m.onnx").max_time_s is None


def test_options_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    args = (
        "m.onnx --runtime onert --runtime openvino --backend cpu --threads 2 --shape a=b=1,2 --input x=f=1.npy "
        "--precision bfloat16 --env A=1,B=2,3 --env C= --option o:a.b=1,2,c-d=/x=y --processes 4 "
        "--budget 7 --timeout 8.5 --seed 9 --record r.sqlite --fresh"
    )
    found = requested(monkeypatch, *args.split())
    assert found.model == Path("m.onnx")
    assert found.runtimes == ("onert", "openvino")
    assert (found.settings.threads, found.settings.backends, found.settings.precisions) == (2, ("cpu",), ("bfloat16",))
    assert found.settings.environments == ({"A": "1", "B": "2,3"}, {"C": ""})
    assert found.settings.options == (("o", {"a.b": "1,2", "c-d": "/x=y"}),)
    assert found.shapes == {"a=b": (1, 2)}
    assert found.feeds == {"x": Path("f=1.npy")}
    assert (found.effort.processes_least, found.effort.processes_most) == (4, 4)
    assert (found.effort.budget_s, found.effort.timeout_s) == (7.0, 8.5)
    assert (found.seed, found.record, found.fresh) == (9, Path("r.sqlite"), True)


def test_without_options_the_request_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested(monkeypatch, "m.onnx") == ModelRequest(
        model=Path("m.onnx"), settings=RunSettings(usual=True, by_itself="too")
    )
    assert requested(monkeypatch, "m.onnx", "-n", "1") == ModelRequest(
        model=Path("m.onnx"), settings=RunSettings(by_itself="too")
    )


def test_the_python_api_refuses_unknown_options() -> None:
    wrong: dict[str, Any] = {"thread": 2}
    with pytest.raises(GnomonError, match="there is no option 'thread'"):
        gnomon.place("m.onnx", **wrong)
    with pytest.raises(GnomonError, match="threads cannot be 0"):
        gnomon.profile("m.onnx", threads=0)


@pytest.mark.parametrize("name", ["place", "profile"])
def test_results_go_out_and_messages_beside(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def job(*_: object, tell: Any, **__: object) -> Any:
        tell("a message \x1b[2J")
        return replace(placement(), package=str(tmp_path)) if name == "place" else profiled()

    monkeypatch.setattr(f"gnomon.jobs.place.job.{name}", job)
    assert run([name, "m.circle", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["format"] == f"gnomon-{name}"
    assert err == "gnomon: a message \\x1b[2J\n"
    assert run([name, "m.circle", "--quiet", *(["--no-picture"] if name == "place" else [])]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Mix: " if name == "place" else "onert:cpu ")


def test_errors_have_a_hint_and_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "absent.onnx"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "\nhint: " in err


def test_usage_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "m", "--json", "--threads", "x"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


def broken(error: BaseException) -> Any:
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


@pytest.mark.parametrize(
    ("error", "words", "whole"),
    [
        (MeasurementError("nothing runs " + "x" * 900), [], False),
        (MeasurementError("nothing runs " + "x" * 900), ["-v"], True),
        (ProblemError("the file is malformed " + "x" * 900), [], True),
    ],
)
def test_what_others_say_at_length_is_shortened(
    error: GnomonError,
    words: list[str],
    whole: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("gnomon.jobs.place.job.place", broken(error))
    assert run(["place", "absent.onnx", *words]) == error.exit_code
    told = capsys.readouterr().err.splitlines()[0]
    assert (error.message in told) == whole == (not told.endswith(" .. (whole message: -v)"))
    assert run(["place", "absent.onnx", "--json"]) == error.exit_code
    assert json.loads(capsys.readouterr().out)["error"]["message"] == error.message


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_defect_is_told_with_its_trace_on_demand_only(
    debug: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnomon.jobs.place.job.place", broken(ValueError("odd")))
    monkeypatch.setenv("GNOMON_DEBUG", debug)
    assert run(["place", "m"]) == 70
    err = capsys.readouterr().err
    assert "error: a defect of gnomon: ValueError: odd" in err
    assert ("Traceback" in err) == (debug == "1")


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (command_line.Terminated(), 143)])
def test_interruption_is_told(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnomon.jobs.place.job.place", broken(error))
    assert run(["place", "m", "--json"]) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert err.strip() == "interrupted: the measurements are kept, and the same command resumes"


def test_an_interruption_before_anything_was_measured_promises_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnomon.jobs.solve.job.solve_problem", broken(KeyboardInterrupt()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    monkeypatch.delitem(sys.modules, "gnomon.measure.campaign", raising=False)
    assert run(["solve", "-"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_too_little_memory_is_no_defect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gnomon.jobs.place.job.place", broken(MemoryError()))
    assert run(["place", "m", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "there is not enough memory" in error["message"] and "ulimit -v" in error["hint"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full: no full disk to write to")
def test_an_output_that_takes_nothing_is_met_before_any_work(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from gnomon.cli.main import main; main()", "solve", str(tmp_path / "p"), "--json"]
    (tmp_path / "p").write_text("no problem")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 8, done.stderr


def test_the_old_signal_handler_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(["--version"])
    assert signal.getsignal(signal.SIGTERM) == before


def test_solve_reads_files_and_the_standard_input(tmp_path: Path) -> None:
    text = json.dumps(PROBLEM)
    (tmp_path / "p.json").write_text(text)
    found = json.loads(gnomon_process("solve", "-", "--json", stdin=text).stdout)
    assert (found["assignment"], found["cost"]) == (["gpu", "cpu"], [1.5])
    assert gnomon.solve(PROBLEM).assignment == ("gpu", "cpu")
    assert gnomon.solve(tmp_path / "p.json").assignment == ("gpu", "cpu")
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(ProblemError, match="is not a regular file") as refused:
            gnomon.solve(Path(path))
        assert "gnomon solve -" in refused.value.hint


def test_an_empty_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs"]) == 0
    assert "The results database is empty" in capsys.readouterr().out
    assert gnomon.runs().campaigns == ()


@pytest.mark.parametrize("words", [["completion", "bash"], ["schema"], ["runs"]])
def test_a_reader_that_goes_away_is_no_error(words: list[str]) -> None:
    code = "from gnomon.cli.main import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(60) == CLOSED_PIPE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_GNOMON_COMPLETE" in capsys.readouterr().out


def test_completion_completes() -> None:
    found = gnomon_process(_GNOMON_COMPLETE="bash_complete", COMP_WORDS="gnomon pro", COMP_CWORD="1")
    assert found.stdout.split() == ["plain,profile"]


def test_the_first_steps_fit_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if len(line) > 80] == []
    assert ".." not in printed.replace("[ARGS]...", ""), "nothing is cut"


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ({"device": "board", "address": "ssh://a"}, "On board (ssh://a), Cortex-A76; 4 threads."),
        ({"device": "local", "address": "local"}, "On local, Cortex-A76; 4 threads."),
        (None, "On Cortex-A76; 4 threads."),
    ],
)
def test_a_campaign_is_shown_with_its_device_and_threads(noted: dict[str, str] | None, told: str) -> None:
    context = Context(
        device={"cpu_model": "Cortex-A76"},
        versions={},
        model_digest="0",
        model_name="m",
        options={"threads": 4},
        seed=0,
        gnomon_version="1",
    )
    nothing: dict[str, Any] = {"running": False, "failed": None, "candidates": 0, "runs": 0, "failures": 0}
    row = CampaignRow(
        campaign=Campaign(id="0123", kind="place", key="0", context=context, started_at_s=0.0),
        finished=True,
        decision=None,
        **nothing,
    )
    events = (Event(name="lab", at_s=0.0, data=noted),) if noted else ()
    document = RunDocument(format="gnomon-run", version=1, clock="wall", row=row, candidates=(), events=events)
    file = io.StringIO()
    run_report(document, Page(file, width=80))
    assert told in file.getvalue().splitlines()


def test_a_shape_may_be_empty_as_the_past_of_a_decoders_first_call_is() -> None:
    assert shape("past=key=1,4,0,8") == ("past=key", (1, 4, 0, 8))

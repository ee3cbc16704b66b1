"""The command line at work: a small model measured by ONNX Runtime, interrupted, taken up, listed and exported."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.report.picture_kit import needs_drawing
from tests.shortkit import SHORTLY

import gnomon
from gnomon.cli.main import run
from gnomon.errors import UNDECIDED, PackageError
from gnomon.jobs.documents import read_document

onnx = pytest.importorskip("onnx", reason="onnx is not installed: no model can be made")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing can be measured")

SHORT = [sys.executable, "-c", f"{SHORTLY}from gnomon.cli.main import main; main()"]
COMMAND = [sys.executable, "-c", "from gnomon.cli.main import main; main()"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with model.onnx: a product and a Relu."""
    helper, value = onnx.helper, onnx.TensorProto.FLOAT
    weight = helper.make_tensor("w", value, [64, 64], [0.01 * (k % 7) - 0.02 for k in range(64 * 64)])
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Relu", ["h"], ["y"], name="relu"),
        ],
        "small",
        [helper.make_tensor_value_info("x", value, [8, 64])],
        [helper.make_tensor_value_info("y", value, [8, 64])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "GNOMON_HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}


def call(folder: Path, *args: str, command: Sequence[str] = COMMAND) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *args],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.usefixtures("short_visits", "confirmed")
def test_place_writes_a_package_and_the_record_tells_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(folder, "place", "model.onnx", "--runtime", "onnxruntime", "--processes", "1", "--json", command=SHORT)
    assert done.returncode in (0, UNDECIDED), done.stderr
    document = json.loads(done.stdout)
    # On a busy machine it is open whether several threads are faster, and the answer says so.
    code = UNDECIDED if "threads-undecided" in {doubt["kind"] for doubt in document["doubts"]} else 0
    assert done.returncode == code
    several = document["conditions"]["threads"]
    labels = [f"onnxruntime[threads={count}]" for count in several] if len(several) > 1 else ["onnxruntime"]
    assert {c["label"] for c in document["contenders"]} == {*labels, "onnxruntime[default]"}
    assert document["decision"]["default"]["label"] == "onnxruntime[default]"
    assert document["verified"]["ok"]
    assert document["package"] == "model.gnomon"
    assert document["record"] == str(folder / "home" / "record.sqlite")
    assert (folder / "model.gnomon" / "plan.json").is_file()
    assert all((folder / picture).is_file() for picture in document["pictures"])
    assert "gnomon: profile (" in done.stderr

    # What measures nothing needs no process of its own.
    monkeypatch.chdir(folder)
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    again = ["place", "model.onnx", "--runtime", "onnxruntime", "--processes", "1"]
    assert run(again) == code
    found = capsys.readouterr()
    assert "this is the answer of an earlier run" in found.err
    assert document["campaign"][:8] in found.out
    assert run([*again, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["contenders"] == document["contenders"]
    assert run([*again, "--seed", "3"]) == 9  # another question
    assert "exists already" in capsys.readouterr().err

    assert run(["place", "model.onnx", "--runtime", "onnxruntime", "--no-profile", "--no-package"]) in (0, UNDECIDED)
    assert "Proved" in (shown := capsys.readouterr().out) or "not run" in shown
    assert "because of --no-package, not kept" in shown
    assert not list((folder / "tmp").glob("gnomon-package-*"))
    assert run(["place", "model.onnx", "--no-package", "--out", "there"]) == 2

    def told(*args: str) -> str:
        assert run(["runs", *args]) == 0
        return capsys.readouterr().out

    assert json.loads(told("--json"))["more"] is False
    assert json.loads(told("show", "last", "--json"))["row"]["campaign"]["kind"] == "place"
    assert told("show", document["campaign"][:6])
    assert document["decision"]["reason"][:20] in told("show", "last")
    assert json.loads(told("export", "last", "--format", "answer"))["format"] == "gnomon-place"
    lines = told("export", document["campaign"]).splitlines()
    assert {json.loads(line)["type"] for line in lines} == {"campaign", "run", "event"}
    rows = list(csv.DictReader(told("export", document["campaign"], "--format", "csv").splitlines()))
    assert rows
    assert all(float(row["wall_s"]) > 0 for row in rows)


@pytest.mark.usefixtures("short_visits")
def test_python_and_the_command_give_one_answer_which_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_drawing()
    monkeypatch.chdir(folder)
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    few = ["--runtime", "onnxruntime", "-n", "1", "--processes", "1", "--budget", "1", "--out", "p", "--json"]
    assert run(["place", "model.onnx", *few]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["pictures"] == ["p/plan.svg", "p/plan.png"]
    assert run(["runs", "export", "last", "--format", "answer"]) == 0
    assert json.loads(capsys.readouterr().out) == printed

    how: dict[str, Any] = {"runtimes": ["onnxruntime"], "threads": 1, "processes": 1, "budget_s": 1, "out": "p"}
    heard: list[str] = []
    again = gnomon.place("model.onnx", **how, on_message=heard.append)
    assert again.document() == printed
    assert heard == ["this is the answer of an earlier run; --overwrite or --fresh measures again"]
    assert (again.decision.reason, again.package) == (printed["decision"]["reason"], "p")
    assert [row.planned for row in again.operators] == ["onnxruntime", "onnxruntime"]
    assert again.exit_code == 0 and "of model.onnx on local" in repr(again)
    with pytest.raises(PackageError, match="p exists already"):
        gnomon.place("model.onnx", **how, seed=3)

    fresh = gnomon.place("model.onnx", **how, overwrite=True)
    assert fresh.campaign != printed["campaign"]
    assert fresh.pictures == ("p/plan.svg", "p/plan.png")
    assert fresh.document() == gnomon.answer_of_run()
    assert run(["place", "model.onnx", *few]) == 0
    assert json.loads(capsys.readouterr().out) == fresh.document()
    assert gnomon.place("model.onnx", devices=["local"], **how).document() == fresh.document()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_an_interrupted_run_cleans_up_and_goes_on(number: signal.Signals, code: int, folder: Path) -> None:
    """Ctrl-C asks for the answer so far, which a signal that ends gnomon does not."""
    args = ["profile", "model.onnx", "--runtime", "onnxruntime", "-n", "1", "--processes", "2"]
    process = subprocess.Popen(
        [*SHORT, *args],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("gnomon: profile, traced"):
                break
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.stdout is not None
        answer = process.stdout.read()
        assert process.wait(60) == code
    if number == signal.SIGINT:
        assert "Ctrl-C: the answer so far follows" in rest
        assert "Warning: stopped by Ctrl-C after" in answer
    else:
        assert "interrupted: the measurements are kept, and the same command resumes" in rest
    assert list((folder / "tmp").iterdir()) == []
    if number == signal.SIGINT:  # what is kept does not depend on the signal
        done = call(folder, *args, "--json", command=SHORT)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["resumed"]


def test_runtimes_tells_what_is_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(call(folder, "runtimes", "--json").stdout)
    found = {row["name"]: row for row in document["runtimes"]}
    assert found["onnxruntime"]["installed"]
    assert found["onnxruntime"]["version"]
    assert all(row["installed"] or "-m pip install numpy " in row["install"] for row in found.values())
    known = read_document(document)
    monkeypatch.setattr("gnomon.api.devices.list_runtimes", lambda: known)  # asked once: it takes seconds
    assert run(["runtimes"]) == 0
    assert "onnxruntime" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full: no full disk to write to")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_under_the_standard_output_is_no_defect(more: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, "runs", *more], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 8
    assert done.stderr.startswith("error: the output cannot be written: No space left on device\nhint: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="not installed: prlimit (Debian: util-linux)")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_limit_on_the_size_of_files_is_no_defect(more: list[str], tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as small:
        words = ["prlimit", "--fsize=0", *COMMAND, "runs", *more]
        done = subprocess.run(words, stdout=small, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "ulimit -f" in done.stderr) == (8, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full: no full disk to write to")
def test_a_full_disk_under_the_standard_error_keeps_the_exit_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, "profile", str(tmp_path / "none.onnx")], stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (3, b"")

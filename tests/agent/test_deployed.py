"""A deployed plan, run as its reader runs it: its environment, its inputs, its outputs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agent.supervisorkit import HERE, ROGUE, segment
from tests.agent.supervisorkit import job as job_of

from gnomon.agent import deployed
from gnomon.agent.deployed import save_arrays
from gnomon.measure.link import packed_agent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose runtime is found only if PYTHONPATH was set before Python started."""
    (tmp_path / "gnomon-agent.pyz").write_bytes(packed_agent())
    write_plan(tmp_path, ROGUE)
    return tmp_path


def write_plan(folder: Path, environment: dict[str, str], options: dict[str, Any] | None = None, **more: Any) -> None:
    (folder / "m.bin").write_bytes(b"model")
    rogue = {**segment("x", "y", **(options or {})), "model": "m.bin"}
    job = {**job_of(), "segments": [rogue], "environment": environment}
    plan = {"format": "gnomon-plan", "version": 1, "files": {"m.bin": MODEL}, "job": job, **more}
    (folder / "plan.json").write_text(json.dumps(plan))


RUN = ("run", "plan.json", "--seconds")
MODEL = hashlib.sha256(b"model").hexdigest()
ALLOWED = [word for name in ("PYTHONPATH", "SOME_SETTING", "NEVER_THERE") for word in ("--allow", name)]


def run(
    folder: Path, *more: str, seconds: str = "0", allowed: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "gnomon-agent.pyz", *RUN, seconds, *(ALLOWED if allowed else ()), *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**inherited, **environment},
    )


def test_the_environment_is_there_before_the_process_starts(package: Path) -> None:
    done = run(package, "--output", "out.npz")
    assert done.returncode == 0, done.stderr
    told = {"shape": [2, 2], "dtype": "float32", "saved_as": "y"}
    assert json.loads(done.stdout)["outputs"] == {"y": told}
    drawn = np.random.default_rng([3, 0]).standard_normal((2, 2)).astype(np.float32)
    with np.load(package / "out.npz") as saved:
        assert saved["y"] == pytest.approx(2 * drawn)


COUNTING = """
import os
with open(os.path.join(os.path.dirname(__file__), "starts"), "a") as file:
    file.write(".")
os.environ.pop("NEVER_THERE", None)
"""


def test_it_starts_again_at_most_once(package: Path) -> None:
    site = package / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(COUNTING)
    path = f"{site}{os.pathsep}{HERE}"
    write_plan(package, {"PYTHONPATH": path, "SOME_SETTING": "1"})
    assert run(package, PYTHONPATH=path, SOME_SETTING="1").returncode == 0
    assert (site / "starts").read_text() == "."  # it has all that it needs
    assert run(package, PYTHONPATH=path, SOME_SETTING="2").returncode == 0
    assert (site / "starts").read_text() == "..."
    write_plan(package, {"PYTHONPATH": path, "NEVER_THERE": "1"})
    assert run(package, PYTHONPATH=path).returncode == 0
    assert (site / "starts").read_text() == "....."


def test_no_numpy_before_the_environment() -> None:
    code = "import sys, gnomon.agent.deployed; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_seconds_are_one_call(package: Path) -> None:
    told = json.loads(run(package).stdout)
    assert told["samples"] == 1
    assert told["median_ms"] > 0
    assert json.loads(run(package, seconds="0.01").stdout)["samples"] >= 5
    for wrong in ("-1", "nan"):
        assert run(package, f"--seconds={wrong}").returncode == 2


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


def test_a_missing_runtime_is_one_sentence_with_the_pip_line(package: Path) -> None:
    site = package / "site"
    (site / "openvino").mkdir(parents=True)
    (site / "openvino" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'openvino'\")")
    plan = json.loads((package / "plan.json").read_text())
    plan["job"] |= {"environment": {"PYTHONPATH": str(site)}}
    plan["job"]["segments"][0]["runtime"] = "openvino"
    plan |= {"requirements": ["numpy==2.1", "openvino==2026.4.1"]}
    (package / "plan.json").write_text(json.dumps(plan))
    told = one_line(run(package), 5)
    install = f"{sys.executable} -m pip install numpy==2.1 openvino==2026.4.1"
    assert told == f"No module named 'openvino': install what this plan needs with: {install}"
    assert "Traceback" in run(package, GNOMON_DEBUG="1").stderr


def test_a_missing_driver_of_a_third_party_is_told_apart_from_what_the_plan_lists(package: Path) -> None:
    plan = json.loads((package / "plan.json").read_text())
    plan["job"] |= {"environment": {}}
    plan["job"]["segments"][0]["runtime"] = "nobodys_package.driver:Driver"
    (package / "plan.json").write_text(json.dumps(plan | {"requirements": ["numpy==2.1"]}))
    told = one_line(run(package), 5)
    need = "No module named 'nobodys_package': install the package that has the driver of this plan's runtime"
    assert told == f"{need}, and the rest with: {sys.executable} -m pip install numpy==2.1"


def test_without_numpy_it_is_the_same_sentence(package: Path) -> None:
    """-S: no package is found at all."""
    write_plan(package, {}, requirements=["numpy==2.1"])
    command = [sys.executable, "-I", "-S", "gnomon-agent.pyz", "run", "plan.json"]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=60)
    told = one_line(done, 5)
    assert told.startswith("No module named 'numpy': install what this plan needs with: ")
    assert told.endswith("-m pip install numpy==2.1")


def test_a_runtime_that_refuses_is_one_sentence(package: Path) -> None:
    write_plan(package, ROGUE, {"how": "raise", "when": "load"})
    assert one_line(run(package), 7).startswith("the plan does not run here on rogue:Rogue: ")
    write_plan(package, ROGUE, {"how": "raise", "when": "run"})
    assert "Traceback" not in one_line(run(package), 7)


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (lambda p: p.update(format="other"), "has the format 'other', version 1, but this agent runs"),
    "no job": (lambda p: p.pop("job"), "has no job that can be run"),
    "no options": (lambda p: p["job"]["segments"][0].pop("options"), "has no job that can be run"),
    "odd runtime": (lambda p: p["job"]["segments"][0].update(runtime="../x:y"), "has no job that can be run"),
    "outside": (lambda p: p["job"]["segments"][0].update(model="../m.bin"), "which is outside its folder"),
    "absolute": (lambda p: p["job"]["segments"][0].update(model="/etc/hostname"), "which is outside its folder"),
    "linked": (lambda p: p["job"]["segments"][0].update(model="link"), "which is outside its folder"),
    "above": (lambda p: p["job"]["segments"][0].update(model=".."), "which is outside its folder"),
    "no files": (lambda p: p.pop("files"), "does not list its files"),
    "another file": (lambda p: p["files"].update({"m.bin": "0" * 64}), "'m.bin' is not the file that"),
    "missing": (lambda p: p["job"]["segments"][0].update(model="n.bin"), "needs 'n.bin', which is not among its files"),
    "gone": (lambda p: p["files"].update({"n.bin": "0" * 64}), "needs 'n.bin', which is missing"),
    "more files": (lambda p: p["files"].update({"/etc/hostname": "0" * 64}), "names the file"),
    "a linked file": (lambda p: p["files"].update({"link": "0" * 64}), "names the file 'link', which is outside its"),
    "no path": (lambda p: p["job"]["segments"][0].update(model="\0"), "names the model '\\x00', which is outside its"),
    "proved with a list": (lambda p: p.update(proved_with=[]), "has no job that can be run"),
    "odd requirements": (lambda p: p.update(requirements=[1]), "has no job that can be run"),
    "odd names": (
        lambda p: p["job"]["environment"].update({"A\x1b[2J": "1"}),
        "has variables that cannot be set",
    ),
    "fed": (lambda p: p["job"]["feeds"].update(x={"file": "/etc/hostname"}), "names input files"),
    "preloaded": (
        lambda p: p["job"]["environment"].update({"LD_PRELOAD": "\x1b[2J/tmp/x.so"}),
        r"sets 'LD_PRELOAD' to '\x1b[2J/tmp/x.so', which may make this process run other code",
    ),
    "a list": (lambda p: p["job"].update(environment=["PATH"]), "has variables that cannot be set"),
}


@pytest.fixture
def refusal(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What is said in this very process of a text in the place of the plan, which is refused before anything runs."""
    monkeypatch.chdir(package)
    monkeypatch.delattr(deployed, "renew")  # which would start this process again

    def refused(text: str) -> str:
        (package / "plan.json").write_text(text)
        assert deployed.run([*RUN[1:], "0", *ALLOWED]) == 9
        out, errors = capsys.readouterr()
        assert out == ""
        [line] = errors.splitlines()
        return line

    return refused


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_that_should_not_run_is_one_sentence(refusal: Callable[[str], str], package: Path, name: str) -> None:
    change, told = WRONG[name]
    (package / "link").symlink_to("/etc/hostname")
    plan = json.loads((package / "plan.json").read_text())
    change(plan)
    assert told in refusal(json.dumps(plan))


def test_what_is_no_plan_is_one_sentence(refusal: Callable[[str], str], package: Path) -> None:
    for text in ("", "{", "[]", "3", '{"format": "gnomon-plan"', "[" * 100_000, "\ufeff{"):
        assert "plan.json is " in refusal(text)
    (package / "plan.json").unlink()
    assert "plan.json cannot be read: No such file" in one_line(run(package), 9)
    os.mkfifo(package / "plan.json")
    assert "plan.json is not a regular file" in one_line(run(package), 9)


def test_variables_that_could_load_code_are_allowed_by_name(package: Path) -> None:
    told = one_line(run(package, allowed=False), 9)
    assert told.endswith("if you trust who wrote it, add --allow PYTHONPATH")
    assert run(package, "--allow", "PYTHONPATH", allowed=False).returncode == 0
    write_plan(package, {"OMP_NUM_THREADS": "2", "PYTHONPATH": str(HERE), "LD_AUDIT": "x.so"})
    assert "--allow PYTHONPATH --allow LD_AUDIT" in one_line(run(package, allowed=False), 9)


def test_what_differs_from_what_it_was_proved_with_is_told(package: Path) -> None:
    proved: dict[str, Any] = {
        "packages": {"numpy": np.__version__, "not-there": "1"},
        "python": platform.python_version(),
    }
    write_plan(package, ROGUE, proved_with=proved)
    done = run(package)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["proved_with"] == proved
    assert told["found"]["packages"] == {"numpy": np.__version__}
    proved |= {"packages": {"numpy": "\x1b[2J1.0"}, "python": "3.1.7"}
    write_plan(package, ROGUE, proved_with=proved)
    done = run(package)
    assert done.returncode == 0
    here = ".".join(platform.python_version_tuple()[:2])
    found = f"but this machine has {np.__version__} and {here}: times and outputs may differ\n"
    told = f"the plan was proved with numpy \\x1b[2J1.0 and Python 3.1, {found}"
    assert done.stderr == told


def test_an_input_that_does_not_fit_is_one_line(package: Path) -> None:
    np.save(package / "x.npy", np.full((2, 2), 1e300))
    for file in ("x.npy", "missing.npy"):
        done = run(package, "--input", f"x={file}")
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith(f"run: error: --input: input 'x': {file} ")
        assert "Traceback" not in done.stderr
    np.save(package / "x.npy", np.arange(4).reshape(2, 2))
    assert run(package, "--input", "x=x.npy", "--output", "out.npz").returncode == 0
    with np.load(package / "out.npz") as saved:
        assert saved["y"].tolist() == [[0, 2], [4, 6]]


def test_outputs_of_any_names_are_saved_apart(tmp_path: Path) -> None:
    names = ["a/b", "a_b", "a_b_2", "file", "self", "args", "", "../../up", "x", "x.npy", "x_npy", "é:0", "\0\n"]
    arrays: dict[str, Any] = {name: np.full(2, k) for k, name in enumerate(names)}
    saved_as = save_arrays(str(tmp_path / "out"), arrays)
    assert list(saved_as) == names
    assert saved_as["file"] == "file"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    with np.load(tmp_path / "out") as saved:
        assert sorted(saved.files) == sorted(saved_as.values())
        for name, array in arrays.items():
            assert "/" not in saved_as[name]
            assert saved[saved_as[name]].tolist() == array.tolist()

"""Packages of somebody else add a runtime by two files, a device by one, an objective by a row and a job by a folder,
each with one entry point: those that `gnomon new` writes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import gnomon
from gnomon.cli.main import cli, run
from gnomon.devices.local import LocalDevice
from gnomon.errors import ProblemError
from gnomon.jobs.documents import DOCUMENTS
from gnomon.measure.link import AgentLink
from gnomon.report import units
from gnomon.runtimes.base import Runtime
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session import objectives
from gnomon.testing.runtime import RuntimeContract

SOURCE = Path(gnomon.__file__).parent
OBJECTIVE = """
from gnomon.core.stats import Block
from gnomon.session.objectives import Goal


def loads(measured, clock):
    found = {run.process: run.facts["load_ns"] / 1e9 for run in measured.runs if "load_ns" in run.facts}
    return [Block(process=process, block=0, values_s=(value,)) for process, value in found.items()]


LOAD = Goal(name="load-time", unit="s", source="the time in which a fresh process loads the model", numbers=loads)
"""

KINDS = {"runtime": "numeric", "device": "board", "job": "wait"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that `gnomon new` writes, and in `site` as they are installed, with one that has an objective."""
    folder = tmp_path_factory.mktemp("packages")
    site = folder / "site"
    entries = {"somebody": {"gnomon.objectives": {"load-time": "somebody.objective:LOAD"}}}
    (site / "somebody").mkdir(parents=True)
    (site / "somebody" / "objective.py").write_text(OBJECTIVE)
    for kind, name in KINDS.items():
        assert run(["new", kind, name, "--out", str(folder / name)]) == 0
        (folder / name / name).rename(site / name)
        entries[name] = tomllib.loads((folder / name / "pyproject.toml").read_text())["project"]["entry-points"]
    for name, groups in entries.items():
        (about := site / f"{name}-1.dist-info").mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        lines = [f"[{group}]\n{key} = {value}\n" for group, rows in groups.items() for key, value in rows.items()]
        (about / "entry_points.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def package(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the packages are installed in, for one test."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield tmp_path / "site"
    for name in [name for name in sys.modules if name.partition(".")[0] in {"somebody", *KINDS.values()}]:
        del sys.modules[name]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model of one Relu."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy")
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")
    opset = [onnx.helper.make_opsetid("", 17)]
    graph = onnx.helper.make_graph([node], "small", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


class TestRuntimeOfSomebody(RuntimeContract):
    """Two files and one entry point, found by name."""

    @pytest.fixture
    def link(self, package: Path) -> Iterator[AgentLink]:
        with LocalDevice() as device, AgentLink(device) as opened_link:
            opened_link.paths.append(str(package))
            yield opened_link

    @pytest.fixture
    def adapter(self, package: Path) -> Runtime:
        (found,) = chosen_runtimes(("numeric",), "onnx")
        return found

    @pytest.fixture
    def path(self, small: Path) -> Path:
        return small


@pytest.mark.parametrize("kind", ["device", "job"])
def test_the_test_that_comes_with_a_package_passes(kind: str, package: Path) -> None:
    tests = package.parent / KINDS[kind] / "tests"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tests)]
    ended = subprocess.run(command, env=environment, cwd=tests, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "skipped" not in ended.stdout, ended.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["job", "place"], "the name place is taken"),
        (["runtime", "mnn"], "the name mnn is taken"),
        (["device", "json"], "the name json is taken"),
        (["device", "class"], "'class' cannot be the name of a device"),
        (["device", "my_board"], "'my_board' cannot be the name of a device"),
        (["job", "a/b"], "'a/b' cannot be the name of a job"),
        (["device", "b", "--out", "there"], "there exists already"),
    ],
)
def test_a_package_that_cannot_be_is_not_written(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert run(["new", *words]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_an_objective_is_one_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = objectives.GOALS[objectives.LATENCY].numbers
    goal = objectives.Goal(name="heat", unit="K", source="the warmest that the processor became", numbers=numbers)
    monkeypatch.setitem(objectives.GOALS, goal.name, goal)
    assert objectives.goals_of(("heat",)) == (goal,)
    assert goal.told_by(None) == goal.source
    assert units.value(312.25, goal.unit) == "312 K"
    assert run(["pareto", "--help"]) == 0
    assert "heat" in capsys.readouterr().out
    assert run(["pareto", "none.onnx", "--objective", "heat", "--under", "heat=80MB"]) == 2
    assert "heat: '80MB': give an amount in K, not in MB" in capsys.readouterr().err


@pytest.mark.usefixtures("short_visits")
def test_an_objective_of_somebody_is_searched_for(
    package: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gnomon.objectives()["load-time"] == "s"
    assert run(["pareto", "--help"]) == 0
    assert "load-time" in capsys.readouterr().out
    wanted = ["--objective", "latency", "--objective", "load-time", "--runtime", "onnxruntime"]
    wanted += ["-n", "1", "--processes", "2", "--iterations", "2"]
    assert run(["pareto", str(small), *wanted, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["objectives"]] == ["latency", "load-time"]
    assert all(point["estimates"][1]["value"] > 0 for point in document["points"] if point["estimates"])


def test_an_objective_of_somebody_that_is_none_is_refused(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "somebody" / "objective.py").write_text("LOAD = 1")
    assert run(["pareto", "none.onnx", "--objective", "load-time"]) == 2
    assert "Fix or remove the package that adds it (somebody.objective:LOAD)" in capsys.readouterr().err
    assert run(["pareto", "--help"]) == 0
    assert "load-time" in capsys.readouterr().out
    assert run(["pareto", "none.onnx", "--under", "latency=10ms"]) == 3  # there is no such model


@pytest.mark.usefixtures("short_visits")
def test_a_job_of_somebody_is_as_those_of_gnomon(
    package: Path, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> str:
        assert run(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    told = "Show how long a user waits for the first answer."
    assert f"wait  {told}" in said("--help").partition("From installed packages")[2]
    assert "--runtime NAME" in said("wait", "--help")
    document = json.loads(said("wait", str(small), "--runtime", "onnxruntime", "--json"))
    assert gnomon.read_document(document).configurations[0].wait_s > 0
    assert "wait" in said("schema").split()
    assert json.loads(said("schema", "wait"))["title"] == "gnomon-wait"
    row = document["configurations"][0]
    sentence = f"{row['configuration']} answers first after {units.value(row['wait_s'], 's')}."
    assert sentence in said("runs", "show", "last")
    assert json.loads(said("runs", "export", "last", "--format", "answer")) == document
    page = tmp_path / "page.html"
    said("report", "last", "-o", str(page))
    assert sentence in page.read_text()


def test_a_job_of_somebody_that_cannot_be_loaded_stands_in_nobodys_way(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "wait" / "__init__.py").write_text("import nowhere")
    assert run(["--help"]) == 0
    assert "the job wait cannot be loaded" in " ".join(capsys.readouterr().out.split())
    assert run(["schema"]) == 0
    assert "place" in capsys.readouterr().out.split()
    assert run(["schema", "wait"]) == 2
    said = capsys.readouterr().err
    assert "there is no document 'wait'" in said and "cannot be loaded (gnomon --help has the reasons): wait." in said
    with pytest.raises(ProblemError, match="its format is 'gnomon-wait'") as told:
        gnomon.read_document({"format": "gnomon-wait"})
    assert "cannot be loaded (gnomon --help has the reasons): wait." in told.value.hint
    completed = [item.value for item in cli.shell_complete(click.Context(cli, resilient_parsing=True), "")]
    assert "place" in completed and "wait" not in completed
    assert run(["wait"]) == 2
    assert "Fix or remove the package that adds it (wait:WAIT)" in capsys.readouterr().err
    assert run(["wai"]) == 2
    assert "Did you mean 'wait'?" in capsys.readouterr().err


@pytest.mark.usefixtures("short_visits")
def test_what_a_job_of_somebody_answered_is_read_without_it_as_runs(
    package: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["wait", str(small), "--runtime", "onnxruntime"]) == 0
    (package / "wait" / "report.py").write_text("import nowhere")
    sys.modules.pop("wait.report")
    capsys.readouterr()
    assert run(["runs", "show", "last"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "document wait cannot be loaded" in shown and "onnxruntime" in shown
    (package / "wait" / "__init__.py").write_text("import nowhere")
    sys.modules.pop("wait")
    assert run(["runs", "show", "last"]) == 0
    assert "its format is 'gnomon-wait'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["place", "cross-compile", "two words"])
def test_a_job_of_somebody_takes_no_name_of_gnomon(
    name: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "wait-1.dist-info" / "entry_points.txt").write_text(f"[gnomon.jobs]\n{name} = wait:WAIT\n")
    os.utime(package)
    assert run(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.partition("From installed packages")[2].split())
    assert f"{name} cannot be called: its name is taken" in told


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("__init__.py", "WAIT = 1", "the job wait must be of type gnomon.plugins.Job, not int"),
        ("job.py", "wait = 1", "the function of the command wait is not a function"),
        (
            "__init__.py",
            "from gnomon.plugins import Job\nWAIT = Job(commands=0, documents=0)",
            "needs a mapping of documents, and a mapping of commands that has",
        ),
    ],
)
def test_a_job_of_somebody_that_is_none_is_told(
    file: str, text: str, told: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "wait" / file).write_text(text)
    assert run(["wait"]) == 2
    assert told in capsys.readouterr().err


def test_a_document_of_somebody_that_is_none_is_told(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "wait" / "document.py").write_text("WaitDocument = int")
    assert run(["schema", "wait"]) == 2
    assert "document wait is not a dataclass" in capsys.readouterr().err
    with pytest.raises(ProblemError, match="is not a dataclass"):
        gnomon.read_document({"format": "gnomon-wait"})


def test_a_job_is_one_folder_behind_one_row_of_the_api_and_one_command_file() -> None:
    jobs = {path.parent.name for path in (SOURCE / "jobs").glob("*/job.py")}
    rooms: dict[str, set[str]] = {job: set() for job in jobs}
    for path in SOURCE.rglob("*.py"):
        for job in jobs.intersection(re.findall(r"gnomon\.jobs\.(\w+)", path.read_text())):
            rooms[job].add(path.relative_to(SOURCE).parts[0])
    commands = "".join(path.read_text() for path in (SOURCE / "cli" / "commands").glob("*.py"))
    reported = {job for job in jobs if any(f".jobs.{job}." in report for _, report in DOCUMENTS.values())}
    for job, found in rooms.items():
        assert found <= {"api", "builtin.py", "cli", "serving", "jobs", "templates"}, f"other rooms know the job {job}"
        assert "cli" in found or job in reported or f"api.{job} " in commands, f"no command shows the job {job}"

"""A package of somebody else adds a runtime by two files, a transport that is a shell by one, an objective by a row and
a job by a folder, a command's file and a function, each with one entry point.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import gnomon
from gnomon.cli.main import cli, run
from gnomon.devices.base import Device
from gnomon.devices.local import LocalDevice
from gnomon.devices.opening import opened, resolve
from gnomon.errors import ProblemError
from gnomon.jobs.documents import DOCUMENTS
from gnomon.measure.link import AgentLink
from gnomon.report import units
from gnomon.runtimes.base import Runtime
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session import objectives
from gnomon.testing.device import DeviceContract
from gnomon.testing.runtime import RuntimeContract

SOURCE = Path(gnomon.__file__).parent
RUNTIME = "somebody.driver:NumpyDriver"

ADAPTER = f'''
from gnomon.runtimes.base import Configuration, environment_variants
from gnomon.runtimes.whole import WholeModelRuntime, labelled, refuse_other_backends


class Numpy(WholeModelRuntime):
    name = "{RUNTIME}"
    wheels = ()

    def configurations(self, probe, wish):
        refuse_other_backends(self.name, wish)
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled("numpy", label),
                backends=("numpy",),
                options={{"threads": wish.threads}},
                environment=environment,
                reported={{"numpy": "numpy"}},
            )
            for label, environment in environment_variants(wish)
        )
'''

DRIVER = """
import time

import numpy
from gnomon_agent.driver import Refused


def relus(path):
    import onnx

    try:
        nodes = onnx.load(path).graph.node
    except Exception as error:
        raise Refused(str(error)) from error
    if any(node.op_type != "Relu" for node in nodes):
        raise Refused("it computes Relu alone")
    return [node.name for node in nodes]


class Model:
    def __init__(self, segment, buffers, profiled):
        self.names, self.times = relus(segment["model"]), []
        (_, source), = segment["inputs"]
        (_, target), = segment["outputs"]

        def call():
            begun = time.perf_counter_ns()
            numpy.maximum(buffers[source], 0, out=buffers[target])
            if profiled:
                self.times.append(time.perf_counter_ns() - begun)

        self.call = call

    def where(self):
        return [{"operators": self.names, "backend": "numpy"}]

    def operators(self, skip):
        return [{"name": "relu", "sources": self.names, "backend": "numpy", "wall_ns": self.times[skip:]}]

    def close(self):
        pass


class NumpyDriver:
    def probe(self):
        return {"version": numpy.__version__, "backends": ["numpy"]}

    def load(self, segment, buffers, *, profiled):
        return Model(segment, buffers, profiled)

    def supports(self, segment):
        relus(segment["model"])
        return {"whole": True}
"""

TRANSPORT = """
from pathlib import Path
from typing import ClassVar

from gnomon.devices.shell.bridge import BridgeDevice, bridge_settings
from gnomon.devices.shell.bridge_link import Bridge, BridgeSettings


class BoardSettings(BridgeSettings):
    bridge: ClassVar[Bridge] = Bridge(
        name="board", install="", places=('"$TMPDIR"', "/tmp"), cache='"${TMPDIR:-/tmp}"', states={"": "Start it."}
    )


def board_device(config, on_wait):
    return BridgeDevice(bridge_settings(BoardSettings, config), on_wait=on_wait)
"""

PROGRAM = """#!/bin/sh
[ "$1" = -s ] && shift 2
case "$1" in
devices) printf 'List of devices attached\\nhere\\tdevice\\n' ;;
shell) exec sh -c "$2" ;;
push | pull) cp "$2" "$3" ;;
esac
"""

OBJECTIVE = """
from gnomon.core.stats import Block
from gnomon.session.objectives import Goal


def loads(measured, clock):
    found = {run.process: run.facts["load_ns"] / 1e9 for run in measured.runs if "load_ns" in run.facts}
    return [Block(process=process, block=0, values_s=(value,)) for process, value in found.items()]


LOAD = Goal(name="load-time", unit="s", source="the time in which a fresh process loads the model", numbers=loads)
"""

JOB = """
from dataclasses import dataclass

from gnomon.report.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Answer):
    profile: object

    document_by = "somebody.wait.document:wait_document"

    def headline(self):
        return self.profile.document()["model"]["path"], "How long a user waits for the first answer."


def wait(profile):
    return Wait(profile=profile)
"""

DOCUMENT = """
from dataclasses import dataclass
from typing import Literal

from gnomon.core import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPart:
    configuration: str
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDocument:
    format: Literal["gnomon-wait"]
    version: Literal[1]
    model: str
    campaign: str
    record: str
    configurations: tuple[WaitPart, ...]


def wait_document(found):
    profile = found.profile.document()
    return codec.document(
        WaitDocument(
            format="gnomon-wait",
            version=1,
            model=profile["model"]["path"],
            campaign=profile["campaign"],
            record=profile["record"],
            configurations=tuple(
                WaitPart(configuration=row["label"], wait_s=row["load_s"] + row["first_call_s"])
                for row in profile["columns"]
            ),
        )
    )
"""

REPORT = """
from gnomon.report import units


def wait_report(document, page):
    for row in document.configurations:
        page.line(f"{row.configuration} answers first after {units.value(row.wait_s, 's')}.")
"""

API = """
from collections.abc import Sequence
from typing import Annotated

import gnomon
from gnomon.jobs.runs.answers import keep
from gnomon.options import option


def wait(
    model: Annotated[str, option(metavar="MODEL")],
    *,
    runtimes: Annotated[
        Sequence[str], option("--runtime", repeat=True, metavar="NAME", help="Runtimes that are measured.")
    ] = (),
    on_message=None,
):
    \"\"\"Measure how long each configuration takes to load MODEL and to answer once.\"\"\"
    from somebody.wait.job import wait as job

    found = job(gnomon.profile(model, runtimes=runtimes, processes=1))
    keep(found.document(), on_message)
    return found
"""

REGISTERED = """
from gnomon.options import CommandRow
from gnomon.plugins import Job

WAIT = Job(
    commands={"wait": CommandRow("somebody.api:wait", "Tell how long a user waits for the first answer.")},
    documents={"wait": ("somebody.wait.document:WaitDocument", "somebody.wait.report:wait_report")},
)
"""

ENTRY_POINTS = """[gnomon.runtimes]
numpy = somebody.adapter:Numpy

[gnomon.devices]
board = somebody.board:board_device

[gnomon.objectives]
load-time = somebody.objective:LOAD

[gnomon.jobs]
wait = somebody.wait:WAIT
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that somebody's package is installed in."""
    site = tmp_path / "site"
    files = {
        "somebody/__init__.py": "",
        "somebody/adapter.py": ADAPTER,
        "somebody/driver.py": DRIVER,
        "somebody/board.py": TRANSPORT,
        "somebody/objective.py": OBJECTIVE,
        "somebody/wait/__init__.py": REGISTERED,
        "somebody/wait/job.py": JOB,
        "somebody/wait/document.py": DOCUMENT,
        "somebody/wait/report.py": REPORT,
        "somebody/api.py": API,
        "somebody-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: somebody\nVersion: 1\n",
        "somebody-1.dist-info/entry_points.txt": ENTRY_POINTS,
        "bin/board": PROGRAM,
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "bin" / "board").chmod(0o755)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PATH", f"{site / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "somebody"]:
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
        (found,) = chosen_runtimes((RUNTIME,), "onnx")
        return found

    @pytest.fixture
    def path(self, small: Path) -> Path:
        return small


class TestShellOfSomebody(DeviceContract):
    """One file and one entry point, found by its address."""

    @pytest.fixture
    def device(self, package: Path) -> Iterator[Device]:
        with opened(resolve("board:")) as device:
            yield device


@pytest.fixture
def goal(monkeypatch: pytest.MonkeyPatch) -> objectives.Goal:
    """A row more in the table."""
    made = objectives.Goal(
        name="heat",
        unit="K",
        source="the warmest that the processor became",
        numbers=objectives.GOALS[objectives.LATENCY].numbers,
    )
    monkeypatch.setitem(objectives.GOALS, made.name, made)
    return made


def test_an_objective_is_one_row(goal: objectives.Goal, capsys: pytest.CaptureFixture[str]) -> None:
    assert objectives.goals_of(("heat",)) == (goal,)
    assert goal.told_by(None) == "the warmest that the processor became"
    assert units.value(312.25, goal.unit) == "312 K"
    assert run(["pareto", "--help"]) == 0
    assert "heat" in capsys.readouterr().out


def test_a_bound_of_a_new_objective_is_in_no_other_unit(
    goal: objectives.Goal, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pareto", "none.onnx", "--objective", "heat", "--under", "heat=80MB"]) == 2
    assert "heat is not measured in MB" in capsys.readouterr().err


def test_an_objective_of_somebody_is_searched_for(
    package: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gnomon.objectives()["load-time"] == "s"
    assert run(["pareto", "--help"]) == 0
    assert "load-time" in capsys.readouterr().out
    wanted = [
        *("--objective", "latency", "--objective", "load-time"),
        "--runtime",
        "onnxruntime",
        "-n",
        "1",
        "--iterations",
        "4",
    ]
    assert run(["pareto", str(small), *wanted, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["objectives"]] == ["latency", "load-time"]
    assert all(point["estimates"][1]["value"] > 0 for point in document["points"] if point["estimates"])


def test_an_objective_of_somebody_that_is_none_is_refused(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "somebody" / "objective.py").write_text("LOAD = 1")
    assert run(["pareto", "none.onnx", "--objective", "load-time"]) == 2
    assert "Mend or remove the package that adds it (somebody.objective:LOAD)" in capsys.readouterr().err
    assert run(["pareto", "--help"]) == 0
    assert "load-time" in capsys.readouterr().out
    assert run(["pareto", "none.onnx", "--under", "latency=10ms"]) == 3  # there is no such model


def test_a_job_of_somebody_is_as_those_of_gnomon(
    package: Path, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> str:
        assert run(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    told = "Tell how long a user waits for the first answer."
    assert f"wait  {told}" in said("--help").partition("Of installed packages")[2]
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
    (package / "somebody" / "wait" / "__init__.py").write_text("import nowhere")
    assert run(["--help"]) == 0
    assert "the job wait cannot be loaded" in " ".join(capsys.readouterr().out.split())
    assert run(["schema"]) == 0
    assert "place" in capsys.readouterr().out.split()
    assert run(["schema", "wait"]) == 2
    said = capsys.readouterr().err
    assert "there is no document 'wait'" in said and "cannot be loaded (wait): gnomon --help tells why" in said
    with pytest.raises(ProblemError, match="its format is 'gnomon-wait'") as told:
        gnomon.read_document({"format": "gnomon-wait"})
    assert "cannot be loaded (wait)" in told.value.hint
    completed = [item.value for item in cli.shell_complete(click.Context(cli, resilient_parsing=True), "")]
    assert "place" in completed and "wait" not in completed
    assert run(["wait"]) == 2
    assert "Mend or remove the package that adds it (somebody.wait:WAIT)" in capsys.readouterr().err
    assert run(["wai"]) == 2
    assert "Did you mean 'wait'?" in capsys.readouterr().err


def test_what_a_job_of_somebody_answered_is_read_without_it_as_runs(
    package: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["wait", str(small), "--runtime", "onnxruntime"]) == 0
    (package / "somebody" / "wait" / "report.py").write_text("import nowhere")
    sys.modules.pop("somebody.wait.report")
    capsys.readouterr()
    assert run(["runs", "show", "last"]) == 0
    shown = capsys.readouterr().out
    assert "the report wait cannot be loaded" in shown and "onnxruntime" in shown
    (package / "somebody" / "wait" / "__init__.py").write_text("import nowhere")
    sys.modules.pop("somebody.wait")
    assert run(["runs", "show", "last"]) == 0
    assert "its format is 'gnomon-wait'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["place", "view", "cross-compile", "two words", "--help"])
def test_a_job_of_somebody_takes_no_name_of_gnomon(
    name: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "somebody-1.dist-info" / "entry_points.txt").write_text(f"[gnomon.jobs]\n{name} = somebody.wait:WAIT\n")
    os.utime(package)
    assert run(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.partition("Of installed packages")[2].split())
    assert f"{name} cannot be called: the name is taken" in told


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("wait/__init__.py", "WAIT = 1", "the job wait is not a gnomon.plugins.Job, but of type int"),
        ("api.py", "wait = 1", "the function of the command wait is not a function"),
        ("wait/__init__.py", REGISTERED.replace("{", "0 and {"), "has no mapping of documents, or none of commands"),
    ],
)
def test_a_job_of_somebody_that_is_none_is_told(
    file: str, text: str, told: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "somebody" / file).write_text(text)
    assert run(["wait"]) == 2
    assert told in capsys.readouterr().err


def test_a_document_of_somebody_that_is_none_is_told(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "somebody" / "wait" / "document.py").write_text("WaitDocument = int")
    assert run(["schema", "wait"]) == 2
    assert "the document wait is not a dataclass" in capsys.readouterr().err
    with pytest.raises(ProblemError, match="is not a dataclass"):
        gnomon.read_document({"format": "gnomon-wait"})


def test_a_job_is_one_folder_behind_one_row_of_the_api_and_one_command_file() -> None:
    jobs = {path.parent.name for path in (SOURCE / "jobs").glob("*/job.py")}
    rooms: dict[str, set[str]] = {job: set() for job in jobs}
    for path in SOURCE.rglob("*.py"):
        for job in jobs.intersection(re.findall(r"gnomon\.jobs\.(\w+)", path.read_text())):
            rooms[job].add(path.relative_to(SOURCE).parts[0])
    reported = {job for job in jobs if any(f".jobs.{job}." in report for _, report in DOCUMENTS.values())}
    for job, found in rooms.items():
        assert found <= {"api", "builtin.py", "cli", "serving", "jobs"}, f"other rooms know the job {job}"
        assert "cli" in found or job in reported, f"no command shows the job {job}"

"""A package of somebody else adds a runtime by two files, a transport that is a shell by one, an objective by a row."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gnomon
from gnomon.cli.main import run
from gnomon.devices.base import Device
from gnomon.devices.local import LocalDevice
from gnomon.devices.opening import opened, resolve
from gnomon.jobs.documents import REPORTS
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

ENTRY_POINTS = """[gnomon.runtimes]
numpy = somebody.adapter:Numpy

[gnomon.devices]
board = somebody.board:board_device
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that somebody's package is installed in."""
    site = tmp_path / "site"
    files = {
        "somebody/__init__.py": "",
        "somebody/adapter.py": ADAPTER,
        "somebody/driver.py": DRIVER,
        "somebody/board.py": TRANSPORT,
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
    return site


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
    def path(self, tmp_path: Path) -> Path:
        onnx = pytest.importorskip("onnx", reason="onnx is not installed")
        x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy")
        node = onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")
        opset = [onnx.helper.make_opsetid("", 17)]
        graph = onnx.helper.make_graph([node], "small", [x], [y])
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "small.onnx")
        return tmp_path / "small.onnx"


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


def test_a_job_is_one_folder_behind_one_row_of_the_api_and_one_command_file() -> None:
    jobs = {path.parent.name for path in (SOURCE / "jobs").glob("*/job.py")}
    rooms: dict[str, set[str]] = {job: set() for job in jobs}
    for path in SOURCE.rglob("*.py"):
        for job in jobs.intersection(re.findall(r"gnomon\.jobs\.(\w+)", path.read_text())):
            rooms[job].add(path.relative_to(SOURCE).parts[0])
    reported = {job for job in jobs if any(f"gnomon.jobs.{job}." in address for address in REPORTS.values())}
    for job, found in rooms.items():
        assert found <= {"api", "__init__.py", "cli", "serving", "jobs"}, f"other rooms know the job {job}"
        assert "cli" in found or job in reported, f"no command shows the job {job}"

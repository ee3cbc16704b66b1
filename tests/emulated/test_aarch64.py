"""An aarch64 onert, driven by gnomon under user-mode emulation. No time that was taken there is judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agent.governorkit import Board
from tests.agent.jobkit import job_of
from tests.emulated.armkit import Emulated
from tests.processkit import becomes

from gnomon.core.sample import Failure
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.local import LocalDevice
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.runtimes.base import Configuration, Probe, RunSettings
from gnomon.runtimes.onert import Onert
from gnomon.session.model import place_model
from gnomon.session.request import ModelRequest
from gnomon.store.address import default_path
from gnomon.store.base import CampaignQuery
from gnomon.store.sqlite import SqliteStore

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        os.environ.get("GNOMON_EMULATED") != "1", reason="GNOMON_EMULATED=1 is not set: minutes, and 45 MB to download"
    ),
]

Zoo = Callable[[str], Path]
Outputs = dict[str, np.ndarray[Any, np.dtype[Any]]]
CORE = min(os.sched_getaffinity(0))
SEEDS = [0, 1]
ONCE = Effort(processes_least=1, processes_most=1, rounds=1, block_s=0.01, warm_s=0.005, laggard=1e9, timeout_s=300.0)


@pytest.fixture
def board(arm: Emulated) -> Iterator[LocalDevice]:
    """This machine, with the other architecture's Python."""
    with LocalDevice("board", python=str(arm.python), environment={"PYTHONPATH": str(arm.packages)}) as device:
        yield device


def events_of(link: AgentLink, candidates: list[Any]) -> list[Any]:
    events: list[Any] = []
    link.request({**ONCE.request(), "seed": 0, "candidates": candidates}, events.append, timeout_s=1200)
    failures = [event["message"] + event["log_tail"] for event in events if event["event"] == "failure"]
    assert not failures
    return events


def job(device: LocalDevice, model: Path, assignment: dict[int, str]) -> dict[str, Any]:
    """A model of the zoo under an assignment, through onert's own adapter."""
    placed = place_model(load(model), model, device.push)
    onert = Configuration(runtime="onert", name="onert", backends=("cpu", "ruy"), options={"threads": 1})
    return job_of(placed.graph, Onert().segment(placed, onert, assignment))


def native_reference(model: Path, folder: Path) -> Path:
    """The outputs of this machine's own onert, all operators on cpu."""
    with LocalDevice() as here, AgentLink(here, timeout_s=300) as link:
        answer = link.ask({"onert": {"do": "probe", "runtime": "onert"}})["onert"]
        if isinstance(answer, Failure):
            pytest.skip(f"onert is not installed for this machine itself: {answer.message}")
        opening: dict[str, Any] = {"job": job(here, model, {}), "save": "reference.npz", "seeds": SEEDS}
        events_of(link, [{"key": "reference", "open": opening, "visits": []}])
        here.pull("reference.npz", folder / "reference.npz")
    return folder / "reference.npz"


def test_the_device_says_what_it_is(board: LocalDevice) -> None:
    found = board.describe().fingerprint
    assert (found["machine"], found["libc"], found["python"][:4]) == ("aarch64", "glibc 2.36", "3.11")
    assert board.describe().fingerprint == found


def test_the_agent_probes_onert(board: LocalDevice) -> None:
    with AgentLink(board, timeout_s=300) as link:
        answer = link.ask({"onert": {"do": "probe", "runtime": "onert"}})["onert"]
    assert not isinstance(answer, Failure)
    assert answer["backends"] == ["cpu", "ruy", "train"]
    configurations = Onert().configurations(
        Probe(version=answer["version"], backends=("cpu", "ruy")), RunSettings(threads=1)
    )
    assert [c.backends for c in configurations] == [("cpu", "ruy")]


def test_a_mixed_plan_runs_where_it_says_and_computes_the_same(
    board: LocalDevice, zoo_model: Zoo, tmp_path: Path
) -> None:
    model = zoo_model("mix.circle")
    reference = native_reference(model, tmp_path)
    operators = load(model).graph.operators
    moved = [op.index for op in operators if op.type in ("CONV_2D", "FULLY_CONNECTED")][::2]
    assert moved
    plans: dict[str, dict[int, str]] = {"cpu": {}, "mixed": dict.fromkeys(moved, "ruy")}
    with AgentLink(board, timeout_s=300, machine={"pin": [CORE]}) as link:
        check = {"check": board.push(reference, reference.name), "seeds": SEEDS}
        openings: dict[str, dict[str, Any]] = {k: {"job": job(board, model, p), **check} for k, p in plans.items()}
        openings["proof"] = {**openings["mixed"], "profiled": True}
        candidates = [
            {"key": key, "tolerance": 1e-3, "calls_least": 3, "open": opening, "visits": [0]}
            for key, opening in openings.items()
        ]
        events = events_of(link, candidates)
    opened = {event["candidate"]: event for event in events if event["event"] == "opened"}
    assert opened.keys() == openings.keys()
    assert all(event["difference"]["relative"] < 1e-3 for event in opened.values())
    blocks = {event["candidate"]: event for event in events if event["event"] == "block"}
    places = {row["sources"][0]: row["backend"] for row in blocks["proof"]["operators"]}
    assert places == {op.index: "ruy" if op.index in moved else "cpu" for op in operators}
    (environment,) = (event["data"] for event in events if event["event"] == "environment")
    assert environment["settings"] == {"pin": [CORE]}
    assert environment["before"]["cores"] == 1


def test_a_governor_is_put_back_after_kill_9_there_too(arm: Emulated, tmp_path: Path) -> None:
    made_up = Board(folder=tmp_path, python=str(arm.python), paths=str(arm.packages))
    with made_up.running({"governor": "performance"}) as process:
        assert "performance" in made_up.governors()
        os.killpg(process.pid, signal.SIGKILL)
        assert becomes(lambda: made_up.governors() == ["ondemand", "ondemand"])
        assert becomes(lambda: not made_up.wardens())


def run_package(folder: Path, python: str, packages: Path | None, output: str) -> Outputs:
    """A package's outputs, by its own agent and any Python."""
    command = [python, "gnomon-agent.pyz", "run", "plan.json", "--output", output, "--seconds", "0"]
    environment = {**os.environ, **({"PYTHONPATH": str(packages)} if packages else {})}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    with np.load(folder / output, allow_pickle=False) as saved:
        return {name: saved[name] for name in saved.files}


def test_place_from_the_first_probe_to_the_package(arm: Emulated, zoo_model: Zoo, tmp_path: Path) -> None:
    device = DeviceConfig(
        name="board",
        address=parse_address("local"),
        python=str(arm.python),
        environment={"PYTHONPATH": str(arm.packages)},
    )
    request = ModelRequest(model=zoo_model("mix.circle"), device=device, effort=ONCE, runtimes=("onert",))
    found = place(request, tmp_path / "package")
    assert found.verified.ok, found.verified
    assert found.fingerprint["machine"] == "aarch64"
    assert {contender.label for contender in found.contenders} >= {"onert:cpu", "onert: plan"}
    assert all(contender.failure is None for contender in found.contenders)
    assert all(row.ran_on == row.planned for row in found.operators)
    assert all(solution.optimal for solution in found.solutions.values())
    with SqliteStore.open(default_path()) as store:
        (campaign,) = store.query(CampaignQuery())
    assert campaign.context.device["machine"] == "aarch64"
    plan = json.loads((tmp_path / "package/plan.json").read_text())
    assert [op["backend"] for op in plan["operators"]] == [row.planned for row in found.operators]
    there = run_package(tmp_path / "package", str(arm.python), arm.packages, "there.npz")
    here = run_package(tmp_path / "package", sys.executable, None, "here.npz")
    assert there.keys() == here.keys()
    for name, value in here.items():
        assert np.abs(there[name] - value).max() <= 1e-3 * np.abs(value).max()

"""Measuring by a runtime's program in the agent's place: the stand-in for onert_run, on this machine as the device."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agent import jobkit
from tests.standins.programkit import native, stand_in

from gnomon.core.sample import Failure, Run, Samples
from gnomon.devices.local import LocalDevice
from gnomon.errors import AgentError
from gnomon.measure import program
from gnomon.measure.effort import Effort, cpu_tells
from gnomon.measure.link import REFERENCE, AgentLink, compute_reference
from gnomon.measure.program import ProgramLink
from gnomon.models.load import load
from gnomon.runtimes.onert import OnertProgram
from gnomon.wire import Machine

Zoo = Callable[[str], Path]
CPU = {"settings": {"BACKENDS": "cpu"}, "threads": 1}


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    native()
    stand_in(folder)
    return folder


@pytest.fixture
def device(bin_folder: Path) -> Iterator[LocalDevice]:
    environment = {"ONERT_RUN": str(bin_folder / "onert_run"), "LD_LIBRARY_PATH": str(native())}
    with LocalDevice(environment=environment) as opened:
        yield opened


@pytest.fixture
def link(device: LocalDevice) -> Iterator[ProgramLink]:
    with ProgramLink(device, programs={"onert": OnertProgram()}) as opened:
        yield opened


def job_of(model: Path, options: dict[str, Any] = CPU, feeds: dict[str, Any] | None = None) -> Any:
    graph = load(model).graph
    segment = {"runtime": "onert", "model": str(model), "options": options, **jobkit.bound(graph)}
    return jobkit.job_of(graph, segment, feeds=feeds)


def request_of(candidates: list[Any], rounds: int = 2, **more: Any) -> Any:
    warm: Any = {"warm_count": 1, "warm_s": 0.0, "rewarm_s": 0.0}
    effort = Effort(rounds=rounds, block_s=0.005, samples_most=50, laggard=math.inf, timeout_s=30.0, **warm)
    return {**effort.request(), "seed": "s", "candidates": candidates, **more}


def candidate(key: str, job: Any, **more: Any) -> Any:
    opening = {"job": job, "profiled": more.pop("profiled", False), **more.pop("open", {})}
    return {"key": key, "tolerance": 1e-4, "calls_least": 5, "visits": [0, 1], "open": opening, **more}


def asked(link: ProgramLink, request: Any) -> list[Any]:
    events: list[Any] = []
    link.request(request, events.append, timeout_s=120)
    return events


def named(events: list[Any], kind: str) -> list[Any]:
    return [e for e in events if e["event"] == kind]


def test_it_probes_and_says_what_has_no_program(link: ProgramLink) -> None:
    answers = link.ask({"o": {"do": "probe", "runtime": "onert"}, "l": {"do": "probe", "runtime": "litert"}})
    assert not isinstance(answers["o"], Failure)
    assert {"cpu", "ruy"} <= set(answers["o"]["backends"])
    assert answers["o"]["version"].count(".") == 2
    assert isinstance(answers["l"], Failure)
    assert "can use only the programs of" in answers["l"].message


def test_it_finds_what_a_backend_takes_as_the_agent_does(
    link: ProgramLink, device: LocalDevice, zoo_model: Zoo
) -> None:
    model = zoo_model("mix.circle")
    types: dict[str, list[int]] = {}
    for operator in load(model).graph.operators:
        types.setdefault(operator.type, []).append(operator.index)
    commands: Any = {
        backend: {
            "do": "supports",
            "segment": {
                "runtime": "onert",
                "model": str(model),
                "options": {"threads": 1, "backend": backend, "default": "cpu", "types": types, "moved": {}},
            },
        }
        for backend in ("cpu", "ruy")
    }
    with AgentLink(device) as agent:
        assert link.ask(commands) == agent.ask(commands)


def test_what_cannot_be_kept_on_this_machine_is_one_clear_error() -> None:
    with pytest.raises(AgentError, match="stored on this machine: No space left") as told, program.files_judged():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "Free space" in told.value.hint


def test_its_reference_is_the_agents(link: ProgramLink, device: LocalDevice, zoo_model: Zoo, tmp_path: Path) -> None:
    """The same inputs by the seed, and the same outputs: either checks what the other computed."""
    job = job_of(zoo_model("mix.circle"))
    found, failure = compute_reference(link, job, [0, 1], timeout_s=60)
    assert failure is None
    assert found is not None
    with AgentLink(device) as agent:
        theirs, _ = compute_reference(agent, job, [0, 1], timeout_s=60)
    device.pull(REFERENCE, tmp_path / "theirs.npz")
    assert theirs is not None
    assert found["relative"] == pytest.approx(theirs["relative"], rel=1e-5)
    with ProgramLink(device, programs={"onert": OnertProgram()}) as fresh:
        events = asked(fresh, request_of([candidate("c", job, open={"check": REFERENCE, "seeds": [0, 1]})]))
    assert not named(events, "failure")
    (opened,) = named(events, "opened")
    assert opened["difference"]["relative"] < 1e-6


def test_a_block_is_samples_of_whole_runs_by_the_wall(link: ProgramLink, zoo_model: Zoo) -> None:
    job = job_of(zoo_model("mix.circle"))
    events = asked(link, request_of([candidate("a", job), candidate("b", job)]))
    assert sorted((e["candidate"], e["block"]) for e in named(events, "block")) == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    for event in named(events, "block"):
        assert len(event["wall_ns"]) == len(event["cpu_ns"]) >= 2
        assert min(event["wall_ns"]) > 0
        assert set(event["cpu_ns"]) == {0}
    samples = Samples(wall_ns=(1000, 1100), cpu_ns=(0, 0))
    assert not cpu_tells([Run(candidate="a", process=0, block=0, started_at_s=0.0, samples=samples)])
    (machine,) = named(events, "environment")
    assert machine["data"]["before"]["memory_available_bytes"] > 0
    assert "pid" not in machine["data"]["before"]
    assert events[-1]["event"] == "environment"


def test_a_profiled_process_tells_where_each_operator_ran(link: ProgramLink, zoo_model: Zoo) -> None:
    model = zoo_model("mix.circle")
    convolutions = [op.index for op in load(model).graph.operators if op.type == "CONV_2D"][3:6]
    settings = {"BACKENDS": "cpu;ruy", "OP_BACKEND_MAP": "".join(f"{i}=ruy;" for i in convolutions)}
    job = job_of(model, {"threads": 1, "settings": settings})
    events = asked(link, request_of([candidate("p", job, profiled=True)]))
    (block,) = named(events, "block")
    rows = {row["sources"][0]: row for row in block["operators"]}
    assert sorted(rows) == list(range(len(load(model).graph.operators)))
    assert [i for i, row in rows.items() if row["backend"] == "ruy"] == convolutions
    assert {len(row["wall_ns"]) for row in rows.values()} == {len(block["wall_ns"])}
    assert len(block["wall_ns"]) >= 5


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [("crash", "crash", "SIGSEGV"), ("hang", "hang", "killed"), ("status", "refused", "out of luck")],
)
def test_one_that_fails_leaves_the_others_alone(
    link: ProgramLink, zoo_model: Zoo, fault: str, kind: str, said: str
) -> None:
    job = job_of(zoo_model("mix.circle"))
    bad = candidate("bad", job, environment={"STANDIN_FAULT": fault})
    events = asked(link, request_of([bad, candidate("good", job)], timeout_s=3))
    (failure,) = named(events, "failure")
    assert (failure["candidate"], failure["stage"], failure["kind"]) == ("bad", "load", kind)
    assert said in failure["message"]
    assert [e["candidate"] for e in named(events, "block")] == ["good", "good"]


def test_wrong_outputs_are_refused(link: ProgramLink, zoo_model: Zoo) -> None:
    job = job_of(zoo_model("mix.circle"))
    _, failure = compute_reference(link, job, [0, 1], timeout_s=60)
    assert failure is None
    check = {"check": REFERENCE, "seeds": [0, 1]}
    bad = candidate("bad", job, environment={"STANDIN_FAULT": "wrong"}, open=check)
    events = asked(link, request_of([bad, candidate("good", job, open=check)]))
    (refusal,) = named(events, "failure")
    assert (refusal["candidate"], refusal["stage"], refusal["kind"]) == ("bad", "check", "wrong-output")
    assert {e["candidate"] for e in named(events, "block")} == {"good"}


def test_a_program_that_tells_only_the_mean_gives_one_sample(link: ProgramLink, zoo_model: Zoo) -> None:
    job = job_of(zoo_model("mix.circle"))
    events = asked(link, request_of([candidate("c", job, environment={"STANDIN_FAULT": "silent"})], rounds=1))
    (block,) = named(events, "block")
    assert len(block["wall_ns"]) == 1
    assert block["inner"] > 1


def test_the_order_is_the_seeds(link: ProgramLink, zoo_model: Zoo) -> None:
    job = job_of(zoo_model("mix.circle"))
    candidates = [candidate(key, job) for key in "abcd"]

    def order(seed: str) -> list[str]:
        return [e["candidate"] for e in asked(link, request_of(candidates, rounds=1, seed=seed)) if "candidate" in e]

    first = order("1")
    assert sorted(first) == sorted("abcd" * 2)
    assert order("1") == first


def test_an_input_from_a_file_is_used_or_refused(link: ProgramLink, zoo_model: Zoo, tmp_path: Path) -> None:
    model = zoo_model("mix.circle")
    (name,) = job_of(model)["feeds"]
    shape = job_of(model)["tensors"][name]["shape"]
    np.save(tmp_path / "good.npy", np.ones(shape, np.float32))
    np.save(tmp_path / "bad.npy", np.ones((1, 2), np.float32))
    good = job_of(model, feeds={name: {"file": str(tmp_path / "good.npy")}})
    _, failure = compute_reference(link, good, [0, 1], timeout_s=60)
    assert failure is None
    bad = job_of(model, feeds={name: {"file": str(tmp_path / "bad.npy")}})
    _, failure = compute_reference(link, bad, [0, 1], timeout_s=60)
    assert failure is not None
    assert failure.message.startswith("InputError: ")


def test_a_chain_is_refused(link: ProgramLink, zoo_model: Zoo) -> None:
    job = job_of(zoo_model("mix.circle"))
    (failure,) = named(asked(link, request_of([candidate("c", {**job, "segments": job["segments"] * 2})])), "failure")
    assert "chain" in failure["message"]


@pytest.mark.parametrize("machine", [{"governor": "performance"}, {"pin": [100_000]}])
def test_settings_that_cannot_be_had_are_told_and_nothing_runs(
    device: LocalDevice, zoo_model: Zoo, machine: Machine
) -> None:
    with ProgramLink(device, programs={"onert": OnertProgram()}, machine=machine) as link:
        events = asked(link, request_of([candidate("c", job_of(zoo_model("mix.circle")))]))
    (refusal,) = events
    assert (refusal["stage"], refusal["candidate"]) == ("settings", "")
    assert refusal["hint"]


def test_no_runtime_is_loaded_for_it() -> None:
    code = (
        "import sys, gnomon.measure.program, gnomon.runtimes.onert; "
        "sys.exit(bool({'onert', 'gnomon_agent'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

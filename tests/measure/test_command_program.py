"""Commands on a device without Python: their programs alone are there, and this machine reads what they print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.jobkit import bound, job_of, placed_here
from tests.measure.test_program_link import asked, candidate, named, request_of
from tests.models import modelkit

from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.measure.link import AgentLink, compute_reference
from gnomon.measure.program import ProgramLink
from gnomon.runtimes.base import PlacedModel, Probe, RunSettings
from gnomon.runtimes.commands import CommandProgram, CommandRuntime
from gnomon.runtimes.declared import Declaration

SCRIPT = (
    'n=$2; while [ $n -gt 0 ]; do echo "took 1.5 ms"; n=$((n - 1)); done; '
    'cat "$1" > copy; [ -z "$3" ] || cp "$3.0" outputs.0'
)
"""A program that reports 1.5 ms a call, and whose outputs are its inputs."""


@pytest.fixture
def device() -> Iterator[LocalDevice]:
    with LocalDevice() as opened:
        yield opened


@pytest.fixture
def link(device: LocalDevice) -> Iterator[ProgramLink]:
    with ProgramLink(device, programs={"command": CommandProgram()}) as opened:
        yield opened


@pytest.fixture
def placed(tmp_path: Path) -> PlacedModel:
    """A model whose output is its input."""
    ends = [modelkit.value("x", (2, 3))], [modelkit.value("y", (2, 3))]
    return placed_here(
        modelkit.save(modelkit.model([modelkit.node("Identity", ["x"], ["y"])], *ends), tmp_path / "m.onnx")
    )


def command(script: str = SCRIPT, **more: Any) -> CommandRuntime:
    words = ("sh", "-c", script, "sh", "{model}", "{runs}", "{inputs}")
    return CommandRuntime(Declaration(name="c", **{"run": words, "read": "took (?P<ms>[0-9.]+) ms", **more}))


def job(runtime: CommandRuntime, placed: PlacedModel) -> dict[str, Any]:
    configuration = runtime.configurations(Probe(version="", backends=()), RunSettings())[0]
    return job_of(placed.graph, runtime.segment(placed, configuration, {}))


def test_the_times_of_its_calls_are_read_here(link: ProgramLink, placed: PlacedModel) -> None:
    events = asked(link, request_of([candidate("c", job(command(), placed))]))
    assert not named(events, "failure")
    inner = {tuple(e["wall_ns"]) == (1_500_000 * e["inner"],) * len(e["wall_ns"]) for e in named(events, "block")}
    assert inner == {True}


def test_the_mean_of_its_calls_is_one_sample(link: ProgramLink, placed: PlacedModel) -> None:
    events = asked(link, request_of([candidate("c", job(command(each="mean"), placed))]))
    assert {(len(e["wall_ns"]), e["wall_ns"][0] / e["inner"]) for e in named(events, "block")} == {(1, 1.5e6)}


def test_its_outputs_are_checked_by_the_reference_of_a_runtime(
    link: ProgramLink, device: LocalDevice, placed: PlacedModel
) -> None:
    segment = {"runtime": "onnxruntime", "model": placed.path, "options": {"threads": 1}, **bound(placed.graph)}
    with AgentLink(device) as agent:
        made: Any = job_of(placed.graph, segment)
        compute_reference(agent, made, [0, 1], timeout_s=60, name="ref.npz")
    checked = {"check": "ref.npz", "seeds": [0, 1]}
    right = job(command(outputs="outputs.{index}"), placed)
    wrong = job(command(SCRIPT + "; printf 012345678901234567890123 > outputs.0", outputs="outputs.{index}"), placed)
    events = asked(link, request_of([candidate("right", right, open=checked), candidate("wrong", wrong, open=checked)]))
    assert [e["difference"]["relative"] for e in named(events, "opened")] == [0]
    assert [(e["candidate"], e["kind"]) for e in named(events, "failure")] == [("wrong", "wrong-output")]


@pytest.mark.parametrize(
    ("script", "more", "kind", "told"),
    [
        ("echo nothing", {}, "refused", "wrote no time that"),
        ("echo took 0 ms", {}, "refused", "reports 0 ns for a call"),
        ("echo no such operator >&2; exit 3", {}, "refused", "ended with status 3: no such operator"),
        ("kill -SEGV $$", {}, "crash", "SIGSEGV"),
        (SCRIPT, {"read": ""}, "refused", "the process of a command is not timed"),
        (SCRIPT, {"prepare": (("cp", "a", "b"),)}, "refused", "cannot use prepare"),
        (SCRIPT + "# {input_list}", {}, "refused", "cannot use input_list"),
        (SCRIPT, {"outputs": "out.npz"}, "refused", "the outputs of a command must be called outputs.{index}"),
    ],
)
def test_how_it_fails(
    script: str, more: dict[str, Any], kind: str, told: str, link: ProgramLink, placed: PlacedModel
) -> None:
    (failure,) = named(asked(link, request_of([candidate("c", job(command(script, **more), placed))])), "failure")
    assert (failure["kind"], told in failure["message"]) == (kind, True), failure


def test_a_program_that_is_not_there_is_missing_as_soon_as_it_is_looked_for(link: ProgramLink) -> None:
    runtimes = {
        name: CommandRuntime(Declaration(name=name, run=(name, "{model}"))) for name in ("sh", "no-such-program")
    }
    answers = link.ask({name: runtime.probing for name, runtime in runtimes.items()})
    assert not isinstance(answers["sh"], Failure)
    assert isinstance(answers["no-such-program"], Failure)
    assert "there is no program no-such-program on its PATH" in answers["no-such-program"].message


def test_what_it_does_not_take_is_a_failure_of_it_alone(link: ProgramLink, placed: PlacedModel) -> None:
    runtimes = {"good": command(), "bad": command("echo no such operator >&2; exit 3")}
    segments = {key: job(runtime, placed)["segments"][0] for key, runtime in runtimes.items()}
    answers = link.ask({key: {"do": "supports", "segment": segment} for key, segment in segments.items()})
    assert not isinstance(answers["good"], Failure)
    assert isinstance(answers["bad"], Failure)
    assert "no such operator" in answers["bad"].message

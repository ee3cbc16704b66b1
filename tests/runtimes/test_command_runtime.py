"""Declared commands as runtimes: a stand-in of known times on this machine, and all that goes wrong with programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.jobkit import job_of, placed_here
from tests.models import modelkit

from gnomon.agent.plan import PlanRefused, checked_plan
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import UsageError
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink, compute_reference
from gnomon.models.load import load, load_unread
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings
from gnomon.runtimes.commands import CommandRuntime
from gnomon.runtimes.declared import Declaration
from gnomon.session.model import place_model


@pytest.fixture
def device() -> Iterator[LocalDevice]:
    with LocalDevice() as opened:
        yield opened


@pytest.fixture
def link(device: LocalDevice) -> Iterator[AgentLink]:
    with AgentLink(device) as opened:
        yield opened


MEASURER = Path(__file__).parents[1] / "standins" / "measurer"
READ = "json:latency[].ms"
PROBE = Probe(version="", backends=())


def command(*words: str, **more: Any) -> CommandRuntime:
    """The stand-in with these words, which reports JSON unless it is said otherwise."""
    run = (sys.executable, str(MEASURER), *words)
    return CommandRuntime(Declaration(name="measurer", run=run, **{"read": READ, **more}))


@pytest.fixture
def unread(tmp_path: Path) -> PlacedModel:
    """A file that gnomon does not read."""
    path = tmp_path / "model.bin"
    path.write_bytes(b"location of nothing that gnomon reads")
    return place_model(load_unread(path), path, lambda local, name: str(local))


@pytest.fixture
def onnx(tmp_path: Path) -> PlacedModel:
    """A small model of two inputs and two outputs."""
    made = modelkit.model(
        [modelkit.node("Add", ["a", "b"], ["sum"]), modelkit.node("Mul", ["sum", "b"], ["product"])],
        [modelkit.value("a", (2, 3)), modelkit.value("b", (2, 3))],
        [modelkit.value("sum", (2, 3)), modelkit.value("product", (2, 3))],
    )
    return placed_here(modelkit.save(made, tmp_path / "model.onnx"))


def measured(link: AgentLink, runtime: CommandRuntime, placed: PlacedModel, **more: Any) -> list[dict[str, Any]]:
    """The events of one process of the agent that measures a command's first configuration."""
    configuration = runtime.configurations(PROBE, RunSettings(threads=2))[0]
    job = job_of(placed.graph, runtime.segment(placed, configuration, {}))
    effort = Effort(rounds=1, block_s=0.004, samples_least=3, sample_s=1e-9, warm_count=2, warm_s=0.0, timeout_s=60)
    entry = {"key": "c", "environment": {}, "tolerance": 1e-4, "calls_least": 3, "visits": [0]}
    opening = {"job": job, "profiled": False, **more.pop("opening", {})}
    request: Any = {**effort.request(), "seed": "s", "candidates": [{**entry, "open": opening}], **more}
    events: list[Any] = []
    link.request(request, events.append, timeout_s=120)
    return [event for event in events if event["event"] not in ("alive", "environment")]


def test_its_times_are_what_it_reports_of_the_calls_that_are_asked_for(link: AgentLink, unread: PlacedModel) -> None:
    opened, block = measured(link, command("calls", "{model}", "{runs}"), unread)
    assert opened["event"] == "opened"
    times = block["wall_ns"]
    assert times == [1_000_000 + 1000 * k for k in range(len(times))]
    assert len(times) >= 4  # as many as fill the time
    assert set(block["cpu_ns"]) == {0}
    assert block["peak_rss_bytes"] > 1 << 20


def test_the_mean_of_all_calls_is_one_sample(link: AgentLink, unread: PlacedModel) -> None:
    runtime = command("mean", "{model}", read="mean (?P<ms>[0-9.]+)", each="mean")
    *_, block = measured(link, runtime, unread)
    assert set(block["wall_ns"]) == {2_500_000}


def test_without_a_way_to_read_it_is_the_time_of_the_process(link: AgentLink, unread: PlacedModel) -> None:
    *_, block = measured(link, command("mean", "{model}", read=""), unread)
    assert min(block["wall_ns"]) > 1_000_000
    assert min(block["cpu_ns"]) > 0


@pytest.mark.parametrize(
    ("kind", "words", "told"),
    [
        ("crash", (), "was killed by SIGSEGV: about to crash"),
        ("refused", (), "ended with status 3: no such operator: Frobnicate"),
        ("refused", (), "is not a time"),
        ("refused", (), "printed more than 64 MiB, so it was stopped"),
    ],
    ids=["crash", "status", "garbage", "flood"],
)
def test_how_it_fails(
    kind: str, words: tuple[str, ...], told: str, link: AgentLink, unread: PlacedModel, request: pytest.FixtureRequest
) -> None:
    what = request.node.callspec.id
    (failure,) = measured(link, command(what, "{model}", *words, read="took (?P<ms>.*) ms"), unread)
    assert (failure["event"], failure["kind"], failure["stage"]) == ("failure", kind, "load")
    assert told in failure["message"]


def test_one_that_hangs_is_ended_with_its_children_and_its_last_words_are_kept(
    link: AgentLink, unread: PlacedModel, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    (failure,) = measured(link, command("hang", "{model}", str(pids)), unread, timeout_s=5.0)
    assert (failure["kind"], failure["log_tail"].strip()) == ("hang", "50 % done")
    for pid in pids.read_text().split():
        assert not Path("/proc", pid).exists() or "Z" in Path("/proc", pid, "stat").read_text().rpartition(")")[2]


@pytest.mark.parametrize(
    ("words", "outputs"),
    [
        (("raw", "{model}", "{runs}", "{inputs}"), "out.{index}"),
        (("npz", "{model}", "{runs}", "{inputs_npz}"), "out.npz"),
    ],
    ids=["raw", "npz"],
)
def test_its_outputs_are_checked(words: tuple[str, ...], outputs: str, link: AgentLink, onnx: PlacedModel) -> None:
    opened, _ = measured(link, command(*words, outputs=outputs), onnx, opening=reference(link, onnx))
    assert opened["difference"]["relative"] < 1e-6


def reference(link: AgentLink, onnx: PlacedModel) -> dict[str, Any]:
    """What ONNX Runtime computes, to check against."""
    bound = {
        end: [[name, name] for name in names] for end, names in (("inputs", onnx.inputs), ("outputs", onnx.outputs))
    }
    segment = {"runtime": "onnxruntime", "model": onnx.path, "options": {"threads": 1}, **bound}
    made: Any = job_of(onnx.graph, segment)
    _, failure = compute_reference(link, made, [0, 1], timeout_s=60, name="ref.npz")
    assert failure is None
    return {"check": "ref.npz", "seeds": [0, 1]}


def test_wrong_outputs_are_refused(link: AgentLink, onnx: PlacedModel) -> None:
    runtime = command("wrong", "{model}", "{runs}", "{inputs}", outputs="out.{index}")
    (failure,) = measured(link, runtime, onnx, opening=reference(link, onnx))
    assert (failure["kind"], failure["stage"]) == ("wrong-output", "check")


@pytest.mark.parametrize(
    ("outputs", "told"),
    [("none.{index}", "cannot be read from none.0"), ("model.npz", "cannot be read from model.npz")],
)
def test_outputs_that_are_not_there_are_refused(outputs: str, told: str, link: AgentLink, onnx: PlacedModel) -> None:
    runtime = command("calls", "{model}", "{runs}", outputs=outputs)
    (failure,) = measured(link, runtime, onnx)
    assert (failure["kind"], told in failure["message"]) == ("refused", True), failure


def test_what_a_declaration_writes_and_prepares_is_there_when_it_runs(link: AgentLink, unread: PlacedModel) -> None:
    script = 'cat made/list "$1" && echo "took $2 ms"'
    runtime = CommandRuntime(
        Declaration(
            name="sh",
            run=("sh", "-c", script, "sh", "{folder}/copy", "{threads}"),
            prepare=(("cp", "{model}", "copy"),),
            files={"made/list": "threads={threads}"},
            read="threads=2.*\n?took (?P<ms>[0-9]+) ms",
        )
    )
    *_, block = measured(link, runtime, unread)
    assert set(block["wall_ns"]) == {2_000_000}


def test_a_line_that_says_that_it_ran_otherwise_refuses_it(link: AgentLink, unread: PlacedModel) -> None:
    (failure,) = measured(link, command("calls", "{model}", "1", refused_if="^model loaded"), unread)
    assert "it printed 'model loaded'" in failure["message"]


def test_what_a_process_left_goes_with_the_next(link: AgentLink, device: LocalDevice, unread: PlacedModel) -> None:
    for _ in range(2):
        measured(link, command("calls", "{model}", "1"), unread)
    left = device.run(["sh", "-c", "ls -d command-*"], env={}, timeout_s=60)
    assert len(left.stdout.split()) == 1


def test_each_combination_of_its_choices_is_a_configuration() -> None:
    runtime = command("calls", "{model}", "{a}", choices={"a": ("x", "y"), "b": ("1", "2")})
    made = runtime.configurations(PROBE, RunSettings(environments=({"K": "v"},)))
    names = ["measurer[a=x,b=1]", "measurer[a=x,b=2]", "measurer[a=y,b=1]", "measurer[a=y,b=2]"]
    assert [one.name for one in made[::2]] == names
    assert [one.environment for one in made[1::2]] == [{"K": "v"}] * 4
    assert [one.options["command"]["choices"] for one in made[:4:2]] == [{"a": "x", "b": "1"}, {"a": "x", "b": "2"}]
    assert not any(one.clean or one.checked for one in made)


def test_choices_have_a_limit() -> None:
    runtime = command("{model}", choices={name: tuple("abcde") for name in ("x", "y", "z")})
    with pytest.raises(UsageError, match="make 125 configurations"):
        runtime.configurations(PROBE, RunSettings())


def test_the_program_is_looked_for_on_the_device(link: AgentLink) -> None:
    runtimes = {
        "version": command("calls", "{model}", version=(sys.executable, "--version")),
        "digest": command("calls", "{model}"),
        "missing": CommandRuntime(Declaration(name="no", run=("no-such-program", "{model}"))),
    }
    answers = link.ask({key: runtime.probing for key, runtime in runtimes.items()})
    assert isinstance(answers["missing"], Failure)
    assert "there is no program no-such-program" in answers["missing"].message
    versions = {key: answer["version"] for key, answer in answers.items() if not isinstance(answer, Failure)}
    assert versions["version"] == f"Python {sys.version.split()[0]}"
    assert versions["digest"].startswith("SHA-256 ")


def test_a_plan_starts_a_program_only_where_that_is_allowed(onnx: PlacedModel, tmp_path: Path) -> None:
    runtime = command("calls", "{model}", "{runs}")
    configuration: Configuration = runtime.configurations(PROBE, RunSettings())[0]
    folder = tmp_path / "package"
    folder.mkdir()
    packaged = runtime.package(load(onnx.path), configuration, {}, folder)
    segment = {**runtime.segment(onnx, configuration, {}), **packaged}
    plan = {"format": "gnomon-plan", "version": 1, "job": job_of(onnx.graph, segment), "files": {}}
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(PlanRefused, match=r"starts a program, which may do anything: .* add --allow command"):
        checked_plan(str(folder / "plan.json"))
    with pytest.raises(PlanRefused) as other:  # this one lists no digests of files
        checked_plan(str(folder / "plan.json"), ["command"])
    assert "--allow" not in str(other.value)

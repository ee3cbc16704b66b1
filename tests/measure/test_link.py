"""The way to the agent: what an agent may say, and what happens when it says something else."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.processkit import gone, runs

from gnomon.core.sample import Failure
from gnomon.devices.base import DeviceInfo
from gnomon.devices.local import LocalDevice
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink

ROGUE = Path(__file__).parents[1] / "agent"


class OtherPython(LocalDevice):
    """This machine, with a program of the test's own where the device's Python should be."""

    def __init__(self, program: Path) -> None:
        super().__init__()
        self._program = program

    def describe(self) -> DeviceInfo:
        return replace(super().describe(), python=str(self._program))


Start = Callable[[str], AgentLink]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Any] = []

    def with_script(script: str) -> AgentLink:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        device = OtherPython(program)
        device.__enter__()
        link = AgentLink(device)
        opened.append((link, device))
        return link

    yield with_script
    for link, device in opened:
        link.__exit__()
        device.__exit__()


def printing(*events: Any) -> str:
    lines = "\n".join(e if isinstance(e, str) else json.dumps(e) for e in events)
    return f"read -r request\ncat <<'THE_END'\n{lines}\nTHE_END"


END = {"event": "end"}
BLOCK = {
    "event": "block",
    "candidate": "c",
    "block": 0,
    "started_at_s": 1.0,
    "wall_ns": [1],
    "cpu_ns": [1],
    "inner": 1,
    "peak_rss_bytes": None,
}


@pytest.mark.parametrize(
    "said",
    [
        *("Hello from a login script", "", "[]", "{}", '{"event": ["end"]}', '{"event": "dance"}'),
        *('{"event": "block", "candidate": "c"}', "[" * 100_000, "\\377\\376"),
    ],
)
def test_nonsense_is_one_error_and_what_came_before_was_delivered(start: Start, said: str) -> None:
    seen: list[Any] = []
    with pytest.raises(AgentError) as refused:
        start(printing(BLOCK, said, END)).request({}, seen.append, timeout_s=60)
    assert refused.value.hint
    assert len(refused.value.message) < 400
    assert seen == [BLOCK]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (f"{printing(BLOCK)}\nexit 3", "status 3"),
        (f"{printing(BLOCK)}\nkill -SEGV $$", "signal 11"),
        (f"{printing(BLOCK)}\necho 'No module named numpy' >&2\nexit 1", "No module named numpy"),
    ],
)
def test_an_agent_that_ends_early_is_told_with_its_last_words(start: Start, script: str, told: str) -> None:
    seen: list[Any] = []
    with pytest.raises(DeviceError, match=told) as refused:
        start(script).request({}, seen.append, timeout_s=60)
    assert refused.value.transient
    assert "devices check" in refused.value.hint
    assert seen == [BLOCK]


def test_an_agent_that_hangs_is_ended(start: Start) -> None:
    with pytest.raises(DeviceError, match="did not end in time"):
        start("sleep 600").request({}, lambda event: None, timeout_s=0.5)


def test_signs_of_life_and_the_end_are_not_delivered(start: Start) -> None:
    seen: list[Any] = []
    start(printing({"event": "alive"}, BLOCK, {"event": "alive"}, END)).request({}, seen.append, timeout_s=60)
    assert seen == [BLOCK]


def test_what_a_login_shell_adds_to_standard_error_does_not_matter(start: Start) -> None:
    start("echo 'stty: not a typewriter' >&2\n" + printing(END)).request({}, lambda event: None, timeout_s=60)


def test_answers_and_failures_are_told_apart(start: Start) -> None:
    failure = {
        "event": "failure",
        "candidate": "b",
        "stage": "probe",
        "kind": "crash",
        "transient": False,
        "message": "crashed",
        "log_tail": "é",
    }
    link = start(printing({"event": "answer", "key": "a", "answer": {"version": "1"}}, failure, END))
    answers = link.ask({"a": {"do": "probe"}, "b": {"do": "probe"}})
    assert answers["a"] == {"version": "1"}
    assert answers["b"] == Failure(stage="probe", kind="crash", transient=False, message="crashed", log_tail="é")


def test_an_answer_that_never_came_is_an_error(start: Start) -> None:
    link = start(printing({"event": "answer", "key": "a", "answer": {}}, END))
    with pytest.raises(AgentError, match="'b'"):
        link.ask({"a": {"do": "probe"}, "b": {"do": "probe"}})


def test_no_python_on_the_device(tmp_path: Path) -> None:
    with OtherPython(tmp_path / "absent") as device, AgentLink(device) as link:
        with pytest.raises(DeviceError) as refused:
            link.ask({"a": {"do": "probe"}})
        assert refused.value.hint


def test_settings_that_cannot_be_made_are_an_error_of_the_device() -> None:
    with LocalDevice() as device, AgentLink(device, machine={"pin": [60000]}) as link:
        request = {**Effort(rounds=0).request(), "seed": 0, "candidates": []}
        with pytest.raises(DeviceError, match="60000") as refused:
            link.request(request, lambda event: None, timeout_s=30)
    assert refused.value.hint


def supports(link: AgentLink, **options: Any) -> Any:
    command = {"do": "supports", "segment": {"runtime": "rogue:Rogue", "options": options}}
    return link.ask({"a": command})["a"]


def test_the_supervisor_that_stays_is_pinned_only_while_it_measures() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with LocalDevice() as device, AgentLink(device, machine={"pin": cores[:1]}) as link:
        link.paths.append(str(ROGUE))
        first = supports(link)
        link.hold()
        second = supports(link)
    assert first["parent"] == second["parent"] and first["cores"] == second["cores"] == cores


def test_here_the_supervisor_stays_and_all_that_it_has_started_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalDevice() as device, AgentLink(device) as link:
        link.paths.append(str(ROGUE))
        first, second = supports(link), supports(link)
        assert first["parent"] == second["parent"] and first["pid"] != second["pid"]
        child = supports(link, child=True)["child"]
        assert gone(child)
        # It is another one in another environment, or where it was killed meanwhile.
        monkeypatch.setenv("LC_ALL", "C" if os.environ.get("LC_ALL") == "C.UTF-8" else "C.UTF-8")
        third = supports(link)
        os.kill(third["parent"], signal.SIGKILL)
        assert gone(third["parent"])
        fourth = supports(link)
        assert len({first["parent"], third["parent"], fourth["parent"]}) == 3
        assert not runs(first["parent"])
    assert gone(fourth["parent"])

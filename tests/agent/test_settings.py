"""Pinning and governors: set before anything runs, told, and undone however the supervisor ends.

The governors are files of a made-up /sys; the cores and the processes are this machine's own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agent.governorkit import Board, events_of
from tests.agent.supervisorkit import candidate
from tests.processkit import becomes

from gnomon.measure.effort import Effort

ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(folder=tmp_path)


def the_failure(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The only event, a failure before anything ran."""
    (failure,) = events
    assert (failure["event"], failure["stage"], failure["kind"]) == ("failure", "settings", "refused")
    assert failure.keys() == {
        "event", "candidate", "stage", "kind", "message", "hint", "transient", "log_tail"
    }  # fmt: skip
    assert failure["hint"].endswith(".")
    return failure


def test_workers_see_the_settings_and_the_end_undoes_them(board: Board) -> None:
    (answer,) = board.events({"pin": [ALLOWED[-1]]})
    assert answer["answer"]["cores"] == ALLOWED[-1:]
    assert set(answer["answer"]["governors"].values()) == {"ondemand"}
    (answer,) = board.events({"governor": "performance"})
    assert answer["answer"] == {"cores": ALLOWED, "governors": {"cpu0": "performance", "cpu1": "performance"}}
    assert board.governors() == ["ondemand", "ondemand"]
    assert not board.wardens()  # they have ended before the supervisor


@pytest.mark.skipif(0 not in ALLOWED, reason="this process may not use core 0")
def test_only_the_pinned_cores_get_the_governor_and_the_record_is_told(board: Board) -> None:
    request = {**Effort(rounds=1).request(), "seed": 0, "candidates": [{**candidate("a"), "visits": [0]}]}
    events = board.events({"pin": [0, 0], "governor": "performance"}, request)
    told = events[-1]["data"]
    assert [event["event"] for event in events] == ["opened", "block", "environment"]
    assert told["settings"] == {"pin": [0], "governor": "performance", "governors_before": {"cpu0": "ondemand"}}
    assert told["before"]["cores"] == told["after"]["cores"] == 1
    assert "settings" not in board.events({}, request)[-1]["data"]
    board.folder.joinpath("go").unlink()
    with board.running({"pin": [0], "governor": "powersave"}):
        assert board.governors() == ["powersave", "ondemand"]
    assert becomes(lambda: board.governors() == ["ondemand", "ondemand"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("whom", ["supervisor", "group"])
def test_whoever_is_killed_the_governor_is_put_back(board: Board, whom: str, number: signal.Signals) -> None:
    with board.running({"governor": "performance"}) as process:
        assert board.governors() == ["performance", "performance"]
        (os.kill if whom == "supervisor" else os.killpg)(process.pid, number)
        process.wait(timeout=30)
        assert becomes(lambda: not board.wardens())
        assert board.governors() == ["ondemand", "ondemand"]


def test_a_killed_warden_is_stood_in_for(board: Board) -> None:
    with board.running({"governor": "performance"}) as process:
        (warden,) = board.wardens()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(warden, number)  # it stays
        time.sleep(0.1)
        assert board.wardens() == [warden]
        os.kill(warden, signal.SIGKILL)
        board.go()
        assert [event["event"] for event in events_of(process)] == ["answer"]
    assert board.governors() == ["ondemand", "ondemand"]


def test_nobody_who_listens_is_an_end_too(board: Board) -> None:
    with board.running({"governor": "performance"}) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(timeout=30)  # its next sign of life fails
    assert board.governors() == ["ondemand", "ondemand"]


def test_a_second_supervisor_is_refused_and_one_after_a_crash_is_not(board: Board) -> None:
    with board.running({"governor": "performance"}) as first:
        with board.start({"governor": "powersave"}) as second:
            failure = the_failure(events_of(second))
        assert failure["transient"]
        assert "another measurement" in failure["message"]
        assert board.governors() == ["performance", "performance"]
        first.kill()
        (answer,) = board.events({"governor": "powersave"})  # waits for the warden of the first
        assert answer["answer"]["governors"] == {"cpu0": "powersave", "cpu1": "powersave"}
    assert board.governors() == ["ondemand", "ondemand"]


def test_what_is_set_already_stays(board: Board) -> None:
    board.governor(0).write_text("performance\n")
    board.governor(1).write_text("performance\n")
    with board.running({"governor": "performance"}):
        assert not board.wardens()
    board.governor(1).write_text("powersave\n")
    board.events({"governor": "performance"})
    assert board.governors() == ["performance", "powersave"]


def test_a_later_choice_of_somebody_else_stays(board: Board) -> None:
    with board.running({"governor": "performance"}) as process:
        board.governor(1).write_text("powersave\n")
        board.go()
        events_of(process)
    assert board.governors() == ["ondemand", "powersave"]


def test_cores_of_one_clock_share_a_governor(board: Board) -> None:
    shared = board.cpu / "cpufreq/policy0"
    board.governor(0).parent.rename(shared.parent.parent / "policy")
    shared.parent.mkdir()
    (shared.parent.parent / "policy").rename(shared)
    for name in ("scaling_governor", "scaling_available_governors"):
        (board.cpu / "cpu1/cpufreq" / name).unlink()
    (board.cpu / "cpu1/cpufreq").rmdir()
    for core in (0, 1):
        (board.cpu / f"cpu{core}/cpufreq").symlink_to("../cpufreq/policy0")
    with board.running({"governor": "performance"}) as process:
        assert board.governors() == ["performance", "performance"]
        os.killpg(process.pid, signal.SIGKILL)
        assert becomes(lambda: board.governors() == ["ondemand", "ondemand"])


def test_a_programs_own_frequency_comes_back(board: Board) -> None:
    board.governor(0).write_text("userspace\n")
    speed = board.governor(0).with_name("scaling_setspeed")
    speed.write_text("1200000\n")
    with board.running({"governor": "performance"}) as process:
        speed.write_text("<unsupported>\n")  # as the kernel says under any other governor
        board.go()
        events_of(process)
    assert (board.governors(), speed.read_text()) == (["userspace", "ondemand"], "1200000")


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ({"pin": [10**30]}, "cannot pin to cores"),
        ({"pin": [10**6], "governor": "performance"}, "cannot pin to cores"),
        ({"governor": "turbo"}, "no governor 'turbo'"),
    ],
)
def test_what_the_machine_lacks_is_refused_before_anything_runs(board: Board, machine: Any, told: str) -> None:
    failure = the_failure(board.events(machine))
    assert told in failure["message"]
    assert not failure["transient"]
    assert not (board.folder / "started").exists()
    assert board.governors() == ["ondemand", "ondemand"]
    if "turbo" in told:
        assert "ondemand, performance, powersave" in failure["hint"]
    if "cores" in told:
        assert ", ".join(map(str, ALLOWED)) in failure["hint"]


def test_a_core_that_is_there_but_kept_from_this_process(board: Board) -> None:
    (board.cpu / "cpu9999").mkdir()
    assert "not allowed for this process" in the_failure(board.events({"pin": [9999]}))["message"]


def test_a_machine_without_governors_says_so(board: Board) -> None:
    board.governor(1).unlink()
    failure = the_failure(board.events({"governor": "performance"}))
    assert "core 1 has no frequency governor" in failure["message"]
    assert board.governor(0).read_text() == "ondemand\n"


def test_a_governor_that_cannot_be_written_leaves_the_others_as_they_were(board: Board) -> None:
    # Nobody can write this file: root is told so on writing, all others before.
    board.governor(1).unlink()
    board.governor(1).symlink_to("/proc/version")
    failure = the_failure(board.events({"governor": "performance"}))
    assert "/proc/version" in failure["message"]
    assert "Measure as root" in failure["hint"]
    assert board.governor(0).read_text().strip() == "ondemand"
    assert not board.wardens()

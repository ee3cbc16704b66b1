"""The supervisor and its workers, with a runtime that misbehaves in every way that real ones do."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agent.supervisorkit import GOOD, ROGUE, agent, answered, candidate, job, of, segment, supervise
from tests.processkit import becomes, processes_with

from gnomon.measure.effort import Effort

__all__ = ["agent"]

MANY = 14


def late(how: str, *, after: int) -> Any:
    """A candidate that misbehaves after some calls, of which each visit makes six or more."""
    return {**candidate("bad", how=how, after=after), "visits": list(range(MANY))}


MISBEHAVED = {
    "segv": ("crash", False, "SIGSEGV"),
    "kill": ("memory", True, "SIGKILL"),
    "real-time signal": ("crash", False, "signal"),
    "exit": ("crash", False, "status 7"),
    "value error": ("refused", False, "on purpose"),
    "memory error": ("refused", True, "too little memory"),
    "no room": ("refused", True, "No space left on device"),
    "module gone": ("refused", True, "ModuleNotFoundError"),
    "term": ("crash", False, "ended by SIGTERM"),
    "unexpected error": ("refused", False, "ZeroDivisionError: on purpose"),
    "chatter": ("crash", False, "SIGABRT"),
}
"""How a candidate does, by its key: the kind of its failure, whether that may pass, and what is told."""


SIGNALS = {
    "segv": "SIGSEGV",
    "kill": "SIGKILL",
    "term": "SIGTERM",
    "chatter": "SIGABRT",
    "real-time signal": f"signal {signal.SIGRTMIN + 3}",
}
"""What ended the process, for those that a signal ended: whose fault that is, the campaign decides."""


@pytest.mark.parametrize("when", ["load", "run"])
def test_who_misbehaves_is_told_and_the_others_go_on(agent: Path, tmp_path: Path, when: str) -> None:
    bad = [candidate(how, how=how, when=when) for how in MISBEHAVED]
    events = supervise(agent, tmp_path, [*bad, candidate("good")])
    assert of(events, "good") == GOOD
    failures = {event["candidate"]: event for event in events if event["event"] == "failure"}
    assert failures.keys() == MISBEHAVED.keys()
    for how, (kind, transient, told) in MISBEHAVED.items():
        assert of(events, how) == ["failure"]
        failure = failures[how]
        assert (failure["stage"], failure["kind"], failure["transient"]) == ("load", kind, transient)
        assert told in failure["message"]
        assert failure.get("signal", "") == SIGNALS.get(how, "")
        assert len(failure["log_tail"]) <= 2000
    assert "last words" in failures["chatter"]["log_tail"]


@pytest.mark.parametrize("how", ["hang", "stop"])
def test_who_does_not_answer_is_ended(agent: Path, tmp_path: Path, how: str) -> None:
    events = supervise(agent, tmp_path, [late(how, after=40), candidate("good")], timeout_s=2.0, rounds=MANY)
    failure = next(event for event in events if event["event"] == "failure")
    assert failure["kind"] == "hang"
    assert not failure["transient"]
    assert of(events, "good") == GOOD


def test_who_dies_between_visits_keeps_what_it_gave(agent: Path, tmp_path: Path) -> None:
    events = supervise(agent, tmp_path, [late("kill", after=60), candidate("good")], rounds=MANY)
    assert of(events, "good") == GOOD
    told = of(events, "bad")
    assert (told[0], told[-1]) == ("opened", "failure")
    failure = next(event for event in events if event["event"] == "failure")
    assert failure["stage"] == "run"
    assert failure["block"] == told.count("block")


def test_what_a_runtime_prints_is_no_part_of_the_protocol(agent: Path, tmp_path: Path) -> None:
    assert of(supervise(agent, tmp_path, [candidate("loud", how="print")]), "loud") == GOOD


def test_outputs_are_checked_against_the_reference(agent: Path, tmp_path: Path) -> None:
    reference = str(tmp_path / "reference.npz")
    saved = supervise(agent, tmp_path, [candidate("r", opening={"save": reference, "seeds": [3, 4]})])
    assert saved[0]["sensitivity"]["relative"] > 0
    checking = {"check": reference, "seeds": [3, 4]}
    factors = {"same": 2.0, "near": 2.0001, "wrong": 2.1, "zeros": 0.0, "nan": math.nan, "infinite": math.inf}
    wanted = [candidate(key, opening=checking, factor=factor) for key, factor in factors.items()]
    events = supervise(agent, tmp_path, [*wanted, candidate("stale", opening=checking, stale=True)])
    assert of(events, "same") == of(events, "near") == GOOD
    for key in ("wrong", "zeros", "nan", "infinite", "stale"):
        assert of(events, key) == ["failure"]
    refused = [event for event in events if event["event"] == "failure"]
    assert {(event["stage"], event["kind"], event["transient"]) for event in refused} == {
        ("check", "wrong-output", False)
    }
    opened = {e["candidate"]: e["difference"] for e in events if e["event"] == "opened"}
    assert opened["same"] == {"absolute": 0.0, "relative": 0.0}
    assert opened["near"]["relative"] == pytest.approx(5e-5, rel=1e-2)


def test_a_profiled_process_has_one_visit_with_its_operators(agent: Path, tmp_path: Path) -> None:
    events = supervise(agent, tmp_path, [candidate("p", profiled=True)])
    assert [event["event"] for event in events] == ["opened", "block"]
    row = events[1]["operators"][0]
    assert (row["name"], row["backend"]) == ("double", "rogue")
    assert len(row["wall_ns"]) == len(events[1]["wall_ns"])  # warm-up calls are not among them


def test_only_the_visits_that_are_wanted_are_made(agent: Path, tmp_path: Path) -> None:
    partial = {**candidate("c"), "visits": [2]}
    events = supervise(agent, tmp_path, [partial])
    assert [event["block"] for event in events if event["event"] == "block"] == [2]


def test_candidates_are_visited_in_random_order_that_the_seed_decides(agent: Path, tmp_path: Path) -> None:
    def order(seed: Any) -> list[str]:
        events = supervise(agent, tmp_path, [{**candidate(key), "process": "one"} for key in "abcd"], seed=seed)
        return [event["candidate"] for event in events if event["event"] == "block"]

    first, again, other = order("s/0"), order("s/0"), order("s/1")
    assert first == again
    assert first != other
    for taken in (first, other):
        assert [sorted(taken[k : k + 4]) for k in (0, 4, 8)] == [list("abcd")] * 3  # in rounds, all in each


def test_a_runtime_that_is_not_found_is_refused(agent: Path, tmp_path: Path) -> None:
    names = {"a": "rogue:Rogue", "b": "nowhere:Rogue", "c": "no-such-runtime"}
    commands = [{"key": key, "command": {"do": "probe", "runtime": name}} for key, name in names.items()]
    events = answered(agent, tmp_path, {"timeout_s": 10, "commands": commands}, **ROGUE)
    by_key = {event.get("key", event.get("candidate")): event for event in events}  # they come in any order
    assert by_key["a"] == {"event": "answer", "key": "a", "answer": {"version": "0", "backends": ["rogue"]}}
    assert (by_key["b"]["event"], by_key["b"]["kind"]) == ("failure", "refused")
    assert "ModuleNotFoundError" in by_key["b"]["message"]
    assert "onnxruntime" in by_key["c"]["message"]  # the known ones are named


def test_commands_of_one_process_share_it_unless_one_fails(agent: Path, tmp_path: Path) -> None:
    hows = {"a": "print", "b": "value error", "c": "", "d": "", "e": "segv", "f": ""}

    def asked(key: str, how: str = "", **more: str) -> dict[str, Any]:
        command = {"do": "supports", "segment": {"runtime": "rogue:Rogue", "options": {"how": how}}, **more}
        return {"key": key, "command": command}

    commands = [asked(key, how, process="p") for key, how in hows.items()]
    commands += [asked("g", process="q"), asked("h"), asked("i")]
    events = answered(agent, tmp_path, {"timeout_s": 30, "commands": commands}, **ROGUE)
    told = {event.get("key") or event["candidate"]: event for event in events}
    assert {key for key, event in told.items() if event["event"] == "failure"} == {"b", "e"}
    pids = {key: told[key]["answer"]["pid"] for key in "acdfghi"}
    assert pids["c"] == pids["d"] and len(set(pids.values())) == 6
    # What the one before it printed is not told of what fails in the same process.
    assert (told["b"]["kind"], told["b"]["log_tail"]) == ("refused", "")
    assert (told["e"]["kind"], told["e"]["transient"]) == ("crash", False)


def test_when_the_supervisor_dies_so_do_its_workers(agent: Path, tmp_path: Path) -> None:
    mark = "GNOMON_TEST_MARK", str(tmp_path)
    bad = {**candidate("bad", how="hang"), "environment": {**ROGUE, mark[0]: mark[1]}}
    request = {**Effort().request(), "seed": 0, "candidates": [bad]}
    process = subprocess.Popen(
        [sys.executable, str(agent), "supervise"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        process.stdout.readline()  # a sign of life: the worker hangs by now
        assert processes_with(*mark)
        process.kill()
    assert becomes(lambda: not processes_with(*mark)), "a worker outlived its supervisor"


def test_a_chain_runs_through_its_buffers(agent: Path, tmp_path: Path) -> None:
    tensor = {"shape": [3], "dtype": "float32"}
    chain = {
        **job(),
        "tensors": {"x": tensor, "m": {**tensor, "slab": 0}, "n": {**tensor, "slab": 1}, "y": tensor},
        "segments": [
            segment(reads, writes, factor=factor)
            for factor, reads, writes in ((2.0, "x", "m"), (3.0, "m", "n"), (5.0, "n", "y"))
        ],
    }
    saving = {**candidate("c"), "open": {"job": chain, "save": "out.npz", "seeds": [3, 4]}, "visits": []}
    supervise(agent, tmp_path, [saving])
    with np.load(tmp_path / "out.npz") as saved:
        drawn = np.random.default_rng([3, 0]).standard_normal(3).astype(np.float32)
        assert saved["3/0"] == pytest.approx(30.0 * drawn)
    timed = {**candidate("t", profiled=True), "open": {"job": chain, "profiled": True}}
    rows = supervise(agent, tmp_path, [timed])[1]["operators"]
    assert [row["name"] for row in rows] == ["0", "1", "2"]
    assert len({len(row["wall_ns"]) for row in rows}) == 1

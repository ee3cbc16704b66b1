"""Candidates that share a process: what one of them does to it is not the others' fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisorkit import GOOD, agent, candidate, of, supervise

__all__ = ["agent"]

OTHERS = ("a", "b", "c")


def shared(key: str, **options: Any) -> Any:
    return {**candidate(key, **options), "process": "one"}


def family(**bad: Any) -> list[Any]:
    return [shared("bad", **bad), *map(shared, OTHERS)]


def blocks(events: Sequence[dict[str, Any]], key: str) -> list[int]:
    return [e["block"] for e in events if e["event"] == "block" and e["candidate"] == key]


def failure(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (e for e in events if e["event"] == "failure")
    return found


def test_those_of_a_process_share_one(agent: Path, tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(4)]
    events = supervise(agent, tmp_path, [*map(shared, keys), candidate("alone")])
    assert all(of(events, key) == GOOD for key in (*keys, "alone"))
    process = {e["candidate"]: e["where"][0][0]["pid"] for e in events if e["event"] == "opened"}
    assert len({process[key] for key in keys}) == 1
    assert process["alone"] != process[keys[0]]


@pytest.mark.parametrize("after", [0, 12])
@pytest.mark.parametrize(("how", "kind"), [("segv", "crash"), ("kill", "memory")])
def test_after_a_crash_the_others_go_on_in_a_new_process(
    agent: Path, tmp_path: Path, how: str, kind: str, after: int
) -> None:
    # Several orders, as the seed decides who comes first.
    for seed in ("s/0", "s/1"):
        events = supervise(agent, tmp_path, family(how=how, after=after), seed=seed)
        told = failure(events)
        assert (told["candidate"], told["kind"]) == ("bad", kind)
        for key in OTHERS:
            assert blocks(events, key) == [0, 1, 2]
            assert of(events, key).count("opened") <= 2


def test_a_crash_that_others_may_have_caused_may_pass(agent: Path, tmp_path: Path) -> None:
    # After three rounds' worth of calls all share the process; alone there is nobody else to blame.
    assert failure(supervise(agent, tmp_path, family(how="segv", after=12)))["transient"] is True
    assert failure(supervise(agent, tmp_path, [shared("bad", how="segv", after=12)]))["transient"] is False


@pytest.mark.parametrize(
    ("how", "when", "after"), [("value error", "load", 0), ("value error", "run", 0), ("memory error", "run", 12)]
)
def test_who_is_refused_leaves_the_process_to_the_others(
    agent: Path, tmp_path: Path, how: str, when: str, after: int
) -> None:
    events = supervise(agent, tmp_path, family(how=how, when=when, after=after))
    told = failure(events)
    assert (told["kind"], told["transient"]) == ("refused", how == "memory error")
    # Only what was refused first of all, while nobody shared the process, costs a process.
    assert all(of(events, key) == GOOD for key in OTHERS)


def test_a_hang_ends_the_process_and_the_others_go_on(agent: Path, tmp_path: Path) -> None:
    events = supervise(agent, tmp_path, family(how="hang", after=12), timeout_s=2.0)
    assert failure(events)["kind"] == "hang"
    assert all(blocks(events, key) == [0, 1, 2] for key in OTHERS)


def test_two_that_crash_lose_nobody_else(agent: Path, tmp_path: Path) -> None:
    pair = [shared("bad", how="segv", after=12), shared("worse", how="segv", when="load")]
    events = supervise(agent, tmp_path, [*pair, *map(shared, OTHERS)])
    assert {e["candidate"] for e in events if e["event"] == "failure"} == {"bad", "worse"}
    assert all(blocks(events, key) == [0, 1, 2] for key in OTHERS)


def test_only_the_visits_that_are_wanted_are_made_after_a_crash(agent: Path, tmp_path: Path) -> None:
    few = [{**shared(key), "visits": [2]} for key in OTHERS]
    events = supervise(agent, tmp_path, [shared("bad", how="segv", after=10), *few])
    assert all(blocks(events, key) == [2] for key in OTHERS)

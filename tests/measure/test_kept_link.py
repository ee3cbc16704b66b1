"""The agent that stays: processes and jobs that are kept from one request to the next, and what costs them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.agent.supervisorkit import candidate
from tests.processkit import gone, runs

from gnomon.devices.local import LocalDevice
from gnomon.errors import DeviceError
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink

EFFORT = Effort(rounds=3, block_s=0.002, sample_s=1e-4, warm_s=0.001, timeout_s=30.0, laggard=1e9)


@pytest.fixture
def link() -> Iterator[AgentLink]:
    with LocalDevice() as device, AgentLink(device, timeout_s=30.0, kept=True) as made:
        yield made


def shared(key: str, *, stay: bool = False, **options: Any) -> Any:
    """A candidate of the process that all share."""
    return {**candidate(key, **options), "process": "p", **({"stay": True} if stay else {})}


def asked(link: AgentLink, *candidates: Any) -> dict[str, list[Any]]:
    """The events of each candidate."""
    events: dict[str, list[Any]] = {entry["key"]: [] for entry in candidates}

    def on_event(event: Any) -> None:
        if event["event"] != "environment":
            events[event["candidate"]].append(event)

    link.request({**EFFORT.request(), "seed": 0, "candidates": list(candidates)}, on_event, timeout_s=120.0)
    return events


def kinds(events: list[Any]) -> list[str]:
    return [event["event"] for event in events]


def process_of(events: list[Any]) -> int:
    found: int = events[0]["where"][0][0]["pid"]
    return found


BLOCKS = ["block"] * 3


def test_a_process_is_kept_and_what_stays_is_not_loaded_again(link: AgentLink) -> None:
    first = asked(link, shared("anchor", stay=True), shared("a"))
    second = asked(link, shared("anchor", stay=True), shared("b"))
    third = asked(link, shared("anchor", stay=True), shared("a"))
    assert [kinds(one["anchor"]) for one in (first, second, third)] == [["opened", *BLOCKS], BLOCKS, BLOCKS]
    assert [kinds(first["a"]), kinds(second["b"]), kinds(third["a"])] == [["opened", *BLOCKS]] * 3
    assert process_of(first["anchor"]) == process_of(first["a"]) == process_of(second["b"]) == process_of(third["a"])


def test_what_is_asked_for_in_another_way_is_loaded_again_in_the_same_process(link: AgentLink) -> None:
    first = asked(link, shared("anchor", stay=True))
    second = asked(link, shared("anchor", stay=True, factor=3.0))
    assert kinds(second["anchor"]) == ["opened", *BLOCKS]
    assert process_of(second["anchor"]) == process_of(first["anchor"])


@pytest.mark.parametrize("how", ["segv", "value error"])
def test_whatever_fails_costs_the_process_and_the_next_request_has_a_new_one(how: str, link: AgentLink) -> None:
    first = asked(link, shared("anchor", stay=True), shared("a"))
    bad = asked(link, shared("anchor", stay=True), shared("bad", how=how))
    assert kinds(bad["bad"])[-1] == "failure"
    after = asked(link, shared("anchor", stay=True), shared("a"))
    assert kinds(after["anchor"]) == kinds(after["a"]) == ["opened", *BLOCKS]
    assert process_of(after["a"]) == process_of(after["anchor"]) != process_of(first["a"])


def test_a_kept_process_that_dies_meanwhile_is_no_failure_of_the_next(link: AgentLink) -> None:
    first = asked(link, shared("anchor", stay=True))
    os.kill(process_of(first["anchor"]), signal.SIGKILL)
    assert gone(process_of(first["anchor"]))
    second = asked(link, shared("anchor", stay=True), shared("a"))
    assert kinds(second["anchor"]) == kinds(second["a"]) == ["opened", *BLOCKS]


def test_an_agent_that_hangs_is_ended_and_started_again(link: AgentLink) -> None:
    with pytest.raises(DeviceError, match="did not end in time") as caught:
        link.request(
            {**EFFORT.request(), "seed": 0, "candidates": [shared("bad", how="hang")]},
            lambda event: None,
            timeout_s=1.0,
        )
    assert caught.value.transient
    assert kinds(asked(link, shared("a"))["a"]) == ["opened", *BLOCKS]


def test_what_a_listener_raises_ends_the_agent(link: AgentLink) -> None:
    def refuse(event: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        link.request({**EFFORT.request(), "seed": 0, "candidates": [shared("a")]}, refuse, timeout_s=60.0)
    assert kinds(asked(link, shared("a"))["a"]) == ["opened", *BLOCKS]


def test_nothing_is_left_when_the_link_is_closed() -> None:
    with LocalDevice() as device:
        with AgentLink(device, timeout_s=30.0, kept=True) as link:
            process = process_of(asked(link, shared("a"))["a"])
            assert runs(process)
        folder = device.folder
        assert gone(process)  # killed with its group, once the kernel comes to it
    assert not folder.exists()

"""Waiting for a device that vanished: how long, for what, and what is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.errors import DeviceError, MeasurementError
from gnomon.session import request as patience
from gnomon.session.request import MeasureRequest, device_met, patiently, patiently_begun

BOARD = DeviceConfig(name="board", address=Address(kind="ssh", user=None, host="board.local", port=None))


def request(wait_s: float = 100.0, *, fresh: bool = False) -> MeasureRequest:
    return MeasureRequest(device=BOARD, wait_s=wait_s, fresh=fresh)


def vanished(message: str = "the connection to board was lost", *, met: bool = True) -> DeviceError:
    return DeviceError(message, hint="Look after it.", transient=True, met=met)


def refused(message: str = "this machine cannot resolve the host name board.local") -> DeviceError:
    return DeviceError(message, hint="Check its spelling.")


class World:
    """A device whose openings fail with these errors, one after the other, and time that passes by sleeping alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.openings: list[DeviceError | str] = []
        self.opened_at_s: list[float] = []
        self.told: list[str] = []
        monkeypatch.setattr(patience, "opened", self.opened)
        monkeypatch.setattr("gnomon.session.request.pause", self.sleep)
        monkeypatch.setattr("gnomon.session.request.time.monotonic", lambda: self.now_s)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds

    @contextmanager
    def opened(self, config: DeviceConfig, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
        assert config is BOARD
        self.opened_at_s.append(self.now_s)
        found = self.openings.pop(0) if self.openings else ""
        if isinstance(found, DeviceError):
            raise found
        if found and on_wait:
            on_wait(found)
        yield

    def run(self, outcomes: list[DeviceError | str], asked: MeasureRequest) -> tuple[str, list[bool]]:
        """Do a job that ends so each time that it is done; its last result, and the `fresh` of each time."""
        seen: list[bool] = []

        def job(again: MeasureRequest) -> str:
            seen.append(again.fresh)
            outcome = outcomes.pop(0)
            if isinstance(outcome, DeviceError):
                raise outcome
            return outcome

        return patiently(job, asked, self.told.append), seen


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_it_goes_on_from_the_record_and_says_so(world: World) -> None:
    world.openings = [vanished(met=False), vanished(met=False)]
    begun = DeviceError(vanished().message, transient=True, begun=True)
    assert world.run([begun, "done"], request(fresh=True)) == ("done", [True, False])
    assert world.told == [
        "the connection to board was lost; waiting up to 100 s for board to come back",
        "board is back: continuing from the results database",
    ]
    assert world.opened_at_s == [1.0, 3.0, 7.0]  # less and less often


def test_one_that_vanishes_before_anything_was_measured_is_waited_for_and_measured_again(world: World) -> None:
    assert world.run([vanished(), "done"], request(fresh=True)) == ("done", [True, True])


def test_a_device_that_was_never_reached_is_not_waited_for(world: World) -> None:
    with pytest.raises(DeviceError, match="was lost"):
        world.run([vanished(met=False)], request())
    assert (world.told, world.now_s) == ([], 0.0)


def test_a_device_that_is_known_to_be_one_is_waited_for_when_a_job_begins(world: World) -> None:
    outcomes: list[DeviceError | str] = [vanished(met=False), vanished(met=False), "done"]

    def job() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, DeviceError):
            raise outcome
        return outcome

    world.openings = [vanished(met=False)]
    assert patiently_begun(job, BOARD, 100.0) == "done"
    assert world.opened_at_s == [1.0, 3.0, 4.0]
    busy = DeviceError("board is in use", transient=True, busy=True)
    for error, wait_s in ((vanished(), 100.0), (refused(), 100.0), (busy, 100.0), (vanished(met=False), 0.0)):
        outcomes[:] = [error]
        with pytest.raises(DeviceError):
            patiently_begun(job, BOARD, wait_s)
    world.openings = [vanished(met=False)] * 100
    outcomes[:] = [vanished(met=False)]
    with pytest.raises(DeviceError, match="board did not come back within 100 s"):
        patiently_begun(job, BOARD, 100.0)


def test_an_error_of_a_device_that_was_met_says_so() -> None:
    error = vanished(met=False)
    noted: list[tuple[str, Any]] = []
    runner: Any = SimpleNamespace(note=lambda name, data: noted.append((name, data)))
    with pytest.raises(DeviceError) as told, device_met(runner):
        raise error
    assert noted == [("failed", {"message": error.message, "hint": error.hint})]
    assert (told.value.met, error.met, told.value.__cause__) == (True, False, error)
    assert (told.value.message, told.value.hint, told.value.transient) == (error.message, error.hint, True)


def test_what_waiting_cannot_mend_is_not_waited_for(world: World) -> None:
    known = refused()
    error = DeviceError(known.message, hint=known.hint, met=True)
    with pytest.raises(DeviceError, match="cannot resolve"):
        world.run([error], request())
    with pytest.raises(MeasurementError):
        patiently(raising(MeasurementError("nothing is left")), request(), None)
    assert world.now_s == 0.0


def raising(error: Exception) -> Callable[[MeasureRequest], None]:
    def job(_: MeasureRequest) -> None:
        raise error

    return job


@pytest.mark.parametrize("wait_s", [0.0, -1.0])
def test_without_patience_it_raises_at_once(world: World, wait_s: float) -> None:
    with pytest.raises(DeviceError, match="was lost"):
        world.run([vanished()], request(wait_s))
    assert world.opened_at_s == []


def test_one_that_vanishes_again_while_it_is_opened_is_waited_for_again(world: World) -> None:
    again = vanished("the connection to board was lost, too", met=False)
    assert world.run([vanished(), again, "done"], request())[0] == "done"
    assert [sentence for sentence in world.told if "too" in sentence]


def test_one_that_stays_away_is_given_up_with_the_next_step(world: World) -> None:
    world.openings = [vanished(met=False) for _ in range(100)]
    with pytest.raises(DeviceError) as told:
        world.run([vanished()], request(50.0))
    assert "did not come back within 50 s" in told.value.message
    assert "was lost" in told.value.message
    assert "what was measured is kept" in told.value.hint
    assert told.value.transient
    assert world.now_s == 50.0  # to the end, and no longer


def test_a_name_that_is_unknown_while_the_board_starts_is_waited_for_and_told_once(world: World) -> None:
    world.openings = [refused(), refused(), vanished(met=False)]
    assert world.run([vanished(), "done"], request())[0] == "done"
    assert [s for s in world.told if "cannot resolve" in s] == [
        "this machine cannot resolve the host name board.local. Check its spelling."
    ]


def test_what_is_wrong_in_the_end_is_what_is_told(world: World) -> None:
    world.openings = [refused("the host key of board has changed") for _ in range(100)]
    with pytest.raises(DeviceError) as told:
        world.run([vanished()], request(20.0))
    assert "host key of board" in told.value.message
    assert told.value.hint == "Check its spelling."


def test_who_holds_the_device_when_it_is_back_is_told(world: World) -> None:
    world.openings = ["another gnomon (process 7 there) is measuring on board: waiting for it to end"]
    assert world.run([vanished(), "done"], request())[0] == "done"
    assert world.openings == []
    assert any("process 7" in sentence for sentence in world.told)


def test_a_device_that_vanishes_all_the_time_is_given_up(world: World) -> None:
    outcomes: list[DeviceError | str] = [vanished() for _ in range(1000)]
    with pytest.raises(DeviceError, match="was lost"):
        world.run(outcomes, request())
    assert len(outcomes) > 900

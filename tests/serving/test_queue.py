"""The queue: requests are assigned to free devices, one that fails is set aside, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.serving.job import Job, Measurement, Outcome
from gnomon.serving.queue import Queue, RequestError, ServedDevice
from gnomon.serving.settings import Limits, Measuring

MODEL = Path("model")
JOB = Job(measuring=Measuring(), limits=Limits())
FAILED = Outcome(kind="failed", error="DeviceError", message="the board is gone")
MEASURED = Measurement(
    latency_s=1.0, low_s=None, high_s=1.5, processes=3, loads=3, samples=9, runtime="r", configuration="c", device="a"
)


class Board:
    """A device that answers as it is told; with `hold` only once that is set."""

    def __init__(self, name: str, outcome: Outcome, hold: asyncio.Event | None = None) -> None:
        self.device = ServedDevice(name=name, run=self.run, job=JOB)
        self.outcome, self.hold = outcome, hold
        self.digests: list[str] = []
        self.ended = 0

    async def run(self, job: Job) -> Outcome:
        self.digests.append(job.digest)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        return self.outcome


def queue_of(*boards: Board, log: list[str] | None = None, limits: Limits = Limits()) -> Queue:  # noqa: B008 - frozen
    return Queue(limits, [board.device for board in boards], (log if log is not None else []).append)


def measured(device: str) -> Outcome:
    return Outcome(kind="measured", result=replace(MEASURED, device=device))


async def begun(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0)


def test_whichever_is_free_gets_the_next_and_turns_are_in_the_order_of_coming() -> None:
    async def main() -> None:
        holds = [asyncio.Event(), asyncio.Event()]
        a, b = (Board(name, measured(name), hold) for name, hold in zip("ab", holds, strict=True))
        queue = queue_of(a, b)
        tasks = [asyncio.create_task(queue.measure(MODEL, str(k))) for k in range(5)]
        await begun(lambda: len(a.digests + b.digests) == 2)
        assert (a.digests, b.digests, a.device.busy) == (["0"], ["1"], True)
        holds[1].set()
        outcomes = await asyncio.gather(*tasks[1:])
        assert b.digests == ["1", "2", "3", "4"]
        assert {outcome.result and outcome.result.device for outcome in outcomes} == {"b"}
        holds[0].set()
        assert await tasks[0] == measured("a")
        assert [device.status for device in queue.devices] == [
            {"device": "a", "state": "free", "measured": 1},
            {"device": "b", "state": "free", "measured": 4},
        ]

    asyncio.run(main())


def test_a_device_that_fails_again_and_again_is_set_aside_and_requests_go_on() -> None:
    async def main() -> None:
        log: list[str] = []
        bad, good = Board("bad", FAILED), Board("good", measured("good"))
        queue = queue_of(bad, good, log=log)
        for number in range(6):
            assert await queue.measure(MODEL, str(number)) == measured("good")
        assert bad.digests == ["0", "1", "2"]
        assert good.digests == [str(number) for number in range(6)]
        assert any(
            "bad failed 3 times in a row, last: the board is gone; it is set aside for 300 s" in line for line in log
        )
        assert queue.devices[0].status["state"] == "set aside"
        assert queue.counts["measured"] == 6 and queue.counts["failed"] == 0
        bad.device.aside_s = 0.0  # its time is over, and it has been mended
        bad.outcome = measured("bad")
        assert await queue.measure(MODEL, "7") == measured("bad")
        assert bad.device.failures == 0

    asyncio.run(main())


def test_the_last_one_is_never_set_aside_and_its_failure_is_told() -> None:
    async def main() -> None:
        boards = [Board(name, FAILED) for name in "ab"]
        queue = queue_of(*boards)
        assert [await queue.measure(MODEL, str(k)) for k in range(8)] == [FAILED] * 8
        assert queue.counts["failed"] == 8
        assert [board.device.aside for board in boards].count(False) == 1
        alone = Board("alone", FAILED)
        assert [await queue_of(alone).measure(MODEL, str(k)) for k in range(5)] == [FAILED] * 5

    asyncio.run(main())


@pytest.mark.parametrize("outcome", [Outcome(kind="refused", message="no model"), Outcome(kind="timed_out")])
def test_what_is_the_models_own_affair_is_no_failure_of_a_device(outcome: Outcome) -> None:
    async def main() -> None:
        a, b = Board("a", outcome), Board("b", outcome)
        queue = queue_of(a, b)
        assert [await queue.measure(MODEL, str(k)) for k in range(4)] == [outcome] * 4
        assert (len(a.digests), b.digests, a.device.failures) == (4, [], 0)

    asyncio.run(main())


def test_who_goes_gives_the_turn_to_the_next() -> None:
    async def main() -> None:
        hold = asyncio.Event()
        board = Board("a", measured("a"), hold)
        queue = queue_of(board)
        first, second, third = (asyncio.create_task(queue.measure(MODEL, str(k))) for k in range(3))
        await begun(lambda: board.digests == ["0"])
        second.cancel()
        first.cancel()
        await begun(lambda: board.digests == ["0", "2"])
        hold.set()
        assert await third == measured("a")
        assert (board.ended, queue.counts["gone"], board.device.busy) == (1, 2, False)

    asyncio.run(main())


def test_places_and_bytes_are_bounded() -> None:
    queue = queue_of(Board("a", FAILED), limits=Limits(queue=1, most_held_bytes=10))
    with queue.admitted() as hold:
        hold(10)
        with pytest.raises(RequestError, match=r"the server is full \(1 request\)"), queue.admitted():
            pass
        with pytest.raises(RequestError, match="waiting models") as full:
            hold(1)
    assert (full.value.status, full.value.headers) == (503, {"Retry-After": "1"})
    assert queue.present == 0

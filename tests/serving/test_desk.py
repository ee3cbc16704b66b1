"""The desk: requests are dealt to devices that are free, one that fails is set aside, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.serving.orders import Failed, Order, Outcome, Refused, TimedOut
from gnomon.serving.queue import Desk, Full, Lane
from gnomon.serving.settings import Limits

MODEL = Path("model")
ORDER = Order(job_s=1.0, memory_bytes=1, disk_bytes=1, model_bytes=1)
FAILED = Failed(kind="DeviceError", message="the board is gone")


class Board:
    """A device that answers as it is told; with `hold` only once that is set."""

    def __init__(self, name: str, outcome: Outcome, hold: asyncio.Event | None = None) -> None:
        self.lane = Lane(name=name, runner=self, order=ORDER)
        self.outcome, self.hold = outcome, hold
        self.asked: list[str] = []
        self.ended = 0

    async def run(self, order: Order) -> Outcome:
        self.asked.append(order.digest)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        return self.outcome


def desk_of(*boards: Board, told: list[str] | None = None, limits: Limits = Limits()) -> Desk:  # noqa: B008 - frozen
    return Desk(limits, [board.lane for board in boards], (told if told is not None else []).append)


def found(device: str) -> dict[str, object]:
    return {"latency_s": 1.0, "device": device}


async def begun(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0)


def test_whichever_is_free_gets_the_next_and_turns_are_in_the_order_of_coming() -> None:
    async def main() -> None:
        holds = [asyncio.Event(), asyncio.Event()]
        a, b = (Board(name, found(name), hold) for name, hold in zip("ab", holds, strict=True))
        desk = desk_of(a, b)
        tasks = [asyncio.create_task(desk.measure(MODEL, str(k))) for k in range(5)]
        await begun(lambda: len(a.asked + b.asked) == 2)
        assert (a.asked, b.asked, desk.measuring) == (["0"], ["1"], True)
        holds[1].set()
        outcomes = await asyncio.gather(*tasks[1:])
        assert b.asked == ["1", "2", "3", "4"]
        assert {outcome["device"] for outcome in outcomes if isinstance(outcome, dict)} == {"b"}
        holds[0].set()
        assert await tasks[0] == found("a")
        assert [lane.told() for lane in desk.lanes] == [
            {"device": "a", "state": "free", "measured": 1},
            {"device": "b", "state": "free", "measured": 4},
        ]

    asyncio.run(main())


def test_a_device_that_fails_again_and_again_is_set_aside_and_requests_go_on() -> None:
    async def main() -> None:
        told: list[str] = []
        bad, good = Board("bad", FAILED), Board("good", found("good"))
        desk = desk_of(bad, good, told=told)
        for number in range(6):
            assert await desk.measure(MODEL, str(number)) == found("good")
        assert bad.asked == ["0", "1", "2"]
        assert good.asked == [str(number) for number in range(6)]
        assert any(
            "bad failed 3 times in a row, at last: the board is gone; it is set aside for 300 s" in t for t in told
        )
        assert desk.lanes[0].told()["state"] == "set aside"
        assert desk.counts["measured"] == 6 and desk.counts["failed"] == 0
        bad.lane.aside_s = 0.0  # its time is over, and it has been mended
        bad.outcome = found("bad")
        assert await desk.measure(MODEL, "7") == found("bad")
        assert bad.lane.failed == 0

    asyncio.run(main())


def test_the_last_one_is_never_set_aside_and_its_failure_is_told() -> None:
    async def main() -> None:
        boards = [Board(name, FAILED) for name in "ab"]
        desk = desk_of(*boards)
        assert [await desk.measure(MODEL, str(k)) for k in range(8)] == [FAILED] * 8
        assert desk.counts["failed"] == 8
        assert [board.lane.aside for board in boards].count(False) == 1
        alone = Board("alone", FAILED)
        assert [await desk_of(alone).measure(MODEL, str(k)) for k in range(5)] == [FAILED] * 5

    asyncio.run(main())


@pytest.mark.parametrize("outcome", [Refused(message="no model"), TimedOut(limit_s=1.0)])
def test_what_is_the_models_own_affair_is_no_failure_of_a_device(outcome: Outcome) -> None:
    async def main() -> None:
        a, b = Board("a", outcome), Board("b", outcome)
        desk = desk_of(a, b)
        assert [await desk.measure(MODEL, str(k)) for k in range(4)] == [outcome] * 4
        assert (len(a.asked), b.asked, a.lane.failed) == (4, [], 0)

    asyncio.run(main())


def test_who_goes_gives_the_turn_to_the_next() -> None:
    async def main() -> None:
        hold = asyncio.Event()
        board = Board("a", found("a"), hold)
        desk = desk_of(board)
        first, second, third = (asyncio.create_task(desk.measure(MODEL, str(k))) for k in range(3))
        await begun(lambda: board.asked == ["0"])
        second.cancel()
        first.cancel()
        await begun(lambda: board.asked == ["0", "2"])
        hold.set()
        assert await third == found("a")
        assert (board.ended, desk.counts["gone"], desk.measuring) == (1, 2, False)

    asyncio.run(main())


def test_places_and_bytes_are_bounded() -> None:
    desk = desk_of(Board("a", FAILED), limits=Limits(queue=1, most_held_bytes=10))
    with desk.place() as mine:
        mine.hold(10)
        with pytest.raises(Full, match="1 requests are here"), desk.place():
            pass
        with pytest.raises(Full, match="models that wait"):
            mine.hold(1)
    assert desk.present == 0

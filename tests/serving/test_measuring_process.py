"""The measuring process, as the server starts it and reads its answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gnomon.serving.job import Outcome, outcome_of, to_line
from gnomon.serving.server import MeasuringProcess
from gnomon.system.process import own_guard


@pytest.mark.parametrize("early", [True, False])
def test_a_start_that_is_cancelled_leaves_no_descriptor(
    early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*argv: str, **how: Any) -> None:
        raise asyncio.CancelledError

    async def descriptors() -> int:
        await asyncio.sleep(0)  # a transport closes in the loop's next turn
        return len(list(Path("/proc/self/fd").iterdir()))

    async def start() -> None:
        process = MeasuringProcess(folder=tmp_path, guard=own_guard(), log=print)
        before = await descriptors()
        for _ in range(3):
            starting = asyncio.create_task(process._start())
            if early:
                await asyncio.sleep(0)  # it waits for its pipe
                starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert await descriptors() == before

    own_guard()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", cancelled)
    asyncio.run(start())


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(kind="refused", message="x"),
        Outcome(kind="failed", error="DeviceError", message="x", hint="h"),
    ],
)
def test_an_outcome_is_read_as_it_was_written(outcome: Outcome) -> None:
    assert outcome_of(to_line(outcome)) == outcome

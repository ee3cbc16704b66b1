"""The program that measures, as the server starts it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gnomon.serving.program import Program
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
        program = Program(folder=tmp_path, guard=own_guard(), tell=print)
        before = await descriptors()
        for _ in range(3):
            starting = asyncio.create_task(program._start())
            if early:
                await asyncio.sleep(0)  # it waits for its pipe
                starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert await descriptors() == before

    own_guard()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", cancelled)
    asyncio.run(start())

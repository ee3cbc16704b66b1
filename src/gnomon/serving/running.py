"""Runs the program that measures one model: within its time limit, and never longer than somebody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from gnomon.devices.guard import Guard
from gnomon.devices.process import Lines, Tail
from gnomon.errors import ProblemError
from gnomon.serving.order import Failed, Order, Outcome, TimedOut, outcome_of
from gnomon.serving.settings import TOKEN_VARIABLE

_COMMAND = (sys.executable, "-P", "-m", "gnomon.serving.job")
_GRACE_S = 3.0
_MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


async def run_order(order: Order, *, folder: Path, guard: Guard, tell: Callable[[str], None]) -> Outcome:
    """What came of an order. Cancelled, it ends the program and all that this has started before it returns.

    `guard` ends them too if the server itself is killed. `tell` gets what it says meanwhile, a line each.
    """
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
        env=environment,
    )
    guard.add(process.pid)
    out, told = Tail(_MOST_BYTES), Tail(_CHUNK_BYTES)
    lines = Lines(tell)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101
    readers = [
        asyncio.create_task(_read(process.stdout, out.add)),
        asyncio.create_task(_read(process.stderr, told.add, lines.add)),
    ]
    timed_out = False
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(order.text().encode())
            process.stdin.close()
        async with asyncio.timeout(order.job_s):
            await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        # Whoever cancels this waits for the end of it all the same: the next job shall have the machine to itself.
        ending = asyncio.ensure_future(_end(process, readers))
        cancelled = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                cancelled = True
        guard.drop(process.pid)
        if cancelled:
            raise asyncio.CancelledError
    if timed_out:
        return TimedOut(limit_s=order.job_s, said=_last_line(told.text()))
    return _outcome(process.returncode, out.text(), told.text())


def _outcome(status: int | None, out: str, told: str) -> Outcome:
    if status == 0:
        try:
            return outcome_of(out)
        except (ProblemError, TypeError) as error:
            return Failed(kind="defect", message=f"the measuring program gave no answer: {error}")
    how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    said = _last_line(told)
    return Failed(kind="defect", message=f"the measuring program {how}{': ' if said else ''}{said}")


async def _read(stream: asyncio.StreamReader, *takers: Callable[[bytes], None]) -> None:
    while chunk := await stream.read(_CHUNK_BYTES):
        for take in takers:
            take(chunk)


async def _end(process: asyncio.subprocess.Process, readers: list[asyncio.Task[None]]) -> None:
    """Ask it to end, which it does with all that it started; kill its group if it does not. Then read what is left."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        await process.wait()
    await asyncio.wait(readers, timeout=1.0)  # whoever left the group may still hold the pipes
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""

"""The program that measures on one device, as the server sees it: started, asked an order at a time, ended whole.

It is kept from one model to the next as long as each is measured. After anything else it is ended and started again, so
that what a model does to it costs that model alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from gnomon.errors import ProblemError
from gnomon.serving.orders import Failed, Order, Outcome, Refused, TimedOut, outcome_of
from gnomon.serving.settings import TOKEN_VARIABLE
from gnomon.system.process import Guard, Lines, Tail

_COMMAND = (sys.executable, "-P", "-m", "gnomon.serving.worker")
_GRACE_S = 10.0
"""A device that is far away takes a moment to be left clean."""

_COMMAND_GRACE_S = 15.0
"""A command's time limit is kept by the program itself, which knows what the command said."""

_MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class Program:
    """The program on one device. `guard` ends it if the server itself is killed; `tell` gets what it says, by lines."""

    def __init__(self, *, folder: Path, guard: Guard, tell: Callable[[str], None]) -> None:
        self._folder, self._guard, self._tell = folder, guard, tell
        self._process: asyncio.subprocess.Process | None = None
        self._answers: asyncio.StreamReader | None = None
        self._pipe: asyncio.ReadTransport | None = None
        self._listener: asyncio.Task[None] | None = None
        self._said = Tail(_CHUNK_BYTES)
        self._sound = False

    async def run(self, order: Order) -> Outcome:
        """What came of an order. Cancelled, it ends the program and all that this has started before it returns."""
        if not self._sound or self._process is None or self._process.returncode is not None:
            await self.end()
            await self._start()
        self._sound = False
        self._said = Tail(_CHUNK_BYTES)
        answer = b""
        try:
            async with asyncio.timeout(order.job_s + (_COMMAND_GRACE_S if order.command is not None else 0.0)):
                answer = await self._asked(order.line())
        except TimeoutError:
            await self.end()
            return TimedOut(limit_s=order.job_s, said=_last_line(self._said.text()))
        except asyncio.CancelledError:
            await self.end()
            raise
        if not answer.endswith(b"\n"):
            return await self._lost()
        try:
            outcome = outcome_of(answer.decode(errors="replace"))
        except (ProblemError, TypeError) as error:
            await self.end()
            return Failed(kind="defect", message=f"the measuring program gave no answer: {error}")
        self._sound = not isinstance(outcome, Refused | Failed | TimedOut)
        return outcome

    async def end(self) -> None:
        """End it with all that it started, which is waited for also by who is cancelled meanwhile."""
        if self._process is None:
            return
        ending = asyncio.ensure_future(self._end(self._process))
        self._process = None
        cancelled = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        self._answers = answers = asyncio.StreamReader(limit=_MOST_BYTES)
        reads, stdout = os.pipe()
        try:
            self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(reads, "rb", buffering=0)
            )
            with self._guard.starting(stdout) as begun:
                self._process = await asyncio.create_subprocess_exec(
                    *_COMMAND,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=stdout,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                    cwd=self._folder,
                    env=environment,
                )
                begun(self._process.pid)
        except BaseException:
            if self._pipe is not None:
                self._pipe.close()
                self._pipe = None
            raise
        finally:
            os.close(stdout)
        assert self._process.stderr  # noqa: S101
        self._listener = asyncio.create_task(self._listen(self._process.stderr))

    async def _asked(self, line: bytes) -> bytes:
        """The line that it answers; less where it ends before, or says more than an answer may have."""
        assert self._process and self._process.stdin and self._answers  # noqa: S101
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
            return await self._answers.readline()
        except (ConnectionError, ValueError):
            return b""

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        lines = Lines(self._tell)
        while chunk := await stream.read(_CHUNK_BYTES):
            self._said.add(chunk)
            lines.add(chunk)

    async def _lost(self) -> Failed:
        """How it ended, where it gave no answer."""
        process = self._process
        assert process is not None  # noqa: S101
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()
        status = process.returncode
        await self.end()
        how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        said = _last_line(self._said.text())
        return Failed(kind="defect", message=f"the measuring program {how}{': ' if said else ''}{said}")

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Ask it to end, which it does with all that it started; kill its group if it does not. Read what is left."""
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await process.wait()
        if process.returncode is None:
            _signal(process, signal.SIGKILL)
            await process.wait()
        self._guard.drop(process.pid)
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._listener is not None:
            await asyncio.wait({self._listener}, timeout=1.0)  # whoever left the group may still hold the pipe
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""

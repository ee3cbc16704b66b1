"""The measuring process of one device, as the server sees it: started, given a job at a time, ended whole.

It is kept from one model to the next as long as each is measured. After anything else it is ended and started again, so
that what a model does to it costs that model alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from gnomon.errors import GnomonError
from gnomon.serving.job import Job, Outcome, outcome_of, to_line
from gnomon.serving.settings import TOKEN_VARIABLE
from gnomon.system.process import Guard, Lines, Tail

_COMMAND = (sys.executable, "-P", "-m", "gnomon.serving.worker")
_GRACE_S = 10.0
"""A device that is far away takes a moment to be left clean."""

_COMMAND_GRACE_S = 15.0
"""A command's time limit is kept by the process itself, which knows what the command printed."""

_MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class MeasuringProcess:
    """The process on one device. `guard` ends it if the server itself is killed; `log` gets the lines it prints."""

    def __init__(self, *, folder: Path, guard: Guard, log: Callable[[str], None]) -> None:
        self._folder, self._guard, self._log = folder, guard, log
        self._process: Process | None = None
        self._ending: asyncio.Task[None] | None = None
        self._printed = Tail(_CHUNK_BYTES)
        self._reusable = False

    async def run(self, job: Job) -> Outcome:
        """What comes of a job. Cancelled, it ends the process and all that this has started."""
        if not self._reusable or self._process is None or self._process.returncode is not None:
            await self.end()
            await self._start()
        self._reusable = False
        self._printed = Tail(_CHUNK_BYTES)
        grace_s = 0.0 if job.measuring.command is None else _COMMAND_GRACE_S
        try:
            async with asyncio.timeout(job.limits.job_s + grace_s):
                self._jobs.write(to_line(job).encode())
                outcome = outcome_of(await self._answers.readline())
        except TimeoutError:
            await self.end()
            return Outcome(kind="timed_out", message=self._last_line())
        except (ConnectionError, ValueError, GnomonError) as error:
            return await self._failure(error)
        except asyncio.CancelledError:
            await self.end()
            raise
        self._reusable = outcome.kind == "measured"
        return outcome

    async def end(self) -> None:
        """End it with all that it started, also where the caller is cancelled meanwhile."""
        if self._process is not None and self._ending is None:
            self._ending = asyncio.create_task(self._end(self._process))
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        ours, theirs = socket.socketpair()
        with theirs:
            self._answers, self._jobs = await asyncio.open_connection(sock=ours, limit=_MOST_BYTES)
            try:
                with self._guard.starting(theirs.fileno()) as started:
                    self._process = await asyncio.create_subprocess_exec(
                        *_COMMAND,
                        stdin=theirs.fileno(),
                        stdout=theirs.fileno(),
                        stderr=PIPE,
                        start_new_session=True,
                        cwd=self._folder,
                        env=environment,
                    )
                    started(self._process.pid)
            except BaseException:
                self._jobs.close()
                raise
        self._listener = asyncio.create_task(self._listen(self._process))

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None  # noqa: S101
        lines = Lines(self._log)
        while chunk := await process.stderr.read(_CHUNK_BYTES):
            self._printed.add(chunk)
            lines.add(chunk)

    async def _failure(self, error: Exception) -> Outcome:
        """How it ended, where it gave no answer."""
        process = self._process
        assert process is not None  # noqa: S101
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()
        status = process.returncode
        await self.end()
        if status is None:
            ended = f"gave no answer: {error}"
        else:
            ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            ended += f": {line}" if (line := self._last_line()) else ""
        return Outcome(kind="failed", message=f"the measuring program {ended}")

    async def _end(self, process: Process) -> None:
        """Ask it to end, which it does with all that it started; kill its group if it does not. Read what is left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_S):
                        await process.wait()
        self._guard.drop(process.pid)
        self._jobs.close()
        await asyncio.wait({self._listener}, timeout=1.0)  # whoever left the group may still hold the pipe
        self._listener.cancel()
        self._process = self._ending = None

    def _last_line(self) -> str:
        lines = self._printed.text().strip().splitlines()
        return lines[-1][:300] if lines else ""

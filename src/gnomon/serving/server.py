"""The server from its start to its end: it first measures on each device, then listens until a signal comes.

Each device has a measuring process, which gets one job at a time and is ended together with everything that it started.
The process is kept from one model to the next as long as every model is measured. After any other outcome it is ended
and started again, so that damage by one model does not affect other models.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon import errors
from gnomon.devices.address import LOCAL
from gnomon.devices.opening import resolve
from gnomon.errors import GnomonError, MeasurementError, UsageError
from gnomon.installing import needed
from gnomon.report.plain import clean
from gnomon.serving.job import Job, Measurement, Outcome, outcome_of, to_line
from gnomon.serving.queue import Queue, ServedDevice
from gnomon.serving.settings import TOKEN_VARIABLE, ServeSettings, checked
from gnomon.system.limits import allow_files
from gnomon.system.process import Guard, Lines, Tail, guarded

if TYPE_CHECKING:
    from aiohttp.web import AppRunner, Server


_COMMAND = (sys.executable, "-P", "-m", "gnomon.serving.worker")
_GRACE_S = 10.0
"""The time that a process has to end; cleaning up a remote device takes a moment."""

_COMMAND_GRACE_S = 15.0
"""The extra time for a command: the process itself enforces a command's time limit, as it knows the command's
output.
"""

_MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class MeasuringProcess:
    """The measuring process of one device. `guard` ends the process if the server itself is killed; `log` gets the
    lines that the process prints.
    """

    def __init__(self, *, folder: Path, guard: Guard, log: Callable[[str], None]) -> None:
        self._folder, self._guard, self._log = folder, guard, log
        self._process: Process | None = None
        self._ending: asyncio.Task[None] | None = None
        self._printed = Tail(_CHUNK_BYTES)
        self._reusable = False

    async def run(self, job: Job) -> Outcome:
        """The outcome of a job. Cancelling ends the process and everything that it started."""
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
        """End the process with everything that it started, even if the caller is cancelled meanwhile."""
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
        """The outcome of a process that gave no answer: how it ended."""
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
        """Ask the process to end with everything that it started; kill its group if it does not. Read the remaining
        output.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_S):
                        await process.wait()
        self._guard.drop(process.pid)
        self._jobs.close()
        await asyncio.wait({self._listener}, timeout=1.0)  # a process that left the group may still hold the pipe
        self._listener.cancel()
        self._process = self._ending = None

    def _last_line(self) -> str:
        lines = self._printed.text().strip().splitlines()
        return lines[-1][:300] if lines else ""


_MORE_CONNECTIONS = 64
"""Connections beyond those of admitted requests: for incoming heads, refusals and /health."""

_START_S = 120.0
"""The least time limit of a first measurement, which may have to wait for the device."""

_SHARE = 0.75
"""The share of all connections that one address may have, so that other addresses find room."""

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"error: there is no room for more connections\n"
)
_LINGER_S = 1.0
_BACKLOG = 512
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SPARE_FILES = 256

Log = Callable[[str], None]
Started = Callable[[ServeSettings, Mapping[str, str]], None]


def serve(settings: ServeSettings, *, started: Started, log: Log) -> int:
    """Serve until SIGINT or SIGTERM comes, and return its number. To be called from the main thread.

    Once the server listens, `started` gets the settings with the bound port, and the first measurement; `log` gets a
    line for each request. GnomonError if the server cannot start: because of the settings, a missing or failing
    runtime, or a port in use.
    """
    settings, addresses = checked(settings)
    with needed("the server needs aiohttp", "http", python=sys.executable):
        import_module("gnomon.serving.handlers")
    allow_files(2 * settings.limits.queue + _SPARE_FILES)
    guard, folder = guarded("gnomon-serve-")
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        return asyncio.run(_serve(settings, addresses, folder, guard, started, log))
    finally:
        for number, handler in handlers.items():  # an event loop resets them to the defaults
            signal.signal(number, handler)
        guard.close()


async def _serve(
    settings: ServeSettings, addresses: Sequence[str], folder: Path, guard: Guard, started: Started, log: Log
) -> int:
    from gnomon.serving.handlers import RequestHandler

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, int(number))
    loop.set_exception_handler(lambda _, context: log(f"met: {clean(str(context.get('exception') or context))[:300]}"))
    processes = [MeasuringProcess(folder=folder, guard=guard, log=log) for _ in settings.measuring.devices]
    try:
        devices, first = await _first_measurements(settings, processes)
        names = ", ".join(device.name for device in devices)
        facts = {name: getattr(first, name) for name in ("runtime", "version", "configuration")} | {"device": names}
        handler = RequestHandler(settings, Queue(settings.limits, devices, log), folder, facts, log)
        async with _listening(handler.runner(), settings, addresses, handler.heard) as port:
            started(replace(settings, port=port), facts)
            await loop.create_future()
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        await asyncio.gather(*(process.end() for process in processes))
    return received[0]


async def _first_measurements(
    settings: ServeSettings, processes: Sequence[MeasuringProcess]
) -> tuple[Sequence[ServedDevice], Measurement]:
    """The devices, after each has measured the reference kernel, and the first of these measurements. GnomonError."""
    devices: list[ServedDevice] = []
    results: list[Measurement] = []
    limits, measuring = settings.limits, settings.measuring
    first_limits = replace(limits, job_s=max(limits.job_s, _START_S))
    for name, process in zip(measuring.devices, processes, strict=True):
        here = resolve(name).address.kind == LOCAL
        kept = measuring.processes is None and measuring.command is None and here
        job = Job(measuring=measuring, limits=limits, device=name, kept=kept)
        outcome = await process.run(replace(job, limits=first_limits))
        if outcome.kind == "timed_out":
            printed = f": {outcome.message}" if outcome.message else ""
            message = f"the first measurement on {name} took longer than {first_limits.job_s:g} s{printed}"
            raise MeasurementError(message, hint="Give a longer --job-timeout.")
        if outcome.result is None:  # raised as the same error as in the measuring process
            raise getattr(errors, outcome.error, MeasurementError)(outcome.message, hint=outcome.hint)
        results.append(outcome.result)
        job = replace(job, reference_s=outcome.result.reference_s)
        devices.append(ServedDevice(name=outcome.result.device, run=process.run, job=job))
    return devices, results[0]


@asynccontextmanager
async def _listening(
    runner: AppRunner, settings: ServeSettings, addresses: Sequence[str], heard: Container[object]
) -> AsyncIterator[int]:
    """Let the runner's application answer on these addresses while the block lasts; yields the bound port.

    `heard` are the connections whose request head has arrived. UsageError for a port that is in use.
    """
    await runner.setup()
    server, most = runner.server, settings.limits.queue + _MORE_CONNECTIONS
    assert server is not None  # noqa: S101
    port, loop = settings.port, asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        try:
            listener = await loop.create_server(
                lambda: _Gate(server, most, heard), list(addresses), port, backlog=_BACKLOG
            )
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot listen on port {port} of {', '.join(addresses)}: {getattr(error, 'strerror', error)}",
                hint="Give another --port, or stop the program that uses it.",
            ) from error
        stack.callback(listener.close)
        yield int(listener.sockets[0].getsockname()[1])


class _Gate(asyncio.Protocol):
    """Passes a connection to the server.

    If there is no room, for its address or in total, the connection replaces the one that has been idle for longest
    without sending a request head, so that idle connections keep nobody out. If no connection is idle, the new one is
    refused.
    """

    def __init__(self, server: Server, most: int, heard: Container[object]) -> None:
        self._server, self._most, self._heard = server, most, heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        links = [link for peer in self._server.connections if (link := peer.transport) and not link.is_closing()]
        own = [link for link in links if _address(link) == _address(transport)]
        crowd = own if len(own) >= _SHARE * self._most else links if len(links) >= self._most else []
        silent = next((link for link in crowd if link not in self._heard), None)
        if crowd and silent is None:
            transport.write(_FULL)
            transport.write_eof()
            # The client's remaining data is read meanwhile, because closing the connection earlier would lose the
            # response.
            asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
            return
        if silent is not None:
            silent.close()
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def _address(transport: asyncio.BaseTransport) -> str | None:
    name = transport.get_extra_info("peername")
    return name[0] if name else None

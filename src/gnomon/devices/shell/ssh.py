"""A machine behind SSH, used through its shell: an OpenSSH control connection with one session per command."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gnomon.devices.lease import LEASES, command_line
from gnomon.devices.pushed import Part, contents
from gnomon.devices.shell.device import ShellDevice, not_arrived, python_there, refusal, senseless, take_lease
from gnomon.devices.shell.link import (
    LONG_S,
    SHORT_S,
    Session,
    ShellCommand,
    ShellLink,
    Take,
    at_most,
    end,
    starting_client,
)
from gnomon.devices.shell.scripts import REMOTE, file_script, guard_script, line, marked, quoted, run_script
from gnomon.devices.shell.ssh_client import SshSettings, TurnedAwayError, client_argv, lost, no_python, not_connected
from gnomon.errors import DeviceError
from gnomon.system.process import Guard, Printed, guarded
from gnomon.system.stopping import look_up, pause

_LONGEST_SOCKET = 80  # OpenSSH needs 18 more for its own name, and the kernel allows 107 in all
_LEAVE_S = 15.0
_TURNED_AWAY_S = 8.0
_NOISE_BYTES = 1 << 16


class SshLink(ShellLink):
    """One control connection, and sessions over it. `start` it, and always `close` it.

    The client's own session runs the guard, which answers the pings of a thread in this process. If either hears
    nothing from the other for too long, it ends everything that belongs to this visit. The guard answers `ask` with a
    line.
    """

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self.base = ""
        self._guard, self._folder = _scratch()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = self._folder / "errors"
        self._sending = threading.Lock()
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._noise = b""
        self._silent = self._ended = False
        self._ending = False
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Connect, and return the first message of the device's guard. DeviceError, with a hint, if this fails."""
        settings = self._settings
        argv = [*self._argv(master=True), "--", settings.host, REMOTE]
        with starting_client(argv), self._errors.open("wb") as errors:
            self._process = process = self._guard.start(argv, stderr=errors)
        leases = settings.environment.get(LEASES, "")
        guard = guard_script(token=secrets.token_hex(8), silence_s=settings.silence_s, by=command_line(), leases=leases)
        self._send(line(guard))
        self._thread = threading.Thread(target=self._listen, args=(process,), name="gnomon-ssh", daemon=True)
        self._thread.start()
        answer = self._answer(settings.connect_timeout_s + settings.silence_s)
        if answer is None:
            code, printed = process.poll(), self._noise
            if code is None and printed.strip():
                raise senseless(settings, printed)
            raise not_connected(settings, code, self._said(), printed)
        return answer

    def ask(self, what: str) -> str:
        """The guard's answer to a line. DeviceError if the connection is lost."""
        self._send(what.encode() + b"\n")
        answer = self._answer(self._settings.silence_s)
        if answer is None:
            raise self.lost(None)
        return answer

    def session(self, script: str, token: str, *, data: Iterator[bytes], stdout: Take, stderr: Take) -> Session:
        """Start a script that prints its own marks."""
        argv = [*self._argv(master=False), "--", self._settings.host, REMOTE]
        return Session(argv, script, token, guard=self._guard, data=data, stdout=stdout, stderr=stderr, loss=self.lost)

    def do(self, script: str, *, within_s: float = SHORT_S) -> tuple[str, str]:
        """See `ShellLink.do`."""
        printed = bytearray()
        status, _ = self._script(f"exec 2>&1\n{script}", within_s=within_s, take=at_most(printed))
        return status, printed.decode("utf-8", "surrogateescape").strip()

    def printed(self, script: str, most_bytes: int) -> bytes:
        """See `ShellLink.printed`."""
        printed = bytearray()
        self._script(script, within_s=SHORT_S, take=at_most(printed, most_bytes))
        return bytes(printed)

    def command(self, command: ShellCommand, run: Printed) -> Session:
        """See `ShellLink.command`."""
        token = secrets.token_hex(16)
        note = f"{self.base}/run/{command.number}"
        script = run_script(argv=command.argv, env=command.env, work=f"{self.base}/work", note=note, token=token)
        data = iter((command.stdin,))
        return self.session(script, token, data=data, stdout=run.add_stdout, stderr=run.stderr.add)

    def arrive(self, files: Sequence[tuple[Part, str]]) -> None:
        """See `ShellLink.arrive`; each file is the standard input of a session."""
        for part, path in files:
            script = file_script(path, part.size_bytes, part.digest, program=part.kind == "x")
            status, said = self._script(script, within_s=LONG_S, data=contents(part))
            if status == "3":
                raise not_arrived(self._settings, part.source)
            if status != "0":
                raise refusal(self._settings, said, path)

    def fetch(self, path: str, local: Path) -> None:
        """See `ShellLink.fetch`."""
        with local.open("wb") as file:
            script = f"[ -f {quoted(path)} ] && cat {quoted(path)}"
            status, said = self._script(script, within_s=LONG_S, take=lambda chunk: (file.write(chunk), None)[1])
        if status != "0":
            raise refusal(self._settings, said or "there is no such file", path)

    def _script(
        self, script: str, *, within_s: float, data: Iterator[bytes] | None = None, take: Take | None = None
    ) -> tuple[str, str]:
        """Run one of gnomon's scripts to its end; return its status and its standard error."""
        token = secrets.token_hex(16)
        errors = bytearray()
        session = self.session(
            marked(script, token), token, data=data or iter(()), stdout=take or (lambda _: None), stderr=errors.extend
        )
        try:
            session.pump(time.monotonic() + within_s)
        finally:
            session.close()
        if session.status is None:
            raise session.lost()
        return session.status, errors[-2000:].decode(errors="replace").strip()

    def lost(self, code: int | None, said: str = "") -> DeviceError:
        """The error for a session that ended, or fell silent, without its last marks."""
        # The client may continue for a while after the connection has ended, because it serves other sessions.
        gone = code is not None or self._ended or self._process is None or self._process.poll() is not None
        return lost(self._settings, 255 if gone and not self._silent else None, f"{said}\n{self._said()}")

    def check(self) -> None:
        """See `ShellLink.check`."""
        self.ask("alive")

    def close(self) -> None:
        """End the connection once the guard has cleaned up or has taken too long."""
        self._ending = True
        process, self._process = self._process, None
        if process is not None:
            self._send(b"end\n", process)
            with contextlib.suppress(OSError):
                if process.stdin:
                    process.stdin.close()
            end(process, self._guard, leave_s=_LEAVE_S)
            if self._thread is not None:
                self._thread.join()
            if process.stdout:
                process.stdout.close()
        self._guard.close()

    def _argv(self, *, master: bool) -> list[str]:
        shared = [f"ControlPath={self._folder}/c", "ControlPersist=no", f"ControlMaster={'yes' if master else 'no'}"]
        # Once the control connection is gone, the client must not silently open another one.
        return client_argv(self._settings, first=() if master else ("ProxyCommand=false",), last=shared)

    def _said(self) -> str:
        with contextlib.suppress(OSError):
            return self._errors.read_bytes()[-_NOISE_BYTES:].decode(errors="replace")
        return ""

    def _send(self, data: bytes, process: subprocess.Popen[bytes] | None = None) -> None:
        process = process or self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError), self._sending:  # the client's output shows how it ended
            process.stdin.write(data)

    def _answer(self, within_s: float) -> str | None:
        """The next answer of the guard; None after the time limit, or once the connection has ended."""
        deadline_s = time.monotonic() + within_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            look_up()
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=min(left_s, 1.0))
                if answer is None:
                    self._answers.put(None)  # for the next caller
                return answer
        return None

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Ping the guard and receive its answers until the connection ends; end the connection if the guard falls
        silent.
        """
        assert process.stdout is not None  # noqa: S101
        silence_s = self._settings.silence_s
        every_s = min(5.0, silence_s / 6)
        received = bytearray()
        poll = select.poll()  # unlike select, it accepts descriptors above 1,023, which occur with many devices at once
        poll.register(process.stdout, select.POLLIN)
        met, silent_s, seen_s, pinged_s = False, 0.0, time.monotonic(), time.monotonic()
        while True:
            ready = poll.poll(1e3 * every_s)
            now_s = time.monotonic()
            # Time in which this host was asleep or blocked hardly counts, because the host did not listen then.
            silent_s, seen_s = silent_s + min(now_s - seen_s, 2 * every_s), now_s
            if ready:
                chunk = os.read(process.stdout.fileno(), _NOISE_BYTES)
                received += chunk
                self._ended = not chunk
                if self._ended or len(received) > _NOISE_BYTES:
                    break
                silent_s = 0.0
                while (parts := bytes(received).split(b"\x1e", 2)) and len(parts) == 3:
                    received[:] = parts[2]
                    answer = parts[1].decode(errors="replace")
                    met = True
                    if answer != "pong":
                        self._answers.put(answer)
                self._noise = bytes(received)
            elif met and silent_s > silence_s and not self._ending:
                self._silent = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            if now_s - pinged_s >= every_s:
                self._send(b"ping\n")
                pinged_s = now_s
        self._noise = bytes(received)
        if not received:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        self._answers.put(None)


def _scratch() -> tuple[Guard, Path]:
    """Make a folder for the control connection's socket, whose path must be short."""
    folder = tempfile.gettempdir()
    short = folder if len(folder) < _LONGEST_SOCKET - 26 else "/tmp"  # noqa: S108 - it is made this user's own
    return guarded("gnomon-ssh-", within=Path(short))


class SshDevice(ShellDevice[SshSettings]):
    """A machine behind SSH; see `ShellDevice`. The `python` that `describe` reports is empty if the machine has none.

    Entering raises DeviceError for a Python that is too old or does not exist under the given name.
    """

    def _started(self) -> tuple[SshLink, str]:
        """A link, and the first message of its guard. If the server turns the client away, it tries again for a few
        seconds.
        """
        deadline_s = time.monotonic() + _TURNED_AWAY_S
        while True:
            link = SshLink(self._config)
            try:
                return link, link.start()
            except BaseException as error:
                link.close()
                if not isinstance(error, TurnedAwayError) or time.monotonic() > deadline_s:
                    raise
            pause(1.0)

    def _reach(self) -> SshLink:
        link, word = self._started()
        try:
            kind, _, rest = word.partition(" ")
            if kind == "lacks":
                raise DeviceError(
                    f"the shell of {self._config.destination} lacks {', '.join(rest.split())}",
                    hint="Install these (coreutils, or busybox) there, and check that they are on its PATH.",
                )
            if kind == "fail":
                raise refusal(self._config, rest, "the temporary folder")
            if kind != "base" or not rest.startswith("/") or not rest.isprintable():
                raise senseless(self._config, f"{kind} {rest}".encode())
            link.base = rest
            self._python = self._found_python(link)
            take_lease(self._config, lambda: link.ask("lease"), self._on_wait)
        except BaseException:
            link.close()
            raise
        return link

    def _found_python(self, link: ShellLink) -> str:
        """See `ShellDevice._found_python`."""
        path, seen = python_there(link, self._config.python)
        error = None if path else no_python(self._config, seen)
        if error is not None:
            raise error
        return path

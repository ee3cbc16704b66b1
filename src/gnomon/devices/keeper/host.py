"""A machine that is reached by SSH as a device: one connection, and a keeper at its other end.

A machine behind SSH, served through its Python, or through its shell where it has no Python at all.

What a keeper answers, read without trusting it: a device may be broken, or somebody else's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gnomon.devices import fingerprint as fingerprint_program
from gnomon.devices.base import INHERITED, Device, DeviceInfo, checked_name
from gnomon.devices.keeper.keeper_run import STDIN_WINDOW_BYTES
from gnomon.devices.keeper.link import PENDING_BYTES, Ended, Link
from gnomon.devices.lease import Waiting
from gnomon.devices.pushed import Digests, contents
from gnomon.devices.shell.ssh import PlainSshDevice
from gnomon.devices.shell.ssh_client import (
    NoPythonError,
    SshSettings,
    lost,
    not_connected,
    opening,
    overdue,
    refused,
    senseless,
    ssh_argv,
)
from gnomon.errors import DeviceError
from gnomon.system.process import STDERR_TAIL_BYTES, STDOUT_TAIL_BYTES, Completed, Guard, Lines, Tail

T = TypeVar("T")


class NonsenseError(Exception):
    """An answer that no keeper gives; `told` is its beginning."""

    def __init__(self, told: bytes) -> None:
        super().__init__(told)
        self.told = told[:80]


def message_of(payload: bytes) -> dict[str, Any]:
    """The JSON object of a frame. NonsenseError if it is none, or holds what JSON has no number for."""
    try:
        message = json.loads(payload, parse_constant=_no_number)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise NonsenseError(payload)
    return message


def _no_number(name: str) -> None:
    raise ValueError(name)


def field_of(message: dict[str, Any], name: str, kind: type[T]) -> T:
    """A field of an object. NonsenseError if it is not there, or of another kind."""
    value = message.get(name)
    if not isinstance(value, kind):
        raise NonsenseError(f"{name}: {value!r:.60}".encode())
    return value


def count_of(payload: bytes) -> int:
    """The number of bytes that a frame tells of. NonsenseError if it is none."""
    if not payload.isdigit() or len(payload) > 12:
        raise NonsenseError(payload)
    return int(payload)


_CHUNK_BYTES = 1 << 16
_LEASE_WAIT_S = 3600.0
_STOP_S = 20.0
_FINGERPRINT_S = 60.0
#: A device ends a command within moments of its time limit; one that lives on so much longer does not mean to.
_OVERTIME_S = 120.0


class SshDevice:
    """A machine behind SSH; see `Device` for what the methods promise.

    Entering connects, waits for the device's lease (telling `on_wait` once who has it), and starts the keeper, which
    cleans up on the device when the connection ends, for whatever reason. DeviceError, with what to do, if there is
    no way to the device; one that is `transient` in mid-run says that the way was lost: enter a new one.
    """

    def __init__(self, config: SshSettings, *, on_wait: Callable[[str], None] | None = None) -> None:
        self._config, self._on_wait = config, on_wait
        self._digests = Digests()
        self._link: Link | None = None
        self._guard: Guard | None = None
        self._scratch: str | None = None
        self._folder: str | None = None
        self._python = ""
        self._last_id = 0

    @property
    def folder(self) -> str:
        """The private folder there. DeviceError outside of the `with` block."""
        if self._folder is None:
            raise DeviceError(
                "the device is not open", hint="Use it in a with statement: with SshDevice(...) as device:"
            )
        return self._folder

    def __enter__(self) -> Self:
        config = self._config
        try:
            self._connect()
            self._folder, self._python = self._answer(
                ("private", "python"),
                op="open",
                silence_s=config.silence_s,
                wait_s=_LEASE_WAIT_S,
                lease=config.lease,
                folder=config.folder,
                keep=config.keep,
                # What is started without holding the device takes its lease by itself.
                inherited=INHERITED if config.lease else (*INHERITED, "GNOMON_LEASES"),
                environment=dict(config.environment),
            )
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run a command in the private folder; see `Device.run`. Its time limit is kept on the device."""
        link = self._opened()
        started_s = time.monotonic()
        stdout, stderr = Tail(STDOUT_TAIL_BYTES), Tail(STDERR_TAIL_BYTES)
        lines = Lines(on_line) if on_line else None
        with self._request(
            op="run",
            argv=list(argv),
            env=dict(env),
            timeout_s=timeout_s,
            stdin_bytes=len(stdin),
            stream=on_line is not None,
            stdout_bytes=STDOUT_TAIL_BYTES,
            stderr_bytes=STDERR_TAIL_BYTES,
        ):
            to_send, window = memoryview(stdin), STDIN_WINDOW_BYTES
            while True:
                while to_send and window > 0:
                    chunk, to_send = to_send[:_CHUNK_BYTES], to_send[_CHUNK_BYTES:]
                    window -= len(chunk)
                    link.data(chunk)
                kind, payload = link.receive()
                if time.monotonic() > started_s + timeout_s + _OVERTIME_S:
                    raise overdue(self._config, timeout_s)
                if kind == b"O":
                    stdout.add(payload)
                    if lines:
                        lines.add(payload)
                elif kind == b"E":
                    stderr.add(payload)
                elif kind == b"T":
                    window += count_of(payload)
                elif kind == b"L":
                    lines = None  # nobody listens any more
                elif kind == b"J" and (answer := self._end_in(payload)) is not None:
                    break
            status, timed_out = field_of(answer, "status", int), field_of(answer, "timed_out", bool)
        if lines:
            lines.finish()
        return Completed(
            returncode=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            stdout=stdout.text(),
            stderr=stderr.text(),
            timed_out=timed_out,
            duration_s=time.monotonic() - started_s,
        )

    def push(self, local: Path, name: str) -> str:
        """Bring a file or folder there, links resolved, unless it is there already; see `Device.push`."""
        link = self._opened()
        if not self._config.lease:
            raise DeviceError("nothing can be pushed to a device that is not held", hint="Open it with its lease.")
        checked_name(name)
        manifest = self._digests.manifest(local.absolute())
        entries = [(part.path, part.kind, part.size_bytes) for part in manifest.parts]
        with self._request(op="put", digest=manifest.digest, name=name, entries=entries):
            kind, payload = link.receive()
            answer = None
            while kind != b"J" or ((answer := self._end_in(payload)) is None and not self._wants(payload)):
                kind, payload = link.receive()
            if answer is None:
                for part in manifest.parts:
                    for chunk in contents(part) if part.kind != "d" else ():
                        link.data(chunk)
                        while (frame := link.arrived(PENDING_BYTES)) is not None:
                            self._end_in(frame[1])
                link.tell({"op": "commit", "id": self._last_id})
                answer = self._until_end()
            return field_of(answer, "path", str)

    def pull(self, remote: str, local: Path) -> None:
        """Fetch a file; see `Device.pull`."""
        link = self._opened()
        partial = local.with_name(f".{local.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as file, self._request(op="get", path=remote):
                while True:
                    kind, payload = link.receive()
                    if kind == b"D":
                        file.write(payload)
                    elif kind == b"J" and self._end_in(payload) is not None:
                        break
            partial.replace(local)
        except OSError as error:
            raise DeviceError(
                f"{remote} cannot be fetched to {local}: {error.strerror or error}",
                hint="Check that the folder exists here and that there is room in it.",
            ) from error
        finally:
            partial.unlink(missing_ok=True)

    def describe(self) -> DeviceInfo:
        """The device's name, its fingerprint and its Python."""
        program = Path(fingerprint_program.__file__).read_bytes()
        done = self.run([self._python, "-I", "-"], env={}, stdin=program, timeout_s=_FINGERPRINT_S)
        try:
            found = message_of(done.stdout.encode()) if done.ok else None
        except NonsenseError:
            found = None
        if found is None:
            raise DeviceError(
                f"{self._config.destination} cannot say what it is: {done.stderr.strip()[-300:] or done.stdout[:80]}",
                hint=f"See that {self._python} works there.",
            )
        return DeviceInfo(name=self._config.name, fingerprint=found, python=self._python)

    def _connect(self) -> None:
        config = self._config
        try:
            self._scratch = tempfile.mkdtemp(prefix="gnomon-ssh-")
        except OSError as error:
            raise DeviceError(
                f"no folder can be made in {tempfile.gettempdir()}: {error.strerror}",
                hint="Free space there, or point TMPDIR to a directory that can be written.",
            ) from error
        self._guard = Guard(Path(self._scratch))
        self._link = link = Link(ssh_argv(config), config.silence_s)
        self._guard.add(link.pid)
        try:
            link.start(opening(config), config.connect_timeout_s + config.silence_s)
        except Ended as ended:
            reason = not_connected(config, ended.returncode, link.stderr, link.printed)
            self._disconnect(kindly=False)  # there is no keeper yet to wait for
            raise reason from None

    def _opened(self) -> Link:
        _ = self.folder
        if self._link is None:
            raise DeviceError(
                f"the connection to {self._config.destination} was lost before",
                hint="Open the device again.",
                transient=True,
            )
        return self._link

    def _answer(self, names: tuple[str, str], **request: Any) -> tuple[str, str]:
        with self._request(**request):
            answer = self._until_end()
            return field_of(answer, names[0], str), field_of(answer, names[1], str)

    @contextlib.contextmanager
    def _request(self, **request: Any) -> Any:
        """Ask for something, and listen in the block until its end; an exception out of the block stops it there."""
        link = self._link
        assert link is not None  # noqa: S101
        self._last_id += 1
        try:
            link.tell({"id": self._last_id, **request})
            yield
        except Ended as ended:
            error = lost(self._config, ended.returncode, link.stderr)
            self._disconnect(kindly=False)
            raise error from None
        except NonsenseError as nonsense:
            self._disconnect(kindly=False)
            raise senseless(self._config, nonsense.told) from None
        except _Refusal as refusal:
            raise refused(self._config, refusal.answer) from None
        except BaseException:
            self._stop(link)
            raise

    def _stop(self, link: Link) -> None:
        """End what was asked for. If that cannot be said or is not heard, end the connection: then the keeper does."""
        if self._link is None:
            return
        hears = True
        if not link.torn:
            try:
                link.tell({"op": "stop", "id": self._last_id})
                deadline_s = time.monotonic() + _STOP_S
                while time.monotonic() < deadline_s:
                    kind, payload = link.receive()
                    if kind == b"J" and self._end_in(payload) is not None:
                        return
            except _Refusal:
                return
            except (Ended, NonsenseError):
                hears = False
        self._disconnect(kindly=hears)

    def _until_end(self) -> dict[str, Any]:
        link = self._link
        assert link is not None  # noqa: S101
        while True:
            kind, payload = link.receive()
            if kind == b"J" and (answer := self._end_in(payload)) is not None:
                return answer

    def _end_in(self, payload: bytes) -> dict[str, Any] | None:
        """The message if it ends the current request; `_Refusal` if that failed."""
        message = message_of(payload)
        if message.get("event") == "waiting" and self._on_wait is not None:
            owner = field_of(message, "owner", str)
            told = f"another gnomon (process {owner} there) measures on {self._config.name}: waiting for it to end"
            self._on_wait(Waiting(told))
        if message.get("end") != self._last_id:
            return None
        if "error" in message:
            raise _Refusal(message)
        return message

    def _wants(self, payload: bytes) -> bool:
        return bool(message_of(payload).get("event") == "send")

    def _disconnect(self, *, kindly: bool) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close(kindly=kindly)
            if self._guard is not None:
                self._guard.drop(link.pid)

    def _close(self) -> None:
        self._folder = None
        try:
            self._disconnect(kindly=True)
        finally:
            scratch, guard = self._scratch, self._guard
            self._scratch = self._guard = None
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
            if guard is not None:
                guard.close()


class _Refusal(Exception):
    """The keeper answered that it could not do what it was asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["error"])
        self.answer = answer


if TYPE_CHECKING:

    def _conforms(device: SshDevice) -> Device:
        return device


class AnySshDevice:
    """A machine behind SSH; see `Device` for what the methods promise.

    Only a device that was reached and has no Python is served by its shell, which its `describe` tells; a Python that
    is too old, or not there under the name that was given, stays an error.
    """

    def __init__(self, config: SshSettings, *, on_wait: Callable[[str], None] | None = None) -> None:
        self._config, self._on_wait = config, on_wait
        self._device: Device | None = None

    def __enter__(self) -> Self:
        try:
            self._device = SshDevice(self._config, on_wait=self._on_wait).__enter__()
        except NoPythonError:
            self._device = PlainSshDevice(self._config, on_wait=self._on_wait).__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        device, self._device = self._device, None
        if device is not None:
            device.__exit__(*exception)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """See `Device.run`."""
        return self._open.run(argv, env=env, stdin=stdin, timeout_s=timeout_s, on_line=on_line)

    def push(self, local: Path, name: str) -> str:
        """See `Device.push`."""
        return self._open.push(local, name)

    def pull(self, remote: str, local: Path) -> None:
        """See `Device.pull`."""
        self._open.pull(remote, local)

    def describe(self) -> DeviceInfo:
        """See `Device.describe`; `python` is empty where there is none."""
        return self._open.describe()

    @property
    def _open(self) -> Device:
        if self._device is None:
            raise DeviceError("the device is not open", hint="Use it in a with statement.")
        return self._device


if TYPE_CHECKING:

    def _any_conforms(device: AnySshDevice) -> Device:
        return device

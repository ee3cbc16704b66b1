"""The keeper: what gnomon starts on a device, to run commands and hold files there for one host.

It is sent over the connection that it then serves (`gnomon.devices.shell.ssh_client`), and needs Python 3.10 or later
with its standard library. When the connection ends or stays silent it kills what it runs, removes its private folder,
and ends.

Both directions carry frames: one byte that says what it is, four bytes of length (big endian), and so many bytes.
``J`` is a JSON object, ``D`` data of what the host sends (standard input, a pushed file) or fetches, ``O`` and ``E``
output of the command, ``T`` how many bytes of standard input were taken, ``L`` that the time limit has passed. The
host asks with ``{"op": ..., "id": n}``; each request but `ping` is answered by one ``{"end": n, ...}``, with
"error" in it if it failed. One request at a time, but for `ping`, `stop` and `commit`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import stat
import struct
import sys
import time
from typing import Any

from .keeper_files import Pushed, remove
from .keeper_place import Guard, Lease, private_folder
from .keeper_run import Command, Stuck

# ruff: noqa: PTH100, PTH111, PTH118, PTH120 - starts on devices where every import counts: it does without pathlib


MARK = b"\nGNOMON-KEEPER-1\n"
HEAD = struct.Struct(">cI")
_FRAME_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 18
_HIGH_BYTES = 1 << 20
_RETRY_S = 0.2
_KINDS = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
}

Message = dict[str, Any]


class Gone(Exception):
    """The host has gone, or there is another reason to end."""


class Keeper:
    """One connection on file descriptors 0 and 1, from its opening to its end."""

    def __init__(self, python: str) -> None:
        self._guard = Guard()
        self._python = os.path.abspath(python)
        self._selector = selectors.DefaultSelector()
        self._in, self._out = bytearray(), bytearray()
        self._writing = self._closed = False
        self._heard_s = time.monotonic()
        self._silence_s = 30.0
        self._settings: Message = {}
        self._id = 0
        self._lease: Lease | None = None
        self._waits_until_s: float | None = None
        self._told = False
        self._private = ""
        self._pushed: Pushed | None = None
        self._command: Command | None = None
        self._fetched = -1
        for handle in (0, 1):
            os.set_blocking(handle, False)
        self._selector.register(0, selectors.EVENT_READ, self._read)
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._signalled)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def serve(self) -> None:
        """Until the host has gone."""
        self._out += MARK
        try:
            while not self._closed:
                self._turn()
        except Gone:
            pass
        finally:
            self._leave()

    def _turn(self) -> None:
        self._flush()
        if self._command is not None:
            self._command.pause(len(self._out) > _HIGH_BYTES)
        now_s = time.monotonic()
        due_s = self._heard_s + self._silence_s
        overdue = now_s >= due_s
        if self._command is not None:
            due_s = min(due_s, self._command.due_s)
        if self._waits_until_s is not None:
            due_s = min(due_s, now_s + _RETRY_S)
        if self._fetched >= 0 and len(self._out) <= _HIGH_BYTES:
            due_s = now_s
        for key, _ in self._selector.select(min(max(0.0, due_s - now_s), 3600.0)):
            key.data()
        # Only after a look at what had come: the keeper itself may have been held up.
        if overdue and self._heard_s <= now_s - self._silence_s:
            raise Gone
        if self._waits_until_s is not None:
            self._take_lease()
        if self._command is not None:
            self._step(self._command)
        if self._fetched >= 0 and len(self._out) <= _HIGH_BYTES:
            self._fetch_more()

    def _signalled(self) -> None:
        if any(number != signal.SIGCHLD for number in os.read(self._wake, 4096)):
            raise Gone

    def _read(self) -> None:
        try:
            data = os.read(0, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Gone from error
        if not data:
            raise Gone
        self._heard_s = time.monotonic()
        self._in += data
        while len(self._in) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._in)
            if length > _FRAME_BYTES:
                raise Gone
            if len(self._in) < HEAD.size + length:
                break
            payload = bytes(memoryview(self._in)[HEAD.size : HEAD.size + length])
            del self._in[: HEAD.size + length]
            self._take(kind, payload)

    def _say(self, kind: bytes, payload: bytes) -> None:
        for start in range(0, max(len(payload), 1), _CHUNK_BYTES):
            part = payload[start : start + _CHUNK_BYTES]
            self._out += HEAD.pack(kind, len(part)) + part

    def _tell(self, **message: Any) -> None:
        data = json.dumps(message).encode()
        self._out += HEAD.pack(b"J", len(data)) + data

    def _flush(self) -> None:
        try:
            while self._out:
                with memoryview(self._out) as view:
                    count = os.write(1, view[:_CHUNK_BYTES])
                del self._out[:count]
        except BlockingIOError:
            pass
        except OSError as error:
            raise Gone from error
        if bool(self._out) != self._writing:
            self._writing = not self._writing
            if self._writing:
                self._selector.register(1, selectors.EVENT_WRITE, self._flush)
            else:
                self._selector.unregister(1)

    def _end(self, **message: Any) -> None:
        self._tell(end=self._id, **message)
        self._id = 0

    def _fail(self, what: str, error: BaseException) -> None:
        number = getattr(error, "errno", None)
        reason = getattr(error, "strerror", None) or str(error)
        self._end(error=_KINDS.get(number, "system") if number else "system", what=what, reason=reason)

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"D":
            self._take_data(payload)
            return
        message: Message = json.loads(payload)
        op = message["op"]
        if op == "ping":
            if not self._out:
                self._tell(event="pong")
        elif op in ("stop", "commit"):
            if message["id"] == self._id:
                getattr(self, "_" + op)()
        else:
            self._id = message["id"]
            {"open": self._open, "run": self._run, "put": self._put, "get": self._get}[op](message)

    def _take_data(self, data: bytes) -> None:
        if self._command is not None:
            self._command.feed(data)
        elif self._id and self._pushed is not None:
            try:
                self._pushed.write(data)
            except OSError as error:
                self._pushed.abort()
                self._fail(self._pushed.root, error)

    def _stop(self) -> None:
        if self._command is not None:
            self._command.stop()
            return
        if self._pushed is not None:
            self._pushed.abort()
        if self._fetched >= 0:
            os.close(self._fetched)
            self._fetched = -1
        self._end(stopped=True)

    def _open(self, message: Message) -> None:
        self._settings = message
        self._silence_s = float(message["silence_s"])
        if not message.get("lease", True):
            self._settle()
            return
        self._waits_until_s = time.monotonic() + float(message["wait_s"])
        self._take_lease()

    def _take_lease(self) -> None:
        assert self._waits_until_s is not None  # noqa: S101
        try:
            self._lease = self._lease or Lease()
            owner = self._lease.take()
        except OSError as error:
            self._waits_until_s = None
            self._fail(f"lease: {error.filename or ''}", error)
            return
        if owner is None:
            self._waits_until_s = None
            self._settle()
        elif not self._told:
            self._told = True
            self._tell(event="waiting", owner=owner)
        elif time.monotonic() > self._waits_until_s:
            self._waits_until_s = None
            self._end(error="busy", what="lease", reason=owner)

    def _settle(self) -> None:
        try:
            self._private = private_folder()
        except OSError as error:
            self._fail(f"private folder: {os.path.dirname(error.filename or '') or '/tmp'}", error)  # noqa: S108
            return
        self._guard.say("folder", self._private)
        folder = self._settings["folder"] or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "gnomon")
        root = os.path.abspath(os.path.expanduser(folder)) if self._settings["keep"] else self._private
        self._pushed = Pushed(os.path.join(root, "pushed")) if self._lease else None  # else others may push, too
        self._end(private=self._private, python=self._python, pid=os.getpid())

    def _run(self, message: Message) -> None:
        inherited = self._settings["inherited"]
        env = {k: v for k, v in os.environ.items() if k in inherited or k.startswith("LC_")}
        env.update(self._settings["environment"])
        env.update(message["env"])
        try:
            self._command = Command(message, env, self._private, self._selector, self._say)
        except (OSError, ValueError, IndexError) as error:
            self._end(error="start", what="", reason=getattr(error, "strerror", None) or str(error))
            return
        self._guard.say("add", self._command.group)

    def _step(self, command: Command) -> None:
        try:
            status = command.step()
        except Stuck:
            self._command = None
            self._end(error="stuck", what=str(command.group), reason="")
            return
        if status is not None:
            self._command = None
            self._guard.say("drop", command.group)
            self._end(status=status, timed_out=command.timed_out)

    def _put(self, message: Message) -> None:
        assert self._pushed is not None  # noqa: S101
        try:
            path = self._pushed.find(message["digest"], message["name"])
            if path is None:
                self._pushed.begin(message["digest"], message["name"], message["entries"])
        except OSError as error:
            self._pushed.abort()
            self._fail(self._pushed.root, error)
            return
        if path is None:
            self._tell(event="send")
        else:
            self._end(path=path)

    def _commit(self) -> None:
        assert self._pushed is not None  # noqa: S101
        try:
            path = self._pushed.finish()
        except OSError as error:
            self._pushed.abort()
            self._fail(self._pushed.root, error)
            return
        self._end(path=path)

    def _get(self, message: Message) -> None:
        path = os.path.join(self._private, message["path"])
        try:
            self._fetched = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer must not block
            if not stat.S_ISREG(os.fstat(self._fetched).st_mode):
                os.close(self._fetched)
                self._fetched = -1
                raise OSError(errno.EINVAL, "it is not a regular file", path)
        except (OSError, ValueError) as error:
            self._fail(path, error)

    def _fetch_more(self) -> None:
        try:
            data = os.read(self._fetched, _CHUNK_BYTES)
        except OSError as error:
            data = b""
            self._fail("", error)
        if data:
            self._say(b"D", data)
            return
        os.close(self._fetched)
        self._fetched = -1
        if self._id:
            self._end()

    def _leave(self) -> None:
        """Leave nothing behind; the lease is the last to go."""
        if self._command is not None:
            self._command.kill()
            with contextlib.suppress(Stuck):
                while self._command.step() is None:
                    time.sleep(0.01)
        if self._pushed is not None:
            with contextlib.suppress(OSError):
                self._pushed.prune()
        if self._private:
            os.chdir("/")
            remove(self._private)
        self._guard.say("done")
        if self._lease is not None:
            self._lease.close()


def main() -> None:
    """Serve the connection on standard input and output. The one argument is how this Python was started."""
    Keeper(sys.argv[1]).serve()

"""Serves sessions of TVM's RPC protocol on a device's loopback interface, to the only client that knows the key.

The text of this file, with a call of `main` at the end, is sent to the device's Python; it needs TVM there, but nothing
from gnomon. The first printed line is a JSON object: ``{"port", "mcpu", "mtriple"}``, or ``{"missing"}`` if TVM cannot
be imported. There is one session at a time, in a separate process. The next session ends the current one, even if a
function in it has not returned. TVM's own server (`tvm.exec.rpc_server`) has no authentication, and does not survive a
crashed session.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

NOTE_CPU, NOTED_CPU = "gnomon.note_cpu", "gnomon.noted_cpu"
"""Functions of a session's process: one notes the CPU time, the other returns the times noted since its last call."""

_HOST = "127.0.0.1"
_GREETING_S = 10.0
_MOST_KEY_BYTES = 4096


def main(key: str, pin: list[int]) -> None:
    """Serve until the process is ended."""
    if pin:
        os.sched_setaffinity(0, pin)
    sys.modules["torch"] = None  # type: ignore[assignment]  # TVM would spend two thirds of its start on importing torch
    try:
        from tvm import target
        from tvm.rpc import base, server

        offer_cpu_time()
        facts = {
            "mcpu": str(target.codegen.llvm_get_system_cpu()),
            "mtriple": str(target.codegen.llvm_get_system_triple()),
        }
    except Exception as error:  # a broken package may raise anything at import
        _say({"missing": f"{type(error).__name__}: {error}"})
        return
    with socket.create_server((_HOST, 0)) as listener:
        _say({"port": listener.getsockname()[1], **facts})
        sessions = _Sessions(server)
        while True:
            connection, _ = listener.accept()
            with connection:
                if _greets(connection, key, base):
                    sessions.begin(connection, listener)


def offer_cpu_time() -> None:
    """Register the functions `NOTE_CPU` and `NOTED_CPU`. The noted nanoseconds are returned as a JSON list."""
    import tvm_ffi

    noted: list[int] = []

    def drain() -> str:
        text = json.dumps(noted)
        noted.clear()
        return text

    tvm_ffi.register_global_func(NOTE_CPU, lambda *_: noted.append(time.process_time_ns()))
    tvm_ffi.register_global_func(NOTED_CPU, drain)


class _Sessions:
    """The current session and its folder."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._process: Any = None
        self._folder, self._count = "", 0

    def begin(self, connection: socket.socket, listener: socket.socket) -> None:
        """End the previous session, and serve this connection in a new process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            shutil.rmtree(self._folder, ignore_errors=True)
        self._count += 1
        # Under the current folder, which is removed with its contents when the device is left.
        self._folder = str(Path.cwd() / f"session-{self._count}")
        # A fork costs little compared with importing TVM again.
        process = multiprocessing.get_context("fork").Process(target=self._serve, args=(connection, listener))
        process.start()
        self._process = process

    def _serve(self, connection: socket.socket, listener: socket.socket) -> None:
        listener.close()
        folder = self._server.utils.tempdir(custom_path=self._folder)
        os.chdir(self._folder)
        self._server._serve_loop(connection, None, folder)


def _greets(connection: socket.socket, key: str, base: Any) -> bool:
    """Return True if the client knows the key, which the protocol's greeting contains; the greeting is answered."""
    connection.settimeout(_GREETING_S)
    try:
        if struct.unpack("<i", base.recvall(connection, 4))[0] != base.RPC_MAGIC:
            return False
        length = struct.unpack("<i", base.recvall(connection, 4))[0]
        words = base.recvall(connection, length).decode() if 0 < length <= _MOST_KEY_BYTES else ""
        if words.split()[:1] != [f"client:{key}"]:
            connection.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
            return False
        name = f"server:{key}".encode()
        connection.sendall(struct.pack("<ii", base.RPC_CODE_SUCCESS, len(name)) + name)
    except (OSError, UnicodeDecodeError):
        return False
    connection.settimeout(None)
    return True


def _say(facts: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()

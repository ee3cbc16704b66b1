"""A loopback port on a device, made available at a local loopback port with OpenSSH."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator

from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import ssh_settings
from gnomon.devices.shell.link import end
from gnomon.devices.shell.ssh_client import forward_argv
from gnomon.errors import UsageError
from gnomon.system.process import Guard

_HOST = "127.0.0.1"
_END_S = 10.0


@contextlib.contextmanager
def forwarded(config: DeviceConfig, port: int, guard: Guard) -> Iterator[tuple[str, int]]:
    """A local host and port that lead to a loopback port on the device for the duration of the block.

    Each connection has its own SSH client, which ends with the connection, and also if gnomon dies. UsageError for a
    device that is not reached through ssh.
    """
    if config.address.kind != "ssh":
        raise UsageError(f"{config.name} is not reached by SSH", hint="Give a device with an ssh:// address.")
    command = forward_argv(ssh_settings(config), port)
    clients: list[subprocess.Popen[bytes]] = []
    with socket.create_server((_HOST, 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, command, clients, guard), daemon=True)
        accepting.start()
        try:
            yield _HOST, listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            accepting.join(_END_S)
            for client in clients:
                end(client, guard)


def _accept(listener: socket.socket, command: list[str], clients: list[subprocess.Popen[bytes]], guard: Guard) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the listener was closed
            return
        for client in [each for each in clients if each.poll() is not None]:
            guard.drop(client.pid)
            clients.remove(client)
        with connection, contextlib.suppress(OSError):
            stream = connection.fileno()
            clients.append(guard.start(command, stdin=stream, stdout=stream, stderr=subprocess.DEVNULL))

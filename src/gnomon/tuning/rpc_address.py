"""Where servers that have no authentication may listen: loopback, or an address that was asked for by name."""

from __future__ import annotations

import errno
import ipaddress
import socket

from gnomon.core.strict_json import shown
from gnomon.errors import UsageError

LOOPBACK = "127.0.0.1"


def checked_bind(bind: str) -> tuple[str, str]:
    """The address of this machine to listen on, and a warning to show where others can reach it (else "").

    UsageError for what is no address, for that of another machine, and for the address that means all of them: servers
    tell the tracker by which address they are reached, and that is none.
    """
    try:
        address = ipaddress.ip_address(LOOPBACK if bind == "localhost" else bind)
    except ValueError:
        raise UsageError(f"{shown(bind)} is no address", hint="Give --bind an address such as 192.168.1.5.") from None
    if address.is_unspecified:
        raise UsageError(
            f"{bind} means every address of this machine, and servers must tell by which they are reached",
            hint="Give --bind the one address by which the others reach this machine, such as 192.168.1.5.",
        )
    free_port(str(address))
    if address.is_loopback:
        return str(address), ""
    return str(address), (
        f"Whoever reaches {address} can run any program on this machine as its user: the protocol of the tracker and "
        "the servers has no authentication and runs the code that is uploaded. Use it in a closed network only."
    )


def free_port(bind: str, port: int = 0) -> int:
    """A port that is free at this moment, or `port` if that is. UsageError if it is another's, or `bind` is no address
    of this machine.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the servers do: connections that ended a moment ago do not hold a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((bind, port))
            found: int = probe.getsockname()[1]
            return found
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {bind} is another's", hint="Give another --port, or 0.") from error
        if error.errno == errno.EACCES:
            raise UsageError(f"port {port} is the administrator's", hint="Give a --port above 1023, or 0.") from error
        raise UsageError(
            f"{bind} cannot be listened on: {error.strerror}", hint="Give --bind an address of this machine."
        ) from error

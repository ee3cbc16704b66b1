"""What a tracker says, as values: its servers, its queues, a server that is free. Replies are read with suspicion.

Forms: the summary is ``[0, {"queue_info": {key: {"free": 1, "pending": 0}}, "server_info": [{"key": "server:KEY",
"addr": [host, port]}]}]``, a free server ``[0, [host, port, matchkey]]``. Servers in Python report their port as a
number, those in C++ and Java as a text. Source: as `gnomon.tuning.tracker_wire`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core.strict_json import is_text, shown
from gnomon.errors import DeviceError
from gnomon.formats.complaints import complaint

_PREFIX = "server:"
_MOST_LETTERS = 512
_MOST_KEYS_TOLD = 20
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedServer:
    """A server that is registered, whether it is free, busy, or was lost without a word."""

    key: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return address_of(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How many servers of a key are free, and how many requests wait (also of clients that went away meanwhile)."""

    free: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeServer:
    """A server that the tracker has given away: it takes the connection that shows this `matchkey`, and no other.

    One that is not connected to is free again after about 8 seconds, with another matchkey.
    """

    host: str
    port: int
    matchkey: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSummary:
    """All servers of a tracker by key, and the queue of each key that was ever asked for or offered."""

    servers: tuple[TrackedServer, ...]
    queues: Mapping[str, Queue]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that a server has, in alphabetical order."""
        return tuple(sorted({server.key for server in self.servers}))

    def of(self, key: str) -> tuple[TrackedServer, ...]:
        """The servers of a key."""
        return tuple(server for server in self.servers if server.key == key)

    def queue(self, key: str) -> Queue:
        """The queue of a key."""
        return self.queues.get(key, Queue(free=0, pending=0))

    def require(self, key: str, address: str) -> None:
        """DeviceError that lists the known keys if no server has this one."""
        if self.of(key):
            return
        near = difflib.get_close_matches(key, self.keys, n=1)
        told = ", ".join(shown(one) for one in self.keys[:_MOST_KEYS_TOLD])
        more = len(self.keys) - _MOST_KEYS_TOLD
        known = f"its keys: {told}{f' and {more} more' if more > 0 else ''}" if told else "it has no server at all"
        raise DeviceError(
            f"no server of the tracker at {address} has the key {shown(key)}; {known}",
            hint=f"Did you mean {near[0]!r}?"
            if near
            else f"Give one of its keys, or start one: python -m tvm.exec.rpc_server --tracker {address} --key KEY",
            transient=True,
        )


def address_of(host: str, port: int) -> str:
    """HOST:PORT, with brackets around a host of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_summary(reply: Any, address: str) -> TrackerSummary:
    """The summary in a reply of the tracker at `address`. DeviceError that tells all that is wrong with it."""
    told: list[str] = []
    found = _succeeded(reply, dict, told)
    servers, queues = [], {}
    infos, counts = found.get("server_info", []), found.get("queue_info", {})
    if not isinstance(infos, list):
        told.append(f"server_info: a list expected, {shown(infos)} found")
        infos = []
    for k, info in enumerate(infos):
        if (server := _server(info, f"server_info[{k}]", told)) is not None:
            servers.append(server)
    if not isinstance(counts, dict):
        told.append(f"queue_info: an object expected, {shown(counts)} found")
        counts = {}
    for key, count in counts.items():
        if (queue := _queue(key, count, told)) is not None:
            queues[key] = queue
    _raise_any(told, address)
    return TrackerSummary(servers=tuple(sorted(servers, key=lambda s: (s.key, s.host, s.port))), queues=queues)


def read_free(reply: Any, address: str) -> FreeServer:
    """The free server in a reply of the tracker at `address`. DeviceError that tells all that is wrong with it."""
    told: list[str] = []
    found = _succeeded(reply, list, told)
    if not told and len(found) != 3:
        told.append(f"[1]: host, port and matchkey expected, {len(found)} items found")
    host, port, matchkey = (*found, None, None, None)[:3]
    if not told:
        host, port = _text(host, "[1][0]", told), _port(port, "[1][1]", told)
        matchkey = _text(matchkey, "[1][2]", told)
    _raise_any(told, address)
    return FreeServer(host=host, port=port, matchkey=matchkey)


def _raise_any(told: list[str], address: str) -> None:
    if told:
        raise DeviceError(
            complaint(f"reply of the tracker at {address}", told),
            hint="See whether a TVM RPC tracker of a known release listens there; this is how that of 0.27 replies.",
        )


def _succeeded(reply: Any, kind: type, told: list[str]) -> Any:
    """What follows the code of success; an empty one of its kind, with a complaint, where there is none."""
    if isinstance(reply, list) and len(reply) == 2 and reply[0] == 0 and isinstance(reply[1], kind):
        return reply[1]
    told.append(f"[0, {'{..}' if kind is dict else '[..]'}] expected, {shown(reply)} found")
    return kind()


def _server(info: Any, path: str, told: list[str]) -> TrackedServer | None:
    if not isinstance(info, dict):
        told.append(f"{path}: an object expected, {shown(info)} found")
        return None
    before = len(told)
    key = _text(info.get("key"), f"{path}.key", told)
    if key and not key.removeprefix(_PREFIX):
        told.append(f"{path}.key: the name of a server is empty")
    place = info.get("addr")
    if not (isinstance(place, list) and len(place) == 2):
        told.append(f"{path}.addr: host and port expected, {shown(place)} found")
        return None
    host, port = _text(place[0], f"{path}.addr[0]", told), _port(place[1], f"{path}.addr[1]", told)
    if len(told) > before:
        return None
    return TrackedServer(key=key.removeprefix(_PREFIX), host=host, port=port)


def _queue(key: str, count: Any, told: list[str]) -> Queue | None:
    path = f"queue_info[{shown(key)}]"
    if not isinstance(count, dict):
        told.append(f"{path}: an object expected, {shown(count)} found")
        return None
    free, pending = count.get("free"), count.get("pending")
    if type(free) is int and type(pending) is int and min(free, pending) >= 0:
        return Queue(free=free, pending=pending)
    told.append(f"{path}: numbers free and pending from 0 expected, {shown(free)} and {shown(pending)} found")
    return None


def _text(value: Any, path: str, told: list[str]) -> str:
    if isinstance(value, str) and 0 < len(value) <= _MOST_LETTERS and is_text(value):
        return value
    told.append(f"{path}: a text of 1 to {_MOST_LETTERS} letters expected, {shown(value)} found")
    return ""


def _port(value: Any, path: str, told: list[str]) -> int:
    if isinstance(value, str) and _PORT.fullmatch(value):
        value = int(value)
    if type(value) is int and 0 < value < 1 << 16:
        return value
    told.append(f"{path}: a port from 1 to 65535 expected, {shown(value)} found")
    return 0

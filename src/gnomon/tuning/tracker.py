"""The tracker of TVM's RPC servers, asked which servers there are and for a free one."""

from __future__ import annotations

import ipaddress
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.core.strict_json import shown
from gnomon.errors import DeviceError, UsageError
from gnomon.tuning.tracker_reply import FreeServer, TrackerSummary, address_of, read_free, read_summary
from gnomon.tuning.tracker_wire import LateError, TrackerWire, connected

HOST_VARIABLE, PORT_VARIABLE = "TVM_TRACKER_HOST", "TVM_TRACKER_PORT"
PUBLISHED_PORT = 9190
_REQUEST, _SUMMARY = 4, 6
_PRIORITY = 1
_LAST_S = 2.0
_POLL_S = 0.2
#: A server whose client broke off registers anew, and is not listed for a moment.
_BLINK_S = 0.5
_FORM = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*))(?P<colon>:(?P<port>.*))?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,5}", re.ASCII)
_HINT = "Give HOST:PORT, such as 127.0.0.1:9190 or [::1]:9190."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """A tracker by its address. `reply_s` is how long connecting and one answer may take together.

    The protocol has neither encryption nor authentication: whoever reaches a tracker reaches its servers, which run
    what they are sent.
    """

    host: str
    port: int
    reply_s: float = 10.0

    @property
    def address(self) -> str:
        """HOST:PORT, as `tracker_at` reads it."""
        return address_of(self.host, self.port)

    def summary(self) -> TrackerSummary:
        """The servers and queues at this moment. DeviceError if the tracker cannot be reached or does not answer well.

        A server that was lost without a word (its network or power went) is listed for as long as the tracker's
        connection to it lasts; one whose program ended is not.
        """
        until_s = time.monotonic() + self.reply_s
        with connected(self.host, self.port, until_s) as wire:
            return self._summary(wire, until_s)

    def request(self, key: str, timeout_s: float, *, appear_s: float = _BLINK_S) -> FreeServer:
        """A free server of a key, which is the caller's for the next moments: see `FreeServer`.

        Waits up to `timeout_s` for one to become free. A key that no server has is an error when none has had it for
        `appear_s`: give more where a server that crashed is started anew. DeviceError lists the known keys, or says
        that all servers of the key are busy. No request stays with the tracker, whatever happens: a server is never
        given to a call that has ended.
        """
        until_s = time.monotonic() + timeout_s
        appear_by_s = min(until_s, time.monotonic() + appear_s)
        while True:
            self._wait_for(key, appear_by_s)
            with connected(self.host, self.port, time.monotonic() + self.reply_s) as wire:
                # Looked up on this side: a request for an unknown key would wait, and make the tracker list it for
                # ever. A server that has just ended may have been seen a moment ago: it is waited for as well.
                found = self._summary(wire, time.monotonic() + self.reply_s)
                if not found.of(key) and time.monotonic() < appear_by_s:
                    continue
                found.require(key, self.address)
                wire.send([_REQUEST, key, "", _PRIORITY], time.monotonic() + self.reply_s)
                try:
                    reply = wire.receive(max(until_s, time.monotonic() + _POLL_S))
                except LateError:
                    reply = wire.receive_last(time.monotonic() + _LAST_S)
            break
        if reply is None:
            raise self._busy(key, timeout_s)
        return read_free(reply, self.address)

    def _summary(self, wire: TrackerWire, until_s: float) -> TrackerSummary:
        return read_summary(wire.ask([_SUMMARY], until_s), self.address)

    def _wait_for(self, key: str, until_s: float) -> None:
        """Until a server has the key, or the time has come."""
        while time.monotonic() < until_s and not self.summary().of(key):
            time.sleep(_POLL_S)

    def _busy(self, key: str, timeout_s: float) -> DeviceError:
        found = self.summary()
        found.require(key, self.address)
        count, waiting = len(found.of(key)), found.queue(key).pending
        who = "its only server is" if count == 1 else f"all its {count} servers are"
        return DeviceError(
            f"no server with the key {shown(key)} became free within {timeout_s:g} s: {who} busy, lost, or promised to "
            f"others ({waiting} requests wait)",
            hint="Wait for what measures there to end, or start that server again; then the same command goes on.",
            transient=True,
        )


def tracker_at(text: str | None, environment: Mapping[str, str] = os.environ) -> Tracker:
    """The tracker that "HOST:PORT" means; a host of IPv6 is in brackets.

    What is left out, or all with None, comes from TVM_TRACKER_HOST and TVM_TRACKER_PORT; without these the port is
    9190, and the host is missing. UsageError for what means no tracker.
    """
    given = "" if text is None else text.strip()
    match = _FORM.fullmatch(given)
    if match is None:
        raise UsageError(f"{shown(text)} is no address of a tracker", hint=_HINT)
    six, host, port = match["six"], match["host"], match["port"]
    if port and ":" in port:
        raise UsageError(f"{shown(text)} is no address of a tracker: that of IPv6 is in brackets", hint=_HINT)
    if match["colon"] and not port:
        raise UsageError(f"{shown(text)} is no address of a tracker: no port follows the colon", hint=_HINT)
    if six is None and not host:
        host = environment.get(HOST_VARIABLE, "").strip()
        six = host if ":" in host else None
    if port is None:
        port = environment.get(PORT_VARIABLE, "").strip() or str(PUBLISHED_PORT)
    if six is None and not host:
        raise UsageError(
            "no tracker is named", hint=f"Give --tracker HOST:PORT, or set {HOST_VARIABLE} and {PORT_VARIABLE}."
        )
    return Tracker(host=_host(six, host), port=_port(port))


def _host(six: str | None, host: str) -> str:
    if six is not None:
        try:
            ipaddress.IPv6Address(six)
        except ValueError:
            raise UsageError(f"{shown(six)} is no address of IPv6", hint=_HINT) from None
        return six
    if not _NAME.fullmatch(host):
        raise UsageError(f"{shown(host)} is no name or address of a host", hint=_HINT)
    return host


def _port(text: str) -> int:
    if not _DIGITS.fullmatch(text) or not 0 < int(text) < 1 << 16:
        raise UsageError(f"{shown(text)} is no port from 1 to 65535", hint=_HINT)
    return int(text)

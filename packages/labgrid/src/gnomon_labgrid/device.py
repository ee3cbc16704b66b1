"""Places of labgrid as devices: they are acquired, switched on, reached by ssh or adb, and released.

Only a child program loads labgrid. labgrid's coordinator knows the owner of a place by a name, and reserves the place
for that name even after the owner's process has ended. Therefore each visit has a separate name, and a small companion
process releases the places of the visit when gnomon closes them or dies. If the companion was killed too, the next
visit by the same user from this machine releases the places: the local lease of a place shows whether its owner is
still alive.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gnomon.devices.address import Address, parse_address
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.lease import Waiting, lease, lease_folder, lease_holder
from gnomon.devices.opening import OnWait, ssh_device
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.installing import pip_line
from gnomon.system.process import Conversation, outliving, own_guard
from gnomon.system.stopping import pause

BOOT_S = 120.0
"""The time that a place may take to answer after it is switched on; if it takes longer, it is switched off and on,
once.
"""

_WAIT_S = 3600.0
_ASK_AGAIN_S = 0.5
_LOOK_AGAIN_S = 10.0
"""The seconds between checks whether the owner of a place has died, and between polls of a reservation that waits for a
lease here: labgrid drops a reservation that is not polled for a minute.
"""
_ANSWER_S = 60.0
_POWER_S = 180.0
_ANSWERS_S = 5.0
_GIVE_BACK_S = 30.0
_PROGRAM = Path(__file__).with_name("program.py")
_COORDINATOR = "127.0.0.1:20408"  # labgrid's own default
_TAG = r"[a-z][a-z0-9_]+=[A-Za-z0-9_.-]{1,64}"  # the keys that labgrid accepts
_PLACE = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.+-]{{0,127}}|@{_TAG}(,{_TAG}){{0,15}}", re.ASCII)
_NOT_PASSED = ("LG_ENV", "LG_PLACE", "LG_STATE", "LG_INITIAL_STATE", "PLACE", "STATE")
"""Variables that labgrid's client would apply to this place, although they are meant for another one."""

_KEEPER = """
import os, sys
sys.stdin.buffer.read()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

_chosen: dict[Address, str] = {}
"""The place that this process uses for each set of tags, so that all its measurements are of one board, even after a
disconnect.
"""


def labgrid_device(config: DeviceConfig, on_wait: OnWait | None) -> AbstractContextManager[Device]:
    """The place of labgrid that a configuration's address names; it is held for the duration of the block.

    labgrid's reservations decide the order. A place that this user has acquired by hand is used and not released.
    `on_wait` gets the present owner once. Raises UsageError immediately if the address does not name a place. On
    entering the block, raises RuntimeMissingError if labgrid is missing, and DeviceError if there is no coordinator or
    no such place, or if the place is not free within an hour or has no resource that gnomon can reach.
    """
    if config.address.user or not _PLACE.fullmatch(config.address.key):
        raise UsageError(
            f"{str(config.address)!a} names no place of labgrid",
            hint="Give labgrid:PLACE, labgrid:@TAG=VALUE[,TAG=VALUE..], or labgrid://HOST[:PORT]/ before either.",
        )
    return _taken(config, on_wait)


@contextmanager
def _taken(config: DeviceConfig, on_wait: OnWait | None) -> Iterator[Device]:
    visit = _Visit(config)
    with ExitStack() as stack:
        asking = ExitStack()
        stack.push(asking)
        asking.enter_context(visit)
        place = stack.enter_context(visit.held(on_wait))
        way = _way(config, place, visit.ask("resources", place=place)["resources"])
        if way.power:
            _switch_on(visit, place, way)
        device = stack.enter_context(way.device(on_wait))
        asking.close()  # nothing more is requested, and the program needs some memory
        yield device


class _Visit:
    """The child program that talks to the coordinator, under a name that no other visit has."""

    def __init__(self, config: DeviceConfig) -> None:
        self.address = config.address
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        port = f":{self.address.port}" if self.address.port else ""
        self.coordinator = host + port or os.environ.get("LG_COORDINATOR") or _COORDINATOR
        host, user = os.environ.get("LG_HOSTNAME") or socket.gethostname(), os.environ.get("LG_USERNAME")
        self.user = f"{host}/{user or getpass.getuser()}"
        session = f"gnomon-{os.getpid()}-{secrets.token_hex(3)}@{host}"
        self._left = re.compile(rf"gnomon-[0-9]+-[0-9a-f]{{6}}@{re.escape(self.user)}")
        self._stuck: dict[str, str] = {}
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
        self._env = kept | {"LG_HOSTNAME": session, "LG_USERNAME": self.user.partition("/")[2]}

    def __enter__(self) -> _Visit:
        argv = [sys.executable, *self._argv(give_back=False)]
        self._program = Conversation(argv, env=self._env, cwd=Path("/"), guard=own_guard())
        try:
            said = self._said(b"")
            if said.get("state") == "missing":
                hint = pip_line(["labgrid>=26"], sys.executable)
                raise RuntimeMissingError(f"labgrid cannot be loaded: {said['message']}", hint=hint)
            if said.get("state") != "ready":
                raise DeviceError(
                    f"no coordinator of labgrid answers at {self.coordinator}: {said.get('message')}",
                    hint="Start it (labgrid-coordinator), or name another: LG_COORDINATOR=HOST:PORT, or "
                    "labgrid://HOST:PORT/PLACE.",
                    transient=True,
                )
        except BaseException:
            self._program.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._program.close()

    def ask(self, do: str, *, within_s: float = _ANSWER_S, **job: Any) -> Any:
        """The coordinator's answer to a request. Transient DeviceError if it refuses."""
        said = self._said(json.dumps({"do": do, **job}).encode() + b"\n", within_s)
        if said.get("state") != "done":
            raise DeviceError(
                f"labgrid's coordinator at {self.coordinator} refuses ({do}): {said.get('message')}",
                hint="Check the log of the coordinator, and: labgrid-client places; labgrid-client resources",
                transient=True,
            )
        return said

    @contextmanager
    def held(self, on_wait: OnWait | None) -> Iterator[str]:
        """The name of a place that belongs to this visit for the duration of the block."""
        for place in self._wanted():
            if self.user in (place["acquired"], *place["allowed"]) and place["name"] == self.address.key:
                with lease(lease_folder(), _lease(place["name"]), on_wait=on_wait):
                    yield self.address.key
                return
        with self._kept():
            reservation = self._reserved(on_wait)
            name, polled = reservation["place"], self._keeping(reservation["token"])
            with lease(lease_folder(), _lease(name), on_wait=on_wait, meanwhile=polled):
                self.ask("acquire", place=name)
                yield name

    def _reserved(self, on_wait: OnWait | None) -> Mapping[str, Any]:
        """Wait until a place is reserved for this visit; return the reservation, which names the place."""
        key = self._key()
        tags = dict(tag.split("=") for tag in key[1:].split(",")) if key.startswith("@") else {"name": key}
        reservation: Mapping[str, Any] = self.ask("reserve", tags=tags)
        deadline_s, owners = time.monotonic() + _WAIT_S, ""
        look_s = time.monotonic() + _ASK_AGAIN_S  # not immediately, because a place may be about to be released
        while reservation["standing"] == "waiting":
            late = time.monotonic() > deadline_s
            if late or time.monotonic() >= look_s:
                first, owners = not owners, self._owners()
                look_s = time.monotonic() + _LOOK_AGAIN_S
                if first and on_wait is not None:
                    on_wait(Waiting(f"{owners} in labgrid: waiting for it to end"))
            if late:
                hint = f"Wait for its release, or see its owner: labgrid-client -x {self.coordinator} who"
                raise DeviceError(f"{self.address} is not free: {owners}", hint=hint, transient=True, busy=True)
            pause(_ASK_AGAIN_S)
            reservation = self.ask("poll", token=reservation["token"])
        self._check(reservation)
        _chosen.setdefault(self.address, reservation["place"])
        return reservation

    def _keeping(self, token: str) -> Callable[[], None]:
        """A function that polls a reservation every few seconds while the visit waits. DeviceError if it is lost."""
        polled_s = time.monotonic()

        def poll() -> None:
            nonlocal polled_s
            if time.monotonic() - polled_s >= _LOOK_AGAIN_S:
                polled_s = time.monotonic()
                self._check(self.ask("poll", token=token))

        return poll

    def _check(self, reservation: Mapping[str, object]) -> None:
        """Raise DeviceError if a reservation has no place."""
        if not reservation["place"]:
            raise DeviceError(
                f"labgrid's reservation of {self.address} is {reservation['standing']}",
                hint="Start again. To see all reservations: labgrid-client reservations",
                transient=True,
            )

    def _key(self) -> str:
        """The name of the place, or "@" and its tags."""
        return _chosen.get(self.address, self.address.key)

    def _owners(self) -> str:
        """The owners of the places that the address means, in a clause. Places of processes that have ended are
        released.
        """
        held = [
            f"{place['acquired'] or 'a reservation'} has {place['name']}{self._stuck.get(place['acquired'], '')}"
            for place in self._wanted()
        ]
        return ", ".join(held[:5]) + (f" and {len(held) - 5} more" if len(held) > 5 else "")

    def _wanted(self) -> list[Any]:
        """The places that the address means; DeviceError if there are none. Places of processes that have ended are
        released.
        """
        places = self.ask("look")["places"]
        for place in places:
            by = place["acquired"] or ""
            if self._left.fullmatch(by) and lease_holder(lease_folder(), _lease(place["name"])) is None:
                try:
                    self.ask("free", by=by)
                    place["acquired"] = ""
                except DeviceError as error:  # a reason to wait, which the message about waiting gives
                    self._stuck[by] = f" (its process has ended, but the place cannot be released: {error.message})"
        key = self._key()
        tags = set(key[1:].split(",")) if key.startswith("@") else None
        wanted = [
            place
            for place in places
            if (
                place["name"] == key
                if tags is None
                else tags <= {f"name={place['name']}", *(f"{k}={v}" for k, v in place["tags"].items())}
            )
        ]
        if not wanted:
            names = sorted(place["name"] for place in places)
            shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            what = f"no place {key!r}" if tags is None else f"no place with {', '.join(sorted(tags))}"
            raise DeviceError(
                f"labgrid's coordinator at {self.coordinator} has {what}",
                hint=f"Its places: {shown or 'none'}. See: labgrid-client -x {self.coordinator} -v places",
            )
        return wanted

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Release everything that belongs to this visit at the end of the block, and if gnomon dies."""
        keeper = outliving(_KEEPER, *self._argv(give_back=True), env=self._env)
        try:
            yield
        finally:
            assert keeper.stdin is not None  # noqa: S101
            keeper.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the keeper then continues on its own
                keeper.wait(_GIVE_BACK_S)

    def _argv(self, *, give_back: bool) -> list[str]:
        asked = json.dumps({"coordinator": self.coordinator, "give_back": give_back})
        return ["-P", str(_PROGRAM), asked]

    def _said(self, line: bytes, within_s: float = _ANSWER_S) -> Mapping[str, object]:
        said = self._program.answer(line, timeout_s=within_s)
        if isinstance(said, str):
            with contextlib.suppress(ValueError):
                answer = json.loads(said)
                if isinstance(answer, dict):
                    return answer
            why = f"ended: {said[:300]}"
        elif said.timed_out:
            why = "did not answer in time"
        else:
            why = f"ended: {' '.join(said.stderr.strip().splitlines()[-1:])[:300]}"
        raise DeviceError(
            f"the program that talks to labgrid's coordinator at {self.coordinator} {why}",
            hint="Check that labgrid itself works here: labgrid-client places",
            transient=True,
        )


_LONGEST = 150
"""The most characters of a place's name in the name of its lease, because a file name has at most 255 bytes."""


def _lease(place: str) -> str:
    """The name of a place's lease, which is part of a file's name; labgrid allows any name for a place.

    It does not contain the coordinator, which can have several names. At worst, places of the same name in two labs
    wait for each other.
    """
    name = quote(place, safe="+")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    return f"labgrid-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The way to reach the board of a place: an address for ssh or adb in `config`.

    `port` answers once the board is up; None if it cannot be reached from here. `power` is set if the place has a power
    switch. `server` are adb's options for the server to which the phone `serial` is connected.
    """

    config: DeviceConfig
    port: tuple[str, int] | None
    power: bool
    server: tuple[str, ...] = ()
    serial: str = ""

    def device(self, on_wait: OnWait | None) -> AbstractContextManager[Device]:
        """The board as a device of gnomon."""
        if self.config.address.kind == "ssh":
            return ssh_device(self.config, on_wait)
        from gnomon.devices.shell.adb import ADB
        from gnomon.devices.shell.bridge import BridgeDevice, bridge_settings

        settings = bridge_settings(ADB, replace(self.config, ssh_options=()))
        if self.server:
            settings = replace(settings, server=self.server, serial=self.serial)
        return BridgeDevice(settings, on_wait=on_wait)


def _way(config: DeviceConfig, place: str, resources: list[Any]) -> _Way:
    """The way to reach a place by its resources: a NetworkService, otherwise a phone. DeviceError if it has neither."""
    name = f"labgrid:{place}" if config.name == str(config.address) else config.name
    power = any("Power" in resource["cls"] or resource["cls"] == "PDUDaemonPort" for resource in resources)
    for kinds in (("NetworkService",), ("RemoteADBDevice", "NetworkADBDevice")):
        able = [resource for resource in resources if resource["cls"] in kinds]
        if len(able) > 1:
            raise DeviceError(
                f"the place {place} has {len(able)} resources of the kind {able[0]['cls']}",
                hint="Remove all but one of them (labgrid-client del-match), or create a place for each.",
            )
        if able:
            try:
                return _reached(replace(config, name=name), able[0], power)
            except (
                KeyError,
                TypeError,
                ValueError,
                OverflowError,
            ) as error:  # an exporter passes on everything from its file
                raise DeviceError(
                    f"the {able[0]['cls']} of the place {place} is not as labgrid describes it: {error!r}",
                    hint="Correct the file of its exporter: address, host, port, username, serialno or the exporter's "
                    "proxy is missing or wrong.",
                ) from error
    shown = ", ".join(sorted({resource["cls"] for resource in resources})) or "none"
    raise DeviceError(
        f"the place {place} has no resource that gnomon can reach; it has {shown}",
        hint=f"Give it a NetworkService (ssh), RemoteADBDevice or NetworkADBDevice, and check that its exporter runs: "
        f"labgrid-client -p {place} show",
    )


def _reached(config: DeviceConfig, resource: Mapping[str, Any], power: bool) -> _Way:
    params, extra = resource["params"], resource["extra"]
    proxy = extra.get("proxy") if extra.get("proxy_required") or os.environ.get("LG_PROXY") else None
    if proxy:
        proxy = str(_parsed(f"ssh://{proxy}")).removeprefix("ssh://")
    if resource["cls"] == "NetworkService":
        host, port, user = str(params["address"]), int(params.get("port") or 22), params.get("username")
        address = _checked(Address(kind="ssh", user=str(user) if user else None, host=host, port=port))
        options = (*config.ssh_options, f"ProxyJump={proxy}") if proxy else config.ssh_options
        return _Way(
            config=replace(config, address=address, ssh_options=options),
            port=None if proxy else (host, port),
            power=power,
        )
    host, port = str(params["host"]), int(params["port"])
    if proxy:
        raise DeviceError(
            f"the phone of {config.name} can only be reached through the proxy {proxy}, which adb does not support",
            hint="Start its exporter without --isolated, or run gnomon on the exporter's machine.",
        )
    address = _checked(Address(kind="adb", host=host, port=port))
    if resource["cls"] == "RemoteADBDevice":
        return _Way(config=replace(config, address=address), port=(host, port), power=power)
    config = replace(config, address=Address(kind="adb"))
    server = ("-H", host, "-P", str(port))
    return _Way(config=config, port=None, power=power, server=server, serial=str(params["serialno"]))


def _checked(address: Address) -> Address:
    """The address, if a user could have given it; ValueError otherwise. Its parts come from an exporter."""
    if _parsed(str(address)) != address:
        raise ValueError(f"{str(address)[:80]!a} is not the address of a device")
    return address


def _parsed(text: str) -> Address:
    try:
        return parse_address(text)
    except UsageError as error:
        raise ValueError(error.message) from error


def _switch_on(visit: _Visit, place: str, way: _Way) -> None:
    """Switch a place on and wait until it answers; if it does not answer, switch it off and on, once.

    No error is raised if it never answers: the next step then reports the reason.
    """
    for action in ("on", "cycle"):
        visit.ask("power", within_s=_POWER_S, place=place, action=action)
        deadline_s = time.monotonic() + BOOT_S
        while time.monotonic() < deadline_s:
            if way.port is None or _answers(way.port):
                return
            pause(_ASK_AGAIN_S)


def _answers(port: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(port, timeout=_ANSWERS_S):
            return True
    except (OSError, ValueError):  # ValueError: not a valid host name
        return False

"""Places of labgrid as devices: taken from its coordinator, switched on, reached by their ssh or adb, given back.

labgrid itself is loaded by a child program alone. Its coordinator knows who has a place by a name, and keeps it for
that name whatever becomes of the process. So each visit has a name of its own, and a small process beside it that gives
back what the visit has once gnomon lets go of it, or dies. What even that process could not give back, as it was killed
too, the next visit of the same user from this machine does: the place's lease here tells who lives.
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
"""So long a place that was switched on may take until it answers; then it is switched off and on, once."""

_WAIT_S = 3600.0
_ASK_AGAIN_S = 0.5
_LOOK_AGAIN_S = 10.0
"""So often is looked whether who has the place has died, and a reservation is asked for that waits for a lease here:
labgrid forgets one that nobody asks for in a minute."""
_ANSWER_S = 60.0
_POWER_S = 180.0
_ANSWERS_S = 5.0
_GIVE_BACK_S = 30.0
_PROGRAM = Path(__file__).with_name("program.py")
_COORDINATOR = "127.0.0.1:20408"  # labgrid's own default
_TAG = r"[a-z][a-z0-9_]+=[A-Za-z0-9_.-]{1,64}"  # the keys that labgrid takes
_PLACE = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.+-]{{0,127}}|@{_TAG}(,{_TAG}){{0,15}}", re.ASCII)
_NOT_PASSED = ("LG_ENV", "LG_PLACE", "LG_STATE", "LG_INITIAL_STATE", "PLACE", "STATE")
"""What labgrid's client would take for a wish of the user about this place."""

_KEEPER = """
import os, sys
sys.stdin.buffer.read()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

_chosen: dict[Address, str] = {}
"""The place that this process has for tags: what it measures is of one board, also where the board was away."""


def labgrid_device(config: DeviceConfig, on_wait: OnWait | None) -> AbstractContextManager[Device]:
    """A place of labgrid as a configuration's address names it, held for as long as the block lasts.

    It is taken in turn, by labgrid's reservations; one that this user has taken by hand is used and left to them.
    `on_wait` is told once who has it. UsageError at once where the address names no place. In the block,
    RuntimeMissingError without labgrid, DeviceError where there is no coordinator or no such place, where the place is
    not free within an hour, or has nothing that gnomon can reach.
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
        asking.close()  # nothing more is asked, and the program needs some memory
        yield device


class _Visit:
    """The child program that asks the coordinator, under a name that no other visit has."""

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
        """What the coordinator answers; DeviceError, transient, where it refuses."""
        said = self._said(json.dumps({"do": do, **job}).encode() + b"\n", within_s)
        if said.get("state") != "done":
            raise DeviceError(
                f"labgrid's coordinator at {self.coordinator} refuses ({do}): {said.get('message')}",
                hint="See the log of the coordinator, and: labgrid-client places; labgrid-client resources",
                transient=True,
            )
        return said

    @contextmanager
    def held(self, on_wait: OnWait | None) -> Iterator[str]:
        """The name of a place that is this visit's for as long as the block lasts."""
        for place in self._wanted():
            if self.user in (place["acquired"], *place["allowed"]) and place["name"] == self.address.key:
                with lease(lease_folder(), _lease(place["name"]), on_wait=on_wait):
                    yield self.address.key
                return
        with self._kept():
            line = self._reserved(on_wait)
            name = line["place"]
            with lease(lease_folder(), _lease(name), on_wait=on_wait, meanwhile=self._keeping(line["token"])):
                self.ask("acquire", place=name)
                yield name

    def _reserved(self, on_wait: OnWait | None) -> Mapping[str, Any]:
        """Stand in line until a place is kept for this visit: the reservation, which names it."""
        key = self._key()
        tags = dict(tag.split("=") for tag in key[1:].split(",")) if key.startswith("@") else {"name": key}
        line: Mapping[str, Any] = self.ask("reserve", tags=tags)
        deadline_s, who = time.monotonic() + _WAIT_S, ""
        look_s = time.monotonic() + _ASK_AGAIN_S  # not at once: a place that is just given back is not a reason to wait
        while line["standing"] == "waiting":
            late = time.monotonic() > deadline_s
            if late or time.monotonic() >= look_s:
                first, who = not who, self._who()
                look_s = time.monotonic() + _LOOK_AGAIN_S
                if first and on_wait is not None:
                    on_wait(Waiting(f"{who} in labgrid: waiting for it to end"))
            if late:
                hint = f"Wait for it to be released, or see who has it: labgrid-client -x {self.coordinator} who"
                raise DeviceError(f"{self.address} is not free: {who}", hint=hint, transient=True, busy=True)
            pause(_ASK_AGAIN_S)
            line = self.ask("poll", token=line["token"])
        self._check(line)
        _chosen.setdefault(self.address, line["place"])
        return line

    def _keeping(self, token: str) -> Callable[[], None]:
        """Asks for a reservation now and then while something else is waited for; DeviceError once it is lost."""
        asked_s = time.monotonic()

        def again() -> None:
            nonlocal asked_s
            if time.monotonic() - asked_s >= _LOOK_AGAIN_S:
                asked_s = time.monotonic()
                self._check(self.ask("poll", token=token))

        return again

    def _check(self, line: Mapping[str, object]) -> None:
        """DeviceError unless a reservation has its place."""
        if not line["place"]:
            raise DeviceError(
                f"labgrid's reservation of {self.address} is {line['standing']}",
                hint="Start again; see: labgrid-client reservations",
                transient=True,
            )

    def _key(self) -> str:
        """The name of the place, or "@" and its tags."""
        return _chosen.get(self.address, self.address.key)

    def _who(self) -> str:
        """Who has what is wanted, in a clause. What the dead have left of it is released."""
        held = [
            f"{place['acquired'] or 'a reservation'} has {place['name']}{self._stuck.get(place['acquired'], '')}"
            for place in self._wanted()
        ]
        return ", ".join(held[:5]) + (f" and {len(held) - 5} more" if len(held) > 5 else "")

    def _wanted(self) -> list[Any]:
        """The places that the address means; DeviceError if there is none. What the dead have left is released."""
        places = self.ask("look")["places"]
        for place in places:
            by = place["acquired"] or ""
            if self._left.fullmatch(by) and lease_holder(lease_folder(), _lease(place["name"])) is None:
                try:
                    self.ask("free", by=by)
                    place["acquired"] = ""
                except DeviceError as error:  # a reason to wait, and told where it is waited for
                    self._stuck[by] = f", whose process has ended, and which cannot be released: {error.message}"
        key = self._key()
        tags = set(key[1:].split(",")) if key.startswith("@") else None
        found = [
            place
            for place in places
            if (
                place["name"] == key
                if tags is None
                else tags <= {f"name={place['name']}", *(f"{k}={v}" for k, v in place["tags"].items())}
            )
        ]
        if not found:
            names = sorted(place["name"] for place in places)
            shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            what = f"no place {key!r}" if tags is None else f"no place with {', '.join(sorted(tags))}"
            raise DeviceError(
                f"labgrid's coordinator at {self.coordinator} has {what}",
                hint=f"Its places: {shown or 'none'}. See: labgrid-client -x {self.coordinator} -v places",
            )
        return found

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """What this visit's name has is given back at the end of the block, and where gnomon dies."""
        keeper = outliving(_KEEPER, *self._argv(give_back=True), env=self._env)
        try:
            yield
        finally:
            assert keeper.stdin is not None  # noqa: S101
            keeper.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it goes on by itself
                keeper.wait(_GIVE_BACK_S)

    def _argv(self, *, give_back: bool) -> list[str]:
        asked = json.dumps({"coordinator": self.coordinator, "give_back": give_back})
        return ["-P", str(_PROGRAM), asked]

    def _said(self, line: bytes, within_s: float = _ANSWER_S) -> Mapping[str, object]:
        said = self._program.answer(line, timeout_s=within_s)
        if isinstance(said, str):
            with contextlib.suppress(ValueError):
                found = json.loads(said)
                if isinstance(found, dict):
                    return found
            why = f"ended: {said[:300]}"
        elif said.timed_out:
            why = "did not answer in time"
        else:
            why = f"ended: {' '.join(said.stderr.strip().splitlines()[-1:])[:300]}"
        raise DeviceError(
            f"the program that asks labgrid's coordinator at {self.coordinator} {why}",
            hint="See whether labgrid itself works here: labgrid-client places",
            transient=True,
        )


_LONGEST = 150
"""Letters of a place's name in that of its lease: names of files have 255 bytes at most."""


def _lease(place: str) -> str:
    """Without the coordinator, which has several names: at worst two places of one name in two labs wait.

    It is part of a file's name, and labgrid lets a place be called anything.
    """
    name = quote(place, safe="+")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    return f"labgrid-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How the board of a place is reached: an address of ssh's or adb's in `config`.

    `port` is what answers once the board is up; None where that cannot be seen from here. `power` says whether the
    place has a switch, `server` how adb reaches the server that has the phone `serial`.
    """

    config: DeviceConfig
    port: tuple[str, int] | None
    power: bool
    server: tuple[str, ...] = ()
    serial: str = ""

    def device(self, on_wait: OnWait | None) -> AbstractContextManager[Device]:
        """gnomon's own device there."""
        if self.config.address.kind == "ssh":
            return ssh_device(self.config, on_wait)
        from gnomon.devices.shell.adb import ADB
        from gnomon.devices.shell.bridge import BridgeDevice, bridge_settings

        settings = bridge_settings(ADB, replace(self.config, ssh_options=()))
        if self.server:
            settings = replace(settings, server=self.server, serial=self.serial)
        return BridgeDevice(settings, on_wait=on_wait)


def _way(config: DeviceConfig, place: str, resources: list[Any]) -> _Way:
    """What of a place's resources gnomon uses: a NetworkService, else a phone; DeviceError where it is neither."""
    name = f"labgrid:{place}" if config.name == str(config.address) else config.name
    power = any("Power" in found["cls"] or found["cls"] == "PDUDaemonPort" for found in resources)
    for kinds in (("NetworkService",), ("RemoteADBDevice", "NetworkADBDevice")):
        able = [found for found in resources if found["cls"] in kinds]
        if len(able) > 1:
            raise DeviceError(
                f"the place {place} has {len(able)} resources of the kind {able[0]['cls']}",
                hint="Leave one to it: labgrid-client del-match; or make a place for each.",
            )
        if able:
            try:
                return _reached(replace(config, name=name), able[0], power)
            except (KeyError, TypeError, ValueError, OverflowError) as error:  # an exporter passes on all it is told
                raise DeviceError(
                    f"the {able[0]['cls']} of the place {place} is not as labgrid has it: {error!r}",
                    hint="One of these is missing or wrong: address or host, port, username, serialno, the exporter's "
                    "proxy. Mend the file of its exporter.",
                ) from error
    shown = ", ".join(sorted({found["cls"] for found in resources})) or "none"
    raise DeviceError(
        f"the place {place} has no resource that gnomon can reach; it has {shown}",
        hint=f"Give it a NetworkService (ssh), RemoteADBDevice or NetworkADBDevice, and see that its exporter runs: "
        f"labgrid-client -p {place} show",
    )


def _reached(config: DeviceConfig, found: Mapping[str, Any], power: bool) -> _Way:
    params, extra = found["params"], found["extra"]
    proxy = extra.get("proxy") if extra.get("proxy_required") or os.environ.get("LG_PROXY") else None
    if proxy:
        proxy = str(_parsed(f"ssh://{proxy}")).removeprefix("ssh://")
    if found["cls"] == "NetworkService":
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
            f"the phone of {config.name} is reached through {proxy} alone, which adb cannot",
            hint="Start its exporter without --isolated, or run gnomon there.",
        )
    address = _checked(Address(kind="adb", host=host, port=port))
    if found["cls"] == "RemoteADBDevice":
        return _Way(config=replace(config, address=address), port=(host, port), power=power)
    config = replace(config, address=Address(kind="adb"))
    server = ("-H", host, "-P", str(port))
    return _Way(config=config, port=None, power=power, server=server, serial=str(params["serialno"]))


def _checked(address: Address) -> Address:
    """An address made of what an exporter says; ValueError where a user could not have given it."""
    if _parsed(str(address)) != address:
        raise ValueError(f"{str(address)[:80]!a} is not the address of a device")
    return address


def _parsed(text: str) -> Address:
    try:
        return parse_address(text)
    except UsageError as error:
        raise ValueError(error.message) from error


def _switch_on(visit: _Visit, place: str, way: _Way) -> None:
    """Switch a place on and wait until it answers; one that does not is switched off and on, once.

    Nothing is raised where it stays away: what is tried next tells why.
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
    except (OSError, ValueError):  # ValueError: a host that no name server can be asked for
        return False

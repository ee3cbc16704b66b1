"""Addresses of devices: ``local``, ``ssh://[user@]host[:port]``, and those of trackers and third-party kinds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address

from gnomon.errors import UsageError

LOCAL = "local"
TVM = "tvm"
"""The kind of a device behind a tracker of TVM's RPC servers."""
OWN = (LOCAL, "ssh", "adb", "sdb", TVM)
"""gnomon's own kinds. An address of any other kind may have a key, which the kind itself reads."""

_MOST = 512
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}", re.ASCII)
# A program would take a host or user that begins with "-" for an option.
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+@-]{0,127}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}", re.ASCII)
_PLACE = re.compile(r"(\[(?P<address>[^]]+)\]|(?P<name>[^:\[]*))(:(?P<port>[^:]*))?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}", re.ASCII)
_FORMS = "Give local, ssh://[user@]host[:port], adb://[serial], sdb://[serial], or KIND:NAME of an installed package."
_BARE = re.compile(rf"(?!ssh:)(?P<kind>{_SCHEME.pattern}):(///?)?", re.ASCII)
"""An address without a host, for kinds that can find the only device. An SSH client cannot do that."""
_KEYED = re.compile(
    rf"(?!({'|'.join(OWN)}):)(?P<kind>{_SCHEME.pattern}):(//(?P<place>[^/]*)/)?(?P<key>[a-z0-9_@][a-z0-9_.+=,@-]*)",
    re.ASCII | re.IGNORECASE,
)
"""An address of a third-party kind, with a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a device: how it is reached (`kind`: "local", "ssh", ...) and where it is.

    `host` is empty for "local"; an IPv6 address is written without brackets. `user` and `port` are None if the
    configuration of the connecting program determines them. `key` is the name of the device for a TVM tracker or a
    third-party kind.
    """

    kind: str
    user: str | None = None
    host: str = ""
    port: int | None = None
    key: str = ""

    @property
    def machine(self) -> tuple[str, str, int]:
        """A key that is equal for addresses of the same machine, as far as they show it; users are ignored.

        If ssh's configuration has several names for a host, this is not recognised.
        """
        return self.kind, self.host.lower() + self.key, self.port or 22

    def __str__(self) -> str:
        """The address in the format of `parse_address`."""
        if self.kind == LOCAL:
            return LOCAL
        if self.kind != TVM and self.key and not self.host:
            return f"{self.kind}:{self.key}"
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        return f"{self.kind}://{user}{host}{port}" + (f"/{self.key}" if self.key else "")


def is_address(text: str) -> bool:
    """Whether a string is an address rather than the name of a device."""
    return text == LOCAL or "://" in text or bool(_BARE.fullmatch(text) or _KEYED.fullmatch(text))


def parse_address(text: str) -> Address:
    """The address in a string; UsageError for any other string.

    The format is that of a URI's authority (RFC 3986, section 3.2) without percent-encoding, password or path. The
    address of a tracker's device has a path of one part, the device's key; without a host, the tracker that the
    environment names is used.
    """
    shown = ascii(text[:80])
    if text == LOCAL:
        return Address(kind=LOCAL)
    kind, separator, rest = text.partition("://")
    kind = kind.lower()
    if kind == TVM and separator and len(text) <= _MOST:
        return _tracked(rest, shown)
    keyed = _KEYED.fullmatch(text)
    if keyed and len(text) <= _MOST:
        place = keyed["place"]
        host, port = ("", None) if place is None else _host_and_port(place, shown)
        return Address(kind=keyed["kind"].lower(), host=host, port=port, key=keyed["key"])
    bare = _BARE.fullmatch(text.lower())
    if bare and bare["kind"] not in (LOCAL, TVM):
        return Address(kind=bare["kind"])
    if not separator or len(text) > _MOST or not _SCHEME.fullmatch(kind) or kind == LOCAL:
        scheme, colon, place = text.partition(":")
        near = f"{scheme}://{place}" if colon and scheme in ("ssh", "adb", "sdb") else f"ssh://{text}" * ("@" in text)
        hint = f"Did you mean {near[:80]!a}? {_FORMS}" if near and not separator else _FORMS
        raise UsageError(f"{shown} is not the address of a device", hint=hint)
    user, at, place = rest.removesuffix("/").rpartition("@")
    if ":" in user:
        raise UsageError(
            "the address holds a password, which gnomon does not accept",
            hint="Use a key (ssh-copy-id copies it to the device), and give ssh://user@host.",
        )
    if at and not _USER.fullmatch(user):
        raise UsageError(f"{shown} has an invalid user", hint=f"{_FORMS} Or set User in ~/.ssh/config.")
    if "/" in place:
        raise UsageError(f"{shown} contains a path, but the address of a device has none", hint=_FORMS)
    host, port = _host_and_port(place, shown)
    return Address(kind=kind, user=user or None, host=host, port=port)


def _tracked(rest: str, shown: str) -> Address:
    place, _, key = rest.partition("/")
    if not _KEY.fullmatch(key):
        raise UsageError(f"{shown} does not name a device of a TVM tracker", hint="Give tvm://HOST:PORT/KEY.")
    host, port = _host_and_port(place, shown) if place else ("", None)
    return Address(kind=TVM, host=host, port=port, key=key)


def _host_and_port(place: str, shown: str) -> tuple[str, int | None]:
    parts = _PLACE.fullmatch(place)
    if parts is None or not (_is_ipv6(parts["address"]) if parts["address"] else _HOST.fullmatch(parts["name"])):
        hint = "Put brackets around an IPv6 address: ssh://[fe80::1]:22." if place.count(":") > 1 else _FORMS
        raise UsageError(f"{shown} has an invalid host", hint=hint)
    host, port = parts["address"] or parts["name"], parts["port"]
    if port is None:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        raise UsageError(f"the port in {shown} is not a number from 1 to 65535", hint=_FORMS)
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        zone = IPv6Address(text).scope_id
    except ValueError:
        return False
    return zone is None or bool(_ZONE.fullmatch(zone))

"""Addresses of devices: what is read is written alike, and nothing reads as an option or a password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.devices.address import Address, is_address, parse_address
from gnomon.errors import UsageError

NAMES = st.from_regex(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,30}", fullmatch=True)
ADDRESSES = st.builds(
    Address,
    kind=st.sampled_from(["ssh", "adb", "a+b"]),
    user=st.none() | NAMES,
    host=NAMES | st.ip_addresses(v=6).map(str) | st.just("fe80::1%eth0"),
    port=st.none() | st.integers(1, 65535),
)


TRACKED = st.builds(
    Address,
    kind=st.just("tvm"),
    host=NAMES | st.ip_addresses(v=6).map(str) | st.just(""),
    port=st.none(),
    key=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,30}", fullmatch=True),
) | st.builds(Address, kind=st.just("tvm"), host=NAMES, port=st.integers(1, 65535), key=st.just("phone"))

PLACED = st.builds(
    Address,
    kind=st.just("labgrid"),
    host=NAMES | st.ip_addresses(v=6).map(str) | st.just(""),
    key=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,30}", fullmatch=True)
    | st.lists(st.from_regex(r"[a-z][a-z0-9_]{1,9}=[A-Za-z0-9_.-]{1,9}", fullmatch=True), min_size=1, max_size=3).map(
        lambda tags: "@" + ",".join(tags)
    ),
)


ALONE = st.sampled_from([Address(kind=kind) for kind in ("local", "adb", "sdb")])


@given(ADDRESSES | TRACKED | PLACED | ALONE)
def test_an_address_reads_as_it_is_written(address: Address) -> None:
    assert parse_address(str(address)) == address
    assert is_address(str(address))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("local", Address(kind="local")),
        ("SSH://Me@Host:22/", Address(kind="ssh", user="Me", host="Host", port=22)),
        *((text, Address(kind="adb")) for text in ("adb://", "adb:", "ADB:")),  # there is one phone
        ("adb://QV714AE41T", Address(kind="adb", host="QV714AE41T")),
        ("adb://192.168.0.7:5555", Address(kind="adb", host="192.168.0.7", port=5555)),
        ("sdb://", Address(kind="sdb")),
        *((text, Address(kind="board")) for text in ("board:", "board://", "BOARD:///")),  # a kind that others add
        ("board:b7", Address(kind="board", key="b7")),
        ("labgrid:p1", Address(kind="labgrid", key="p1")),
        ("LABGRID:@board=rk3588,rack=2", Address(kind="labgrid", key="@board=rk3588,rack=2")),
        ("labgrid://lab:20408/p1", Address(kind="labgrid", host="lab", port=20408, key="p1")),
    ],
)
def test_every_form_of_an_address(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert is_address(text.lower())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not the address"),
        ("board", "not the address"),
        ("ssh://", "invalid host"),
        ("ssh://-oProxyCommand=x", "invalid host"),
        ("ssh://-x@host", "invalid user"),
        ("ssh://me:secret@host", "password"),
        ("ssh://host/etc", "path"),
        ("tvm:", "not the address"),
        ("tvm://host:1/a/b", "does not name a device of a TVM tracker"),
        ("tvm://me@host:1/a", "invalid host"),
        ("tvm://host:0/a", "not a number"),
        ("labgrid:a b", "not the address"),
        ("labgrid:///p1", "invalid host"),
        ("ssh://host:0", "65535"),
        ("ssh://host:65536", "65535"),
        ("ssh://fe80::1", "invalid host"),
        ("ssh://[::1%a b]", "invalid host"),
        ("ssh://a\nb", "invalid host"),
        ("ssh://" + "a" * 600, "not the address"),
    ],
)
def test_what_is_no_address_is_told(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as told:
        parse_address(text)
    assert "secret" not in told.value.message


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("pi@10.0.0.7", "ssh://pi@10.0.0.7"),
        ("pi@board:2222", "ssh://pi@board:2222"),
        ("ssh:pi@board", "ssh://pi@board"),
        ("adb:QV714AE41T", "adb://QV714AE41T"),
    ],
)
def test_what_one_types_after_ssh_or_adb_is_understood(text: str, meant: str) -> None:
    with pytest.raises(UsageError, match="not the address") as refused:
        parse_address(text)
    assert refused.value.hint.startswith(f"Did you mean '{meant}'? ")


@pytest.mark.parametrize(
    ("text", "machine", "same"),
    [
        *((text, "ssh://you@board:22", True) for text in ("ssh://board", "ssh://Board", "ssh://me@board")),
        *((text, "ssh://board", False) for text in ("ssh://board:2222", "ssh://board2", "local")),
        ("labgrid:p1", "labgrid:p2", False),
    ],
)
def test_one_machine_is_known_by_more_than_one_address(text: str, machine: str, same: bool) -> None:
    assert (parse_address(text).machine == parse_address(machine).machine) == same

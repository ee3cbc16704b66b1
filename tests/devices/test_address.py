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


@given(ADDRESSES | TRACKED | PLACED)
def test_an_address_reads_as_it_is_written(address: Address) -> None:
    assert parse_address(str(address)) == address
    assert is_address(str(address))


@given(
    st.text(max_size=80)
    | st.text("ssh:/@[]-.%a1", max_size=40).map("ssh://{}".format)
    | st.text("tvm:/@[]-.%a1", max_size=40).map("tvm://{}".format)
    | st.text("labgrid:/@[]-.,=%a1", max_size=40).map("labgrid:{}".format)
)
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        found = parse_address(text)
    except UsageError as error:
        assert error.hint
        assert error.message.isprintable()
        return
    assert parse_address(str(found)) == found
    assert not found.host.startswith("-")
    assert not (found.user or "").startswith("-")


def test_local_is_this_machine() -> None:
    assert parse_address("local") == Address(kind="local")
    assert str(Address(kind="local")) == "local"


def test_the_scheme_has_no_case_and_a_last_slash_says_nothing() -> None:
    assert parse_address("SSH://Me@Host:22/") == Address(kind="ssh", user="Me", host="Host", port=22)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not the address"),
        ("board", "not the address"),
        ("local://x", "not the address"),
        ("ssh://", "invalid host"),
        ("ssh://-oProxyCommand=x", "invalid host"),
        ("ssh://-x@host", "invalid user"),
        ("ssh://me:secret@host", "password"),
        ("ssh://host/etc", "path"),
        ("tvm:", "not the address"),
        ("tvm://host:1", "no device of a tracker"),
        ("tvm://host:1/a/b", "no device of a tracker"),
        ("tvm://me@host:1/a", "invalid host"),
        ("tvm://host:0/a", "not a number"),
        ("labgrid:", "no place"),
        ("labgrid:a b", "no place"),
        ("labgrid:-p", "no place"),
        ("labgrid:a/b", "no place"),
        ("labgrid:@board", "no place"),
        ("labgrid:@=a", "no place"),
        ("labgrid:@board=a,", "no place"),
        ("labgrid://host:20408", "no place"),
        ("labgrid:///p1", "invalid host"),
        ("labgrid://host:0/p1", "65535"),
        ("ssh://host:0", "65535"),
        ("ssh://host:65536", "65535"),
        ("ssh://host:", "65535"),
        ("ssh://fe80::1", "invalid host"),
        ("ssh://[::1", "invalid host"),
        ("ssh://[::1]x", "invalid host"),
        ("ssh://[::1%a b]", "invalid host"),
        ("ssh://a b", "invalid host"),
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


@pytest.mark.parametrize("same", ["ssh://board", "ssh://Board", "ssh://me@board", "ssh://board:22"])
def test_one_machine_is_known_by_more_than_one_address(same: str) -> None:
    assert parse_address(same).machine == parse_address("ssh://you@board:22").machine


@pytest.mark.parametrize("other", ["ssh://board:2222", "ssh://board2", "local"])
def test_other_machines_are_told_apart(other: str) -> None:
    assert parse_address(other).machine != parse_address("ssh://board").machine


@pytest.mark.parametrize("text", ["adb://", "adb:", "ADB:"])
def test_adb_needs_no_serial_where_there_is_one_phone(text: str) -> None:
    assert parse_address(text) == Address(kind="adb")
    assert str(parse_address(text)) == "adb://"
    assert is_address(text.lower())
    assert not is_address("adb")
    assert parse_address("adb://QV714AE41T").host == "QV714AE41T"
    assert parse_address("adb://192.168.0.7:5555").port == 5555


@pytest.mark.parametrize("text", ["board:", "board://", "BOARD:///"])
def test_a_kind_that_others_add_may_know_the_one_device_there_is(text: str) -> None:
    assert parse_address(text) == Address(kind="board")
    assert is_address(text.lower())


def test_sdb_needs_no_serial_where_there_is_one_device() -> None:
    assert parse_address("sdb://") == Address(kind="sdb")
    assert str(parse_address("sdb://")) == "sdb://"
    assert parse_address("sdb://emulator-26101").host == "emulator-26101"
    with pytest.raises(UsageError):
        parse_address("ssh://")


def test_a_place_of_labgrid_is_named_or_has_tags() -> None:
    assert parse_address("labgrid:p1") == Address(kind="labgrid", key="p1")
    assert parse_address("LABGRID:@board=rk3588,rack=2") == Address(kind="labgrid", key="@board=rk3588,rack=2")
    assert parse_address("labgrid://lab:20408/p1") == Address(kind="labgrid", host="lab", port=20408, key="p1")
    assert parse_address("labgrid:p1").machine != parse_address("labgrid:p2").machine

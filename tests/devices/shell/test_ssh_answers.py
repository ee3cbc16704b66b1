"""A device that answers what no keeper would: one clear error each, and the next visit is none the worse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.devices.keeper.host import NonsenseError, SshDevice, count_of, field_of, message_of
from gnomon.devices.shell.ssh_client import SshSettings
from gnomon.errors import DeviceError

#: Stands in for the SSH client and all behind it: answers `open`, then whatever is asked next, with given frames.
_CLIENT = """
import json, os, struct, sys
head, frames, seen = struct.Struct(">cI"), json.loads(sys.argv[1]), b""
def say(kind, text):
    data = text.encode()
    data = head.pack(kind.encode(), len(data)) + data
    while data:
        data = data[os.write(1, data):]
os.write(1, b"\\nGNOMON-KEEPER-1\\n")
for word in (b'"op": "open"', b'"op": ', b'"op": "stop"'):
    while word not in seen:
        more = os.read(0, 65536)
        if not more:
            sys.exit(0)
        seen += more
    seen = b""
    for kind, text in frames.pop(0):
        say(kind, text)
while os.read(0, 65536):
    pass
"""
OPENED = ("J", json.dumps({"end": 1, "private": "/private", "python": "python3"}))
ENDED = ("J", json.dumps({"end": 2, "status": 0, "timed_out": False}))


def board(tmp_path: Path, *frames: list[tuple[str, str]]) -> SshDevice:
    client = tmp_path / "client.py"
    client.write_text(_CLIENT, encoding="utf-8")
    program = tmp_path / "ssh"
    answers = json.dumps([*frames, [], [], []]).replace("'", "'\\''")
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {client} '{answers}'\n", encoding="utf-8")
    program.chmod(0o755)
    return SshDevice(SshSettings(name="board", host="board", program=str(program)), on_wait=lambda told: None)


@pytest.mark.parametrize(
    "answer",
    [
        '{"end": 1}',
        '{"end": 1, "private": 3, "python": "python3"}',
        '{"event": "waiting"}',
        "[]",
        "[" * 50_000,
        '{"end": NaN}',
    ],
)
def test_a_senseless_welcome_is_one_error(tmp_path: Path, answer: str) -> None:
    with (
        pytest.raises(DeviceError, match="board answers what gnomon does not understand") as told,
        board(tmp_path, [("J", answer)]),
    ):
        pass
    assert told.value.hint
    assert len(told.value.message) < 400


@pytest.mark.parametrize(
    "frame",
    [
        ("J", '{"end": 2}'),
        ("J", '{"end": 2, "status": "0", "timed_out": false}'),
        ("J", '{"end": 2, "status": 0, "timed_out": 0}'),
        ("J", '{"end": 2, "status": null, "timed_out": false}'),
        ("J", "[" * 50_000),
        ("T", "many"),
        ("T", "-5"),
    ],
)
def test_a_senseless_answer_to_a_command_is_one_error_and_ends_the_connection(
    tmp_path: Path, frame: tuple[str, str]
) -> None:
    with board(tmp_path, [OPENED], [frame]) as device:
        with pytest.raises(DeviceError, match="board answers what gnomon does not understand"):
            device.run(["true"], env={}, timeout_s=60)
        with pytest.raises(DeviceError, match="was lost before") as told:
            device.run(["true"], env={}, timeout_s=60)
        assert told.value.transient


@pytest.mark.parametrize("frame", [("J", '{"event": "pong"}'), ("O", "more and more")])
def test_a_device_that_lives_on_without_ending_a_command_is_left(tmp_path: Path, frame: tuple[str, str]) -> None:
    stopped = ("J", '{"end": 2, "stopped": true}')
    with board(tmp_path, [OPENED], [frame], [stopped]) as device:
        with pytest.raises(DeviceError, match="did not end a command") as told:
            device.run(["true"], env={}, timeout_s=-600)
        assert told.value.transient


@pytest.mark.parametrize("told", ["[" * 50_000, '{"memory_bytes": NaN}', "[]", ""])
def test_a_senseless_fingerprint_is_one_error(tmp_path: Path, told: str) -> None:
    with (
        board(tmp_path, [OPENED], [("O", told), ENDED]) as device,
        pytest.raises(DeviceError, match="board cannot say what it is") as error,
    ):
        device.describe()
    assert len(error.value.message) < 400


def test_the_stand_in_is_taken_for_a_device_where_it_talks_sense(tmp_path: Path) -> None:
    with board(tmp_path, [OPENED], [("O", '{"machine": "board"}'), ENDED]) as device:
        assert device.describe().fingerprint == {"machine": "board"}


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: json.dumps({"end": text}).encode()))
def test_any_bytes_are_an_object_or_nonsense(payload: bytes) -> None:
    try:
        message = message_of(payload)
    except NonsenseError as nonsense:
        assert len(nonsense.told) <= 80
    else:
        assert message == json.loads(payload)
    try:
        assert count_of(payload) == int(payload)
    except NonsenseError:
        assert not payload.isdigit() or len(payload) > 12


def test_a_field_must_be_there_and_of_its_kind() -> None:
    assert field_of({"a": "b"}, "a", str) == "b"
    for message in ({}, {"a": 1}, {"a": None}):
        with pytest.raises(NonsenseError):
            field_of(message, "a", str)

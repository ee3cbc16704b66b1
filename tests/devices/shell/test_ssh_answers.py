"""A device that answers what no shell with gnomon's scripts would: one clear error each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gnomon.devices.shell.ssh import SshDevice
from gnomon.devices.shell.ssh_client import SshSettings
from gnomon.errors import DeviceError

#: Stands in for the SSH client and all behind it: the control connection says `welcome`, then `lease`; a session says
#: its marks around `printed`, and `status`. Where it is asked whether it is alive, it says no more, and goes on.
_CLIENT = """
import json, os, re, sys
told = json.loads(sys.argv[1])
def say(text, to=1):
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(to, data):]
if "ControlMaster=yes" in sys.argv:
    sys.stdin.readline()
    say(told["welcome"] * int(told["times"]))
    for line in sys.stdin:
        if line == "lease\\n":
            say(told["lease"])
        elif line == "alive\\n":
            os.close(1)
else:
    token = re.search("[0-9a-f]{32}", sys.stdin.readline())[0]
    for to in (2, 1):
        say("\\x1e" + token + "<\\x1e", to)
        if to == 1:
            say(told["printed"])
        say("\\x1e" + token + ">" + told["status"] + "\\x1e", to)
"""
GOOD = {"welcome": "\x1ebase /private\x1e", "times": "1", "lease": "\x1eheld\x1e", "printed": "", "status": "0"}


def board(tmp_path: Path, **told: str) -> SshDevice:
    client = tmp_path / "client.py"
    client.write_text(_CLIENT, encoding="utf-8")
    program = tmp_path / "ssh"
    answers = json.dumps({**GOOD, **told}).replace("'", "'\\''")
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {client} '{answers}' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    return SshDevice(SshSettings(name="board", host="board", program=str(program)), on_wait=lambda told: None)


@pytest.mark.parametrize(
    "told",
    [
        {"welcome": "\x1e\x1e"},
        {"welcome": "\x1ewhat\x1e"},
        {"welcome": "\x1ebase relative\x1e"},
        {"welcome": "\x1ebase /a\nb\x1e"},
        {"welcome": "noise" * 1_000, "times": "100"},
        {"lease": "\x1ewhat now\x1e"},
    ],
)
def test_a_senseless_welcome_is_one_error(tmp_path: Path, told: dict[str, str]) -> None:
    with (
        pytest.raises(DeviceError, match="board gave an answer that gnomon does not understand") as refused,
        board(tmp_path, **told),
    ):
        pass
    assert refused.value.hint
    assert len(refused.value.message) < 400


@pytest.mark.parametrize("status", ["x", "-1", "1000", "0 0", "٣"])
def test_a_senseless_status_is_one_error_and_ends_the_connection(tmp_path: Path, status: str) -> None:
    with board(tmp_path, status=status) as device:
        with pytest.raises(DeviceError, match="board gave an answer that gnomon does not understand"):
            device.run(["true"], env={}, timeout_s=60)
        with pytest.raises(DeviceError, match="was lost earlier") as told:
            device.run(["true"], env={}, timeout_s=60)
        assert told.value.transient


@pytest.mark.parametrize("printed", ["[" * 50_000, "found relative", "\x1e\x1f\x1e/etc/passwd", "\udcff\x00"])
def test_whatever_it_prints_it_is_described(tmp_path: Path, printed: str) -> None:
    with board(tmp_path, printed=printed) as device:
        assert device.describe().name == "board"


def test_a_connection_whose_client_goes_on_was_lost_and_not_silent(tmp_path: Path) -> None:
    with board(tmp_path) as device, pytest.raises(DeviceError, match="the connection to board was lost"):
        device._opened().check()

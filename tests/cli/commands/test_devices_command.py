"""`gnomon devices` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnomon.cli.main import run
from gnomon.devices.config import devices_path, load_devices
from gnomon.jobs.devices.document import DevicesDocument
from gnomon.jobs.devices.report import cleaned_report, devices_report
from gnomon.jobs.devices.visit import cleaned
from gnomon.jobs.documents import read_document
from gnomon.report.page import Page

GONE = ["devices", "add", "gone", "local", "--python", "/nonexistent/python"]


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run(["devices", *words]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("few_runtimes")
def test_it_lists_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("local is ready.\n")
    assert "gnomon devices add NAME ssh://user@host" in text
    assert str(devices_path()) in text


@pytest.mark.usefixtures("few_runtimes")
def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--json")
    assert found["file"] == str(devices_path())
    assert found == {**answer(capsys, "list", "--json"), "devices": found["devices"]}
    (row,) = found["devices"]
    assert set(row) == {
        *("name", "address", "state", "reason", "hint", "fingerprint", "interpreter", "runtimes", "check"),
        *("settings", "seconds", "health"),
    }
    assert set(row["runtimes"][0]) == {"name", "version", "backends", "reason", "hint", "brought"}
    assert answer(capsys, "check", "--json")["devices"][0]["check"]["overhead_s"] > 0


def test_add_check_remove(capsys: pytest.CaptureFixture[str]) -> None:
    words = "add two local --threads 2 --pin 0-1,3 --governor performance --env A=b --env C=d --runtime onert --fetch"
    found = answer(capsys, *words.split(), "--no-keep", "--no-check", "--json")
    head = {"format": "gnomon-device-added", "version": 1}
    assert found == {**head, "file": str(devices_path()), "added": "two", "device": None}
    config = load_devices()["two"]
    assert (config.threads, config.pin, config.governor, config.keep) == (2, (0, 1, 3), "performance", False)
    assert (config.environment, config.runtimes, config.fetch) == ({"A": "b", "C": "d"}, ("onert",), True)
    head = {"format": "gnomon-device-removed", "version": 1}
    assert answer(capsys, "remove", "two", "--json") == {**head, "file": str(devices_path()), "removed": "two"}
    assert load_devices() == {}


@pytest.mark.usefixtures("few_runtimes")
def test_what_cannot_be_used_is_not_added_and_the_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(GONE) == 6
    assert "hint: " in capsys.readouterr().err
    assert run([*GONE, "--no-check"]) == 0
    capsys.readouterr()
    assert run(["devices", "check", "gone"]) == 6
    text = capsys.readouterr().out
    assert text.startswith("gone is not ready.\n")
    assert "gone (local): cannot be used\n - '/nonexistent/python'" in text
    assert run(["devices"]) == 0
    assert capsys.readouterr().out.startswith("1 of 2 devices is ready.\n")


def test_every_wrong_setting_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices", "add", "x", "ssh://-x", "--ssh-option", "y", "--python", "../p", "--governor", "A b"]) == 2
    text = capsys.readouterr().err
    for key in ("address", "ssh_options[0]", "python", "governor"):
        assert f"devices.x.{key}: " in text
    assert run(["devices", "check", "nobody"]) == 2
    assert run(["devices", "remove", "nobody"]) == 2
    assert run(["devices", "add", "x", "local", "--pin", "4-2"]) == 2


def test_a_broken_file_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    devices_path().parent.mkdir(parents=True)
    devices_path().write_text("[devices.x]\nthreads = 0\n")
    assert run(["devices"]) == 2
    text = capsys.readouterr().err
    assert "devices.x.threads: " in text
    assert "devices.x.address: " in text


def test_cleaning_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices", "clean", "local"]) == 0
    assert capsys.readouterr().out == "gnomon keeps no files on local.\n"


def test_names_are_completed() -> None:
    assert run([*GONE, "--no-check"]) == 0
    done = subprocess.run(
        [sys.executable, "-c", "from gnomon.cli.main import main; main()"],
        env=os.environ
        | {"_GNOMON_COMPLETE": "bash_complete", "COMP_WORDS": "gnomon devices check g", "COMP_CWORD": "3"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["plain,gone"]


ROW: dict[str, Any] = {
    "name": "board",
    "address": "ssh://odroid@board:2222",
    "state": "ready",
    "reason": None,
    "hint": None,
    "fingerprint": {
        "machine": "aarch64",
        "cpu_model": "Hardkernel ODROID-N2Plus",
        "cores": 6,
        "memory_bytes": 3 << 30,
        "governor": "ondemand,performance",
        "os": "Ubuntu 22.04.3 LTS",
        "libc": "glibc 2.35",
        "python": "3.10.12",
    },
    "interpreter": "/usr/bin/python3",
    "runtimes": [
        {"name": "onert", "version": "0.1.0", "backends": ["cpu", "ruy"], "reason": "", "hint": "", "brought": []},
        {"name": "ncnn", "version": None, "backends": [], "reason": "no", "hint": "do", "brought": []},
        {
            "name": "litert",
            "version": None,
            "backends": [],
            "reason": "no",
            "hint": "",
            "brought": ["a 1", "b 2", "c 3"],
        },
    ],
    "check": {
        "overhead_s": 0.0021,
        "temporary": "/temporary",
        "temporary_free_bytes": 5 << 30,
        "energy": {
            "counters": {"scmi_sensors/CPU": "CPU"},
            "period_s": 0.001,
            "power_w": 3.25,
            "others": ["xe/pkg (pkg)"],
            "reason": "",
            "hint": "",
        },
    },
    "settings": {
        "python": None,
        "folder": None,
        "keep": False,
        "environment": {"A": "b"},
        "ssh_options": [],
        "threads": 4,
        "connect_timeout_s": 10.0,
        "runtimes": [],
        "pin": [4, 5],
        "governor": None,
        "target": None,
        "linker": None,
        "fetch": True,
    },
    "seconds": 1.0,
    "health": {"failures": 0, "probed_at_s": None, "call_s": None, "baseline": None, "quarantine": None},
}
SHOWN = """\
board is ready.

board (ssh://odroid@board:2222): ready
   Hardkernel ODROID-N2Plus, 6 cores, 3.00 GiB, governor ondemand,performance
   Ubuntu 22.04.3 LTS, aarch64, glibc 2.35, Python 3.10.12
   Settings: threads 4; pinned to cores 4, 5; A=b; no files kept on the device;
   missing packages are fetched
   Overhead of a command: 2.10 ms. Free in /temporary: 5.00 GiB; a file was
   written there and read back.
   Energy: CPU (scmi_sensors/CPU), updated every 1.00 ms; power now 3.25 W.
   Other counters: xe/pkg (pkg).
 - onert 0.1.0: cpu, ruy
 - litert: gnomon installs it when needed (a 1 and 2 packages that it needs)
 - ncnn: no
   -> do

  file     /home/me/devices.toml
"""


def listed(row: dict[str, Any]) -> DevicesDocument:
    """A document of one device."""
    file = {"file": "/home/me/devices.toml", "file_exists": True, "named": True}
    found: DevicesDocument = read_document({"format": "gnomon-devices", "version": 1, **file, "devices": [row]})
    return found


def test_the_page_in_80_columns(tmp_path: Path) -> None:
    with (tmp_path / "page").open("w") as file:
        devices_report(listed(ROW), Page(file, width=80))
    assert (tmp_path / "page").read_text() == SHOWN


def test_the_list_has_a_line_a_device_and_what_is_wrong_with_one(tmp_path: Path) -> None:
    gone = {
        **ROW,
        "name": "gone",
        "state": "failed",
        "reason": "it does not answer",
        "hint": "Start it.",
        "fingerprint": None,
    }
    file = {"file": "/home/me/devices.toml", "file_exists": True, "named": False}
    found = read_document({"format": "gnomon-devices", "version": 1, **file, "devices": [ROW, gone]})
    with (tmp_path / "page").open("w") as out:
        page = Page(out, width=120, brief=True)
        devices_report(found, page)
    lines = (tmp_path / "page").read_text().splitlines()
    assert lines[0] == "1 of 2 devices is ready."
    assert lines[2].startswith(" board   ssh://odroid@board:2222  Hardkernel ODROID") and lines[2].endswith("  ready")
    assert lines[3].split()[:2] == ["gone", "ssh://odroid@board:2222"] and lines[3].endswith("cannot be used")
    assert lines[4:6] == [" - gone: it does not answer", "   -> Start it."]
    assert not any("onert" in line for line in lines) and page.omitted == ["their runtimes and settings"]


def test_a_device_on_which_nothing_runs_is_not_ready_and_says_why_once(tmp_path: Path) -> None:
    gone = [{**ROW["runtimes"][1], "name": name} for name in ("mnn", "ncnn", "onert")]
    row = {**ROW, "runtimes": gone, "settings": {**ROW["settings"], "fetch": False}}
    with (tmp_path / "page").open("w") as file:
        devices_report(listed(row), Page(file, width=80))
    page = (tmp_path / "page").read_text()
    assert page.startswith("board is not ready.\n\nboard (ssh://odroid@board:2222): reachable, but has no runtime\n")
    assert " - mnn, ncnn, onert: no\n   -> do\n" in page


def test_a_hostile_device_steers_no_terminal(tmp_path: Path) -> None:
    row = {**ROW, "fingerprint": {"cpu_model": "\x1b[31m\n" * 9, "os": "\u202e"}, "reason": "\x1b", "state": "failed"}
    row["health"] = {**ROW["health"], "quarantine": {"since_s": 1.0, "kind": "board", "reason": "\x1b[31m\n"}}
    for state in ("failed", "ready"):
        with (tmp_path / "page").open("w") as file:
            devices_report(listed({**row, "state": state}), Page(file))
        assert all(line.isprintable() for line in (tmp_path / "page").read_text().splitlines())


def test_what_was_cleaned(tmp_path: Path) -> None:
    with (tmp_path / "page").open("w") as file:
        cleaned_report(cleaned("board", "/c/pushed", 2, 3 << 20), Page(file))
    assert (tmp_path / "page").read_text() == (
        "Removed 2 uploaded files or folders (3.00 MiB) from board.\n  folder   /c/pushed\n"
    )

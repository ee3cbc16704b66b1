"""Networks tuned on this machine and on an emulated aarch64 one, behind one tracker, each with what the other found.

No time that was taken there is judged: outputs, files and what runs where are.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.tvm_models import small_net
from tests.emulated.armkit import Emulated
from tests.emulated.armtvm import ArmServer, arm_server
from tests.tuning import tvmkit

from gnomon.errors import RuntimeMissingError
from gnomon.tuning.target import read_linker, read_target
from gnomon.tuning.tracker import Tracker

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        os.environ.get("GNOMON_EMULATED") != "1", reason="GNOMON_EMULATED=1 is not set: minutes, and 143 MB to download"
    ),
    tvmkit.needs_tvm,
]

GNOMON = [sys.executable, "-c", "from gnomon.cli.main import main; main()"]
ARM, HERE = "board", "wide"
TARGETS = {ARM: "aarch64-cortex-a72", HERE: "native"}
TRIALS = 8
QUICK = ["--processes", "1", "--repeat", "2", "--min-repeat-ms", "1"]
#: Sums of some hundred products, in any order.
EQUAL = 1e-4
NUMBER_OF_ARM, NUMBER_OF_X86 = 183, 62

Document = dict[str, Any]


@dataclass(kw_only=True)
class ModelSession:
    """A tracker with a server of this machine and one of the emulated; what was made there, each once."""

    tracker: Tracker
    server: ArmServer
    folder: Path
    made: dict[str, Document] = field(default_factory=dict)

    def gnomon(self, *words: str | Path) -> Document:
        """What a command prints."""
        common = ["--out", str(self.folder / "out"), "--quiet", "--json", *QUICK]
        environment = {**os.environ, "GNOMON_HOME": str(self.folder / "home")}
        done = subprocess.run(
            [*GNOMON, *map(str, words), *common],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        document: Document = json.loads(done.stdout)
        return document

    def on(self, key: str) -> list[str]:
        return ["--device", self.address(key), "--target", TARGETS[key]]

    def address(self, key: str) -> str:
        return f"tvm://{self.tracker.address}/{key}"

    def tuned(self, key: str) -> Document:
        """The network tuned on a device."""
        search = ["--trials", str(TRIALS), "--per-round", "4"]
        if key not in self.made:
            self.made[key] = self.gnomon("tune", self.folder / "small.onnx", *self.on(key), *search)
        return self.made[key]

    def collected(self, host: str, key: str) -> Document:
        """What was found on one device, measured on another."""
        name = f"{host} on {key}"
        if name not in self.made:
            words = ["overlay", "collect", self.tuned(host)["records"], *self.on(key)]
            (self.made[name],) = self.gnomon(*words)["collected"]
        return self.made[name]


@pytest.fixture(scope="module")
def session(arm: Emulated, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelSession]:
    try:
        read_linker(read_target(TARGETS[ARM], here={}), None)
    except RuntimeMissingError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    folder = tmp_path_factory.mktemp("lab")
    (folder / "small.onnx").write_bytes(small_net())
    with (
        tvmkit.tracked(tvmkit.wide_and_narrow()[:1]) as here,
        arm_server(arm, here.tracker, key=ARM, threads=2) as server,
    ):
        yield ModelSession(tracker=here.tracker, server=server, folder=folder)


def machine_of(library: Path) -> int:
    """The number of the processor that a library is for, as ELF has it."""
    head = library.read_bytes()[:20]
    assert head[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", head, 18)[0])


def lines(path: str) -> list[Document]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def trials(path: str) -> list[Document]:
    return [line for line in lines(path) if "trial" in line]


def check_same(error: float | None, compared_with: str) -> None:
    """Both devices are compared with one reference, so that what equals it on each is equal on both."""
    assert error is not None and error < EQUAL
    if importlib.util.find_spec("onnxruntime"):
        assert compared_with.startswith("ONNX Runtime")


def test_two_architectures_are_behind_one_tracker(session: ModelSession) -> None:
    found = session.tracker.summary()
    assert found.keys == (ARM, HERE)
    assert [found.queue(key).free for key in found.keys] == [1, 1]
    assert session.server.commands
    assert all("qemu-aarch64-static -cpu cortex-a72" in command for command in session.server.commands)


@pytest.mark.parametrize("key", [HERE, ARM])
def test_a_network_is_tuned_on_each(session: ModelSession, key: str) -> None:
    told = session.tuned(key)
    assert told["trials"] == {"asked": TRIALS, "measured": TRIALS, "failed": 0, "before": 0}
    assert told["failures"] == []
    network = told["network"]
    assert network["failure"] is None and network["tuned"] and network["untuned"]
    check_same(network["max_error"], network["compared_with"])
    assert machine_of(Path(told["library"])) == {ARM: NUMBER_OF_ARM, HERE: NUMBER_OF_X86}[key]
    header = lines(told["records"])[0]["device"]
    if key == ARM:
        expected = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 2}
        assert header["target"] == told["device"]["target"] == expected
        assert "aarch64-linux-gnu" in header["linker"] == told["device"]["linker"]
        assert {trial["server"] for trial in trials(told["records"])} == {session.server.address}
        assert session.server.log.read_text().count("load_module") > TRIALS


@pytest.mark.parametrize(("host", "key"), [(HERE, ARM), (ARM, HERE)])
def test_every_record_of_one_builds_and_runs_on_the_other(session: ModelSession, host: str, key: str) -> None:
    told = session.collected(host, key)
    assert (told["host"], told["device"]["key"], told["failures"]) == (host, key, [])
    assert sum(layer["measured"] for layer in told["layers"]) == TRIALS
    assert all(layer["failed"] == 0 and layer["measured"] == layer["configurations"] for layer in told["layers"])
    found, here = trials(session.tuned(host)["records"]), trials(told["records"])
    assert {(t["layer"], t["trial"]) for t in here} == {(t["layer"], t["trial"]) for t in found}
    for trial in here:
        assert trial["times_s"]
        assert trial["trial"] == "untuned" or trial["error"] < EQUAL
    assert {t["server"] == session.server.address for t in here} == {key == ARM}


def test_one_choice_for_both_is_proved_on_both(session: ModelSession) -> None:
    records = [session.tuned(key)["records"] for key in (HERE, ARM)]
    records += [session.collected(*pair)["records"] for pair in ((HERE, ARM), (ARM, HERE))]
    analyze = ("overlay", "analyze", *records)
    told = session.gnomon(
        *analyze, "--prove", *(word for key in (HERE, ARM) for word in ("--device", session.address(key)))
    )
    assert sorted(told["devices"]) == sorted(told["hosts"]) == [ARM, HERE]
    assert told["undecided"] == []
    assert len(told["layers"]) == len(session.tuned(ARM)["layers"])
    rows = {(row["device"], row["choice"]): row for row in told["network"]}
    choices = ("untuned", "overlay", f"own:{ARM}", f"own:{HERE}")
    assert rows.keys() == {(device, choice) for device in (ARM, HERE) for choice in choices}
    for row in rows.values():
        assert row["failure"] is None and row["time"]
        assert row["max_error"] < EQUAL
    libraries = {key: Path(path) for key, path in told["written"]["libraries"].items()}
    assert {key: machine_of(path) for key, path in libraries.items()} == {ARM: NUMBER_OF_ARM, HERE: NUMBER_OF_X86}
    for key, path in libraries.items():
        ran = session.gnomon("exec", path, "--device", session.address(key))
        assert ran["failure"] is None
        check_same(ran["max_error"], ran["compared_with"])


@pytest.mark.parametrize(("host", "key"), [(HERE, ARM), (ARM, HERE)])
def test_a_library_of_the_other_is_refused_and_the_server_stays(session: ModelSession, host: str, key: str) -> None:
    told = session.gnomon("exec", session.tuned(host)["library"], "--device", session.address(key))
    assert told["network"] is None
    assert "cannot be loaded there" in told["failure"]["message"]
    assert told["failure"]["kind"] == "refused"
    assert session.tracker.summary().keys == (ARM, HERE)

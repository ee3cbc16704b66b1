"""`gnomon table build --command snpe`: stand-ins for the SDK that run models, the real adb, a stand-in for adbd."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell.adbkit import Phone, adb, adb_server, phone
from tests.formats.scans import read_snpe_csv
from tests.standins import snpekit

from gnomon.cli.main import run
from gnomon.formats.snpe.table import runtimes_of
from gnomon.jobs.table.folder import read_table

pytestmark = pytest.mark.devices

pytest.importorskip("onnx", reason="onnx is not installed")

SPACE = """
from gnomon.spaces import BlockSpace, Choice

def conv(kernel):
    return lambda x: x.conv(4, kernel)

space = BlockSpace(
    name="two-choices", inputs=((1, 4, 8, 8),),
    parts=(Choice("a", {"small": conv(1), "large": conv(3)}), lambda x: x.relu6()),
)
longer = BlockSpace(name="longer", inputs=space.inputs, parts=(*space.parts, conv(1)))
bare = BlockSpace(name="bare", inputs=((1, 4, 8, 8),), parts=(Choice("a", {"small": conv(1), "large": conv(3)}),))
"""


@pytest.fixture(scope="module")
def mobile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    with adb_server(), phone(tmp_path_factory.mktemp("mobile") / "phone") as found:
        adb("connect", found.serial)
        yield found


Sets = Callable[[str], None]


@pytest.fixture
def habits(mobile: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sets:
    """Sets what the stand-ins do wrong, on a host of the phone."""
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GNOMON_LEASES", str(tmp_path / "leases"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "space.py").write_text(SPACE)
    server = {name: value for name, value in os.environ.items() if name.startswith(("ANDROID_ADB", "ADB_"))}

    def sets(words: str) -> None:
        given = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**server, "SNPE_STANDIN": words}.items())
        device = f'[devices.host]\naddress = "local"\n[devices.host.environment]\n{given}'
        (tmp_path / "home" / "devices.toml").write_text(device)

    sets("")
    return sets


@pytest.fixture
def command(mobile: Phone, tmp_path: Path, habits: Sets) -> str:
    sdk = snpekit.sdk(tmp_path / "an sdk")
    return f"snpe:sdk={sdk},serial={mobile.serial},starts=1,device_path={mobile.folder / 'snpebm'}"


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is measured in one process, where its time does not matter."""
    monkeypatch.setattr("gnomon.jobs.table.job._STARTS", 1)


@pytest.fixture
def gnomon(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command line: what it says as JSON, having ended with a status."""

    def told(*words: str, status: int = 0) -> Any:
        code = run([*words, "--json"])
        said = capsys.readouterr()
        assert code == status, said.err
        return json.loads(said.out)

    return told


def test_a_table_is_built_beside_a_converter_that_dies_and_written_for_the_replaced_tool(
    command: str, habits: Sets, mobile: Phone, gnomon: Callable[..., Any]
) -> None:
    habits("dies_on=Clip")
    words = ("--device", "host", "--command", f"{command},perf_profile=burst", "--fuse", "none")
    gnomon("table", "build", "space.py:space", "--out", "t", *words)
    table = read_table(Path("t"))
    assert [row.unit.chain for row in table.failed] == ["Relu6"]
    assert "snpe-onnx-to-dlc was killed by SIGSEGV" in table.failed[0].reason
    context = table.manifest.context
    chosen = context["options"]["command"]["choices"]
    assert (context["runtime"], chosen["backend"], chosen["perf_profile"]) == ("snpe", "GPU", "burst")
    assert (table.manifest.clock, table.manifest.overhead_s) == ("wall", 0.0), "the layers hold no call"
    timed = [row for row in table.rows if row.call_s]
    assert {row.processes for row in timed} <= {3, 6}
    gnomon("table", "export", "t", "--space", "space.py:space", "--out", "t.csv")
    found = read_snpe_csv(Path("t.csv").read_bytes())
    assert (len(found), runtimes_of(found)) == (len(timed), ("GPU",))
    assert {key for unit in found.values() for key in unit["GPU"]} == {"Layers Time"}
    gnomon("table", "import", "t.csv", "--space", "space.py:space", "--out", "back")
    assert read_table(Path("back")).times_s == pytest.approx(table.times_s, rel=1e-2)
    assert (mobile.folder / "snpebm" / "model" / "inputs" / "in.0").stat().st_size == 4 * 4 * 8 * 8
    error = gnomon("table", "build", "space.py:space", "--out", "t", *words[:2], "--command", command, status=7)[
        "error"
    ]
    assert "options.command.choices.perf_profile: burst and default" in error["message"]


def test_fusion_and_whole_nets(command: str, once: None, gnomon: Callable[..., Any]) -> None:
    words = ("--device", "host", "--command", command)
    gnomon("table", "build", "space.py:longer", "--out", "t", *words)
    table = read_table(Path("t"))
    assert table.manifest.rules == ("Conv+Relu6",), "as ONNX Runtime fuses, which is what the stand-in runs"
    assert {one["source"] for one in table.manifest.evidence} == {"graph"}
    gnomon("estimator", "suggest", "--table", "t", "--space", "space.py:longer", "--k", "2", "--out", "nets.csv")
    nets = ("estimator", "measure", "nets.csv", "--table", "t", "--space", "space.py:longer")
    document = gnomon(*nets, *words)
    assert [net["latency_s"] > 0 for net in document["nets"]] == [True, True]
    assert document["unlike"] == []
    error = gnomon(*nets, "--device", "host", "--out", "other.csv", status=2)["error"]
    assert "--command snpe" in error["hint"], "what a table says is never run"


def test_a_phone_that_left_is_no_failure_of_the_units(
    command: str, once: None, tmp_path: Path, gnomon: Callable[..., Any]
) -> None:
    with phone(tmp_path / "leaving") as leaving:
        command = command.replace(f"serial={command.split('serial=')[1].split(',')[0]}", f"serial={leaving.serial}")
        words = ("table", "build", "space.py:bare", "--out", "t", "--device", "host", "--command", command)
        leaving.leave()
        error = gnomon(*words, "--fuse", "none", status=7)["error"]
        assert "snpe runs none of 2 units" in error["message"] and "adb" in error["message"]
        leaving.start()
        adb("connect", leaving.serial)
        gnomon(*words, "--fuse", "none")
    assert [row.status for row in read_table(Path("t")).failed] == []


def test_what_cannot_be_meant_is_told(command: str, gnomon: Callable[..., Any]) -> None:
    build = ("table", "build", "space.py:bare", "--device", "host", "--command")
    assert "snpe needs values for sdk and serial" in gnomon(*build, "snpe", status=2)["error"]["message"]
    assert "no choice 'speed'" in gnomon(*build, f"{command},speed=1", status=2)["error"]["message"]
    both = gnomon(*build, command, "--runtime", "onnxruntime", status=2)["error"]
    assert "only one runtime or command can measure" in both["message"]
    absent = gnomon(*build, "snpe:sdk=/nowhere,serial=1", status=5)["error"]
    assert "/nowhere/benchmarks/SNPE/snpe_bench.py" in absent["message"] and "qpm.qualcomm.com" in absent["hint"]

"""`gnomon table build` by SNPE on a phone: stand-ins for the SDK that run models, the real adb, a stand-in for adbd."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell.adbkit import Phone, adb_server, phone
from tests.formats.scans import read_snpe_csv
from tests.standins import snpekit

from gnomon.cli.main import run
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.formats.snpe.table import KEYS, STATISTICS, runtimes_of
from gnomon.jobs.table.folder import read_table
from gnomon.runtimes.snpe import BenchOrder, Snpe

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
bare = BlockSpace(name="bare", inputs=((1, 4, 8, 8),), parts=(Choice("a", {"small": conv(1), "large": conv(3)}),))
"""
QUICK = ("--fuse", "none", "--set", "runs=1", "--set", "inputs=1", "--set", "benches=1", "--seed", "1")


@pytest.fixture(scope="module")
def mobile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    with adb_server(), phone(tmp_path_factory.mktemp("mobile") / "phone") as found:
        yield found


@pytest.fixture
def space(mobile: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SNPE_ROOT", str(snpekit.sdk(tmp_path)))
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.py").write_text(SPACE)

    def hasty(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> Device:
        """The phone notices within seconds that nobody is there any more."""
        return BridgeDevice(mobile.settings(silence_s=2.0), on_wait=on_wait)

    monkeypatch.setattr("gnomon.devices.shell.adb.adb_device", hasty)
    return "space.py:space"


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
    space: str, mobile: Phone, gnomon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNPE_STANDIN", "dies_on=Clip")
    words = ("--device", f"adb://{mobile.serial}", "--runtime", "snpe", "--set", "perf_profile=burst")
    gnomon("table", "build", space, "--out", "t", *words, *QUICK)
    table = read_table(Path("t"))
    assert [row.unit.chain for row in table.failed] == ["Relu6"]
    assert "snpe-onnx-to-dlc crashed with signal 11" in table.failed[0].reason
    context = table.manifest.context
    assert (context["runtime"], context["backend"], context["version"]) == ("snpe", "GPU", snpekit.VERSION)
    assert context["protocol"]["settings"] == {"perf_profile": "burst"}
    assert context["device"]["ro.product.model"] == "Stand_in"
    timed = [row for row in table.rows if row.call_s]
    for row in timed:
        assert set(row.reported) == {f"{key}/{statistic}" for key in KEYS for statistic in STATISTICS}
        assert row.reported["Layers Time/Avg_Time"] * 1e-6 * row.drift == pytest.approx(row.call_s)
        assert 0 < row.reported["Layers Time/Avg_Time"] <= row.reported["Total Inference Time/Max_Time"]
    gnomon("table", "export", "t", "--space", space, "--out", "t.csv")
    found = read_snpe_csv(Path("t.csv").read_bytes())
    assert (len(found), runtimes_of(found)) == (len(timed), ("GPU",))
    gnomon("table", "import", "t.csv", "--space", space, "--out", "back")
    assert read_table(Path("back")).times_s == pytest.approx(table.times_s, rel=1e-4)
    assert f"Devices:{mobile.serial}" in Path("t.meta").read_text().replace('"', "")


def test_the_record_knows_a_table_and_goes_on_with_it(
    space: str,
    mobile: Phone,
    gnomon: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured: list[Path] = []
    whole = Snpe.measure

    def measure(self: Snpe, device: Device, model: Path, order: BenchOrder) -> Any:
        if len(measured) == 5:
            raise KeyboardInterrupt
        measured.append(model)
        return whole(self, device, model, order)

    monkeypatch.setattr(Snpe, "measure", measure)
    words = ("table", "build", space.replace(":space", ":bare"), "--out", "t", "--runtime", "snpe")
    assert run([*words, "--device", f"adb://{mobile.serial}", *QUICK, "--quiet"]) == 130
    (listed,) = gnomon("runs", "list")["campaigns"]
    assert (listed["campaign"]["kind"], listed["finished"], listed["runs"]) == ("table", False, 5)
    monkeypatch.setattr(Snpe, "measure", whole)
    assert run(["runs", "resume", "last"]) == 0
    capsys.readouterr()
    (listed,) = gnomon("runs", "list")["campaigns"]
    assert listed["finished"]
    assert listed["decision"]["chosen"] == "t"
    shown = gnomon("runs", "show", "last")
    assert {one["runs"] for one in shown["candidates"] if one["candidate"].startswith("unit-")} <= {1, 2}
    assert len(read_table(Path("t")).rows) == 2


def test_what_cannot_be_meant_is_told(
    space: str, mobile: Phone, gnomon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = ("table", "build", space, "--runtime", "snpe")
    there = ("--device", f"adb://{mobile.serial}")
    assert "phones that adb reaches" in gnomon(*build, status=2)["error"]["message"]
    assert "one backend" in gnomon(*build, "--backend", "GPU", "--backend", "DSP", status=2)["error"]["message"]
    assert "perf_profile 'fast'" in gnomon(*build, *there, "--set", "perf_profile=fast", status=2)["error"]["message"]
    error = gnomon("table", "build", space, "--runtime", "onnxruntime", "--set", "runs=2", status=2)["error"]
    assert "snpe" in error["hint"]
    monkeypatch.delenv("SNPE_ROOT")
    assert "SNPE_ROOT" in gnomon(*build, status=5)["error"]["hint"]

"""Profiling with a board: the toolchain `vitis`, and a real `gnomon serve` on loopback in the board's place.

AMD's compiler is a stand-in that hands the ONNX model on as it came (tests/standins/vai_c_xir), since that is what the
server here can measure. Nothing is quantised and no DPU has a part: what is tested is the way there and back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_config, write_images
from tests.jobs.space.kits.studykit import study, timed
from tests.serving.servekit import Server, served

from gnomon.api.options import measure_request
from gnomon.devices.http import DpuReply, DpuServer
from gnomon.errors import DeviceError, UsageError
from gnomon.formats.aw_nas.tables import read_latencies
from gnomon.formats.dpu_profile import read_dpu_profile
from gnomon.jobs.space.job import profile_space
from gnomon.jobs.space.profiling import measuring as space_over_http
from gnomon.jobs.space.profiling.folder import LATENCY, LatencyRow, read_latency
from gnomon.jobs.space.profiling.opened import TrainRequest
from gnomon.measure.progress import Progress

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install '.[http]'")
pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed: pip install '.[space]'")

STANDINS = Path(__file__).parents[3] / "standins"
SWAPS = ("VGG_1_1", "VGG_0_1", "VGG_1_0")
Profile = Callable[..., list[LatencyRow]]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Profiles a space of one family with the toolchain `vitis` and this server; returns the rows."""
    monkeypatch.setenv("PATH", os.pathsep.join((str(STANDINS), str(Path(sys.executable).parent), os.environ["PATH"])))
    monkeypatch.setenv("VAI_C_STANDIN_RESULT", "model")
    config, arch = write_config(tmp_path), tmp_path / "arch.json"
    config.write_text(CONFIG.replace("VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1", "VGGblock_1"))
    arch.write_text(json.dumps({"target": "DPUCZDX8G_ISA1_B4096"}))
    source = write_images(tmp_path)

    def profile(
        server: DpuServer | None, *, mixed: int = 0, watch: Callable[[Progress], None] | None = None
    ) -> list[LatencyRow]:
        asked = TrainRequest(request=measure_request({}), server=server, data=source)
        vitis = {"arch": str(arch), "quantize": "none"}
        to = tmp_path / "out"
        profile_space(config, to, asked, method=None, mixed=mixed, toolchains={"vitis": vitis}, watch=watch)
        return list(read_latency(tmp_path / "out"))

    return profile


def address(server: Server, **changes: object) -> DpuServer:
    return replace(DpuServer(url=server.url, retries=0), **changes)  # type: ignore[arg-type]  # by name


@pytest.mark.slow
def test_a_board_measures_and_what_it_refuses_costs_itself_only(
    board: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAI_C_STANDIN_SPOILT", "VGG_0_1")
    out = tmp_path / "out"
    with served(tmp_path / "server") as server:
        rows = {row.network: row for row in board(address(server))}
        assert tuple(rows) == SWAPS
        failed = rows.pop("VGG_0_1")
        assert failed.reason and failed.call_s is None and "ONNX" in failed.reason
        for name, row in rows.items():
            assert row.call_s is not None and 1e-7 < row.call_s < 1 and not row.reason
            assert row.artifact == f"models/vitis/{name}SSPROFILE.xmodel"
            assert [step["name"] for step in row.steps] == ["compile"]
            kept = (out / "vitis" / f"{name}.latency.txt").read_text()
            assert read_dpu_profile(kept) * 1e-3 == row.call_s
        assert {path.name for path in (out / "vitis").iterdir()} == {f"{name}.latency.txt" for name in rows}
        table = read_latencies((out / "latency_table.yaml").read_text())
        assert table == {name: pytest.approx((row.call_s or 0) * 1e3) for name, row in rows.items()}
        told = [line for line in server.lines() if "SSPROFILE" in line]
        assert len(told) == 3 and sum(" 200 " in line for line in told) == 2
        before = (out / LATENCY).read_bytes()
        # The same call sends nothing; one more network is the only one sent, and its interval is asked for.
        board(address(server))
        assert (out / LATENCY).read_bytes() == before
        more = board(address(server, accept_json=True), mixed=1)[len(SWAPS) :]
        assert [row.network for row in more] == ["VGG_0_0"]
        document = json.loads((out / "vitis" / "VGG_0_0.latency.txt").read_text())
        assert document["kernel_name"] == "VGG_0_0SSPROFILE"
        assert (more[0].call_s, more[0].clock) == (document["latency_s"], document["clock"])
        assert (out / LATENCY).read_bytes().startswith(before)
        assert server.end(signal.SIGTERM) is not None


@pytest.mark.slow
def test_a_server_that_vanishes_is_told_and_what_was_measured_is_kept(board: Profile, tmp_path: Path) -> None:
    with served(tmp_path / "first") as first:

        def vanish(progress: Progress) -> None:
            if "HTTP" in progress.stage and progress.done == 1:
                first.process.kill()
                first.process.wait()

        with pytest.raises(DeviceError, match="cannot be reached") as told:
            board(address(first, pause_s=0.0), watch=vanish)
        assert told.value.hint and told.value.transient
    kept = list(read_latency(tmp_path / "out"))
    assert [row.network for row in kept] == [SWAPS[0]] and kept[0].call_s
    with pytest.raises(UsageError, match="no server") as refused:
        board(None)
    assert "--dpu-url" in refused.value.hint
    with served(tmp_path / "second") as second:
        rows = board(address(second))
        assert rows[0] == kept[0]
        assert [row.network for row in rows] == list(SWAPS) and all(row.call_s for row in rows)
        assert len([line for line in second.lines() if "SSPROFILE" in line]) == 2, "only what was missing is sent"


def replied(body: str, *, is_json: bool = True) -> LatencyRow:
    row = timed(study().families["VGG"].swaps()[0], None, "vitis")
    return space_over_http._row(row, DpuReply(body=body, is_json=is_json))


@pytest.mark.parametrize(
    ("document", "known"),
    [
        ({"latency_s": 2e-3, "low_s": 1e-3, "high_s": 3e-3, "processes": 3, "clock": "cpu"}, (1e-3, 3e-3, 3)),
        ({"latency_s": 2e-3, "low_s": 2.5e-3, "high_s": 3e-3, "processes": 3}, (None, None, 3)),
        ({"latency_s": 2e-3, "low_s": -1, "high_s": 1e300, "processes": -4}, (None, None, 1)),
        ({"latency_s": 2e-3, "low_s": 1e-3, "high_s": 3e-3, "processes": 10**30}, (1e-3, 3e-3, 1)),
    ],
)
def test_a_reply_with_an_interval(document: dict[str, object], known: tuple[object, ...]) -> None:
    row = replied(json.dumps(document))
    assert row.call_s == 2e-3 and not row.reason
    assert (row.low_s, row.high_s, row.processes) == known


@pytest.mark.parametrize(
    "body",
    ["", "[]", '{"latency_s": true}', '{"latency_s": 1e9}', '{"latency_s": NaN}'],
)
def test_a_reply_that_cannot_be_understood_is_the_reason(body: str) -> None:
    for is_json in (True, False):
        row = replied(body, is_json=is_json)
        assert row.call_s is None and row.reason

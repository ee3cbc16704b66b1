"""Profiling with a board: the command `vitis`, and a real `gnomon serve` on loopback in the board's place.

AMD's compiler is a stand-in that hands the ONNX model on as it came (tests/standins/vai_c_xir), since that is what the
server here can measure. Nothing is quantised and no DPU has a part: what is tested is the way there and back, by curl.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_config, write_images
from tests.serving.servekit import served

from gnomon.cli.main import run
from gnomon.formats.aw_nas.tables import read_latencies
from gnomon.jobs.space.profiling.folder import LATENCY, LatencyRow, read_latency

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install '.[http]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: curl)")

STANDINS = Path(__file__).parents[3] / "standins"
SWAPS = ["VGG_1_1", "VGG_0_1", "VGG_1_0"]
TOKEN = "0123456789abcdef"  # noqa: S105 - of the test
Profile = Callable[..., int]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Profiles a space of one family with these options into `out`; returns the status."""
    monkeypatch.setenv("PATH", os.pathsep.join((str(STANDINS), str(Path(sys.executable).parent), os.environ["PATH"])))
    config, arch = write_config(tmp_path), tmp_path / "arch.json"
    config.write_text(CONFIG.replace("VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1", "VGGblock_1"))
    arch.write_text(json.dumps({"target": "DPUCZDX8G_ISA1_B4096"}))
    usual = [str(config), "--profile-dir", str(tmp_path / "out"), "--data", write_images(tmp_path), "--quiet"]
    usual += ["--accuracy", "none"]

    def profile(settings: str, mixed: int = 0) -> int:
        command = ["--command", f"vitis:arch={arch}{settings}"]
        return run(["space", "profile", *usual, "--mixed", str(mixed), *command])

    return profile


def kept(folder: Path) -> list[LatencyRow]:
    return list(read_latency(folder / "out"))


@pytest.mark.slow
def test_a_board_measures_and_what_it_refuses_costs_itself_only(
    board: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "arch.json").write_text(json.dumps({"spoilt": "VGG_0_"}))
    token, header = tmp_path / "token", tmp_path / "header"
    token.write_text(TOKEN)
    header.write_text(f"Authorization: Bearer {TOKEN}\n")
    with served(tmp_path / "server", "--token-file", str(token)) as server:
        settings = f",url={server.url}"
        assert board(settings) == 7
        told = capsys.readouterr().err
        assert (
            "vitis cannot measure any network now" in told and "401" in told and "the token is missing or wrong" in told
        )
        assert kept(tmp_path) == [], "what no network can help is no network's failure"

        settings += f",header=@{header}"
        assert board(settings) == 0
        rows = {row.network: row for row in kept(tmp_path)}
        assert sorted(rows) == sorted(SWAPS)
        failed = rows.pop("VGG_0_1")
        assert failed.call_s is None and "status 22" in failed.reason and "ONNX" in failed.reason
        for name, row in rows.items():
            assert row.call_s is not None and 1e-7 < row.call_s < 1 and not row.reason
            assert row.low_s is not None and row.high_s is not None and row.low_s <= row.call_s <= row.high_s
            assert (row.processes, row.clock) == (3, "wall")
            assert row.artifact == f"models/{name}.onnx"
        told = " ".join(server.lines())
        assert [told.count(f"{name}SSPROFILE: 422 ") for name in SWAPS] == [0, 2, 0]
        sent = sorted(told.count(f"{name}SSPROFILE: 200 ") for name in rows)
        assert sent == [3, 4], "each in three processes, and one once more beside the one that is tried again"
        table = read_latencies((tmp_path / "out" / "latency_table.yaml").read_text())
        assert table == {name: pytest.approx((row.call_s or 0) * 1e3) for name, row in rows.items()}

        # The same call sends nothing. One more, which is refused alone, is known to be so by one that is not.
        before = (tmp_path / "out" / LATENCY).read_bytes(), len(server.lines())
        assert board(settings) == 0
        assert ((tmp_path / "out" / LATENCY).read_bytes(), len(server.lines())) == before
        assert board(settings, mixed=1) == 0
        (more,) = kept(tmp_path)[len(SWAPS) :]
        assert more.network == "VGG_0_0" and "status 22" in more.reason


@pytest.mark.slow
def test_a_server_that_is_away_is_told_and_what_was_measured_is_kept(
    board: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(tmp_path / "first") as first:
        settings, port = f",url={first.url}", str(first.port)
        assert board(settings) == 0
    assert " by onnxruntime, measured on local by vitis" in " ".join(capsys.readouterr().out.split())
    before = kept(tmp_path)
    assert board(settings, mixed=1) == 7
    told = capsys.readouterr().err
    assert "curl ended with status 7" in told and "Failed to connect" in told
    assert kept(tmp_path) == before
    with served(tmp_path / "second", "--port", port) as second:
        assert board(settings, mixed=1) == 0
        told = " ".join(second.lines())
        # Only what was missing, and what tells once that the server is back.
        assert sorted(told.count(f"{name}SSPROFILE: 200 ") for name in ("VGG_0_0", *SWAPS)) == [0, 0, 1, 3]
    assert kept(tmp_path)[:-1] == before and kept(tmp_path)[-1].call_s


def test_whoever_measures_must_be_named(board: Profile, capsys: pytest.CaptureFixture[str]) -> None:
    assert board("") == 2
    said = capsys.readouterr().err
    assert "vitis needs values for url" in said and "hint: " in said

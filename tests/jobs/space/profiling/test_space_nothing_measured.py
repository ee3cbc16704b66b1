"""Where nothing could be measured the command says so by its status; and `calib_data` is read by who needs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_images

from gnomon.cli.main import run
from gnomon.jobs.space.profiling.folder import read_latency

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

NOWHERE = CONFIG.replace(
    "  select_ss_threshold: 2\n",
    "  select_ss_threshold: 2\n  calib_data: {source: nowhere.txt, root_folder: .}\n",
)


def profile(folder: Path, text: str, *options: str) -> int:
    config = folder / "config.yaml"
    config.write_text(text)
    where = ["--profile-dir", str(folder / "p"), "--data", write_images(folder), "--accuracy", "none", "--quiet"]
    return run(["space", "profile", str(config), *where, "--mixed", "0", *options])


def test_all_compilers_that_failed_are_status_7_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    int8 = ["--toolchain", "onnxruntime-int8", "--set", "onnxruntime-int8.timeout_s=0.001"]
    assert profile(tmp_path, CONFIG, *int8) == 7
    err = capsys.readouterr().err
    assert "no network could be measured by onnxruntime-int8: 8 networks failed (quantize" in err
    assert "hint: Correct the cause" in err and f"gnomon space show {tmp_path / 'p'}" in err
    rows = list(read_latency(tmp_path / "p"))
    assert len(rows) == 8 and all(row.reason for row in rows), "what failed is kept"
    assert profile(tmp_path, CONFIG, *int8, "--json") == 7
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "measurement"


def test_calibration_images_that_nobody_looks_at_are_not_read(tmp_path: Path) -> None:
    assert profile(tmp_path, NOWHERE, "--no-latency") == 0


def test_calibration_images_that_are_not_there_are_told_with_whose_path_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    assert profile(tmp_path, NOWHERE, "--toolchain", "onnxruntime-int8") == 2
    err = capsys.readouterr().err
    assert "ss_profiler_cfg.calib_data of the config" in err and "nowhere.txt" in err
    assert "Paths are relative to the config" in err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--gpu", "0"), "--train-on cuda, and set CUDA_VISIBLE_DEVICES=N"),
        (("--arch-file", "a.json"), "--toolchain quark-xint8 --command vitis:url=URL,arch=FILE"),
    ],
)
def test_options_of_before_are_answered_by_what_to_give_instead(
    option: tuple[str, str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["space", "profile", str(tmp_path / "x"), "--profile-dir", str(tmp_path / "p"), *option]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2 and option[0] in err[0] and told in err[1]

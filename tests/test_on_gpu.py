"""What runs on a machine with a GPU: that it says so where there is none, and which steps it leaves out, and why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import gpu

SCRIPT = Path(gpu.__file__).parent / "on_gpu"


def test_without_a_gpu_nothing_is_run_and_the_exit_status_says_so(tmp_path: Path) -> None:
    if gpu.gpus():
        pytest.skip("this machine has a GPU")
    done = subprocess.run([SCRIPT, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == gpu.NO_GPU
    assert done.stderr.startswith("scripts/on_gpu: there is no GPU here (none of /dev/nvidia")
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_wheels_is_refused_with_the_command_that_fills_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev" / "dri").mkdir(parents=True)
    (tmp_path / "dev" / "dri" / "renderD128").touch()
    found = gpu.gpus(tmp_path)
    assert found == [str(tmp_path / "dev" / "dri" / "renderD128")]
    monkeypatch.setattr(gpu, "gpus", lambda: found)
    assert gpu.main([str(tmp_path)]) == gpu.WRONG_USE
    assert f"scripts/on_gpu --fetch {tmp_path} fills it" in capsys.readouterr().err


def test_a_rehearsal_needs_the_program_that_plays_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([str(tmp_path), "--rehearse"]) == gpu.WRONG_USE
    assert "SwiftShader is not in" in capsys.readouterr().err
    rehearsed, plain = gpu.environment(tmp_path, rehearsed=True), gpu.environment(tmp_path)
    assert rehearsed["VK_DRIVER_FILES"] == str(tmp_path / "swiftshader" / gpu.ICD)
    assert "VK_DRIVER_FILES" in os.environ or "VK_DRIVER_FILES" not in plain


def test_all_tests_of_accelerators_are_there() -> None:
    assert all((gpu.ROOT / path).is_file() for path in gpu.TESTS)
    assert any("providers" in path for path in gpu.TESTS)


def row(**details: Any) -> dict[str, Any]:
    return {"ncnn": {"backends": ["cpu", *([] if "lacking" in details else ["vulkan"])], "details": details}}


def test_a_step_is_left_out_with_the_reason() -> None:
    step = next(s for s in gpu.STEPS if s.runtime == "ncnn")
    card = {"backend": "vulkan", "name": "Card", "software": False}
    assert gpu.why_not(step, row(devices=[card])) == ""
    software = row(devices=[{**card, "software": True}])
    assert "a program" in gpu.why_not(step, software)
    assert gpu.why_not(step, software, rehearsed=True) == ""
    assert gpu.why_not(step, row(lacking={"vulkan": "ncnn finds no Vulkan device"})) == "ncnn finds no Vulkan device"
    assert gpu.why_not(step, {"ncnn": {"backends": [], "reason": "not installed"}}) == "not installed"
    assert gpu.why_not(step, {}) == "it is not among its backends"


def test_where_no_step_can_be_run_that_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "gnomon-0-py3-none-any.whl").touch()
    monkeypatch.setattr(gpu, "gpus", lambda: ["/dev/dri/renderD128"])
    monkeypatch.setattr(gpu, "installed", lambda folder, name, wanted, without="": None)
    assert gpu.main([str(tmp_path)]) == gpu.FAILED
    told = capfd.readouterr().out
    assert "litert:gpu was not run: its wheels are not in the folder" in told
    monkeypatch.setattr(gpu, "TESTS", ("--version",))
    monkeypatch.setattr(gpu, "installed", lambda folder, name, wanted, without="": Path(sys.executable))
    monkeypatch.setattr(
        gpu, "why_not", lambda step, found, rehearsed: "" if step.backend == "gpu" else "it is not here"
    )
    monkeypatch.setattr(gpu, "runtimes", lambda python, env: {})
    monkeypatch.setattr(gpu, "shown", lambda python, step, folder, env, more: True)
    assert gpu.main([str(tmp_path)]) == 0
    assert "litert:gpu ran\n" in capfd.readouterr().out

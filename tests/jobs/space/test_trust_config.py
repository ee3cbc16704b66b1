"""A config and a profile are data: Python files that they name run only where they are given, in every command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_images

from gnomon.cli.main import run

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

BLOCKS = """\
from pathlib import Path
from gnomon.spaces.cells.primitives import Primitive

Path({marker!r}).touch()

def wide(x, channels, stride):
    return x.conv(channels, 3, stride=stride).batch_norm().relu()

primitives = [Primitive(family="Wide", number=k, block=wide, meaning="3x3") for k in range(2)]
"""
ENDS = "import torch\n\ndef stem(channels, out):\n    return torch.nn.Conv2d(channels, out, 1)\n"
IMAGES = """\
from pathlib import Path
import numpy as np
import torch

Path({marker!r}).touch()

def images():
    x = np.random.default_rng(0).integers(0, 255, (60, 1, 8, 8)).astype(np.uint8)
    rows = [(torch.from_numpy(image / np.float32(255)), k % 3) for k, image in enumerate(x)]
    return torch.utils.data.Subset(rows, range(60))
"""
NETS = """\
cell0,cell1,accuracy,latency_ms
VGGblock_1,VGGblock_1,0.8,1.0
VGGblock_0,VGGblock_1,0.7,0.8
VGGblock_1,VGGblock_0,0.75,0.9
VGGblock_2,VGGblock_1,0.85,1.5
VGGblock_1,VGGblock_2,0.86,1.4
Wideblock_0,Wideblock_0,0.9,2.0
Wideblock_1,Wideblock_0,0.91,2.1
Wideblock_0,Wideblock_1,0.88,1.9
Wideblock_0,VGGblock_1,0.84,1.3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A config that names a file of blocks, which leaves a marker where it is run, and one of each other kind."""
    marker = str(tmp_path / "ran")
    (tmp_path / "blocks.py").write_text(BLOCKS.format(marker=marker))
    (tmp_path / "ends.py").write_text(f"open({marker!r}, 'w').close()\n{ENDS}")
    (tmp_path / "data.py").write_text(IMAGES.format(marker=marker))
    (tmp_path / "nets.csv").write_text(NETS)
    own = CONFIG.replace("Mobileblock_0, Mobileblock_1", "Wideblock_0, Wideblock_1")
    (tmp_path / "blocks.yaml").write_text(own.replace("gnomon_cfg: {", "gnomon_cfg: {blocks: [blocks.py], "))
    (tmp_path / "stem.yaml").write_text(CONFIG.replace("gnomon_cfg: {", "gnomon_cfg: {stem: 'ends.py:stem', "))
    source = f"dataset:{tmp_path / 'data.py'}:images"
    (tmp_path / "data.yaml").write_text(CONFIG.replace("gnomon_cfg: {", f"gnomon_cfg: {{data: '{source}', "))
    return tmp_path


def refused_then_run(
    folder: Path, words: str, capsys: pytest.CaptureFixture[str], given: str = "--blocks {folder}/blocks.py"
) -> None:
    """Without the option it is refused, nothing runs; with --trust-config, and with the line of the hint, it runs."""
    marker, line = folder / "ran", given.format(folder=folder)
    command = shlex.split(words.format(folder=folder))
    marker.unlink(missing_ok=True)
    assert run(command) == 2
    told = capsys.readouterr().err
    assert "gnomon runs only if you name it" in told and line in told and "--trust-config" in told, told
    assert not marker.exists()
    for more in (["--trust-config"], shlex.split(line)):
        assert run([*command, *more]) == 0, capsys.readouterr().err
        assert marker.exists()
        marker.unlink()


@pytest.mark.parametrize(
    ("config", "given"),
    [
        ("blocks", "--blocks {folder}/blocks.py"),
        ("stem", "--blocks {folder}/ends.py:stem"),
        ("data", "--data dataset:{folder}/data.py:images"),
    ],
)
def test_profiling_a_config_runs_what_it_names_only_where_that_is_given(
    config: str, given: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = "" if config == "data" else f"--data {write_images(folder)}"
    words = f"space profile {{folder}}/{config}.yaml --profile-dir {{folder}}/p --accuracy none --no-latency --quiet"
    refused_then_run(folder, f"{words} {images}", capsys, given)


@pytest.mark.parametrize("config", ["blocks", "stem"])
def test_importing_by_a_config_runs_nothing_unasked(
    config: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"blocks": "--blocks {folder}/blocks.py", "stem": "--blocks {folder}/ends.py:stem"}
    if config == "stem":
        (folder / "nets.csv").write_text("".join(line for line in NETS.splitlines(True) if "Wide" not in line))
    words = f"space import {{folder}}/nets.csv --config {{folder}}/{config}.yaml --profile-dir {{folder}}/p"
    refused_then_run(folder, words, capsys, own[config])


def test_every_command_on_a_profile_runs_what_it_names_only_where_that_is_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(folder / name) for name in ("nets.csv", "blocks.yaml", "p")]
    assert run(["space", "import", files[0], "--config", files[1], "--profile-dir", files[2], "--trust-config"]) == 0
    for words in (
        "space show {folder}/p",
        "space select {folder}/p --max-fraction 0.6",
        "space front {folder}/p --no-measure --quiet",
        "space export {folder}/p --out {folder}/out.csv --overwrite",
        "space import {folder}/nets.csv --profile-dir {folder}/p",
    ):
        refused_then_run(folder, words, capsys)

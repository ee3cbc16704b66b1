from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.spacekit import write_config, write_images
from tests.jobs.space.kits.trainerkit import trained_alike, trainers  # noqa: F401

from gnomon.api import space as api
from gnomon.cli.main import run
from gnomon.errors import UsageError
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies
from gnomon.jobs.space.profiling.folder import ACCURACY, read_accuracy, read_latency
from gnomon.jobs.space.profiling.look import look

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

pytestmark = pytest.mark.usefixtures("trained_alike")
ROOT = Path(__file__).resolve().parents[3]
GNOMON = (sys.executable, "-c", "from gnomon.cli.main import main; main()")


def profile(folder: Path, out: Path, *, toolchains: tuple[str, ...] = (), method: str | None = "balanced") -> None:
    api.profile_space(
        write_config(folder),
        out,
        toolchains=toolchains,
        mixed=3,
        data=write_images(folder),
        method=method,  # type: ignore[arg-type]
        workers=1,
        record=folder / "record.sqlite",
    )


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory, trained_alike: None) -> Path:  # noqa: F811
    """A profile with accuracies from balanced designs, and latencies of ONNX Runtime in float32 and int8."""
    folder = tmp_path_factory.mktemp("profile")
    profile(folder, folder / "out", toolchains=("onnxruntime", "onnxruntime-int8"))
    return folder / "out"


@pytest.mark.slow
def test_every_single_swap_is_in_both_tables(profiled: Path) -> None:
    names = {f"VGG_{a}_{b}" for a, b in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))}
    names |= {"Mobile_1_1", "Mobile_0_1", "Mobile_1_0"}
    accuracies = read_accuracies((profiled / "accuracy_table.yaml").read_text())
    latencies = read_latencies((profiled / "latency_table.yaml").read_text())
    assert set(accuracies) == set(latencies) == names
    assert all(0 <= value <= 1 for value in accuracies.values())
    assert read_latencies((profiled / "latency_table.onnxruntime-int8.yaml").read_text()).keys() == names


@pytest.mark.slow
def test_trained_networks_have_weights_and_a_text(profiled: Path) -> None:
    for row in read_accuracy(profiled):
        if row.method == "balanced":
            where = profiled / "checkpoints" / "balanced" / f"{row.stage}-{row.seed}"
            assert (where / f"{row.network}.safetensors").is_file()
            assert "l0/" in (where / f"{row.network}.repr.txt").read_text()
    assert list((profiled / "checkpoints" / "partial").iterdir()) == []


@pytest.mark.slow
def test_what_int8_is_worth_is_measured(profiled: Path) -> None:
    told = {one["toolchain"]: one for one in look(profiled).document()["latency"]}
    compared = told["onnxruntime-int8"]["compared"]
    assert compared["twin"] == "onnxruntime" and compared["networks"] >= 8 and compared["ratio"] > 0
    assert compared["drop"] is not None and told["onnxruntime-int8"]["least_quantised"] >= 0.9
    trained = {row.network for row in read_accuracy(profiled) if row.validation is not None}
    rows = [row for row in read_latency(profiled) if row.toolchain == "onnxruntime"]
    assert {row.network for row in rows if row.correct is not None} == {r.network for r in rows} & trained
    by_network = {row.network: row.validation for row in read_accuracy(profiled) if row.validation and row.seed == 0}
    same = [abs((row.correct or 0) - by_network[row.network]) for row in rows if row.network in by_network]
    assert min(same) <= 0.05, "the measured file is the trained network"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fair", "published"])
def test_each_method_tells_accuracies(method: str, tmp_path: Path) -> None:
    profile(tmp_path, tmp_path / "out", method=method)
    accuracy = look(tmp_path / "out", method).document()["accuracy"]
    assert accuracy is not None and not accuracy["failed"]
    assert {one["family"] for one in accuracy["rankings"]} == {"VGG", "Mobile"}
    assert [len(one["networks"]) for one in accuracy["rankings"]] == [5, 3]
    if method == "published":
        assert (tmp_path / "out" / "checkpoints" / "VGG_0_1.safetensors").is_file()


@pytest.mark.slow
def test_a_kill_loses_at_most_one_network(profiled: Path, tmp_path: Path) -> None:
    """Killed when no network and when some are done: those are not trained again, and the tables end as they would."""
    source, config, out = write_images(tmp_path), write_config(tmp_path), tmp_path / "out"
    command = ["space", "profile", str(config)]
    command += ["--profile-dir", str(out), "--data", source, "--no-latency", "--workers", "1", "--quiet", "--json"]
    journal, kept, partial = out / ACCURACY, b"", out / "checkpoints" / "partial"
    for lines in (0, 4):
        killed = subprocess.Popen([*GNOMON, *command], cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
        while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
            assert killed.poll() is None
            time.sleep(0.02)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        assert lines == 0 or list(partial.glob("*.images")), "the images of who was killed are left"
        assert journal.read_bytes().startswith(kept)
        kept = journal.read_bytes().rpartition(b"\n")[0]
    assert run(command) == 0  # in this process, which has PyTorch already
    assert list(partial.iterdir()) == []
    assert journal.read_bytes().startswith(kept), "what was done is not done again"
    keys = [row.key for row in read_accuracy(out)]
    assert len(keys) == len(set(keys))
    assert (out / "accuracy_table.yaml").read_bytes() == (profiled / "accuracy_table.yaml").read_bytes()


def test_what_is_not_there_is_told_before_anything_is_done(tmp_path: Path) -> None:
    told: dict[str, dict[str, Any]] = {
        "abacus": {"toolchains": ("abacus",)},
        "prayer": {"method": "prayer"},
        "Elephant": {"families": ["Elephant"]},
    }
    for word, wrong in told.items():
        asked: dict[str, Any] = {"toolchains": (), "method": "none", "data": write_images(tmp_path), **wrong}
        with pytest.raises(UsageError, match=word):
            api.profile_space(write_config(tmp_path), tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_selecting_from_nothing_says_what_to_do(tmp_path: Path) -> None:
    profile(tmp_path, tmp_path / "out", method=None)
    with pytest.raises(UsageError) as told:
        api.select_primitives(tmp_path / "out")
    assert "gnomon space profile" in told.value.hint

"""The images of a study: which kind of source is read how, and what is refused before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import write_config, write_images
from tests.jobs.space.kits.trainerkit import trained_alike, trainers  # noqa: F401

from gnomon.api import space as api
from gnomon.errors import GnomonError, UsageError
from gnomon.formats.aw_nas.config import GnomonConfig
from gnomon.jobs.space.profiling import images
from gnomon.jobs.space.profiling.images import open_images, reopened_images, write_calibration, write_validation
from gnomon.jobs.space.profiling.look import look
from gnomon.training.data.dataset import Dataset
from gnomon.training.data.streamed import Streamed

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install '.[space]'")

OWN = """
import numpy as np
from torch.utils.data import Dataset

class Arrays(Dataset):
    def __init__(self, file):
        with np.load(file) as stored:
            self.x, self.targets = stored["x"], stored["y"]
    def __len__(self):
        return len(self.x)
    def __getitem__(self, k):
        return self.x[k, 0], self.targets[k]

def made():
    return Arrays(FILE)
"""


def own(folder: Path) -> str:
    """A source that is a function, of the images that `write_images` writes."""
    file = write_images(folder).removeprefix("npz:")
    (folder / "own.py").write_text(OWN.replace("FILE", repr(file)))
    return f"dataset:{folder / 'own.py'}:made"


def pictures(folder: Path) -> str:
    for k in range(30):
        (folder / f"{k % 3}").mkdir(parents=True, exist_ok=True)
        image.new("L", (20 + k, 31), 80 * (k % 3)).save(folder / f"{k % 3}" / f"{k}.png")
    return f"folder:{folder}"


def test_a_folder_is_read_as_it_is_needed_where_its_pictures_are_made_one_size(tmp_path: Path) -> None:
    source = pictures(tmp_path / "any")
    data = open_images(GnomonConfig(resize=8), source, classes=3)
    assert isinstance(data, Streamed) and data.shape == (1, 8, 8)
    with pytest.raises(GnomonError, match=r"(?m)pixels, but the first image has .*; likewise 28 more$") as refused:
        open_images(GnomonConfig(), source, classes=3)
    assert "gnomon_cfg.resize" in refused.value.hint
    assert isinstance(open_images(GnomonConfig(image_size=9), write_images(tmp_path), classes=3), Dataset)


@pytest.mark.parametrize(
    ("own_cfg", "source", "told"),
    [
        (GnomonConfig(resize=8), "digits", "need picture files, but digits has none"),
        (GnomonConfig(augment="resized-crop"), "digits", "need picture files"),
        (GnomonConfig(image_size=8), "dataset:x.py:made", "image_size pads"),
        (GnomonConfig(), "dataset:x.py", "names no function"),
        (GnomonConfig(), "dataset:none.py:made", "there is no file"),
        (GnomonConfig(), "dataset:", "there is no source"),
    ],
)
def test_what_does_not_go_together_is_refused(own_cfg: GnomonConfig, source: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        open_images(own_cfg, source, classes=10)
    assert refused.value.hint


def test_quantisers_and_runtimes_see_as_many_images_as_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = open_images(GnomonConfig(), own(tmp_path), classes=3)
    assert isinstance(data, Streamed)
    for limit, count in ((images.VALIDATION_BYTES, 24), (10 * 64, 10)):
        monkeypatch.setattr(images, "VALIDATION_BYTES", limit)
        with np.load(write_validation(data, tmp_path / "v.npz")) as found:
            assert found["x"].shape == (count, 1, 8, 8) and found["x"].dtype == np.uint8
            assert set(found["y"]) == {0, 1, 2}
    with np.load(write_calibration(data, None, tmp_path / "c.npz")) as found:
        assert found["x"].shape == (72, 1, 8, 8) and found["x"].dtype == np.float32
        assert abs(found["x"].mean()) < 1e-3, "all of the training part, normalised"


def test_what_a_function_makes_in_floats_is_handed_on_as_it_is(tmp_path: Path) -> None:
    source = own(tmp_path)
    path = tmp_path / "own.py"
    path.write_text("import torch\n" + path.read_text().replace("self.x[k, 0]", "torch.from_numpy(self.x[k]) / 255"))
    data = open_images(GnomonConfig(), source, classes=3)
    with np.load(write_validation(data, tmp_path / "v.npz")) as found:
        assert found["x"].dtype == np.float32 and 0 <= found["x"].min() < found["x"].max() == 1
    with np.load(write_calibration(data, None, tmp_path / "c.npz")) as found:
        assert found["x"].max() == 1


def test_a_function_that_only_a_profile_names_is_not_run(tmp_path: Path) -> None:
    source = own(tmp_path)
    known = {"name": source, "digest": open_images(GnomonConfig(), source, classes=3).digest}
    assert reopened_images(GnomonConfig(), known, source, classes=3).digest == known["digest"]
    path = tmp_path / "own.py"
    before = path.read_text()
    path.write_text("raise SystemExit('this was run')")
    with pytest.raises(UsageError, match="gnomon runs only if you name it") as refused:
        reopened_images(GnomonConfig(), known, None, classes=3)
    assert f"--data {source}" in refused.value.hint
    with pytest.raises(UsageError, match="gnomon runs only if you name it"):
        reopened_images(GnomonConfig(data=source), {**known, "name": ""}, None, classes=3)
    with pytest.raises(UsageError, match="the profile was made with "):
        reopened_images(GnomonConfig(), known, "digits", classes=3)
    path.write_text(before.replace("self.x[k, 0]", "255 - self.x[k, 0]"))
    with pytest.raises(UsageError, match="changed after the profile was made"):
        reopened_images(GnomonConfig(), known, source, classes=3)


def profile(folder: Path, **training: Any) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")
    given: dict[str, Any] = {"toolchains": (), "workers": 1, "networks": 2, "epochs": 1, **training}
    api.profile_space(write_config(folder), folder / "out", mixed=0, record=folder / "record.sqlite", **given)


@pytest.mark.slow
@pytest.mark.usefixtures("trained_alike")
def test_a_profile_of_what_a_function_makes_is_trained_checked_and_measured(tmp_path: Path) -> None:
    """Also the logs: each network of a plain toolchain has one of its check and one of its measurement."""
    profile(tmp_path, data=own(tmp_path), toolchains=("onnxruntime",))
    told = look(tmp_path / "out").document()
    assert told["accuracy"]["trained"] and not told["accuracy"]["failed"]
    rows = {row["id"]: row for row in told["latency"][0]["networks"]}
    trained = {row["id"] for row in told["accuracy"]["trained"]}
    assert all(row["latency_s"] for row in rows.values())
    assert {name for name, row in rows.items() if row["correct"] is not None} == trained & rows.keys() != set()
    logs = tmp_path / "out" / "log_files" / "onnxruntime"
    assert {path.name for path in logs.glob("*.measure.log")} == {f"{name}.measure.log" for name in rows}
    text = next(logs.glob("*.check.log")).read_text()
    assert "SHA-256: " in text and "outcome: " in text and " of 24 right" in text
    assert "call_s: " in next(logs.glob("*.measure.log")).read_text()


def test_a_gpu_that_is_not_there_is_told_before_anything_is_done(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="no network can be trained on cuda: PyTorch finds no CUDA device") as refused:
        profile(tmp_path, data=write_images(tmp_path), training_device="cuda")
    assert "--train-on" in refused.value.hint and not (tmp_path / "out").exists()


def test_what_a_kill_left_half_written_goes_and_what_trainings_go_on_from_stays(tmp_path: Path) -> None:
    profile(tmp_path, data=write_images(tmp_path), method=None)
    partial = tmp_path / "out" / "checkpoints" / "partial"
    for name in ("0123456789abcdef.77.images", ".abc.pt.0011aabb.part", "abc.pt"):
        (partial / name).write_bytes(b"x")
    profile(tmp_path, data=write_images(tmp_path), method=None)
    assert [path.name for path in partial.iterdir()] == ["abc.pt"]

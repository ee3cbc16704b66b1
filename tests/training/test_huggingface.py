"""What Hugging Face's `datasets` saved, read by the example of the documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnomon.training.data.streamed import Origin, open_streamed

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install '.[space]'")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "hugging_face_images.py"


def test_the_example_reads_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    package = pytest.importorskip("datasets", reason="datasets is not installed")
    features = package.Features({"image": package.Image(), "label": package.ClassLabel(names=["ant", "bee"])})
    pixels = np.random.default_rng(0).integers(0, 256, (20, 9, 12, 3), dtype=np.uint8)

    def rows(count: int) -> object:
        held = {"image": [image.fromarray(one) for one in pixels[:count]], "label": [k % 2 for k in range(count)]}
        return package.Dataset.from_dict(held, features=features)

    package.DatasetDict(train=rows(20), test=rows(6)).save_to_disk(tmp_path / "pictures")
    monkeypatch.setenv("PICTURES", str(tmp_path / "pictures"))
    origin = Origin(kind="dataset", place=f"{EXAMPLE}:images")
    data = open_streamed("dataset:images", origin, classes=2, shares=(0.2, 0.2), seed=0)
    assert data.shape == (3, 9, 12) and [data.count(part) for part in ("train", "validation", "test")] == [16, 4, 6]
    assert data.labels["test"].tolist() == [0, 1] * 3
    np.testing.assert_array_equal(data.some("test", np.array([5]))[0], pixels[5].transpose(2, 0, 1))

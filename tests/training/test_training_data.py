"""Data sets: what they refuse, how they travel, and splits of them."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.trainkit import data, shapes

from gnomon.errors import ProblemError
from gnomon.training import Dataset, Images, Packed, pack, packed, split, split_rows, unpack
from gnomon.training.data.dataset import PackedFile


def images(count: int, classes: int, seed: int = 0) -> Images:
    rng = np.random.default_rng(seed)
    return Images(x=rng.integers(0, 256, (count, 2, 3, 4)).astype(np.uint8), y=rng.integers(0, classes, count))


def dataset(seed: int = 0) -> Dataset:
    return Dataset(name="d", classes=3, train=images(20, 3, seed), validation=images(5, 3, 1), test=images(6, 3, 2))


@given(
    st.lists(st.integers(0, 4), min_size=40, max_size=200),
    st.lists(st.floats(0.1, 0.33), min_size=1, max_size=3),
    st.integers(0, 1000),
)
def test_parts_are_disjoint_and_have_their_share_of_each_class(
    labels: list[int], shares: list[float], seed: int
) -> None:
    y = np.array(labels, np.int64)
    try:
        parts = split_rows(y, shares, seed=seed)
    except ProblemError:  # of a few images a class each share may round to none
        assert min(shares) * np.bincount(y).max() <= 1
        return
    every = np.concatenate(parts)
    assert len(np.unique(every)) == len(every)
    for part, share in zip(parts, shares, strict=True):
        assert (np.diff(part) > 0).all()
        for one in np.unique(y):
            assert abs((y[part] == one).sum() - share * (y == one).sum()) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(parts, split_rows(y, shares, seed=seed), strict=True))


def test_shares_of_one_leave_nobody_out_and_seeds_differ() -> None:
    whole = images(101, 4)
    parts = split(whole, (0.6, 0.2, 0.2), seed=1)
    assert sum(map(len, parts)) == 101
    assert np.array_equal(np.sort(np.concatenate([p.x for p in parts]).ravel()), np.sort(whole.x.ravel()))
    assert not np.array_equal(split_rows(whole.y, [0.5], seed=1)[0], split_rows(whole.y, [0.5], seed=2)[0])


@pytest.mark.parametrize("shares", [[], [0.5, 0.6], [0.5, 0.0], [float("nan")], [1e-9]])
def test_shares_that_cannot_be_meant_are_refused(shares: list[float]) -> None:
    with pytest.raises(ProblemError):
        split_rows(np.zeros(10, np.int64), shares, seed=0)


def test_mean_and_deviation_are_those_of_the_training_part() -> None:
    made = dataset()
    assert made.mean == pytest.approx(made.train.x.mean((0, 2, 3)))
    assert made.std == pytest.approx(made.train.x.std((0, 2, 3)))
    flat = Images(x=np.full((3, 1, 2, 2), 7, np.uint8), y=np.zeros(3, np.int64))
    assert Dataset(name="f", classes=1, train=flat, validation=flat, test=flat).std == (1.0,)


def test_a_packed_data_set_comes_back_as_it_was() -> None:
    made = dataset()
    again = unpack(pack(made))
    assert (again.name, again.classes, again.digest) == (made.name, made.classes, made.digest)
    assert np.array_equal(again.test.x, made.test.x)
    assert np.array_equal(again.train.y, made.train.y)
    assert pack(again) == pack(made)


def test_the_digest_is_of_all_contents() -> None:
    one = dataset()
    swapped = Dataset(name="d", classes=3, train=one.train, validation=one.test, test=one.validation)
    named = Dataset(name="e", classes=3, train=one.train, validation=one.validation, test=one.test)
    assert len({one.digest, swapped.digest, named.digest, dataset(9).digest}) == 4


def test_an_unpacked_data_set_is_kept_and_another_than_was_named_refused() -> None:
    assert data().open() is data().open()
    with pytest.raises(ProblemError, match="digest"):
        Packed(digest="0" * 64, content=pack(dataset())).open()


def _again(change: Callable[[dict[str, bytes]], object], compress: int = zipfile.ZIP_STORED) -> bytes:
    """A packed data set with its files changed."""
    with zipfile.ZipFile(io.BytesIO(pack(dataset()))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compress) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _npy(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(array), allow_pickle=True)
    return stream.getvalue()


def _huge(files: dict[str, bytes]) -> None:
    files["train_x.npy"] = files["train_x.npy"].replace(b"(20, 2, 3, 4)", b"(1" + 8 * b"0" + b",3,4)", 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK nothing",
        pack(dataset())[:-40],
        _again(lambda files: files.pop("test_y.npy")),
        _again(lambda files: files.update({"more.npy": b""})),
        _again(lambda files: None, zipfile.ZIP_DEFLATED),
        _again(_huge),
        _again(lambda files: files.update({"train_y.npy": _npy([object()])})),
        _again(lambda files: files.update({"train_y.npy": _npy([0.5] * 20)})),
        _again(lambda files: files.update({"train_y.npy": b"\x93NUMPY\x01\x00"})),
        _again(lambda files: files.update({"head.npy": _npy(np.frombuffer(b"{}", np.uint8))})),
        _again(lambda files: files.update({"head.npy": _npy(np.frombuffer(b"[1]", np.uint8))})),
        _again(lambda files: files.update({"head.npy": _npy(np.frombuffer(b'{"name": 1, "classes": 3}', np.uint8))})),
        _again(lambda files: files.update({"head.npy": _npy(np.frombuffer(b'{"name": "d", "classes": 2}', np.uint8))})),
    ],
)
def test_bytes_that_are_no_data_set_are_refused(content: bytes) -> None:
    with pytest.raises(ProblemError):
        unpack(content)


@given(st.binary(max_size=8), st.integers(0, 10_000))
def test_a_damaged_data_set_is_refused_or_another(damage: bytes, place: int) -> None:
    content = bytearray(pack(dataset()))
    place %= len(content)
    content[place : place + len(damage)] = damage
    with contextlib.suppress(ProblemError):
        unpack(bytes(content))


def test_images_of_other_types_or_shapes_are_refused() -> None:
    x, y = np.zeros((2, 1, 3, 3), np.uint8), np.zeros(2, np.int64)
    wrongs: tuple[tuple[Any, Any], ...] = (
        (x[0], y),
        (x.astype(np.float32), y),
        (x, y[:1]),
        (x, y - 1),
        (x[:0], y[:0]),
        (x, y.astype(np.int32)),
    )
    for wrong in wrongs:
        with pytest.raises(ProblemError):
            Images(x=wrong[0], y=wrong[1])
    with pytest.raises(ProblemError, match="shape"):
        Dataset(name="d", classes=1, train=Images(x=x, y=y), validation=images(3, 1), test=images(3, 1))
    with pytest.raises(ProblemError, match="class 1"):
        Dataset(name="d", classes=1, train=images(9, 1), validation=images(9, 2), test=images(3, 1))


def test_the_made_up_data_set_has_all_classes_everywhere() -> None:
    for part in (shapes().train, shapes().validation, shapes().test):
        assert set(part.y) == {0, 1, 2, 3}


def test_a_packed_file_is_the_same_data_set_and_a_missing_one_is_told(tmp_path: Path) -> None:
    whole = packed(dataset(seed=9))
    path = tmp_path / "images"
    path.write_bytes(whole.content)
    opened = PackedFile(digest=whole.digest, path=str(path)).open()
    assert opened.digest == whole.digest
    assert np.array_equal(opened.train.x, dataset(seed=9).train.x)
    path.unlink()
    assert opened.validation.x.sum() == dataset(seed=9).validation.x.sum()  # its pages stay as long as they are mapped
    with pytest.raises(ProblemError, match="cannot be read"):
        PackedFile(digest="0" * 64, path=str(tmp_path / "nothing")).open()


def test_a_packed_file_is_mapped_and_not_copied(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    many = Images(x=rng.integers(0, 256, (4000, 3, 32, 32), dtype=np.uint8), y=np.zeros(4000, np.int64))
    few = many.take(np.arange(3))
    large = Dataset(name="large", classes=1, train=many, validation=few, test=few)
    path = tmp_path / "large"
    path.write_bytes(packed(large).content)
    source = f"""
from gnomon.training.data.dataset import PackedFile
own = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1])
before = own()
kept = PackedFile(digest={large.digest!r}, path={str(path)!r}).open()
print(own() - before, len(kept.train))
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    grown_kib, count = map(int, ran.stdout.split())
    assert count == 4000 and 1024 * grown_kib < many.x.nbytes / 2


@pytest.mark.parametrize("damage", [b"", b"PK", b"not an archive" * 9])
def test_a_damaged_packed_file_is_told(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "images"
    path.write_bytes(damage)
    with pytest.raises(ProblemError, match="packed data set"):
        PackedFile(digest="1" * 64, path=str(path)).open()

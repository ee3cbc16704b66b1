"""Data sets: what they refuse, how they travel, and splits of them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.trainkit import dataset_of

from gnomon.errors import ProblemError
from gnomon.training.data.dataset import Dataset, Images, map_dataset, split_rows


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
    made = dataset_of("d", whole, seed=1)
    parts = (made.train, made.validation, made.test)
    assert np.array_equal(np.sort(np.concatenate([p.x for p in parts]).ravel()), np.sort(whole.x.ravel()))
    assert not np.array_equal(split_rows(whole.y, [0.5], seed=1)[0], split_rows(whole.y, [0.5], seed=2)[0])


def test_mean_and_deviation_are_those_of_the_training_part() -> None:
    made = dataset()
    assert made.mean == pytest.approx(made.train.x.mean((0, 2, 3)))
    assert made.std == pytest.approx(made.train.x.std((0, 2, 3)))
    flat = Images(x=np.full((3, 1, 2, 2), 7, np.uint8), y=np.zeros(3, np.int64))
    assert Dataset(name="f", classes=1, train=flat, validation=flat, test=flat).std == (1.0,)


def test_the_digest_is_of_all_contents() -> None:
    one = dataset()
    swapped = Dataset(name="d", classes=3, train=one.train, validation=one.test, test=one.validation)
    named = Dataset(name="e", classes=3, train=one.train, validation=one.validation, test=one.test)
    assert len({one.digest, swapped.digest, named.digest, dataset(9).digest}) == 4


def test_parts_of_unlike_images_are_refused() -> None:
    other = Images(x=np.zeros((2, 1, 3, 3), np.uint8), y=np.zeros(2, np.int64))
    with pytest.raises(ProblemError, match="differ in shape"):
        Dataset(name="d", classes=1, train=other, validation=images(3, 1), test=images(3, 1))


def test_a_mapped_data_set_is_the_same_and_kept_open(tmp_path: Path) -> None:
    mapped = map_dataset(dataset(seed=9), tmp_path / "images")
    opened = mapped.open()
    assert opened.digest == mapped.digest == dataset(seed=9).digest and mapped.open() is opened
    assert np.array_equal(opened.train.x, dataset(seed=9).train.x)
    (tmp_path / "images").unlink()
    assert opened.validation.x.sum() == dataset(seed=9).validation.x.sum()  # its pages stay as long as they are mapped


def test_a_mapped_data_set_is_not_copied(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    many = Images(x=rng.integers(0, 256, (4000, 3, 32, 32), dtype=np.uint8), y=np.zeros(4000, np.int64))
    few = many.take(np.arange(3))
    mapped = map_dataset(Dataset(name="large", classes=1, train=many, validation=few, test=few), tmp_path / "large")
    (tmp_path / "job").write_bytes(pickle.dumps(mapped))
    source = f"""
import pickle
from pathlib import Path
mapped = pickle.loads(Path({str(tmp_path / "job")!r}).read_bytes())
own = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1])
before = own()
kept = mapped.open()
print(own() - before, len(kept.train))
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    grown_kib, count = map(int, ran.stdout.split())
    assert count == 4000 and 1024 * grown_kib < many.x.nbytes / 2

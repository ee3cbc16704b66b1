"""The zoo's silhouettes: read without unpickling, 1,000 of each of ten kinds."""

from __future__ import annotations

import gzip
import hashlib
import pickletools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from zoo.silhouettes import _X, _Y, CLASSES, packed, silhouettes_npz
from zoo.wheels import WheelFile, Wheels, ZooError

import zoo
from gnomon.training.data.sources import load_images


def test_there_are_1000_of_each_kind(zoo_model: Callable[[str], Path]) -> None:
    found = load_images(f"npz:{zoo_model('silhouettes')}", size=32)
    (images,) = found.parts.values()
    assert found.classes == CLASSES
    assert images.x.shape == (10_000, 1, 32, 32)
    assert np.bincount(images.y).tolist() == [1000] * 10
    means = [images.x[images.y == k].mean() for k in range(10)]
    assert min(means) > 10, "a kind without pixels would be a wrong place in the file"
    # Giraffes are higher than wide, and silhouettes stand in the middle.
    giraffes = images.x[images.y == CLASSES.index("giraffe"), 0].mean(axis=0)
    assert giraffes.any(axis=1).sum() >= giraffes[:, giraffes.sum(axis=0) > giraffes.sum(axis=0).max() / 4].shape[1]


def test_the_places_are_those_that_the_pickles_name(zoo_model: Callable[[str], Path]) -> None:
    zoo_model("silhouettes")
    wheels = Wheels(zoo.default_folder() / "wheels")
    for one, shape in ((_X, (10_000, 28, 28)), (_Y, (10_000,))):
        content = gzip.decompress(wheels.read(one.file))
        opcodes = list(pickletools.genops(content))  # looks at the opcodes, and calls nothing
        (at, length) = next((at, len(bytes(arg or b""))) for op, arg, at in opcodes if op.name == "BINBYTES")
        assert one.offset == (at or 0) + 5 and len(content) == one.unpacked_bytes
        assert length == np.prod(shape) * (1 if one is _X else 8)
        assert [arg for op, arg, _ in opcodes if op.name.startswith("BININT")][2:][: len(shape)] == list(shape)


def test_the_archive_is_the_same_each_time(zoo_model: Callable[[str], Path]) -> None:
    assert zoo_model("silhouettes").read_bytes() == silhouettes_npz(Wheels(zoo.default_folder() / "wheels"))


def test_other_counts_and_files_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x, y = np.zeros((10_000, 28, 28), np.uint8), np.repeat(np.arange(10), 1000)
    assert packed(x, y)
    with pytest.raises(ZooError, match="1000 of each of 10"):
        packed(x, np.roll(y, 1) // 2)
    short = gzip.compress(bytes(9))

    def read(self: Wheels, wanted: WheelFile) -> bytes:
        assert hashlib.sha256(short).hexdigest() != wanted.sha256
        return short

    monkeypatch.setattr(Wheels, "read", read)
    with pytest.raises(ZooError, match="is not 7840164 bytes long"):
        silhouettes_npz(Wheels(tmp_path))

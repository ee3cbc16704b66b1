"""Model files that are broken or made to hurt, through the whole job: one clear error, and no package."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx

from gnomon.errors import GnomonError, ModelError
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest

Zoo = Callable[[str], Path]


def refuse(model: Path, folder: Path, effort: Effort) -> ModelError:
    with pytest.raises(ModelError) as refused:
        place(ModelRequest(model=model, effort=effort), folder / "out")
    assert refused.value.hint
    assert len(refused.value.message) < 2000
    assert not (folder / "out").exists()
    assert not (folder / "home").exists()  # not even a record was begun
    return refused.value


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("name", ["mix.circle", "minilm-layer.onnx"])
def test_truncated(zoo_model: Zoo, tmp_path: Path, small: Effort, name: str, share: float) -> None:
    data = zoo_model(name).read_bytes()
    model = tmp_path / name
    model.write_bytes(data[: int(len(data) * share)])
    refuse(model, tmp_path, small)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("head", [b"", b"\0\0\0\0CIR0", b"\x1c\0\0\0TFL3", b"\x08\x08"])
def test_random_bytes(tmp_path: Path, small: Effort, seed: int, head: bytes) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(head + random.Random(seed).randbytes(5000))
    refuse(model, tmp_path, small)


def test_a_file_of_a_terabyte_of_nothing(tmp_path: Path, small: Effort) -> None:
    for name, head in (("m.circle", b"\x1c\0\0\0CIR0"), ("m.onnx", b"")):
        model = tmp_path / name
        with model.open("wb") as file:
            file.write(head)
            try:
                file.truncate(1 << 40)
            except OSError:
                pytest.skip("this file system has no files of a terabyte")
        refuse(model, tmp_path, small)
        model.unlink()


def test_what_is_no_file(tmp_path: Path, small: Effort) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "folder.onnx").mkdir()
    for name in ("absent.onnx", "pipe.onnx", "folder.onnx"):
        refuse(tmp_path / name, tmp_path, small)
    refuse(Path("/dev/zero"), tmp_path, small)


@pytest.mark.parametrize("seed", range(6))
def test_flipped_bytes_are_an_error_or_a_model_never_a_crash(tmp_path: Path, small: Effort, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(matmul_onnx(depth=1))
    for _ in range(3):
        data[rng.randrange(len(data) // 2)] = rng.randrange(256)
    model = tmp_path / "m.onnx"
    model.write_bytes(data)
    try:
        place(ModelRequest(model=model, effort=small, runtimes=("onnxruntime",)), tmp_path / "out")
    except GnomonError as error:
        assert error.hint
        assert not (tmp_path / "out").exists()

"""Model files that are broken or made to hurt, through the whole job: one clear error, and no package."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx, model_in

from gnomon.errors import GnomonError, ModelError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest

Zoo = Callable[[str], Path]


@pytest.mark.parametrize("share", [0.01, 0.99])
@pytest.mark.parametrize("name", ["mix.circle", "minilm-layer.onnx"])
def test_a_file_that_was_cut_off(zoo_model: Zoo, tmp_path: Path, small: Effort, name: str, share: float) -> None:
    data = zoo_model(name).read_bytes()
    model = tmp_path / name
    model.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError) as refused:
        place(ModelRequest(model=model, effort=small), tmp_path / "out")
    assert refused.value.hint
    assert len(refused.value.message) < 2000
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "home").exists()  # not even a record was begun


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_are_an_error_or_a_model_never_a_crash(tmp_path: Path, small: Effort, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(matmul_onnx(depth=1))
    for _ in range(3):
        data[rng.randrange(len(data) // 2)] = rng.randrange(256)
    request = ModelRequest(model=model_in(tmp_path, bytes(data)), effort=small, runtimes=("onnxruntime",))
    try:
        profile(request)
    except GnomonError as error:
        assert error.hint

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from tests.toolchains.toolkit import IMAGES, job, right, small_jobs, small_net, truncated_job, unknown_operator_job

from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.models.onnx.quantised import read_quantised
from gnomon.system.files import file_digest
from gnomon.testing.toolchain import ToolchainContract
from gnomon.toolchains import children as plain
from gnomon.toolchains.base import Artifact, Toolchain, ToolJob
from gnomon.toolchains.openvino_int8 import openvino_int8
from gnomon.toolchains.ort_int8 import onnxruntime_int8
from gnomon.toolchains.quark_xint8 import PACKAGES, quark_xint8


class Small(ToolchainContract):
    @pytest.fixture
    def jobs(self, tmp_path: Path) -> list[ToolJob]:
        return small_jobs(tmp_path)

    @pytest.fixture
    def broken(self, tmp_path: Path) -> ToolJob:
        return truncated_job(tmp_path)


class TestPlain(Small):
    @pytest.fixture
    def toolchain(self) -> Toolchain:
        return plain.onnxruntime({})

    @pytest.fixture
    def broken(self, tmp_path: Path) -> ToolJob:
        return job(tmp_path, "absent", tmp_path / "absent.onnx")


class TestOnnxRuntimeInt8(Small):
    @pytest.fixture
    def toolchain(self) -> Toolchain:
        return onnxruntime_int8({"images": 4})


class TestOpenVinoInt8(Small):
    @pytest.fixture
    def toolchain(self) -> Toolchain:
        return openvino_int8({"images": 4})


def quark() -> Toolchain:
    """Quark from the folder where the Makefile installs it, unless the environment names another."""
    installed = Path(__file__).parents[2] / ".venv" / "quark"
    given = {} if os.environ.get(PACKAGES) or not installed.is_dir() else {"packages": str(installed)}
    return quark_xint8({"images": 4, **given})


class TestQuarkXint8(Small):
    @pytest.fixture
    def toolchain(self) -> Toolchain:
        return quark()

    def _check(self, job: ToolJob, one: Artifact) -> None:
        """All scales are powers of two, beside what holds of any toolchain."""
        super()._check(job, one)
        assert one.path is not None
        graph = onnx.load(one.path).graph
        wanted = {node.input[1] for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
        scales = [onnx.numpy_helper.to_array(t) for t in graph.initializer if t.name in wanted]
        assert len(scales) > 10 and all((np.frexp(scale)[0] == 0.5).all() for scale in scales)
        assert read_quantised(one.path).share_8bit >= 0.9


MADE = [
    onnxruntime_int8({"images": 48}),
    onnxruntime_int8({"images": 48, "per_channel": True, "method": "percentile"}),
    openvino_int8({"images": 48}),
]


Made = tuple[list[ToolJob], dict[str, Artifact]]
"""Jobs, and what came of them and of one with an unknown operator."""


@pytest.fixture(scope="module", params=MADE, ids=["onnxruntime", "per channel", "nncf"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The child loads its quantiser once for all jobs, which takes longer than they do."""
    folder = tmp_path_factory.mktemp("made")
    jobs = small_jobs(folder)
    found = request.param.make([unknown_operator_job(folder), *jobs])
    return jobs, {one.key: one for one in found}


def test_int8_is_int8_and_close_to_float(made: Made, tmp_path: Path) -> None:
    jobs, by_key = made
    # The classes that the float nets choose are the labels: what is counted is where the int8 nets agree with them.
    for one in jobs:
        path = by_key[one.key].path
        assert path is not None, by_key[one.key].failure
        before, after = read_quantised(one.model), read_quantised(path)
        assert before.share_8bit < 0.9 <= after.share_8bit
        assert after.operators == before.operators and after.macs == before.macs
        assert path.stat().st_size < one.model.stat().st_size * 0.6
        images = tmp_path / f"{one.key}.npz"
        labels(one.model, images)
        for runtime in ("onnxruntime", "openvino"):
            found = right({"float": one.model, "int8": path}, images, runtime)
            assert np.all(found["float"]) and np.mean(found["int8"]) >= 0.85  # type: ignore[arg-type]


def labels(model: Path, dest: Path) -> None:
    """Images, with the classes that a model chooses by ONNX's own reference implementation."""
    x = np.random.default_rng(5).normal(size=(IMAGES, 1, 16, 16)).astype(np.float32)
    reference = ReferenceEvaluator(str(model))
    y = [int(np.argmax(next(iter(reference.run(None, {"x0": image[None]}))))) for image in x]
    np.savez(dest, x=x, y=np.array(y))


def test_an_unknown_operator_is_data(made: Made) -> None:
    jobs, by_key = made
    failure = by_key["unknown"].failure
    assert failure is not None and failure.stage == "quantize" and failure.kind == "refused"
    assert "NoSuchOperator" in failure.message + failure.log_tail
    assert all(by_key[one.key].failure is None for one in jobs)


def test_images_that_do_not_fit_are_data(tmp_path: Path) -> None:
    one = job(tmp_path, "k", small_net(tmp_path / "m.onnx", "VGGblock_1"))
    np.savez(one.calibration, x=np.zeros((4, 3, 8, 8), np.float32))
    (made,) = onnxruntime_int8({}).make([one])
    assert made.failure is not None and "[4, 3, 8, 8] do not fit" in made.failure.message
    one.calibration.write_bytes(b"PK no archive")
    (made,) = onnxruntime_int8({}).make([one])
    assert made.failure is not None and made.failure.kind == "refused"


def test_logs_say_what_was_done(tmp_path: Path) -> None:
    jobs = small_jobs(tmp_path)[:1]
    (made,) = onnxruntime_int8({"images": 8}).make(jobs)
    text = (jobs[0].logs / f"{made.key}.quantize.log").read_text()
    assert "ort_int8_child" in text and '"images": 8' in text and '"onnxruntime": "' in text
    assert file_digest(jobs[0].model) in text


def test_two_workers_make_the_same_files(tmp_path: Path) -> None:
    jobs = small_jobs(tmp_path)
    files = [job.folder / f"{job.key}.onnx" for job in jobs]
    assert all(made.failure is None for made in onnxruntime_int8({"images": 8}).make(jobs))
    one = [file_digest(file) for file in files]
    assert all(made.failure is None for made in onnxruntime_int8({"images": 8, "workers": 2}).make(jobs))
    assert [file_digest(file) for file in files] == one


@pytest.mark.parametrize(
    ("make", "given", "told"),
    [
        (plain.openvino, {"images": 3}, ["no setting 'images'"]),
        (onnxruntime_int8, {"images": 0, "method": "mse", "depth": 1}, ["images is 0", "method is 'mse'", "'depth'"]),
        (onnxruntime_int8, {"workers": "two", "timeout_s": "nan", "per_channel": "maybe"}, ["workers", "timeout_s"]),
        (openvino_int8, {"images": True, "memory_gib": -1, "preset": None}, ["images", "memory_gib", "preset"]),
        (quark_xint8, {"python": "", "config": "BF16", "packages": 3}, ["python", "config", "packages"]),
    ],
)
def test_all_wrong_settings_are_told_at_once(make, given, told) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError) as caught:
        make(given)
    assert all(part in caught.value.message for part in told)
    assert "Settings:" in caught.value.hint


def test_settings_may_be_texts() -> None:
    assert onnxruntime_int8({"images": "12", "per_channel": "yes", "timeout_s": "1.5"}).name == "onnxruntime-int8"


def test_quark_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = quark_xint8({"packages": str(tmp_path / "none")}).check()
    said = " ".join(one.what for one in found)
    assert "no folder" in said and "g++" in said and "package quark" in said
    assert all("pip install" in one.hint for one in found)
    nobody = quark_xint8({"python": "no-such-python"})
    assert any("no-such-python" in one.what for one in nobody.check())
    with pytest.raises(RuntimeMissingError, match="no-such-python"):
        next(nobody.make(small_jobs(tmp_path)))

"""TFLite files and nnpackages are measured by the runtimes that read them, and refused by those that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.serving.servekit import served
from tests.serving.test_sent_models import archive

from gnomon.models.tflite.kernel import product_kernel

pytest.importorskip("aiohttp", reason="aiohttp is not installed")


def test_litert_takes_tflite_and_the_model_of_a_package(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    manifest = b'{"major-version": "1", "minor-version": "3", "patch-version": "0", "models": ["net.tflite"], '
    manifest += b'"model-types": ["tflite"], "configs": []}'
    with served(tmp_path / "litert", what=("--runtime", "litert")) as made:
        found = made.post(product_kernel(64), Accept="application/json").json()
        assert (found["runtime"], found["loads"], found["processes"]) == ("litert", 3, 1)
        package = archive({"metadata/MANIFEST": manifest, "net.tflite": product_kernel(64)}, under="net/")
        assert made.post(package, Accept="application/json").json()["latency_s"] > 0
        refused = made.post(archive({"../net.tflite": product_kernel(8)}))
        assert (refused.status, "an empty or unsafe name" in refused.body) == (422, True)
        assert made.end() == 143
        assert made.left() == []


def test_onert_takes_circle_and_whole_packages(tmp_path: Path, zoo_model: Callable[[str], Path]) -> None:
    pytest.importorskip("onert", reason="onert is not installed")
    circle = zoo_model("mix.circle").read_bytes()
    manifest = b'{"major-version": "1", "minor-version": "3", "patch-version": "0", "models": ["mix.circle"], '
    manifest += b'"model-types": ["circle"], "configs": ["config.cfg"]}'
    files = {"metadata/MANIFEST": manifest, "metadata/config.cfg": b"BACKENDS=cpu\n", "mix.circle": circle}
    with served(tmp_path / "onert", what=("--runtime", "onert")) as made:
        assert made.post(circle).status == 200
        reply = made.post(archive(files))
        assert reply.status == 200, reply.body


def test_a_format_that_the_runtime_does_not_load(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with served(tmp_path / "onnx") as made:
        reply = made.post(product_kernel(8))
        assert (reply.status, "format tflite, but onnxruntime loads only onnx" in reply.body) == (422, True), reply.body

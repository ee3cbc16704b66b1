"""A folder to run the documents' commands in, with models of the zoo linked into it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.docs.documents import GNOMON, ROOT, Place, blocks
from tests.models.modelkit import model, node, save, value

import zoo

MODELS = {
    "ppocr-rec.onnx": "ppocr-rec.onnx",
    "model.circle": "mix.circle",
    "mix.circle": "mix.circle",
    "net.onnx": "ppocr-cls.onnx",
    "net.circle": "mix.circle",
}


def small_network(path: Path) -> Path:
    """A network of two convolutions and a product: how long a command takes on it is not the document's matter."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) * 0.1
        for name, shape in {"v": (8, 3, 3, 3), "w": (16, 8, 3, 3), "p": (16, 10)}.items()
    }
    nodes = [
        node("Conv", ["x", "v"], ["a"], "first", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["a"], ["b"], "first_relu"),
        node("Conv", ["b", "w"], ["c"], "second", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["d"], "second_relu"),
        node("GlobalAveragePool", ["d"], ["e"], "pool"),
        node("Flatten", ["e"], ["f"], "flat"),
        node("MatMul", ["f", "p"], ["y"], "product"),
    ]
    return save(model(nodes, [value("x", [1, 3, 32, 32])], [value("y", [1, 10])], weights), path)


@pytest.fixture(scope="session")
def place_to_run(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same folder for all blocks of a session, as a reader would go on in it; the record is in its own home."""
    folder = tmp_path_factory.mktemp("reader")
    home = tmp_path_factory.mktemp("home")
    for name, known in MODELS.items():
        try:
            (folder / name).symlink_to(zoo.build(known))
        except zoo.ZooError as error:
            pytest.skip(f"zoo: {error}")
    small_network(folder / "model.onnx")
    (folder / "docs").symlink_to(ROOT / "docs")
    example = next(b for b in blocks(ROOT / "docs" / "formats" / "problem-json.md") if b.language == "json")
    (folder / "problem.json").write_text(json.dumps(json.loads(example.text)), encoding="utf-8")
    programs = tmp_path_factory.mktemp("programs")
    (programs / "gnomon").write_text(GNOMON, encoding="utf-8")
    (programs / "gnomon").chmod(0o755)
    scripts = str(Path(sys.executable).parent)
    return Place(
        folder=folder,
        home=home,
        environment={
            "PATH": os.pathsep.join([str(programs), scripts, os.environ.get("PATH", os.defpath)]),
            "HOME": str(home),
            "GNOMON_LEASES": str(tmp_path_factory.mktemp("leases")),
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "LC_ALL": "C.UTF-8",
        },
    )

"""A folder to run the documents' commands in, with models of the zoo linked into it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.docs.documents import ROOT, Place, blocks

import zoo

MODELS = {
    "model.onnx": "ppocr-cls.onnx",
    "ppocr-rec.onnx": "ppocr-rec.onnx",
    "model.circle": "mix.circle",
    "mix.circle": "mix.circle",
    "net.onnx": "ppocr-cls.onnx",
    "net.circle": "mix.circle",
}


@pytest.fixture(scope="session")
def place_to_run(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same folder for all blocks of a session, as a reader would go on in it; the record is in its own home."""
    folder = tmp_path_factory.mktemp("reader")
    home = tmp_path_factory.mktemp("home")
    for name, model in MODELS.items():
        try:
            (folder / name).symlink_to(zoo.build(model))
        except zoo.ZooError as error:
            pytest.skip(f"zoo: {error}")
    (folder / "docs").symlink_to(ROOT / "docs")
    example = next(b for b in blocks(ROOT / "docs" / "formats" / "problem-json.md") if b.language == "json")
    (folder / "problem.json").write_text(json.dumps(json.loads(example.text)), encoding="utf-8")
    scripts = str(Path(sys.executable).parent)
    return Place(
        folder=folder,
        home=home,
        environment={
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
            "HOME": str(home),
            "GNOMON_LEASES": str(tmp_path_factory.mktemp("leases")),
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "LC_ALL": "C.UTF-8",
        },
    )

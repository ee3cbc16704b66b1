"""Copies of ONNX models: what they are called, what they compute, and the weights beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.errors import ModelError  # noqa: E402
from gnomon.models import load  # noqa: E402
from gnomon.models.load import copy_model  # noqa: E402
from gnomon.models.onnx.cut import OnnxCutter  # noqa: E402
from gnomon.models.onnx.static import fixed_copy  # noqa: E402

ROWS = 3
WIDTH = 300


def two_weights(*, named: bool, rows: int | str) -> Any:
    """x * w + v, of float32 [rows, WIDTH]."""
    names = ("multiply", "add") if named else ("", "")
    random = np.random.default_rng(5)
    weights = {name: random.standard_normal(WIDTH).astype(np.float32) for name in "wv"}
    nodes = [node("Mul", "xw", "a", names[0]), node("Add", "av", "y", names[1])]
    return model(nodes, [value("x", [rows, WIDTH])], [value("y", [rows, WIDTH])], weights)


def with_data(folder: Path, **more: Any) -> Path:
    """A model with external data in a folder made for it."""
    folder.mkdir(parents=True)
    path = folder / "net.onnx"
    onnx.save_model(two_weights(**more), str(path), save_as_external_data=True, location="net.data", size_threshold=0)
    return path


def results(path: Path) -> Any:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    return session.run(None, {"x": feed})[0]


def reached(real: Path, way: str) -> Path:
    """The path of a model with external data, which lie or are named in one of several ways."""
    root, data = real.parent.parent, real.parent / "net.data"
    if way == "relative":
        return real.relative_to(root)
    if way == "linked folder":
        (root / "link").symlink_to(real.parent)
        return Path("link/net.onnx")
    if way == "linked data":
        (real.parent / "blobs").mkdir()
        data.rename(real.parent / "blobs" / "1f3c")
        data.symlink_to("blobs/1f3c")
    if way == "cache of downloads":  # as Hugging Face's: each file is a link to what the cache holds by another name
        held, shown = root / "blobs", root / "snapshots" / "1"
        held.mkdir()
        shown.mkdir(parents=True)
        for number, file in enumerate((real, data)):
            file.rename(held / str(number))
            (shown / file.name).symlink_to(f"../../blobs/{number}")
        return shown / "net.onnx"
    return real


@pytest.mark.parametrize("way", ["absolute", "relative", "linked folder", "linked data", "cache of downloads"])
@pytest.mark.parametrize(
    ("shapes", "named"), [({}, True), ({}, False), ({"x": (ROWS, WIDTH)}, False)], ids=["as it is", "names", "shapes"]
)
def test_external_data_come_along_by_every_path(
    way: str, shapes: Any, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = with_data(tmp_path / "real", named=named, rows="n" if shapes else ROWS)
    expected = results(real)
    monkeypatch.chdir(tmp_path)
    path = reached(real, way)
    folder = tmp_path / "copy"
    folder.mkdir()
    found, file, *_ = fixed_copy(load(path), shapes, folder)
    assert (found.path, found.path.name) == (file, "net.onnx")
    assert (file == path) == (named and not shapes), "a model that needs no change is not copied"
    np.testing.assert_array_equal(results(file), expected)
    package = tmp_path / "package"
    package.mkdir()
    copy_model(file, package / "net.onnx")
    np.testing.assert_array_equal(results(package / "net.onnx"), expected)
    segment = OnnxCutter(file).segment(0, 2, tmp_path / "segment.onnx")
    np.testing.assert_array_equal(results(segment.path), expected)


def test_only_a_link_to_a_model_lets_its_weights_be_links_elsewhere(tmp_path: Path) -> None:
    path = with_data(tmp_path / "made", named=False, rows=ROWS)
    (path.parent / "net.data").rename(tmp_path / "net.data")
    (path.parent / "net.data").symlink_to("../net.data")
    with pytest.raises(ModelError, match="leads out of its folder"):
        load(path)


def test_a_model_that_is_its_own_external_data_is_refused(tmp_path: Path) -> None:
    path = with_data(tmp_path / "real", named=False, rows=ROWS)
    proto = onnx.load(str(path), load_external_data=False)
    for tensor in proto.graph.initializer:
        del tensor.external_data[:]
        tensor.external_data.add(key="location", value="net.onnx")
    before = save(proto, path).read_bytes()
    folder = tmp_path / "copy"
    folder.mkdir()
    with pytest.raises(ModelError, match="names itself"):
        fixed_copy(load(path), {}, folder)
    assert path.read_bytes() == before


@pytest.mark.parametrize("shapes", [{}, {"x": (ROWS, WIDTH)}], ids=["names", "shapes"])
def test_a_copy_keeps_the_files_digest_and_name(shapes: Any, tmp_path: Path) -> None:
    path = save(two_weights(named=False, rows="n" if shapes else ROWS), tmp_path / "net.v2.json")
    folder = tmp_path / "copy"
    folder.mkdir()
    found, file, *_ = fixed_copy(load(path), shapes, folder)
    assert found.graph.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert file == found.path == folder / "net.v2.json"
    again = load(file).graph
    assert again.digest != found.graph.digest, "the copy is another file"
    assert (again.name, again.operators, again.tensors) == (
        found.graph.name,
        found.graph.operators,
        found.graph.tensors,
    )


def test_naming_operators_infers_no_shapes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = load(save(two_weights(named=False, rows=ROWS), tmp_path / "net.onnx"))
    folder = tmp_path / "copy"
    folder.mkdir()

    def infer(*_: object) -> None:
        raise AssertionError("shapes are known already")

    monkeypatch.setattr("gnomon.models.onnx.graph._infer", infer)
    found, file, *_ = fixed_copy(read, {}, folder)
    assert found.graph == read.graph
    assert [n.name for n in onnx.load(str(file)).graph.node] == [op.name for op in read.graph.operators]

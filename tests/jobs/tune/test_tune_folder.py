from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.tune.tunekit import hand_made

from gnomon.core.overlay.records import TunedDevice, TunedModel
from gnomon.errors import ModelError, ProblemError, RecordError, UsageError
from gnomon.jobs.tune.document import RecordFile
from gnomon.jobs.tune.folder import (
    companions,
    given_model,
    network_digest,
    read_description,
    safe,
    tune_folder,
    view,
    write_description,
)
from gnomon.jobs.tune.records import write_records

PHONE = TunedDevice(key="phone", target={"kind": "llvm"})
NET = TunedModel(name="net", sha256="ab" * 32)


def test_names_are_as_documented(tmp_path: Path) -> None:
    folder = tune_folder(tmp_path)
    assert folder.record(PHONE, NET) == tmp_path / "records" / "phone.net.float32.json"
    assert folder.collected(PHONE, "tablet", NET) == tmp_path / "records" / "phone_tablet.net.float32.json"
    assert folder.overlay(PHONE, NET) == tmp_path / "overlay" / "phone.net.float32.json"
    assert folder.library(PHONE, NET) == tmp_path / "libraries" / "phone.net.float32.so"
    assert folder.library(PHONE, NET, choice="overlay").name == "phone_overlay.net.float32.so"
    assert tune_folder(None).root.name == "tune"


@given(st.text(min_size=1, max_size=200))
def test_no_name_leaves_the_folder(name: str) -> None:
    try:
        made = safe(name)
    except UsageError:
        assert not any(letter.isascii() and (letter.isalnum() or letter == "_") for letter in name)
        return
    assert 0 < len(made) <= 80
    assert "/" not in made and "." not in made and made.isascii() and made.isprintable()
    assert safe(made) == made or len(made) == 80


def test_a_network_is_kept_with_the_weights_that_lie_beside_it(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    node, kind = onnx.helper.make_node("MatMul", ["x", "w"], ["y"]), onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([node], "net", [value("x", kind, (1, 64))], [value("y", kind, (1, 64))], [weights])
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "net.onnx"
    saved: dict[str, Any] = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0}
    onnx.save_model(onnx.helper.make_model(graph), str(path), **saved)
    model, folder = given_model(path, "float32"), tune_folder(tmp_path / "out")
    for _ in range(2):
        folder.keep_model(path, model.sha256)
    place = folder.find_model(model)
    assert place is not None and (place.parent / "net.data").read_bytes() == (path.parent / "net.data").read_bytes()
    assert np.array_equal(onnx.numpy_helper.to_array(onnx.load(str(place)).graph.initializer[0]), np.ones((64, 64)))
    assert [file.path for file in view(folder.root).models] == [str(place)]
    # Other weights are another network, though its own file is the same.
    (path.parent / "net.data").write_bytes(bytes(64 * 64 * 4))
    assert given_model(path, "float32").sha256 != model.sha256
    (place.parent / "net.data").write_bytes(bytes(64 * 64 * 4))
    assert folder.find_model(model) is None, "a copy that is not what it was any more"


def test_a_network_is_kept_once_and_found(tmp_path: Path) -> None:
    path = tmp_path / "Net.ONNX"
    path.write_bytes(b"weights")
    model = given_model(path, "float32")
    assert (model.name, model.dtype) == ("Net", "float32")
    folder = tune_folder(tmp_path / "out")
    assert folder.find_model(model) is None
    for _ in range(2):
        folder.keep_model(path, model.sha256)
        assert [kept.name for kept in folder.models.iterdir()] == [f"{model.sha256}.onnx"]
    found = folder.find_model(model)
    assert found is not None
    assert found.read_bytes() == b"weights"
    assert folder.find_model(replace(model, sha256="")) is None
    assert folder.find_model(replace(model, sha256="cd" * 32)) is None


def test_a_copy_that_was_damaged_is_not_found_and_made_again(tmp_path: Path) -> None:
    path, folder = tmp_path / "net.onnx", tune_folder(tmp_path / "out")
    path.write_bytes(b"weights")
    model = given_model(path, "float32")
    folder.keep_model(path, model.sha256)
    (folder.models / f"{model.sha256}.onnx").write_bytes(b"weig")
    assert folder.find_model(model) is None
    folder.keep_model(path, model.sha256)
    found = folder.find_model(model)
    assert found is not None
    assert network_digest(found) == model.sha256
    found.unlink()
    found.mkdir()  # what cannot be read is passed over
    assert folder.find_model(model) is None


def test_a_network_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(ModelError, match=str(path)):
            given_model(path, "float32")


def test_names_of_networks_can_be_written_down(tmp_path: Path) -> None:
    path = tmp_path / "a\nb\u202ec.onnx"
    path.write_bytes(b"")
    assert given_model(path, "float32").name == "a-b-c"
    path = tmp_path / "模型.onnx"
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="file's name"):
        given_model(path, "float32")


def test_a_folder_that_cannot_be_written_is_not_the_networks_fault(tmp_path: Path) -> None:
    path, out = tmp_path / "net.onnx", tmp_path / "out"
    path.write_bytes(b"weights")
    out.write_text("a file is in its place")
    with pytest.raises(RecordError, match="cannot be copied") as raised:
        tune_folder(out).keep_model(path, network_digest(path))
    assert "--out" in raised.value.hint


def test_what_belongs_to_a_library_is_beside_it() -> None:
    beside = companions(Path("a/phone.net.float32.so"))
    assert {path.parent for path in beside.values()} == {Path("a")}
    assert beside["inputs"].name == "phone.net.float32.in.npz"
    assert beside["description"].name == "phone.net.float32.so.json"


def test_descriptions(tmp_path: Path) -> None:
    library = tmp_path / "a.so"
    assert read_description(library) == {}
    write_description(library, {"a": 1})
    assert read_description(library) == {"a": 1}
    for damage in ("", "[]", "{", '{"a": NaN}', "[" * 9999, "\xff"):
        companions(library)["description"].write_text(damage, encoding="latin-1")
        with pytest.raises(ProblemError):
            read_description(library)
    companions(library)["description"].unlink()
    companions(library)["description"].mkdir()
    with pytest.raises(RecordError):
        read_description(library)


def test_view_lists_what_there_is_and_what_cannot_be_read(tmp_path: Path) -> None:
    folder = tune_folder(tmp_path)
    empty = view(tmp_path)
    assert (empty.models, empty.records, empty.libraries) == ((), (), ())
    write_records(folder.record(PHONE, NET), hand_made("phone", {"conv": {None: (1.0,), 1: (0.5,)}}))
    write_records(folder.overlay(PHONE, NET), hand_made("phone", {"conv": {1: (0.5,)}}, found_on="overlay"))
    (folder.records / "broken.json").write_text("{")
    (folder.records / "a.json.1.part").write_text("")
    folder.libraries.mkdir()
    descriptions: dict[str, dict[str, Any]] = {
        "good": {"device": {"key": "phone"}, "model": {"name": "net"}},
        "odd": {"device": [1], "model": 3},
    }
    for name, description in descriptions.items():
        (folder.libraries / f"{name}.so").write_bytes(b"code")
        write_description(folder.libraries / f"{name}.so", description)
    (folder.libraries / "bare.so").write_bytes(b"")
    (folder.libraries / "good.layers.so").write_bytes(b"")
    (folder.libraries / "good.untuned.so").write_bytes(b"")
    (folder.libraries / "bad.so").write_bytes(b"")
    (folder.libraries / "bad.so.json").write_text("[")
    folder.models.mkdir()
    (folder.models / "1.onnx").write_bytes(b"12")
    (folder.models / ".2.onnx.77.part").write_bytes(b"12")
    found = view(tmp_path)
    assert [file.name for file in found.models] == ["1.onnx"]
    rows = {Path(file.path).parent.name + "/" + Path(file.path).name: file for file in found.records}
    assert set(rows) == {"records/phone.net.float32.json", "records/broken.json", "overlay/phone.net.float32.json"}
    assert replace(rows["records/phone.net.float32.json"], path="") == RecordFile(
        path="", device="phone", found_on="phone", model="net", dtype="float32", layers=1, trials=2
    )
    assert rows["overlay/phone.net.float32.json"].found_on == "overlay"
    assert "no tuning records" in (rows["records/broken.json"].problem or "")
    libraries = {Path(file.path).stem: file for file in found.libraries}
    assert set(libraries) == {"good", "odd", "bare", "bad"}
    assert (libraries["good"].device, libraries["good"].model, libraries["good"].bytes) == ("phone", "net", 4)
    assert all(libraries[name].device == "unknown" for name in ("odd", "bare", "bad"))
    assert [name for name, file in libraries.items() if file.problem is not None] == ["bad"]

"""Reading and writing nnpackage folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.models.modelkit import write_package

from gnomon.errors import ModelError, PackageError
from gnomon.models import load
from gnomon.models.nnpackage import write_nnpackage

Build = Callable[[str], Path]


def manifest(*models: str, configs: tuple[str, ...] = ("config.cfg",), minor: str = "2") -> str:
    head = {"major-version": "1", "minor-version": minor, "patch-version": "0"}
    kinds = ["circle"] * len(models)
    return json.dumps({**head, "configs": list(configs), "models": list(models), "model-types": kinds})


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def package(tmp_path: Path, zoo_model: Build) -> Path:
    config = b"# mine\nNUM_THREADS=1\nBACKENDS=cpu\n"
    files = {"m.circle": zoo_model("mix").read_bytes(), "metadata/config.cfg": config, "custom_op/a.so": b"x"}
    return write_package(tmp_path / "pkg", manifest("m.circle"), files)


def test_a_package_is_read_with_its_config(package: Path, zoo_model: Build) -> None:
    model = load(package)
    assert (model.kind, model.graph.format, model.path) == ("nnpackage", "circle", package)
    assert model.package is not None
    assert model.package.config.settings == {"NUM_THREADS": "1", "BACKENDS": "cpu"}
    bare = load(zoo_model("mix"))
    assert model.graph == bare.graph
    assert model.size_bytes == bare.size_bytes


def test_a_copy_keeps_everything_and_the_source_stays(package: Path, tmp_path: Path) -> None:
    before = snapshot(package)
    dest = write_nnpackage(load(package), tmp_path / "out" / "new", {"BACKENDS": "cpu;ruy", "EXECUTOR": "Linear"})
    assert snapshot(package) == before
    after = snapshot(dest)
    assert after.pop("metadata/config.cfg") == b"# mine\nNUM_THREADS=1\nBACKENDS=cpu;ruy\nEXECUTOR=Linear\n"
    before.pop("metadata/config.cfg")
    assert after == before
    assert list(dest.parent.iterdir()) == [dest], "nothing of the writing is left behind"
    assert oct(dest.stat().st_mode & 0o777) == oct(package.stat().st_mode & 0o777)


def test_a_package_without_config_gets_one(tmp_path: Path, zoo_model: Build) -> None:
    files = {"m.circle": zoo_model("mix").read_bytes()}
    package = write_package(tmp_path / "p", manifest("m.circle", configs=()), files)
    read = load(write_nnpackage(load(package), tmp_path / "q", {"NUM_THREADS": "3"}))
    assert read.package is not None
    assert read.package.config_name == "config.cfg"
    assert read.package.config.settings == {"NUM_THREADS": "3"}
    other = write_package(tmp_path / "r", manifest("m.circle", configs=("own.cfg", "second.cfg")), files)
    written = write_nnpackage(load(other), tmp_path / "s", {"NUM_THREADS": "3"})
    assert (written / "metadata" / "own.cfg").read_text() == "NUM_THREADS=3\n"
    assert (written / "metadata" / "MANIFEST").read_bytes() == (other / "metadata" / "MANIFEST").read_bytes()


@pytest.mark.parametrize("name", ["mix", "efficientnet-lite0.tflite"])
def test_a_bare_model_is_wrapped_and_onert_runs_it(name: str, zoo_model: Build, tmp_path: Path) -> None:
    onert = pytest.importorskip("onert")
    bare = zoo_model(name)
    dest = write_nnpackage(load(bare), tmp_path / "pkg", {"NUM_THREADS": "1"})
    assert load(dest).graph == load(bare).graph
    shape = load(bare).graph.tensors[load(bare).graph.inputs[0]].shape or ()
    feed = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    got = onert.infer.session(str(dest), backends="cpu").infer([feed])[0]
    np.testing.assert_array_equal(got, onert.infer.session(str(bare), backends="cpu").infer([feed])[0])


def test_destinations_that_must_not_be_written(package: Path, tmp_path: Path, zoo_model: Build) -> None:
    model = load(package)
    for dest in (package, package / "inner", tmp_path):
        with pytest.raises(PackageError):
            write_nnpackage(model, dest, {}, overwrite=True)
    taken = write_nnpackage(model, tmp_path / "taken", {"A": "1"})
    with pytest.raises(PackageError, match="exists"):
        write_nnpackage(model, taken, {})
    write_nnpackage(model, taken, {"B": "2"}, overwrite=True)
    assert "B=2" in (taken / "metadata" / "config.cfg").read_text()
    assert "A=1" not in (taken / "metadata" / "config.cfg").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pkg", "taken"]
    precious = tmp_path / "precious"
    precious.mkdir()
    with pytest.raises(PackageError, match="not an nnpackage"):
        write_nnpackage(model, precious, {}, overwrite=True)
    with pytest.raises(PackageError, match="value"):
        write_nnpackage(model, tmp_path / "never", {"A": "1\n2"})
    assert not (tmp_path / "never").exists()


def test_a_package_may_have_the_longest_name(package: Path, tmp_path: Path) -> None:
    written = write_nnpackage(load(package), tmp_path / ("n" * 250), {})
    assert load(written).graph == load(package).graph


def test_onnx_cannot_be_packed(zoo_model: Build, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(PackageError, match="onnx"):
        write_nnpackage(load(zoo_model("minilm-layer")), tmp_path / "p", {})


@pytest.mark.parametrize("name", ["../m.circle", "/etc/passwd", "", "a/../../m", "a\0b", "a\\b", "\ud800", "x" * 5000])
def test_manifests_that_lead_outside_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.circle").write_bytes(b"secret")
    package = write_package(tmp_path / "p", manifest(name), {})
    with pytest.raises(ModelError) as caught:
        load(package)
    assert caught.value.hint
    package = write_package(tmp_path / "q", manifest("m.circle", configs=(name,)), {"m.circle": b""})
    with pytest.raises(ModelError):
        load(package)


def test_links_out_of_the_package_are_refused_and_links_within_are_followed(tmp_path: Path, zoo_model: Build) -> None:
    package = write_package(tmp_path / "p", manifest("m.circle", configs=()), {})
    (package / "m.circle").symlink_to(zoo_model("mix"))
    with pytest.raises(ModelError, match="link"):
        load(package)
    (package / "m.circle").unlink()
    (package / "real").write_bytes(zoo_model("mix").read_bytes())
    (package / "m.circle").symlink_to("real")
    model = load(package)
    written = write_nnpackage(model, tmp_path / "ok", {})
    assert not (written / "m.circle").is_symlink()
    (package / "extra").symlink_to("/etc/hostname")
    with pytest.raises(PackageError, match="link"):
        write_nnpackage(model, tmp_path / "bad", {})
    (package / "extra").unlink()
    (package / "ring").symlink_to(".")
    with pytest.raises(PackageError, match="too deep"):
        write_nnpackage(model, tmp_path / "bad", {})
    (package / "ring").unlink()
    os.mkfifo(package / "pipe")
    with pytest.raises(PackageError, match="regular"):
        write_nnpackage(model, tmp_path / "bad", {})
    assert not (tmp_path / "bad").exists()


def test_packages_that_are_none(tmp_path: Path, zoo_model: Build) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="MANIFEST"):
        load(tmp_path / "empty")
    two = write_package(tmp_path / "two", manifest("a.circle", "b.circle"), {})
    with pytest.raises(ModelError, match="2 models") as caught:
        load(two)
    assert "a.circle" in caught.value.hint
    with pytest.raises(ModelError, match="does not exist"):
        load(write_package(tmp_path / "gone", manifest("a.circle", configs=()), {}))
    binary = write_package(tmp_path / "binary", "{}", {"metadata/MANIFEST": b"\xff\xfe"})
    with pytest.raises(ModelError, match="UTF-8"):
        load(binary)

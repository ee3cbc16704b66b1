"""Data sets of Hugging Face: by the real package, from this machine alone."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.errors import GnomonError, ProblemError, RuntimeMissingError, UsageError
from gnomon.training.data import huggingface
from gnomon.training.data.streamed import Origin, Streamed, open_streamed

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install '.[space]'")


@pytest.fixture
def package() -> Any:
    """The package, as gnomon loads it."""
    if importlib.util.find_spec("datasets") is None:  # importing it here would let it go online
        pytest.skip("the package datasets is not installed: pip install datasets")
    return huggingface._package()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever looks for an address fails the test."""

    def refused(*given: Any, **named: Any) -> Any:
        raise AssertionError(f"the network was asked for {given}")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)


def pictures(count: int, mode: str = "RGB") -> list[Any]:
    rng, end = np.random.default_rng(0), (3,) if mode == "RGB" else ()
    return [image.fromarray(rng.integers(0, 256, (20 + k, 30, *end), dtype=np.uint8)) for k in range(count)]


def rows(package: Any, count: int, mode: str = "RGB", **more: Any) -> Any:
    """A data set of pictures of any size in two classes."""
    features = {
        "picture": package.Image(),
        "kind": package.ClassLabel(names=["ant", "bee"]),
        "id": package.Value("int64"),
    }
    features |= {name: feature for name, (feature, _) in more.items()}
    held = {"picture": pictures(count, mode), "kind": [k % 2 for k in range(count)], "id": list(range(count))}
    held |= {name: values for name, (_, values) in more.items()}
    return package.Dataset.from_dict(held, features=package.Features(features))


def opened(place: Path | str, **more: Any) -> Streamed:
    origin = Origin(kind="huggingface", place=str(place), **{"resize": 8, **more})
    return open_streamed(f"huggingface:{place}", origin, classes=2, shares=(0.2, 0.2), seed=0)


def test_what_was_saved_is_read(package: Any, tmp_path: Path, offline: None) -> None:
    package.DatasetDict(train=rows(package, 20), test=rows(package, 6), more=rows(package, 3)).save_to_disk(
        tmp_path / "d"
    )
    data = opened(tmp_path / "d")
    assert data.shape == (3, 8, 8) and [data.count(part) for part in ("train", "validation", "test")] == [16, 4, 6]
    assert data.labels["test"].tolist() == [0, 1] * 3 and data.open() is data
    assert opened(tmp_path / "d").digest == data.digest
    theirs = np.asarray(pictures(6)[5].resize((8, 8), image.Resampling.BILINEAR, box=(2.5, 0, 27.5, 25)))
    np.testing.assert_array_equal(data.some("test", np.array([5]))[0], theirs.transpose(2, 0, 1))


def test_one_data_set_is_split_and_grey_pictures_stay_grey(package: Any, tmp_path: Path, offline: None) -> None:
    rows(package, 20, "L").save_to_disk(tmp_path / "d")
    data = opened(tmp_path / "d")
    assert data.shape == (1, 8, 8) and [data.count(part) for part in ("train", "validation", "test")] == [12, 4, 4]


def test_columns_are_found_by_their_kind_or_named(package: Any, tmp_path: Path) -> None:
    more = (package.ClassLabel(names=["x", "y"]), [1] * 20)
    rows(package, 20, other=more).save_to_disk(tmp_path / "d")
    with pytest.raises(
        ProblemError, match=r"there are 2 columns of classes in .* \(picture, kind, id, other\)"
    ) as refused:
        opened(tmp_path / "d")
    assert "gnomon_cfg.label_column" in refused.value.hint
    assert set(opened(tmp_path / "d", label_column="other").labels["train"]) == {1}
    for named, told in (
        ({"label_column": "none"}, "has no column 'none'"),
        ({"label_column": "kind", "image_column": "id"}, "the column id of .* holds no pictures"),
        ({"label_column": "picture"}, "are not whole numbers"),
        ({"label_column": "id"}, "has 20 classes"),
    ):
        with pytest.raises(ProblemError, match=told):
            opened(tmp_path / "d", **named)


def test_a_picture_that_is_an_address_is_not_fetched(package: Any, tmp_path: Path, offline: None) -> None:
    features = package.Features({"picture": package.Image(), "kind": package.ClassLabel(names=["ant", "bee"])})
    held = {"picture": [{"bytes": None, "path": "http://127.0.0.1/x.png"}] * 4, "kind": [0, 1, 0, 1]}
    made = package.Dataset.from_dict(
        held, features=package.Features({**features, "picture": package.Image(decode=False)})
    )
    table = made.cast(features)  # saving would fetch them
    assert table.features["picture"].decode
    with pytest.raises(ProblemError, match="row 0: a picture that is not here"):
        huggingface._pictures(package, table, "picture", "kind")[0]


def test_a_cached_data_set_is_loaded_by_name_and_another_is_not_fetched(
    package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    """The cache is what the package itself makes of a folder, put where it looks for one that it fetched."""
    for name in ("ant", "bee"):
        (tmp_path / "here" / name).mkdir(parents=True)
        for k, one in enumerate(pictures(6)):
            one.save(tmp_path / "here" / name / f"{k}.png")
    cache = tmp_path / "cache"
    monkeypatch.setattr(package.config, "HF_DATASETS_CACHE", cache)
    package.load_dataset("imagefolder", data_dir=str(tmp_path / "here"), cache_dir=str(cache))
    (made,) = (path for path in (cache / "imagefolder").iterdir() if path.is_dir())
    (where,) = made.rglob("dataset_info.json")
    shutil.copytree(where.parent, cache / "somebody___insects" / "default" / "0.0.0" / ("a" * 40))
    for arrow in (cache / "somebody___insects").rglob("imagefolder-*"):
        arrow.rename(arrow.with_name(arrow.name.replace("imagefolder-", "insects-")))
    data = opened("somebody/insects")
    assert data.shape == (3, 8, 8) and data.classes == 2
    with pytest.raises(UsageError, match="huggingface:nobody/nothing cannot be read here") as refused:
        opened("nobody/nothing")
    assert "Nothing is fetched" in refused.value.hint


def test_a_folder_of_another_kind_and_broken_ones_are_refused(package: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder that save_to_disk"):
        opened(tmp_path)
    rows(package, 4).save_to_disk(tmp_path / "d")
    (tmp_path / "d" / "state.json").write_text("{")
    with pytest.raises(GnomonError, match="cannot be read here"):
        opened(tmp_path / "d")
    package.DatasetDict(test=rows(package, 4)).save_to_disk(tmp_path / "parts")
    with pytest.raises(ProblemError, match="has the parts test, and none called train"):
        opened(tmp_path / "parts")


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RuntimeMissingError, match="the package datasets cannot be loaded") as refused:
        opened("somebody/insects")
    assert "-m pip install 'datasets>=4'" in refused.value.hint


def test_a_package_that_may_go_online_is_refused(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(UsageError, match="was imported before, and not offline"):
        opened("somebody/insects")

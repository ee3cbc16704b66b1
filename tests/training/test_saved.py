"""Files of PyTorch: plain values, tensors and numpy's numbers are read, nothing of a file is run."""

from __future__ import annotations

import pickle
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.training import saved
from gnomon.training.saved import load_saved, numbers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def save(value: Any, path: Path, *, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([1.5, 2], (1.5, 2)),
        (3.5, (3.5,)),
        (torch.tensor([1.5, 2.0]), (1.5, 2.0)),
        ([torch.tensor(1.5), torch.tensor([2])], (1.5, 2)),
        ([np.float64(1.5), np.float32(2.5), np.int64(-3), np.uint8(4), np.float16(0.5)], (1.5, 2.5, -3, 4, 0.5)),
        (np.array([1, 2], ">i4"), (1, 2)),
        (np.array(7), (7,)),
        ([np.array([7])], (7,)),
        ([], ()),
        ([1, "a"], None),
        ([True], None),
        ([[1]], None),
        ([1 << 80], None),
        (torch.ones(2, 2), None),
        (torch.ones(2, device="meta"), None),
        (np.ones((2, 2)), ()),
        (torch.ones(1).expand(1 << 40), None),
        (np.arange(9), None),
    ],
)
def test_numbers_are_read(tmp_path: Path, value: Any, found: Any, zipped: bool) -> None:
    assert numbers(load_saved(save(value, tmp_path / "x.pt", zipped=zipped), hint="none"), 8) == found


def test_nested_values_come_back(tmp_path: Path) -> None:
    value = {"arch": [OrderedDict(r=[np.int64(224)], d=[2, 3])], "names": ("a", None, True)}
    assert load_saved(save(value, tmp_path / "x.pt"), hint="none") == {
        "arch": [{"r": [224], "d": [2, 3]}],
        "names": ("a", None, True),
    }


def test_numbers_of_numpy_before_its_second_version_are_read(tmp_path: Path) -> None:
    path = save([np.float64(1.5), np.array([2.5])], tmp_path / "x.pt", zipped=False)
    data = path.read_bytes()
    assert b"numpy._core.multiarray" in data
    path.write_bytes(data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert numbers(load_saved(path, hint="none"), 8) == (1.5, 2.5)


class Runs:
    """What runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("run",)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Runs(), "Unsupported global: GLOBAL print"),
        (np.array(["a"]), "numpy's type 'U1'"),
        (np.array([1, "a"], dtype=object), "numpy's type 'O8'"),
        (np.datetime64("2020-01-01"), "numpy's type 'M8'"),
    ],
)
def test_anything_else_is_refused_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Any, told: str, zipped: bool
) -> None:
    with pytest.raises(ProblemError) as refused:
        load_saved(save(value, tmp_path / "x.pt", zipped=zipped), hint="Give another.")
    assert told in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.hint == "Give another."
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("data", [b"", b"text", b"PK\3\4", pickle.dumps({"a": 1}), pickle.dumps([1.0], 2)])
def test_what_pytorch_did_not_write_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(ProblemError, match="cannot be read as a PyTorch file"):
        load_saved(tmp_path / "x.pt", hint="none")


def test_an_array_that_says_it_is_longer_than_it_is(tmp_path: Path) -> None:
    path = save(np.arange(3, dtype=np.int8), tmp_path / "x.pt", zipped=False)
    data = path.read_bytes()
    assert data.count(b"K\x03\x85") == 1
    path.write_bytes(data.replace(b"K\x03\x85", b"K\xff\x85"))
    with pytest.raises(ProblemError, match="whose length fits"):
        load_saved(path, hint="none")


def test_no_more_is_read_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MOST_BYTES", 1 << 20)
    (tmp_path / "x.pt").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(UsageError, match="more than the limit of 1048576"):
        load_saved(tmp_path / "x.pt", hint="none")
    with zipfile.ZipFile(tmp_path / "y.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(1 << 21))
    assert (tmp_path / "y.pt").stat().st_size < 1 << 14
    with pytest.raises(ProblemError, match="more than 1 MiB, the limit"):
        load_saved(tmp_path / "y.pt", hint="none")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_saved(tmp_path / "none.pt", hint="none")


def test_without_pytorch_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save([1.0], tmp_path / "x.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeMissingError, match="reading a PyTorch file needs the package torch") as refused:
        load_saved(path, hint="none")
    assert "pip install" in refused.value.hint

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.toolchains.base import chosen_toolchain, toolchain_names

BUILT_IN = ("onnxruntime", "onnxruntime-int8", "openvino", "openvino-int8", "quark-xint8")


def test_the_built_in_ones_are_there() -> None:
    assert set(BUILT_IN) <= set(toolchain_names())
    for name in BUILT_IN:
        assert chosen_toolchain(name).name == name


def test_settings_go_through() -> None:
    with pytest.raises(UsageError, match="no setting 'nonsense'"):
        chosen_toolchain("onnxruntime-int8", {"nonsense": 1})


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        chosen_toolchain("tensorrt")
    assert "'tensorrt'" in caught.value.message and "openvino-int8" in caught.value.hint


def install(folder: Path, *entries: str) -> str:
    """Another's package with these toolchains in a folder."""
    info = folder / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[gnomon.toolchains]", *entries, ""]))
    return str(folder)


def test_a_third_partys_comes_by_the_same_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = ["mine = gnomon.toolchains.children:openvino", "gone = nowhere_at_all:make", "odd = builtins:dict"]
    monkeypatch.syspath_prepend(install(tmp_path, *entries))
    assert {"mine", "gone", "odd"} <= set(toolchain_names())
    assert chosen_toolchain("mine").runtime == "openvino"
    with pytest.raises(UsageError, match="nowhere_at_all"):
        chosen_toolchain("gone")
    with pytest.raises(UsageError, match="does not create a toolchain"):
        chosen_toolchain("odd")


@pytest.mark.parametrize("last", [True, False])
def test_no_third_party_takes_the_place_of_one_of_gnomons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    theirs = install(tmp_path, "onnxruntime-int8 = builtins:dict")
    monkeypatch.setattr(sys, "path", [*sys.path, theirs] if last else [theirs, *sys.path])
    assert chosen_toolchain("onnxruntime-int8").name == "onnxruntime-int8"


def test_a_third_partys_own_error_comes_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, "theirs = their_toolchain:make"))
    raising = "from gnomon.errors import RuntimeMissingError\nraise RuntimeMissingError('no chip here', hint='Get it.')"
    (tmp_path / "their_toolchain.py").write_text(raising)
    with pytest.raises(RuntimeMissingError, match=r"(?m)^no chip here$"):
        chosen_toolchain("theirs")

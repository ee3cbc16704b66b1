from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.toolchains.base import chosen_toolchain, toolchain_names

BUILT_IN = ("onnxruntime", "onnxruntime-int8", "openvino", "openvino-int8", "quark-xint8", "vitis")


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


def test_a_third_partys_comes_by_the_same_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    entries = ["mine = gnomon.toolchains.children:openvino", "gone = nowhere_at_all:make", "odd = builtins:dict"]
    (info / "entry_points.txt").write_text("\n".join(["[gnomon.toolchains]", *entries, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"mine", "gone", "odd"} <= set(toolchain_names())
    assert chosen_toolchain("mine").runtime == "openvino"
    with pytest.raises(UsageError, match="nowhere_at_all"):
        chosen_toolchain("gone")
    with pytest.raises(UsageError, match="makes no toolchain"):
        chosen_toolchain("odd")

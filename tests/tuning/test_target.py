"""Targets as users write them, and the linkers that go with them."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.tuning import target
from gnomon.tuning.target import NATIVE, read_linker, read_target, with_cores

HERE = {"mcpu": "znver4", "mtriple": "x86_64-linux-gnu", "threads": 8}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path of programs; none are in it, and no NDK is set."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("TVM_NDK_CC", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(target, "_host", lambda: "x86_64")
    return folder


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (NATIVE, {"kind": "llvm", "mcpu": "znver4"}),
        ("generic", {"kind": "llvm"}),
        ("x86-64-v3", {"kind": "llvm", "mcpu": "x86-64-v3"}),
        ("aarch64", {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}),
        ("aarch64-cortex-a72", {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}),
        ("aarch64-android", {"kind": "llvm", "mtriple": "aarch64-linux-android"}),
        ("aarch64-android-cortex-x1", {"kind": "llvm", "mtriple": "aarch64-linux-android", "mcpu": "cortex-x1"}),
        (
            "armv7-cortex-a7",
            {"kind": "llvm", "mtriple": "armv7l-linux-gnueabihf", "mattr": ["+neon"], "mcpu": "cortex-a7"},
        ),
        (' {"kind": "llvm", "num-cores": 2}', {"kind": "llvm", "num-cores": 2}),
        ("llvm", {"kind": "llvm"}),
        (
            "llvm -keys=arm_cpu,cpu -device=arm_cpu  -target=arm64-linux-android -mattr=+neon,+fp16 -link-params=0",
            {
                "kind": "llvm",
                "keys": ["arm_cpu", "cpu"],
                "device": "arm_cpu",
                "mtriple": "arm64-linux-android",
                "mattr": ["+neon", "+fp16"],
            },
        ),
        (
            "llvm -model=snapdragon835 -mtriple=arm-linux-android -mattr=+neon",
            {"kind": "llvm", "model": "snapdragon835", "mtriple": "arm-linux-android", "mattr": ["+neon"]},
        ),
    ],
)
@pytest.mark.usefixtures("tools")
def test_every_form_of_a_target(text: str, made: dict[str, object]) -> None:
    assert read_target(text, here=HERE) == made


def test_on_another_host_a_processor_of_x86_has_a_triple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_host", lambda: "aarch64")
    assert read_target("x86-64-v3", here=HERE)["mtriple"] == "x86_64-linux-gnu"


@pytest.mark.parametrize(
    "text",
    ["", "x86-64-v9", "nvidia/nvidia-a100", "aarch64-", "aarch64- a", "aarch64-../x", "armv7-" + "a" * 80, "native "],
)
def test_what_means_no_target_is_told_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_target(text, here=HERE)
    assert "x86-64-v3" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("llvm -nonsense", "do not accept -nonsense in a target"),
        ("llvm -num-cores=many", "not accept -num-cores=many"),
        ("llvm -mcpu=", "not accept -mcpu="),
        ("rocm -mcpu=gfx906", "kind 'rocm'"),
        ("cuda", "gnomon tunes only for processors \\(kind llvm\\), not for targets of the kind 'cuda'"),
        ("llvm --", "not accept --?"),
    ],
)
def test_what_todays_tvm_has_not_in_targets_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        read_target(text, here=HERE)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("{}", "with a kind"),
        ('{"kind": 3}', "with a kind"),
        ('{"kind": "vulkan"}', "processors"),
        ('{"kind": "llvm", "kind": "llvm"}', "twice"),
        ('{"kind": "llvm", "num-cores": NaN}', "NaN"),
        ('{"kind":' + "[" * 50_000, "nested too deeply"),
        ('{"kind": "llvm", "mcpu": "' + "x" * 100_000 + '"}', "at most 100000"),
    ],
)
def test_a_malformed_object_is_told(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        read_target(text, here=HERE)
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UsageError, match=f"{told}|more than the limit of 100000"):
        read_target(f"@{tmp_path / 't.json'}", here=HERE)


def test_a_file_of_a_target(tmp_path: Path) -> None:
    made = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(made), encoding="utf-8-sig")
    assert read_target(f"@{path}", here=HERE) == made


def test_what_is_no_file_of_a_target_is_neither_waited_for_nor_read_whole(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b'{"kind": "\xff"}')
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("pipe", "gone", "", "a\0b", "n" * 5000, "latin", "huge"):
        with pytest.raises(UsageError) as refused:
            read_target(f"@{tmp_path / name if name else ''}", here=HERE)
        assert refused.value.hint
    with pytest.raises(UsageError, match="not a regular file"):
        read_target("@/dev/zero", here=HERE)


def test_cores_are_added_unless_the_target_says_them() -> None:
    assert with_cores({"kind": "llvm"}, 4) == {"kind": "llvm", "num-cores": 4}
    assert with_cores({"kind": "llvm", "num-cores": 2}, 4)["num-cores"] == 2


# Linkers


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("triple", [None, "x86_64-linux-gnu", "x86_64-conda-linux-gnu"])
def test_what_is_for_this_machine_needs_no_linker_of_its_own(triple: str | None) -> None:
    assert read_linker({"kind": "llvm"} | ({"mtriple": triple} if triple else {}), None) == ""


@pytest.mark.parametrize("triple", ["x86_64-linux-android", "x86_64-w64-windows-gnu", "x86_64-apple-darwin"])
@pytest.mark.usefixtures("tools")
def test_another_system_on_the_same_processor_does(triple: str) -> None:
    with pytest.raises(RuntimeMissingError):
        read_linker({"mtriple": triple}, None)


def test_a_cross_compiler_is_found_by_the_triple(tools: Path) -> None:
    program(tools / "aarch64-linux-gnu-gcc")
    assert read_linker({"mtriple": "aarch64-linux-gnu"}, None) == "aarch64-linux-gnu-gcc"
    program(tools / "aarch64-linux-gnu-g++")
    assert read_linker({"mtriple": "aarch64-linux-gnu"}, None) == "aarch64-linux-gnu-g++"
    program(tools / "arm-linux-gnueabihf-g++")
    assert read_linker({"mtriple": "armv7l-linux-gnueabihf"}, None) == "arm-linux-gnueabihf-g++"
    program(tools / "clang++")
    with pytest.raises(RuntimeMissingError):
        read_linker({"mtriple": "riscv64-linux-gnu"}, None)
    program(tools / "ld.lld")
    assert read_linker({"mtriple": "riscv64-linux-gnu"}, None) == "clang++ --target=riscv64-linux-gnu -fuse-ld=lld"


@pytest.mark.usefixtures("tools")
def test_where_nothing_links_the_package_is_named() -> None:
    for triple, package in [
        ("aarch64-linux-gnu", "g++-aarch64-linux-gnu"),
        ("armv7l-linux-gnueabihf", "g++-arm-linux-gnueabihf"),
        ("riscv64-linux-gnu", "g++-riscv64-linux-gnu"),
    ]:
        with pytest.raises(RuntimeMissingError, match=triple) as missing:
            read_linker({"mtriple": triple}, None)
        assert f"apt install {package}" in (missing.value.hint or "")


def test_an_ndk_is_found_by_its_variables(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    android = {"mtriple": "aarch64-linux-android"}
    with pytest.raises(RuntimeMissingError) as missing:
        read_linker(android, None)
    assert "ANDROID_NDK_HOME" in (missing.value.hint or "")
    home = tmp_path / "my ndk"
    own = program(home / "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android24-clang++")
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(home))
    # The child takes a linker apart as a shell would: a blank in a path stays in it.
    assert shlex.split(read_linker(android, None)) == [str(own)]
    monkeypatch.setenv("TVM_NDK_CC", str(own))
    assert shlex.split(read_linker(android, None)) == [str(own)]
    monkeypatch.setenv("TVM_NDK_CC", str(tmp_path / "gone"))
    with pytest.raises(RuntimeMissingError, match="TVM_NDK_CC"):
        read_linker(android, None)


def test_a_linker_that_is_given(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tools / "mygcc")
    other = {"mtriple": "aarch64-linux-gnu"}
    assert read_linker(other, "") == ""
    assert read_linker(other, "mygcc -O2 '-Wl,-s'") == "mygcc -O2 '-Wl,-s'"
    own = program(tmp_path / "my tools" / "cc")
    monkeypatch.chdir(tmp_path)
    # The child works elsewhere: a path from here is told from the root.
    assert shlex.split(read_linker(other, "'my tools/cc' -g")) == [str(own), "-g"]


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("text", ["gone", " ", "'open", 'mygcc "', "a\0b", "./gone -x", "-O2", "''"])
def test_a_linker_that_is_not_there_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="no linker") as refused:
        read_linker({"kind": "llvm"}, text)
    assert "compiler" in (refused.value.hint or "")


@given(st.text(max_size=30))
def test_any_text_is_a_linker_or_an_error(text: str) -> None:
    try:
        found = read_linker({"kind": "llvm"}, text)
    except UsageError:
        return
    assert not text or shlex.split(found)

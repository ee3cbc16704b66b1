"""Scripts for a device's shell, run by one here: many small files as one archive, and a command without a note."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.devices.pushed import Part, manifest_of
from gnomon.devices.shell.device import bundled, packed, unpack_script
from gnomon.devices.shell.scripts import run_script
from gnomon.errors import DeviceError

CONTENT = st.dictionaries(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
        lambda name: name not in (".", "..") and len(name.encode()) < 200
    ),
    st.binary(max_size=2000),
    max_size=8,
)


def tree(folder: Path, files: dict[str, bytes]) -> tuple[Part, ...]:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return manifest_of(folder).parts


def unpacked(parts: list[Part], folder: Path, *, path: str | None = None) -> int:
    """Unpack the files' archive in a folder that has their folders; the status."""
    for part in parts:
        (folder / "there" / part.path).parent.mkdir(parents=True, exist_ok=True)
    packed(parts, folder / "archive")
    script = unpack_script(str(folder / "archive"), str(folder / "there"))
    done = subprocess.run(["/bin/sh", "-c", script], env={"PATH": path or os.environ["PATH"]}, check=False)
    assert not (folder / "archive").exists()
    return done.returncode


def found(folder: Path) -> dict[str, bytes]:
    return {str(at.relative_to(folder)): at.read_bytes() for at in folder.rglob("*") if at.is_file()}


@given(CONTENT)
def test_what_was_packed_is_unpacked(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    parts = tree(folder / "here", {f"deep/{'x' * 120}/{name}": content for name, content in files.items()} | {"a": b""})
    bundles = bundled(parts)
    assert len(bundles) == (sum(name.isprintable() and "\\" not in name for name in files) >= 3)
    for bundle in bundles:
        assert unpacked(bundle, folder) == 0
        assert found(folder / "there") == {part.path: part.source.read_bytes() for part in bundle}
    shutil.rmtree(folder)


def test_what_is_large_a_program_or_alone(tmp_path: Path) -> None:
    files = {str(number): b"x" for number in range(4)} | {"large": b"x" * (1 << 20)}
    tree(tmp_path / "here", files)
    (tmp_path / "here" / "0").chmod(0o755)
    (bundle,) = bundled(manifest_of(tmp_path / "here").parts)
    assert [part.path for part in bundle] == ["0", "1", "2", "3"]
    assert unpacked(bundle, tmp_path) == 0
    assert [(tmp_path / "there" / str(number)).stat().st_mode & 0o777 for number in (0, 1)] == [0o500, 0o400]
    assert bundled(manifest_of(tmp_path / "here" / "large").parts) == []
    assert bundled(tree(tmp_path / "few", {"a": b"", "b": b"", "c": b""})) == []


def test_no_bundle_is_larger_than_64_mib(tmp_path: Path) -> None:
    parts = tree(tmp_path, {f"{number:03}": bytes(1_000_000) for number in range(80)})
    assert [len(bundle) for bundle in bundled(parts)] == [67, 13]


def test_what_cannot_be_unpacked_leaves_no_file(tmp_path: Path) -> None:
    (parts,) = bundled(tree(tmp_path / "here", {str(number): b"x" for number in range(9)}))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("rm", "find", "sync", "sha256sum"):
        (tools / name).symlink_to(shutil.which(name) or name)
    assert unpacked(parts, tmp_path, path=str(tools)) != 0
    (tools / "tar").write_text(f'#!/bin/sh\n{shutil.which("tar")} "$@" && echo y >3\n')  # one that damages a file
    (tools / "tar").chmod(0o755)
    assert unpacked(parts, tmp_path, path=str(tools)) != 0
    assert found(tmp_path / "there") == {}


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    parts = tree(tmp_path / "here", {str(number): b"x" for number in range(9)})
    (tmp_path / "here" / "5").write_bytes(b"y")
    with pytest.raises(DeviceError, match="5 changed while it was being sent"):
        packed(bundled(parts)[0], tmp_path / "archive")


@pytest.mark.parametrize(
    ("argv", "folder", "status"),
    [
        (["sh", "-c", "sleep 600 & wait"], "ended", b"137"),  # the guard cleaned up meanwhile, and would not find it
        (["true"], "work", b"0"),  # the disk is full: the note cannot be written, but the guard is there
    ],
)
def test_a_command_without_a_note_is_killed_only_where_the_guard_has_gone(
    tmp_path: Path, argv: list[str], folder: str, status: bytes
) -> None:
    (tmp_path / "work").mkdir()
    note = tmp_path / folder / "1" if folder == "ended" else tmp_path / folder
    script = run_script(argv=argv, env={}, work=str(tmp_path / "work"), note=str(note), token="t")  # noqa: S106
    done = subprocess.run(
        ["setsid", "sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout.endswith(b"\x1et>" + status + b"\x1e")

"""Disks that are full: the record's and the package's."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bad_days.livekit import recorded

from gnomon.errors import GnomonError, PackageError, RecordError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest

Zoo = Callable[[str], Path]
Disk = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mounts file systems of a given size; the test skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"a small file system can be mounted by root only: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    if os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int) -> Path:
    """Fill the disk but for so many bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        file.truncate(max(0, file.tell() - leave_bytes))
    return filler


def test_a_full_disk_under_the_record(disk: Disk, zoo_model: Zoo, small: Effort) -> None:
    folder = disk("4m")
    request = ModelRequest(model=zoo_model("mix.circle"), effort=small, record=folder / "record.sqlite")
    fillers: list[Path] = []

    def fill_once_measured(progress: object) -> None:
        if not fillers and getattr(progress, "done", 0) >= 2:
            fillers.append(fill(folder, 0))

    with pytest.raises(RecordError) as refused:
        profile(request, watch=fill_once_measured)
    assert "full" in refused.value.message.lower()
    assert "Free space" in refused.value.hint
    fillers[0].unlink()
    before = recorded(folder / "record.sqlite")
    assert len(before) >= 2  # what was recorded is there
    found = profile(request)
    assert found.resumed
    after = recorded(folder / "record.sqlite")
    assert before.keys() <= after.keys()
    assert set(after.values()) == {1}


def test_a_full_disk_before_anything(disk: Disk, zoo_model: Zoo, small: Effort) -> None:
    folder = disk("64k")
    fill(folder, 0)
    with pytest.raises(GnomonError) as refused:
        profile(ModelRequest(model=zoo_model("mix.circle"), effort=small, record=folder / "new" / "record.sqlite"))
    assert refused.value.hint


def test_a_full_disk_under_the_package(disk: Disk, zoo_model: Zoo, small: Effort, tmp_path: Path) -> None:
    folder = disk("64k")  # the model and the launcher do not fit
    fill(folder, 24 << 10)
    with pytest.raises(PackageError) as refused:
        place(ModelRequest(model=zoo_model("mix.circle"), effort=small, record=tmp_path / "r.sqlite"), folder / "out")
    assert refused.value.hint
    assert sorted(p.name for p in folder.iterdir()) == ["filler"]  # nothing half written stays
    found = place(
        ModelRequest(model=zoo_model("mix.circle"), effort=small, record=tmp_path / "r.sqlite"), tmp_path / "out"
    )
    assert found.resumed  # what was measured is used again
    assert found.verified.ok

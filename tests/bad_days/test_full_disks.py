"""Disks that are full: the record's and the package's."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.bad_days.conftest import Disk
from tests.bad_days.livekit import campaigns_after, model_in, recorded

from gnomon.errors import GnomonError, PackageError, RecordError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest

Zoo = Callable[[str], Path]


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


def test_a_full_disk_under_the_record(disk: Disk, small: Effort, tmp_path: Path) -> None:
    folder = disk("size=4m")
    record, model = folder / "record.sqlite", model_in(tmp_path)
    request = ModelRequest(model=model, effort=small, record=record, runtimes=("onnxruntime",))
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
    assert profile(request).resumed
    campaigns_after(folder / "record.sqlite", before)


def test_a_full_disk_before_anything(disk: Disk, zoo_model: Zoo, small: Effort) -> None:
    folder = disk("size=64k")
    fill(folder, 0)
    with pytest.raises(GnomonError) as refused:
        profile(ModelRequest(model=zoo_model("mix.circle"), effort=small, record=folder / "new" / "record.sqlite"))
    assert refused.value.hint


def test_a_full_disk_under_the_package(disk: Disk, small: Effort, tmp_path: Path) -> None:
    folder = disk("size=64k")  # the launcher does not fit
    fill(folder, 24 << 10)
    request = ModelRequest(model=model_in(tmp_path), effort=small, runtimes=("onnxruntime",))
    with pytest.raises(PackageError) as refused:
        place(request, folder / "out")
    assert refused.value.hint
    assert sorted(p.name for p in folder.iterdir()) == ["filler"]  # nothing half written stays
    found = place(request, tmp_path / "out")
    assert found.resumed  # what was measured is used again
    assert found.verified.ok

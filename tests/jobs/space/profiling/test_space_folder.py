"""The profile folder: damaged, hostile, of another question, on a full disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import made, study, synthetic, timed, trained

from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.jobs.space.profiling.folder import (
    ACCURACY,
    INPUT,
    LATENCY,
    MANIFEST,
    ProfileFolder,
    check_question,
    file_stem,
    read_accuracy,
    read_latency,
    read_question,
)
from gnomon.jobs.space.profiling.look import look
from gnomon.jobs.space.profiling.study import Study

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.fixture(scope="module")
def one() -> Study:
    return study(CONFIG.replace("VGGblock_2, Mobileblock_0, Mobileblock_1", "VGGblock_2"))


@pytest.fixture(scope="module")
def profile(one: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder") / "p"
    synthetic(path, one, lambda n: 0.5 + 0.1 * sum(n.assignment), lambda n: 1e-3 * (1 + sum(n.assignment)))
    return path


@pytest.fixture
def copy(profile: Path, tmp_path: Path) -> Path:
    for path in (profile / name for name in (MANIFEST, INPUT, ACCURACY, LATENCY)):
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "p" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "p"


def test_rows_come_back_as_they_were(one: Study, tmp_path: Path) -> None:
    network = one.families["VGG"].swaps()[1]
    rows = [
        trained(network, 0.75, curve=(0.5, 0.75), test=0.7, samples=9, macs=3, seconds=1.5, notes=("slow",)),
        trained(network, None, seed=1, reason="crash: it ended"),
    ]
    latency = timed(network, 1e-3, correct=0.5, quantised=1.0, artifact="models/x.onnx")
    folder = made(tmp_path / "p", one)
    folder.add(*rows, latency)
    with pytest.raises(UsageError, match="another gnomon"):
        made(tmp_path / "p", one)
    folder.close()
    assert list(read_accuracy(tmp_path / "p")) == rows
    assert list(read_latency(tmp_path / "p")) == [latency]
    again = made(tmp_path / "p", one)
    assert again.accuracy == {row.key: row for row in rows}
    assert again.id == folder.id
    again.close()


def test_all_that_differs_is_told(one: Study, tmp_path: Path) -> None:
    made(tmp_path / "p", one).close()
    question = read_question(tmp_path / "p")
    other = json.loads(json.dumps(question))
    other["data"]["digest"] = "1" * 64
    other["families"]["VGG"]["VGGblock_1"] = "of another block"
    other["input_shape"] = [1, 1, 16, 16]
    other["mood"] = "good"
    del other["numbering"]
    with pytest.raises(UsageError, match="made with other settings") as told:
        check_question(tmp_path / "p", other)
    for part in ("data.digest", "families.VGG.VGGblock_1", "of another block", "input_shape", "mood", "numbering"):
        assert part in told.value.message
    assert "data.name" not in told.value.message
    assert "Nothing in it was changed" in told.value.hint
    check_question(tmp_path / "p", question)


@pytest.mark.parametrize("found", ["a file", "a thesis", "a folder"])
def test_what_is_no_profile_is_left_alone(found: str, one: Study, tmp_path: Path) -> None:
    path = tmp_path / "p"
    inner = {"a file": path, "a thesis": path / "thesis.tex", "a folder": path / "models" / "mine.onnx"}[found]
    inner.parent.mkdir(parents=True, exist_ok=True)
    inner.write_text("years of work")
    with pytest.raises(UsageError, match="not a profile"):
        made(path, one)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [inner]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "\udcff",
        '{"format": "gnomon-space-profile", "version": 2, "question": {}}',
        '{"format": "gnomon-space-profile", "version": 1}',
    ],
)
def test_a_damaged_manifest_is_told(text: str, copy: Path, one: Study) -> None:
    (copy / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    for use in (read_question, look, lambda path: made(path, one)):
        with pytest.raises(ProblemError) as told:
            use(copy)
        assert told.value.hint


def test_a_whole_wrong_question_is_told_at_once(copy: Path) -> None:
    document = json.loads((copy / MANIFEST).read_text())
    document["question"] |= {"input_shape": [1, 2], "families": {}, "blocks": ["../evil.py"], "data": None}
    (copy / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(ProblemError) as told:
        look(copy)
    assert all(part in told.value.message for part in ("input_shape", "families", "blocks", "data"))


def test_a_config_that_was_changed_meanwhile_is_refused(copy: Path) -> None:
    (copy / INPUT).write_text((copy / INPUT).read_text().replace("C_out: 8", "C_out: 16"))
    with pytest.raises(UsageError, match=r"input\.yaml changed"):
        look(copy)
    (copy / INPUT).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        look(copy)


@pytest.mark.parametrize(
    ("journal", "changes", "told"),
    [
        (ACCURACY, {"validation": 1.5}, "validation"),
        (ACCURACY, {"primitives": ["VGGblock_0", "VGGblock_0"]}, "its config lacks"),
        (ACCURACY, {"network": "../../etc"}, "network"),
        (LATENCY, {"call_s": 0}, "call_s"),
        (LATENCY, {"processes": 10**40}, "processes"),
        (LATENCY, {"spice": 1}, "spice"),
    ],
)
def test_values_that_cannot_be_meant_are_told_with_their_line(
    journal: str, changes: dict[str, Any], told: str, copy: Path
) -> None:
    lines = (copy / journal).read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | changes)
    (copy / journal).write_text("\n".join(lines))
    with pytest.raises(ProblemError) as refused:
        look(copy)
    assert told in refused.value.message
    assert "line 2" in refused.value.message or "its config lacks" in told


def test_all_that_is_wrong_with_a_line_is_told(copy: Path) -> None:
    (copy / LATENCY).write_text('{"network": 1, "primitives": [], "call_s": "x", "clock": null}\n')
    with pytest.raises(ProblemError) as refused:
        list(read_latency(copy))
    for part in ("key: missing", "toolchain: missing", "network", "primitives", "call_s", "clock"):
        assert part in refused.value.message


def test_a_journal_that_cannot_be_read_is_told(copy: Path, one: Study) -> None:
    (copy / LATENCY).unlink()
    (copy / LATENCY).mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        look(copy)
    with pytest.raises(RecordError):
        made(copy, one)


def test_a_long_id_is_a_name_of_a_file_and_tells_networks_apart() -> None:
    ids = ["+".join(["Mobileblock_1"] * 30 + [f"VGGblock_{k}"]) for k in range(3)]
    stems = {file_stem(name) for name in ids}
    assert len(stems) == 3 and max(map(len, stems)) < 200
    assert file_stem("VGG_1_1") == "VGG_1_1"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    if os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root only")
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(where)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system can be mounted by root only: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def fill(folder: Path) -> Path:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return folder / "filler"


def test_a_full_disk_is_told_and_what_was_written_is_kept(disk: Path, one: Study) -> None:
    networks = one.families["VGG"].swaps()
    folder = made(disk / "p", one)
    folder.add(trained(networks[0], 0.5))
    filler = fill(disk)
    with pytest.raises(RecordError, match="cannot be written") as told:
        for seed in range(200):  # what is left of the last block is used up first
            folder.add(trained(networks[1], 0.5, seed=seed, notes=("x" * 300,)))
    assert "disk space" in told.value.hint
    kept = dict(folder.accuracy)
    with pytest.raises(RecordError):
        made(disk / "other", one)
    filler.unlink()
    folder.add(trained(networks[2], 0.75))
    folder.close()
    again = made(disk / "p", one)
    assert again.accuracy == {**kept, trained(networks[2], 0.75).key: trained(networks[2], 0.75)}
    again.close()


def test_a_manifest_alone_is_the_beginning_of_a_profile(one: Study, tmp_path: Path) -> None:
    made(tmp_path / "p", one).close()
    for name in (INPUT, ACCURACY, LATENCY):
        (tmp_path / "p" / name).unlink()
    again = made(tmp_path / "p", one)
    assert isinstance(again, ProfileFolder) and (tmp_path / "p" / INPUT).read_text() == one.text
    again.close()

"""The profile folder: damaged, hostile, of another question, on a full disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import made, study, synthetic, timed, trained

from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.jobs.space.choosing.select import SelectRequest, select_primitives
from gnomon.jobs.space.profiling.folder import (
    ACCURACY,
    INPUT,
    LATENCY,
    MANIFEST,
    ProfileFolder,
    check_question,
    file_stem,
    is_profile,
    read_accuracy,
    read_latency,
    read_question,
)
from gnomon.jobs.space.profiling.look import look
from gnomon.jobs.space.profiling.study import Study

pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed: pip install '.[space]'")

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("9" * 30)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
AGAIN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


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
        trained(network, None, seed=1, reason="crash: it ended", score={"jacov": None, "synflow": 1e9}),
    ]
    steps = ({"name": "compile", "argv": ["a", "b"], "seconds": 0.5},)
    latency = timed(network, 1e-3, steps=steps, correct=0.5, quantised=1.0, artifact="models/x.onnx")
    folder = made(tmp_path / "p", one)
    for row in rows:
        folder.add(row)
    folder.add(latency)
    folder.close()
    assert list(read_accuracy(tmp_path / "p")) == rows
    assert list(read_latency(tmp_path / "p")) == [latency]
    again = made(tmp_path / "p", one)
    assert again.accuracy == {row.key: row for row in rows}
    assert again.id == folder.id
    again.close()


def test_two_profiles_of_one_question_are_not_the_same(one: Study, tmp_path: Path) -> None:
    ids = set()
    for name in "ab":
        folder = made(tmp_path / name, one)
        ids.add(folder.id)
        folder.close()
    assert len(ids) == 2 and all(ids)


def test_another_process_cannot_have_it_meanwhile(one: Study, tmp_path: Path) -> None:
    folder = made(tmp_path / "p", one)
    with pytest.raises(UsageError, match="another gnomon"):
        made(tmp_path / "p", one)
    folder.close()
    made(tmp_path / "p", one).close()


def test_all_that_differs_is_told(one: Study, tmp_path: Path) -> None:
    made(tmp_path / "p", one).close()
    question = read_question(tmp_path / "p")
    other = json.loads(json.dumps(question))
    other["data"]["digest"] = "1" * 64
    other["families"]["VGG"]["VGGblock_1"] = "of another block"
    other["input_shape"] = [1, 1, 16, 16]
    other["mood"] = "good"
    del other["numbering"]
    with pytest.raises(UsageError, match="another question") as told:
        check_question(tmp_path / "p", other)
    for part in ("data.digest", "families.VGG.VGGblock_1", "of another block", "input_shape", "mood", "numbering"):
        assert part in told.value.message
    assert "data.name" not in told.value.message
    assert "nothing there is deleted" in told.value.hint
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
        "nonsense",
        "[]",
        "{}",
        "{" * 9,
        "\udcff",
        '{"format": "gnomon-space-profile", "version": 2, "question": {}}',
        '{"format": "gnomon-space-profile", "version": 1}',
        '{"format": 1, "format": 2}',
    ],
)
def test_a_damaged_manifest_is_told(text: str, copy: Path, one: Study) -> None:
    (copy / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    for use in (read_question, look, lambda path: made(path, one)):
        with pytest.raises(ProblemError) as told:
            use(copy)
        assert told.value.hint


@AGAIN
@given(data=st.data())
def test_a_hostile_manifest_is_told(
    data: st.DataObject, profile: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("hostile")
    for name in (INPUT, ACCURACY, LATENCY):
        (path / name).write_bytes((profile / name).read_bytes())
    document = json.loads((profile / MANIFEST).read_text())
    question = document["question"]
    name = data.draw(st.sampled_from(sorted(question)))
    question[name] = data.draw(VALUES)
    (path / MANIFEST).write_text(json.dumps(document))
    try:
        look(path)
    except (ProblemError, UsageError) as told:
        assert told.message and told.hint


def test_a_whole_wrong_question_is_told_at_once(copy: Path) -> None:
    document = json.loads((copy / MANIFEST).read_text())
    document["question"] |= {"input_shape": [1, 2], "families": {}, "blocks": ["../evil.py"], "data": None}
    (copy / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(ProblemError) as told:
        look(copy)
    assert all(part in told.value.message for part in ("input_shape", "families", "blocks", "data"))


def test_a_config_that_was_changed_meanwhile_is_refused(copy: Path) -> None:
    (copy / INPUT).write_text((copy / INPUT).read_text().replace("C_out: 8", "C_out: 16"))
    with pytest.raises(UsageError, match="not the config"):
        look(copy)
    (copy / INPUT).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        look(copy)


@AGAIN
@given(data=st.data())
def test_a_hostile_line_is_told(data: st.DataObject, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any values in any fields: refused with the line, or a profile of which all that is told can be written down."""
    path = tmp_path_factory.mktemp("hostile")
    for name in (MANIFEST, INPUT, ACCURACY, LATENCY):
        (path / name).write_bytes((profile / name).read_bytes())
    journal = path / data.draw(st.sampled_from([ACCURACY, LATENCY]))
    lines = journal.read_text().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    row = json.loads(lines[number])
    for name in data.draw(st.lists(st.sampled_from([*row, "more"]), min_size=1, max_size=2)):
        row[name] = data.draw(VALUES)
    lines[number] = json.dumps(row)
    journal.write_text("\n".join(lines) + "\n")
    try:
        json.dumps(look(path).document(), allow_nan=False)
        select_primitives(SelectRequest(profile=path, rule="published", output=path / "o.yaml"))
    except (ProblemError, UsageError) as told:
        assert told.message and told.hint


@pytest.mark.parametrize(
    ("journal", "changes", "told"),
    [
        (ACCURACY, {"validation": 1.5}, "validation"),
        (ACCURACY, {"validation": "0.5", "seed": -1, "curve": [2]}, "curve"),
        (ACCURACY, {"primitives": ["VGGblock_0"]}, "not in its config"),
        (ACCURACY, {"primitives": ["VGGblock_0", "VGGblock_99"]}, "not in its config"),
        (ACCURACY, {"primitives": ["VGGblock_0", "VGGblock_0"]}, "not in its config"),
        (ACCURACY, {"network": "../../etc"}, "network"),
        (ACCURACY, {"method": "../.."}, "method"),
        (LATENCY, {"call_s": -1e-3}, "call_s"),
        (LATENCY, {"call_s": 0}, "call_s"),
        (LATENCY, {"call_s": True}, "call_s"),
        (LATENCY, {"processes": 10**40}, "processes"),
        (LATENCY, {"primitives": [["VGGblock_0"], "VGGblock_1"]}, "primitives"),
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
    assert "line 2" in refused.value.message or "not in its config" in told


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
    assert "room" in told.value.hint
    kept = dict(folder.accuracy)
    filler.unlink()
    folder.add(trained(networks[2], 0.75))
    folder.close()
    again = made(disk / "p", one)
    assert again.accuracy == {**kept, trained(networks[2], 0.75).key: trained(networks[2], 0.75)}
    again.close()


def test_closing_on_a_full_disk_is_no_further_error(disk: Path, one: Study) -> None:
    folder = made(disk / "p", one)
    fill(disk)
    with pytest.raises(RecordError):
        for seed in range(200):
            folder.add(trained(one.families["VGG"].swaps()[0], 0.5, seed=seed, notes=("x" * 300,)))
    folder.close()


def test_a_full_disk_before_anything_is_told_and_later_the_folder_is_taken(disk: Path, one: Study) -> None:
    filler = fill(disk)
    with pytest.raises(RecordError) as told:
        made(disk / "p", one)
    assert told.value.hint
    filler.unlink()
    made(disk / "p", one).close()
    assert is_profile(disk / "p")


def test_a_writer_that_is_killed_leaves_whole_lines_and_at_most_a_part_of_one(one: Study, tmp_path: Path) -> None:
    """Killed at a random moment while it writes; what comes back is a beginning of what it wrote."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom gnomon.system.files import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\nprint('ready', flush=True)\n"
        "n = 0\nwhile True:\n    journal.append({'n': n, 'text': 'x' * 3000})\n    n += 1\n"
    )
    path = tmp_path / "journal.jsonl"
    from gnomon.core.strict_json import Strict
    from gnomon.system.files import read_journal

    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
    while path.stat().st_size < 100_000:
        pass
    writer.kill()
    writer.wait()
    writer.stdout.close()
    strict = Strict(what="journal", hint="-", most_letters=1 << 20)
    found = [document["n"] for _, document in read_journal(path, strict)]
    assert found == list(range(len(found))) and len(found) >= 30


def test_a_manifest_alone_is_the_beginning_of_a_profile(one: Study, tmp_path: Path) -> None:
    folder = made(tmp_path / "p", one)
    folder.close()
    for name in (INPUT, ACCURACY, LATENCY):
        (tmp_path / "p" / name).unlink()
    again = made(tmp_path / "p", one)
    assert isinstance(again, ProfileFolder) and (tmp_path / "p" / INPUT).read_text() == one.text
    again.close()

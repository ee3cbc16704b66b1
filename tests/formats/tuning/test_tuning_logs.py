"""Tuning records of any kind, told apart by what is in them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from gnomon.core.overlay.records import TuningRecords
from gnomon.core.overlay.trials import columns_of
from gnomon.errors import ProblemError
from gnomon.formats import json_lines
from gnomon.formats.tuning import logs
from gnomon.formats.tuning.keys import name_logs
from gnomon.formats.tuning.logs import FOLDER_FILES, read_tuning_log, replay_problem
from gnomon.formats.tuning.metaschedule import RECORDS, WORKLOADS
from gnomon.formats.tuning.records import record_lines

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"
OURS = (GOLDEN / "tuning-records.json").read_bytes()
AUTOTVM = (GOLDEN / "autotvm-log.json").read_bytes()
ANSOR = (GOLDEN / "ansor-log.json").read_bytes()
DATABASE = {file: (GOLDEN / "metaschedule" / file).read_bytes() for file in FOLDER_FILES}


def test_each_kind_is_known_by_its_content_whatever_its_name() -> None:
    found = read_tuning_log("other_one.net.int8.json", OURS)
    assert (found.device.key, found.model.name) == ("phone", "mobile")
    for content, tuner in ((AUTOTVM, "autotvm"), (ANSOR, "ansor"), (DATABASE, "metaschedule")):
        found = read_tuning_log("phone.mobile.float16.json", content)
        assert (found.tuner, found.device.key, found.model.name) == (tuner, "", "")
        assert found.trials


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "(?m)has no tuning records$"),
        (b"hello\n", "line 1: not JSON"),
        (b"\x7fELF\xff\x00", "line 1: not UTF-8"),
        (b"{}", "(?m)has no tuning records$"),
        (b"[1, 2, 3]\n", "(?m)has no tuning records$"),
        (DATABASE[WORKLOADS], "part of a database"),
        (DATABASE[RECORDS], "part of a database"),
        (gzip.compress(b"hello\n", mtime=0), "line 1: not JSON"),
        (gzip.compress(AUTOTVM, mtime=0)[:-9], "the gzip file .* is damaged"),
        (b"\x1f\x8bx", "the gzip file .* is damaged"),
        (b'{"gnomon": "other"}', "'tuning records' expected"),
        (OURS.partition(b"\n")[2], "line 1: the header"),
        ({}, f"no {WORKLOADS} and no {RECORDS}"),
        ({WORKLOADS: b""}, f"has no {RECORDS}"),
    ],
)
def test_anything_else_is_refused_with_what_is_understood(content: bytes | dict[str, bytes], told: str) -> None:
    with pytest.raises(ProblemError, match=told) as caught:
        read_tuning_log("phone.m.float32.json", content)
    assert "gnomon tune" in caught.value.hint


def test_damage_in_the_first_line_is_told_by_the_reader_of_its_kind() -> None:
    first = AUTOTVM.splitlines()[1]
    with pytest.raises(ProblemError, match="the AutoTVM log is malformed: line 2: "):
        read_tuning_log("phone.m.float32.json", b"# a comment\n{]\n" + first)
    # A header that was cut off, because it was killed, and written again.
    assert read_tuning_log("x", OURS[:30] + b"\n" + OURS).trials


@pytest.mark.parametrize("content", [OURS, AUTOTVM, ANSOR, DATABASE])
def test_logs_may_be_packed(content: bytes | dict[str, bytes]) -> None:
    """Also one behind another, as `cat` or a writer that appends leaves them."""
    if isinstance(content, bytes):
        head, tail = content[:70], content[70:]
        packed: bytes | dict[str, bytes] = gzip.compress(head) + gzip.compress(tail)
    else:
        packed = {file: gzip.compress(text) for file, text in content.items()}
    assert read_tuning_log("x", packed) == read_tuning_log("x", content)


def test_what_is_packed_is_unpacked_to_a_bound() -> None:
    with (
        patch.object(logs, "MOST_LETTERS", 1000),
        patch.object(json_lines, "MOST_LETTERS", 1000),
        pytest.raises(ProblemError, match="has 1001 characters, but at most 1000 are read"),
    ):
        read_tuning_log("x", gzip.compress(AUTOTVM.splitlines()[1] + b"\n" * 1_000_000))


@pytest.mark.parametrize("content", [AUTOTVM, ANSOR, DATABASE])
def test_a_bad_line_among_good_ones_is_left_out_and_counted(content: bytes | dict[str, bytes]) -> None:
    def read(change: Callable[[list[bytes]], list[bytes]]) -> TuningRecords:
        if isinstance(content, bytes):
            return read_tuning_log("x", b"\n".join(change(content.splitlines())))
        changed = b"\n".join(change(content[RECORDS].splitlines()))
        return read_tuning_log("x", {**content, RECORDS: changed})

    whole = read(lambda lines: lines)
    for bad in (b'{"i": [[', b"\xff{}", b"{}", b"[1, 2]", b"\0" * 40):
        found = read(lambda lines, bad=bad: [*lines[:3], bad, *lines[3:]])  # type: ignore[misc]
        assert (found, found.left_out) == (whole, 1)
    cut = read(lambda lines: [*lines[:3], lines[3][:50], *lines[3:], lines[3][:50]])
    assert (cut, cut.left_out, whole.left_out) == (whole, 2, 0)
    for many in (whole.trials, range(100)):
        with pytest.raises(ProblemError, match="not JSON"):
            read(lambda lines, many=many: [*lines, *(b"x" for _ in many)])  # type: ignore[misc]


def test_cut_lines_of_our_own_files_are_counted() -> None:
    lines = OURS.splitlines()
    found = read_tuning_log("x", b"\n".join([lines[0][:40], *lines[:3], lines[2][:60], *lines[3:], lines[2][:60]]))
    assert (found, found.left_out) == (read_tuning_log("x", OURS), 3)


@pytest.mark.parametrize("content", [OURS, AUTOTVM, ANSOR, DATABASE])
def test_each_trial_has_its_line(content: bytes | dict[str, bytes]) -> None:
    """Also where it is met again, and is taken by its text."""
    text = content if isinstance(content, bytes) else content[RECORDS]
    text = text + b"\n" + text[text.find(b'\n{"trial"') + 1 :]
    files = text if isinstance(content, bytes) else {**content, RECORDS: text}
    trials = columns_of(read_tuning_log("x", files).trials)
    lines = text.decode().split("\n")
    begins = ('{"trial"', '{"i', "[")
    assert trials.lines.tolist() == [number for number, line in enumerate(lines, 1) if line.startswith(begins)]


def test_what_can_be_replayed() -> None:
    def read(content: bytes | dict[str, bytes]) -> TuningRecords:
        return read_tuning_log("phone.m.float32.json", content)

    assert replay_problem(read(OURS)) is None
    assert replay_problem(read(DATABASE)) is None
    for content, word in ((AUTOTVM, "AutoTVM"), (ANSOR, "Ansor")):
        problem = replay_problem(read(content))
        assert problem is not None
        assert f"{word} logs can be compared but not run: today's TVM has no {word}" in problem
        assert "gnomon tune" in problem
    lacking = replace(read(OURS), layers=(replace(read(OURS).layers[0], workload=""),))
    problem = replay_problem(lacking)
    assert problem is not None and "fused_conv2d_relu" in problem


@pytest.mark.parametrize("content", [AUTOTVM, ANSOR, DATABASE])
def test_all_kinds_can_be_kept_in_our_own_file(content: bytes | dict[str, bytes]) -> None:
    path = "phone.m.float32.json" if isinstance(content, bytes) else "phone.m.float32"
    (found,) = name_logs([path], [read_tuning_log(path, content)])
    documents = record_lines(found)
    assert read_tuning_log("x", "\n".join(map(json.dumps, documents)).encode()) == found

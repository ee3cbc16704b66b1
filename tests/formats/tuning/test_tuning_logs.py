"""Tuning records of any kind, told apart by what is in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.core.overlay.records import TuningRecords
from gnomon.core.overlay.trials import columns_of
from gnomon.errors import ProblemError
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
        (b"", "has no tuning records$"),
        (b"hello\n", "line 1: not JSON"),
        (b"\x7fELF\xff\x00", "line 1: not UTF-8"),
        (b"{}", "has no tuning records$"),
        (b"[1, 2, 3]\n", "has no tuning records$"),
        (DATABASE[WORKLOADS], "half a database"),
        (DATABASE[RECORDS], "half a database"),
        (b'{"i": ["llvm", "conv2d", [], {}, null, {}], "r": [[1], 0, 1, 1], "v": 0.1}', "before 0.7"),
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
    with pytest.raises(ProblemError, match="the AutoTVM log is malformed: line 2: "):
        read_tuning_log("phone.m.float32.json", b"# a comment\n{]\n" + AUTOTVM.partition(b"\n")[2])
    # A header that was cut off, because it was killed, and written again.
    assert read_tuning_log("x", OURS[:30] + b"\n" + OURS).trials


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
        assert word in problem and "no longer has" in problem
        assert "gnomon overlay analyze" in problem and "gnomon tune" in problem
    lacking = replace(read(OURS), layers=(replace(read(OURS).layers[0], workload=""),))
    problem = replay_problem(lacking)
    assert problem is not None and "fused_conv2d_relu" in problem


@pytest.mark.parametrize("content", [AUTOTVM, ANSOR, DATABASE])
def test_all_kinds_can_be_kept_in_our_own_file(content: bytes | dict[str, bytes]) -> None:
    path = "phone.m.float32.json" if isinstance(content, bytes) else "phone.m.float32"
    (found,) = name_logs([path], [read_tuning_log(path, content)])
    documents = record_lines(found)
    assert read_tuning_log("x", "\n".join(map(json.dumps, documents)).encode()) == found

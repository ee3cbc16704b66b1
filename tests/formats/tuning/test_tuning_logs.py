"""Tuning records of any kind, told apart by what is in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import TuningRecords
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.formats.tuning.logs import FOLDER_FILES, Told, read_tuning_log, replay_problem
from gnomon.formats.tuning.metaschedule import RECORDS, WORKLOADS
from gnomon.formats.tuning.records import header_line, layer_line, trial_line

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"
OURS = (GOLDEN / "tuning-records.json").read_bytes()
AUTOTVM = (GOLDEN / "autotvm-log.json").read_bytes()
ANSOR = (GOLDEN / "ansor-log.json").read_bytes()
DATABASE = {file: (GOLDEN / "metaschedule" / file).read_bytes() for file in FOLDER_FILES}


def test_each_kind_is_known_by_its_content_whatever_its_name() -> None:
    name = "/logs/a.phone.mobile.float16.json"
    assert read_tuning_log("x", OURS).model.name == "mobile"
    for content, tuner in ((AUTOTVM, "autotvm"), (ANSOR, "ansor"), (DATABASE, "metaschedule")):
        found = read_tuning_log(name if isinstance(content, bytes) else name.removesuffix(".json"), content)
        assert (found.tuner, found.device.key) == (tuner, "a.phone")
        assert (found.model.name, found.model.dtype, found.host) == ("mobile", "float16", "a.phone")
        assert found.trials


def test_our_own_header_is_believed_and_not_the_name() -> None:
    assert read_tuning_log("other_one.net.int8.json", OURS, Told(key="third", model="x")).device.key == "phone"


def test_the_device_is_told_by_name_or_by_argument() -> None:
    known = Told(known=("my_phone", "x86"))
    found = read_tuning_log("my_phone_x86.m.float32.atvm.json", AUTOTVM, known)
    assert (found.device.key, found.found_on, found.host, found.model.name) == ("my_phone", "x86", "x86", "m")
    found = read_tuning_log("my_phone_x86.m.float32.atvm.json", AUTOTVM, Told(key="my_phone"))
    assert (found.device.key, found.found_on) == ("my_phone", "x86")
    found = read_tuning_log("my_phone_x86.m.float32.atvm.json", AUTOTVM, Told(key="new", model="net"))
    assert (found.device.key, found.found_on, found.model.name) == ("new", "", "net")
    found = read_tuning_log("some.log", ANSOR, Told(key="new"))
    assert (found.device.key, found.model.name) == ("new", "unknown")
    found = read_tuning_log("work_dir/", DATABASE, Told(key="new", model="net"))
    assert (found.device.key, found.model.name) == ("new", "net")
    for name, content in (("some.log", AUTOTVM), ("work_dir", DATABASE)):
        with pytest.raises(UsageError, match="does not say device") as caught:
            read_tuning_log(name, content)
        assert "Say of which device it is" in caught.value.hint
    with pytest.raises(UsageError, match="fits several ways"):
        read_tuning_log("a_b_c.m.float32.json", AUTOTVM, Told(known=("a", "b_c", "a_b", "c")))


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


def test_what_can_be_replayed() -> None:
    def read(content: bytes | dict[str, bytes]) -> TuningRecords:
        return read_tuning_log("phone.m.float32.json", content, Told(key="phone"))

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
    found = read_tuning_log("phone.m.float32.json", content, Told(key="phone", model="m"))
    documents = [header_line(found), *map(layer_line, found.layers), *map(trial_line, found.trials)]
    assert read_tuning_log("x", "\n".join(map(json.dumps, documents)).encode()) == found


@given(st.text(max_size=20), st.sampled_from([OURS, AUTOTVM, ANSOR, *DATABASE.values()]), st.data())
def test_anything_is_read_or_refused(name: str, content: bytes, data: st.DataObject) -> None:
    """A good file in which some bytes were lost, doubled or changed, as a file and as half of a folder."""
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(0, len(content)))
    changed = content[:start] + data.draw(st.binary(max_size=4)) + content[end:][: 1 << 16]
    folder = {**DATABASE, data.draw(st.sampled_from(FOLDER_FILES)): changed}
    told = Told(key=data.draw(st.sampled_from(["", "phone"])))
    for given_content in (changed, folder, data.draw(st.binary(max_size=40))):
        try:
            found = read_tuning_log(name, given_content, told)
        except GnomonError as error:
            assert error.hint
        else:
            assert found.device.key

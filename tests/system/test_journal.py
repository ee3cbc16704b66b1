"""The journal: whatever documents it took come back, and a kill costs at most the last one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.core.strict_json import Strict, cut_off
from gnomon.errors import ProblemError
from gnomon.system.files import Journal, read_journal

STRICT = Strict(what="profile", hint="Give another.", most_letters=1 << 24)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=5), max_size=6)


def read(path: Path) -> list[Any]:
    return [document for _, document in read_journal(path, STRICT)]


def write(path: Path, *documents: dict[str, Any]) -> None:
    journal = Journal(path)
    journal.append(*documents)
    journal.close()


@settings(max_examples=30)
@given(DOCUMENTS, DOCUMENTS)
def test_any_documents_come_back(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        write(path, *first)
        write(path, *second)
        assert read(path) == [*first, *second]
        assert [number for number, _ in read_journal(path, STRICT)] == list(range(1, len(first) + len(second) + 1))


@settings(max_examples=40)
@given(DOCUMENTS, st.dictionaries(st.text(), VALUES, max_size=5), st.data())
def test_a_kill_at_any_byte_costs_the_line_that_was_cut_off_and_no_other(
    documents: list[dict[str, Any]], after: dict[str, Any], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        write(path, *documents)
        whole = path.read_bytes()
        kept = whole[: data.draw(st.integers(0, len(whole)))]
        path.write_bytes(kept)
        # A line without its end may be whole already; one that is cut off never was.
        lines = kept.count(b"\n") + (kept.rpartition(b"\n")[2] in set(whole.split(b"\n")) - {b""})
        assert read(path) == documents[:lines]
        write(path, after)
        assert read(path) == [*documents[:lines], after]


@pytest.mark.parametrize(
    "damaged", ['{"a": 1]', "nonsense", '{"a": 1} {"b": 2}', '{"a": NaN}', '{"a": 1, "a": 2}', "}"]
)
def test_a_damaged_line_in_the_middle_is_told_with_its_number(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f'{{"n": 1}}\n{damaged}\n{{"n": 3}}\n')
    with pytest.raises(ProblemError, match="line 2") as told:
        read(path)
    assert told.value.hint


def test_blank_lines_and_no_file_are_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "absent") == []
    (tmp_path / "j").write_text('\n{"n": 1}\n  \n\n')
    assert read(tmp_path / "j") == [{"n": 1}]


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.data())
def test_every_beginning_of_a_line_is_cut_off_and_no_line_is(document: dict[str, Any], data: st.DataObject) -> None:
    line = json.dumps(document)
    assert not cut_off(line)
    assert cut_off(line[: data.draw(st.integers(1, len(line) - 1))])


def test_what_json_cannot_say_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(ValueError, match="JSON"):
        journal.append({"a": float("nan")})
    journal.append({"a": 1})
    journal.close()
    assert (tmp_path / "j").read_text() == '{"a": 1}\n'

"""Lines that are taken by their texts say the same as when they are read whole, whatever was done to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import TunedModel, TuningRecords
from gnomon.core.strict_json import Complaints
from gnomon.errors import GnomonError
from gnomon.formats.json_lines import MOST_DEPTH, json_lines, part_of_a_line
from gnomon.formats.tuning import logs
from gnomon.formats.tuning.logs import read_ansor_log, read_autotvm_log
from gnomon.formats.tuning.texts import Texts

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"
MODEL = TunedModel(name="mobile")

Read = Callable[[bytes, Texts], TuningRecords]


def autotvm(content: bytes, texts: Texts) -> TuningRecords:
    return read_autotvm_log(content, key="k", model=MODEL, texts=texts)


def ansor(content: bytes, texts: Texts) -> TuningRecords:
    return read_ansor_log(content, key="k", model=MODEL, texts=texts)


def again(name: str) -> bytes:
    """A golden file, and its trials once more with other times: behind texts that are known by then."""
    content = (GOLDEN / name).read_bytes()
    return content + content.replace(b"0.000", b"0.001").replace(b"e-06", b"e-05")


KINDS: dict[str, tuple[Read, bytes]] = {
    "autotvm": (autotvm, again("autotvm-log.json")),
    "ansor": (ansor, again("ansor-log.json")),
}

PIECES = st.sampled_from(
    [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b", ",
        b"}, ",
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"9" * 41,
        b"null",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b" ",
        b'"i": 1, ',
        b', "config": {"entity": []}',
        b', "result": [[0.5], 0, 1.0, 1.0]',
        b'], "r": [[0.5], 0, 1.0, 1.0], "r": ',
        b'"\\ud800"',
        b"[" * 70,
    ]
)


@contextmanager
def read_whole() -> Iterator[None]:
    """Every line is read whole."""
    with patch.object(logs.TunerLog, "known", lambda self, line: False):
        yield


def outcome(read: Read, content: bytes, texts: Texts) -> TuningRecords | str:
    try:
        return read(content, texts)
    except GnomonError as error:
        return f"{error.message} {error.hint}"


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """Pieces put in, or bytes lost or doubled, in a few places."""
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = min(len(content), start + data.draw(st.integers(-3, 40)))
        content = content[:start] + data.draw(st.just(b"") | PIECES) + content[max(0, end) :]
    return content


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_damage_is_told_in_the_same_words_and_what_is_read_is_the_same(kind: str, data: st.DataObject) -> None:
    read, content = KINDS[kind]
    changed = damaged(data, content)
    with read_whole():
        expected = outcome(read, changed, Texts())
    warm = Texts()
    read(content, warm)  # what is known of an undamaged file excuses nothing
    for texts in (Texts(), warm):
        assert outcome(read, changed, texts) == expected


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_result_may_be_anything(kind: str, data: st.DataObject) -> None:
    """Behind a configuration that is known, everything is looked at as closely as ever."""
    read, content = KINDS[kind]
    lines = content.splitlines()
    value = json.loads(lines[-1])
    field = data.draw(st.sampled_from(sorted(value)))
    number: st.SearchStrategy[Any] = st.sampled_from(
        [0, 1, -1, True, None, "x", 0.5, 1e9, 1e308, float("nan"), float("inf"), 10**40, [], {}]
    )
    value[field] = data.draw(
        number | st.lists(number | st.lists(number, max_size=3), max_size=5) | st.dictionaries(st.just("a"), number)
    )
    changed = b"\n".join([*lines[:-1], json.dumps(value).encode(), lines[-1]])
    with read_whole():
        expected = outcome(read, changed, Texts())
    assert outcome(read, changed, Texts()) == expected


@pytest.mark.parametrize(("kind", "most"), [("autotvm", 3), ("ansor", 2)])
def test_most_lines_are_not_read_whole(kind: str, most: int) -> None:
    """A line for each layer is."""
    read, content = KINDS[kind]
    texts = Texts()
    read(content, texts)
    whole: list[int] = []

    def noting(*args: Any, **options: Any) -> Iterator[tuple[int, object]]:
        for found in json_lines(*args, **options):
            whole.append(found[0])
            yield found

    with patch.object(logs, "json_lines", noting):
        read(content, texts)
    assert len(whole) <= most < content.count(b"\n") - 1


def test_a_part_of_a_line_is_refused_where_a_line_would_be() -> None:
    assert part_of_a_line('{"a": [1, 2.5, NaN]}')["a"][:2] == [1, 2.5]
    for wrong in ('{"a": 1, "a": 2}', "9" * 41, "[1", "1 2", "", " 1", "[" * MOST_DEPTH + "]" * MOST_DEPTH):
        with pytest.raises(ValueError):
            part_of_a_line(wrong)
    with pytest.raises(RecursionError):
        part_of_a_line("[" * 100_000)


@given(st.text(st.sampled_from('{"a: 1,}'), max_size=12))
def test_what_stands_behind_a_field_completes_an_object(end: str) -> None:
    """And has none of the fields before it."""
    complaints = Complaints(what="line", hint="")
    read = [value for _, value in json_lines('{"b": 0' + end.replace("\n", ""), complaints)]
    good = not complaints.told and bool(read)
    try:
        assert Texts().ends(end, ("b",)) <= good
    except ValueError:
        assert not good or not end.startswith(", ")


def test_texts_are_forgotten_where_they_are_too_many() -> None:
    read, content = KINDS["autotvm"]
    with patch("gnomon.formats.tuning.texts._MOST_KEPT", 1):
        assert read(content, Texts()) == read(content, Texts())
        assert outcome(read, content, Texts()) == outcome(read, content, Texts())

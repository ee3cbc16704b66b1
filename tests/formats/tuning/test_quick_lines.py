"""Lines that are taken by their texts say the same as when they are read whole, whatever was done to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from fuzz.mutate import mutated
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import TunedModel, TuningRecords, configuration_id
from gnomon.core.strict_json import Complaints
from gnomon.errors import GnomonError
from gnomon.formats.json_lines import MOST_DEPTH, json_lines, part_of_a_line
from gnomon.formats.tuning import logs, records
from gnomon.formats.tuning.logs import read_ansor_log, read_autotvm_log
from gnomon.formats.tuning.records import read_tuning_records
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
    trials = content[content.index(b'\n{"trial"') + 1 :] if b'{"trial"' in content else content
    return content + trials.replace(b"0.000", b"0.001").replace(b"e-06", b"e-05")


KINDS: dict[str, tuple[Read, bytes]] = {
    "autotvm": (autotvm, again("autotvm-log.json")),
    "ansor": (ansor, again("ansor-log.json")),
    "own": (read_tuning_records, again("tuning-records.json")),
    "own, of version 1": (read_tuning_records, again("tuning-records-1.json")),
}


@contextmanager
def read_whole() -> Iterator[None]:
    """Every line is read whole."""
    with (
        patch.object(logs.TunerLog, "known", lambda self, number, line: False),
        patch.object(records._File, "known", lambda self, number, line: False),
    ):
        yield


def outcome(read: Read, content: bytes, texts: Texts) -> TuningRecords | str:
    try:
        return read(content, texts)
    except GnomonError as error:
        return f"{error.message} {error.hint}"


@pytest.mark.parametrize("kind", KINDS)
@given(number=st.integers(0, 1 << 64))
def test_damage_is_told_in_the_same_words_and_what_is_read_is_the_same(kind: str, number: int) -> None:
    read, content = KINDS[kind]
    changed = mutated(Random(number), (content,))
    with read_whole():
        expected = outcome(read, changed, Texts())
    warm = Texts()
    read(content, warm)  # what is known of an undamaged file excuses nothing
    for texts in (Texts(), warm):
        assert outcome(read, changed, texts) == expected


@pytest.mark.parametrize(("kind", "most"), [("autotvm", 3), ("ansor", 2), ("own", 2), ("own, of version 1", 2)])
def test_most_lines_are_not_read_whole(kind: str, most: int) -> None:
    """A line for each layer of a log is; of records the header and the layer."""
    read, content = KINDS[kind]
    texts = Texts()
    read(content, texts)
    whole: list[int] = []

    def noting(*args: Any, **options: Any) -> Iterator[tuple[int, object]]:
        for found in json_lines(*args, **options):
            whole.append(found[0])
            yield found

    with patch.object(logs, "json_lines", noting), patch.object(records, "json_lines", noting):
        read(content, texts)
    assert len(whole) <= most < content.count(b"\n") - 1


def test_a_part_of_a_line_is_refused_where_a_line_would_be() -> None:
    assert part_of_a_line('{"a": [1, 2.5, NaN]}')["a"][:2] == [1, 2.5]
    for wrong in ('{"a": 1, "a": 2}', "9" * 41, "[1", "1 2", "", " 1", "[" * MOST_DEPTH + "]" * MOST_DEPTH):
        with pytest.raises(ValueError):
            part_of_a_line(wrong)
    with pytest.raises(RecursionError):
        part_of_a_line("[" * 100_000)


def test_a_line_may_end_otherwise_than_one_that_began_so() -> None:
    """What is known of a file excuses nothing in the next, nor what stood beside a trace."""
    header, layer = (GOLDEN / "tuning-records.json").read_text().splitlines()[0], '{"layer": "77", "name": "conv"}'
    full = json.dumps({"trial": configuration_id("77", []), "layer": "77", "trace": [], "times_s": [0.5]})
    bare, more = full.replace('"trace": [], ', ""), full.replace('"times_s"', '"error": 0.5, "times_s"')
    nested = {"x": 1, "times_s": 5}
    inner = json.dumps({"trial": configuration_id("77", nested), "layer": "77", "trace": nested, "times_s": [0.5]})
    texts = Texts()
    for lines in ([full, bare, bare, more, more, inner, inner], [bare], [full, inner.replace('5}, "times_s": ', "")]):
        content = "\n".join([header, layer, *lines]).encode()
        with read_whole():
            expected = outcome(read_tuning_records, content, Texts())
        assert outcome(read_tuning_records, content, texts) == expected


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

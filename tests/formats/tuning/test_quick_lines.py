"""Lines that are taken by their texts say the same as when they are read whole, whatever was done to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from fuzz.mutate import mutated
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import TuningRecords, configuration_id
from gnomon.errors import GnomonError
from gnomon.formats.json_lines import MOST_DEPTH, json_lines, part_of_a_line
from gnomon.formats.tuning import logs, records
from gnomon.formats.tuning import metaschedule as databases
from gnomon.formats.tuning.logs import read_tuner_log
from gnomon.formats.tuning.metaschedule import RECORDS, WORKLOADS, _Records, read_metaschedule_database
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.formats.tuning.texts import Texts

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"

Read = Callable[[bytes, Texts], TuningRecords]


def autotvm(content: bytes, texts: Texts) -> TuningRecords:
    return read_tuner_log(content, "autotvm", texts=texts)


def ansor(content: bytes, texts: Texts) -> TuningRecords:
    return read_tuner_log(content, "ansor", texts=texts)


def metaschedule(content: bytes, texts: Texts) -> TuningRecords:
    workloads = (GOLDEN / "metaschedule" / WORKLOADS).read_bytes()
    return read_metaschedule_database(workloads, content, texts=texts)


def again(name: str) -> bytes:
    """A golden file, and its trials once more with other times: behind texts that are known by then."""
    content = (GOLDEN / name).read_bytes()
    trials = content[content.index(b'\n{"trial"') + 1 :] if b'{"trial"' in content else content
    return content + trials.replace(b"0.000", b"0.001").replace(b"e-06", b"e-05")


KINDS: dict[str, tuple[Read, bytes]] = {
    "autotvm": (autotvm, again("autotvm-log.json")),
    "ansor": (ansor, again("ansor-log.json")),
    "metaschedule": (metaschedule, again(f"metaschedule/{RECORDS}")),
    "own": (read_tuning_records, again("tuning-records.json")),
    "own, of version 1": (read_tuning_records, again("tuning-records-1.json")),
}


@contextmanager
def read_whole() -> Iterator[None]:
    """Every line is read whole."""
    with (
        patch.object(logs.TunerLog, "quick", lambda self, number, line: False),
        patch.object(_Records, "quick", lambda self, number, line: False),
        patch.object(records._File, "quick", lambda self, number, line: False),
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


@pytest.mark.parametrize(
    ("kind", "most"), [("autotvm", 4), ("ansor", 3), ("metaschedule", 4), ("own", 2), ("own, of version 1", 4)]
)
def test_most_lines_are_not_read_whole(kind: str, most: int) -> None:
    """A line for each layer of a log is, and one for its end; of records also what is untuned in version 1."""
    read, content = KINDS[kind]
    texts = Texts()
    read(content, texts)
    whole: list[int] = []

    def noting(*args: Any, **options: Any) -> Iterator[tuple[int, object]]:
        for found in json_lines(*args, **options):
            whole.append(found[0])
            yield found

    with ExitStack() as patched:
        for module in (logs, records, databases):
            patched.enter_context(patch.object(module, "json_lines", noting))
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


INSTRUCTIONS = (
    '[["A", [], [], []]]',
    '[["A",[],[],[]],["B",["b0"],["x"],["b1"]]]',
    '[["A", [[["x"]]], [1], [[["y"]]]]]',
    '[["A]]], [[1]]", [], [], ["b0"]]]',
    '[["A", [], [{"b": 1, "a": 2}], ["\\u00e9\\"é\\\\"]]]',
    '[["A", [], [{"a": 1, "a": 2}], []]]',
    '[["A", [], [1.0, 1.50, 1e0, -0, -0.0, 1e-400, 0.10000000000000001], []]]',
    '[["A", [], [1e400], []]]',
    '[["A", [], [NaN], []]]',
    f'[["A", [], [{"9" * 41}], []]]',
    f'[["A", [], [{"[" * 60 + "]" * 60}], []]]',
    '[["A", [], [], []], ]',
    '[["A", [], [], []]]]',
    "[]",
    "{}",
    "null",
)
DECISIONS = (
    "[[4, [1, 2]]]",
    "[[4,[1,2]],[6,3]]",
    "[]",
    "[[]]",
    "[[4, [1, 2]]], [[5, 1]]",
    "[[4, [[[1]]]], [5, 2]]",
    "[[4, 1e400]]",
    "[[4, Infinity]]",
    '[[4, {"a": 1, "a": 2}]]',
    "[[04, 1]]",
    "[[4, 1]",
    "3",
)
SECONDS = ("[0.5]", "[0.25,1e-3]", "[]", "[1e400]", "[NaN]", "[-1]", '["1"]', "null", "[10000000000]", "[0.5], [0.25]")
ENDS = (
    '"error": 0.5',
    '"server": "a:1", "at_s": 5.5',
    '"at_s": -1',
    '"error": 1, "error": 2',
    '"trace": []',
    '"layer": "78"',
    '"x": 1',
    '"failure": {"stage": "run", "kind": "hang", "transient": false, "message": "m"}',
)


def identity(layer: str, trace: str) -> str:
    try:
        return configuration_id(layer, json.loads(trace))
    except (ValueError, RecursionError):
        return "0" * 16


@st.composite
def trials(draw: st.DrawFn) -> tuple[str, str]:
    """A trial of which a part or two are odd, as MetaSchedule and as gnomon would write it, or nearly so."""

    def part(texts: tuple[str, ...]) -> str:
        return draw(st.sampled_from(texts)) if draw(st.integers(0, 5)) == 5 else texts[0]

    trace = f"[{part(INSTRUCTIONS)}{part((', ', ',', ' , ', ''))}"
    trace += f"{part(DECISIONS)}]"
    seconds, index = part(SECONDS), part(("0", "1", "7", "00", "-0"))
    target = part(('{"kind":"llvm"}', "null", '{"kind":"c"}', "{}]"))
    theirs = f"[{index},[{trace},{seconds},{target},null]]"
    layer = part(("77", "78", "7\\u0037"))
    name = part((identity(layer, trace), identity("77", trace), "untuned", "0" * 16))
    ours = f'{{"trial": "{name}", "layer": "{layer}"'
    ours += part((f', "trace": {trace}', ', "trace": null', ""))
    end = part(("", *(f", {end}" for end in ENDS)))
    return theirs, f'{ours}, "times_s": {seconds}{end}}}'


@given(st.lists(trials(), min_size=1, max_size=6))
def test_odd_parts_are_read_as_in_whole_lines(made: list[tuple[str, str]]) -> None:
    """A trial alone, behind others, and where its parts are known from another file."""
    header = (GOLDEN / "tuning-records.json").read_text().splitlines()[0]
    layer = '{"layer": "77", "name": "conv"}'
    theirs, ours = ("\n".join(lines) for lines in zip(*made, strict=True))
    for read, content in ((metaschedule, theirs), (read_tuning_records, f"{header}\n{layer}\n{ours}")):
        with read_whole():
            expected = outcome(read, content.encode(), Texts())
        warm = Texts()
        for one in made:
            outcome(read, (one[0] if read is metaschedule else f"{header}\n{layer}\n{one[1]}").encode(), warm)
        for texts in (Texts(), warm):
            assert outcome(read, content.encode(), texts) == expected


def test_texts_are_forgotten_where_they_are_too_many() -> None:
    read, content = KINDS["autotvm"]
    with patch("gnomon.formats.tuning.texts._MOST_KEPT", 1):
        assert read(content, Texts()) == read(content, Texts())
        assert outcome(read, content, Texts()) == outcome(read, content, Texts())

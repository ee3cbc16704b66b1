"""Nodes of YAML: places in the text, hostile documents, plain scalars, and what PyYAML itself makes of a text."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnomon.errors import ProblemError, RuntimeMissingError
from gnomon.formats.yaml import almost, read_yaml

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

from gnomon.formats.yaml_nodes import nodes_of, plain, value_of


def read(text: str) -> Any:
    return read_yaml(text, "config", "the hint")


def python(node: Any) -> Any:
    if node.id == "sequence":
        return [python(item) for item in node.value]
    if node.id == "mapping":
        return {value_of(key): python(value) for key, value in node.value}
    return value_of(node)


def test_places_are_offsets_in_the_text() -> None:
    text = "a: 'x'\r\nb:\r\n- é\r\n- [1, {c: d}]\r\n"
    for node in nodes_of(read(text)):
        start, end = node.start_mark.index, node.end_mark.index
        if node.id == "scalar":
            assert text[start:end].strip("'") == node.value
            assert node.start_mark.line == text.count("\n", 0, start)
        elif node.flow_style:
            assert text[start] + text[end - 1] in ("[]", "{}")
        elif node.id == "sequence":
            assert text[start] == "-" and node.start_mark.column == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: !!python/object/apply:os.system [id]\n", r"line 1: the tag"),
        ("x: 1\na: 1\nx: 2\n", r"line 3: the key 'x' is given twice, first in line 1"),
        ("{a: 1, 'a': 2}", r"the key 'a' is given twice"),
        ("--- 1\n--- 2\n", r"line 2: .* a single document"),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", r"%TAG"),
        ("? [a]\n: b\n", r"line 1: a key is not a plain word"),
        ("a: *b\n", r"line 1: the alias 'b' has no anchor"),
        ("a: [1, 2\nb: 3\n", r"line \d: not YAML"),
        ("a: \x07\n", r"not YAML: special characters"),
        ("\ta: 1\n", r"line 1: not YAML"),
        ("", r"the file is empty"),
        ("[" * 2000, r"nested more than 32 levels deep"),
        ("".join(" " * k + "a:\n" for k in range(40)), r"line 33: nested more than 32 levels deep"),
        ("- a\n" * 20_001, r"line 20001: more than 20000 nodes"),
        ("\ud800", r"not YAML"),
        ("a: &x 1\nb: &x 2\n", r"line 2: not YAML: found duplicate anchor 'x'"),
    ],
)
def test_hostile_documents_are_refused_with_their_line(text: str, told: str) -> None:
    with pytest.raises(ProblemError, match=told) as refused:
        read(text)
    assert refused.value.hint == "the hint"


def test_aliases_stay() -> None:
    aliased = read("a: &x [1, 2]\nb: *x\nc: &y 3\nd: *y\n")
    assert [value.id for _, value in aliased.value] == ["sequence", "alias", "scalar", "alias"]


@given(st.text("ab: -[]{},#'\"\n ~1.", max_size=40))
@example("%YAML 1.9\n---\n1")
@example("%YAML 9.9\n---\n1")
@example("? \n? \n")
@example("a: |9\n")
@example('"\\uD800"')
@example('"\\UFFFFFFFF"')
@example("%\n")
@example("[1:]")
def test_pyyaml_reads_the_same(text: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    try:
        ours = python(read(text))
        theirs = yaml.safe_load(text)
    except (ProblemError, yaml.YAMLError, ValueError):
        return
    assert ours == theirs


def test_without_pyyaml_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "gnomon.formats.yaml_nodes", raising=False)
    with pytest.raises(RuntimeMissingError) as refused:
        read("a: 1")
    assert refused.value.hint == f"{sys.executable} -m pip install 'pyyaml>=6'"


NEAR = st.text("0123456789.eE+-_:xbo~ninfaNyestrufl", max_size=9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.e-4", 1e-4),
        (".5", 0.5),
        ("-.5", "-.5"),
        ("1e-4", "1e-4"),
        ("-.inf", -math.inf),
        ("010", 8),
        ("0o10", "0o10"),
        ("0x1F", 31),
        ("1:30", 90),
        ("yes", True),
        ("y", "y"),
        ("~", None),
        ("", None),
        ("Mobileblock_1", "Mobileblock_1"),
    ],
)
def test_values_are_those_of_yaml_1_1(text: str, value: Any) -> None:
    found = plain(text)
    assert found == value and type(found) is type(value)
    assert math.isnan(float(plain(".NaN") or 0))


@given(NEAR)
def test_what_almost_is_a_number_can_be_written_as_one(text: str) -> None:
    better = almost(text)
    if better:
        assert isinstance(plain(text), str)
        assert plain(better) == float(text)


def test_thousands_of_digits_are_a_text() -> None:
    assert plain("9" * 5000) == "9" * 5000
    assert almost("1e-4") == "1.0e-4" and almost("1E5") == "1.0e+5" and almost("1.e5") == "1.e+5"

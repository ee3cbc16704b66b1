"""YAML trees: places in the text, hostile documents, and PyYAML as the oracle for what is read."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnomon.errors import ProblemError, RuntimeMissingError
from gnomon.formats.yaml import YamlNode, read_yaml, yaml_text


def read(text: str) -> YamlNode:
    return read_yaml(text, "config", "the hint")


def python(node: YamlNode) -> Any:
    if node.kind == "list":
        return [python(item) for item in node.items]
    if node.kind == "mapping":
        return {key: python(value) for key, (_, value) in node.entries.items()}
    return node.value


def test_places_are_offsets_in_the_text() -> None:
    text = "a: 'x'\r\nb:\r\n- é\r\n- [1, {c: d}]\r\n"
    for node in read(text).nodes():
        if node.kind == "scalar":
            assert text[node.start : node.end].strip("'") == node.text
            assert node.line == text.count("\n", 0, node.start) + 1
        elif node.flow:
            assert text[node.start] + text[node.end - 1] in ("[]", "{}")
        elif node.kind == "list":
            assert text[node.start] == "-"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: !!python/object/apply:os.system [id]\n", r"line 1: the tag"),
        ("a: !x 1\n", r"line 1: the tag"),
        ("x: 1\na: 1\nx: 2\n", r"line 3: the key 'x' is there already, in line 1"),
        ("{a: 1, 'a': 2}", r"the key 'a' is there already"),
        ("--- 1\n--- 2\n", r"line 2: a second document"),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", r"%TAG"),
        ("? [a]\n: b\n", r"line 1: a key that is not a plain word"),
        ("a: *b\n", r"line 1: the alias 'b' of nothing"),
        ("a: &a [*a]\n", r"line 1: the alias 'a' of nothing"),
        ("a: [1, 2\nb: 3\n", r"line \d: not YAML"),
        ("a: \x07\n", r"not YAML: special characters"),
        ("\ta: 1\n", r"line 1: not YAML"),
        ("", r"nothing at all"),
        ("# only this\n", r"nothing at all"),
        ("[" * 2000, r"nested deeper than 32"),
        ("".join(" " * k + "a:\n" for k in range(40)), r"line 33: nested deeper than 32"),
        ("- a\n" * 20_001, r"line 20001: more than 20000 nodes"),
        ("- [a, b]\n" * 7_000, r"line 6667: more than 20000 nodes"),
        ("\ud800", r"not YAML"),
    ],
)
def test_hostile_documents_are_refused_with_their_line(text: str, told: str) -> None:
    with pytest.raises(ProblemError, match=told) as refused:
        read(text)
    assert refused.value.hint == "the hint"


def test_aliases_stay_and_bombs_do_not() -> None:
    aliased = read("a: &x [1, 2]\nb: *x\nc: &x 3\nd: *x\n")
    assert [value.kind for _, value in aliased.entries.values()] == ["list", "alias", "scalar", "alias"]
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
    )
    with pytest.raises(ProblemError, match="aliases expanded"):
        read(bomb)


def test_text_is_utf8_and_short() -> None:
    assert yaml_text("é".encode(), "config", "") == "é"
    with pytest.raises(ProblemError, match=r"not UTF-8 text .byte 1"):
        yaml_text(b"a\xff", "config", "")
    with pytest.raises(ProblemError, match="UTF-16: save it as UTF-8"):
        yaml_text("a: 1".encode("utf-16"), "config", "")
    with pytest.raises(ProblemError, match="262145 letters"):
        yaml_text("a" * ((1 << 18) + 1), "config", "")


@given(st.text() | st.text("a: -[]{},#&*!|>'\"%@`?\n\t\r ~1.", max_size=60))
@example("%YAML 1.9\n---\n1")
@example("%YAML 9.9\n---\n1")
@example("? \n? \n")
@example("a: |9\n")
@example('"\\uD800"')
@example('"\\UFFFFFFFF"')
@example("%\n")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except ProblemError as error:
        assert error.hint


@given(st.text("ab: -[]{},#'\"\n ~1.", max_size=40))
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
    with pytest.raises(RuntimeMissingError) as refused:
        read("a: 1")
    assert refused.value.hint == f"{sys.executable} -m pip install 'pyyaml>=6'"

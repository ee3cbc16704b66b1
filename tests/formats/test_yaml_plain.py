"""Plain scalars of YAML 1.1: the table of the differences to YAML 1.2."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnomon.formats.yaml import almost

pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed: pip install '.[space]'")

from gnomon.formats.yaml_nodes import plain

NEAR = st.text("0123456789.eE+-_:xbo~ninfaNyestrufl", max_size=9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.e-4", 1e-4),
        ("5.e-4", 5e-4),
        ("1.0e+4", 1e4),
        ("0.", 0.0),
        (".5", 0.5),
        ("-.5", "-.5"),
        ("+1.5", 1.5),
        ("1_000.5", 1000.5),
        ("1e-4", "1e-4"),
        ("1.0e4", "1.0e4"),
        ("-.inf", -math.inf),
        ("010", 8),
        ("0o10", "0o10"),
        ("09", "09"),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_000", 1000),
        ("1:30", 90),
        ("-1:30.5", -90.5),
        ("yes", True),
        ("Off", False),
        ("y", "y"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("Mobileblock_1", "Mobileblock_1"),
        ("yes\n", "yes\n"),
    ],
)
def test_values_are_those_of_yaml_1_1(text: str, value: Any) -> None:
    found = plain(text)
    assert found == value and type(found) is type(value)
    assert math.isnan(float(plain(".NaN") or 0))


@given(NEAR)
@example("+_7")
@example("._5")
@example("1_.0e5")
def test_values_are_those_of_pyyaml(text: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML, the oracle, is not installed")
    loader = yaml.SafeLoader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    wanted: Any = text
    if tag.rpartition(":")[2] in ("null", "bool", "int", "float"):
        with suppress(ValueError):
            wanted = loader.yaml_constructors[tag](loader, yaml.ScalarNode(tag, text))
    assert repr(plain(text)) == repr(wanted)


@given(NEAR)
def test_what_almost_is_a_number_can_be_written_as_one(text: str) -> None:
    better = almost(text)
    if better:
        assert isinstance(plain(text), str)
        assert plain(better) == float(text)


def test_thousands_of_digits_are_a_text() -> None:
    assert plain("9" * 5000) == "9" * 5000
    assert almost("1e-4") == "1.0e-4" and almost("1E5") == "1.0e+5" and almost("1.e5") == "1.e+5"

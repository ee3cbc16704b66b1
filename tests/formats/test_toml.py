"""TOML is read within bounds: no key takes more time or memory than it has letters."""

from __future__ import annotations

import pytest

from gnomon.formats.toml import read_toml

LONG = ".".join(["a"] * 20_000)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"x = 1\n[{LONG}]",
        f"x = {{ {LONG} = 1 }}",
        " . ".join(["'a.b'"] * 34) + " = 1",
        # Strings end where the language ends them, also with quotes before the last three.
        f'x = [""" a """", {{ {LONG} = 1 }}]',
        f"x = ['''\n ''''', {{ {LONG} = 1 }}]",
        f'x = "\\"" # "\n{LONG} = 1',
    ],
)
def test_a_line_of_many_dots_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d has more than 32 dots outside its strings"):
        read_toml(text)


def test_dots_in_strings_and_comments_count_for_nothing() -> None:
    dots = "." * 100
    text = f'# {dots}\na.b = "\\"{dots}"\nc = \'{dots}\'\nd = """\n{dots}""""\ne = [1.5, 2.5]\n' + "f.g.h = 1\n"
    found = read_toml(text)
    assert found == {"a": {"b": f'"{dots}'}, "c": dots, "d": f'{dots}"', "e": [1.5, 2.5], "f": {"g": {"h": 1}}}


@pytest.mark.parametrize("text", ["name =", "x = " + "[" * 5000, "a = 1\na = 2"])
def test_what_is_no_toml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_toml(text)

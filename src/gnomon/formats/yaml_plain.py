"""Plain scalars of YAML 1.1 as PyYAML reads them, which is what aw_nas and the published profiler read configs with.

Source: the types of YAML 1.1 (yaml.org/type: bool, float, int, null) as PyYAML 6 resolves them. What that means where
YAML 1.2 differs: ``1.e-4`` is a number, and ``1e-4`` and ``1.0e4`` are texts (a number has a point, and its exponent a
sign); ``yes``, ``no``, ``on`` and ``off`` are true and false; ``010`` is eight; ``1:30`` is ninety.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TypeVar

_Number = TypeVar("_Number", int, float)
Plain = None | bool | int | float | str

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset(form for word in ("yes", "true", "on") for form in (word, word.title(), word.upper()))
_FALSE = frozenset(form for word in ("no", "false", "off") for form in (word, word.title(), word.upper()))
_WHOLE = re.compile(
    r"[-+]?(?:0b(?P<binary>[01_]+)|0x(?P<hexadecimal>[0-9a-fA-F_]+)|0(?P<octal>[0-7_]+)"
    r"|(?P<decimal>0|[1-9][0-9_]*)|(?P<sixties>[1-9][0-9_]*(?::[0-5]?[0-9])+))",
    re.ASCII,
)
_BASES = {"binary": 2, "hexadecimal": 16, "octal": 8, "decimal": 10}
_EXPONENT = r"(?:[eE][-+][0-9]+)?"
_BROKEN = re.compile(
    rf"(?P<usual>[-+]?[0-9][0-9_]*\.[0-9_]*{_EXPONENT}|\.[0-9][0-9_]*{_EXPONENT})"
    r"|(?P<sixties>[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)"
    r"|(?P<infinite>[-+]?\.(?:inf|Inf|INF))|(?P<none>\.(?:nan|NaN|NAN))",
    re.ASCII,
)
_ALMOST = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+", re.ASCII)


def plain(text: str) -> Plain:
    """The value of an unquoted scalar. What is no null, truth value or number is a text; dates are left texts too."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    sign = -1 if text.startswith("-") else 1
    try:
        if match := _WHOLE.fullmatch(text):
            kind = str(match.lastgroup)
            digits = match[kind].replace("_", "")
            if kind == "sixties":
                return sign * _sixties([int(part) for part in digits.split(":")])
            return sign * (int(digits, _BASES[kind]) if digits or kind != "octal" else 0)
        if match := _BROKEN.fullmatch(text):
            return _float(match, sign)
    except (ValueError, OverflowError):  # no digit at all, or thousands of them
        return text
    return text


def almost(text: str) -> str:
    """How a text that looks like a number is to be written so that it is one: "1.0e-4" for "1e-4". Empty otherwise."""
    if not _ALMOST.fullmatch(text) or not isinstance(plain(text), str):
        return ""
    mantissa, _, exponent = text.lower().partition("e")
    point = "" if "." in mantissa else ".0"
    return f"{mantissa}{point}e{'' if exponent[0] in '+-' else '+'}{exponent}"


def _float(match: re.Match[str], sign: int) -> float:
    if match["infinite"]:
        return sign * float("inf")
    if match["none"]:
        return float("nan")
    digits = match[0].replace("_", "")
    if match["sixties"]:
        return sign * _sixties([float(part) for part in digits.lstrip("+-").split(":")])
    return float(digits)


def _sixties(parts: Sequence[_Number]) -> _Number:
    """Hours, minutes, seconds and the like: each part is sixty of the next."""
    return functools.reduce(lambda whole, part: whole * 60 + part, parts)

"""Reads TOML that people write, within limits.

The standard library's reader needs memory and time that grow with the square of a dotted key's length.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_BYTES = 1 << 20
"""The largest file that is read."""

_MOST_DOTS = 32
_TOKEN = re.compile(
    r"""(?s)"{3}(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\#[^\n]*|(\.)|(\n)"""
)
"""A string, a comment, a dot outside of both, or the end of a line."""


def read_toml(text: str) -> dict[str, Any]:
    """The content of a TOML text. ValueError for invalid TOML, deep nesting, or a line with more than 32 dots."""
    dots = 0
    for token in _TOKEN.finditer(text):
        dots = 0 if token[2] else dots + bool(token[1])
        if dots > _MOST_DOTS:
            line = text.count("\n", 0, token.start()) + 1
            raise ValueError(f"line {line} has more than {_MOST_DOTS} dots outside its strings")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None

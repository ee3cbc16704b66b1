"""Plain scalars of YAML 1.1 as PyYAML reads them, which is what aw_nas and the published profiler read configs with.

What that means where YAML 1.2 differs: ``1.e-4`` is a number, and ``1e-4`` and ``1.0e4`` are texts (a number has a
point, and its exponent a sign); ``yes``, ``no``, ``on`` and ``off`` are true and false; ``010`` is eight; ``1:30`` is
ninety.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

from gnomon.core.installing import install_line
from gnomon.errors import RuntimeMissingError

Plain = None | bool | int | float | str

_KINDS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))
_ALMOST = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+", re.ASCII)


def pyyaml() -> Any:
    """The package. RuntimeMissingError without it."""
    try:
        import yaml
    except ImportError as error:
        raise RuntimeMissingError(
            f"YAML configs are read with PyYAML, which cannot be loaded: {error}",
            hint=install_line("pyyaml", python=sys.executable),
        ) from error
    return yaml


@functools.cache
def _loader() -> Any:
    return pyyaml().SafeLoader("")


def plain(text: str) -> Plain:
    """The value of an unquoted scalar. What is no null, truth value or number is a text; dates are left texts too."""
    loader, node = _loader(), pyyaml().ScalarNode
    tag = loader.resolve(node, text, (True, False))
    if tag not in _KINDS:
        return text
    try:
        value: Plain = loader.yaml_constructors[tag](loader, node(tag, text))
    except (ValueError, OverflowError):  # no digit at all, or thousands of them
        return text
    return value


def almost(text: str) -> str:
    """How a text that looks like a number is to be written so that it is one: "1.0e-4" for "1e-4". Empty otherwise."""
    if not _ALMOST.fullmatch(text) or not isinstance(plain(text), str):
        return ""
    mantissa, _, exponent = text.lower().partition("e")
    point = "" if "." in mantissa else ".0"
    return f"{mantissa}{point}e{'' if exponent[0] in '+-' else '+'}{exponent}"

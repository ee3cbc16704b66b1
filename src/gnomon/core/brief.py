"""Short texts for large records, shown in messages and by the interpreter."""

from __future__ import annotations

from dataclasses import fields
from reprlib import Repr
from typing import Any

_SHORT = Repr()
_SHORT.maxother = _SHORT.maxstring = 50
_SHORT.maxtuple = _SHORT.maxlist = _SHORT.maxdict = 1


def brief(record: Any) -> str:
    """The `__repr__` of a large dataclass: each field's value is cut after about fifty characters."""
    shown = ", ".join(f"{f.name}={_SHORT.repr(getattr(record, f.name))}" for f in fields(record) if f.repr)
    return f"{type(record).__qualname__}({shown})"

"""The records of the documents that jobs return: `from gnomon.documents import PlaceDocument`.

A record is loaded when it is first asked for. `documents.pyi` names all of them for type checkers and editors.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gnomon.builtin import JOBS


def __getattr__(name: str) -> Any:
    if name in (places := _places()):
        return getattr(import_module(places[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_places())


def _places() -> dict[str, str]:
    """The module of each record, by the record's name."""
    records = [record.partition(":") for job in JOBS.values() for record, _ in job.documents.values()]
    return {name: module for module, _, name in records}

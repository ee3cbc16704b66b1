"""Unique names for operators, whatever a file calls them."""

from __future__ import annotations

from collections.abc import Sequence


def unique_names(names: Sequence[str], types: Sequence[str]) -> tuple[str, ...]:
    """A unique name for each operator, the same on every reading.

    The first operator of a name keeps it; one without a name, or with a name that was taken before, becomes
    ``<type>_<index>``, with underscores behind it for as long as some operator has that name.
    """
    reserved = set(names)
    used: set[str] = set()
    result = []
    for index, (name, kind) in enumerate(zip(names, types, strict=True)):
        chosen = name
        if not name or name in used:
            chosen = f"{kind}_{index}"
            while chosen in reserved or chosen in used:
                chosen += "_"
        used.add(chosen)
        result.append(chosen)
    return tuple(result)

"""Finds toolchains: the built-in ones and a third party's, all by the entry-point group ``gnomon.toolchains``.

An entry is a function that makes a toolchain of its settings, a mapping from names to values or texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from gnomon.errors import UsageError
from gnomon.toolchains.base import Toolchain

GROUP = "gnomon.toolchains"


def toolchain_names() -> tuple[str, ...]:
    """The names of all toolchains that are registered; none is loaded."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def chosen_toolchain(name: str, settings: Mapping[str, Any] | None = None) -> Toolchain:
    """The toolchain of a name with these settings.

    UsageError for an unknown name, with those that there are, for settings that it does not have, and where a third
    party's cannot be loaded.
    """
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    advice = f"Known: {', '.join(sorted(known)) or 'none; install gnomon again'}."
    if name not in known:
        raise UsageError(f"there is no toolchain {ascii(name)[:60]}", hint=advice)
    try:
        factory = known[name].load()
    except Exception as error:  # a third party's may raise anything at import
        raise UsageError(
            f"the toolchain {name} cannot be loaded: {type(error).__name__}: {error}", hint=advice
        ) from error
    made = factory(dict(settings or {}))
    if not isinstance(made, Toolchain):
        raise UsageError(f"what is registered as {name} makes no toolchain", hint=advice)
    return made

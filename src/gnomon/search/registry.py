"""Finds strategies: the built-in ones and a third party's, all by the entry-point group ``gnomon.strategies``."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from gnomon.core.space import Space
from gnomon.errors import GnomonError, UsageError
from gnomon.search.base import Strategy

GROUP = "gnomon.strategies"

Factory = Callable[..., Strategy]
"""Makes a strategy: ``factory(space, seed=0, **options)``."""

# The built-in ones, by the same door: a checkout that is not installed anew has them too.
_OWN = (
    EntryPoint(name="exhaustive", value="gnomon.search.exhaustive:Exhaustive", group=GROUP),
    EntryPoint(name="hlps", value="gnomon.search.hlps:Hlps", group=GROUP),
    EntryPoint(name="nsga2", value="gnomon.search.evolutionary:nsga2", group=GROUP),
    EntryPoint(name="random", value="gnomon.search.random_search:RandomSearch", group=GROUP),
    EntryPoint(name="spea2", value="gnomon.search.evolutionary:spea2", group=GROUP),
)


def known_strategies() -> tuple[str, ...]:
    """The names of all strategies, whether or not what they need is installed."""
    return tuple(_entries())


def make_strategy(name: str, space: Space, *, seed: int = 0, **options: Any) -> Strategy:
    """The strategy of that name for a space.

    UsageError for an option that it does not have; what `load_strategy` raises passes through.
    """
    factory = load_strategy(name)
    try:
        return factory(space, seed=seed, **options)
    except TypeError as error:
        raise UsageError(
            f"the strategy {name!r} does not take these options: {error}", hint="See docs/search.md."
        ) from (error)


def load_strategy(name: str) -> Factory:
    """What makes the strategy of that name.

    UsageError for an unknown name, or a module that cannot be loaded; RuntimeMissingError where it needs a package that
    is not installed.
    """
    entries = _entries()
    if name not in entries:
        raise UsageError(f"there is no strategy {name!r}", hint=f"Known strategies: {', '.join(entries)}.")
    entry = entries[name]
    try:
        factory: Factory = entry.load()
        return factory
    except GnomonError:
        raise
    except Exception as error:  # a third party's module may raise anything at import
        raise UsageError(
            f"the strategy {name!r} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"Mend or remove the package that adds it ({entry.value}).",
        ) from error


def _entries() -> dict[str, EntryPoint]:
    own = {entry.name: entry for entry in _OWN}
    others = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {**own, **{entry.name: entry for entry in others if entry.name not in own}}

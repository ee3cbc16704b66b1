"""Finds runtimes, both the built-in ones and those of third parties, through the entry-point group ``gnomon.runtimes``.

An adapter with a true attribute `by_name_only` is tried only if the user names it. This is for a runtime that nobody
wants by default, because it takes very long to start or is very slow without further settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from gnomon.errors import UsageError, did_you_mean
from gnomon.models.load import reachable
from gnomon.plugins import is_own, named, passed_over
from gnomon.runtimes.base import RunSettings, Runtime

_GROUP = "gnomon.runtimes"
_TAKEN = "the name of another runtime: give the entry point and its adapter an unused name"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRuntime:
    """An adapter that could not be loaded, kept in the list with the reason."""

    name: str
    reason: str


def all_runtimes() -> tuple[tuple[Runtime, ...], tuple[BrokenRuntime, ...]]:
    """The adapters in order of their entry points' names, and the adapters that could not be loaded or whose name is
    already taken.
    """
    adapters = _adapters()
    return tuple(r for _, r in adapters if not isinstance(r, BrokenRuntime)), tuple(
        r for _, r in adapters if isinstance(r, BrokenRuntime)
    )


def _adapters() -> list[tuple[EntryPoint, Runtime | BrokenRuntime]]:
    """Each entry point with its adapter, or the reason why it has none. No two adapters have the same name."""
    entries = named(_GROUP)
    adapters: list[tuple[EntryPoint, Runtime | BrokenRuntime]] = []
    for entry in entries.values():
        try:
            own: Runtime | BrokenRuntime = entry.load()()
            if own.name in (entries.keys() - {entry.name}) | {other.name for _, other in adapters}:
                own = BrokenRuntime(name=entry.name, reason=f"{entry.value} calls itself {own.name!r}, {_TAKEN}")
        except Exception as error:  # a third party's adapter may raise anything at import
            own = BrokenRuntime(name=entry.name, reason=f"{type(error).__name__}: {error}")
        adapters.append((entry, own))
    for entry in passed_over(_GROUP):
        reason = f"{entry.value} has the name {entry.name!r}, {_TAKEN}"
        adapters.append((entry, BrokenRuntime(name=f"{entry.name} ({entry.value})", reason=reason)))
    return adapters


def adapter_version(runtime: str) -> str:
    """The version of the package with a third party's adapter, given the runtime's name; empty for gnomon's own
    adapters.
    """
    entry = next((entry for entry, adapter in _adapters() if adapter.name == runtime), None)
    return "" if entry is None or entry.dist is None or is_own(entry) else entry.dist.version


def usual(runtime: Runtime) -> bool:
    """Return True if a runtime is tried when the user names no runtime."""
    return not getattr(runtime, "by_name_only", False)


def by_name_only(model_format: str) -> tuple[str, ...]:
    """The names of runtimes that load a format, or one to which it can be converted, and that are tried only if
    named.
    """
    formats = reachable(model_format)
    return tuple(r.name for r in all_runtimes()[0] if formats & r.formats and not usual(r))


def chosen_runtimes(names: tuple[str, ...], model_format: str) -> tuple[Runtime, ...]:
    """The named runtimes, or all `usual` ones that load the format or one to which it can be converted.

    UsageError if a name is unknown or the runtime does not load the format.
    """
    good, broken = all_runtimes()
    by_name = {runtime.name: runtime for runtime in good}
    reasons = {item.name: item.reason for item in broken}
    formats = reachable(model_format)
    fitting = [r for r in good if formats & r.formats]
    advice = f"Runtimes for {model_format} models: {', '.join(r.name for r in fitting) or 'none'}."
    if not names:
        chosen = tuple(runtime for runtime in fitting if usual(runtime))
        if not chosen:
            raise UsageError(f"no runtime loads {model_format} models", hint=advice)
        return chosen
    for name in names:
        if name in reasons:
            raise UsageError(f"the adapter of runtime {name!r} cannot be loaded: {reasons[name]}", hint=advice)
        if name not in by_name:
            near = did_you_mean(name, by_name)
            raise UsageError(
                f"unknown runtime {name!r}", hint=f"{near} {advice} All: {', '.join(sorted(by_name))}.".lstrip()
            )
        if not formats & by_name[name].formats:
            raise UsageError(f"runtime {name!r} does not load {model_format} models", hint=advice)
    return tuple(by_name[name] for name in dict.fromkeys(names))


def check_options(settings: RunSettings, chosen: Sequence[Runtime]) -> None:
    """UsageError if options or libraries are requested for a runtime that accepts none or that is not chosen."""
    taking = [r.name for r in all_runtimes()[0] if getattr(r, "session_options", False)]
    for name in (*(runtime for runtime, _ in settings.options), *settings.libraries):
        if name not in taking or all(name != runtime.name for runtime in chosen):
            message = f"options and libraries cannot be set for {name!r}, which takes none or is not measured"
            raise UsageError(message, hint=f"Runtimes that take them: {', '.join(taking)}; add one with --runtime.")

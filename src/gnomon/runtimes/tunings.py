"""Settings of a runtime that a search may choose: their values, and how a value changes a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from gnomon.errors import UsageError
from gnomon.runtimes.base import Configuration, Probe, RunSettings, Runtime
from gnomon.wire import Options

Change = Callable[[Options, str], Options]
"""A function that returns a configuration's options after setting a tuning to a value."""

MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A setting with several values.

    `values` are all possible values, or None for any whole number above 0; the `usual` ones are tried if the user names
    none. `change` puts a value into the options of a configuration. `parallel` means that some values make several
    threads work, so that CPU time is not the time of a call.
    """

    name: str
    values: tuple[str, ...] | None
    usual: tuple[str, ...]
    change: Change
    parallel: bool = False

    def checked(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """The values to try: the named ones, or the usual ones. UsageError for an invalid value."""
        chosen = named or self.usual
        for value in chosen:
            if self.values is None:
                good = value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= MOST_THREADS and len(value) <= 4
                allowed = f"a whole number from 1 to {MOST_THREADS}"
            else:
                good, allowed = value in self.values, f"one of: {', '.join(self.values)}"
            if not good:
                raise UsageError(f"{value!r} is not a value of the setting {self.name}", hint=f"Give {allowed}.")
        if len(set(chosen)) != len(chosen):
            raise UsageError(f"the option {self.name} names a value twice", hint="Name each value once.")
        return chosen


def _threads(options: Options, value: str) -> Options:
    return {**options, "threads": int(value)}


THREADS = Tuning(name="threads", values=None, usual=("1", "2"), change=_threads, parallel=True)
"""The tuning of the option `threads`, which most runtimes have."""


def tunings(runtime: Runtime) -> dict[str, Tuning]:
    """The tunings in the attribute `tunings` of a runtime, by name; none without the attribute."""
    return {tuning.name: tuning for tuning in getattr(runtime, "tunings", ())}


def tuned(runtime: Runtime, configuration: Configuration, values: Mapping[str, str]) -> Configuration:
    """The configuration with these values of its runtime's tunings, which are also part of its name.

    UsageError for a tuning that the runtime does not have.
    """
    available = tunings(runtime)
    options = configuration.options
    for name, value in values.items():
        if name not in available:
            has = ", ".join(available) or "none"
            raise UsageError(f"{runtime.name} has no setting {name!r}", hint=f"It has: {has}.")
        options = available[name].change(options, value)
    if not values:
        return configuration
    return replace(configuration, name=_named(configuration.name, values), options=options)


def _named(name: str, values: Mapping[str, object]) -> str:
    base, bracket, inner = name.partition("[")
    inside = ",".join([*([inner.removesuffix("]")] if bracket else []), *(f"{n}={v}" for n, v in values.items())])
    return f"{base}[{inside}]"


def configurations(runtime: Runtime, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
    """The runtime's configurations; if several numbers of threads are requested, those for each number, with the number
    in their names.

    With `settings.usual`, the configuration that sets nothing is included, unless backends are named. All
    configurations load the requested libraries of operators.
    """
    if settings.by_itself == "only":
        return _by_itself(runtime, probe, settings)
    if not (settings.more_threads and getattr(runtime, "threaded", True)):
        chosen = _with_options(runtime, probe, settings)
    else:
        chosen = tuple(
            replace(configuration, name=_named(configuration.name, {"threads": threads}))
            for threads in settings.thread_counts
            for configuration in _with_options(runtime, probe, replace(settings, threads=threads, more_threads=()))
        )
    usual: Callable[[Probe], Configuration | None] | None = getattr(runtime, "usual", None)
    default = usual(probe) if usual is not None and settings.usual and not settings.backends else None
    every, loading = chosen if default is None else (*chosen, default), settings.loading(runtime.name)
    return tuple(replace(c, options={**c.options, **loading}) for c in every) if loading else every


def _by_itself(runtime: Runtime, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
    """The configurations in which a runtime chooses among its devices itself. If there are none: those with the named
    backends, otherwise those with accelerators and the first one with a single backend.
    """
    home = probe.backends[:1]
    backends = tuple(dict.fromkeys((*home, *settings.backends))) if {*settings.backends} - {*home, runtime.name} else ()
    every = configurations(runtime, probe, replace(settings, backends=backends, usual=True, by_itself="too"))
    ordered = [c for c in every if "order" in c.options]
    named = [c for c in every if set(settings.backends).intersection(c.backends)] if backends else []
    beside = [c for c in every if c.accelerators]
    alone = [] if backends else [c for c in every if len(c.backends) == 1 and not c.apart]
    tried = [c for c in alone[1:] if "session" in c.options]
    return tuple(ordered or named or beside + alone[:1] + tried or every[-1:])


def _with_options(runtime: Runtime, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
    """The runtime's configurations, and each clean configuration with each requested set of session options."""
    own = runtime.configurations(probe, settings)
    more = (
        replace(c, name=_named(c.name, session), options={**c.options, "session": dict(session)})
        for (name, session), c in product(settings.options, own)
        if name == runtime.name and c.clean
    )
    return (*own, *more)

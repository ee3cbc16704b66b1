"""Finds the device of each log from the names of all logs, their content, and the user's hints.

``b_a.net.float32.json`` may mean "measured on b, found on a", or a device named b_a. The front of a name is split in
two if the right half has a log of its own among the files; there may be no log of tuning for the left half. Then the
content decides: the configurations of a collection are part of the log of the device where they were found, and of no
other log. Ferule copied the time of day of each trial along with its configuration (``collect`` in
``measure_common.py``), so that device is known even if several devices tried the same configurations, as in a grid
search. Cases that stay open raise an error with all readings: a name alone never makes two devices count as one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.core.overlay.records import TunedModel, TuningRecords
from gnomon.core.overlay.trials import Name, columns_of
from gnomon.core.strict_json import shown
from gnomon.errors import UsageError
from gnomon.formats.tuning.names import TuningName, parse_tuning_name, readings

_UNKNOWN = "unknown"
_MOST_TOLD = 6
_ANALYZE = "gnomon overlay analyze"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHints:
    """A user's hints about logs that do not name their device.

    `keys` are keys of devices that may occur in any name; `of` maps the path of a log to the device that was measured.
    """

    keys: tuple[str, ...] = ()
    of: Mapping[str, str] = field(default_factory=dict)


NOTHING = DeviceHints()


def name_logs(
    paths: Sequence[str], records: Sequence[TuningRecords], hints: DeviceHints = NOTHING
) -> list[TuningRecords]:
    """The record sets with their devices, origins and models; sets that contain these themselves are unchanged.

    UsageError for a name without a meaning or with several; for a hint that contradicts the content of a file; and for
    a hinted key that belongs to no log.
    """
    for path, log in zip(paths, records, strict=True):
        key = hints.of.get(path, log.device.key)
        if log.device.key and key != log.device.key:
            raise UsageError(
                f"{path} itself names its device, {shown(log.device.key)}, which is not {shown(key)}",
                hint=f"Leave out --device for {path}, or correct it.",
            )
    logs = _Logs(paths, records, hints)
    names = logs.names()
    models = {(name.model, name.dtype) for name in names.values() if name.model != _UNKNOWN}
    models |= {(log.model.name, log.model.dtype) for log in records if log.device.key}
    only = next(iter(models)) if len(models) == 1 else None
    labelled = []
    for number, log in enumerate(records):
        if (name := names.get(number)) is not None:
            model, dtype = only if only and name.model == _UNKNOWN else (name.model, name.dtype)
            named = TunedModel(name=model, dtype=dtype)
            log = replace(log, device=replace(log.device, key=name.key), found_on=name.found_on, model=named)
        labelled.append(log)
    met = {key for log in labelled for key in (log.device.key, log.host)}
    if strange := [key for key in hints.keys if key not in met]:
        raise UsageError(
            f"no log belongs to the device {shown(strange[0])}",
            hint=f"The logs' devices are {', '.join(sorted(met))}. To name the device of a file: --device KEY=FILE",
        )
    return labelled


class _Logs:
    """Logs, and what is known about their devices so far."""

    def __init__(self, paths: Sequence[str], records: Sequence[TuningRecords], hints: DeviceHints) -> None:
        self._hints, self._records = hints, records
        said = [log for log in records if log.device.key]
        # The name of a database's folder has the form of a file's name without its ending.
        self._paths = {
            k: path if log.tuner != "metaschedule" else f"{path.rstrip('/')}.json"
            for k, (path, log) in enumerate(zip(paths, records, strict=True))
            if not log.device.key
        }
        self._forced = {k: hints.of[paths[k]] for k in self._paths if paths[k] in hints.of}
        self._keys = {*hints.keys, *hints.of.values(), *(key for log in said for key in (log.device.key, log.host))}
        self._own: dict[str, list[TuningRecords]] = {}
        self._contents: dict[str, _Content] = {}
        self._alike: tuple[set[str], set[str]] | None = None
        self._by_name: set[int] = set()
        for log in said:
            if log.host == log.device.key:
                self._own.setdefault(log.host, []).append(log)

    def names(self) -> dict[int, TuningName]:
        """The meaning of the name of each log that does not contain its device."""
        meant: dict[int, list[TuningName]] = {}
        unclear: dict[int, UsageError] = {}
        for k in self._paths:
            try:
                meant[k] = self._meanings(k)
            except UsageError as error:
                unclear[k] = error
        if unclear:
            first, *others = unclear
            alike = f". The same holds for {', '.join(self._paths[k] for k in others)}" if others else ""
            raise UsageError(f"{unclear[first].message}{alike}", hint=unclear[first].hint) from unclear[first]
        fronts: dict[str, list[int]] = {}
        for k, options in meant.items():
            fronts.setdefault(options[0].key, []).append(k)
        hosts = self._keys | fronts.keys()
        decided: dict[int, TuningName] = {}
        # Unambiguous names come first, then shorter ones: a host's own name is shorter than those of its collections.
        for k in sorted(
            meant, key=lambda k: (any(o.found_on in hosts for o in meant[k]), len(meant[k][0].key), meant[k][0].key)
        ):
            decided[k] = self._decided(k, meant[k], fronts)
            self._keys |= {decided[k].key, decided[k].host}
            if decided[k].host == decided[k].key:
                self._own.setdefault(decided[k].host, []).append(self._records[k])
                self._contents.pop(decided[k].host, None)
                self._alike = None
        lefts: dict[str, set[int]] = {}
        for k, name in decided.items():
            for option in meant[k] if not name.found_on else ():
                lefts.setdefault(option.key, set()).add(k)
        for k, name in decided.items():
            self._check(k, name, meant[k], lefts)
        return decided

    def _meanings(self, k: int) -> list[TuningName]:
        key = self._forced.get(k)
        if key is None:
            try:
                return readings(self._paths[k], self._hints.keys)
            except UsageError as error:
                hint = f"{error.hint} Or name its device: {_ANALYZE} --device KEY={shlex.quote(self._paths[k])}"
                raise UsageError(f"{error.message}, and neither does the content of the file", hint=hint) from error
        try:
            options = [o for o in readings(self._paths[k], (*self._hints.keys, key)) if o.key == key]
            return options or [replace(parse_tuning_name(self._paths[k]), key=key)]
        except UsageError:
            return [TuningName(key=key, model=_UNKNOWN, dtype="float32")]

    def _decided(self, k: int, options: Sequence[TuningName], fronts: Mapping[str, list[int]]) -> TuningName:
        """The only reading that fits the names and the content. UsageError if several fit."""
        sure = [o for o in options if {o.key, o.host} <= set(self._hints.keys)]
        left = sure or [o for o in options if not o.found_on or o.found_on in self._keys] or list(options)
        if len(left) == 1:
            return left[0]
        alone = next((o for o in left if not o.found_on), None)
        pairs = [o for o in left if o.found_on]
        content = _Content([self._records[k]])
        proved = [o for o in pairs if self._proves(content, o.found_on)]
        fit = [o for o in pairs if self._holds(content, o.found_on)]
        if len(proved) == 1:
            return proved[0]
        # With a single own log there is nothing else to compare with. If the configurations of each of two devices were
        # measured on the other, the names are enough, unless the times of day contradict them.
        if len(fit) == 1 and (alone is None or len(self._own) == 1 or self._mirrored(fit[0], fronts)):
            if alone is not None:
                self._by_name.add(k)
            return fit[0]
        if not fit:
            bare = [o for o in pairs if o.found_on not in self._own]
            if bare and len(pairs) == 1:
                return bare[0]  # the host is among the hints, and has no log here that could contain this one
            if alone is not None and not bare and not any(self._content(o.found_on).meets(content) for o in pairs):
                return alone
        raise self._open(k, left)

    def _check(self, k: int, name: TuningName, options: Sequence[TuningName], lefts: Mapping[str, set[int]]) -> None:
        """Raise UsageError for a reading that follows from names alone, if other readings contradict it.

        `lefts` has the logs whose names are used unsplit as keys, by the possible left halves of these names.
        """
        if k in self._forced or {name.key, name.host} <= set(self._hints.keys):
            return
        if name.found_on:
            # It may be unclear where the key ends and the model begins: a key in another name may be a key here too.
            dotted = name.key not in self._own and any(key.startswith(f"{name.key}.") for key in self._own)
            if dotted or (k in self._by_name and options[0].key in self._keys):
                raise self._open(k, options)
            return
        bare = [o for o in options if o.found_on and o.found_on not in self._own]
        if halves := [o for o in bare if o.key in self._keys or lefts.get(o.found_on, set()) - {k}]:
            raise self._open(k, [name, *halves])

    def _holds(self, content: _Content, key: str) -> bool:
        """Return True if a device's own logs contain all configurations of a log."""
        return key in self._own and content.configurations <= self._content(key).configurations

    def _proves(self, content: _Content, key: str) -> bool:
        """Return True if a device's own logs contain the log, and not by chance: no other device's logs contain the
        same configurations, or the times of day agree.
        """
        apart = len(self._own) > 1 and key not in self._in_common()[1]
        return self._holds(content, key) and (apart or self._dates(content, key))

    def _dates(self, content: _Content, key: str) -> bool:
        """Return True if the times of day are those of a device's own logs, and differ from those of all other logs."""
        if key not in self._own or key in self._in_common()[0]:
            return False
        own = self._content(key).trials
        return content.trials <= own and len({at_s for _, at_s in own}) > 1

    def _mirrored(self, name: TuningName, fronts: Mapping[str, list[int]]) -> bool:
        """Return True if a log with the reversed name exists too, with configurations from this device that were
        measured on the other, and if their times of day do not show their origin.
        """
        back = fronts.get(f"{name.found_on}_{name.key}", [])
        return bool(back) and not any(self._dates(_Content([self._records[k]]), name.key) for k in back)

    def _in_common(self) -> tuple[set[str], set[str]]:
        """The devices whose own logs share trials, including the times of day, with other devices; and those whose own
        logs share configurations.
        """
        if self._alike is None:
            contents = {name: self._content(name) for name in self._own}
            self._alike = (
                _in_common({name: content.trials for name, content in contents.items()}),
                _in_common({name: content.configurations for name, content in contents.items()}),
            )
        return self._alike

    def _content(self, key: str) -> _Content:
        """The content of a device's own logs."""
        if key not in self._contents:
            self._contents[key] = _Content(self._own[key])
        return self._contents[key]

    def _open(self, k: int, left: Sequence[TuningName]) -> UsageError:
        file = self._paths[k].rstrip("/").rpartition("/")[2]
        ways = [
            f"{o.model} measured on {o.key}" + (f" with configurations from {o.found_on}" if o.found_on else "")
            for o in left[:_MOST_TOLD]
        ]
        more = f", or {len(left) - _MOST_TOLD} others" if len(left) > _MOST_TOLD else ""
        answers = [" ".join(f"--device {shlex.quote(key)}" for key in sorted({o.key, o.host})) for o in left[:2]]
        return UsageError(
            f"the name {shown(file)} is ambiguous, and the content of the logs does not settle its meaning: "
            f"{' or '.join(ways)}{more}",
            hint=f"Rename the file, or give {_ANALYZE} the keys that exist, such as {' or '.join(answers)}. Or name "
            f"the device of the file: --device KEY={shlex.quote(self._paths[k])}",
        )


def _in_common(sets: Mapping[str, set[Any]]) -> set[str]:
    """The names of the sets that share an element with another set."""
    met: dict[Any, str] = {}
    shared = set()
    for name, members in sets.items():
        for item in members:
            if (other := met.setdefault(item, name)) != name:
                shared |= {name, other}
    return shared


class _Content:
    """The content of logs for comparison: configurations of layers, and these together with their times of day."""

    def __init__(self, logs: Sequence[TuningRecords]) -> None:
        self.configurations: set[Name] = set()
        self.trials: set[tuple[Name, float]] = set()
        for columns in (columns_of(log.trials) for log in logs):
            names = [columns.names[index] for index in columns.which.tolist()]
            self.configurations.update(names)
            self.trials.update(zip(names, columns.at_s.tolist(), strict=True))

    def meets(self, other: _Content) -> bool:
        """Return True if the two have a configuration in common."""
        return not self.configurations.isdisjoint(other.configurations)

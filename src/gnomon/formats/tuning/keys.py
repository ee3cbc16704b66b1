"""Which device each log is of: from the names of all logs together, what is in them, and what the user says.

``b_a.net.float32.json`` is "measured on b, found on a" in one set of files, and a device of that name in another. A
front is cut in two where the right half has a log of its own among the files; the left one may never have been tuned.
Then the content decides, since what was collected is a part of its origin's own log. Ferule copied the time of day of
each trial along with its configuration (``collect`` in ``measure_common.py``), so that times of day are compared as
well where they fit: grids are searched alike on all devices, and their configurations say nothing. What stays open is
an error with all readings: two devices are never taken for one because of a name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gnomon.core.overlay.records import TunedModel, TuningRecords
from gnomon.core.strict_json import shown
from gnomon.errors import UsageError
from gnomon.formats.tuning.names import TuningName, parse_tuning_name, readings

_UNKNOWN = "unknown"
_MOST_TOLD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a user says of logs that do not say it themselves.

    `keys` are keys of devices, no matter in which name they stand; `of` says of a path which device was measured.
    """

    keys: tuple[str, ...] = ()
    of: Mapping[str, str] = field(default_factory=dict)


NOTHING = Told()


def name_logs(paths: Sequence[str], records: Sequence[TuningRecords], told: Told = NOTHING) -> list[TuningRecords]:
    """The record sets with device, origin and model; those that say it themselves stay as they are.

    UsageError where a name means nothing, or where several readings are left; for a device that was told of a file
    which says another itself; and for a key that was told and that no log is of.
    """
    for path, one in zip(paths, records, strict=True):
        key = told.of.get(path, one.device.key)
        if one.device.key and key != one.device.key:
            raise UsageError(
                f"{path} says itself that it is of {shown(one.device.key)}, and not of {shown(key)}",
                hint="Leave the device of this file out.",
            )
    logs = _Logs(paths, records, told)
    names = logs.names()
    models = {(name.model, name.dtype) for name in names.values() if name.model != _UNKNOWN}
    models |= {(one.model.name, one.model.dtype) for one in records if one.device.key}
    only = next(iter(models)) if len(models) == 1 else None
    made = []
    for number, one in enumerate(records):
        if (name := names.get(number)) is not None:
            model, dtype = only if only and name.model == _UNKNOWN else (name.model, name.dtype)
            named = TunedModel(name=model, dtype=dtype)
            one = replace(one, device=replace(one.device, key=name.key), found_on=name.found_on, model=named)
        made.append(one)
    met = {key for one in made for key in (one.device.key, one.host)}
    if strange := [key for key in told.keys if key not in met]:
        raise UsageError(
            f"none of the logs is of a device {shown(strange[0])}",
            hint=f"Their devices are {', '.join(sorted(met))}. KEY=FILE says which one a file is of.",
        )
    return made


class _Logs:
    """Logs whose devices are looked for."""

    def __init__(self, paths: Sequence[str], records: Sequence[TuningRecords], told: Told) -> None:
        self._told, self._records = told, records
        said = [one for one in records if one.device.key]
        # A folder with a database is named as a file would be.
        self._paths = {
            k: path if one.tuner != "metaschedule" else f"{path.rstrip('/')}.json"
            for k, (path, one) in enumerate(zip(paths, records, strict=True))
            if not one.device.key
        }
        self._forced = {k: told.of[paths[k]] for k in self._paths if paths[k] in told.of}
        self._keys = {*told.keys, *told.of.values(), *(key for one in said for key in (one.device.key, one.host))}
        self._own: dict[str, list[TuningRecords]] = {}
        self._contents: dict[str, _Content] = {}
        for one in said:
            if one.host == one.device.key:
                self._own.setdefault(one.host, []).append(one)

    def names(self) -> dict[int, TuningName]:
        """The name of each log that does not say it itself, as it is meant."""
        meant = {k: self._meanings(k) for k in self._paths}
        fronts = {options[0].key for options in meant.values()}
        found: dict[int, TuningName] = {}
        # A host's own name is shorter than those of what was collected from it.
        for k in sorted(meant, key=lambda k: (len(meant[k]) > 1, len(meant[k][0].key), meant[k][0].key)):
            found[k] = self._decided(k, meant[k], fronts)
            self._keys |= {found[k].key, found[k].host}
            if found[k].host == found[k].key:
                self._own.setdefault(found[k].host, []).append(self._records[k])
                self._contents.pop(found[k].host, None)
        lefts: dict[str, set[int]] = {}
        for k, name in found.items():
            for option in meant[k] if not name.found_on else ():
                lefts.setdefault(option.key, set()).add(k)
        for k, name in found.items():
            self._check(k, name, meant[k], lefts)
        return found

    def _meanings(self, k: int) -> list[TuningName]:
        key = self._forced.get(k)
        if key is None:
            try:
                return readings(self._paths[k], self._told.keys)
            except UsageError as error:
                hint = f"Say of which device it is: --device KEY={shlex.quote(self._paths[k])}. {error.hint}"
                raise UsageError(f"{error.message}, and the file itself does not either", hint=hint) from error
        try:
            options = [one for one in readings(self._paths[k], (*self._told.keys, key)) if one.key == key]
            return options or [replace(parse_tuning_name(self._paths[k]), key=key)]
        except UsageError:
            return [TuningName(key=key, model=_UNKNOWN, dtype="float32")]

    def _decided(self, k: int, options: Sequence[TuningName], fronts: set[str]) -> TuningName:
        """The one reading that names and content leave."""
        sure = [one for one in options if {one.key, one.host} <= set(self._told.keys)]
        left = sure or [one for one in options if not one.found_on or one.found_on in self._keys] or list(options)
        if len(left) == 1:
            return left[0]
        alone = next((one for one in left if not one.found_on), None)
        pairs = [one for one in left if one.found_on]
        content = _Content([self._records[k]])
        holders = self._holders(content)
        fit = [one for one in pairs if one.found_on in holders]
        if len(fit) == 1:
            (one,) = fit
            # That all own logs hold it says nothing; that each of the two was measured on the other does.
            if alone is None or len(holders) == 1 or f"{one.found_on}_{one.key}" in fronts:
                return one
        elif not fit:
            bare = [one for one in pairs if one.found_on not in self._own]
            if bare and len(pairs) == 1:
                return bare[0]  # its host was told, and has no log here that it could be a part of
            if alone is not None and not bare and not any(self._content(o.found_on).meets(content) for o in pairs):
                return alone
        raise self._open(k, left)

    def _check(self, k: int, name: TuningName, options: Sequence[TuningName], lefts: Mapping[str, set[int]]) -> None:
        """UsageError for a reading that names alone have decided, and that others contradict.

        `lefts` are the left halves of all names that were taken for a key as they are.
        """
        if k in self._forced or {name.key, name.host} <= set(self._told.keys):
            return
        if name.found_on:
            if name.key not in self._own and any(key.startswith(f"{name.key}.") for key in self._own):
                raise self._open(k, options)  # where does the key end, and the model begin?
            return
        bare = [one for one in options if one.found_on and one.found_on not in self._own]
        if halves := [one for one in bare if one.key in self._keys or lefts.get(one.found_on, set()) - {k}]:
            raise self._open(k, [name, *halves])

    def _holders(self, content: _Content) -> set[str]:
        """The keys of those whose own logs hold all of it: to the time of day, if there are such."""
        exact = {key for key in self._own if content.trials <= self._content(key).trials}
        return exact or {key for key in self._own if content.configurations <= self._content(key).configurations}

    def _content(self, key: str) -> _Content:
        """What the own logs of a device hold."""
        if key not in self._contents:
            self._contents[key] = _Content(self._own[key])
        return self._contents[key]

    def _open(self, k: int, left: Sequence[TuningName]) -> UsageError:
        file = self._paths[k].rstrip("/").rpartition("/")[2]
        ways = [
            f"{one.model} on {one.key}" + (f" of what was found on {one.found_on}" if one.found_on else "")
            for one in left[:_MOST_TOLD]
        ]
        more = f", or {len(left) - _MOST_TOLD} others" if len(left) > _MOST_TOLD else ""
        answers = [" ".join(f"--device {shlex.quote(key)}" for key in sorted({one.key, one.host})) for one in left[:2]]
        return UsageError(
            f"the name {shown(file)} fits several ways, and what is in the logs does not decide: "
            f"{' or '.join(ways)}{more}",
            hint=f"Say which keys devices have, such as {' or '.join(answers)}; or of which device it is: "
            f"--device KEY={shlex.quote(self._paths[k])}",
        )


class _Content:
    """What logs hold, to compare it with others: configurations of layers, and these with their times of day."""

    def __init__(self, logs: Sequence[TuningRecords]) -> None:
        lines = [(trial.layer, trial.configuration, trial.at_s) for one in logs for trial in one.trials]
        self.trials = set(lines)
        self.configurations = {(layer, configuration) for layer, configuration, _ in lines}

    def meets(self, other: _Content) -> bool:
        """Whether the two have a configuration in common."""
        return not self.configurations.isdisjoint(other.configurations)

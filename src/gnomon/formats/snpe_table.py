"""The latency table of the SNPE profiler in nnabla-nas: ``{unit: {runtime: {key: {statistic: microseconds}}}}``.

Sources: ``nnabla_nas/utils/profiler/snpe`` of sony/nnabla-nas (create_latency_table.py, sample_nnps.py, up to commit
8d18f3c). The lookup that counts is `LOOKUP`: the time in the layers, without what a call costs around them.

Whole numbers stay whole (snpe-bench tells its own times so) and sums keep their ``.0``: what is read is written back
letter for letter. A time of 0 is no time: the readers complain about it, except for a minimum, since SNPE tells whole
microseconds and a layer can take less.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core.strict_json import Strict, is_text, shown
from gnomon.errors import UsageError
from gnomon.formats.complaints import Complaints

Number = int | float
Entries = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Number]]]]

KEYS = ("Forward Propagate", "Total Inference Time", "Layers Time")
STATISTICS = ("Min_Time", "Avg_Time", "Max_Time")
LOOKUP = ("Layers Time", "Avg_Time")
"""The key and the statistic that a table is asked for."""

MOST_LETTERS = 64 << 20
MOST_NAME = 4096
HINT = "Give the csv or json that create_latency_table.py of nnabla-nas wrote, or write one: gnomon table export"
_RUNTIME = re.compile(r"[A-Za-z][A-Za-z0-9_.:+-]{0,63}", re.ASCII)
_FILE = Strict(what="latency table", hint=HINT, most_letters=MOST_LETTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpeTable:
    """A table in microseconds, in the order of its file. A unit may lack a runtime: see `gaps`."""

    entries: Entries

    @property
    def units(self) -> tuple[str, ...]:
        """The units' names."""
        return tuple(self.entries)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that any unit has, in the order of their first appearance."""
        return tuple(dict.fromkeys(runtime for by_runtime in self.entries.values() for runtime in by_runtime))

    def lookup_us(self, unit: str, runtime: str, *, key: str = LOOKUP[0], statistic: str = LOOKUP[1]) -> Number:
        """A time in microseconds; UsageError with what there is where there is none."""
        by_runtime = self.entries.get(unit)
        if by_runtime is None:
            near = difflib.get_close_matches(unit[:MOST_NAME], self.units[:1000], n=1)
            hint = f"Nearest: {near[0]}" if near else f"The table has {len(self.entries)} other units."
            raise UsageError(f"the table has no unit {shown(unit)}", hint=hint)
        found = by_runtime.get(runtime, {}).get(key, {}).get(statistic)
        if found is None:
            has = ", ".join(by_runtime) or "none"
            raise UsageError(
                f"the table has no {runtime}, {key}, {statistic} of {shown(unit)}",
                hint=f"Runtimes of this unit: {has}. Measure what is missing, or choose another runtime.",
            )
        return found

    def accumulated_us(self, units: Iterable[str], runtime: str) -> float:
        """The sum over a net's units, one term for each time that a unit occurs, added in their order.

        UsageError with all the units that the table lacks for this runtime.
        """
        total, missing = 0.0, []
        for unit in units:
            found = self.entries.get(unit, {}).get(runtime, {}).get(LOOKUP[0], {}).get(LOOKUP[1])
            if found is None:
                missing.append(unit)
            else:
                total += found
        if missing:
            lacking = list(dict.fromkeys(missing))
            raise UsageError(
                f"the table has no time on {runtime} of {len(lacking)} units: {', '.join(map(shown, lacking[:5]))}",
                hint=f"Measure them, or choose a runtime of the table: {', '.join(self.runtimes)}.",
            )
        return total


def gaps(entries: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Pairs of a unit and a runtime that other units have and it lacks, in the table's order."""
    runtimes = dict.fromkeys(runtime for by_runtime in entries.values() for runtime in by_runtime)
    return tuple((unit, runtime) for unit, has in entries.items() for runtime in runtimes if runtime not in has)


def read_snpe_json(text: str | bytes) -> SnpeTable:
    """Reads the json. Raises ProblemError with everything that is wrong, each with its path."""
    table, complaints = scan_snpe_json(text)
    complaints.raise_any()
    return table


def scan_snpe_json(text: str | bytes) -> tuple[SnpeTable, Complaints]:
    """The good part of a json and the complaints about the rest. ProblemError only for what is no JSON object."""
    complaints = Complaints(what="latency table", hint=HINT)
    found: dict[str, dict[str, dict[str, dict[str, Number]]]] = {}
    for unit, runtimes in _FILE.object(_FILE.parse(text), "$").items():
        place = f"$[{shown(unit)}]"
        if (wrong := wrong_unit(unit)) or not isinstance(runtimes, dict):
            complaints.tell(place, wrong or f"an object of runtimes expected, {shown(runtimes)} found")
            continue
        for runtime, keys in runtimes.items():
            times = _times(keys, f"{place}.{shown(runtime)}", complaints)
            if wrong := wrong_runtime(runtime):
                complaints.tell(place, wrong)
            elif times:
                found.setdefault(unit, {})[runtime] = times
    for unit, runtime in gaps(found):
        complaints.tell(f"$[{shown(unit)}]", missing(runtime))
    if not found and not complaints.told:
        complaints.tell("$", "no unit at all")
    return SnpeTable(entries=found), complaints


def write_snpe_json(table: SnpeTable) -> str:
    """The json, letter for letter as the replaced tool writes it."""
    return json.dumps(table.entries)


def wrong_unit(unit: str) -> str:
    """What is wrong with a unit's name, or "". The tool took a part of the path for it where its folder was no name."""
    if not unit or len(unit) > MOST_NAME or not is_text(unit) or not unit.isprintable():
        return f"the name of a unit, of 1 to {MOST_NAME} printable letters, expected, {shown(unit)} found"
    if "/" in unit or "\\" in unit:
        return f"{shown(unit)} is a path, and no unit's name holds a slash"
    return ""


def wrong_runtime(runtime: str) -> str:
    """What is wrong with a runtime's name, or ""."""
    if _RUNTIME.fullmatch(runtime):
        return ""
    return f"a runtime such as CPU, GPU, GPU_FP16 or DSP expected, {shown(runtime)} found"


def wrong_time(value: Any, statistic: str) -> str:
    """What is wrong with a time, or ""."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return f"a time above 0 expected, {shown(value)} found"
    if value == 0 and statistic != "Min_Time":
        return "a time above 0 expected, 0 found: what failed has no time, and never counts as 0"
    return ""


def missing(runtime: str) -> str:
    """The complaint about a runtime that other units have."""
    return f"no times on {runtime}, which other units have"


def one_of(name: Any, names: tuple[str, ...]) -> str:
    """What is wrong with a name that must be one of these, or ""."""
    return "" if name in names else f"one of {', '.join(names)} expected, {shown(name)} found"


def _times(keys: Any, place: str, complaints: Complaints) -> dict[str, dict[str, Number]]:
    found: dict[str, dict[str, Number]] = {}
    if not isinstance(keys, dict):
        complaints.tell(place, f"an object of keys expected, {shown(keys)} found")
        return found
    for key, statistics in keys.items():
        if (wrong := one_of(key, KEYS)) or not isinstance(statistics, dict):
            complaints.tell(place, wrong or f"an object of statistics expected, {shown(statistics)} found")
            continue
        for statistic, value in statistics.items():
            wrong = one_of(statistic, STATISTICS) or wrong_time(value, statistic)
            if wrong:
                complaints.tell(f"{place}.{key}.{shown(statistic)}", wrong)
            else:
                found.setdefault(key, {})[statistic] = value
    return found

"""Import and export of tables of nnabla-nas's SNPE profiler: a csv or json file, and the .meta file next to it."""

from __future__ import annotations

import csv
import io
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import gnomon
from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ProblemError, UsageError, system_errors
from gnomon.formats.nets_csv import read_nets
from gnomon.formats.snpe.meta import read_snpe_meta, write_snpe_meta
from gnomon.formats.snpe.table import (
    KEYS,
    LOOKUP,
    Entries,
    Number,
    runtimes_of,
    scan_nnabla_csv,
    scan_snpe_csv,
    scan_snpe_json,
    write_accumulation,
    write_snpe_csv,
    write_snpe_json,
)
from gnomon.jobs.table.folder import check_unused, context_document, read_table, table_space, write_table
from gnomon.report.plain import many, untaken
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import uids_of
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.loading import SearchSpace, load_space, text_reader
from gnomon.spaces.uid import unit_of_uid
from gnomon.spaces.unit import Unit
from gnomon.system.files import read_file, save_text

_US, _MS = 1e-6, 1e-3
_MOST_SHOWN = 5
_COLUMNS = ("id", "label", "status", "time_us", "call_us", "low_us", "high_us")
_STATISTICS = ("Min_Time", "Avg_Time", "Max_Time")
_STRANGE = re.compile(r"[^A-Za-z0-9_.+-]")


def import_tables(
    file: Path, out: Path, *, space: str, runtime: str | None = None, key: str = LOOKUP[0]
) -> tuple[dict[Path, Table], tuple[str, ...]]:
    """Make tables from a csv or json file: one at `out`, or one at `out`/RUNTIME for each of several runtimes.

    `runtime` selects one of the file's runtimes (None: all), and `key` one of its times. Returns the tables by path,
    and a sentence for each part that was left out. In a folder's name, special characters in the runtime's name become
    dashes. UsageError for a runtime or key that the file does not have, ProblemError for a file without a usable unit.
    """
    if key not in KEYS:
        raise UsageError(f"there is no time {key!r}", hint=f"Times: {', '.join(KEYS)}.")
    entries, complaints = read_profiled(file)
    if not (runtimes := runtimes_of(entries)):
        raise UsageError(f"{file} has no unit with times", hint="Give a file in the format of gnomon table export.")
    if runtime is not None:
        if runtime not in runtimes:
            raise UsageError(f"{file} has no runtime {runtime!r}", hint=f"Give --runtime one of {', '.join(runtimes)}.")
        runtimes = (runtime,)
    units: dict[str, Unit] = {}
    for text in entries:
        try:
            units[text] = unit_of_uid(text)
        except ProblemError as error:
            complaints.tell(text[:80], error.message)
    if not units:
        complaints.raise_any()
        raise ProblemError(f"{file} has no units", hint="Give a latency table of nnabla-nas.")
    loaded = load_space(space)
    _tell_foreign(tuple(units.values()), loaded, complaints, file)
    meta = file.with_suffix(".meta")
    hint = f"Correct {meta.name}, or remove it."
    described = read_snpe_meta(read_file(meta, hint=hint)) if meta.is_file() else {}
    notes = tuple(f"{k}:{v}" for k, v in described.items())
    tables = [
        Table(
            manifest=Manifest(
                space=loaded.name,
                context=context_document({"runtime": name, "source": "nnabla-nas", "key": key, "notes": notes}),
                clock="wall",
                overhead_s=0.0,
                notes=notes,
                created_at_s=time.time(),
                gnomon_version=gnomon.__version__,
            ),
            rows=tuple(_row(unit, name, entries[text].get(name), key) for text, unit in units.items()),
        )
        for name in runtimes
    ]
    if len(tables) == 1:
        places = [out]
    else:
        check_unused(out)
        taken: set[str] = set()
        places = [out / untaken(_STRANGE.sub("-", name), taken) for name in runtimes]
    for place, table in zip(places, tables, strict=True):
        write_table(table, place, loaded)
    return dict(zip(places, tables, strict=True)), tuple(complaints.sentences)


def _tell_foreign(units: Sequence[Unit], space: SearchSpace, complaints: Complaints, file: Path) -> None:
    """Report the units that the space does not have. UsageError if it has none of them."""
    own = set(space.tables(UNFUSED).units)
    foreign = [unit.label for unit in units if unit not in own]
    if len(foreign) == len(units):
        raise UsageError(
            f"the space {space.name} has none of the {len(units)} units in {file}, such as {foreign[0]}",
            hint="Give the file's own space with --space.",
        )
    if foreign:
        listed = f"{', '.join(foreign[:_MOST_SHOWN])}{', ..' if len(foreign) > _MOST_SHOWN else ''}"
        complaints.tell(f"{len(foreign)} of {len(units)} units", f"the space {space.name} lacks {listed}")


def export_table(
    paths: Sequence[Path], out: Path, space: str | None = None
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write tables as csv or json, depending on the ending of `out`, with a .meta file next to it.

    The tables must belong to one space, and each to a different runtime; each unit lists the runtimes in the given
    order. Returns the files, and a sentence for each unit that was left out because it has no time. A single table of
    fused units, which have no names in nnabla-nas, becomes a csv in gnomon's own format, with one line for each unit.
    UsageError for any other ending.
    """
    if out.suffix not in (".csv", ".json"):
        raise UsageError(f"{out} ends in neither .csv nor .json", hint="Give --out FILE.csv or FILE.json.")
    if len(paths) == 1 and out.suffix == ".csv" and _fused(table := read_table(paths[0])):
        save_text(_units_csv(table), out)
        return (out,), ()
    tables, _ = _beside(paths, space)
    names = uids_of(next(iter(tables.values())).manifest.space)
    units = dict.fromkeys(row.unit for table in tables.values() for row in table.rows)
    entries: dict[str, dict[str, dict[str, dict[str, Number]]]] = {names(unit): {} for unit in units}
    for runtime, table in tables.items():
        for row in table.rows:
            if row.status != "failed":
                entries[names(row.unit)][runtime] = _statistics(row, table)
    entries = {unit: times for unit, times in entries.items() if times}
    if not entries:
        which = ", ".join(map(str, paths))
        raise UsageError(f"no unit of {which} has a time", hint="See why with `gnomon table check`.")
    text = write_snpe_csv(entries) if out.suffix == ".csv" else write_snpe_json(entries)
    meta = out.with_suffix(".meta")
    save_text(text, out)
    save_text(write_snpe_meta(_meta(list(tables.values()))), meta)
    return (out, meta), tuple(
        f"{row.unit.label}{f' ({runtime})' if len(tables) > 1 else ''}: {row.reason}"
        for runtime, table in tables.items()
        for row in table.failed
    )


def _fused(table: Table) -> list[str]:
    """The chains of operators that form a single unit of a table."""
    return sorted({row.unit.chain for row in table.rows if len(row.unit.layers) > 1})


def _units_csv(table: Table) -> str:
    """A table as csv, with a line for each unit: in microseconds, the time that the unit adds to a net, and the time of
    a call of the unit alone, with its 95 % interval.
    """
    times, text = table.times_s, io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for row in table.rows:
        times_s = (times.get(row.unit), row.call_s, row.low_s, row.high_s)
        figures = ("" if seconds is None else seconds / _US for seconds in times_s)
        lines.writerow([row.unit.id, row.unit.label, row.status, *figures])
    return text.getvalue()


def export_sums(paths: Sequence[Path], nets: Path, out: Path, space: str | None = None) -> tuple[Path, ...]:
    """Write the sum of a table's times for each net of a csv, as nnabla-nas's profiler does: OUT/000.json and so on.

    Each file has the sums for all given tables. UsageError for a table of fused units, and for a net with a unit that
    has no time.
    """
    tables, loaded = _beside(paths, space, needed=True)
    assert loaded is not None  # noqa: S101  # `needed` loads it
    rows = read_nets(read_file(nets, hint="Give a csv of nets."), loaded.space, text_reader(loaded))
    key, statistic = LOOKUP
    times = {
        runtime: {row.unit: _statistics(row, table)[key][statistic] for row in table.rows if row.status != "failed"}
        for runtime, table in tables.items()
    }
    sums: list[dict[str, Number]] = []
    for index, row in enumerate(rows):
        counts = loaded.net(row.assignment).counts()
        sums.append({})
        for runtime, prices in times.items():
            lacking = [unit.label for unit in counts if unit not in prices]
            if lacking:
                where = f" on {runtime}" if len(times) > 1 else ""
                raise UsageError(
                    f"net {index + 1} of {nets} has {many(len(lacking), 'unit')} without a time{where}:"
                    f" {', '.join(lacking[:5])}",
                    hint="Measure these units with `gnomon table build`, or leave the net out.",
                )
            sums[-1][runtime] = math.fsum(prices[unit] * count for unit, count in counts.items())
    with system_errors(UsageError, f"the folder {out} cannot be created", hint="Give --out another folder."):
        out.mkdir(parents=True, exist_ok=True)
    files = tuple(out / f"{index:03d}.json" for index in range(len(sums)))
    for file, total in zip(files, sums, strict=True):
        save_text(write_accumulation(total), file)
    return files


def _beside(
    paths: Sequence[Path], space: str | None, *, needed: bool = False
) -> tuple[dict[str, Table], SearchSpace | None]:
    """Tables that can be written to one file, by runtime, and their space if it is given or needed.

    UsageError if they belong to several spaces, if two have the same runtime, or if one has fused units.
    """
    tables: dict[str, Table] = {}
    places: dict[str, Path] = {}
    first: Table | None = None
    loaded: SearchSpace | None = None
    for path in paths:
        table = read_table(path)
        if chains := _fused(table):
            raise UsageError(
                f"the table {path} has fused units ({', '.join(chains[:3])}), which have no UID in nnabla-nas",
                hint="For nnabla-nas, build a table of single operators: gnomon table build SPACE --fuse none. To list "
                "the units of one table: gnomon table export TABLE --out FILE.csv",
            )
        if first is None:
            first = table
            if needed or space is not None:
                loaded = table_space(path, table.manifest.space, space)
        if table.manifest.space != first.manifest.space:
            raise UsageError(
                f"{path} belongs to the space {shown(table.manifest.space)}, and"
                f" {next(iter(places.values()))} to {shown(first.manifest.space)}",
                hint="Give the tables of one space.",
            )
        context = table.manifest.context
        chosen = table.manifest.command.get("choices")
        backend = chosen.get("backend") if isinstance(chosen, Mapping) else context.get("backend")
        runtime = str(backend or context.get("runtime", "CPU"))
        if runtime in tables:
            raise UsageError(
                f"{places[runtime]} and {path} both have times of the runtime {runtime}",
                hint="Give one table for each runtime. `gnomon table merge` joins two tables of a runtime.",
            )
        tables[runtime], places[runtime] = table, path
    if first is None:
        raise UsageError("no table is given", hint="Give the directory that `gnomon table build` made.")
    return tables, loaded


def read_profiled(file: Path) -> tuple[Entries, Complaints]:
    """The times in a csv or json file of the profiler, and complaints about unusable parts.

    Raises UsageError and ProblemError.
    """
    data = read_file(file, hint="Give a csv or json file.")
    if file.suffix == ".json":
        return scan_snpe_json(data)
    first = data.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    try:
        columns = sum(map(len, csv.reader([first])))
    except csv.Error:  # the readers report it
        columns = 0
    if columns == 3:
        plain, complaints = scan_nnabla_csv(data)
        entries = {
            unit: {runtime: {LOOKUP[0]: {LOOKUP[1]: ms * _MS / _US}} for runtime, ms in times.items()}
            for unit, times in plain.items()
        }
        return entries, complaints
    return scan_snpe_csv(data)


def _row(unit: Unit, name: str, keys: Mapping[str, Mapping[str, Number]] | None, key: str) -> Row:
    """The row of a unit on a runtime, with the file's own figures, so that they are exported unchanged."""
    average = (keys or {}).get(key, {}).get(LOOKUP[1])
    if keys is None or not average:
        lacking = name if keys is None else f"{key}, {LOOKUP[1]}"
        return Row(unit=unit, status="failed", at_s=time.time(), reason=f"the file has no {lacking} for this unit")
    return Row(
        unit=unit,
        status="ok",
        at_s=time.time(),
        call_s=average * _US,
        reported={f"{k}/{statistic}": value for k, values in keys.items() for statistic, value in values.items()},
    )


def _statistics(row: Row, table: Table) -> dict[str, dict[str, Number]]:
    """The figures of a row by key and statistic, in microseconds: the imported ones, or else those of the samples."""
    by_key: dict[str, dict[str, Number]] = {}
    for name, value in row.reported.items():
        key, _, statistic = name.partition("/")
        by_key.setdefault(key, {})[statistic] = value if row.drift == 1 else round(value * row.drift, 3)
    if by_key or row.call_s is None:
        return by_key
    values = [s for block in row.samples.values() for s in block] or [row.call_s]
    overhead = table.manifest.overhead_s
    calls = (min(values) * row.drift, row.call_s, max(values) * row.drift)
    own = [max(call - overhead, 1e-3 * call) for call in calls]
    layers = {s: round(time_s / _US, 3) for s, time_s in zip(_STATISTICS, own, strict=True)}
    whole = {s: round(call / _US, 3) for s, call in zip(_STATISTICS, calls, strict=True)}
    # If only the layers were timed, the time of a whole call is unknown.
    return {**({"Total Inference Time": whole} if overhead else {}), "Layers Time": layers}


def _meta(tables: Sequence[Table]) -> dict[str, str]:
    """The meta file of several tables: each key with the different values that the tables have."""
    meta: dict[str, dict[str, None]] = {}
    for table in tables:
        context = table.manifest.context
        device = context.get("device") or {}
        own: Mapping[str, str] = {
            "ro.product.model": str(device.get("cpu_model") or device.get("machine") or "unknown"),
            "Date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(table.manifest.created_at_s)),
            "Devices": str(context.get("configuration", "")),
        }
        if table.manifest.notes:
            # One of the keys itself ends in a colon.
            own = read_snpe_meta("\n".join(table.manifest.notes))
        for key, value in own.items():
            meta.setdefault(key, {})[value] = None
    return {key: ", ".join(values) for key, values in meta.items()}

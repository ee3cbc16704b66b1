"""Tables of nnabla-nas's SNPE profiler in and out: csv or json, and the .meta beside it."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import gnomon
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.nets_csv import read_nets
from gnomon.formats.snpe.bench import write_accumulation
from gnomon.formats.snpe.meta import SnpeMeta, read_snpe_meta, write_snpe_meta
from gnomon.formats.snpe.table import (
    KEYS,
    LOOKUP,
    Number,
    SnpeTable,
    scan_nnabla_csv,
    scan_snpe_csv,
    scan_snpe_json,
    write_snpe_csv,
    write_snpe_json,
)
from gnomon.jobs.table.folder import context_document, read_table, write_table
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import uids_of
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.loading import SearchSpace, load_space, space_of
from gnomon.spaces.uid import unit_of_uid
from gnomon.spaces.unit import Unit
from gnomon.system.files import save_text

_US, _MS = 1e-6, 1e-3
_MOST_SHOWN = 5
_STATISTICS = ("Min_Time", "Avg_Time", "Max_Time")


def import_table(
    file: Path, out: Path, *, space: str, runtime: str | None = None, key: str = LOOKUP[0]
) -> tuple[Table, tuple[str, ...]]:
    """Make a table at `out` of a csv or json; returns it, and what of the file was left out, in sentences.

    UsageError for a runtime or key that the file has not, ProblemError for a file of which nothing can be used.
    """
    if key not in KEYS:
        raise UsageError(f"there is no time {key!r}", hint=f"Times: {', '.join(KEYS)}.")
    found, complaints = _read(file)
    name = _runtime(found, runtime)
    rows = []
    for text, runtimes in found.entries.items():
        try:
            unit = unit_of_uid(text)
        except ProblemError as error:
            complaints.tell(text[:80], error.message)
            continue
        if name not in runtimes:
            rows.append(Row(unit=unit, status="failed", at_s=time.time(), reason=f"the file has no {name} of it"))
            continue
        rows.append(_row(unit, runtimes[name], key))
    if not rows:
        complaints.raise_any()
        raise ProblemError(f"{file} has no unit", hint="Give a table of nnabla-nas.")
    known = load_space(space)
    _tell_foreign(rows, known, complaints, file)
    meta = file.with_suffix(".meta")
    lines = tuple(f"{k}:{v}" for k, v in read_snpe_meta(meta.read_bytes()).values.items()) if meta.is_file() else ()
    manifest = Manifest(
        space=known.name,
        context=context_document({"runtime": name, "source": "nnabla-nas", "key": key, "notes": lines}),
        clock="wall",
        overhead_s=0.0,
        notes=lines,
        created_at_s=time.time(),
        gnomon_version=gnomon.__version__,
    )
    table = Table(manifest=manifest, rows=tuple(rows))
    write_table(table, out)
    return table, tuple(complaints.told)


def _tell_foreign(rows: Sequence[Row], space: SearchSpace, complaints: Complaints, file: Path) -> None:
    """Name the rows whose units the space does not have. UsageError where it has none of them."""
    own = set(space.tables(UNFUSED).units)
    foreign = [row.unit.label for row in rows if row.unit not in own]
    if len(foreign) == len(rows):
        raise UsageError(
            f"the space {space.name} has none of the {len(rows)} units of {file}, such as {foreign[0]}",
            hint="Name the space that the file is of: --space.",
        )
    if foreign:
        told = f"{', '.join(foreign[:_MOST_SHOWN])}{', ..' if len(foreign) > _MOST_SHOWN else ''}"
        complaints.tell(f"{len(foreign)} of {len(rows)} units", f"the space {space.name} does not have them: {told}")


def export_table(path: Path, out: Path, space: str | None = None) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write a table as csv or json, by the ending of `out`, with a .meta beside it.

    Returns the files, and the units that were left out as they have no time, a sentence each.
    UsageError for another ending, or for a table of fused units, which nnabla-nas has no names for.
    """
    if out.suffix not in (".csv", ".json"):
        raise UsageError(f"{out} is neither .csv nor .json", hint="Give --out FILE.csv or FILE.json.")
    table = read_table(path)
    _unfused(table)
    if space is not None:
        space_of(path, table.manifest.space, space)
    names = uids_of(table.manifest.space)
    runtime = _runtime_of(table)
    entries = {names(row.unit): {runtime: _statistics(row, table)} for row in table.rows if row.status != "failed"}
    if not entries:
        raise UsageError(f"no unit of {path} has a time", hint="See why with `gnomon table check`.")
    found = SnpeTable(entries=entries)
    text = write_snpe_csv(found) if out.suffix == ".csv" else write_snpe_json(found)
    meta = out.with_suffix(".meta")
    save_text(text, out)
    save_text(write_snpe_meta(SnpeMeta(values=_meta(table))), meta)
    return (out, meta), tuple(f"{row.unit.label}: {row.reason}" for row in table.failed)


def export_sums(path: Path, nets: Path, out: Path, space: str | None = None) -> tuple[Path, ...]:
    """Write the sum of a table's times for each net of a csv, as nnabla-nas's profiler does: OUT/000.json and so on.

    UsageError for a table of fused units, and for a net with a unit that has no time.
    """
    table = read_table(path)
    _unfused(table)
    loaded = space_of(path, table.manifest.space, space)
    try:
        rows = read_nets(nets.read_bytes(), loaded.space)
    except OSError as error:
        raise UsageError(f"{nets} cannot be read: {error.strerror}", hint="Give a csv of nets.") from error
    runtime, (key, statistic) = _runtime_of(table), LOOKUP
    times = {row.unit: _statistics(row, table)[key][statistic] for row in table.rows if row.status != "failed"}
    sums = []
    for index, row in enumerate(rows):
        counts = loaded.net(row.assignment).counts()
        lacking = [unit.label for unit in counts if unit not in times]
        if lacking:
            raise UsageError(
                f"net {index + 1} of {nets} has {len(lacking)} units without a time: {', '.join(lacking[:5])}",
                hint="Measure them with `gnomon table build`, or leave the net out.",
            )
        sums.append(math.fsum(times[unit] * count for unit, count in counts.items()))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be made: {error.strerror}", hint="Give --out another folder.") from error
    files = tuple(out / f"{index:03d}.json" for index in range(len(sums)))
    for file, total in zip(files, sums, strict=True):
        save_text(write_accumulation({runtime: total}), file)
    return files


def _unfused(table: Table) -> None:
    chains = sorted({row.unit.chain for row in table.rows if len(row.unit.layers) > 1})
    if chains:
        raise UsageError(
            f"the table has fused units ({', '.join(chains[:3])}), which have no UID",
            hint="Build one of single operators: gnomon table build SPACE --fuse none.",
        )


def _runtime_of(table: Table) -> str:
    context = table.manifest.context
    return str(context.get("backend") or context.get("runtime", "CPU"))


def _read(file: Path) -> tuple[SnpeTable, Complaints]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="Give a csv or json.") from error
    if file.suffix == ".json":
        return scan_snpe_json(data)
    if _columns(data.split(b"\n", 1)[0].decode("utf-8", "replace")) == 3:
        plain, complaints = scan_nnabla_csv(data)
        told = {
            unit: {runtime: {LOOKUP[0]: {LOOKUP[1]: ms * _MS / _US}} for runtime, ms in times.items()}
            for unit, times in plain.entries.items()
        }
        return SnpeTable(entries=told), complaints
    return scan_snpe_csv(data)


def _columns(line: str) -> int:
    """How many columns a line of csv has; 0 where it is none, which the readers tell."""
    try:
        return sum(len(row) for row in csv.reader([line.strip()]))
    except csv.Error:
        return 0


def _runtime(found: SnpeTable, asked: str | None) -> str:
    known = found.runtimes
    if asked is None and len(known) == 1:
        return known[0]
    if not known:
        raise UsageError(
            "the file has no unit with a runtime's times",
            hint="See what gnomon table export writes.",
        )
    if asked not in known:
        what = "the file has several runtimes" if asked is None else f"the file has no runtime {asked!r}"
        raise UsageError(what, hint=f"Name one with --runtime: {', '.join(known)}.")
    return asked


def _row(unit: Unit, keys: Mapping[str, Mapping[str, Number]], key: str) -> Row:
    """The row of a unit; its figures are kept as the file tells them, so that they are written back alike."""
    average = keys.get(key, {}).get(LOOKUP[1])
    if not average:
        return Row(unit=unit, status="failed", at_s=time.time(), reason=f"the file has no {key}, {LOOKUP[1]} of it")
    return Row(
        unit=unit,
        status="ok",
        at_s=time.time(),
        call_s=average * _US,
        reported={f"{k}/{statistic}": value for k, values in keys.items() for statistic, value in values.items()},
    )


def _statistics(row: Row, table: Table) -> dict[str, dict[str, Number]]:
    """The figures of a row by key and statistic, in microseconds: as they were read, else from the samples."""
    made: dict[str, dict[str, Number]] = {}
    for name, value in row.reported.items():
        key, _, statistic = name.partition("/")
        made.setdefault(key, {})[statistic] = value if row.drift == 1 else round(value * row.drift, 3)
    if made or row.call_s is None:
        return made
    values = [s for block in row.samples.values() for s in block] or [row.call_s]
    overhead = table.manifest.overhead_s
    calls = (min(values) * row.drift, row.call_s, max(values) * row.drift)
    own = [max(call - overhead, 1e-3 * call) for call in calls]
    whole = {s: round(call / _US, 3) for s, call in zip(_STATISTICS, calls, strict=True)}
    return {
        "Total Inference Time": whole,
        "Layers Time": {s: round(one / _US, 3) for s, one in zip(_STATISTICS, own, strict=True)},
    }


def _meta(table: Table) -> dict[str, str]:
    if table.manifest.notes:
        # One of the keys ends in a colon itself.
        return dict(read_snpe_meta("\n".join(table.manifest.notes)).values)
    context = table.manifest.context
    device = context.get("device") or {}
    return {
        "ro.product.model": str(device.get("cpu_model") or device.get("machine") or "unknown"),
        "Date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(table.manifest.created_at_s)),
        "Devices": str(context.get("configuration", "")),
    }

"""How fast is a latency table built, and how repeatable is it? Prints one JSON document.

Builds the table of a search space (--space, --runtime) twice, independently, with each operator on its own, and twice
with the operators that the runtime fuses. Each build has its wall seconds, its processor seconds (including child
processes), the half widths of the units' 95 % intervals, the share of units marked unstable, and the failures. Each
pair of builds has the difference of the two tables unit by unit (|ratio - 1| of the call and of its addition to a net),
and the number of units whose intervals do not overlap.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import parser, publish
from gnomon.api import table as api_tables
from gnomon.jobs.table.folder import read_table
from gnomon.spaces.latency_table import Table, differences

TARGET_HALF_WIDTH = 0.03


def cpu_s() -> float:
    """The processor seconds of this process and of the children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def quantiles(values: list[float]) -> dict[str, float]:
    """The median, the ninth decile and the largest value."""
    return {
        "median": float(np.median(values)),
        "p90": float(np.quantile(values, 0.9)),
        "max": float(np.max(values)),
        "n": len(values),
    }


def build(given: Any, folder: Path, fuse: list[str], seed: int) -> tuple[Table, dict[str, Any]]:
    """A table with its own results database, and its figures."""
    folder.mkdir()
    started, before = time.perf_counter(), cpu_s()
    built = api_tables.build_table(
        given.space, out=folder / "table", fuse=fuse, runtimes=[given.runtime], record=folder / "record", seed=seed
    )
    wall_s, used_s = time.perf_counter() - started, cpu_s() - before
    table = read_table(folder / "table")
    rows = [row for row in table.rows if row.status != "failed"]
    widths = [row.relative_half_width for row in rows]
    return table, {
        "units": len(table.rows),
        "failed": len(table.failed),
        "wall_s": wall_s,
        "cpu_s": used_s,
        "half_width": quantiles(widths),
        "unstable": sum(row.status == "unstable" for row in rows) / len(rows),
        "wide_but_not_marked": sum(row.status == "ok" and row.relative_half_width > TARGET_HALF_WIDTH for row in rows),
        "processes": sum(row.processes for row in rows) / len(rows),
        "drifts": sorted({round(row.drift, 4) for row in rows}),
        "clock": table.manifest.clock,
        "overhead_s": table.manifest.overhead_s,
        "doubts": [doubt.message for doubt in built.doubts or ()],
    }


def agreement(first: Table, second: Table) -> dict[str, Any]:
    """The difference between two independent tables of the same units."""
    calls = {row.unit: row.call_s for row in second.rows if row.call_s is not None}
    ratios = [calls[row.unit] / row.call_s for row in first.rows if row.call_s is not None and row.unit in calls]
    found = differences(first, second)
    return {
        "call": quantiles([abs(ratio - 1) for ratio in ratios]),
        "call_ratio_median": float(np.median(ratios)),
        "adds": quantiles([abs(one.ratio - 1) for one in found]),
        "intervals_apart": sum(one.apart for one in found) / len(found),
    }


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--space", default="mobilenetv2-cifar10")
    made.add_argument("--runtime", default="onnxruntime")
    given = made.parse_args()
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
        for word, fuse in (("unfused", ["none"]), ("fused", [])):
            builds = [build(given, Path(folder) / f"{word}-{k}", fuse, seed=k) for k in range(2)]
            tables = [table for table, _ in builds]
            told[word] = {
                "builds": [figures for _, figures in builds],
                "rules": list(tables[0].manifest.rules),
                "between_builds": agreement(*tables),
            }
    publish({"space": given.space, "runtime": given.runtime, **told}, given)


if __name__ == "__main__":
    main()

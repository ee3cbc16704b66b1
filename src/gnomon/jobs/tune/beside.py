"""The tuned network beside other runtimes on the same device, measured by `gnomon profile`.

All run interleaved in fresh processes: TVM with the records, and each runtime that reads the network. TVM compiles the
records for the device's own processor there, whatever target they were tuned for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.devices.address import TVM
from gnomon.errors import GnomonError
from gnomon.jobs.place.document import ColumnPart, ProfileDocument
from gnomon.jobs.place.job import profile
from gnomon.jobs.tune.request import TuneRequest
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Watch
from gnomon.models.load import load
from gnomon.runtimes.base import Wish
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session.request import ModelRequest

_RECORDS = "GNOMON_TVM_RECORDS"
_TVM = "tvm"


def nothing_beside(failure: str) -> dict[str, Any]:
    """The document of a comparison that was not made, and why."""
    return {"clock": None, "columns": [], "wins": [], "failure": failure}


def beside(
    request: TuneRequest, records: Path, threads: int, *, watch: Watch | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """The document of the comparison: `columns` by time, the fastest first, and the `wins` of the tuned network.

    Where it cannot be made, `failure` says why: what was tuned is not given up for it.
    """
    if request.device.config.address.kind == TVM:
        return nothing_beside("behind a tracker there is TVM alone")
    if request.dtype != "float32":
        return nothing_beside(f"other runtimes compute in the file's own type, and this was tuned in {request.dtype}")
    try:
        others = [r.name for r in chosen_runtimes((), load(request.model).graph.format)]
        asked = ModelRequest(
            model=request.model,
            device=request.device.config,
            runtimes=(_TVM, *others),
            wish=Wish(threads=threads or 1, environments=({_RECORDS: str(records)},)),
            shapes={name: tuple(shape) for name, shape in request.shapes.items()},
            effort=Effort(processes_least=request.care.processes, processes_most=request.care.processes),
            seed=request.care.seed,
            wait_s=request.device.wait_s,
        )
        found = profile(asked, watch=watch, tell=tell)
    except GnomonError as error:
        return nothing_beside(error.message)
    return {**nothing_beside(""), "clock": found.clock, **_told(found)}


def _told(found: ProfileDocument) -> dict[str, Any]:
    tuned = next((column for column in found.columns if column.label.startswith(f"{_TVM}[")), None)
    if tuned is None:
        return {"failure": "TVM did not run the records"}
    others = [column for column in found.columns if not column.label.startswith(_TVM)]
    columns = sorted([tuned, *others], key=lambda column: column.level_s)
    return {"columns": [_column(column, tuned, found) for column in columns], "wins": _wins(found, tuned, others)}


def _column(column: ColumnPart, tuned: ColumnPart, found: ProfileDocument) -> dict[str, Any]:
    summary = column.summary(found.clock) or column.wall
    against = column.against_fastest
    return {
        "label": column.label,
        "tuned": column is tuned,
        "time": {
            "median_s": summary.median_s,
            "low_s": summary.low_s,
            "high_s": summary.high_s,
            "samples": summary.n,
            "processes": summary.processes,
        },
        "over_fastest": None
        if against is None
        else {"ratio": against.ratio, "low": against.low, "high": against.high, "verdict": against.verdict},
    }


def _wins(found: ProfileDocument, tuned: ColumnPart, others: list[ColumnPart]) -> list[dict[str, Any]]:
    """The operators that the tuned network computes faster than every other runtime that has a time of them alone."""
    made = []
    for op in found.operators:
        mine = op.times_s[tuned.label]
        theirs = [t for column in others if (t := op.times_s[column.label])]
        if mine and theirs and mine < min(theirs):
            made.append({"operator": op.name, "type": op.type, "tuned_s": mine, "other_s": min(theirs)})
    return made

"""The tuned network beside other runtimes on the same device, measured by `gnomon profile`.

All run interleaved in fresh processes: TVM with the records and without, and each runtime that reads the network. TVM
compiles for the device's own processor there, whatever target the records were tuned for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gnomon.devices.address import TVM
from gnomon.errors import GnomonError
from gnomon.jobs.place.document import ColumnPart, ProfileDocument
from gnomon.jobs.place.job import profile
from gnomon.jobs.tune.document import BesidePart, FasterOperator, OverFastest, RuntimePart, RuntimeTimes
from gnomon.jobs.tune.request import TuneRequest
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Watch
from gnomon.models.load import load
from gnomon.runtimes.base import Wish
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session.request import ModelRequest

_RECORDS = "GNOMON_TVM_RECORDS"
_TVM = "tvm"


def beside(
    request: TuneRequest, records: Path, threads: int, *, watch: Watch | None, tell: Callable[[str], None]
) -> BesidePart:
    """The comparison: runtimes by time, the fastest first, and what the tuned network wins.

    Where it cannot be made, `failure` says why: what was tuned is not given up for it.
    """
    if request.device.config.address.kind == TVM:
        return BesidePart(failure="behind a tracker there is TVM alone")
    if request.dtype != "float32":
        reason = f"other runtimes compute in the file's own type, and this was tuned in {request.dtype}"
        return BesidePart(failure=reason)
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
        return _compared(profile(asked, watch=watch, tell=tell))
    except GnomonError as error:
        return BesidePart(failure=error.message)


def _compared(measured: ProfileDocument) -> BesidePart:
    """The columns of a profile, and the operators that TVM with the records is the fastest at."""
    tuned = next((column for column in measured.columns if column.label.startswith(f"{_TVM}[")), None)
    if tuned is None:
        return BesidePart(clock=measured.clock, failure="TVM did not run the records")
    columns = sorted(measured.columns, key=lambda column: (column.against_fastest is not None, column.level_s))
    others = [column for column in columns if column is not tuned]
    return BesidePart(
        clock=measured.clock,
        columns=tuple(_column(column, column is tuned, measured.clock) for column in columns),
        wins=tuple(_wins(measured, tuned, others)),
    )


def _column(column: ColumnPart, tuned: bool, clock: str) -> RuntimePart:
    summary, over = column.summary(clock) or column.wall, column.against_fastest
    return RuntimePart(
        label=column.label,
        tuned=tuned,
        time=RuntimeTimes(
            median_s=summary.median_s,
            low_s=summary.low_s,
            high_s=summary.high_s,
            samples=summary.n,
            processes=summary.processes,
        ),
        over_fastest=None
        if over is None
        else OverFastest(ratio=over.ratio, low=over.low, high=over.high, verdict=over.verdict),
    )


def _wins(measured: ProfileDocument, tuned: ColumnPart, others: list[ColumnPart]) -> Iterator[FasterOperator]:
    """The operators that the tuned network computes faster than every other runtime that has a time of them alone."""
    for op in measured.operators:
        mine = op.times_s[tuned.label]
        theirs = [time_s for column in others if (time_s := op.times_s[column.label])]
        if mine and theirs and mine < min(theirs):
            yield FasterOperator(operator=op.name, type=op.type, tuned_s=mine, other_s=min(theirs))

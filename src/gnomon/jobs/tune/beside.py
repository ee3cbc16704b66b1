"""The comparison of the tuned network with other runtimes on the same device, measured as `gnomon profile` does.

TVM with the records, TVM without them, and each runtime that can read the network run interleaved in fresh processes.
TVM compiles for the device's own processor, whatever target the records were tuned for. If they were tuned for that
processor, the times measured here also replace the network's times in the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gnomon.core.codec import fields_of
from gnomon.core.stats import Block, compare
from gnomon.devices.address import TVM
from gnomon.errors import GnomonError
from gnomon.jobs.place.document import ColumnPart, ProfileDocument
from gnomon.jobs.place.job import profile
from gnomon.jobs.tune.document import (
    BesidePart,
    FasterOperator,
    OverFastest,
    RuntimePart,
    TunedNetworkPart,
    ratio_part,
    times_part,
)
from gnomon.jobs.tune.request import TuneRequest
from gnomon.measure.effort import Clock, Effort
from gnomon.measure.progress import Watch
from gnomon.models.load import load
from gnomon.runtimes.base import RunSettings
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session.request import ModelRequest
from gnomon.tuning.servers import Tell
from gnomon.tuning.target import NATIVE

_RECORDS = "GNOMON_TVM_RECORDS"
_TVM = "tvm"
_LAGGARD = 10.0
"""The tuned network is measured in full if it is at most this many times as slow as the fastest runtime."""


def beside(
    request: TuneRequest, records: Path, threads: int, proof: TunedNetworkPart, *, watch: Watch | None, tell: Tell
) -> tuple[BesidePart, TunedNetworkPart]:
    """Run the comparison; returns it and the `proof`, with the comparison's times if they apply to the proof too.

    The comparison lists the runtimes, the fastest first, and the operators at which the tuned network is the fastest.
    If the comparison fails, its `failure` gives the reason.
    """
    if request.device.config.address.kind == TVM:
        return BesidePart(failure="a device behind a tracker can only run TVM"), proof
    if request.dtype != "float32":
        reason = f"other runtimes compute in the file's own type, and the network was tuned in {request.dtype}"
        return BesidePart(failure=reason), proof
    processes = request.effort.processes
    try:
        others = [r.name for r in chosen_runtimes((), load(request.model).graph.format)]
        asked = ModelRequest(
            model=request.model,
            device=request.device.config,
            runtimes=(_TVM, *others),
            settings=RunSettings(threads=threads or 1, environments=({_RECORDS: str(records)},)),
            shapes={name: tuple(shape) for name, shape in request.shapes.items()},
            effort=Effort(processes_least=processes, processes_most=2 * processes, laggard=_LAGGARD),
            seed=request.effort.seed,
            wait_s=request.device.wait_s,
        )
        measured = profile(asked, watch=watch, tell=tell)
    except GnomonError as error:
        return BesidePart(failure=error.message), proof
    tuned = next((column for column in measured.columns if column.label.startswith(f"{_TVM}[")), None)
    if tuned is None:
        return BesidePart(clock=measured.clock, failure="TVM did not run with the tuning records"), proof
    clock: Clock = "cpu" if measured.clock == "cpu" else "wall"
    blocks = {column.label: _blocks(column, clock) for column in measured.columns}
    times = {label: times_part(rows, clock) for label, rows in blocks.items()}
    order = sorted(times, key=lambda label: times[label].median_s)
    over = {label: compare(blocks[label], blocks[order[0]]) for label in order[1:]}
    columns = [
        RuntimePart(
            label=label,
            tuned=label == tuned.label,
            time=replace(times[label], blocks=None),
            over_fastest=None if label == order[0] else OverFastest(**fields_of(OverFastest, over[label])),
        )
        for label in order
    ]
    rivals = [column for column in measured.columns if column is not tuned]
    if _TVM in blocks and (request.device.target or request.device.config.target or NATIVE) == NATIVE:
        ratio = ratio_part(compare(blocks[_TVM], blocks[tuned.label]))
        proof = replace(proof, untuned=times[_TVM], tuned=times[tuned.label], ratio=ratio)
    return BesidePart(clock=clock, columns=tuple(columns), wins=tuple(_wins(measured, tuned, rivals))), proof


def _blocks(column: ColumnPart, clock: Clock) -> list[Block]:
    samples = column.runs.samples
    rows = samples.wall_us if clock == "wall" or samples.cpu_us is None else samples.cpu_us
    return [
        Block(process=process, block=block, values_s=tuple(1e-6 * us for us in row))
        for process, block, row in zip(samples.process, samples.block, rows, strict=True)
    ]


def _wins(measured: ProfileDocument, tuned: ColumnPart, others: list[ColumnPart]) -> Iterator[FasterOperator]:
    """The operators that the tuned network computes faster than every other runtime that timed them separately."""
    for op in measured.operators:
        mine = op.times_s[tuned.label]
        theirs = [time_s for column in others if (time_s := op.times_s[column.label])]
        if mine and theirs and mine < min(theirs):
            yield FasterOperator(operator=op.name, type=op.type, tuned_s=mine, other_s=min(theirs))

"""Suites from Python: many models on many devices by several jobs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from gnomon.api.compare import CompareOptions, compare_settings
from gnomon.api.options import Record
from gnomon.errors import DeviceError, GnomonError, UsageError
from gnomon.options import option
from gnomon.store.address import RecordAddress, RecordLike, default_record, record_address

if TYPE_CHECKING:
    from gnomon.jobs.suite.document import SuiteCompareDocument, SuiteDocument
    from gnomon.jobs.suite.plan import Cell
    from gnomon.report.answer import Answer


def run_suite(
    suite: str | PathLike[str],
    *,
    record: RecordLike | None = None,
    out: str | PathLike[str] | None = None,
    cluster: str | None = None,
    wait_s: float = 600.0,
    fresh: bool = False,
    on_message: Callable[[str, str], None] | None = None,
) -> SuiteDocument:
    """Run the suite of a file, or go on with it: what is in the record is not measured again.

    `out` is the folder of what jobs write (./NAME.suite), `cluster` a Dask scheduler whose workers drive the devices;
    a device that none of them offers for `wait_s` gets no more cells. `fresh` starts a new run in any case.
    `on_message` gets a device's name and a sentence. Cells that fail are in the answer. Raises GnomonError.
    """
    from gnomon.jobs.suite import job

    asked = job.SuiteRequest(
        path=Path(suite),
        record=_record(record),
        out=None if out is None else Path(out).absolute(),
        cluster=cluster,
        fresh=fresh,
        wait_s=wait_s,
    )
    return job.run_suite(asked, measure_cell, tell=on_message)


def suite_status(run: Annotated[str, option(metavar="RUN")] = "last", *, record: Record = None) -> SuiteDocument:
    """Show the cells of a RUN: its id or how that begins, last, or last~1. It may be running.

    Raises GnomonError.
    """
    from gnomon.jobs.suite import job

    return job.suite_status(run, record=_record(record))


def compare_suites(
    before: Annotated[str, option(metavar="RUN")] = "last~1",
    after: Annotated[str, option(metavar="RUN")] = "last",
    **options: Unpack[CompareOptions],
) -> SuiteCompareDocument:
    """Compare the cells of place and profile that two RUNs of a suite have in common, as gnomon compare does.

    Raises GnomonError. All verdicts of all cells hold together.
    """
    from gnomon.jobs.suite import job

    fail_slower, how = compare_settings(options)
    compared = job.compare_suites(before, after, **how | {"record": _record(how["record"])})
    return replace(compared, fail_slower=fail_slower)


def measure_cell(task: Mapping[str, Any]) -> dict[str, Any]:
    """Measure one cell of a suite on its device: what `gnomon.jobs.suite.job.Measure` says, of gnomon's own jobs.

    A worker of a cluster calls this too: it resolves the device's name by its own file of devices.
    """
    from gnomon.core import codec
    from gnomon.devices.health import failed, went_well
    from gnomon.devices.opening import resolve
    from gnomon.jobs.html.views import view
    from gnomon.jobs.runs.answers import answered_cell
    from gnomon.jobs.suite.plan import Cell
    from gnomon.store.base import ASKING_CELL
    from gnomon.store.opening import open_store

    began_s = time.monotonic()
    cell = codec.from_json(Cell, task["cell"])
    record = record_address(task["record"]) or default_record()
    asking = {"suite": task["suite"], "cell": cell.id}
    name = task["device"]
    told: dict[str, Any] = {"host": socket.gethostname(), "record": str(record), "document": None, "error": None}
    token = ASKING_CELL.set(asking)
    try:
        name = resolve(task["device"]).name
        finished, found = False, None
        if task["again"]:
            with open_store(record) as store:
                finished, found = answered_cell(store, cell.job, asking)
        if found is None:
            found = _awaited(task, lambda: _measured(cell, task, record, decide=finished))
            document, answer = found.document(), found.headline()[1]
            if trouble := _unnoted(lambda: went_well(name)):
                answer = f"{answer} ({trouble})"
        else:
            document = found.document()
            answer = view(document).answer
        told |= {"document": document, "campaign": document.get("campaign"), "answer": answer}
    except GnomonError as error:
        kind = type(error).__name__.removesuffix("Error").lower()
        of_device, message = isinstance(error, DeviceError), error.message
        if isinstance(error, DeviceError) and not error.busy:
            trouble = _unnoted(lambda: failed(name, message))
            message = f"{message} ({trouble})" if trouble else message
        told["error"] = {"kind": kind, "message": message, "hint": error.hint, "of_device": of_device}
    finally:
        ASKING_CELL.reset(token)
    return {**told, "seconds": time.monotonic() - began_s}


def _unnoted(note: Callable[[], object]) -> str:
    """Why a note of how a device has been could not be kept, or nothing: it costs no cell that was measured."""
    try:
        note()
    except UsageError as error:
        return error.message
    return ""


def _awaited(task: Mapping[str, Any], measured: Callable[[], Answer]) -> Answer:
    """What is measured; where no other device can take the cell, its own is waited for, as in the middle of a job.

    Once: one that has stayed away, and did nothing since, is not waited for again.
    """
    from gnomon.devices.health import health_of
    from gnomon.devices.opening import resolve
    from gnomon.session.request import patiently_begun
    from gnomon.values import WAIT_S

    device = resolve(task["device"])
    patient = task["only"] and health_of(device.name).failures == 0
    wait_s = task["cell"]["options"].get("wait_s", WAIT_S) if patient else 0.0
    return patiently_begun(measured, device, wait_s)


def _measured(cell: Cell, task: Mapping[str, Any], record: RecordAddress, *, decide: bool) -> Answer:
    """What the cell's job found. With `decide` its campaign is finished, and its answer alone lacks.

    The device is probed first where the task says so.
    """
    import gnomon
    from gnomon.devices.opening import resolve
    from gnomon.session.bench.probe import check_before_use

    if task["probe"]:
        check_before_use(resolve(task["device"]), record, cell.options.get("runtimes", ()))
    model, device = cell.model, task["device"]
    options: dict[str, Any] = {**cell.options, "device": device}
    if cell.max_time_s is not None:
        options["max_time_s"] = cell.max_time_s
    if cell.job == "place":
        options |= {"package": False, "measure": not decide}
    out = Path(task["out"]) / _as_file(device)
    if cell.job in ("table", "tune"):
        out.mkdir(parents=True, exist_ok=True)
    if cell.job == "table":
        from gnomon.spaces.loading import load_space

        space = load_space(model)  # a file may have several
        return gnomon.build_table(space, out=out / f"{_as_file(space.name)}.table", record=record, **options)
    if cell.job == "tune":
        return gnomon.tune(model, out=out, **options)
    result: Answer = getattr(gnomon, cell.job)(model, record=record, **options)
    return result


def _as_file(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


def _record(record: RecordLike | None) -> RecordAddress | None:
    found = record_address(record)
    return found.absolute() if isinstance(found, Path) else found

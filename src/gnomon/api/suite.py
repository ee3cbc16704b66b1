"""`gnomon suite` as functions: many models on many devices by several jobs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from gnomon.api.compare import CompareOptions, compare_settings
from gnomon.api.options import Fresh, PathLike, Record
from gnomon.errors import DeviceError, GnomonError, UsageError
from gnomon.options import option
from gnomon.store.address import RecordAddress, RecordLike, default_record, record_address
from gnomon.values import folder, seconds

if TYPE_CHECKING:
    from gnomon.jobs.suite.document import SuiteCompareDocument, SuiteDocument
    from gnomon.jobs.suite.job import Outcome
    from gnomon.jobs.suite.plan import Cell
    from gnomon.report.answer import Answer


def run_suite(
    suite: Annotated[PathLike, option(metavar="SUITE")],
    *,
    out: Annotated[
        PathLike | None, option(read=folder, metavar="DIR", help="The folder of the results.  [default: ./NAME.suite]")
    ] = None,
    cluster: Annotated[
        str | None,
        option(
            metavar="ADDRESS", help="A Dask scheduler, tcp://HOST:PORT, whose workers have resources gnomon-DEVICE."
        ),
    ] = None,
    wait_s: Annotated[float, option("--reconnect-timeout", read=seconds, help="Seconds to wait for a worker.")] = 600.0,
    record: Record = None,
    fresh: Fresh = False,
    on_message: Callable[[str, str], None] | None = None,
) -> SuiteDocument:
    """Run the suite of a file, or resume it: results in the results database are not measured again.

    `out` is the folder for the jobs' files (./NAME.suite). `cluster` is a Dask scheduler whose workers measure on the
    devices; a device that no worker offers for `wait_s` gets no more cells. `fresh` starts a new run in any case.
    `on_message` is called with a device's name and a sentence. Failed cells are in the answer. Raises GnomonError.
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
    """Show the cells of a RUN, which may still be running. RUN is an id or the beginning of an id, last, or last~1.

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

    Raises GnomonError. The confidence applies to all verdicts of all cells together.
    """
    from gnomon.jobs.suite import job

    undecided, how = compare_settings(options)
    compared = job.compare_suites(before, after, **how | {"record": _record(how["record"])})
    return replace(compared, undecided=undecided)


def measure_cell(
    cell: Cell, device: str, *, suite: str, record: str | None, out: str, probe: bool, again: bool, only: bool
) -> Outcome:
    """Measure one cell of a suite with a job of gnomon.

    `suite` is the run's id. Without a `record`, the results go to the default database of the measuring machine. With
    `probe`, the device is probed first. `again` means that the cell may have been measured before, `only` that no other
    device can take the cell. A worker of a cluster resolves the device's name with its own file of devices.
    """
    from gnomon.devices.health import failed, went_well
    from gnomon.devices.opening import resolve
    from gnomon.jobs.html.views import view
    from gnomon.jobs.runs.answers import answered_cell
    from gnomon.jobs.suite.document import ErrorPart, cell_part
    from gnomon.store.base import ASKING_CELL
    from gnomon.store.opening import open_store

    began_s = time.monotonic()
    address = record_address(record) or default_record()
    asking = {"suite": suite, "cell": cell.id}
    name, document, of_device = device, None, False
    token = ASKING_CELL.set(asking)
    try:
        name = resolve(device).name
        finished, latest = False, None
        if again:
            with open_store(address) as store:
                finished, latest = answered_cell(store, cell.job, asking)
        if latest is None:
            latest = _awaited(
                cell, device, only, lambda: _measured(cell, device, address, out, probe=probe, decide=finished)
            )
            document, answer = latest.document(), latest.headline()[1]
            if trouble := _unnoted(lambda: went_well(name)):
                answer = f"{answer} ({trouble})"
        else:
            document = latest.document()
            answer = view(document).answer
        part = cell_part(cell, "done", campaign=document.get("campaign"), answer=answer)
    except GnomonError as error:
        kind = type(error).__name__.removesuffix("Error").lower()
        of_device, message = isinstance(error, DeviceError), error.message
        if isinstance(error, DeviceError) and not error.busy:
            trouble = _unnoted(lambda: failed(name, message))
            message = f"{message} ({trouble})" if trouble else message
        part = cell_part(cell, "failed", error=ErrorPart(kind=kind, message=message, hint=error.hint))
    finally:
        ASKING_CELL.reset(token)
    seconds = time.monotonic() - began_s
    return (
        replace(part, device=device, host=socket.gethostname(), record=str(address), seconds=seconds),
        document,
        of_device,
    )


def _unnoted(note: Callable[[], object]) -> str:
    """The reason why a note on a device's health could not be stored, "" if it could; a measured cell stays valid."""
    try:
        note()
    except UsageError as error:
        return error.message
    return ""


def _awaited(cell: Cell, device: str, only: bool, measured: Callable[[], Answer]) -> Answer:
    """The result of `measured`. If no other device can take the cell, gnomon waits for its device, as it does during a
    job.

    After a wait in vain, there is no further wait for the device until it has worked again.
    """
    from gnomon.devices.health import health_of
    from gnomon.devices.opening import resolve
    from gnomon.session.request import patiently_begun
    from gnomon.values import WAIT_S

    resolved = resolve(device)
    patient = only and health_of(resolved.name).failures == 0
    return patiently_begun(measured, resolved, cell.options.get("wait_s", WAIT_S) if patient else 0.0)


def _measured(cell: Cell, device: str, record: RecordAddress, out: str, *, probe: bool, decide: bool) -> Answer:
    """The answer of the cell's job. With `decide`, its campaign is finished and only the answer is missing."""
    import gnomon
    from gnomon.devices.opening import resolve
    from gnomon.session.bench.probe import check_before_use

    if probe:
        check_before_use(resolve(device), record, cell.options.get("runtimes", ()))
    model = cell.model
    options: dict[str, Any] = {**cell.options, "device": device}
    if cell.max_time_s is not None:
        options["max_time_s"] = cell.max_time_s
    if cell.job == "place":
        options |= {"package": False, "measure": not decide}
    written = Path(out) / _as_file(device)
    if cell.job in ("table", "tune"):
        written.mkdir(parents=True, exist_ok=True)
    if cell.job == "table":
        from gnomon.spaces.loading import load_space

        space = load_space(model)  # a file may contain several spaces
        return gnomon.build_table(space, out=written / f"{_as_file(space.name)}.table", record=record, **options)
    if cell.job == "tune":
        return gnomon.tune(model, out=written, **options)
    result: Answer = getattr(gnomon, cell.job)(model, record=record, **options)
    return result


def _as_file(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


def _record(record: RecordLike | None) -> RecordAddress | None:
    address = record_address(record)
    return address.absolute() if isinstance(address, Path) else address

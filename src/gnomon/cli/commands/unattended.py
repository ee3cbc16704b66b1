"""`gnomon unattended`: searches that run on a device by themselves.

The process of a job on a device: waits until the device is free, then does what `gnomon` would do there.

Started by `gnomon.devices.unattended` with the job's folder and the open lock of it, which it holds to its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from gnomon.cli.help import group
from gnomon.cli.main import report_page, write_json, write_report
from gnomon.cli.values import RecordValue, complete_device

if TYPE_CHECKING:
    from gnomon.api.unattended import Carried, Job
    from gnomon.store.address import RecordAddress

_FAILED = 7
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
_ID = click.argument("job", metavar="ID")
_DEVICE = click.option(
    "--device",
    metavar="NAME",
    required=True,
    shell_complete=complete_device,
    help="Where it runs: a name of the file of devices or ssh://[user@]host[:port].",
)


@group(short_help="Background jobs: searches that run on a device by themselves.")
def unattended() -> None:
    """Background jobs: searches that run on a device by themselves, started by `gnomon pareto --unattended`.

    ID is a job's id, or how that begins, or last. docs/jobs/unattended.md describes what lies on the device.
    """


@unattended.command("list", short_help="List the jobs on a device.")
@_DEVICE
@_JSON
def list_(device: str, as_json: bool) -> None:
    """List the jobs on a device, the newest first: how far each is."""
    from gnomon.api.unattended import unattended_jobs

    jobs = unattended_jobs(device)
    document = {
        "format": "gnomon-unattended-jobs",
        "version": 1,
        "device": device,
        "jobs": [job.document() for job in jobs],
    }
    if as_json:
        write_json(document)
        return
    from gnomon.jobs.unattended.report import jobs_report

    write_report(jobs_report, document)


@unattended.command(short_help="Show a job's state and the last lines of its log.")
@_ID
@_DEVICE
@_JSON
def status(job: str, device: str, as_json: bool) -> int:
    """Show the state of the job ID and the last lines of its log. Exits with 7 if it failed or vanished."""
    from gnomon.api.unattended import unattended_job

    found = unattended_job(job, device=device)
    _show(found, as_json)
    return _FAILED if found.state in ("failed", "vanished") else 0


@unattended.command(short_help="Fetch what a job has written so far.")
@_ID
@_DEVICE
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Where to.  [default: ./ID]"
)
@click.option(
    "--record",
    type=RecordValue(),
    metavar="FILE|URL",
    help="The results database that its runs are added to.  [default: the user's own]",
)
@_JSON
@click.option("--quiet", is_flag=True, help="No messages.")
def fetch(job: str, device: str, out: Path | None, record: RecordAddress | None, as_json: bool, quiet: bool) -> None:
    """Fetch what the job ID has written so far into a folder, and its runs into the results database. The job is left
    as it is.

    At its end that is the JSON document, the dump, the package and the picture that were asked for, and the log; before
    its end the dump of what was run until then, and the runs.
    """
    from gnomon.api.unattended import fetch_unattended
    from gnomon.cli.pictures import draw_pareto
    from gnomon.cli.progress import Show

    with Show(quiet=quiet) as show:
        found = fetch_unattended(job, device=device, out=out, record=record)
        told = dict(found.document) if found.document is not None else None
        if told is not None:
            told["pictures"] = draw_pareto(told, found.picture, show.tell)
    document = {
        "format": "gnomon-unattended-fetched",
        "version": 1,
        "job": found.job.document(),
        "folder": str(found.folder),
        "files": list(found.files),
        "record": str(found.record),
        "campaigns": found.campaigns,
        "runs": found.runs,
        "document": told,
    }
    if as_json:
        write_json(document)
        return
    from gnomon.jobs.unattended.report import fetched_report

    page = report_page()
    if told is not None:
        from gnomon.jobs.pareto.report import pareto_report

        pareto_report(told, page, own_record=record is not None)
        page.line("")
    fetched_report(document, page)


@unattended.command(short_help="Start a job again where it was ended.")
@_ID
@_DEVICE
@_JSON
def start(job: str, device: str, as_json: bool) -> None:
    """Start the job ID again if it was stopped, failed or vanished: it resumes from its record there."""
    from gnomon.api.unattended import start_unattended

    _do(start_unattended, job, device, as_json)


@unattended.command(short_help="End a job; what it has measured stays.")
@_ID
@_DEVICE
@_JSON
def stop(job: str, device: str, as_json: bool) -> None:
    """End the job ID and all its processes. What it has measured stays there, and start resumes from it."""
    from gnomon.api.unattended import stop_unattended

    _do(stop_unattended, job, device, as_json)


@unattended.command(short_help="Remove a job from the device.")
@_ID
@_DEVICE
@_JSON
def remove(job: str, device: str, as_json: bool) -> None:
    """Remove the job ID, which must not run, with all that it has written on the device."""
    from gnomon.api.unattended import remove_unattended

    found = remove_unattended(job, device=device)
    if as_json:
        told = {"removed": found.id, "device": found.device, "folder": found.folder}
        write_json({"format": "gnomon-unattended-removed", "version": 1, **told})
        return

    report_page().headline(f"Removed {found.id} from {found.device}.")


def show_carried(found: Carried, *, as_json: bool) -> int:
    """What `gnomon pareto --unattended` says at its end."""
    told = {"job": found.job.document(), "started": found.started, "made": found.made}
    document = {"format": "gnomon-unattended-carried", "version": 1, **told}
    if as_json:
        write_json(document)
        return 0
    from gnomon.jobs.unattended.report import carried_report

    write_report(carried_report, document)
    return 0


def _do(deed: Callable[..., Job], job: str, device: str, as_json: bool) -> None:
    _show(deed(job, device=device), as_json)


def _show(job: Job, as_json: bool) -> None:
    if as_json:
        write_json({"format": "gnomon-unattended-job", "version": 1, "job": job.document()})
        return
    from gnomon.jobs.unattended.report import job_report

    write_report(job_report, job.document())


_RETRY_S = 1.0
_DEVICE_FAILED = 6
_DEFECT = 70
_TERMINATED = 143


class Ended(BaseException):
    """SIGTERM came while nothing ran yet."""


def main(arguments: Sequence[str]) -> int:
    """Do the job in a folder; its exit code also goes into the file exit.json, which says that it has ended."""
    from gnomon.system.files import write_whole

    folder, lock = Path(arguments[0]), int(arguments[1])
    os.set_inheritable(lock, False)
    signal.signal(signal.SIGTERM, _ended)
    code = _DEFECT
    try:
        command = json.loads((folder / "job.json").read_text(encoding="utf-8"))["command"]
        code = _done(folder, command)
    except (Ended, KeyboardInterrupt):
        code = _TERMINATED
    except BaseException:
        traceback.print_exc()
    finally:
        write_whole(json.dumps({"code": code, "at_s": time.time()}).encode("utf-8"), folder / "exit.json")
    return code


def _done(folder: Path, command: Sequence[str]) -> int:
    """Run the command with its standard output in out/document.json, again if another was quicker to the device."""
    from gnomon.cli.main import run
    from gnomon.system.files import in_place_of

    with in_place_of(folder / "out" / "document.json") as part:
        while True:
            _wait_for_device()
            with part.open("wb") as file:
                os.dup2(file.fileno(), 1)
            code = run(command)
            sys.stdout.flush()
            if code != _DEVICE_FAILED or _holder() is None:
                return code


def _wait_for_device() -> None:
    """Until nobody else measures here, however long that takes: nobody waits for this job either."""
    from gnomon.cli.progress import ProgressFile
    from gnomon.devices.unattended import WAITING

    file = ProgressFile.named()
    told = ""
    while (holder := _holder()) is not None:
        if holder != told:
            told = holder
            file.write(WAITING, 0, 1, why=f"process {holder.partition(',')[0]} measures there")
        time.sleep(_RETRY_S)
    if told:
        file.write("look at the model and the runtimes", 0, 1)


def _holder() -> str | None:
    from gnomon.devices.address import LOCAL
    from gnomon.devices.lease import lease_folder, lease_holder

    return lease_holder(lease_folder(), LOCAL)


def _ended(number: int, frame: FrameType | None) -> None:
    raise Ended

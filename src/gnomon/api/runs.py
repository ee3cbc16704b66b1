"""`gnomon runs` as functions: the runs in the results database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gnomon.api.options import Record
from gnomon.core import codec
from gnomon.core.sample import Campaign
from gnomon.errors import RecordError
from gnomon.jobs.runs import answers, job, joining
from gnomon.jobs.runs.document import BroughtDocument, RunDocument, RunsDocument
from gnomon.options import option
from gnomon.store.address import RecordLike, default_record, record_address
from gnomon.store.lines import write_lines
from gnomon.store.sql import SqlStore

if TYPE_CHECKING:
    from gnomon.api.options import PathLike


Files = Annotated[RecordLike, option(read=record_address, metavar="FILE", least=1)]


@contextmanager
def _campaign(prefix: str, record: RecordLike | None) -> Iterator[tuple[SqlStore, Campaign]]:
    """The results database, opened for reading, and the campaign whose id begins with `prefix`."""
    with job.open_record(record_address(record)) as store:
        yield store, job.find_campaign(store, prefix)


def runs(
    *, record: Record = None, limit: Annotated[int, option(least=1, metavar="N", help="List at most N runs.")] = 20
) -> RunsDocument:
    """List the runs in the results database, the newest first.

    Raises RecordError if there is no such database.
    """
    address = record_address(record)
    with job.open_record(address) as store:
        rows = tuple(islice(job.list_campaigns(store), limit + 1))
    return RunsDocument(
        record=str(address or default_record()),
        campaigns=rows[:limit],
        more=len(rows) > limit,
    )


def show_run(
    campaign: str = "last", *, record: RecordLike | None = None, clock: Literal["wall", "cpu"] = "wall"
) -> RunDocument:
    """The campaign whose id begins with `campaign` ("last": the newest), with its candidates' times by a clock.
    RecordError.
    """
    with _campaign(campaign, record) as (store, run):
        return job.show_campaign(store, run, clock=clock)


def answer_of_run(campaign: str = "last", *, record: RecordLike | None = None) -> dict[str, Any] | None:
    """The answer of a campaign's job, as its command prints it with --json; None if there is none.

    RecordError if the results database or the campaign does not exist.
    """
    with _campaign(campaign, record) as (store, run):
        answer = answers.answer_of(store, run)
    return None if answer is None else codec.document(answer)


def export_run(
    campaign: str = "last", *, record: RecordLike | None = None, form: Literal["jsonl", "csv"] = "jsonl"
) -> Iterator[str]:
    """The lines of an export of a campaign: everything in the results database as JSON objects, or its samples as csv.

    RecordError if the results database or the campaign does not exist.
    """
    with _campaign(campaign, record) as (store, run):
        yield from (job.export_csv if form == "csv" else write_lines)(store, [run])


def export_run_files(campaign: str = "last", *, out: PathLike, record: RecordLike | None = None) -> tuple[Path, ...]:
    """Copy the files of a campaign's job into the folder `out`; return their paths.

    RecordError if the job wrote no files, or if a file is missing or has changed since the job ended.
    """
    with _campaign(campaign, record) as (store, run):
        return tuple(job.export_files(store, run, Path(out)))


def export_run_as(
    form: Literal["parquet", "perfetto", "model-explorer", "netron"],
    campaign: str = "last",
    *,
    out: PathLike,
    model: PathLike | None = None,
    record: RecordLike | None = None,
) -> tuple[Path, ...]:
    """Write a campaign for another tool to `out`, a folder for Model Explorer, otherwise a file; return the paths.

    Parquet holds the campaign's samples; the other forms are made from the job's answer. `model` is the present path of
    the model's file, for Netron. GnomonError.
    """
    path = Path(out)
    with _campaign(campaign, record) as (store, run):
        if form == "parquet":
            job.export_parquet(store, [run], path)
            return (path,)
        answer = answers.answer_of(store, run)
    if answer is None:
        raise no_answer()
    if form == "model-explorer":
        return tuple(job.export_node_data(answer, path))
    if form == "netron":
        job.export_netron(answer, None if model is None else Path(model), path)
    else:
        job.export_trace(answer, path)
    return (path,)


def no_answer() -> RecordError:
    """The error for a campaign without a kept answer."""
    return RecordError(
        "this run has no answer", hint="Repeat its command, or export its measurements with --format jsonl."
    )


def import_runs(*files: Files, record: Record = None) -> BroughtDocument:
    """Add the runs of each FILE to the results database. A FILE is a database file, the URL of a database, or JSON
    lines from `runs export`.

    Each file is added completely or not at all, and nothing is added twice; a run of which the file and the database
    have different parts is completed. The commands of imported runs are not added, so that `runs resume` never repeats
    a command of another machine.

    Raises RecordError or ProblemError, with the place, for a damaged file; the files before it stay imported.
    """
    return joining.import_runs([record_address(file) for file in files], record_address(record))


def merge_runs(
    *files: Files, out: Annotated[RecordLike, option(read=record_address, metavar="FILE", help="The new database.")]
) -> BroughtDocument:
    """Write a new results database with the runs of each FILE: a database file, the URL of a database, or JSON lines
    from `runs export`.

    Raises RecordError if `out` exists.
    """
    return joining.merge_runs([record_address(file) for file in files], record_address(out))


def command_of_run(campaign: str = "last", *, record: RecordLike | None = None) -> tuple[tuple[str, ...], Path]:
    """The words of the command that resumes an interrupted campaign, and the folder to run it in.

    RecordError for a campaign that is finished or running, or that was started from Python.
    """
    with _campaign(campaign, record) as (store, run):
        return job.command_of(store, run)

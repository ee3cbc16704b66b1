"""What the results database holds: what `gnomon runs` does, as functions."""

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
    """The results database, opened to be read, and its campaign whose id begins so."""
    with job.open_record(record_address(record)) as store:
        yield store, job.find_campaign(store, prefix)


def runs(
    *,
    record: Record = None,
    limit: Annotated[int, option(least=1, metavar="N", help="How many, the newest first.")] = 20,
) -> RunsDocument:
    """List the campaigns in the record, the newest first.

    Raises RecordError where it is not there.
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
    """The campaign whose id begins so ("last": the newest), with its candidates summed up by a clock. RecordError."""
    with _campaign(campaign, record) as (store, run):
        return job.show_campaign(store, run, clock=clock)


def answer_of_run(campaign: str = "last", *, record: RecordLike | None = None) -> dict[str, Any] | None:
    """The document that the campaign's job answered with, as its command prints it with --json; None if it has none.

    RecordError where the results database or the campaign is not there.
    """
    with _campaign(campaign, record) as (store, run):
        answer = answers.answer_of(store, run)
    return None if answer is None else codec.document(answer)


def export_run(
    campaign: str = "last", *, record: RecordLike | None = None, form: Literal["jsonl", "csv"] = "jsonl"
) -> Iterator[str]:
    """The lines of all that the results database holds of a campaign: a JSON object each, or as csv a sample each.

    RecordError where the results database or the campaign is not there.
    """
    with _campaign(campaign, record) as (store, run):
        yield from (job.export_csv if form == "csv" else write_lines)(store, [run])


def export_run_files(campaign: str = "last", *, out: PathLike, record: RecordLike | None = None) -> tuple[Path, ...]:
    """Write the files of a campaign's job into the folder `out`, as they were when it ended; returns their paths.

    RecordError where the job wrote none, or one is gone or was changed since.
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
    """Write a campaign for another tool to `out`, which is a folder for Model Explorer and else a file; the paths.

    All but Parquet are made of the job's answer. `model` is where its file is now, for Netron. GnomonError.
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
    """The error for a campaign that no answer is kept of."""
    return RecordError(
        "no answer is kept of this run", hint="The same command answers again; --format jsonl has its runs."
    )


def import_runs(*files: Files, record: Record = None) -> BroughtDocument:
    """Add what the record lacks of each FILE: a record (or its URL), or JSON lines as `runs export` writes them.

    Each is added whole or not at all, and nothing twice: a campaign of which both have runs is completed. The commands
    of its campaigns are not added: `runs resume` repeats none that was not given here.

    Raises RecordError or ProblemError, with the place, for a file that is damaged; those before it stay.
    """
    return joining.import_runs([record_address(file) for file in files], record_address(record))


def merge_runs(
    *files: Files, out: Annotated[RecordLike, option(read=record_address, metavar="FILE", help="The new record.")]
) -> BroughtDocument:
    """Write a new record of all that each FILE holds: a record (or its URL), or JSON lines of `runs export`.

    Raises RecordError where `out` is there already.
    """
    return joining.merge_runs([record_address(file) for file in files], record_address(out))


def command_of_run(campaign: str = "last", *, record: RecordLike | None = None) -> tuple[tuple[str, ...], Path]:
    """The words of the command that goes on with an interrupted campaign, and the folder to give it in.

    RecordError for one that is finished or running, or that was asked from Python.
    """
    with _campaign(campaign, record) as (store, run):
        return job.command_of(store, run)

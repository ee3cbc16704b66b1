"""The commands for the results database: list campaigns, show a campaign, and export campaigns for other tools."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnomon.core.sample import Campaign, Failure, Run
from gnomon.core.stats import Block, blocks_of, summarise
from gnomon.errors import RecordError, system_errors
from gnomon.jobs.runs.document import CampaignRow, CandidatePart, RunDocument
from gnomon.jobs.runs.exports import chrome_trace, node_data, node_notes, operator_times
from gnomon.report.frame import write_parquet
from gnomon.report.plain import clean
from gnomon.store.address import RecordAddress, default_record, whole
from gnomon.store.base import (
    FAILED,
    CampaignQuery,
    EventQuery,
    NotedFile,
    RunQuery,
    Store,
    TallyQuery,
    last_command,
    last_files,
    last_note,
)
from gnomon.store.opening import is_missing, read_store
from gnomon.store.sql import SqlStore
from gnomon.system.files import write_whole

if TYPE_CHECKING:
    from gnomon.jobs.runs.exports import Exported

_LAST = re.compile(r"last(?:~(\d{1,6}))?")

DECISION = "decision"
"""The name of the event in which a job records its decision."""

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("campaign", "kind", "model", "candidate"), "string"),
    **dict.fromkeys(("process", "block"), "int64"),
    "profiled": "bool_",
    "started_at_s": "float64",
    "sample": "int64",
    **dict.fromkeys(("wall_s", "cpu_s"), "float64"),
    **dict.fromkeys(("failure_stage", "failure_kind", "failure_message"), "string"),
}
"""The columns of tables of samples, with the names of Arrow's types."""


def open_record(record: RecordAddress | None) -> SqlStore:
    """Open the results database at this address (None: the user's own) for reading.

    RecordError if it cannot be read, or if its file does not exist.
    """
    if record is not None and is_missing(record):
        raise RecordError(f"there is no results database {record}", hint="Give the --record of the measurement.")
    return read_store(record)


def list_campaigns(store: Store) -> Iterator[CampaignRow]:
    """The campaigns of the results database, the newest first, read one by one."""
    return (_row(store, campaign) for campaign in store.query(CampaignQuery()))


def find_campaign(store: Store, named: str, *, kind: str | None = None) -> Campaign:
    """The campaign (of a `kind`) whose id is `named` or begins with it; "last" is the newest, "last~1" the one before.

    RecordError if no campaign matches, or several do.
    """
    campaigns = store.query(CampaignQuery(kind=kind))
    if last := _LAST.fullmatch(named):
        before = int(last[1] or 0)
        matches = list(itertools.islice(campaigns, before, before + 1))
    else:
        matches = list(store.query(CampaignQuery(id=named, kind=kind)))
        matches = matches or [campaign for campaign in campaigns if named and campaign.id.startswith(named)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        some = ", ".join(campaign.id for campaign in matches[:5])
        raise RecordError(f"{len(matches)} campaigns match {named!r}", hint=f"Give more digits of the id: {some}.")
    newest = ", ".join(campaign.id for campaign in itertools.islice(store.query(CampaignQuery(kind=kind)), 5))
    hint = f"The newest campaigns: {newest}." if newest else "Measure a model first: gnomon place MODEL"
    if kind is not None:
        raise RecordError(f"there is no {kind} run {named!r}", hint=hint)
    raise RecordError(f"there is no campaign {named!r}" if newest else "the results database is empty", hint=hint)


def show_campaign(store: Store, campaign: Campaign, *, clock: Literal["wall", "cpu"] = "wall") -> RunDocument:
    """The campaign with a summary of each of its candidates, by wall or CPU time."""
    candidates = [
        _candidate(tally.candidate, store.query(RunQuery(campaign=campaign.id, candidate=tally.candidate)), clock)
        for tally in store.query(TallyQuery(campaign=campaign.id))
    ]
    candidates.sort(key=lambda c: (c.summary.median_s if c.summary else math.inf, c.candidate))
    events = tuple(store.query(EventQuery(campaign=campaign.id)))
    return RunDocument(clock=clock, row=_row(store, campaign), candidates=tuple(candidates), events=events)


def sample_rows(store: Store, campaigns: Iterable[Campaign]) -> Iterator[tuple[Any, ...]]:
    """A row for each sample and each failed run, with the values of COLUMNS; None for a missing value."""
    for campaign in campaigns:
        for run in store.query(RunQuery(campaign=campaign.id)):
            own = (run.candidate, run.process, run.block, run.profiled, run.started_at_s)
            start = (campaign.id, campaign.kind, campaign.context.model_name, *own)
            if run.failure:
                yield (*start, None, None, None, run.failure.stage, run.failure.kind, run.failure.message)
            elif run.samples:
                for i, wall_s in enumerate(run.samples.wall_s):
                    cpu_s = run.samples.cpu_s[i] if i < len(run.samples.cpu_s) else None
                    yield (*start, i, wall_s, cpu_s, None, None, None)


def export_csv(store: Store, campaigns: Iterable[Campaign]) -> Iterator[str]:
    """The lines of CSV (RFC 4180), without line breaks: the header, then `sample_rows`.

    Control characters are escaped (``\\x1b``), because names may come from untrusted files and CSV may be shown on
    terminals.
    """
    yield _csv(COLUMNS)
    for row in sample_rows(store, campaigns):
        yield _csv(int(value) if isinstance(value, bool) else value for value in row)


def export_parquet(store: Store, campaigns: Iterable[Campaign], out: Path) -> None:
    """Write `sample_rows` to a Parquet file. UsageError if pyarrow is missing, RecordError if the file exists."""
    _refuse_what_is_there(out)
    write_parquet(sample_rows(store, campaigns), COLUMNS, out)


def export_trace(answer: Exported, out: Path) -> None:
    """Write a trace of a job's answer for Perfetto. RecordError if the file exists or cannot be written."""
    text = json.dumps(chrome_trace(answer), allow_nan=False, separators=(",", ":"))
    _write_into(out.parent, [(out.name, text.encode())])


def export_node_data(answer: Exported, out: Path) -> list[Path]:
    """Write Model Explorer's node data of a job's answer into a folder, one file per configuration."""
    times = operator_times(answer)
    by_name = answer.model is not None and answer.model.format == "onnx"
    named = []
    for label, operators in times.items():
        name = re.sub(r"[^\w.,=+\[\]-]+", "_", label)[:200] or "_"
        named.append((f"{name}.json", json.dumps(node_data(operators, by_name=by_name), indent=1).encode()))
    return _write_into(out, named)


def export_netron(answer: Exported, model: Path | None, out: Path) -> int:
    """Copy the ONNX model of a job's answer, annotating nodes with times and backends; return the number of these
    nodes.

    `model` is the file's current path (None: the path in the answer). ModelError if the file has changed, RecordError
    if no operator of the answer is a node of the model, or if `out` exists.
    """
    from gnomon.models.onnx.static import noted_copy

    notes, measured = node_notes(answer), answer.model
    if measured is None or measured.format != "onnx":
        raise RecordError("a Netron export needs an ONNX model", hint="For other models: --format model-explorer")
    _refuse_what_is_there(out)
    count = noted_copy(model or Path(measured.path), notes, out, digest=measured.sha256)
    if not count:
        raise RecordError(
            "no operator of the answer is a node of the model, because a converted model ran",
            hint="Export a trace instead: --format perfetto",
        )
    return count


def _write_into(out: Path, named: Sequence[tuple[str, bytes]]) -> list[Path]:
    """Write files into a folder; of several files with the same name, the later ones get a number.

    RecordError if a file already exists, in which case nothing is written, or if a file cannot be written.
    """
    files: dict[Path, bytes] = {}
    for name, content in named:
        path, number = out / name, 1
        while path in files:
            number += 1
            path = out / f"{Path(name).stem}-{number}{Path(name).suffix}"
        files[path] = content
    with system_errors(RecordError, f"{out} cannot be written", hint="Give --out another folder."):
        out.mkdir(parents=True, exist_ok=True)
        for path in files:
            _refuse_what_is_there(path)
        for path, content in files.items():
            write_whole(content, path)
    return list(files)


def _refuse_what_is_there(path: Path) -> None:
    if path.exists():
        raise RecordError(f"{path} already exists", hint="Give --out another path.")


def export_files(store: Store, campaign: Campaign, out: Path) -> list[Path]:
    """Copy the files of a campaign's job into a folder, as they were at the end of the job or, if it is still running,
    as they are now.

    RecordError if the job wrote no files, if a file is gone or has changed since, or if a file cannot be written.
    """
    noted = last_files(store, campaign.id)
    if not noted:
        raise RecordError(f"the job of campaign {campaign.id} wrote no files", hint="Export its runs: --format jsonl")
    return _write_into(out, [(Path(file.path).name, _content(file)) for file in noted])


def _content(file: NotedFile) -> bytes:
    with system_errors(RecordError, f"{file.path} cannot be read", hint="Restore the file."):
        content = Path(file.path).read_bytes()[: file.bytes]
    if file.sha256 is not None and hashlib.sha256(content).hexdigest() != file.sha256:
        raise RecordError(f"{file.path} has changed since the job wrote it", hint="To export the runs: --format jsonl")
    return content


def command_of(store: SqlStore, campaign: Campaign) -> tuple[tuple[str, ...], Path]:
    """The command line that continues an interrupted campaign, and its working folder.

    RecordError if the campaign is finished or running, if no command line started it, or if its command runs the user's
    own command or operator library or would use another results database.
    """
    row = _row(store, campaign)
    if row.finished or row.running:
        state = "finished" if row.finished else "running"
        raise RecordError(f"the campaign {campaign.id} is {state}", hint="Only interrupted campaigns can be resumed.")
    asked = last_command(store, campaign.id)
    if asked is None:
        raise RecordError(
            f"the results database has no command for the campaign {campaign.id}",
            hint="Repeat the original call with the same options: it continues the campaign.",
        )
    words = tuple(word for word in asked.arguments if word != "--fresh")  # which would start a new campaign
    if any("library=" in word or word.partition("=")[0] == "--command" for word in words):
        raise RecordError(
            f"the campaign {campaign.id} runs your own command or operator library, which gnomon runs only if you name "
            "it",
            hint=f"If you trust it: cd {shlex.quote(asked.folder)} && gnomon {shlex.join(words)}",
        )
    own = any(word.partition("=")[0] == "--record" for word in words)
    if not own and whole(store.address) != whole(default_record()):
        raise RecordError(
            f"the campaign's command would use a results database other than {store.address}",
            hint=f"Set GNOMON_RECORD={shlex.quote(str(whole(store.address)))}",
        )
    return words, Path(asked.folder)


def _row(store: Store, campaign: Campaign) -> CampaignRow:
    tallies = list(store.query(TallyQuery(campaign=campaign.id)))
    finished = any(True for _ in store.query(CampaignQuery(id=campaign.id, finished=True)))
    running = any(True for _ in store.query(CampaignQuery(id=campaign.id, held=True)))
    return CampaignRow(
        campaign=campaign,
        finished=finished,
        running=running,
        failed=None if finished or running else last_note(store, campaign.id, FAILED) or None,
        candidates=len(tallies),
        runs=sum(t.runs for t in tallies),
        failures=sum(t.failures for t in tallies),
        decision=last_note(store, campaign.id, DECISION),
    )


def _candidate(name: str, runs: Iterable[Run], clock: Literal["wall", "cpu"]) -> CandidatePart:
    blocks: list[Block] = []
    count = failures = profiled = 0
    last: Failure | None = None
    for run in runs:  # one at a time, because the traces of profiled runs may be large
        count += 1
        profiled += run.profiled
        failures += run.failure is not None
        last = run.failure or last
        blocks.extend(blocks_of([run], clock=clock))
    return CandidatePart(
        candidate=name,
        runs=count,
        failures=failures,
        profiled_runs=profiled,
        summary=summarise(blocks) if any(b.values_s for b in blocks) else None,
        last_failure=last,
    )


def _csv(values: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([clean(v, lines=True) if isinstance(v, str) else v for v in values])
    return buffer.getvalue()

"""Importing runs into a results database, and merging results databases into a new one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gnomon.errors import RecordError, system_errors
from gnomon.jobs.runs.document import BroughtDocument, BroughtPart
from gnomon.store.address import DatabaseAddress, RecordAddress, default_record, whole
from gnomon.store.base import COMMAND, FILES
from gnomon.store.join import Convert, join_records, opened
from gnomon.store.opening import is_missing, open_store
from gnomon.system.files import staged


def import_runs(sources: Sequence[RecordAddress], record: RecordAddress | None) -> BroughtDocument:
    """Add to a results database (None: the user's own) everything in the sources that it lacks.

    A source is a results database or the JSON lines of `gnomon runs export`, and is added completely or not at all. The
    command lines of its campaigns and the names of their files are not imported, because they are valid only on the
    source's machine. RecordError or ProblemError if a source is damaged or missing; the sources before it remain
    imported.
    """
    into = default_record() if record is None else record
    own = (COMMAND, FILES)
    files = (_brought(source, into, lambda event: None if event.name in own else event) for source in sources)
    return BroughtDocument(record=str(into), files=tuple(files))


def merge_runs(sources: Sequence[RecordAddress], out: RecordAddress) -> BroughtDocument:
    """Write the contents of several sources (see `import_runs`) to the file of a new results database.

    RecordError if the file already exists or cannot be written; in either case, nothing is written.
    """
    add = f"gnomon runs import FILE --record {shlex.quote(str(out))}"
    if isinstance(out, DatabaseAddress):
        raise RecordError(f"{out} is not a file", hint=f"To import into a database: {add}")
    if out.exists():
        raise RecordError(f"{out} already exists", hint=f"To import into it: {add}")
    with system_errors(RecordError, f"{out} cannot be written", hint="Give --out another file."), staged(out) as part:
        files = tuple(_brought(source, part, lambda event: event) for source in sources)
    return BroughtDocument(record=str(out), files=files)


def _brought(source: RecordAddress, into: RecordAddress, change: Convert) -> BroughtPart:
    if is_missing(source):
        raise RecordError(f"there is no file {source}", hint="Give a results database, or an export of gnomon runs.")
    linked = isinstance(source, Path) and isinstance(into, Path) and into.exists() and source.samefile(into)
    if linked or whole(source) == whole(into):
        raise RecordError(f"{source} is itself the destination", hint="Give another file.")
    with opened(source) as origin, open_store(into) as target:
        return BroughtPart(path=str(source), **join_records(origin, target, change))

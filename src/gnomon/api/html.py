"""`gnomon report` as a function: HTML pages, and tables in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gnomon.api.compare import Changed, Sessions
from gnomon.api.options import PathLike, Record
from gnomon.jobs.html import job
from gnomon.jobs.html.job import write_page
from gnomon.jobs.html.page import page
from gnomon.jobs.html.views import cell_parts, markdown
from gnomon.options import option
from gnomon.values import new_file

__all__ = ["cell_parts", "markdown", "page", "write_page", "write_report"]


def write_report(
    *runs: Annotated[PathLike, option(metavar="RUN", complete="run", least=1)],
    out: Annotated[PathLike, option("--out", "-o", read=new_file, metavar="FILE", help="The page.")] = "report.html",
    sessions: Sessions = 0.02,
    changed: Changed = (),
    record: Record = None,
) -> int:
    """Write one self-contained HTML page that shows runs; return its size in bytes.

    Runs are named as in `compare`. With several runs, the later ones are compared with the first; `changed` and
    `sessions` are as in `compare`. The page embeds the documents of the runs, so that `compare` and this function can
    read it. Raises GnomonError.
    """
    from gnomon.store.address import record_address

    names = [str(run) for run in runs]
    address = record_address(record)
    return job.write_report(names, Path(out), record=address, changed=tuple(changed), sessions=sessions)

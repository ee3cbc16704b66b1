"""Writes one page in HTML of one run or several, compared where they can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.core import codec
from gnomon.errors import RecordError, UsageError, system_errors
from gnomon.jobs.compare.job import SESSIONS, compare
from gnomon.jobs.compare.sides import CONFIGURATIONS, Side, read_run
from gnomon.jobs.html.page import page
from gnomon.store.address import RecordAddress
from gnomon.system.files import write_whole

_HOLDING = {"gnomon-tuned": "tuned", "gnomon-overlay-collected": "collected"}
"""Documents that hold one of each device, and where."""


def write_report(
    names: Sequence[str],
    out: Path,
    *,
    record: RecordAddress | None = None,
    changed: Iterable[str] = (),
    sessions: float = SESSIONS,
) -> int:
    """Write the page of the runs that words name, as `read_run` takes them; returns how many bytes it has.

    Of several, later ones are compared with the first, where all of them have configurations; `changed` and `sessions`
    as in `compare`. GnomonError where a run is not found, or the file cannot be written.
    """
    if not names:
        raise UsageError("a report is of a run", hint="For example: gnomon report last")
    documents = [read_run(name, record, None) for name in names]
    compared = None
    if len(documents) > 1 and all(document.format in CONFIGURATIONS for document in documents):
        sides = [Side(name=name, document=document) for name, document in zip(names, documents, strict=True)]
        compared = compare(sides, record=record, changed=changed, sessions=sessions)
    return _write(page([codec.document(document) for document in documents], names, compared), out)


def write_page(document: Mapping[str, Any], out: Path) -> int:
    """Write the page of a document, or of those that it holds; returns how many bytes it has.

    RecordError where it cannot be written.
    """
    held = _HOLDING.get(document["format"], "")
    documents = document.get(held) or [document]
    names = [out.name] if len(documents) == 1 else [_device(each) or out.name for each in documents]
    kept = any("campaign" in each for each in documents)
    return _write(page(documents, names), out, _ELSEWHERE if kept else _AGAIN)


def _device(document: Mapping[str, Any]) -> str:
    device = document.get("device") or ""
    return str(device.get("key") or "") if isinstance(device, Mapping) else str(device)


_ELSEWHERE = "gnomon report last -o FILE writes it elsewhere."
_AGAIN = "Give --html a file in a folder that has room; nothing but the page is lost."
"""The hint where no record has the document."""


def _write(text: str, out: Path, hint: str = _ELSEWHERE) -> int:
    content = text.encode()
    with system_errors(RecordError, f"{out} cannot be written", hint=hint):
        write_whole(content, out)
    return len(content)

"""Writes one HTML page about one or several runs, with a comparison if possible."""

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
"""Formats whose documents contain one document per device, and the key under which they hold these documents."""


def write_report(
    names: Sequence[str],
    out: Path,
    *,
    record: RecordAddress | None = None,
    changed: Iterable[str] = (),
    sessions: float = SESSIONS,
) -> int:
    """Write the page about the named runs (see `read_run`); return its size in bytes.

    If there are several runs and all have configurations, the later ones are compared with the first; `changed` and
    `sessions` are as in `compare`. GnomonError if a run is not found or the file cannot be written.
    """
    if not names:
        raise UsageError("a report needs at least one run", hint="For example: gnomon report last")
    documents = [read_run(name, record, None) for name in names]
    compared = None
    if len(documents) > 1 and all(document.format in CONFIGURATIONS for document in documents):
        sides = [Side(name=name, document=document) for name, document in zip(names, documents, strict=True)]
        compared = compare(sides, record=record, changed=changed, sessions=sessions)
    return _write(page([codec.document(document) for document in documents], names, compared), out)


def write_page(document: Mapping[str, Any], out: Path) -> int:
    """Write the page about a document, or about the documents that it holds; return its size in bytes.

    RecordError if the page cannot be written.
    """
    held = _HOLDING.get(document["format"], "")
    documents = document.get(held) or [document]
    names = [out.name] if len(documents) == 1 else [_device(each) or out.name for each in documents]
    kept = any("campaign" in each for each in documents)
    return _write(page(documents, names), out, _ELSEWHERE if kept else _AGAIN)


def _device(document: Mapping[str, Any]) -> str:
    device = document.get("device") or ""
    return str(device.get("key") or "") if isinstance(device, Mapping) else str(device)


_ELSEWHERE = "gnomon report last -o FILE writes the page elsewhere."
_AGAIN = "Give --html a file in a folder with free space; only the page is missing."
"""The hint if the document is not in any results database."""


def _write(text: str, out: Path, hint: str = _ELSEWHERE) -> int:
    content = text.encode()
    with system_errors(RecordError, f"{out} cannot be written", hint=hint):
        write_whole(content, out)
    return len(content)

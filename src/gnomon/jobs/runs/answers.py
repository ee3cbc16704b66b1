"""The answers of jobs, stored in the results database with the runs behind them.

A job's document (docs/formats/documents.md) is stored as a compressed event of its campaign, so that it can be shown
again, compared and exported without measuring or deciding again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core import codec
from gnomon.core.sample import Campaign
from gnomon.errors import GnomonError, ProblemError, RecordError
from gnomon.store.address import RecordAddress, record_address
from gnomon.store.base import CampaignQuery, Store, last_note, note
from gnomon.store.opening import is_missing, open_store, read_store
from gnomon.system.files import file_digest

if TYPE_CHECKING:
    from gnomon.session.request import ModelRequest

ANSWER = "answer"
"""The name of the event that holds a job's document."""

_MOST_BYTES = 32 << 20
_SMALL_BYTES, _MOST_RATIO = 4 << 20, 100
"""The size up to which any answer is unpacked, and the largest ratio of unpacked to packed bytes for larger answers. An
answer with 2,012 operators in four configurations of 1,800 samples each takes 1.5 MB, 8 times its packed size.
"""

_HINT = "To compute the answer again, repeat the job's command. To export the runs: gnomon runs export --format jsonl"
_QUESTION = "question"
"""The key in the data of `ANSWER` that holds the digest of the question."""


def keep(document: Mapping[str, object], tell: Callable[[str], None] | None, question: str | None = None) -> None:
    """Store a job's document in its campaign, with the question that it answers (see `question_of`).

    If the document cannot be stored, `tell` gets the reason.
    """
    record = record_address(str(document["record"]))
    if not is_missing(record):  # a result made by hand has no record
        keep_in(record, str(document["campaign"]), document, tell, question)


def keep_in(
    record: RecordAddress | None,
    campaign: str,
    document: Mapping[str, object],
    tell: Callable[[str], None] | None,
    question: str | None = None,
) -> None:
    """Like `keep`, in a campaign of the results database `record` (None: the user's own)."""
    try:
        with open_store(record) as store:
            data = packed(document) | ({} if question is None else {_QUESTION: question})
            unpacked(data, campaign)  # raises if the answer is too large to be read again
            note(store, campaign, ANSWER, data)
    except GnomonError as error:
        if tell is not None:
            tell(f"the answer was not stored in the results database: {error.message}")


def packed(document: Mapping[str, object]) -> dict[str, str]:
    """A document as the data of an event."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return {"zlib": base64.b64encode(zlib.compress(text.encode())).decode()}


def answer_of(store: Store, campaign: Campaign) -> Any:
    """The last document of a campaign's job, as a dataclass; None without one. RecordError for a damaged document."""
    document = kept_answer(store, campaign)
    if document is None:
        return None
    from gnomon.jobs.documents import read_document  # imported here, because storing an answer needs no schemas

    try:
        return read_document(document)
    except (ProblemError, RecordError) as error:
        # Another version of gnomon may have written additional fields.
        raise RecordError(
            f"the answer of the campaign {campaign.id} is damaged, or comes from another version of gnomon: "
            f"{error.message}",
            hint=_HINT,
        ) from error


def kept_answer(store: Store, campaign: Campaign) -> dict[str, object] | None:
    """Like `answer_of`, but as an unchecked object; checking a large answer takes ten times as long as reading it."""
    data = last_note(store, campaign.id, ANSWER)
    return None if data is None else unpacked(data, campaign.id)


def unpacked(data: Mapping[str, str], campaign: str) -> dict[str, object]:
    """The object in an event's data. RecordError, with the campaign's id, for data that is damaged or too large."""
    try:
        content = base64.b64decode(data["zlib"], validate=True)
        most = max(_SMALL_BYTES, min(_MOST_BYTES, _MOST_RATIO * len(content)))
        text = zlib.decompressobj().decompress(content, most + 1)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise _damaged(campaign, str(error)) from error
    if len(text) > most:
        raise RecordError(f"the answer of the campaign {campaign} has more than {most} bytes", hint=_HINT)
    try:
        document = codec.loads(text)
    except RecordError as error:
        raise _damaged(campaign, error.message) from error
    if not isinstance(document, dict):
        raise _damaged(campaign, "it is not a JSON object")
    return document


def _damaged(campaign: str, why: str) -> RecordError:
    return RecordError(f"the answer of the campaign {campaign} is damaged: {why}", hint=_HINT)


def answered_cell(store: Store, kind: str, cell: Mapping[str, str]) -> tuple[bool, Any]:
    """Whether a suite's cell has a finished campaign of this kind, and the stored answer of the job, if any."""
    finished = False
    for campaign in store.query(CampaignQuery(kind=kind, finished=True, cell=cell)):
        finished = True
        if (answer := _sound_answer(store, campaign)) is not None:
            return True, answer
    return finished, None


def question_of(request: ModelRequest, package: Path | None) -> str:
    """The digest of a request, including the content of its inputs and the package's folder, but not the model.

    The results database and the time to wait for a device do not belong to the question.
    """
    question = asdict(replace(request, time=None, record=None, wait_s=0.0, fresh=False, model=Path(), feeds={}))
    question["feeds"] = {name: file_digest(path) for name, path in request.feeds.items() if path.is_file()}
    question["package"] = None if package is None else package.absolute()
    values = json.loads(json.dumps(question, default=str), parse_int=float)  # 1 second is 1.0 seconds
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def asked_before(record: RecordAddress | None, kind: str, question: str, digest: str, *, package: Path) -> Any:
    """The stored answer to a question about a model with this digest, for the same package; None without one."""
    if record is not None and is_missing(record):
        return None
    with read_store(record) as store:
        for campaign in store.query(CampaignQuery(kind=kind, model_digest=digest, finished=True)):
            data = last_note(store, campaign.id, ANSWER)
            if isinstance(data, Mapping) and data.get(_QUESTION) == question:
                answer = _sound_answer(store, campaign)
                if answer is not None and answer.package == str(package):
                    return answer
    return None


def _sound_answer(store: Store, campaign: Campaign) -> Any:
    """Like `answer_of`, but None for a damaged answer or the answer of another job."""
    try:
        answer = answer_of(store, campaign)
    except RecordError:
        return None
    return answer if answer is not None and answer.format == f"gnomon-{campaign.kind}" else None

"""The answers of jobs, stored in the results database next to the runs that they are based on.

A job's document (docs/formats/documents.md) is a compressed event of its campaign, so that it can be shown again,
compared and exported without measuring or deciding again.
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
"""The size that any answer may unpack to, and the largest ratio of unpacked to packed bytes for larger answers. 2,012
operators in four configurations of 1,800 samples each take 1.5 MB, which is 8 times as much as packed.
"""

_HINT = "gnomon runs export --format jsonl has its runs; the same command answers again."
_QUESTION = "question"
"""The key in the data of `ANSWER` that holds the digest of the question."""


def keep(document: Mapping[str, object], tell: Callable[[str], None] | None, question: str | None = None) -> None:
    """Store a job's document in the campaign that it names, with the question that it answers (see `question_of`).

    A failure to write is reported; the answer remains valid.
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
            unpacked(data, campaign)  # raises if it is too large to be read again
            note(store, campaign, ANSWER, data)
    except GnomonError as error:
        if tell is not None:
            tell(f"the answer is not kept in the results database: {error.message}")


def packed(document: Mapping[str, object]) -> dict[str, str]:
    """A document as the data of an event."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return {"zlib": base64.b64encode(zlib.compress(text.encode())).decode()}


def answer_of(store: Store, campaign: Campaign) -> Any:
    """The record of the last document with which a campaign's job answered; None without one. A damaged document raises
    RecordError, which names the campaign.
    """
    document = kept_answer(store, campaign)
    if document is None:
        return None
    from gnomon.jobs.documents import read_document  # only here, as storing an answer needs no schemas

    try:
        return read_document(document)
    except (ProblemError, RecordError) as error:
        # Another version of gnomon that uses the same record may know additional fields.
        raise RecordError(
            f"the answer of the campaign {campaign.id} is damaged, or of another version of gnomon: {error.message}",
            hint=_HINT,
        ) from error


def kept_answer(store: Store, campaign: Campaign) -> dict[str, object] | None:
    """Like `answer_of`, but returns the unchecked object; checking a large one takes ten times as long as reading."""
    data = last_note(store, campaign.id, ANSWER)
    return None if data is None else unpacked(data, campaign.id)


def unpacked(data: Mapping[str, str], campaign: str) -> dict[str, object]:
    """The object in an event's data. Damaged or too large data raises RecordError, which names the campaign."""
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
        raise _damaged(campaign, "it holds no object")
    return document


def _damaged(campaign: str, why: str) -> RecordError:
    return RecordError(f"the answer of the campaign {campaign} is damaged: {why}", hint=_HINT)


def answered_cell(store: Store, kind: str, cell: Mapping[str, str]) -> tuple[bool, Any]:
    """Whether a cell of a suite's run has a finished campaign of this kind, and the job's answer if it is stored."""
    finished = False
    for campaign in store.query(CampaignQuery(kind=kind, finished=True, cell=cell)):
        finished = True
        if (answer := _sound_answer(store, campaign)) is not None:
            return True, answer
    return finished, None


def question_of(request: ModelRequest, package: Path | None) -> str:
    """The digest of a request, with the content of its inputs and the folder of the package, but without the model.

    The results database and the time to wait for a device do not belong to the question.
    """
    question = asdict(replace(request, time=None, record=None, wait_s=0.0, fresh=False, model=Path(), feeds={}))
    question["feeds"] = {name: file_digest(path) for name, path in request.feeds.items() if path.is_file()}
    question["package"] = None if package is None else package.absolute()
    values = json.loads(json.dumps(question, default=str), parse_int=float)  # 1 second is 1.0 seconds
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def asked_before(record: RecordAddress | None, kind: str, question: str, digest: str, *, package: Path) -> Any:
    """The answer to the same question about the same model's content, with the same `package`; None without one."""
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
    """Like `answer_of`, but also None if the answer is damaged or from another job; the caller then answers again."""
    try:
        answer = answer_of(store, campaign)
    except RecordError:
        return None
    return answer if answer is not None and answer.format == f"gnomon-{campaign.kind}" else None

"""The answers of jobs, kept in the results database beside the runs that they rest on.

A job's document (docs/formats/documents.md) is an event of its campaign, compressed: it is shown again, compared and
exported without being measured, or decided, once more.
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
"""What any answer may unpack to, and of larger ones how many times their packed bytes: 2,012 operators in four
configurations of 1,800 samples each take 1.5 MB, which is 8 times as much as packed."""

_HINT = "gnomon runs export --format jsonl has its runs; the same command answers again."
_QUESTION = "question"
"""The key in the data of `ANSWER` that has the digest of what was asked."""


def keep(document: Mapping[str, object], tell: Callable[[str], None] | None, question: str | None = None) -> None:
    """Note a job's document in the campaign that it names, and the question that it answers (see `question_of`).

    What cannot be written is reported, and the answer stands.
    """
    record = record_address(str(document["record"]))
    if not is_missing(record):  # a result that was made by hand
        keep_in(record, str(document["campaign"]), document, tell, question)


def keep_in(
    record: RecordAddress | None,
    campaign: str,
    document: Mapping[str, object],
    tell: Callable[[str], None] | None,
    question: str | None = None,
) -> None:
    """As `keep`, in a campaign of that results database (None: the user's own)."""
    try:
        with open_store(record) as store:
            data = packed(document) | ({} if question is None else {_QUESTION: question})
            unpacked(data, campaign)  # one that is too large to be read again
            note(store, campaign, ANSWER, data)
    except GnomonError as error:
        if tell is not None:
            tell(f"the answer is not kept in the results database: {error.message}")


def packed(document: Mapping[str, object]) -> dict[str, str]:
    """A document as the data of an event."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return {"zlib": base64.b64encode(zlib.compress(text.encode())).decode()}


def answer_of(store: Store, campaign: Campaign) -> Any:
    """The record of the document that a campaign's job answered with last; None without one. RecordError, which names
    the campaign, where it is damaged.
    """
    document = kept_answer(store, campaign)
    if document is None:
        return None
    from gnomon.jobs.documents import read_document  # schemas, which no answer needs that is only kept

    try:
        return read_document(document)
    except (ProblemError, RecordError) as error:
        # Another gnomon of the same record may know fields that this one does not.
        raise RecordError(
            f"the answer of the campaign {campaign.id} is damaged, or of another version of gnomon: {error.message}",
            hint=_HINT,
        ) from error


def kept_answer(store: Store, campaign: Campaign) -> dict[str, object] | None:
    """As `answer_of`, but any object, as it is: to check all of a large one takes ten times as long as to read it."""
    data = last_note(store, campaign.id, ANSWER)
    return None if data is None else unpacked(data, campaign.id)


def unpacked(data: Mapping[str, str], campaign: str) -> dict[str, object]:
    """The object in an event's data. RecordError, which names the campaign, for data that is damaged or too large."""
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
    """Whether a cell of a suite's run has a finished campaign of that kind, and the answer of its job if it is kept."""
    finished = False
    for campaign in store.query(CampaignQuery(kind=kind, finished=True, cell=cell)):
        finished = True
        if (answer := _sound_answer(store, campaign)) is not None:
            return True, answer
    return finished, None


def question_of(request: ModelRequest, package: Path | None) -> str:
    """The digest of what a request asks of a model's content and of its inputs', with the folder of the package.

    The results database and the time that a device is waited for do not belong to it.
    """
    question = asdict(replace(request, time=None, record=None, wait_s=0.0, fresh=False, model=Path(), feeds={}))
    question["feeds"] = {name: file_digest(path) for name, path in request.feeds.items() if path.is_file()}
    question["package"] = None if package is None else package.absolute()
    values = json.loads(json.dumps(question, default=str), parse_int=float)  # 1 second is 1.0 seconds
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def asked_before(record: RecordAddress | None, kind: str, question: str, digest: str, *, package: Path) -> Any:
    """The answer to the same question about the same model's content that names `package` so; None without one."""
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
    """As `answer_of`; None also where it is damaged or of another job: who asks answers again."""
    try:
        answer = answer_of(store, campaign)
    except RecordError:
        return None
    return answer if answer is not None and answer.format == f"gnomon-{campaign.kind}" else None

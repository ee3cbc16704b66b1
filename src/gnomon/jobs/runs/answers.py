"""What jobs answered, kept in the results database beside the runs that it was made of.

A job's document (docs/formats/documents.md) is an event of its campaign, compressed: it is shown again, compared and
exported without being measured, or decided, once more.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.core.sample import Campaign
from gnomon.errors import GnomonError, RecordError
from gnomon.store.address import RecordAddress, record_address
from gnomon.store.base import COMMAND, CampaignQuery, Store, last_note, note
from gnomon.store.opening import is_missing, open_store, read_store

ANSWER = "answer"
"""The name of the event that holds a job's document."""

_MOST_BYTES = 256 << 20
_SHOWN_ONLY = frozenset({"--json", "--quiet", "-v", "--verbose", "--no-picture"})
"""Words of a command that change nothing of what is measured."""


def keep(document: Mapping[str, Any], tell: Callable[[str], None] | None) -> None:
    """Note a job's document in the campaign that it names. What cannot be written is told, and the answer stands."""
    record = record_address(document["record"])
    if is_missing(record):  # a result that was made by hand
        return
    try:
        with open_store(record) as store:
            note(store, document["campaign"], ANSWER, packed(document))
    except GnomonError as error:
        if tell is not None:
            tell(f"the answer is not kept in the results database: {error.message}")


def packed(document: Mapping[str, Any]) -> dict[str, str]:
    """A document as the data of an event."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return {"zlib": base64.b64encode(zlib.compress(text.encode())).decode()}


def answer_of(store: Store, campaign: Campaign) -> dict[str, Any] | None:
    """The document that a campaign's job answered with last; None without one. RecordError where it is damaged."""
    data = last_note(store, campaign.id, ANSWER)
    return None if data is None else unpacked(data, campaign.id)


def unpacked(data: Mapping[str, Any], campaign: str) -> dict[str, Any]:
    """The document of an event's data; RecordError, which names the campaign, where it is damaged."""
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(base64.b64decode(data["zlib"], validate=True), _MOST_BYTES)
        document = json.loads(text)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise RecordError(
            f"the answer of the campaign {campaign} is damaged: {error}",
            hint="gnomon runs export --format jsonl has its runs; the same command answers again.",
        ) from error
    if not isinstance(document, dict):
        raise RecordError(f"the answer of {campaign} is damaged: it holds no object", hint="Measure again.")
    return document


def answered_cell(store: Store, kind: str, cell: Mapping[str, str]) -> tuple[bool, dict[str, Any] | None]:
    """Whether a cell of a suite's run has a finished campaign of that kind, and the answer of its job if it is kept."""
    finished = False
    for campaign in store.query(CampaignQuery(kind=kind, finished=True, cell=cell)):
        finished = True
        if (document := answer_of(store, campaign)) is not None:
            return True, document
    return finished, None


def asked_before(
    record: RecordAddress | None, kind: str, words: Sequence[str], folder: Path, digest: str
) -> dict[str, Any] | None:
    """The answer to the same command, given in the same folder about the same model's content; None without one."""
    asked = [word for word in words if word not in _SHOWN_ONLY]
    if record is not None and is_missing(record):
        return None
    with read_store(record) as store:
        for campaign in store.query(CampaignQuery(kind=kind, model_digest=digest, finished=True)):
            before = last_note(store, campaign.id, COMMAND) or {"arguments": [], "folder": ""}
            if [w for w in before["arguments"] if w not in _SHOWN_ONLY] == asked and before["folder"] == str(folder):
                return answer_of(store, campaign)
    return None

"""A campaign: one question put to one device, and the context in which its runs were taken."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything that must be equal before two runs may be compared.

    `device` is the fingerprint of `DeviceInfo`; `versions` are those of the runtimes ("onnxruntime":
    "1.23.2"); `model_digest` is the SHA-256 of the model file; `options` are the settings that the user
    could choose.
    """

    device: Mapping[str, Any]
    versions: Mapping[str, str]
    model_digest: str
    model_name: str
    options: Mapping[str, Any]
    seed: int
    gnomon_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The runs that answer one question.

    `id` is unique in the record. `kind` is what is asked ("profile", "proof", "price", ..). `key` is
    equal for two campaigns that ask the same (see `question_key`): one that has not finished can be
    resumed by the other. `started_at_s` is seconds since 1970, UTC.
    """

    id: str
    kind: str
    key: str
    context: Context
    started_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something found or decided in a campaign that is not a run.

    `name` is "finished" where a campaign is complete, and "reopened" where one that was goes on; other names are the
    job's own ("probe", "decision"). `at_s` is seconds since 1970, UTC; `data` holds JSON values only.
    """

    name: str
    at_s: float
    data: Mapping[str, Any] = field(default_factory=dict)


FINISHED = "finished"
"""The name of the event that closes a campaign: without it the campaign can be resumed."""

REOPENED = "reopened"
"""The name of the event after which a finished campaign is open again, until it is finished once more."""


def question_key(kind: str, context: Context, question: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of all that makes two campaigns the same question.

    `question` holds the job's own part, in JSON values: the candidates, the protocol. The model's file
    name does not count, its digest does. Raises ValueError or TypeError for values that JSON does not
    have.
    """
    whole = {
        "kind": kind,
        "device": dict(context.device),
        "versions": dict(context.versions),
        "model": context.model_digest,
        "options": dict(context.options),
        "seed": context.seed,
        "gnomon": context.gnomon_version,
        "question": dict(question),
    }
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()

"""What passes between the server and the program that measures: an order, and what came of it, a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core.codec import decode, from_json, to_json
from gnomon.core.strict_json import Complaints, Strict
from gnomon.devices.address import LOCAL
from gnomon.errors import ProblemError
from gnomon.serving.command import Command
from gnomon.store.address import RecordAddress, record_address

_MOST_LETTERS = 1 << 20
_ANSWER = Strict(what="answer of the measuring program", hint="Please report this.", most_letters=_MOST_LETTERS)
REFUSED, FAILED, TIMED_OUT = "refused", "failed", "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is measured, with what, and within which limits.

    Without a `model` the reference kernel alone is measured, which tells the speed of the machine as the server starts:
    its calls by process are the `reference_s` of later orders. `digest` names what is in the model's file. Either a
    `runtime` measures or a `command`. `processes` are fresh ones; `warm` keeps one instead, where that is possible.
    """

    job_s: float
    memory_bytes: int
    disk_bytes: int
    model_bytes: int
    runtime: str = ""
    command: Command | None = None
    device: str = LOCAL
    threads: int = 1
    backend: str | None = None
    precision: str | None = None
    processes: int = 1
    warm: bool = False
    seed: int = 0
    record: str | None = None
    model: str | None = None
    digest: str = ""
    reference_s: tuple[float, ...] = ()

    def line(self) -> bytes:
        """As one line; `order_of` reads it."""
        return json.dumps(to_json(self)).encode() + b"\n"

    @property
    def record_path(self) -> RecordAddress | None:
        """The record of runs; None: the user's own."""
        return None if self.record is None else record_address(self.record)


def order_of(line: bytes) -> Order:
    """The order that `Order.line` wrote."""
    return from_json(Order, json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The model cannot be measured, which is the model's own affair: why, and the next step."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The measuring itself failed, whatever the model: the kind of error (of `gnomon.errors`), why, the next step."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """The job was ended at its time limit; `said` is the last that it had told."""

    limit_s: float
    said: str = ""


Found = Mapping[str, Any]
"""What was measured: the keys of the JSON reply (docs/jobs/serve.md), `reference_s`, `workload_mop`."""

Outcome = Found | Refused | Failed | TimedOut


def outcome_of(text: str) -> Outcome:
    """What the program's standard output says. ProblemError where it is not an answer."""
    answer = _ANSWER.object(_ANSWER.parse(text), "$")
    for key, kind in ((REFUSED, Refused), (FAILED, Failed), (TIMED_OUT, TimedOut)):
        if key in answer:
            complaints = Complaints(what=_ANSWER.what, hint=_ANSWER.hint)
            found: Refused | Failed | TimedOut = decode(kind, answer[key], complaints, f"$.{key}")
            complaints.raise_any()
            return found
    if not {"latency_s", "reference_s", "runtime"} <= answer.keys():
        raise ProblemError("the measuring program's answer lacks something", hint="Please report this.")
    return answer

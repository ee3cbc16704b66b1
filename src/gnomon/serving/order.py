"""What passes between the server and the program that measures one model: an order, and what came of it, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import Strict
from gnomon.errors import ProblemError

_MOST_LETTERS = 1 << 20
_ANSWER = Strict(what="answer of the measuring program", hint="Please report this.", most_letters=_MOST_LETTERS)
REFUSED, FAILED = "refused", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is measured, with what, and within which limits.

    Without a `model` the anchor alone is measured, which tells the speed of the machine as the server starts: its
    calls by process are the `reference_s` of later orders. `digest` names what is in the model's file.
    """

    runtime: str
    threads: int
    backend: str | None
    precision: str | None
    processes: int
    seed: int
    record: str | None
    job_s: float
    memory_bytes: int
    disk_bytes: int
    model: str | None = None
    digest: str = ""
    reference_s: tuple[float, ...] = ()

    def text(self) -> str:
        """As one JSON text; `order_of` reads it."""
        return json.dumps(asdict(self))

    @property
    def record_path(self) -> Path | None:
        """The record of runs; None: the user's own."""
        return None if self.record is None else Path(self.record)


def order_of(text: str) -> Order:
    """The order that `Order.text` wrote."""
    given = json.loads(text)
    return Order(**{**given, "reference_s": tuple(given["reference_s"])})


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
"""What was measured: the keys of the JSON reply (docs/serve.md), `reference_s`, `workload_mop`."""

Outcome = Found | Refused | Failed | TimedOut


def outcome_of(text: str) -> Outcome:
    """What the program's standard output says. ProblemError where it is no answer."""
    answer = _ANSWER.object(_ANSWER.parse(text), "$")
    if REFUSED in answer:
        return Refused(**answer[REFUSED])
    if FAILED in answer:
        return Failed(**answer[FAILED])
    if not {"latency_s", "reference_s", "runtime"} <= answer.keys():
        raise ProblemError("the measuring program's answer lacks something", hint="Please report this.")
    return answer

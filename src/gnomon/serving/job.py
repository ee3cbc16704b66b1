"""A measurement that the server asks of its measuring process, and what comes of it: a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.core.codec import from_json, loads, to_json
from gnomon.devices.address import LOCAL
from gnomon.serving.settings import Limits, Measuring

_FRESH = 3
"""Fresh processes a model, where the user does not say and none can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is measured, with what, and within which limits.

    Without a `model` the reference kernel alone is measured, which shows the speed of the machine as the server starts:
    its calls by process are the `reference_s` of later jobs. `digest` is that of the model's file. A model is measured
    in `processes` fresh ones; with `kept` in one that stays.
    """

    measuring: Measuring
    limits: Limits
    device: str = LOCAL
    kept: bool = False
    model: str | None = None
    digest: str = ""
    reference_s: tuple[float, ...] = ()

    @property
    def processes(self) -> int:
        """How many fresh processes measure a model."""
        return self.measuring.processes or _FRESH


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job, by its kind.

    "measured": `result` has the keys of the JSON reply (docs/jobs/serve.md), `reference_s` and `workload_mop`.
    "refused": the model cannot be measured, which is the model's own affair; `message` says why, `hint` the next step.
    "failed": the measuring failed, whatever the model; `error` is the class of the error in `gnomon.errors`.
    "timed_out": the job was ended at its time limit; `message` is the last that the measuring process printed.
    """

    kind: Literal["measured", "refused", "failed", "timed_out"]
    result: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    hint: str = ""
    error: str = ""


def to_line(message: Job | Outcome) -> str:
    """The message in one line; `job_of` and `outcome_of` read it."""
    return json.dumps(to_json(message)) + "\n"


def job_of(line: str | bytes) -> Job:
    """The job in a line. RecordError for what is none."""
    return from_json(Job, loads(line))


def outcome_of(line: str | bytes) -> Outcome:
    """The outcome in a line. RecordError for what is none."""
    return from_json(Outcome, loads(line))

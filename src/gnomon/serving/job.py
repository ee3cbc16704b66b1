"""A measurement that the server asks of its measuring process, and what comes of it: a line of JSON each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from gnomon.core.codec import from_json, loads, to_json
from gnomon.devices.address import LOCAL
from gnomon.measure.environment import Caveat
from gnomon.serving.settings import Limits, Measuring

_FRESH = 3
"""Fresh processes a model, where the user does not say and none can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measurement to make, its settings, and its limits.

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
class Measurement:
    """The result of a measurement, with the keys of the JSON reply (docs/jobs/serve.md); the last two are the server's.

    Without times it says what will measure: a command of which the program alone was looked for.

    `reference_s` is what the reference kernel took, by process; `workload_mop` are millions of operations.
    """

    latency_s: float = 0.0
    low_s: float | None = None
    high_s: float | None = None
    processes: int = 0
    loads: int = 0
    interval_of: str = "processes"
    samples: int = 0
    drift: float = 1.0
    runtime: str
    version: str = ""
    configuration: str
    clock: str = "wall"
    doubts: tuple[Caveat, ...] = ()
    device: str
    reference_s: tuple[float, ...] = ()
    workload_mop: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a job, by its kind.

    "measured": `result` is what was measured.
    "refused": the model cannot be measured, which is the model's own affair; `message` says why, `hint` the next step.
    "failed": the measuring failed, whatever the model; `error` is the class of the error in `gnomon.errors`.
    "timed_out": the job was ended at its time limit; `message` is the last that the measuring process printed.
    """

    kind: Literal["measured", "refused", "failed", "timed_out"]
    result: Measurement | None = None
    message: str = ""
    hint: str = ""
    error: str = ""


def to_line(message: Job | Outcome) -> str:
    """The message in one line; `job_of` and `outcome_of` read it."""
    return json.dumps(to_json(message)) + "\n"


def job_of(line: str | bytes) -> Job:
    """The job in a line. RecordError for any other text."""
    return from_json(Job, loads(line))


def outcome_of(line: str | bytes) -> Outcome:
    """The outcome in a line. RecordError for any other text."""
    return from_json(Outcome, loads(line))

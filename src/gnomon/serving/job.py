"""A measurement job that the server sends to its measuring process, and the outcome, each as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from gnomon.core.codec import from_json, loads, to_json
from gnomon.devices.address import LOCAL
from gnomon.measure.environment import Caveat
from gnomon.serving.settings import Limits, Measuring

_FRESH = 3
"""The number of fresh processes for a model, if the user gives none and no process can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measurement to make, its settings, and its limits.

    Without a `model`, only the reference kernel is measured, to show the speed of the machine when the server starts;
    its times, by process, become the `reference_s` of later jobs. `digest` is the digest of the model's file. A model
    is measured in `processes` fresh processes, or with `kept` in one process that is kept.
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
        """The number of fresh processes that measure a model."""
        return self.measuring.processes or _FRESH


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of a measurement, with the keys of the JSON reply (docs/jobs/serve.md); the last two keys are only for
    the server.

    A result without times only describes a command, whose program exists but was not run.

    `reference_s` are the times of the reference kernel, by process; `workload_mop` is the model's workload in millions
    of operations.
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

    "measured": `result` is the measurement.
    "refused": the model itself cannot be measured; `message` says why, and `hint` is the next step.
    "failed": measuring failed independently of the model; `error` is the class of the error in `gnomon.errors`.
    "timed_out": the job was ended at its time limit; `message` is the last line printed by the measuring process.
    """

    kind: Literal["measured", "refused", "failed", "timed_out"]
    result: Measurement | None = None
    message: str = ""
    hint: str = ""
    error: str = ""


def to_line(message: Job | Outcome) -> str:
    """The message as one line, which `job_of` or `outcome_of` reads."""
    return json.dumps(to_json(message)) + "\n"


def job_of(line: str | bytes) -> Job:
    """The job in a line. RecordError for any other line."""
    return from_json(Job, loads(line))


def outcome_of(line: str | bytes) -> Outcome:
    """The outcome in a line. RecordError for any other line."""
    return from_json(Outcome, loads(line))

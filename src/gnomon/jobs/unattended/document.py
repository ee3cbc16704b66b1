"""The JSON documents of `gnomon unattended`, as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.jobs.pareto.document import ParetoDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePart:
    """How far a job is in a stage: steps done of all, and seconds left, null where they are not known."""

    name: str
    done: int
    total: int | None
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPart:
    """A search on a device, as it is there at this moment; times are seconds since 1970 by the device's clock."""

    id: str
    device: str
    address: str
    state: str
    model: str
    folder: str
    made_at_s: float
    started_at_s: float | None
    ended_at_s: float | None
    now_s: float
    starts: int
    exit_code: int | None
    reason: str | None
    command: tuple[str, ...]
    stage: StagePart | None
    log: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsDocument:
    """The jobs of a device: `gnomon unattended list`."""

    format: Literal["gnomon-unattended-jobs"]
    version: Literal[1]
    device: str
    jobs: tuple[JobPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDocument:
    """A job: `gnomon unattended status`, `start` and `stop`."""

    format: Literal["gnomon-unattended-job"]
    version: Literal[1]
    job: JobPart


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedDocument:
    """A job that was carried to a device, and whether this call started and made it: `gnomon pareto --unattended`."""

    format: Literal["gnomon-unattended-carried"]
    version: Literal[1]
    job: JobPart
    started: bool
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRemovedDocument:
    """A job that was removed from a device: `gnomon unattended remove`."""

    format: Literal["gnomon-unattended-removed"]
    version: Literal[1]
    removed: str
    device: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedDocument:
    """What was brought of a job: `gnomon unattended fetch`. `document` is its answer, null before it has ended."""

    format: Literal["gnomon-unattended-fetched"]
    version: Literal[1]
    job: JobPart
    folder: str
    files: tuple[str, ...]
    record: str
    campaigns: int
    runs: int
    document: ParetoDocument | None

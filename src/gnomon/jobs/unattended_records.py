"""What is told of searches that run on a device by themselves, as records and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from gnomon.errors import DeviceError

State = Literal["waiting", "running", "done", "failed", "stopped", "vanished"]
_LONGEST = 10_000
_MOST_LINES = 50
_LAST_S = 253402300799.0
"""The last second of the year 9999, which is as far as calendars of computers go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far a job is: evaluations while it searches, else steps. `left_s` is None while unknown."""

    name: str
    done: int
    total: int
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A search on a device, as it is there at this moment.

    `waiting` is for the device, which another gnomon holds. `failed` ended with `exit_code`, for the reason in the last
    lines of its `log`. `vanished` ended without a word: `reason` says whether the device was started anew. Times are
    seconds since 1970 by the device's clock, `now_s` is that clock. `folder` is its folder there, `starts` how often it
    was started.
    """

    id: str
    device: str
    address: str
    state: State
    reason: str
    model: str
    command: tuple[str, ...]
    folder: str
    made_at_s: float
    started_at_s: float | None
    ended_at_s: float | None
    now_s: float
    starts: int
    exit_code: int | None
    stage: Stage | None
    log: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Whether a process of it is there."""
        return self.state in ("waiting", "running")

    def document(self) -> dict[str, Any]:
        """The job as a JSON object."""
        names = ("id", "device", "address", "state", "model", "folder", "made_at_s", "started_at_s", "ended_at_s")
        stage = self.stage
        return {
            **{name: getattr(self, name) for name in (*names, "now_s", "starts", "exit_code")},
            "reason": self.reason or None,
            "command": list(self.command),
            "stage": None
            if stage is None
            else {"name": stage.name, "done": stage.done, "total": stage.total, "left_s": stage.left_s},
            "log": list(self.log),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What came of carrying a search to a device: the job, and whether this call started it."""

    job: Job
    started: bool
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What was brought from a job into `folder`, by the names there, and into the record.

    `document` is the JSON document of the search with this machine's paths, None where it has not ended well.
    `campaigns` and `runs` are how many of the record were new here. A picture is to be drawn to `picture`.svg.
    """

    job: Job
    folder: Path
    files: tuple[str, ...]
    document: Mapping[str, Any] | None
    picture: Path
    record: Path
    campaigns: int
    runs: int


def job_of(told: object, device: str, address: str) -> Job:
    """A job as a device tells of it. DeviceError for what no job is: it may be broken, or somebody else's."""
    try:
        assert isinstance(told, dict)  # noqa: S101 - as any other nonsense
        own, progress = told["job"], told["progress"]
        state = told["state"]
        if state not in get_args(State) or not isinstance(own, dict):
            raise ValueError(state)
        return Job(
            id=_text(told["id"]),
            device=device,
            address=address,
            state=cast(State, state),
            reason=_text(told["reason"]),
            model=_text(own.get("model", "")),
            command=tuple(_text(word) for word in own.get("command", ())),
            folder=_text(told["folder"]),
            made_at_s=_number(own.get("made_at_s", 0)) or 0.0,
            started_at_s=_number(told["started_at_s"]),
            ended_at_s=_number(told["ended_at_s"]),
            now_s=_number(told["now_s"]) or 0.0,
            starts=int(told["starts"]),
            exit_code=None if told["exit_code"] is None else int(told["exit_code"]),
            stage=None if progress is None else _stage(progress),
            log=tuple(_text(line) for line in told["log"][-_MOST_LINES:]),
        )
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DeviceError(
            f"what lies on {device} tells of no job that gnomon knows ({str(error)[:80]!a})",
            hint="Look into its folder there, which gnomon devices clean does not touch.",
        ) from error


def _stage(progress: object) -> Stage:
    assert isinstance(progress, dict)  # noqa: S101 - as any other nonsense
    left_s = progress.get("left_s")
    return Stage(
        name=_text(progress["stage"]),
        done=int(progress["done"]),
        total=int(progress["total"]),
        left_s=None if left_s is None else _number(left_s),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is wanted")
    return value[:_LONGEST]


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_S:
        raise ValueError("a time is wanted")
    return float(value)

"""The command line that does on a device what was asked here: a request as the words that `gnomon` takes.

What is told of searches that run on a device by themselves, as records and as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from gnomon.core.sample import LAST_S
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.pareto.records import ParetoRequest
from gnomon.measure.effort import Effort
from gnomon.session.request import Request
from gnomon.store.address import RecordAddress

_CARRIED = frozenset(
    {
        *("request", "objectives", "by", "options", "all_cores", "plan", "others", "counters"),
        *("pick", "under", "out", "overwrite", "dumpfile"),
    }
)
#: `device` becomes the settings of the job's own machine, which does not vanish for a while; its record is its own.
_CARRIED_OF_REQUEST = frozenset(
    {
        *("model", "device", "runtimes", "wish", "shapes", "feeds", "effort", "seed"),
        *("fresh", "wait_s", "max_time_s"),
    }
)
_CARRIED_OF_EFFORT = frozenset({"processes_least", "processes_most", "budget_s", "timeout_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where on the device things of this machine lie: the model, the files of inputs, what is written."""

    model: str
    feeds: Mapping[str, str] = field(default_factory=dict)
    out: str | None = None
    dumpfile: str | None = None


def command_of(asked: ParetoRequest, places: Places) -> tuple[str, ...]:
    """The words after `gnomon`, as its command line would read them back to the same request.

    UsageError for what these words have no form for, rather than doing something else there.
    """
    request = asked.request
    if request is None or asked.source is not None:
        raise UsageError("a search over a dump needs no device", hint="Leave out --unattended.")
    if not request.measure:
        raise UsageError(
            "nothing is measured with --no-profile", hint="Leave out one of --unattended and --no-profile."
        )
    if request.record is not None:
        raise UsageError(
            "an unattended search has a record of its own there", hint="Give --record to gnomon unattended fetch."
        )
    _check_nothing_else(asked, ParetoRequest(), _CARRIED)
    _check_nothing_else(request, Request(model=request.model), _CARRIED_OF_REQUEST)
    _check_nothing_else(request.effort, Effort(), _CARRIED_OF_EFFORT)
    words = ["pareto", "--json", *_threads(asked), *_measuring(request, places), *_searching(asked)]
    if places.out is not None:
        words += ["--out", places.out, "--overwrite"]
    if places.dumpfile is not None:
        words += ["--dumpfile", places.dumpfile]
    return (*words, "--", places.model)


def _threads(asked: ParetoRequest) -> Iterator[str]:
    if asked.request is not None and not asked.all_cores:
        yield from ("--threads", ",".join(map(str, asked.request.wish.thread_counts)))


def _measuring(request: Request, places: Places) -> Iterator[str]:
    wish, effort = request.wish, request.effort
    for name in request.runtimes:
        yield from ("--runtime", name)
    for name in wish.backends:
        yield from ("--backend", name)
    for name in wish.precisions:
        yield from ("--precision", name)
    for variables in wish.environments:
        if not variables or any(re.search(r",[A-Za-z_][A-Za-z0-9_]*=", value) for value in variables.values()):
            raise UsageError("an environment has no form on the command line", hint="Give one without commas.")
        yield from ("--env", ",".join(f"{name}={value}" for name, value in variables.items()))
    for name, shape in request.shapes.items():
        yield from ("--shape", f"{name}={','.join(map(str, shape))}")
    for name, place in places.feeds.items():
        if "=" in name:
            raise UsageError(f"the input {name!r} has no form on the command line", hint="Leave out its file.")
        yield from ("--input", f"{name}={place}")
    if (effort.processes_least, effort.processes_most) != (Effort().processes_least, Effort().processes_most):
        if effort.processes_least != effort.processes_most:
            raise UsageError("a range of processes has no form on the command line", hint="Give one number.")
        yield from ("--processes", str(effort.processes_least))
    if request.max_time_s is not None:
        yield from ("--max-time", repr(request.max_time_s))
    yield from ("--budget", repr(effort.budget_s), "--timeout", repr(effort.timeout_s), "--seed", str(request.seed))


def _searching(asked: ParetoRequest) -> Iterator[str]:
    for name in asked.objectives:
        yield from ("--objective", name)
    for name in asked.counters:
        yield from ("--energy-counter", name)
    yield from ("--by", asked.by)
    for name, values in asked.options.items():
        yield from ("--option", f"{name}={','.join(values)}" if values else name)
    if len({(plan.seed, plan.iterations) for plan in asked.plans}) > 1:
        raise UsageError("searches of different lengths have no form on the command line", hint="Search one by one.")
    for plan in asked.plans:
        yield from ("--search", plan.name)
    if asked.plan.iterations is not None:
        yield from ("--iterations", str(asked.plan.iterations))
    if asked.pick is not None:
        yield from ("--pick", str(asked.pick))
    for name, bound in asked.under.items():
        yield from ("--under", f"{name}={float(bound)!r}")


def _check_nothing_else(record: Any, plain: Any, carried: frozenset[str]) -> None:
    """UsageError where something is asked that the command would not say."""
    for one in fields(record):
        if one.name not in carried and getattr(record, one.name) != getattr(plain, one.name):
            raise UsageError(
                f"{one.name.replace('_', ' ')} cannot be given to an unattended search", hint="Leave it as it is."
            )


State = Literal["waiting", "running", "done", "failed", "stopped", "vanished"]
_LONGEST = 10_000
_MOST_LINES = 50


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
    lines of its `log`. `vanished` ended without a word: `reason` says whether the device was restarted. Times are
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
    record: RecordAddress
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
            f"what lies on {device} describes no job that gnomon knows ({str(error)[:80]!a})",
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LAST_S:
        raise ValueError("a time is wanted")
    return float(value)

"""Records of a measurement: raw samples or a failure, the campaign that they belong to, and the times of a trace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from gnomon.core.codec import OTHERS_TOO, Must, Whole, within
from gnomon.core.strict_json import is_text

LAST_S = 253402300799.0 - 2 * 86400
"""The latest accepted moment, in seconds since 1970: two days before the end of the year 9999, the last year that
Python's `datetime` accepts, so that the moment is valid in every time zone."""


def _are_times(times: tuple[int, ...]) -> bool:
    return not times or (min(times) >= 0 and max(times) < 1 << 63)


Moment = Annotated[float, within(0, LAST_S, "seconds since 1970")]
Times = Annotated[tuple[int, ...], Must(be="times in nanoseconds", fits=_are_times)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw times of repeated calls, in the order in which they were taken.

    Each sample is the time of `inner` calls together, in nanoseconds of wall time and of the process's CPU
    time. Statistics are derived from samples (see `gnomon.core.stats`) and never stored in their place.
    """

    wall_ns: Times
    cpu_ns: Times
    inner: Annotated[int, Must(be="a number of calls", fits=lambda calls: calls > 0)] = 1

    @property
    def wall_s(self) -> tuple[float, ...]:
        """Seconds of wall time of one call, one value for each sample."""
        return tuple(t / self.inner * 1e-9 for t in self.wall_ns)

    @property
    def cpu_s(self) -> tuple[float, ...]:
        """Seconds of process CPU time of one call, one value for each sample."""
        return tuple(t / self.inner * 1e-9 for t in self.cpu_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure of a measured candidate. Failures are data: the campaign continues without the candidate.

    `stage` is "probe", "load", "run", "profile" or "check"; for a toolchain "convert", "quantize" or "compile". `kind`
    is "crash" (ended by a signal), "hang" (stopped at the time limit), "refused" (by the runtime), "wrong-output",
    "memory", "vanished" or "unstable" (the candidate works in some processes and dies in others). `transient` is True
    if the same run may succeed later. `log_tail` is the end of the process's output.
    """

    stage: str
    kind: str
    transient: bool
    message: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSamples:
    """Times of one operator, or of one kernel that fuses several, taken inside the whole graph.

    `sources` are the indices of the model's operators that the kernel computes (empty for kernels that the runtime
    added itself, such as a layout reorder). `backend` is the backend on which the kernel ran, according to the
    runtime's own trace.
    """

    name: str
    sources: tuple[int, ...]
    backend: str
    wall_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One visit: one block of samples of one candidate in one process, the unit that is recorded and resumed.

    For users, a run is all measurements of a model on a device by one command. In the code, that is a `Campaign`.

    `candidate` is the name of the candidate within its campaign; `process` is the number of the fresh process, and
    `block` is the number of the visit to that process. Exactly one of `samples` and `failure` is set. `operators` is
    filled by `profiled` runs, which have the runtime's profiler on and are never mixed with end-to-end runs. `facts`
    are further observations with their units in the names, such as `peak_rss_bytes`, `first_call_ns` or
    `load_average_before`.
    """

    candidate: str
    process: int
    block: int
    started_at_s: Moment
    samples: Samples | None = None
    failure: Failure | None = None
    profiled: bool = False
    operators: tuple[OperatorSamples, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything that must be equal before two runs may be compared.

    `device` is the fingerprint of `DeviceInfo`; `versions` are the versions of the runtimes ("onnxruntime":
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

    `id` is unique in the record. `kind` is the kind of question ("profile", "proof", "price", ..). `key` is
    equal for two campaigns that ask the same question (see `question_key`), so an unfinished campaign can be
    resumed by a later one. `started_at_s` is seconds since 1970, UTC.
    """

    id: str
    kind: str
    key: str
    context: Context
    started_at_s: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something recorded in a campaign other than a run: an observation or a decision.

    `name` is "finished" when a campaign is complete, and "reopened" when a finished campaign continues; other names
    belong to the job ("probe", "decision"). `at_s` is seconds since 1970, UTC; `data` holds JSON values only.
    """

    name: str
    at_s: Moment
    data: Mapping[str, Any] = field(default_factory=dict)


UNSTABLE = "unstable"
"""The kind of a `Failure` of a candidate that works in some processes and dies in others."""

OWN_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"})
"""The signals that a process's own faults raise; all other signals come from outside."""

FINISHED = "finished"
"""The name of the event that closes a campaign. A campaign without this event can be resumed."""

REOPENED = "reopened"
"""The name of the event that reopens a finished campaign, until it is finished again."""


def question_key(kind: str, context: Context, question: Mapping[str, object]) -> str:
    """The SHA-256, in hexadecimal, of everything that must be equal for two campaigns to ask the same question.

    `question` holds the job's own part, in JSON values: the candidates and the protocol. The model's digest counts; its
    file name does not. Raises ValueError or TypeError for values that JSON cannot express.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Times of the runs that a trace counted, in whole microseconds. A measured 0 is valid: less than a microsecond."""

    avg_us: int
    min_us: int
    max_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOperator:
    """One operator in a trace: its index in its subgraph, onert's name for its type, its backend and its times.

    `subgraph` is None in traces of the oldest layout ("$3 ADD"); `session` is None unless several sessions were
    open in the traced process ("$1 session $2 subgraph $3 ADD").
    """

    index: int
    type: str
    backend: str
    time: Spread
    subgraph: int | None = None
    session: int | None = None

    @property
    def name(self) -> str:
        """The operator's key in the file, such as "$0 subgraph $3 Conv2D"."""
        name = f"${self.index} {self.type}"
        if self.subgraph is not None:
            name = f"${self.subgraph} subgraph {name}"
            if self.session is not None:
                name = f"${self.session} session {name}"
        return name


Text = Annotated[str, Must(be="a text without half a surrogate pair", fits=is_text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a trace, as its writer noted it.

    `backend` is the backend that the run was for, `model_sha256` is the digest of the model file, `taken_at_s` is the
    time in seconds since 1970 (UTC), and `runs` is the number of calls behind the times.
    """

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    model_sha256: Text
    device: Text
    backend: Text
    threads: Whole
    runtime: Text
    taken_at_s: Annotated[float, within(0, 1e15, "seconds since 1970")]
    runs: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trace file. `graph` is the time of whole runs, None if the file has none; `origin` is None if not noted.

    `operators` are in order of session, subgraph, index and backend.
    """

    operators: tuple[TraceOperator, ...]
    graph: Spread | None
    version: str = "2"
    origin: Origin | None = None

    @property
    def sessions(self) -> tuple[int, ...]:
        """The numbers of the sessions in the trace; a trace without session numbers counts as session 0."""
        return tuple(sorted({op.session or 0 for op in self.operators}))

    @property
    def main(self) -> tuple[TraceOperator, ...]:
        """The operators of the first session's main graph; operators of other subgraphs run inside one of these."""
        first = min(self.sessions, default=0)
        return tuple(op for op in self.operators if (op.session or 0) == first and not op.subgraph)

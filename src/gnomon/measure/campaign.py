"""The measuring loop: candidates run interleaved in fresh processes, each run is recorded as soon as it arrives, and a
measurement that was stopped is resumed.

A decision can also be repeated from the measurements of a recorded campaign, without any device.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from gnomon import wire
from gnomon.core.brief import brief
from gnomon.core.sample import (
    FINISHED,
    OWN_SIGNALS,
    REOPENED,
    UNSTABLE,
    Campaign,
    Context,
    Failure,
    OperatorSamples,
    Run,
    Samples,
    question_key,
)
from gnomon.core.stats import Block, blocks_of, compare, median, summarise
from gnomon.errors import DeviceError
from gnomon.measure.effort import Clock, Effort, JobTime, cpu_tells, levels
from gnomon.measure.environment import UNWATCHED
from gnomon.measure.link import REFERENCE, AgentLink, Reference, compute_reference, failure_of
from gnomon.measure.progress import Meter, Standing, Watch
from gnomon.store.base import (
    CLOSED,
    FAILED,
    CampaignQuery,
    EventQuery,
    RunQuery,
    Store,
    last_note,
    newest_free,
    note,
    note_command,
    note_files,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate for measurement: a job for the agent, and the environment of its process.

    `key` names the candidate within the campaign; the same key must always mean the same thing. Progress shows a
    candidate under its `label`, if it has one. If a candidate is not `serial`, several threads do the work. With
    `check`, its outputs are compared with the campaign's reference, and a difference above `tolerance` is refused.
    `calls_least` is the smallest number of calls in a profiled run. Candidates with the same `process` share a process
    in each session: this is for many small models whose memory use does not matter, and not for profiled candidates. A
    candidate that `stays` remains loaded in a process that the link keeps. If the runtime's own program does the
    measuring, each block is a separate process; a `separate` candidate has a single block.
    """

    key: str
    job: wire.Job
    environment: Mapping[str, str] = field(default_factory=dict)
    profiled: bool = False
    check: bool = True
    tolerance: float = 1e-3
    calls_least: int = 5
    process: str | None = None
    stays: bool = False
    separate: bool = False
    label: str = ""
    serial: bool = True

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of a campaign: its kind, the context of its runs, and the details of the job as JSON values.

    A campaign can resume an earlier campaign with an equal question. A question that `goes_on` resumes the newest
    campaign even if that campaign was finished, because there is always more to find.
    """

    kind: str
    context: Context
    details: Mapping[str, object]
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The state of one candidate: its runs, in order, and the failure that ended it, if one did.

    This class alone decides what is to blame for a failure. The candidate is to blame in three cases: a process gave
    wrong outputs; the candidate has worked, but at least two of its processes crashed while others ran (it is
    unstable); or it has never worked, and has failed again in a fresh process while another candidate worked. Any other
    failure may be the machine's fault.
    """

    key: str
    runs: tuple[Run, ...]
    failure: Failure | None

    __repr__ = brief

    @property
    def worked(self) -> bool:
        """True if there are samples, even if a failure came after them."""
        return any(run.samples is not None for run in self.runs)

    @property
    def final(self) -> bool:
        """True if no later run can undo the failure: the outputs were wrong, or the candidate is unstable."""
        return self.failure is not None and self.failure.kind in ("wrong-output", UNSTABLE)

    @property
    def own(self) -> bool:
        """True if the candidate itself is to blame for its failure."""
        if self.final or self.failure is None or self.failure.transient or self.worked:
            return self.final
        failed = [run for run in self.runs if run.failure is not None and not run.failure.transient]
        # A candidate that never answered within the time limit is not tried again.
        again = len(failed) > 1 or self.failure.kind == "hang"
        return again and bool(failed[-1].facts.get(BESIDE, True))

    @property
    def may_work(self) -> bool:
        """True if the failure may be the machine's fault: the candidate has worked before, or the cause may be
        temporary.
        """
        if self.failure is None or self.failure.kind == "unmeasured":
            return False
        return not self.own and (self.worked or self.failure.transient)

    @property
    def ok(self) -> bool:
        """True if there are samples and no failure."""
        return self.failure is None and self.worked

    def fact(self, name: str) -> Any:
        """The last known value of a fact, or None."""
        for run in reversed(self.runs):
            if name in run.facts:
                return run.facts[name]
        return None


_NO_ROOM = "Free space on the device, or raise its limit, and start the command again: what was measured is kept."

UNREACHED = Failure(
    stage="record", kind="unmeasured", transient=False, message="the job was stopped before this was measured"
)

#: Visits to a laggard in each process: two visits show that it lags, and three processes bound its ratio. For a
#: hopeless candidate, the second process shows whether the first was disturbed.
_LAGGARD_VISITS, _HOPELESS_VISITS = (2, 1, 1), (2, 1)


class CampaignRuns:
    """The known runs of one campaign, and the state of the machine during them.

    `stopped` is the stage before which measuring was stopped; "" if it was not.
    """

    stopped = ""
    _unmeasured: Failure | None = None

    def __init__(self, store: Store, campaign: Campaign) -> None:
        self.campaign = campaign
        # From the events in the record; `at_s` is the time of the event.
        self.environments: list[wire.Environment] = []
        self._runs: dict[str, list[Run]] = {}
        for run in store.query(RunQuery(campaign=campaign.id)):
            self._runs.setdefault(run.candidate, []).append(run)
        watched_s = 0.0
        for event in store.query(EventQuery(campaign=campaign.id, name="environment")):
            self.environments.append(cast(wire.Environment, {**event.data, "at_s": event.at_s}))
            watched_s = event.at_s
        # The agent reports the environment after all visits of a session, so the report may be missing.
        taken_s = [run.started_at_s for runs in self._runs.values() for run in runs if run.samples is not None]
        self.unwatched = max(taken_s, default=0.0) > watched_s
        if self.unwatched:
            self.environments.append(UNWATCHED)

    def known(self, key: str) -> Measured:
        """The state of a candidate so far. Once measuring has ended, a candidate of the proof that has no runs gets the
        runs of the profile; if the profile has none either, the failure says why it was not measured.
        """
        measured = self._recorded(key)
        reason = UNREACHED if self.stopped else self._unmeasured
        if measured.runs or reason is None:
            return measured
        profiled = self._recorded(key.removeprefix("proof/"))
        return replace(profiled, key=key, failure=profiled.failure if profiled.runs else reason)

    def _recorded(self, key: str) -> Measured:
        runs = tuple(self._runs.get(key, ()))
        profiled = self._runs.get(key.removeprefix("proof/"), ()) if key.startswith("proof/") else ()
        return Measured(key=key, runs=runs, failure=_failure_of(runs, profiled))

    @property
    def nobody_works(self) -> bool:
        """True if none of the candidates measured so far works."""
        return not any(self._recorded(key).ok for key in self._runs)


_FAILURE_FACTS: tuple[Literal["signal", "segment"], ...] = ("signal", "segment")
_BLOCK_FACTS: tuple[Literal["energy", "pace", "per_s", "state"], ...] = ("energy", "pace", "per_s", "state")

BESIDE, SIGNAL, SEGMENT = "beside", "signal", "segment"
"""Facts of a failed run: whether another candidate was working at the time, the signal that ended the process, and the
number of the job's segment that could not be loaded.
"""


def _failure_of(runs: Sequence[Run], before: Sequence[Run]) -> Failure | None:
    """The failure of a candidate: wrong outputs in any process, crashes of several processes, or the failure of the
    last run.

    `before` are earlier runs of the same candidate under another key; their crashes count too.
    """
    for run in runs:
        if run.failure is not None and run.failure.kind == "wrong-output":
            return run.failure
    each = (*before, *runs)
    dead = [run for run in each if run.facts.get(SIGNAL) in OWN_SIGNALS and run.facts.get(BESIDE)]
    last = dead[-1].failure if runs and len(dead) > 1 and any(run.samples for run in each) else None
    if last is not None:
        starts = sum("load_ns" in r.facts or (r.failure is not None and r.failure.stage == "load") for r in each)
        names = " and ".join(dict.fromkeys(str(run.facts[SIGNAL]) for run in dead))
        return replace(last, kind=UNSTABLE, message=f"{len(dead)} of {starts} processes ended with {names}")
    return runs[-1].failure if runs else None


def open_campaign(store: Store, question: Question, *, fresh: bool = False) -> tuple[Campaign, bool]:
    """Open the campaign of a question and note the command; return the campaign, and whether it existed before."""
    context = question.context
    key = question_key(question.kind, context, question.details)
    earlier = None if fresh else newest_free(store, key, finished=None if question.goes_on else False)
    if earlier is not None and (last_note(store, earlier.id, FAILED) or {}).get(CLOSED):
        earlier = None
    campaign = earlier or Campaign(
        id=uuid.uuid4().hex, kind=question.kind, key=key, context=context, started_at_s=time.time()
    )
    store.open_campaign(campaign)
    if earlier is not None and any(True for _ in store.query(CampaignQuery(id=campaign.id, finished=True))):
        note(store, campaign.id, REOPENED, {})
    note_command(store, campaign.id)
    return campaign, earlier is not None


class CampaignRunner(CampaignRuns):
    """One campaign on one device. All measurements of a job go through `measure`.

    An interrupted campaign is resumed by the next runner with the same question: recorded blocks are not measured
    again, so at most the current block is lost. A candidate that failed before is tried once more, whatever the cause,
    unless its failure is final. Call `finish` at the end of the job. Once the job's time is over, and in stages that
    the job leaves out, no more processes are started and the known results are returned; `stopped` is then the first
    stage that was not completed. Not thread-safe.
    """

    def __init__(
        self,
        link: AgentLink,
        store: Store,
        question: Question,
        *,
        watch: Watch | None = None,
        fresh: bool = False,
        sources: Callable[[str], int | None] | None = None,
        time_of_job: JobTime | None = None,
        stages: Container[str] | None = None,
    ) -> None:
        """Open or resume the campaign. `sources` maps a profiler's name for an operator to the operator's index. If
        `stages` is given, only these stages are run.
        """
        campaign, self.resumed = open_campaign(store, question, fresh=fresh)
        super().__init__(store, campaign)
        self.link, self._store, self._watch = link, store, watch
        if last_note(store, campaign.id, FAILED):
            self.note(FAILED, {})
        if self.unwatched:
            self.note("environment", UNWATCHED)  # otherwise the next event would hide it
        self.sources = sources or (lambda name: None)
        self._reference = ""
        # The number of each candidate's runs before its current try, and the keys that this job has tried again.
        self._before = {key: len(runs) for key, runs in self._runs.items()}
        self._again: set[str] = set()
        self._witness: Candidate | None = None
        self._time, self._stages, self._began = time_of_job, stages, False
        self.seeds = [question.context.seed, question.context.seed + 1]

    def over(self, stage: str, *, needs_s: float = 0.0) -> bool:
        """Return True if a stage must not begin: the job leaves it out, its time is over, or less time is left than the
        stage needs.
        """
        if self._comes_to(stage) and (self._time is None or self._time.left_s > needs_s):
            return False
        self.stopped = self.stopped or stage
        return True

    def _comes_to(self, stage: str) -> bool:
        """Return True if the job includes a stage."""
        return self._stages is None or stage in self._stages

    def note(self, name: str, data: Mapping[str, object]) -> None:
        """Add a finding other than a run to the record."""
        note(self._store, self.campaign.id, name, data)

    def notes(self, name: str) -> list[Mapping[str, Any]]:
        """The findings with this name in the record, in order."""
        return [event.data for event in self._store.query(EventQuery(campaign=self.campaign.id, name=name))]

    def note_files(self, *paths: Path, whole: bool = False) -> None:
        """Note the files that the job writes; see `gnomon.store.base.note_files`."""
        note_files(self._store, self.campaign.id, paths, whole=whole)

    def finish(self, decision: Mapping[str, object]) -> None:
        """Mark the job as done. The next job with the same question starts from the beginning, or reopens this one if
        the question `goes_on`.

        If the job's time ran out before the end, the next job resumes this one.
        """
        self.note("decision", decision)
        if not self.stopped or not self._comes_to(self.stopped):
            self.note(FINISHED, {})

    def reference(self, job: wire.Job, *, timeout_s: float) -> tuple[Reference | None, Failure | None]:
        """Compute the outputs that all candidates are checked against, and return their sensitivity to the inputs.

        The record does not contain the reference, so it is computed again when a campaign is resumed. DeviceError if
        the device has no room for it.
        """
        name = f"{self.campaign.id}-{REFERENCE}"  # another campaign may run at the same time
        computed, failure = compute_reference(self.link, job, self.seeds, timeout_s=timeout_s, name=name)
        if failure is not None and failure.transient:
            computed, failure = compute_reference(self.link, job, self.seeds, timeout_s=timeout_s, name=name)
        if failure is not None and failure.transient and "[Errno " in failure.message:
            raise DeviceError(failure.message, hint=_NO_ROOM)
        if computed is not None:
            self._reference = name
        return computed, failure

    def check_against(self, reference: str) -> None:
        """From now on, check all candidates against reference outputs computed elsewhere; `reference` is their path on
        the device.
        """
        self._reference = reference

    def measure(self, stage: str, candidates: Sequence[Candidate], effort: Effort) -> dict[str, Measured]:
        """Measure until the effort's stopping rule is met; failed candidates are left out of later rounds.

        Afterwards each failed candidate is tried again in a fresh process, once per job, unless the failure is its own
        fault.
        """
        start = time.monotonic()
        asked = effort.processes_least * sum(_visits(c, effort) for c in candidates)
        before = sum(len(self._runs.get(c.key, ())) for c in candidates)
        meter = Meter(stage, max(0, asked - before) if self._comes_to(stage) else 0, self._watch)
        self._processes(stage, candidates, effort, start, meter)
        failed = {c.key for c in candidates if self.failed(c.key) and not self._recorded(c.key).own} - self._again
        if failed:
            self._again |= failed
            self._before |= {key: len(self._runs[key]) for key in failed}
            self._processes(stage, candidates, effort, start, meter)
        self._note_witness(candidates)
        meter.finish()
        return {c.key: self.known(c.key) for c in candidates}

    def _processes(
        self, stage: str, candidates: Sequence[Candidate], effort: Effort, start: float, meter: Meter
    ) -> None:
        """Run process after process until there are enough and all candidates that failed before have been tried
        again.
        """
        self._note_witness(candidates)
        measured = [self._recorded(c.key) for c in candidates if not self.failed(c.key)]
        least = max([effort.processes_least, *(m.runs[-1].process + 1 for m in measured if m.failure is not None)])
        for process in range(effort.processes_most):
            rivals = self._rivals(candidates, effort) if process >= least else []
            if process >= least and self._enough(candidates, rivals, effort, start):
                return
            wanted = {c.key: self._wanted(c, candidates, process, effort, rival=c in rivals) for c in candidates}
            if effort.decides and process >= least:
                # Each further process still includes one visit to each loser, because medians from different processes
                # cannot be compared.
                lost = {c.key for c in candidates if c not in rivals and self._recorded(c.key).ok}
                wanted = {key: [b for b in blocks if b == 0 or key not in lost] for key, blocks in wanted.items()}
            todo = sum(map(len, wanted.values()))
            meter.expect(todo + max(0, least - process - 1) * todo)
            left = [c for c in candidates if wanted[c.key]]
            count = -(-len(left) // max(1, effort.together))
            # The smallest number of groups of about equal size, each of which fits on the device at once.
            for group in (left[k::count] for k in range(count)):
                # A job measures one group however little time it has: otherwise, repeating the command would never get
                # any further.
                if not self.over(stage) or (self._comes_to(stage) and not self._began):
                    self._began = True
                    self._session(process, group, wanted, effort, meter)
                    meter.show(self._standings(candidates))

    def failed(self, key: str) -> bool:
        """Return True if a candidate has failed in this job, or for good. A candidate that failed in an earlier job is
        tried once more.
        """
        measured = self._recorded(key)
        return measured.failure is not None and (measured.final or len(measured.runs) > self._before.get(key, 0))

    def _note_witness(self, candidates: Sequence[Candidate]) -> None:
        """Remember the working candidate that loads fastest: it runs beside the candidates that are tried again."""
        working = [c for c in candidates if not c.profiled and self._recorded(c.key).ok]
        working += [self._witness] if self._witness is not None else []
        if working:
            self._witness = min(working, key=lambda c: self._recorded(c.key).fact("load_ns") or 0)

    def _beside(self, group: Sequence[Candidate], effort: Effort) -> Candidate | None:
        """The working candidate to load beside a group of retried candidates that may be to blame; None if the group
        needs none.
        """
        measured = [self._recorded(c.key) for c in group]
        tried = [m for m in measured if m.failure is not None and not m.failure.transient]
        doubtful = [m for m in tried if not m.worked or SIGNAL in m.runs[-1].facts]
        if not doubtful or any(m.ok for m in measured) or len(group) >= effort.together:
            return None
        return self._witness

    def _wanted(
        self, candidate: Candidate, field: Sequence[Candidate], process: int, effort: Effort, *, rival: bool
    ) -> list[int]:
        """The visits that a candidate still needs in a process: none after a failure, only a few if it lags.

        A `rival` gets all visits, even if it seems to lag.
        """
        measured = self._recorded(candidate.key)
        if self.failed(candidate.key):
            return []
        most = _visits(candidate, effort)
        behind = self._behind(candidate, field)
        if behind > effort.laggard and not rival:
            visits = _HOPELESS_VISITS if behind > effort.hopeless else _LAGGARD_VISITS
            most = min(most, visits[process]) if process < len(visits) else 0
        done = {r.block for r in measured.runs if r.process == process and r.samples is not None}
        return [b for b in range(most) if b not in done]

    def _behind(self, candidate: Candidate, field: Sequence[Candidate]) -> float:
        """The factor by which a candidate is slower than the fastest, judged by the runs so far."""
        levels = {}
        for other in field:
            runs = [r for r in self._recorded(other.key).runs if r.samples is not None]
            if runs:
                levels[other.key] = min(min(r.samples.wall_s) for r in runs if r.samples is not None)
        if candidate.key not in levels:
            return 1.0
        return levels[candidate.key] / max(min(levels.values()), 1e-12)  # a clock may not have moved at all

    def _rivals(self, candidates: Sequence[Candidate], effort: Effort) -> list[Candidate]:
        """The working candidates that, judged by the runs so far, may be as fast as the fastest or are close to it.

        A candidate whose best call lags may be a rival too, if a disturbed process leaves the comparison open.
        """
        measured = {c.key: self._recorded(c.key) for c in candidates if not c.profiled}
        measured = {key: m for key, m in measured.items() if m.ok}
        if not measured:
            return []
        clock = self._clock(candidates)
        numbers = {key: levels(m.runs, clock) for key, m in measured.items()}
        fastest = min(numbers.values(), key=lambda blocks: median([v for b in blocks for v in b.values_s]))
        rivals = []
        for candidate in candidates:
            if candidate.key not in measured:
                continue
            behind = self._behind(candidate, candidates)
            near = behind <= effort.laggard and not effort.decides
            if near or (behind <= effort.hopeless and _open(numbers[candidate.key], fastest)):
                rivals.append(candidate)
        return rivals

    def _clock(self, candidates: Sequence[Candidate]) -> Clock:
        """The clock by which all working candidates can be compared."""
        measured = [(c, self._recorded(c.key)) for c in candidates if not c.profiled]
        serial = all(c.serial and cpu_tells(m.runs) for c, m in measured if m.ok)
        return "cpu" if serial else "wall"

    def _standings(self, candidates: Sequence[Candidate]) -> tuple[Standing, ...]:
        """The standings so far of the working candidates that have a label, the fastest first."""
        measured = {c.label: m for c in candidates if c.label and (m := self._recorded(c.key)).ok}
        clock = self._clock(candidates)
        times = {label: summarise(blocks_of(m.runs, clock=clock)) for label, m in measured.items()}
        first_s = min((time.median_s for time in times.values()), default=0.0)
        return tuple(
            Standing(
                label=label,
                clock=clock,
                time=time,
                wall_s=summarise(blocks_of(measured[label].runs)).median_s,
                ratio=time.median_s / max(first_s, 1e-12),  # a clock may not have moved at all
            )
            for label, time in sorted(times.items(), key=lambda row: row[1].median_s)
        )

    def _enough(
        self, candidates: Sequence[Candidate], rivals: Sequence[Candidate], effort: Effort, start: float
    ) -> bool:
        """Return True if the time of each rival is known precisely enough, only one rival is left, or the budget is
        used up.
        """
        if time.monotonic() - start > effort.budget_s:
            return True
        if len(rivals) == 1 < len(candidates):
            return True
        for candidate in rivals:
            measured = self._recorded(candidate.key)
            clock: Clock = "cpu" if cpu_tells(measured.runs) else "wall"
            if summarise(blocks_of(measured.runs, clock=clock)).relative_half_width > effort.half_width:
                return False
        return True

    def _session(
        self,
        process: int,
        candidates: Sequence[Candidate],
        wanted: Mapping[str, list[int]],
        effort: Effort,
        meter: Meter,
    ) -> None:
        """Send one request to the agent: a fresh process for each candidate, with the missing blocks interleaved."""
        entries = [self._entry(c, wanted[c.key]) for c in candidates]
        witness = self._beside(candidates, effort)
        if witness is not None:
            entries.append(self._entry(replace(witness, process=None, stays=False), []))
        seed = f"{self.campaign.key}/{process}/{json.dumps(sorted(wanted))}"
        request: wire.MeasuringRequest = {**effort.request(), "seed": seed, "candidates": entries}
        asked = {c.key for c in candidates}
        profiled = {c.key for c in candidates if c.profiled}
        opened: dict[str, dict[str, object]] = {}
        failed: dict[str, Run] = {}
        working: set[str] = set()

        def on_event(event: wire.Event) -> None:
            if event["event"] == "environment":
                data: wire.Environment = {"process": process, "candidates": sorted(wanted), **event["data"]}
                self.note("environment", data)
                self.environments.append({**data, "at_s": time.time()})
            elif event["event"] == "failure":
                key = event["candidate"]
                working.discard(key)
                failed[key] = Run(
                    candidate=key,
                    process=process,
                    block=event.get("block", 0),
                    started_at_s=time.time(),
                    failure=failure_of(event),
                    profiled=key in profiled,
                    facts=opened.pop(key, {}) | {name: event[name] for name in _FAILURE_FACTS if name in event},
                )
            elif event["event"] == "opened":
                working.add(event["candidate"])
                opened[event["candidate"]] = {k: v for k, v in event.items() if k not in {"event", "candidate"}}
            elif event["event"] == "block":
                key = event["candidate"]
                working.add(key)
                if key in asked:
                    self._append(self._run_of(event, process, key in profiled, opened.pop(key, {})))
                    meter.step()

        steps = len(entries) * (effort.rounds + 1)
        ended = False
        try:
            self.link.request(request, on_event, timeout_s=effort.timeout_s * steps + 60)
            ended = True
        finally:
            # Only now is it known which candidates worked throughout; if the device was lost, none did.
            for key in failed.keys() & asked:
                run = failed[key]
                self._append(replace(run, facts={**run.facts, BESIDE: ended and bool(working)}))

    def _entry(self, candidate: Candidate, blocks: list[int]) -> wire.Candidate:
        opening: wire.Opening = {"job": candidate.job, "profiled": candidate.profiled}
        if candidate.check and self._reference:
            opening["check"], opening["seeds"] = self._reference, self.seeds
        entry: wire.Candidate = {
            "key": candidate.key,
            "environment": dict(candidate.environment),
            "tolerance": candidate.tolerance,
            "calls_least": candidate.calls_least,
            "open": opening,
            "visits": blocks,
        }
        if candidate.process is not None:
            entry["process"] = candidate.process
        if candidate.stays:
            entry["stay"] = True
        return entry

    def _append(self, run: Run) -> None:
        self._store.append(self.campaign.id, run)
        self._runs.setdefault(run.candidate, []).append(run)

    def _run_of(self, event: wire.BlockEvent, process: int, profiled: bool, opened: Mapping[str, object]) -> Run:
        """The run that an event of the agent describes; the first block of a process also gets the facts from the
        opening of the process.
        """
        operators = tuple(
            OperatorSamples(
                name=row["name"],
                sources=self._indices(row["sources"]),
                backend=row["backend"],
                wall_ns=tuple(row["wall_ns"]),
            )
            for row in event.get("operators", ())
        )
        return Run(
            candidate=event["candidate"],
            process=process,
            block=event["block"],
            # By this machine's clock: a board's clock may never have been set.
            started_at_s=time.time() - sum(event["wall_ns"]) * 1e-9,
            samples=Samples(wall_ns=tuple(event["wall_ns"]), cpu_ns=tuple(event["cpu_ns"]), inner=event["inner"]),
            profiled=profiled,
            operators=operators,
            facts={
                **opened,
                "peak_rss_bytes": event["peak_rss_bytes"],
                "waits": event.get("waits"),
                **{name: event[name] for name in _BLOCK_FACTS if name in event},
            },
        )

    def _indices(self, sources: Sequence[str | int]) -> tuple[int, ...]:
        """Indices of source operators, however the profiler named them; names invented by the profiler are left out."""
        indices = (s if isinstance(s, int) else self.sources(s) for s in sources)
        return tuple(dict.fromkeys(i for i in indices if i is not None))


def _open(a: Sequence[Block], fastest: Sequence[Block]) -> bool:
    """Return True if a candidate is not surely slower than the fastest."""
    shared = {(b.process, b.block) for b in a} & {(b.process, b.block) for b in fastest}
    return not shared or compare(a, fastest).verdict != "slower"


def _visits(candidate: Candidate, effort: Effort) -> int:
    """The number of visits in each process: one for a profiled candidate, whose process ends after that visit, and for
    a `separate` one.
    """
    return 1 if candidate.profiled or candidate.separate else effort.rounds


UNMEASURED = Failure(
    stage="record", kind="unmeasured", transient=False, message="it was not measured; leave out --no-profile"
)


class RecordedRunner(CampaignRuns):
    """A replacement for `CampaignRunner` that measures nothing: a candidate that is missing from the record counts as
    failed.

    A candidate of the proof that has no runs gets the runs of the profile, in which the same candidate was measured
    next to others.
    """

    resumed = False
    _unmeasured = UNMEASURED

    def __init__(self, store: Store, campaign: Campaign, *, stopped: str = "") -> None:
        super().__init__(store, campaign)
        self.stopped = stopped
        if stopped and self.unwatched:  # the warning that the job was stopped already explains it
            self.environments.remove(UNWATCHED)
        self._events = {e.name: e.data for e in store.query(EventQuery(campaign=campaign.id))}

    def last(self, name: str) -> Mapping[str, object] | None:
        """The data of the campaign's last event with this name; None if it has none."""
        return self._events.get(name)

    def measure(self, stage: str, candidates: Sequence[Candidate], effort: Effort) -> dict[str, Measured]:
        """The candidates' states in the record."""
        return {candidate.key: self.known(candidate.key) for candidate in candidates}

    def over(self, stage: str, *, needs_s: float = 0.0) -> bool:
        """Return True if the job was stopped. Time never runs out here, because nothing is measured."""
        return bool(self.stopped)

    def note(self, name: str, data: Mapping[str, object]) -> None:
        """Do nothing, because the record of measurements stays unchanged."""

    def finish(self, decision: Mapping[str, object]) -> None:
        """Do nothing, because the record of measurements stays unchanged."""

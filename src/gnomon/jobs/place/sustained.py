"""Sustained and paced runs: the behaviour of a configuration that is called for minutes in one fresh process.

Each run is a stage of the profile's campaign with a single candidate, whose blocks follow each other without a pause;
the device's state is stored with each block. An interrupted run continues with the missing blocks in another process.
This is a separate part, because the device may have cooled down meanwhile. docs/jobs/profile.md describes the design.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, cast

from gnomon.core.changes import LEAST, change_points
from gnomon.core.sample import Failure, Run, Samples
from gnomon.core.stats import Block, median, quantile, summarise
from gnomon.errors import UsageError
from gnomon.jobs.place.document import Change, Cooling, Level, PacePart, SustainedColumns, SustainedPart
from gnomon.measure.campaign import CampaignRunner, Candidate
from gnomon.measure.effort import Effort
from gnomon.measure.environment import BUSY_SHARE, judge
from gnomon.measure.progress import Tell
from gnomon.session.contender import Contender, level
from gnomon.session.model_session import ModelSession
from gnomon.system.stopping import pause
from gnomon.wire import Segment, Snapshot

State = Mapping[str, Any]
"""A snapshot of the device; see `gnomon.agent.snapshot`."""

COOLED = "cooled"
"""The name of the event that reports the wait for the device to cool down."""

_BLOCK_S, _MOST_BLOCKS, _LEAST_BLOCKS, _CALLS = 1.0, 3600, 60, 4
_MOST_SAMPLES, _PROCESSES = 600_000, 3
_MINUTE_S = 60.0
_NEAR_C, _COOL_MOST_S, _COOL_LEAST_S, _LOOK_S = 2.0, 300.0, 10.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustain:
    """A request to make calls for `for_s` seconds: back to back, one every `every_s` seconds, or by several `streams`
    at once.

    With several streams, several processes share the time. UsageError if not even one call at this pace fits.
    """

    for_s: float
    every_s: float | None = None
    streams: int = 1

    def __post_init__(self) -> None:
        if self.every_s is not None and self.every_s > self.for_s:
            raise UsageError(
                f"a call every {self.every_s:g} s does not fit into {self.for_s:g} s", hint="Give a longer --for."
            )

    def effort(self, call_s: float, like: Effort) -> Effort:
        """The protocol for calls of `call_s`: one process (several with streams), and no pauses between blocks."""
        processes = 1 if self.streams == 1 else _PROCESSES
        for_s = self.for_s / processes
        turn_s = call_s if self.every_s is None else math.ceil(max(1.0, call_s / self.every_s)) * self.every_s
        wished_s = max(for_s / _MOST_BLOCKS, min(_BLOCK_S, for_s / _LEAST_BLOCKS), _CALLS * turn_s)
        rounds = max(1, round(for_s / wished_s))
        block_s = for_s / rounds
        if self.every_s is not None:
            block_s = max(1, round(block_s / self.every_s)) * self.every_s
            rounds = max(1, round(for_s / block_s))
        # With several streams, each call is a sample of its own, because its latency matters, unless there would be too
        # many samples.
        least_s = like.sample_s if self.streams == 1 else 0.0
        sample_s = max(least_s, self.streams * self.for_s / _MOST_SAMPLES)
        return replace(
            like,
            processes_least=processes,
            processes_most=processes,
            rounds=rounds,
            block_s=block_s,
            sample_s=sample_s,
            samples_least=1,
            samples_most=math.ceil(block_s / sample_s) + 1,
            rewarm_s=0.0,
            timeout_s=like.timeout_s + 2 * block_s,
            energy=None,
            every_s=self.every_s,
            watched=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One block: it ended `at_s` seconds into the run and `since_s` into its `part` (one process), and lasted `took_s`.

    `pace` is the punctuality of its calls. `others_share` is the share of the processors' time that other processes
    used since the previous block.
    """

    block: int
    part: int
    at_s: float
    since_s: float
    took_s: float
    samples: Samples
    pace: Mapping[str, Any]
    state: State
    others_share: float | None

    @property
    def calls(self) -> int:
        """The number of calls in the block's samples."""
        return self.samples.inner * len(self.samples.wall_ns)


def check_sustainable(session: ModelSession) -> None:
    """UsageError for a device without Python, which sustained and paced runs need."""
    if not session.device.python:
        raise UsageError(
            f"the device {session.device.name} has no Python, which --for and --every need",
            hint="Leave out --for and --every, or install Python 3.10 with numpy on the device.",
        )


def sustain(
    session: ModelSession, asked: Sustain, contenders: Sequence[Contender], tell: Tell | None
) -> tuple[SustainedPart, ...]:
    """Call each contender in turn for the requested time, starting at about the initial temperature."""
    parts = []
    for contender in contenders:
        candidate = replace(contender.candidate, key=f"{contender.key}/sustained", check=False)
        if asked.streams > 1:
            if not _takes_streams(contender):
                parts.append(sustained(contender.label, asked, (), None, _NOT_ASKED))
                continue
            job, more = candidate.job, {"streams": asked.streams}
            segments: list[Segment] = [{**s, "options": {**s["options"], **more}} for s in job["segments"]]
            candidate = replace(candidate, key=f"{candidate.key}/streams", job={**job, "segments": segments})
        effort = asked.effort(level(session.runner.known(contender.key), "wall"), session.request.effort)
        done = sum(run.samples is not None for run in session.runner.known(candidate.key).runs)
        if done < effort.rounds * effort.processes_least and not session.runner.over("sustained"):
            _cool(session, candidate, asked, tell)
            session.runner.measure(f"sustained, {contender.label}", [candidate], effort)
        measured = session.runner.known(candidate.key)
        parts.append(sustained(contender.label, asked, measured.runs, _cooling(session, candidate), measured.failure))
    return tuple(parts)


_NOT_ASKED = Failure(
    stage="run", kind="refused", transient=False, message="this configuration cannot handle several requests at once"
)


def _takes_streams(contender: Contender) -> bool:
    """Whether calls from several threads run concurrently.

    The runtime must declare this, and it must compute on the processor with gnomon's settings.
    """
    runtimes = (part.target.runtime for part in contender.parts)
    return all(getattr(r, "streams", False) for r in runtimes) and not (contender.accelerators or contender.usual)


def _cool(session: ModelSession, candidate: Candidate, asked: Sustain, tell: Tell | None) -> None:
    """Wait while the device is warmer than at the beginning of the campaign, and note the wait."""
    if session.link is None:
        return
    baseline: State = next((pair["before"] for pair in session.runner.environments if pair["before"]), {})
    most_s = min(_COOL_MOST_S, max(_COOL_LEAST_S, asked.for_s))
    cooling = cool(session.link.state, baseline.get("temperatures_c", {}), most_s=most_s, tell=tell)
    if cooling is not None:
        session.runner.note(COOLED, {"candidate": candidate.key, **asdict(cooling)})


def cool(
    state: Callable[[], State],
    baseline_c: Mapping[str, float],
    *,
    most_s: float,
    tell: Tell | None = None,
    wait: Callable[[float], None] = pause,
    clock: Callable[[], float] = time.monotonic,
) -> Cooling | None:
    """Wait up to `most_s` until no zone is more than 2 degrees above its baseline; None if no zone has both a
    temperature and a baseline.
    """
    began_s = clock()
    first: tuple[float, str] | None = None
    while True:
        now = state().get("temperatures_c", {})
        above = {zone: now[zone] - baseline_c[zone] for zone in sorted(now.keys() & baseline_c.keys())}
        if not above:
            return None
        first = first or max((over, zone) for zone, over in above.items())
        waited_s = clock() - began_s
        reached = max(above.values()) <= _NEAR_C
        if reached or waited_s >= most_s:
            zone = first[1]
            return Cooling(
                zone=zone,
                baseline_c=baseline_c[zone],
                from_c=baseline_c[zone] + first[0],
                to_c=now.get(zone),
                waited_s=waited_s,
                reached=reached,
            )
        if tell is not None and waited_s == 0:
            tell(
                f"{first[1]} is {first[0]:.0f} degrees above its initial temperature: cooling for up to {most_s:.0f} s"
            )
        wait(min(_LOOK_S, most_s - waited_s))


def _cooling(session: ModelSession, candidate: Candidate) -> Cooling | None:
    """The last wait before a candidate's run, from the record, because a resumed campaign may have waited earlier."""
    if not isinstance(session.runner, CampaignRunner):
        return None
    noted = [data for data in session.runner.notes(COOLED) if data["candidate"] == candidate.key]
    return Cooling(**{name: value for name, value in noted[-1].items() if name != "candidate"}) if noted else None


def sustained(
    label: str, asked: Sustain, runs: Sequence[Run], cooling: Cooling | None, failure: Failure | None
) -> SustainedPart:
    """The summary of a configuration's runs; `failure` is the failure that ended them, if any."""
    rows = tuple(_rows(asked, runs))
    parts = [[row for row in rows if row.part == part] for part in dict.fromkeys(row.part for row in rows)]
    ran_s = sum(part[-1].since_s for part in parts)
    window_s = min(_MINUTE_S, ran_s / 4)
    first = [row for row in parts[0] if row.since_s <= window_s] or parts[0][:1] if parts else []
    last = [row for row in rows if row.at_s > ran_s - window_s and row.part == rows[-1].part] or list(rows[-1:])
    changes = tuple(change for part in parts for change in _changes(part))
    calls_s = [call_s for row in rows for call_s in row.samples.wall_s]
    each = [Block(process=row.part, block=row.block, values_s=(row.took_s / row.calls,)) for row in rows]
    return SustainedPart(
        label=label,
        for_s=asked.for_s,
        ran_s=rows[-1].at_s if rows else 0.0,
        parts=len(parts),
        calls=sum(row.calls for row in rows),
        samples=len(calls_s),
        p50_s=quantile(calls_s, 0.5) if calls_s else None,
        p90_s=quantile(calls_s, 0.9) if calls_s else None,
        p99_s=quantile(calls_s, 0.99) if calls_s else None,
        max_s=max(calls_s, default=None),
        first=_level(first),
        last=_level(last),
        searched=any(len(part) >= 4 * LEAST for part in parts),
        changes=changes,
        slower_after_s=next((change.since_s for change in changes if change.ratio > 1), None),
        paced=None if asked.every_s is None else _pace(asked.every_s, rows),
        cooling=cooling,
        failure=failure,
        blocks=_columns(rows),
        streams=asked.streams,
        request=summarise(each) if asked.streams > 1 and each else None,
    )


def _pace(every_s: float, rows: Sequence[Row]) -> PacePart:
    delays_ns = [delay_ns for row in rows for delay_ns in row.pace.get("delay_ns", ())]
    return PacePart(
        every_s=every_s,
        late=sum(row.pace.get("late", 0) for row in rows),
        skipped=sum(row.pace.get("skipped", 0) for row in rows),
        delay_p50_s=quantile(delays_ns, 0.5) * 1e-9 if delays_ns else None,
        delay_p99_s=quantile(delays_ns, 0.99) * 1e-9 if delays_ns else None,
    )


def _columns(rows: Sequence[Row]) -> SustainedColumns:
    def quantiles_us(q: float) -> tuple[float, ...]:
        return tuple(round(quantile(row.samples.wall_s, q) * 1e6, 3) for row in rows)

    return SustainedColumns(
        block=tuple(row.block for row in rows),
        part=tuple(row.part for row in rows),
        at_s=tuple(round(row.at_s, 3) for row in rows),
        calls=tuple(row.calls for row in rows),
        p50_us=quantiles_us(0.5),
        p90_us=quantiles_us(0.9),
        p99_us=quantiles_us(0.99),
        max_us=quantiles_us(1.0),
        cpu_us=tuple(round(median(row.samples.cpu_s) * 1e6, 3) for row in rows),
        late=tuple(int(row.pace.get("late", 0)) for row in rows),
        skipped=tuple(int(row.pace.get("skipped", 0)) for row in rows),
        frequency_khz=tuple(frequency_khz(row.state) for row in rows),
        temperature_c=tuple(max((row.state.get("temperatures_c") or {}).values(), default=None) for row in rows),
        load_average_1m=tuple(row.state.get("load_average_1m") for row in rows),
        others_share=tuple(row.others_share for row in rows),
    )


def _rows(asked: Sustain, runs: Sequence[Run]) -> Iterator[Row]:
    """The blocks in order, timed by the device's own clock; each new process begins a part."""
    part, at_s, since_s = -1, 0.0, 0.0
    before: State = {}
    for run in sorted(runs, key=lambda run: (run.process, run.block)):
        if run.samples is None:
            continue
        state, pace = run.facts.get("state", {}), run.facts.get("pace", {})
        if part < 0 or "load_ns" in run.facts:
            part, since_s, before = part + 1, 0.0, {}
        took_s = _took_s(asked, run.samples, pace, before, state)
        if asked.streams > 1:
            took_s = run.samples.inner * len(run.samples.wall_ns) / run.facts["per_s"]
        at_s, since_s = at_s + took_s, since_s + took_s
        yield Row(
            block=run.block,
            part=part,
            at_s=at_s,
            since_s=since_s,
            took_s=took_s,
            samples=run.samples,
            pace=pace,
            state=state,
            others_share=_others(run.samples, before, state),
        )
        before = state


def _took_s(asked: Sustain, samples: Samples, pace: Mapping[str, Any], before: State, state: State) -> float:
    """The seconds from the end of the previous block to the end of this one; for a part's first block, the time of its
    calls.
    """
    if "monotonic_s" in before and "monotonic_s" in state:
        return max(0.0, float(state["monotonic_s"] - before["monotonic_s"]))
    if asked.every_s is None:
        return sum(samples.wall_ns) * 1e-9
    return (len(samples.wall_ns) + int(pace.get("skipped", 0))) * asked.every_s


def _others(samples: Samples, before: State, state: State) -> float | None:
    """The share of the processors' time that other processes used: the busy time minus the time of the block's own
    calls.
    """
    if not all(name in of for name in ("cpu_busy_s", "cpu_total_s") for of in (before, state)):
        return None
    total_s = state["cpu_total_s"] - before["cpu_total_s"]
    if total_s <= 0 or not any(samples.cpu_ns):
        return None
    own_s = sum(samples.cpu_ns) * 1e-9
    return float(min(1.0, max(0.0, (state["cpu_busy_s"] - before["cpu_busy_s"] - own_s) / total_s)))


def _level(rows: Sequence[Row]) -> Level | None:
    if not rows:
        return None
    middles = [median(row.samples.wall_s) for row in rows]
    return Level(
        seconds=sum(row.took_s for row in rows),
        blocks=len(rows),
        median_s=median(middles),
        p10_s=quantile(middles, 0.1),
        p90_s=quantile(middles, 0.9),
    )


def _changes(rows: Sequence[Row]) -> Iterator[Change]:
    middles = [max(median(row.samples.wall_s), 1e-9) for row in rows]
    starts = change_points(middles)
    for (start, at), (_, end) in pairwise(pairwise([0, *starts, len(rows)])):
        after = rows[at:end]
        yield Change(
            at_s=rows[at - 1].at_s,
            part=rows[at].part,
            since_s=rows[at - 1].since_s,
            before_s=median(middles[start:at]),
            after_s=median(middles[at:end]),
            seen=tuple(_seen(rows[at - 1].state, after)),
            frequency_ratio=_ratio([frequency_khz(row.state) for row in of] for of in (rows[start:at], after)),
            # A CPU time of 0 was not reported, or is too short for the clock.
            cpu_ratio=_ratio([median(row.samples.cpu_s) or None for row in of] for of in (rows[start:at], after)),
        )


def _seen(before: State, after: Sequence[Row]) -> Iterator[str]:
    """The kinds of warnings that may explain why these blocks are slow, based on the states before and after them."""
    # The measuring process still had live workers, whose time cannot be distinguished from that of other processes.
    alone = [cast(Snapshot, {k: v for k, v in state.items() if k != "pid"}) for state in (before, after[-1].state)]
    yield from dict.fromkeys(doubt.kind for doubt in judge(*alone) if doubt.kind != "busy")
    shares = [row.others_share for row in after if row.others_share is not None]
    if shares and median(shares) > BUSY_SHARE:
        yield "busy"


def frequency_khz(state: State) -> float | None:
    """The mean of the cores' frequencies in kHz; None if the kernel reports none."""
    cores_khz = [of[0] for of in state.get("frequencies_khz", {}).values() if of[0]]
    return sum(cores_khz) / len(cores_khz) if cores_khz else None


def _ratio(sides: Iterable[Sequence[float | None]]) -> float | None:
    """The second side's median divided by the first's."""
    before, after = ([value for value in side if value is not None] for side in sides)
    return median(after) / median(before) if before and after else None

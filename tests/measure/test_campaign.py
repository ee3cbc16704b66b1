"""The measuring loop against a stand-in for the agent: what is asked, recorded, retried, resumed and stopped."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest

from gnomon.core.sample import Context
from gnomon.errors import DeviceError
from gnomon.jobs.runs.job import list_campaigns
from gnomon.measure.campaign import CampaignRunner, CampaignRuns, Candidate, Measured, Question, RecordedRunner
from gnomon.measure.effort import Effort
from gnomon.measure.environment import worst
from gnomon.measure.link import AgentLink
from gnomon.measure.progress import Progress
from gnomon.store.sqlite import SqliteStore

CONTEXT = Context(
    device={"cpu_model": "stand-in"},
    versions={"none": "1"},
    model_digest="00" * 32,
    model_name="m",
    options={},
    seed=5,
    gnomon_version="0",
)
Event = dict[str, Any]


class StandIn:
    """Answers requests as the agent does. `times_ns` gives a candidate's time; `failures` are told once each."""

    def __init__(self, times_ns: Callable[[str, random.Random], int]) -> None:
        self.times_ns = times_ns
        self.failures: list[tuple[str, str, Event]] = []
        self.events_left: int | None = None
        self.requests: list[Mapping[str, Any]] = []
        self.opened: list[str] = []
        self._random = random.Random(1)

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        assert timeout_s > 0
        self.requests.append(request)
        for event in self._session(request):
            if self.events_left is not None:
                if self.events_left == 0:
                    raise DeviceError("the way to the device is gone", hint="again", transient=True)
                self.events_left -= 1
            on_event(event)

    def _session(self, request: Mapping[str, Any]) -> Iterator[Event]:
        alive = []
        for candidate in request["candidates"]:
            key = candidate["key"]
            self.opened.append(key)
            if failure := self._failure(key, "load"):
                yield failure
                continue
            if "save" in candidate["open"]:
                yield {"event": "opened", "candidate": key, "sensitivity": {"relative": 0.5, "absolute": 1.0}}
                continue
            yield {"event": "opened", "candidate": key, "load_ns": 5}
            alive.append(candidate)
        for block in range(request["rounds"]):
            for candidate in list(alive):
                if block not in candidate["visits"]:
                    continue
                if failure := self._failure(candidate["key"], "run"):
                    alive.remove(candidate)
                    yield {**failure, "block": block}
                    continue
                yield self._block(candidate, block)
        yield {"event": "environment", "data": {"before": {"cores": 2}, "after": {"cores": 2}}}

    def _block(self, candidate: Mapping[str, Any], block: int) -> Event:
        wall = [self.times_ns(candidate["key"], self._random) for _ in range(5)]
        event = {"event": "block", "candidate": candidate["key"], "block": block, "started_at_s": 1.0}
        if candidate["open"]["profiled"]:
            event["operators"] = [{"name": "k", "sources": ["a", 1, "made-up"], "backend": "b", "wall_ns": wall}]
        return {**event, "wall_ns": wall, "cpu_ns": wall, "inner": 1, "peak_rss_bytes": 7}

    def _failure(self, key: str, stage: str) -> Event | None:
        for number, (failing, at, event) in enumerate(self.failures):
            if (failing, at) == (key, stage):
                del self.failures[number]
                return {"event": "failure", "candidate": key, "stage": stage, "log_tail": "", **event}
        return None


def steady(key: str, rng: random.Random) -> int:
    return {"fast": 1000, "slow": 1300, "lame": 5000}.get(key.partition("/")[0], 1000) + rng.randrange(3)


def noisy(key: str, rng: random.Random) -> int:
    return rng.randrange(500, 2000)


CRASH = {"kind": "crash", "transient": False, "message": "crashed with SIGSEGV"}
KILLED = {"kind": "memory", "transient": True, "message": "killed by SIGKILL"}
EFFORT = Effort(processes_least=3, processes_most=6, rounds=4)


def runner(link: StandIn, store: SqliteStore, **more: Any) -> CampaignRunner:
    made = cast(AgentLink, link)
    return CampaignRunner(made, store, Question(kind="test", context=CONTEXT, details={}), **more)


def candidates(*keys: str, **more: Any) -> list[Candidate]:
    return [Candidate(key=key, job=cast(Any, {"name": key}), **more) for key in keys]


def visits(measured: Mapping[str, Measured]) -> Counter[tuple[str, int, int]]:
    return Counter(
        (key, run.process, run.block) for key, m in measured.items() for run in m.runs if run.samples is not None
    )


def whole(keys: tuple[str, ...], processes: int, rounds: int) -> Counter[tuple[str, int, int]]:
    return Counter((k, p, b) for k in keys for p in range(processes) for b in range(rounds))


def unwatched(known: CampaignRuns) -> list[bool]:
    return [doubt.kind == "unwatched" for doubt in worst(known.environments)]


def test_visits_whose_session_never_ended_are_doubted_for_good(store: SqliteStore) -> None:
    link = StandIn(steady)
    link.events_left = 3  # "opened", and two visits of twelve
    first = runner(link, store)
    with pytest.raises(DeviceError):
        first.measure("x", candidates("fast"), EFFORT)
    assert unwatched(RecordedRunner(store, first.campaign)) == [True]
    again = runner(StandIn(steady), store)
    assert again.resumed
    again.measure("x", candidates("fast"), EFFORT)
    again.finish({})
    assert unwatched(again) == [True]
    assert unwatched(RecordedRunner(store, first.campaign)) == [True]
    undisturbed = runner(StandIn(steady), store, fresh=True)
    undisturbed.measure("x", candidates("fast"), EFFORT)
    assert unwatched(undisturbed) == unwatched(RecordedRunner(store, undisturbed.campaign)) == []


def test_each_visit_is_taken_once_and_recorded(store: SqliteStore) -> None:
    link = StandIn(steady)
    measured = runner(link, store).measure("x", candidates("fast", "slow"), EFFORT)
    assert visits(measured) == whole(("fast", "slow"), 3, 4)
    assert all(m.ok and m.fact("load_ns") == 5 and m.fact("peak_rss_bytes") == 7 for m in measured.values())
    again = runner(StandIn(steady), store)
    assert again.resumed
    assert again.known("fast") == measured["fast"]
    assert len(again.environments) == 3


@pytest.mark.parametrize("after", range(0, 33, 5))
def test_an_interrupted_campaign_goes_on_where_it_stopped(store: SqliteStore, after: int) -> None:
    link = StandIn(steady)
    link.events_left = after
    with pytest.raises(DeviceError):
        runner(link, store).measure("x", candidates("fast", "slow"), EFFORT)
    known = runner(StandIn(steady), store)
    before = visits({key: known.known(key) for key in ("fast", "slow")})
    link = StandIn(steady)
    resumed = runner(link, store)
    measured = resumed.measure("x", candidates("fast", "slow"), EFFORT)
    assert visits(measured) == whole(("fast", "slow"), 3, 4)
    asked = Counter(
        (c["key"], process, block)
        for process, request in enumerate(link.requests, start=3 - len(link.requests))
        for c in request["candidates"]
        for block in c["visits"]
    )
    assert asked + before == whole(("fast", "slow"), 3, 4)


def test_a_finished_campaign_is_not_taken_up_nor_one_when_asked_afresh(store: SqliteStore) -> None:
    first = runner(StandIn(steady), store)
    first.measure("x", candidates("fast"), EFFORT)
    assert not runner(StandIn(steady), store, fresh=True).resumed
    for open_one in (first, runner(StandIn(steady), store)):
        open_one.finish({"chosen": "fast"})
    after = runner(StandIn(steady), store)
    assert not after.resumed
    assert after.known("fast").runs == ()


def test_what_goes_on_takes_up_its_campaign_also_where_that_was_finished(store: SqliteStore) -> None:
    def states() -> list[bool]:
        return [row.finished for row in list_campaigns(store)]

    question = Question(kind="test", context=CONTEXT, details={}, goes_on=True)
    first = CampaignRunner(cast(AgentLink, StandIn(steady)), store, question)
    first.measure("x", candidates("fast"), EFFORT)
    first.finish({})
    assert states() == [True]
    again = CampaignRunner(cast(AgentLink, StandIn(steady)), store, question)
    assert again.resumed
    assert again.known("fast") == first.known("fast")
    assert states() == [False]
    again.finish({})
    assert states() == [True]
    assert CampaignRunner(cast(AgentLink, StandIn(steady)), store, question, fresh=True).known("fast").runs == ()
    assert states() == [False, True]


@pytest.mark.parametrize("stage", ["load", "run"])
def test_a_crash_that_comes_again_is_final_and_the_others_go_on(store: SqliteStore, stage: str) -> None:
    link = StandIn(steady)
    link.failures = [("slow", stage, CRASH)] * 9
    measured = runner(link, store).measure("x", candidates("fast", "slow"), EFFORT)
    assert link.opened.count("slow") == 2
    assert measured["fast"].ok
    assert not measured["slow"].ok
    failure = measured["slow"].failure
    assert failure is not None
    assert (failure.kind, failure.stage) == ("crash", stage)
    assert visits({"fast": measured["fast"]}) == whole(("fast",), 3, 4)


@pytest.mark.parametrize("stage", ["load", "run"])
@pytest.mark.parametrize("processes", [1, 3])
def test_what_may_pass_is_tried_once_more(store: SqliteStore, stage: str, processes: int) -> None:
    link = StandIn(steady)
    link.failures = [("slow", stage, KILLED)]
    effort = Effort(processes_least=processes, processes_most=processes, rounds=4)
    measured = runner(link, store).measure("x", candidates("fast", "slow"), effort)
    assert measured["slow"].ok
    assert sum(1 for run in measured["slow"].runs if run.failure) == 1  # it stays in the record
    assert visits(measured) == whole(("fast", "slow"), processes, 4)
    assert link.opened.count("slow") == processes + 1
    assert link.opened.count("fast") == processes


def test_it_stops_when_all_is_known_well_enough(store: SqliteStore) -> None:
    for times, processes in ((steady, 3), (noisy, 6)):
        link = StandIn(times)
        runner(link, store, fresh=True).measure("x", candidates("fast", "slow"), EFFORT)
        assert len(link.requests) == processes


def test_it_stops_at_the_budget_but_not_before_the_least(store: SqliteStore) -> None:
    link = StandIn(noisy)
    effort = Effort(processes_least=2, processes_most=6, rounds=4, budget_s=0.0)
    runner(link, store).measure("x", candidates("fast"), effort)
    assert len(link.requests) == 2


@pytest.mark.parametrize(
    ("behind_ns", "visits_of_each"),
    [
        (5000, {0: 4, 1: 1}),  # a real agent stops it after two visits of the first process, too
        (2000, {0: 4, 1: 1, 2: 1}),  # behind, but not without hope
    ],
)
def test_who_lags_gets_few_visits(store: SqliteStore, behind_ns: int, visits_of_each: dict[int, int]) -> None:
    def times(key: str, rng: random.Random) -> int:
        return (behind_ns if key == "lame" else 1000) + rng.randrange(3)

    measured = runner(StandIn(times), store).measure("x", candidates("fast", "other", "lame"), EFFORT)
    assert Counter(process for key, process, _ in visits(measured) if key == "lame") == visits_of_each
    assert visits({"other": measured["other"]}) == whole(("other",), 3, 4)


def test_who_has_no_rival_needs_no_narrower_interval(store: SqliteStore) -> None:
    def times(key: str, rng: random.Random) -> int:
        return noisy("fast", rng) * (9 if key == "lame" else 1)

    for names, processes in ((("fast", "lame"), 3), (("fast", "slow"), 6)):
        link = StandIn(times)
        runner(link, store, fresh=True).measure("x", candidates(*names), EFFORT)
        assert len(link.requests) == processes


def test_a_profiled_run_is_one_visit_and_its_operators_are_found(store: SqliteStore) -> None:
    made = runner(StandIn(steady), store, sources={"a": 4}.get)
    measured = made.measure("x", candidates("fast/traced", profiled=True), EFFORT)["fast/traced"]
    assert [(run.process, run.block, run.profiled) for run in measured.runs] == [(p, 0, True) for p in range(3)]
    assert measured.runs[0].operators[0].sources == (4, 1)


def test_candidates_are_checked_against_the_reference_once_there_is_one(store: SqliteStore) -> None:
    link = StandIn(steady)
    made = runner(link, store)
    made.measure("x", candidates("fast"), EFFORT)
    assert "check" not in link.requests[-1]["candidates"][0]["open"]
    found, failure = made.reference(cast(Any, {"name": "r"}), timeout_s=5.0)
    assert (found, failure) == ({"relative": 0.5, "absolute": 1.0}, None)
    saved = link.requests[-1]["candidates"][0]["open"]
    made.measure("x", [*candidates("slow"), *candidates("free", check=False)], EFFORT)
    checked, free = (c["open"] for c in link.requests[-1]["candidates"])
    assert (checked["check"], checked["seeds"]) == (saved["save"], saved["seeds"])
    assert saved["seeds"] == [5, 6]
    assert "check" not in free


def test_a_reference_that_fails_is_told(store: SqliteStore) -> None:
    link = StandIn(steady)
    link.failures = [("reference", "load", CRASH)]
    found, failure = runner(link, store).reference(cast(Any, {"name": "r"}), timeout_s=5.0)
    assert found is None
    assert failure is not None
    assert failure.kind == "crash"


def test_no_more_than_fit_are_open_together(store: SqliteStore) -> None:
    keys = [f"c{k}" for k in range(7)]
    link = StandIn(steady)
    effort = Effort(processes_least=1, processes_most=1, rounds=2, together=3)
    measured = runner(link, store).measure("x", candidates(*keys), effort)
    assert visits(measured) == whole(tuple(keys), 1, 2)
    assert max(len(r["candidates"]) for r in link.requests) <= 3


@pytest.mark.parametrize("times", [steady, noisy])
def test_progress_counts_up_to_its_end(store: SqliteStore, times: Any) -> None:
    seen: list[Progress] = []
    link = StandIn(times)
    link.failures = [("slow", "run", CRASH)]
    runner(link, store, watch=seen.append).measure("some stage", candidates("fast", "slow"), EFFORT)
    assert {p.stage for p in seen} == {"some stage"}
    assert all(a.done <= b.done for a, b in pairwise(seen))
    assert all(p.done <= p.total for p in seen)
    assert seen[0].left_s is None
    known = runner(StandIn(times), store)
    taken = sum(run.samples is not None for key in ("fast", "slow") for run in known.known(key).runs)
    assert seen[-1].done == seen[-1].total == taken


def test_progress_shows_how_what_has_a_label_stands_after_each_session(store: SqliteStore) -> None:
    seen: list[Progress] = []
    link = StandIn(steady)
    link.failures = [("broken", "load", CRASH), ("broken", "load", CRASH)]
    shown = [replace(c, label=c.key.upper()) for c in candidates("slow", "fast", "broken")]
    runner(link, store, watch=seen.append).measure("stage", [*shown, *candidates("other")], EFFORT)
    standings = [p.standings for p in seen]
    assert standings[0] == ()
    assert all([row.label for row in rows] == ["FAST", "SLOW"] for rows in standings if rows)
    first, last = next(rows for rows in standings if rows), standings[-1]
    assert (first[0].time.processes, last[0].time.processes) == (1, 3)
    assert last[0].clock == "cpu" and last[0].ratio == 1
    assert last[1].ratio == pytest.approx(1.3, rel=0.01)
    assert last[1].wall_s == pytest.approx(1.3e-6, rel=0.01)
    several = [replace(c, serial=False) for c in shown]
    runner(link, store, watch=seen.append).measure("again", several, EFFORT)
    assert seen[-1].standings[0].clock == "wall"  # CPU time of several threads says little


def test_who_is_surely_slower_gets_few_visits_where_only_the_fastest_is_asked_for(store: SqliteStore) -> None:
    def times(key: str, rng: random.Random) -> int:
        return int(rng.randrange(800, 1250) * (1.5 if key == "behind" else 1))

    for decides, later in ((True, 1), (False, 4)):
        measured = runner(StandIn(times), store, fresh=True).measure(
            "x", candidates("fast", "even", "behind"), replace(EFFORT, decides=decides)
        )
        counts = {
            name: Counter(process for key, process, _ in visits(measured) if key == name) for name in ("even", "behind")
        }
        assert counts["even"] == dict.fromkeys(range(6), 4)
        assert counts["behind"] == dict.fromkeys(range(3), 4) | dict.fromkeys(range(3, 6), later)

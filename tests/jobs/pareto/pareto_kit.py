"""A fast lab for `pareto`: the real job, campaign and record, over a device that only pretends to run anything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnomon.core.graph import Graph
from gnomon.core.sample import Context, Run, Samples
from gnomon.core.space import Slot, Space
from gnomon.jobs.pareto import job
from gnomon.jobs.pareto.document import PointPart
from gnomon.jobs.pareto.prove import decide
from gnomon.measure.campaign import CampaignRunner, Candidate, Measured, Question
from gnomon.measure.effort import Clock
from gnomon.search.base import Assignment
from gnomon.session.objectives import goals_of
from gnomon.session.reference import NOT_COMPUTED
from gnomon.store.sqlite import SqliteStore

CONTEXT = Context(
    device={"cpu_model": "pretended"},
    versions={"none": "1"},
    model_digest="00" * 32,
    model_name="m",
    options={},
    seed=5,
    gnomon_version="0",
)
Event = dict[str, Any]
Price = Callable[[Assignment], "tuple[float, int] | None"]
"""Microseconds and bytes of an assignment; None where it crashes."""


class Killed(BaseException):
    """Stands for whatever ends a process in the middle of an event."""


class Pretended:
    """A device that answers as the agent does. `visits_left` ends it all: before the next visit is told, or after."""

    def __init__(self, price: Price, assignments: Mapping[str, Assignment]) -> None:
        self.price, self.assignments = price, assignments
        self.visits_left: int | None = None
        self.dies_after = False
        self.opened: Counter[str] = Counter()
        self.visits = 0
        self.ended: dict[tuple[str, str], int] = {}
        """How often something ends a process, by the beginning and the end of its candidate's key."""

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        """One session: a process for each candidate, its visits interleaved."""
        alive = []
        for candidate in request["candidates"]:
            key = candidate["key"]
            self.opened[key] += bool(candidate["visits"])  # else it only runs beside one that is tried again
            if self._price(key) is None:
                failure = {"event": "failure", "stage": "load", "kind": "crash", "message": "crashed with SIGSEGV"}
                on_event({**failure, "candidate": key, "transient": False, "log_tail": ""})
                continue
            hits = [of for of, left in self.ended.items() if left and key.startswith(of[0]) and key.endswith(of[1])]
            if hits:
                self.ended[hits[0]] -= 1
                failure = {"event": "failure", "stage": "load", "kind": "crash", "message": "ended by SIGTERM"}
                on_event({**failure, "candidate": key, "transient": False, "log_tail": "", "signal": "SIGTERM"})
                continue
            on_event({"event": "opened", "candidate": key, "difference": {"relative": 1e-6}})
            alive.append(candidate)
        for block in range(request["rounds"]):
            for candidate in alive:
                if block in candidate["visits"]:
                    self._visit(candidate["key"], block, on_event)
        on_event({"event": "environment", "data": {"before": {"cores": 2}, "after": {"cores": 2}}})

    def _visit(self, key: str, block: int, on_event: Callable[[Event], None]) -> None:
        last = self.visits_left is not None and self.visits == self.visits_left
        if last and not self.dies_after:
            raise Killed
        self.visits += 1
        price = self._price(key)
        assert price is not None
        times = [round(price[0] * 1000) + random.Random(f"{key}/{block}").randrange(5) for _ in range(3)]
        on_event(
            {
                "event": "block",
                "candidate": key,
                "block": block,
                "wall_ns": times,
                "cpu_ns": times,
                "inner": 1,
                "peak_rss_bytes": price[1],
                "waits": 0,
            }
        )
        if last:
            raise Killed

    def _price(self, key: str) -> tuple[float, int] | None:
        return self.price(self.assignments[key.rpartition("/")[2]])


class PretendedSpace:
    """A decision space of operators on backends, of which nothing but the names is real."""

    def __init__(self, slots: int, backends: Sequence[str]) -> None:
        self.space = Space(tuple(Slot(f"op{k}", tuple(backends)) for k in range(slots)))
        self.published, self.operator_slots, self.parallel = self.space, slots, False
        graph = Graph(name="m", format="none", digest="00", tensors=(), operators=(), inputs=(), outputs=())
        self.targets = (SimpleNamespace(placed=SimpleNamespace(graph=graph)),)
        self.options: dict[str, tuple[str, ...]] = {}
        self.assignments = {self.label(a): a for a in map(self.space.decode, range(self.space.size))}

    def coarse(self) -> None:
        return None

    def code(self, assignment: Assignment) -> int:
        return self.space.encode(assignment)

    def label(self, assignment: Assignment) -> str:
        return "-".join(self.space.names(assignment))

    def single(self, assignment: Assignment) -> int | None:
        return assignment[0] if len(set(assignment)) == 1 else None

    def threaded(self, assignment: Assignment, threads: int) -> bool:
        return threads != 1

    def contender(self, session: Any, assignment: Assignment) -> Any:
        key = self.label(assignment)
        return SimpleNamespace(key=key, label=key, candidate=Candidate(key=key, job=cast(Any, {"name": key})))


def pretend(monkeypatch: pytest.MonkeyPatch, space: PretendedSpace, device: Pretended) -> None:
    """Let `pareto` work in such a lab; the record is the request's."""

    @contextmanager
    def open_session(request: Any, *, kind: str, question: Any, watch: Any, tell: Any, goes_on: bool) -> Iterator[Any]:
        asked = Question(kind=kind, context=CONTEXT, details={**question}, goes_on=goes_on)
        with SqliteStore.open(request.record) as store:
            store._db.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug here
            runner = CampaignRunner(device, store, asked, watch=watch, fresh=request.fresh, time_of_job=request.time)  # type: ignore[arg-type]
            info = SimpleNamespace(name="pretended", fingerprint={})
            graph = Graph(name="m", format="none", digest="00", tensors=(), operators=(), inputs=(), outputs=())
            more: dict[str, Any] = {"link": device, "device": info, "graph": graph, "cores": 2, "inputs": ()}
            yield SimpleNamespace(
                request=request, runner=runner, probes={}, missing=[], counters=(), targets=(), **more
            )

    monkeypatch.setattr(job, "open_session", open_session)
    monkeypatch.setattr(job, "decision_space", lambda session, by, options, all_cores: space)
    monkeypatch.setattr(job, "reference", lambda session: NOT_COMPUTED)
    monkeypatch.setattr(job, "doubts", lambda session, sensitivity: ())


GOALS2 = goals_of(("latency", "peak-memory"))


def runs(
    wall_us: Sequence[float],
    memory: Sequence[float] | None = None,
    *,
    cpu_us: Sequence[float] | None = None,
    error: float = 0.0,
    key: str = "k",
) -> Measured:
    """A point in one process a time, three blocks each of which is 0.5 % off the next."""
    made = []
    for process, wall in enumerate(wall_us):
        cpu = wall if cpu_us is None else cpu_us[process]
        for block in range(3):
            wall_ns, cpu_ns = (round(t * 1000 * (1 + 0.005 * (block - 1))) for t in (wall, cpu))
            facts = {
                "peak_rss_bytes": 1000 if memory is None else memory[process],
                "difference": {"relative": error},
                "waits": 0,
                "energy": {"spent_uj": round(500 * wall), "wall_ns": 5 * wall_ns},
            }
            samples = Samples(wall_ns=(wall_ns,) * 5, cpu_ns=(cpu_ns,) * 5)
            run = Run(candidate=key, process=process, block=block, started_at_s=0.0, samples=samples, facts=facts)
            made.append(run)
    return Measured(key=key, runs=tuple(made), failure=None)


def point(label: str) -> PointPart:
    """A point of the proof before anything is decided."""
    return PointPart(code="0", label=label, choices=(), sampled=(1.0, 1.0))


def decided(clocks: Mapping[str, Clock] | None = None, **measured: Measured) -> dict[str, PointPart]:
    """What the noise says of points, by name, in order."""
    of: list[Clock] = [(clocks or {}).get(name, "cpu") for name in measured]
    found = decide(GOALS2, [point(name) for name in measured], list(measured.values()), of)
    numbers = [p.number for p in found if p.number]
    assert numbers == list(range(1, len(numbers) + 1))
    return {p.label: p for p in found}


def campaigns(record: Path) -> list[Any]:
    """What `gnomon runs` lists of a record."""
    from gnomon.jobs.runs.job import list_campaigns

    with SqliteStore.open(record) as store:
        return list(list_campaigns(store))

"""`pareto` ended at any moment: the same front in the same order, and at most one evaluation is made twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.bad_days.livekit import add_circle, interrupt, nothing_left
from tests.jobs.pareto.pareto_kit import Killed, Pretended, PretendedSpace, campaigns, pretend
from tests.shortkit import SHORTLY

from gnomon.errors import UsageError
from gnomon.jobs.pareto import job
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.search import ParetoRequest, Plan
from gnomon.jobs.pareto.space import Evaluator
from gnomon.measure.campaign import RecordedRunner
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Steps
from gnomon.search.base import Assignment
from gnomon.session.objectives import goals_of
from gnomon.session.request import ModelRequest
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

EFFORT = Effort(processes_least=2, processes_most=2, rounds=1, together=3)
EVALUATIONS = 7
COMMAND = f"{SHORTLY}from gnomon.cli.main import main; main()"


def price(assignment: Assignment) -> tuple[float, int] | None:
    """One backend is fast and large, another one crashes beside it; the last operator is slow on it."""
    if assignment == (1, 1, 0):
        return None
    speed = 100.0 - 20 * assignment[0] - 13 * assignment[1] + 7 * assignment[2]
    return speed, 50_000_000 + 300_000_000 * (1 in assignment) + 1_000_000 * sum(assignment)


@dataclass(kw_only=True)
class Bench:
    """A pretended lab with a record of its own."""

    device: Pretended
    asked: ParetoRequest

    @property
    def record(self) -> Path:
        assert self.asked.request is not None
        assert isinstance(self.asked.request.record, Path)
        return self.asked.request.record

    def run(self, visits: int | None = None, *, dies_after: bool = False, **change: Any) -> ParetoDocument | None:
        """The job, killed at a visit; None where that happened."""
        self.device.visits_left = None if visits is None else self.device.visits + visits
        self.device.dies_after = dies_after
        try:
            return pareto(replace(self.asked, **change))
        except Killed:
            return None


def bench(folder: Path, monkeypatch: pytest.MonkeyPatch, search: str, iterations: int | None = EVALUATIONS) -> Bench:
    if search == "nsga2":
        pytest.importorskip("pymoo")
    space = PretendedSpace(3, ("cpu", "npu"))
    device = Pretended(price, space.assignments)
    pretend(monkeypatch, space, device)
    folder.mkdir(exist_ok=True)
    request = ModelRequest(model=folder / "m", effort=EFFORT, record=folder / "record.sqlite")
    plan = Plan(name=search, seed=3, iterations=None if search == "brute" else iterations)
    return Bench(device=device, asked=ParetoRequest(request=request, plan=plan))


def lasting(found: ParetoDocument | None) -> Any:
    """All that must not depend on whether the search was ended in between."""
    assert found is not None
    points = []
    for point in found.points:
        runs = point.runs  # but for when they were made
        if runs is not None:
            runs = replace(runs, samples=replace(runs.samples, started_at_s=(0.0,) * len(runs.samples.started_at_s)))
        points.append(replace(point, runs=runs))
    return found.samples, found.search.volume, points, found.certificate


def twice(device: Pretended) -> dict[str, int]:
    """The evaluations that were made more than once, but for what failed, which each call tries again."""
    return {
        key: count
        for key, count in device.opened.items()
        if key.startswith("search/") and count > 1 and device.price(device.assignments[key[7:]]) is not None
    }


@pytest.mark.parametrize("search", ["brute", "nsga2"])
def test_killed_at_any_visit_it_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str) -> None:
    whole = bench(tmp_path / "whole", monkeypatch, search)
    wanted = lasting(whole.run())
    assert len(wanted[0]) == (8 if search == "brute" else EVALUATIONS)
    for visit in range(whole.device.visits):
        killed = bench(tmp_path / f"{visit}", monkeypatch, search)
        assert killed.run(visit, dies_after=visit % 2 == 1) is None
        (row,) = campaigns(killed.record)
        assert not row.finished
        found = killed.run()
        assert lasting(found) == wanted
        assert found is not None
        assert found.resumed
        assert sum(twice(killed.device).values()) <= 2  # one evaluation, twice
        (row,) = campaigns(killed.record)
        assert (row.finished, row.decision["front"]) == (True, len(found.front))


def test_killed_again_and_again_it_gets_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = lasting(bench(tmp_path / "whole", monkeypatch, "hlps").run())
    killed = bench(tmp_path / "killed", monkeypatch, "hlps")
    kills = 0
    while (found := killed.run(1)) is None:  # each time one visit is recorded, and the next one lost
        kills += 1
    assert lasting(found) == wanted
    assert kills >= EVALUATIONS
    assert max(twice(killed.device).values()) == 2  # each lost once, and never made again after it was recorded
    assert len(campaigns(killed.record)) == 1


def test_a_finished_search_goes_on_in_its_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = lasting(bench(tmp_path / "six", monkeypatch, "random", 6).run())
    made = bench(tmp_path, monkeypatch, "random", 3)
    assert made.run() is not None
    (first,) = campaigns(made.record)
    assert first.finished
    more = made.run(plan=replace(made.asked.plan, iterations=6))
    assert more is not None
    assert more.search.replayed == sum(sample.cost is not None for sample in more.samples[:3])
    assert lasting(more)[:2] == wanted[:2]
    (again,) = campaigns(made.record)
    assert (again.campaign, again.finished) == (first.campaign, True)
    assert not twice(made.device)

    assert made.run(0, plan=replace(made.asked.plan, iterations=7)) is None
    (ended,) = campaigns(made.record)
    assert not ended.finished  # it was finished, then reopened, and is not done
    assert made.run(plan=replace(made.asked.plan, iterations=7)) is not None
    assert campaigns(made.record)[0].finished


def test_another_search_takes_over_what_one_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(tmp_path, monkeypatch, "brute")
    first = made.run()
    other = made.run(plan=Plan(name="hlps", iterations=5))
    assert first is not None
    assert other is not None
    assert other.search.replayed == sum(sample.cost is not None for sample in other.samples)  # failures are tried again
    assert len(other.samples) == 5
    assert not twice(made.device)
    assert len(campaigns(made.record)) == 1


def test_what_something_ended_is_named_and_measured_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = bench(tmp_path / "whole", monkeypatch, "brute").run()
    made = bench(tmp_path, monkeypatch, "brute")
    made.device.ended = {("search", "cpu-npu-npu"): 1, ("search", "npu-npu-npu"): 2}
    first = made.run()
    assert first is not None and wanted is not None
    assert first.certificate == "heuristic"  # an assignment is not known
    assert [d.message for d in first.doubts if d.kind == "not-compared"] == [
        "npu-npu-npu was not measured: ended by SIGTERM"
    ]
    made.device.ended = {("proof", "npu-npu-npu"): 2}
    second = made.run()
    assert second is not None
    assert second.certificate == "complete"
    lost = [d.message for d in second.doubts if d.kind == "not-compared"]
    assert lost and all("was measured (" in line and "ended by SIGTERM: not compared" in line for line in lost)
    made.device.ended = {}
    third = made.run()
    assert third is not None
    assert [p.label for p in third.front] == [p.label for p in wanted.front]
    assert "not-compared" not in {d.kind for d in third.doubts}


def test_searches_side_by_side_run_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [lasting(bench(tmp_path / name, monkeypatch, name, 5).run())[0] for name in ("random", "hlps")]
    made = bench(tmp_path / "both", monkeypatch, "random", 5)
    found = made.run(others=(Plan(name="hlps", seed=3, iterations=5),))
    assert found is not None
    assert not twice(made.device)
    assert [s.evaluations for s in found.searches] == [5, 5]
    assert set(found.samples) == {*wanted[0], *wanted[1]}
    common = {*wanted[0]} & {*wanted[1]}
    assert [s.replayed for s in found.searches] == [0, len(common)]
    assert len(found.samples) == 10 - len(common)


def test_a_point_that_there_is_not_leaves_a_finished_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(tmp_path, monkeypatch, "brute")
    with pytest.raises(UsageError, match="no point 99"):
        made.run(pick=99, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert campaigns(made.record)[0].finished


def test_asked_afresh_it_is_another_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(tmp_path, monkeypatch, "brute")
    made.run()
    assert made.asked.request is not None
    made.run(request=replace(made.asked.request, fresh=True))
    assert [row.finished for row in campaigns(made.record)] == [True, True]


# For real


def start(folder: Path) -> subprocess.Popen[str]:
    """The real command in a process of its own, with all that it makes below `folder`."""
    arguments = ("--runtime", "onert", "--by", "operator", "--search", "brute", "-n", "1", "--processes", "1")
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "pareto", str(folder / "add.circle"), *arguments, "--json", "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "GNOMON_HOME": str(folder)},
    )


def sampled(record: Path) -> list[str]:
    """The candidates of the search's visits that the record holds, in order."""
    if not record.exists():
        return []
    with SqliteStore.open(record) as store:
        runs = [run for c in store.query(CampaignQuery()) for run in store.query(RunQuery(campaign=c.id))]
    return [run.candidate for run in runs if run.samples is not None and run.candidate.startswith("search/")]


@pytest.mark.slow
def test_kill_9_of_the_real_command(tmp_path: Path) -> None:
    (tmp_path / "add.circle").write_bytes(add_circle())
    (tmp_path / "tmp").mkdir()
    record = tmp_path / "record.sqlite"
    with start(tmp_path) as gnomon:
        while len(set(sampled(record))) < 3 and gnomon.poll() is None:
            time.sleep(0.02)
        interrupt(gnomon, signal.SIGKILL)
    assert gnomon.returncode == -signal.SIGKILL
    assert nothing_left(tmp_path)
    before = sampled(record)
    whole = [key for key, count in Counter(before).items() if count == max(Counter(before).values())]
    assert not campaigns(record)[0].finished
    with start(tmp_path) as gnomon:
        out, errors = gnomon.communicate(timeout=120)
    assert gnomon.returncode == 0, errors
    found = json.loads(out)
    assert found["resumed"]
    assert found["search"]["replayed"] == len(whole) >= 2
    assert found["search"]["evaluations"] == 4
    after = sampled(record)
    assert after[: len(before)] == before
    assert not set(after[len(before) :]) & set(whole)  # what was known is not run again
    (row,) = campaigns(record)
    assert row.finished


def test_what_the_record_lacks_was_not_run_and_nothing_is_called_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(tmp_path, monkeypatch, "brute")
    space: Any = PretendedSpace(3, ("cpu", "npu"))

    def recorded() -> tuple[str, int, int]:
        """The search over the record alone: what it proves, and how many failed, and were never run."""
        with SqliteStore.open(made.record) as store:
            (campaign,) = store.query(CampaignQuery())
            session: Any = SimpleNamespace(
                runner=RecordedRunner(store, campaign), request=made.asked.request, counters=(), targets=(), link=None
            )
            evaluator = Evaluator(session=session, space=space, goals=goals_of(made.asked.objectives))
            _, certificate, _ = job._search(made.asked, space, evaluator, Steps("search", None))
            return certificate.kind, len(evaluator.failures), len(evaluator.unmeasured)

    assert made.run(plan=replace(made.asked.plan, iterations=5)) is not None
    assert recorded() == ("heuristic", 4, 3)
    assert made.run() is not None
    assert recorded() == ("complete", 1, 0)  # the one that crashes, which is a result

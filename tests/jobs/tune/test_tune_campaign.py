"""Calls of compiled networks in their campaign: each at once, and none twice where it was interrupted."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.tune.test_record_file import EMPTY, RECORDS

from gnomon.core.sample import Failure, Run
from gnomon.core.stats import Block, blocks_of
from gnomon.jobs.tune.campaign import CallCampaign, TrialCampaign
from gnomon.jobs.tune.networks import measure_calls, ratio_of, times_of
from gnomon.jobs.tune.request import TuneEffort
from gnomon.measure.campaign import Measured
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore
from gnomon.tuning.bench import LayerCall, Loop, NetworkCall, Timed

CALLS = {name: NetworkCall(library=Path(f"{name}.so"), inputs=Path("in.npz")) for name in ("a", "b", "broken", "shaky")}
PROCESSES, VISITS = 3, 15


class FakeBench:
    """Calls that take a time by their name: `broken` fails for good, `shaky` at first; ends after `last` calls."""

    def __init__(self, last: int = 1000) -> None:
        self.called: list[str] = []
        self._last = last

    def fresh(self) -> None:
        pass

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        yield

    def call(self, what: NetworkCall, loop: Loop) -> Timed | Failure:
        if len(self.called) == self._last:
            raise KeyboardInterrupt
        name = what.library.stem
        self.called.append(name)
        if name == "broken":
            return Failure(stage="check", kind="wrong-output", transient=False, message="off")
        if name == "shaky" and self._last < 1000:
            return Failure(stage="run", kind="vanished", transient=True, message="gone")
        return Timed(times_s=(1e-3, 2e-3) if name == "a" else (5e-9,), error=1e-4, server="here")


def measured(
    bench: FakeBench, campaign: CallCampaign, called: Mapping[str, NetworkCall | LayerCall] = CALLS
) -> dict[str, Measured]:
    effort, how = TuneEffort(processes=PROCESSES, seed=1), {"stage": "calls", "watch": None}
    return measure_calls(bench, called, effort, **how, campaign=campaign)  # type: ignore[arg-type]


def calls(**details: Any) -> CallCampaign:
    return CallCampaign(
        "exec", (RECORDS.device, RECORDS.model), {"apache-tvm": "1"}, {"sha256": "x", **details}, seed=0
    )


def first_visits(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if not block.block]


def runs(record: Path, kind: str) -> list[list[Run]]:
    with SqliteStore.open(record) as store:
        return [list(store.query(RunQuery(campaign=one.id))) for one in store.query(CampaignQuery(kind=kind))]


@pytest.mark.parametrize("last", range(1, 8))
def test_interrupted_calls_go_on_where_they_stopped(last: int, own_home: Path) -> None:
    first = FakeBench(last)
    with pytest.raises(KeyboardInterrupt), calls() as record:
        measured(first, record)
    again = FakeBench()
    with calls() as record:
        found = measured(again, record)
        record.finish("all", "a")
    once = FakeBench()
    with calls(sha256="y") as record:
        expected = measured(once, record)
    for name in CALLS:
        blocks, all_blocks = blocks_of(found[name].runs), blocks_of(expected[name].runs)
        assert first_visits(blocks) == first_visits(all_blocks)
        assert len({(block.process, block.block) for block in blocks}) == len(blocks) <= len(all_blocks)
        assert found[name].failure == expected[name].failure
    assert [block.values_s for block in blocks_of(found["a"].runs)] == [(1e-3, 2e-3)] * PROCESSES
    assert found["broken"].failure is not None and found["shaky"].failure is None
    written = sorted(map(len, runs(own_home / "record.sqlite", "exec")))
    assert written == sorted([len(first.called) + len(again.called), len(once.called)])


def test_what_was_finished_is_measured_again(own_home: Path) -> None:
    for _ in range(2):
        bench = FakeBench()
        with calls() as record:
            measured(bench, record)
            record.finish("all", "a")
        # Those that may be the fastest are visited several times in each process, one that is far slower once.
        calls_of = [bench.called.count(name) for name in ("a", "b", "broken")]
        assert calls_of == [PROCESSES, VISITS * PROCESSES, 1]
    assert [len(one) for one in runs(own_home / "record.sqlite", "exec")] == [len(bench.called)] * 2


def test_calls_as_long_as_a_sample_are_visited_less_often(own_home: Path) -> None:
    class Slow(FakeBench):
        def call(self, what: NetworkCall, loop: Loop) -> Timed | Failure:
            said = super().call(what, loop)
            return said if isinstance(said, Failure) else dataclasses.replace(said, times_s=(0.02,))

    bench = Slow()
    with calls() as record:
        measured(bench, record)
    assert [bench.called.count(name) for name in ("a", "b")] == [5 * PROCESSES] * 2


def test_networks_that_are_not_known_well_are_measured_in_more_processes(own_home: Path) -> None:
    class Restless(FakeBench):
        def call(self, what: NetworkCall, loop: Loop) -> Timed | Failure:
            said = super().call(what, loop)
            steps = 1 + len(self.called) // 20
            return said if isinstance(said, Failure) else dataclasses.replace(said, times_s=(steps * 5e-9,))

    layer = LayerCall(library=Path("layer.so"), arguments=(), outputs=())
    with calls() as record:
        found = measured(Restless(), record, {**CALLS, "layer": layer})
    processes = {name: len(first_visits(blocks_of(found[name].runs))) for name in found if name != "broken"}
    assert processes == {"a": 2 * PROCESSES, "b": 2 * PROCESSES, "shaky": 2 * PROCESSES, "layer": PROCESSES}


def test_cpu_time_decides_where_all_calls_have_it(own_home: Path) -> None:
    with calls() as record:
        for name, cpu_s in (("a", (1e-3,)), ("b", (2e-3,)), ("shaky", ())):
            for _ in range(2):
                record.add_call(name, Timed(times_s=(9e-3,), cpu_s=cpu_s, error=None, server=""))
        a, b, shaky = (record.measured(name) for name in ("a", "b", "shaky"))
    times = times_of(a)
    assert times is not None and times.clock == "cpu" and times.median_s == pytest.approx(1e-3)
    one, other = ratio_of(b, a), ratio_of(b, shaky)
    assert one is not None and one.ratio == pytest.approx(2)
    assert other is not None and other.ratio == pytest.approx(1), "by the clock that both have"


def test_each_proof_of_tuning_is_added_to_those_before(tmp_path: Path, own_home: Path) -> None:
    for count in (1, 2):
        with TrialCampaign(tmp_path / "phone.json", EMPTY, "tune") as record:
            record.add_layers(RECORDS.layers)
            for trial in RECORDS.trials if count == 1 else ():
                record.add(trial)
            measured(FakeBench(), record)
            record.finish("all")
        (all_runs,) = runs(own_home / "record.sqlite", "tune")
        proofs = [run for run in all_runs if run.candidate.startswith("network/")]
        assert len(all_runs) == len(RECORDS.trials) + len(proofs)
        assert sorted(run.process for run in proofs if run.candidate == "network/a") == list(range(PROCESSES * count))

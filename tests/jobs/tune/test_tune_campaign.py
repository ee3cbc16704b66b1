"""Calls of compiled networks in their campaign: each at once, and none twice where it was interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.tune.test_record_file import EMPTY, RECORDS

from gnomon.core.sample import Failure, Run
from gnomon.core.stats import blocks_of
from gnomon.jobs.tune.campaign import CallCampaign, TrialCampaign
from gnomon.jobs.tune.networks import measure_calls
from gnomon.jobs.tune.request import Care
from gnomon.measure.campaign import Measured
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore
from gnomon.tuning.bench import Loop, NetworkCall, Timed

CALLS = {name: NetworkCall(library=Path(f"{name}.so"), inputs=Path("in.npz")) for name in ("a", "b", "broken", "shaky")}
PROCESSES = 3


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


def measured(bench: FakeBench, campaign: CallCampaign) -> dict[str, Measured]:
    care, how = Care(processes=PROCESSES, seed=1), {"dtype": "float32", "stage": "calls", "watch": None}
    return measure_calls(bench, CALLS, care, **how, campaign=campaign)  # type: ignore[arg-type]


def calls(**details: Any) -> CallCampaign:
    return CallCampaign(
        "exec", (RECORDS.device, RECORDS.model), {"apache-tvm": "1"}, {"sha256": "x", **details}, seed=0
    )


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
    succeeded = [name for name in first.called if name != "shaky"]
    assert sorted(succeeded + again.called) == sorted(once.called)
    for name in CALLS:
        assert blocks_of(found[name].runs) == blocks_of(expected[name].runs)
        assert found[name].failure == expected[name].failure
    assert [block.values_s for block in blocks_of(found["a"].runs)] == [(1e-3, 2e-3)] * PROCESSES
    assert found["broken"].failure is not None and found["shaky"].failure is None
    whole, other = sorted(runs(own_home / "record.sqlite", "exec"), key=len, reverse=True)
    assert len(whole) == len(once.called) + first.called.count("shaky")
    assert len(other) == len(once.called)


def test_what_was_finished_is_measured_again(own_home: Path) -> None:
    for _ in range(2):
        bench = FakeBench()
        with calls() as record:
            measured(bench, record)
            record.finish("all", "a")
        assert len(bench.called) == 3 * PROCESSES + 1
    assert [len(one) for one in runs(own_home / "record.sqlite", "exec")] == [10, 10]


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

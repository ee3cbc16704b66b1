"""The contract of `gnomon.store.base.Store` as tests.

Subclass `StoreContract` in a test module and give it a fixture `reopen`: a function that opens a new store on
the same record each time it is called, and closes none::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def reopen(self, tmp_path):
            return lambda: MyStore(tmp_path / "record")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from gnomon.core.sample import FINISHED, REOPENED, Campaign, Context, Event, Failure, OperatorSamples, Run, Samples
from gnomon.errors import RecordError
from gnomon.store.base import (
    CELL,
    CampaignQuery,
    EventQuery,
    RunQuery,
    Store,
    Tally,
    TallyQuery,
    newest_free,
)

Reopen = Callable[[], Store]


def sample_campaign(id: str = "c1", *, key: str = "k", kind: str = "profile", at_s: float = 1e9) -> Campaign:
    """A campaign to test with."""
    context = Context(
        device={"cpu_model": "Café 9000 🦄", "cores": 2, "governor": None},
        versions={"onnxruntime": "1.23.2"},
        model_digest="ab" * 32,
        model_name="mobilenet.onnx",
        options={"threads": 1, "nested": {"list": [1, 2.5, "x", True, None]}},
        seed=2**62,
        gnomon_version="0.1.0",
    )
    return Campaign(id=id, kind=kind, key=key, context=context, started_at_s=at_s)


def sample_run(candidate: str = "cpu", process: int = 0, block: int = 0) -> Run:
    """A successful profiled run with every field set."""
    return Run(
        candidate=candidate,
        process=process,
        block=block,
        started_at_s=1e9 + 0.123456,
        samples=Samples(wall_ns=(10**12 + 1, 7, 0), cpu_ns=(1, 2, 3), inner=5),
        profiled=True,
        operators=(
            OperatorSamples(name="Conv_0\n'\"", sources=(0, 3), backend="xnnpack", wall_ns=(4, 5)),
            OperatorSamples(name="reorder", sources=(), backend="cpu", wall_ns=()),
        ),
        facts={"peak_rss_bytes": 2**40, "load_average_before": 0.1 + 0.2, "note": None},
    )


def failed_run(candidate: str = "gpu") -> Run:
    """A run that failed."""
    failure = Failure(stage="run", kind="crash", transient=True, message="signal 11", log_tail="é\x1b[0m\n")
    return Run(candidate=candidate, process=1, block=0, started_at_s=1e9, failure=failure)


class StoreContract:
    """What every store must do."""

    @pytest.fixture
    def store(self, reopen: Reopen) -> Iterator[Store]:
        """An empty store, open until the test ends."""
        with closing(reopen()) as store:
            yield store

    @pytest.fixture
    def begun(self, store: Store) -> Store:
        """A store that has the campaign "c1"."""
        store.open_campaign(sample_campaign())
        return store

    def test_all_comes_back_equal_and_in_order(self, reopen: Reopen) -> None:
        runs = [sample_run(block=i) for i in range(300)] + [failed_run()]
        events = [Event(name="probe", at_s=1.5, data={"backends": ["cpu"]}), Event(name="decision", at_s=2.0)]
        with closing(reopen()) as store:
            store.open_campaign(sample_campaign())
            for run in runs:
                store.append("c1", run)
            for event in events:
                store.append("c1", event)
        with closing(reopen()) as store:
            assert list(store.query(CampaignQuery())) == [sample_campaign()]
            assert list(store.query(RunQuery(campaign="c1"))) == runs
            assert list(store.query(EventQuery(campaign="c1"))) == events

    def test_queries_narrow(self, store: Store) -> None:
        plain = Run(candidate="b", process=0, block=0, started_at_s=1.0, samples=Samples(wall_ns=(1,), cpu_ns=(1,)))
        store.open_campaign(sample_campaign("old"))
        store.open_campaign(sample_campaign("new", key="other", kind="proof"))
        for item in (sample_run("a"), plain, Event(name=FINISHED, at_s=1.0), Event(name="x", at_s=2.0)):
            store.append("old", item)
        assert [c.id for c in store.query(CampaignQuery())] == ["new", "old"]
        assert [c.id for c in store.query(CampaignQuery(id="old"))] == ["old"]
        assert [c.id for c in store.query(CampaignQuery(key="other"))] == ["new"]
        assert [c.id for c in store.query(CampaignQuery(kind="profile"))] == ["old"]
        assert [c.id for c in store.query(CampaignQuery(finished=True))] == ["old"]
        assert [c.id for c in store.query(CampaignQuery(finished=False))] == ["new"]
        assert list(store.query(CampaignQuery(model_digest="nothing"))) == []
        assert list(store.query(RunQuery(campaign="old", candidate="a"))) == [sample_run("a")]
        assert [e.at_s for e in store.query(EventQuery(campaign="old", name="x"))] == [2.0]
        assert list(store.query(RunQuery(campaign="new"))) == []

    def test_a_finished_campaign_can_be_reopened(self, begun: Store) -> None:
        for name, finished in ((FINISHED, True), (REOPENED, False), ("other", False), (FINISHED, True)):
            begun.append("c1", Event(name=name, at_s=1.0))
            assert [c.id for c in begun.query(CampaignQuery(finished=finished))] == ["c1"]
            assert list(begun.query(CampaignQuery(finished=not finished))) == []
        assert newest_free(begun, "k", finished=False) is None
        assert newest_free(begun, "k") == sample_campaign()

    def test_a_campaign_is_found_by_the_cell_that_it_was_last_measured_for(self, store: Store) -> None:
        one, other = {"suite": "s", "cell": "caf\u00e9"}, {"suite": "s", "cell": "b"}
        for id, cells in (("c1", (one,)), ("c2", (one, other)), ("c3", (other, one)), ("c4", ()), ("c5", (one,))):
            store.open_campaign(sample_campaign(id))
            for cell in cells:
                store.append(id, Event(name=CELL, at_s=1.0, data=cell))
            store.append(id, Event(name="other", at_s=1.0, data=other))
        store.append("c3", Event(name=FINISHED, at_s=1.0))
        assert [c.id for c in store.query(CampaignQuery(cell=one))] == ["c5", "c3", "c1"]
        assert [c.id for c in store.query(CampaignQuery(cell=other))] == ["c2"]
        assert [c.id for c in store.query(CampaignQuery(cell=one, finished=True))] == ["c3"]
        assert list(store.query(CampaignQuery(cell={"suite": "s"}))) == []

    def test_runs_are_counted(self, begun: Store) -> None:
        for item in (sample_run("b"), sample_run("a"), failed_run("b")):
            begun.append("c1", item)
        assert list(begun.query(TallyQuery(campaign="c1"))) == [
            Tally(candidate="b", runs=2, failures=1),
            Tally(candidate="a", runs=1, failures=0),
        ]

    def test_the_newest_interrupted_campaign_is_resumed(self, store: Store) -> None:
        assert newest_free(store, "k", finished=False) is None
        for id in ("a", "b", "c"):
            store.open_campaign(sample_campaign(id))
        store.append("c", Event(name=FINISHED, at_s=1.0))
        assert newest_free(store, "k", finished=False) == sample_campaign("b")

    def test_a_campaign_is_opened_once(self, begun: Store) -> None:
        begun.open_campaign(sample_campaign())
        with pytest.raises(RecordError):
            begun.open_campaign(sample_campaign(kind="another"))
        assert list(begun.query(CampaignQuery())) == [sample_campaign()]

    def test_an_unknown_campaign_is_an_error(self, store: Store) -> None:
        store.open_campaign(sample_campaign("known"))
        with pytest.raises(RecordError) as refused:
            store.append("absent", sample_run())
        assert "known" in refused.value.hint
        for query in (
            RunQuery(campaign="absent"),
            EventQuery(campaign="absent"),
            TallyQuery(campaign="absent"),
        ):
            with pytest.raises(RecordError):
                list(store.query(query))

    def test_a_refused_value_leaves_nothing(self, begun: Store) -> None:
        for value in (float("nan"), float("inf"), object(), {1: 2}, {1, 2}, b"bytes"):
            with pytest.raises(RecordError, match="facts"):
                facts = {"deep": [value]}
                begun.append("c1", replace(sample_run(), facts=facts))
        assert list(begun.query(RunQuery(campaign="c1"))) == []

    def test_one_may_append_while_reading(self, reopen: Reopen) -> None:
        with closing(reopen()) as store, closing(reopen()) as other:
            store.open_campaign(sample_campaign())
            for i in range(3):
                store.append("c1", sample_run(block=i))
            seen = 0
            for run in store.query(RunQuery(campaign="c1")):
                seen += 1
                if run.block < 3:
                    store.append("c1", sample_run(block=run.block + 10))
                    other.append("c1", sample_run(block=run.block + 20))
            assert seen >= 3
            assert len(list(other.query(RunQuery(campaign="c1")))) == 9

    def test_a_closed_store_says_so(self, reopen: Reopen) -> None:
        store = reopen()
        store.open_campaign(sample_campaign())
        store.close()
        store.close()
        with pytest.raises(RecordError):
            store.append("c1", sample_run())

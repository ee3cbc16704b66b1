"""Whose fault a failure is: what is tried again, when, how often, and what is never taken back."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.measure.test_campaign import EFFORT, StandIn, candidates, noisy, runner, steady

from gnomon.core.sample import Failure, Run
from gnomon.errors import DeviceError, MeasurementError
from gnomon.measure.campaign import CampaignRunner, Measured, RecordedRunner
from gnomon.measure.effort import Effort
from gnomon.session.contender import not_compared
from gnomon.session.request import device_met
from gnomon.store.sqlite import SqliteStore

SEGV = {"kind": "crash", "transient": False, "message": "ended by SIGSEGV", "signal": "SIGSEGV"}
TERM = {"kind": "crash", "transient": False, "message": "ended by SIGTERM", "signal": "SIGTERM"}
REFUSED = {"kind": "refused", "transient": False, "message": "ValueError: no such kernel"}
WRONG = {"kind": "wrong-output", "transient": False, "message": "outputs differ from the reference"}
HANG = {"kind": "hang", "transient": False, "message": "no answer to 'block' within 6 s"}
ONCE = Effort(processes_least=1, processes_most=1, rounds=2)


class Failing(StandIn):
    """Fails at its `at`-th visit of "slow" of all, and at those behind it, as long as there are failures left."""

    def __init__(self, *events: dict[str, object], at: int = 0) -> None:
        super().__init__(steady)
        self.events, self.left = list(events), at

    def _failure(self, key: str, stage: str) -> dict[str, object] | None:
        if key != "slow" or stage != "run":
            return None
        self.left -= 1
        if self.left >= 0 or not self.events:
            return None
        return {"event": "failure", "candidate": key, "stage": stage, "log_tail": "", **self.events.pop(0)}


def both(link: StandIn, store: SqliteStore, effort: Effort = EFFORT) -> tuple[CampaignRunner, Measured]:
    made = runner(link, store)
    return made, made.measure("x", candidates("fast", "slow"), effort)["slow"]


@pytest.mark.parametrize("event", [TERM, SEGV, REFUSED, HANG])
def test_what_hits_one_that_has_worked_is_tried_again_at_the_end_of_the_stage(
    store: SqliteStore, event: dict[str, object]
) -> None:
    link = Failing(event, at=6)
    _, slow = both(link, store)
    assert slow.ok and len(slow.runs) == 13
    # The stage was done for the others first.
    opened = [[c["key"] for c in request["candidates"] if c["visits"]] for request in link.requests]
    assert opened == [["fast", "slow"], ["fast", "slow"], ["fast"], ["slow"], ["slow"]]


def test_what_comes_again_is_left_out_and_each_later_call_tries_it_once_more(store: SqliteStore) -> None:
    link = Failing(TERM, TERM, TERM, at=6)
    first, slow = both(link, store)
    assert slow.failure is not None and slow.may_work and not slow.own
    assert len(link.events) == 1  # two fresh processes in a call, and no more
    doubt = not_compared("slow", slow)
    assert doubt is not None
    assert (doubt.kind, doubt.message) == (
        "not-compared",
        "slow was measured (1.30 us) and then ended by SIGTERM: not compared",
    )
    assert not_compared("slow", RecordedRunner(store, first.campaign).known("slow")) == doubt
    again, slow = both(Failing(), store)
    assert again.campaign == first.campaign
    assert slow.ok


def test_who_never_works_is_to_blame_where_it_comes_again_beside_one_that_works(store: SqliteStore) -> None:
    link = Failing(*[REFUSED] * 9)
    _, slow = both(link, store)
    assert slow.own and not_compared("slow", slow) is None
    assert (len(slow.runs), [c["key"] for c in link.requests[-1]["candidates"]]) == (2, ["slow", "fast"])
    link = Failing(*[REFUSED] * 9)
    _, slow = both(link, store)
    assert len(slow.runs) == 3  # once more, and as that is the same again, no more
    both(Failing(), store)
    assert both(Failing(), store)[1].ok


def test_nobody_is_to_blame_where_nobody_works_beside_it(store: SqliteStore) -> None:
    link = StandIn(steady)
    link.failures = [("slow", "load", REFUSED)] * 2
    made = runner(link, store)
    slow = made.measure("x", candidates("slow"), ONCE)["slow"]
    assert slow.failure is not None and not slow.own
    assert made.nobody_works


def test_a_device_that_is_lost_is_to_blame_itself(store: SqliteStore) -> None:
    link = StandIn(steady)
    link.failures, link.events_left = [("slow", "load", REFUSED)], 3
    with pytest.raises(DeviceError):
        both(link, store)
    slow = runner(StandIn(steady), store).known("slow")
    assert [run.facts["beside"] for run in slow.runs] == [False]


def test_who_dies_in_several_processes_is_unstable_though_it_works_in_others(store: SqliteStore) -> None:
    link = Failing(SEGV, SEGV, at=6)
    _, slow = both(link, store)
    assert slow.failure is not None and slow.own and not slow.ok
    assert (slow.failure.kind, slow.failure.message) == ("unstable", "2 of 3 processes ended with SIGSEGV")
    doubt = not_compared("slow", slow)
    assert doubt is not None and doubt.kind == "unstable"
    assert doubt.message.endswith("2 of 3 processes ended with SIGSEGV; in the others it took 1.30 us")
    assert not both(Failing(), store)[1].ok  # what it did is not averaged away


def test_what_it_did_while_profiled_counts_in_the_proof(store: SqliteStore) -> None:
    def measured(prefix: str) -> Measured:
        link = StandIn(steady)
        link.failures = [(f"{prefix}slow", "run", SEGV)]
        keys = (f"{prefix}fast", f"{prefix}slow")
        return runner(link, store).measure("x", candidates(*keys), ONCE)[keys[1]]

    assert measured("").ok
    proved = measured("proof/")
    assert proved.failure is not None and proved.failure.kind == "unstable"


def test_wrong_outputs_of_any_process_stand(store: SqliteStore) -> None:
    link = Failing(WRONG, at=6)
    _, slow = both(link, store)
    assert slow.failure is not None and slow.own
    assert len(link.requests) == 3  # nobody asks it again
    assert both(Failing(), store)[1].failure == slow.failure


def test_who_never_answers_is_not_waited_for_twice_in_a_call(store: SqliteStore) -> None:
    link = Failing(*[HANG] * 9)
    _, slow = both(link, store)
    assert (slow.own, len(slow.runs)) == (True, 1)
    assert both(Failing(), store)[1].ok


def test_what_failed_late_is_tried_again_before_a_resumed_stage_is_over(store: SqliteStore) -> None:
    link = StandIn(noisy)
    made = runner(link, store)
    made.measure("x", candidates("fast", "slow"), Effort(processes_least=5, processes_most=5, rounds=2))
    ended = Failure(stage="run", kind="crash", transient=True, message="ended by SIGTERM")
    made._append(Run(candidate="slow", process=4, block=2, started_at_s=1.0, failure=ended))
    _, slow = both(StandIn(steady), store, Effort(processes_least=2, processes_most=6, rounds=3, half_width=9.0))
    assert slow.ok


def test_a_campaign_with_nobody_left_is_closed(store: SqliteStore) -> None:
    link = StandIn(steady)
    link.failures = [(key, "load", TERM) for key in ("fast", "slow") for _ in range(2)]
    first = runner(link, store)
    with pytest.raises(MeasurementError), device_met(first):
        if not any(m.ok for m in first.measure("x", candidates("fast", "slow"), ONCE).values()):
            raise MeasurementError("nobody is left", hint="again")
    after = runner(StandIn(steady), store)
    assert after.campaign.id != first.campaign.id
    with pytest.raises(MeasurementError), device_met(after):
        after.measure("x", candidates("fast"), ONCE)
        raise MeasurementError("the others are left", hint="again")
    assert runner(StandIn(steady), store).campaign.id == after.campaign.id  # what was measured there is used


def test_a_reference_that_something_ends_is_computed_again(store: SqliteStore) -> None:
    link = StandIn(steady)
    link.failures = [("reference", "load", TERM)]
    found, failure = runner(link, store).reference(cast(Any, {"name": "r"}), timeout_s=5.0)
    assert found is not None and failure is None


def test_where_there_is_no_room_for_a_reference_the_device_is_to_blame(store: SqliteStore) -> None:
    link = StandIn(steady)
    full = {"kind": "refused", "transient": True, "message": "OSError: [Errno 28] No space left on device (in /tmp/x)"}
    link.failures = [("reference", "load", full)] * 2
    with pytest.raises(DeviceError, match=r"No space left on device \(in /tmp/x\)") as told:
        runner(link, store).reference(cast(Any, {"name": "r"}), timeout_s=5.0)
    assert told.value.hint

"""Record sets of several devices joined: medians over all samples, hosts, failures, gaps, and contradictions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.choice import choose
from gnomon.core.overlay.pool import Pooled, side_by_side, without_times
from gnomon.core.overlay.pool import pool as joined
from gnomon.core.overlay.records import UNTUNED, TunedDevice, TunedModel, TuningLayer, TuningRecords, TuningTrial
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError

CRASH = Failure(stage="run", kind="crash", transient=False, message="ended by a signal")
WRONG = Failure(stage="check", kind="wrong-output", transient=False, message="off by 3")
LAYERS = (TuningLayer(layer="1", name="conv", weight=2), TuningLayer(layer="2", name="dense"))
clock = itertools.count(1)


def trial(
    configuration: str, *times_s: float, cpu_s: float = 0.0, layer: str = "1", failure: Failure | None = None
) -> TuningTrial:
    return TuningTrial(
        layer=layer,
        configuration=configuration,
        times_s=times_s,
        cpu_s=(cpu_s,) if cpu_s else (),
        failure=failure,
        at_s=float(next(clock)),
    )


def records(key: str, *trials: TuningTrial, found_on: str = "") -> TuningRecords:
    return TuningRecords(
        device=TunedDevice(key=key, target={"kind": "llvm", "mcpu": key}),
        model=TunedModel(name="mobile"),
        layers=LAYERS,
        trials=trials,
        found_on=found_on,
    )


def pool(sets: list[TuningRecords]) -> Pooled:
    return joined(sets, [f"{number}.json" for number in range(len(sets))])


def times_of(pooled: Pooled, layer: int = 0) -> dict[tuple[str, str], float]:
    made = pooled.layers[layer]
    places = itertools.product(enumerate(made.configurations), enumerate(made.devices))
    return {(c, d): float(made.times_s[i, j]) for (i, c), (j, d) in places if not math.isnan(made.times_s[i, j])}


def test_joins_by_layer_and_configuration() -> None:
    pooled = pool(
        [
            records("x86", trial("a", 1.0, 3.0, 2.0), trial("b", 4.0), trial(UNTUNED, 20.0)),
            records("arm", trial("c", 5.0), trial("b", 6.0)),
            records("arm", trial("a", 7.0), found_on="x86"),
            records("x86", trial("c", 8.0), found_on="arm"),
        ]
    )
    assert pooled.devices == ("x86", "arm")
    first = pooled.layers[0]
    assert (first.name, first.layer, first.weight) == ("conv", "1", 2)
    assert first.configurations == ("a", "b", "c", UNTUNED)
    assert first.hosts == (("x86",), ("x86", "arm"), ("arm",), ())
    assert np.array_equal(first.times_s, [[2.0, 7.0], [4.0, 6.0], [8.0, 5.0], [20.0, np.nan]], equal_nan=True)
    assert without_times(first) == () and without_times(pooled.layers[1]) == ("x86", "arm")
    assert pooled.layers[1].configurations == ()
    assert pooled.failures == ()
    assert choose(first).configuration == "a"


def test_samples_of_all_trials_are_pooled_in_blocks() -> None:
    pooled = pool([records("x86", trial("a", 1.0, 1.0), trial("a", 9.0)), records("x86", trial("a", 2.0, 2.0))])
    assert times_of(pooled) == {("a", "x86"): 2.0}
    assert pooled.samples[0] == {(0, 0): ((1.0, 1.0), (9.0,), (2.0, 2.0))}


def test_what_is_compared_is_of_one_clock() -> None:
    """Where a file has wall times alone: CPU time would make the others of the layer seem faster than they are."""
    old, failed = records("x86", trial("a", 2.0)), trial("a", failure=CRASH, layer="2")
    new = records("x86", trial("b", 3.0, cpu_s=1.0), trial("a", 4.0, cpu_s=1.5), trial("b", 5.0, cpu_s=2.0, layer="2"))
    arm = records("arm", trial("a", 8.0, cpu_s=6.0), failed, trial("b", 8.0, cpu_s=7.0, layer="2"))
    pooled = pool([old, new, arm])
    assert times_of(pooled) == {("a", "x86"): 3.0, ("b", "x86"): 3.0, ("a", "arm"): 6.0}
    assert times_of(pooled, 1) == {("b", "x86"): 2.0, ("b", "arm"): 7.0}


def test_the_same_trial_in_two_sets_counts_once() -> None:
    again = trial("a", 1.0)
    log = records("x86", again, again, trial("a", 5.0))
    assert pool([log, log]).samples[0] == {(0, 0): ((1.0,), (1.0,), (5.0,))}
    # The same on another device is another trial.
    assert len(pool([log, records("arm", again)]).samples[0]) == 2


@pytest.mark.parametrize("times_s", [(), (1.0, math.nan), (math.inf,), (0.0,), (1.0, -1e-9)])
def test_times_that_cannot_be_are_failures(times_s: tuple[float, ...]) -> None:
    pooled = pool([records("x86", trial("a", *times_s), trial("b", 1.0)), records("arm", trial("b", 1.0))])
    (failed,) = pooled.failures
    assert (failed.layer, failed.configuration, failed.device) == ("1", "a", "x86")
    assert failed.failure.kind == "lie"
    assert times_of(pooled) == {("b", "x86"): 1.0, ("b", "arm"): 1.0}
    assert pooled.layers[0].configurations == ("a", "b")
    assert choose(pooled.layers[0]).complete == 1


def test_failures_are_listed_and_other_trials_count_where_they_may_pass() -> None:
    lost = replace(CRASH, kind="vanished", transient=True)
    pooled = pool([records("x86", trial("a", failure=lost), trial("a", 2.0), trial("b", 3.0, failure=CRASH))])
    assert [(f.configuration, f.failure) for f in pooled.failures] == [("a", lost), ("b", CRASH)]
    assert times_of(pooled) == {("a", "x86"): 2.0}


def test_a_configuration_that_ended_its_process_for_good_has_no_time() -> None:
    pooled = pool([records("x86", trial("a", 2.0), trial("a", failure=CRASH)), records("arm", trial("a", 1.0))])
    assert times_of(pooled) == {("a", "arm"): 1.0}


def test_a_configuration_that_was_once_wrong_has_no_time() -> None:
    pooled = pool([records("x86", trial("a", 1.0), trial("a", failure=WRONG)), records("arm", trial("a", 1.0))])
    assert times_of(pooled) == {("a", "arm"): 1.0} and (0, 0) not in pooled.samples[0]
    assert without_times(pooled.layers[0]) == ("x86",)


def test_a_layer_missing_on_a_device_is_named_and_kept() -> None:
    few = replace(records("arm", trial("a", 1.0)), layers=LAYERS[:1])
    pooled = pool([records("x86", trial("a", 1.0), trial("d", 1.0, layer="2")), few])
    assert [layer.name for layer in pooled.layers] == ["conv", "dense"]
    assert [without_times(layer) for layer in pooled.layers] == [(), ("arm",)]
    assert choose(pooled.layers[1]).chosen is None


CONTRADICTIONS = [
    (replace(records("arm"), model=TunedModel(name="mobile", dtype="float16")), "data type"),
    (replace(records("arm"), tuner="ansor"), "tuner"),
    (replace(records("arm"), model=TunedModel(name="other")), "another model"),
    (replace(records("x86"), device=TunedDevice(key="x86", target={"kind": "cuda"})), "has the target"),
    (replace(records("x86"), device=replace(records("x86").device, threads=2)), "has the threads"),
    (replace(records("arm"), layers=(replace(LAYERS[0], weight=3),)), r"weight 3\) than in .* \(weight 2"),
    (replace(records("arm"), layers=(replace(LAYERS[0], arguments=(("int8", (1,)),)),)), "arguments of other types"),
    (records("arm", trial("a", 1.0, layer="77")), "not described: 77"),
]


@pytest.mark.parametrize(("other", "says"), CONTRADICTIONS, ids=[says for _, says in CONTRADICTIONS])
def test_contradictions_name_the_records(other: TuningRecords, says: str) -> None:
    with pytest.raises(ProblemError, match=says) as caught:
        pool([records("x86", trial("a", 1.0)), other])
    assert "1.json" in caught.value.message and caught.value.hint


def test_all_contradictions_at_once_up_to_a_limit() -> None:
    others = [replace(records(f"d{k}"), tuner="ansor") for k in range(30)]
    with pytest.raises(ProblemError, match="and 10 more"):
        pool([records("x86"), *others])


def test_models_by_file_and_name() -> None:
    def of(key: str, name: str, sha256: str) -> TuningRecords:
        return replace(records(key), model=TunedModel(name=name, sha256=sha256))

    pool([of("x86", "a", "11"), of("arm", "b", "11")])  # one file by two names
    pool([of("x86", "a", "11"), of("arm", "a", "")])
    pool([of("x86", "a", "11"), of("arm", "a", "22")])  # another file of the same layers
    with pytest.raises(ProblemError, match="another model"):
        pool([of("x86", "a", "11"), replace(of("arm", "a", "22"), layers=LAYERS[:1])])


CELLS = st.tuples(st.sampled_from("abc"), st.sampled_from(["x86", "arm"]), st.sampled_from([1.0, 2.0, 3.5, math.nan]))


@given(st.lists(CELLS, max_size=20))
def test_the_order_of_record_sets_changes_no_time(cells: list[tuple[str, str, float]]) -> None:
    sets = [records(device, trial(configuration, time)) for configuration, device, time in cells]
    if not sets:
        return
    pooled = pool(sets)
    shuffled = [sets[i] for i in np.random.default_rng(len(cells)).permutation(len(sets))]
    assert times_of(pool(shuffled)) == times_of(pooled)
    assert len(pooled.failures) == sum(math.isnan(time) for _, _, time in cells)
    expected: dict[tuple[str, str], list[float]] = {}
    for configuration, device, time in cells:
        if not math.isnan(time):
            expected.setdefault((configuration, device), []).append(time)
    assert times_of(pooled) == {place: float(np.median(times)) for place, times in expected.items()}


def test_times_of_the_search_go_where_a_device_was_collected() -> None:
    def trial(name: str, *times_s: float, at_s: float) -> TuningTrial:
        trace = None if name == UNTUNED else [name]
        return TuningTrial(layer="l", configuration=name, trace=trace, times_s=times_s, at_s=at_s)

    own = TuningRecords(
        device=TunedDevice(key="a", target={}),
        model=TunedModel(name="net"),
        layers=(TuningLayer(layer="l", name="conv"),),
        trials=(trial("x", 1.0, at_s=1.0), trial("y", 2.0, at_s=2.0), trial(UNTUNED, 9.0, at_s=3.0)),
    )
    again = (trial("x", 1.5, at_s=4.0), trial(UNTUNED, 8.0, at_s=5.0))
    collected = replace(own, found_on="a", trials=again)
    elsewhere = replace(own, found_on="b", trials=(trial(UNTUNED, 8.0, at_s=5.0),))
    kept = side_by_side((own, collected, elsewhere))
    # What was collected again is taken in the place of the search's times.
    assert [[(t.configuration, t.times_s) for t in one.trials] for one in kept] == [
        [("y", (2.0,))],
        [("x", (1.5,)), (UNTUNED, (8.0,))],
        [(UNTUNED, (8.0,))],
    ]
    # The untuned trial that stands in both files is one.
    assert pool(list(kept)).samples[0][2, 0] == ((8.0,),)

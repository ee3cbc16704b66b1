"""The spaces of `pareto`: slots, codes and options; and prices that add up over them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.placement_kit import MODEL, TARGET

from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.front.dominance import dominates
from gnomon.core.front.front import exact_front
from gnomon.core.graph import By, grouped
from gnomon.core.sample import Failure, Run, Samples
from gnomon.core.space import Slot, Space
from gnomon.errors import MeasurementError
from gnomon.jobs.pareto.job import memory_charges, priced_model
from gnomon.jobs.pareto.search import Plan, search
from gnomon.jobs.pareto.space import DecisionSpace, Evaluator, decision_space, wished_precisions
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session.objectives import goals_of

# Spaces


def hand_space(by: By, options: dict[str, tuple[str, ...]] | None = None) -> DecisionSpace:
    kinds = tuple(op.type for op in MODEL.operators)
    grouping = grouped(MODEL, by, kinds)
    taken = TARGET.support.operators
    slots = [
        Slot(g.name, tuple(b for b in ("cpu", "ruy") if taken[b].issuperset(g.operators))) for g in grouping.groups
    ]
    options = options or {}
    slots += [Slot(name, values) for name, values in options.items() if len(values) > 1]
    return DecisionSpace(
        space=Space(tuple(slots)),
        grouping=grouping,
        by=by,
        backends=("cpu", "ruy"),
        kinds=kinds,
        targets=(TARGET,),
        options=options,
    )


def test_codes_are_published_ones_backends_first() -> None:
    space = hand_space("type", {"planner": ("WIC", "Bump")})
    # CONV_2D, MAX_POOL_2D (cpu alone), FULLY_CONNECTED, planner
    assert space.space.size == 2 * 1 * 2 * 2
    assert space.published.size == 2**3 * 2
    assert space.code((1, 0, 0, 0)) == 1
    assert space.code((0, 0, 1, 0)) == 4
    assert space.code((0, 0, 1, 1)) == 4 + 8
    assert space.label((1, 0, 0, 1)) == "ruy; cpu: MAX_POOL_2D, FULLY_CONNECTED; planner Bump"


def test_options_change_the_configuration_and_its_name() -> None:
    space = hand_space("type", {"planner": ("WIC", "Bump"), "threads": ("2",)})
    target = space.chosen_target((0, 0, 0, 1))
    assert target.configuration.name == "onert[planner=Bump,threads=2]"
    assert target.configuration.options == {"settings": {"CPU_MEMORY_PLANNER": "Bump"}, "threads": 2}
    assignment = {0: "cpu", 1: "cpu", 2: "ruy", 3: "cpu"}
    segment = target.runtime.segment(target.placed, target.configuration, assignment)
    assert segment["options"]["settings"] == {
        "CPU_MEMORY_PLANNER": "Bump",
        "BACKENDS": "cpu;ruy",
        "OP_BACKEND_MAP": "0=cpu;1=cpu;2=ruy;3=cpu;",
    }
    assert space.parallel  # two threads: CPU time is not the time of a call
    assert not hand_space("type", {"threads": ("1",), "executor": ("Linear",)}).parallel


@pytest.mark.parametrize(
    ("cores", "all_cores", "options", "slots"),
    [
        (4, True, {}, {"threads": ("1", "4")}),
        (4, False, {}, {}),
        (1, True, {}, {}),
        (None, True, {}, {}),
        (4, True, {"planner": ("WIC", "Bump")}, {"planner": ("WIC", "Bump"), "threads": ("1", "4")}),
    ],
)
def test_all_cores_are_a_value_of_the_option_threads_where_there_are_several(
    cores: int | None, all_cores: bool, options: dict[str, tuple[str, ...]], slots: dict[str, tuple[str, ...]]
) -> None:
    session: Any = SimpleNamespace(targets=(TARGET,), missing=[], cores=cores)
    space = decision_space(session, "type", options, all_cores=all_cores)
    assert {s.name: s.choices for s in space.space.slots[space.operator_slots :]} == slots
    assert "threads" not in space.options or space.parallel


def test_the_threads_of_one_assignment_are_its_own() -> None:
    space = hand_space("type", {"threads": ("1", "2"), "planner": ("WIC", "Bump")})
    assert space.parallel
    assert not space.threaded((0, 0, 0, 0, 1), 2)  # the option counts, not the wish
    assert space.threaded((0, 0, 0, 1, 0), 1)
    plain = hand_space("type", {"planner": ("WIC", "Bump")})
    assert plain.threaded((0, 0, 0, 1), 2)
    assert not plain.threaded((0, 0, 0, 1), 1)
    assert hand_space("type", {"executor": ("Linear", "Parallel")}).threaded((0, 0, 0, 1), 1)


def test_single_backends_are_named_whatever_the_options() -> None:
    space = hand_space("type", {"planner": ("WIC", "Bump")})
    assert space.single((1, 0, 1, 0)) == space.single((1, 0, 1, 1)) is not None
    assert space.single((0, 0, 0, 1)) not in (None, space.single((1, 0, 1, 0)))
    assert space.single((1, 0, 0, 0)) is None
    whole = replace(space, grouping=None, space=Space((Slot("planner", ("WIC", "Bump")),)))
    assert whole.single((0,)) == whole.single((1,)) is not None  # a runtime that takes a model whole


def test_precision_is_wished_for_before() -> None:
    assert wished_precisions({}) == ()
    assert wished_precisions({"precision": ("float32", "bfloat16")}) == ("bfloat16",)
    assert wished_precisions({"precision": ()}) == ("bfloat16", "float16")


def test_hlps_begins_with_the_types() -> None:
    space = hand_space("operator")
    coarse = space.coarse()
    assert coarse is not None
    assert [slot.name for slot in coarse.space.slots] == ["type CONV_2D", "type MAX_POOL_2D", "type FULLY_CONNECTED"]
    assert hand_space("type").coarse() is None


# Prices that add up


@given(st.integers(0, 2**31))
@settings(max_examples=40)
def test_the_exact_front_of_grouped_prices_is_that_of_all_assignments(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = hand_space("type")
    assert space.grouping is not None
    count = len(MODEL.operators)
    latency = CostModel(
        space=Space(tuple(Slot(f"{k}", ("cpu", "ruy")) for k in range(count))),
        objectives=(Objective("latency", "s"),),
        slot_costs=tuple(rng.uniform(1, 9, (2, 1)) for _ in range(count)),
        pairs=tuple(PairCost(k, k + 1, rng.uniform(0, 3, (2, 2, 1))) for k in range(count - 1)),
    )
    model = priced_model(space, latency, 40.0, {"ruy": 7.0}, ("latency", "peak-memory"))
    front = exact_front(model)
    everything = []
    for assignment in itertools.product(*(range(len(s.choices)) for s in space.space.slots)):
        names = space.space.names(assignment)
        row = [("cpu", "ruy").index(names[slot]) for slot in space.grouping.slot_of]
        memory = 40.0 + 7.0 * ("ruy" in names)
        everything.append((float(latency.evaluate([row])[0, 0]), memory))
    truth = {c for c in everything if not any(dominates(o, c) for o in everything)}
    np.testing.assert_allclose(sorted(p.cost for p in front.points), sorted(truth))


def single(size: float, *backends: str) -> tuple[Any, float]:
    return SimpleNamespace(backends=dict(enumerate(backends))), size


def test_memory_is_a_base_and_charges() -> None:
    assert memory_charges([single(40.0, "cpu", "cpu"), single(47.0, "cpu", "ruy")], "cpu") == (40.0, {"ruy": 7.0})
    # Where a backend stands alone, and where it costs less than the default.
    assert memory_charges([single(40.0, "cpu"), single(30.0, "gpu")], "cpu") == (40.0, {"gpu": 0.0})
    both = [single(40.0, "cpu"), single(45.0, "cpu", "ruy"), single(52.0, "cpu", "ruy", "gpu")]
    assert memory_charges(both, "cpu") == (40.0, {"ruy": 5.0, "gpu": 7.0})
    with pytest.raises(MeasurementError, match="peak memory"):
        memory_charges([(single(0.0, "cpu")[0], None)], "cpu")


# Prices by whole runs


class Runner:
    """Answers as a campaign does: what was measured is known."""

    def __init__(self, answers: dict[str, Measured]) -> None:
        self.answers, self.found = answers, dict[str, Measured]()
        self.efforts: list[Effort] = []

    def known(self, key: str) -> Measured:
        return self.found.get(key, Measured(key=key, runs=(), failure=None))

    def measure(self, stage: str, candidates: Sequence[Candidate], effort: Effort) -> dict[str, Measured]:
        for candidate in candidates:
            chosen = candidate.job["segments"][0]["options"]["settings"]["OP_BACKEND_MAP"]
            self.found.setdefault(candidate.key, self.answers[chosen])
        self.efforts.append(effort)
        return {c.key: self.found[c.key] for c in candidates}


def ran(facts: dict[str, Any]) -> Measured:
    samples = Samples(wall_ns=(2000, 2000), cpu_ns=(1000, 1000))
    run = Run(candidate="k", process=0, block=0, started_at_s=0.0, samples=samples, facts={"waits": 0, **facts})
    return Measured(key="k", runs=(run,), failure=None)


def test_each_assignment_is_one_fresh_process_and_failures_are_none() -> None:
    failure = Failure(stage="load", kind="refused", transient=False, message="too large")
    runner = Runner(
        {
            "0=cpu;1=cpu;2=cpu;3=cpu;": ran({"peak_rss_bytes": 77}),
            "0=ruy;1=cpu;2=ruy;3=cpu;": Measured(key="k", runs=(), failure=failure),
            "0=cpu;1=cpu;2=cpu;3=ruy;": ran({}),
        }
    )
    session: Any = SimpleNamespace(
        runner=runner,
        request=SimpleNamespace(effort=Effort(), settings=RunSettings()),
        targets=(),
        job=lambda segments: {"segments": segments},
        tolerance=lambda configuration: configuration.tolerance,
    )
    evaluate = Evaluator(session=session, space=hand_space("type"), goals=goals_of(("latency", "peak-memory")))
    assert evaluate.clock is None
    assert evaluate((0, 0, 0)) == pytest.approx((1e-6, 77.0))
    assert evaluate.clock == "cpu"
    assert evaluate((1, 0, 0)) is None
    assert "too large" in evaluate.failures[1, 0, 0]
    assert evaluate((0, 0, 1)) is None
    assert "does not report peak-memory" in evaluate.failures[0, 0, 1]
    assert evaluate.replayed == 0
    assert evaluate((0, 0, 0)) == pytest.approx((1e-6, 77.0))
    assert evaluate.replayed == 1
    ((assignment, latency_s, memory_bytes),) = evaluate.dump_rows()
    assert (assignment, memory_bytes) == ((0, 0, 0), 77)
    assert latency_s == pytest.approx(1e-6)
    assert {(e.processes_least, e.processes_most) for e in runner.efforts} == {(1, 1)}


@pytest.mark.parametrize("iterations", [2, 3, 5, 8])
def test_two_phases_spend_what_was_given(iterations: int) -> None:
    space = hand_space("operator", {"planner": ("WIC", "FirstFit", "Bump")})
    coarse = space.coarse()
    assert coarse is not None
    found = search(
        space.space,
        Plan(name="hlps", iterations=iterations),
        lambda a: (float(sum(a)), float(-a[0])),
        coarse=coarse,
    )
    assert len(found.trials) == min(iterations, space.space.size)
    assert len({t.assignment for t in found.trials}) == len(found.trials)

"""The published decision against a restatement of its rule; the exact one against enumeration and the published one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.pricing.stab import (
    OP_LIST,
    exact_decision,
    published_decision,
    published_index,
    published_type,
)
from gnomon.core.sample import Spread, Trace, TraceOperator
from gnomon.errors import ProblemError

TYPES = ["Conv2D", "DepthwiseConv2D", "FullyConnected", "Add", "Reshape"]


def us(avg: int) -> Spread:
    return Spread(avg_us=avg, min_us=avg, max_us=avg)


def trace(whole: int | None, *times: tuple[int, str, str, int]) -> Trace:
    """A trace of (index, type, backend, microseconds)."""
    operators = [TraceOperator(index=i, type=t, backend=b, time=us(avg), subgraph=0) for i, t, b, avg in times]
    return Trace(operators=tuple(operators), graph=None if whole is None else us(whole))


def restated(traces: dict[str, Trace]) -> tuple[str, dict[int, str]]:
    """The rule in few lines: default, map."""
    seen: dict[int, tuple[str, dict[str, int]]] = {}
    for backend in ["cpu", "ruy", "xnnpack"]:
        for op in traces[backend].operators if backend in traces else ():
            seen.setdefault(op.index, (op.type, {}))[1][op.backend] = op.time.avg_us
    best = {}
    for index, (type_, times) in seen.items():
        row = [(times[b], b) for b in ["cpu", "ruy", "xnnpack"] if b in times]
        if type_ in {"Conv2D", "DepthwiseConv2D", "FullyConnected"} and row:
            # A time of 0 is forgotten as soon as another comes: only what follows the last 0 counts, if anything does.
            last_zero = max((k for k, (time, _) in enumerate(row) if time == 0), default=0)
            first_zero = row[last_zero][0] == 0
            rest = row[last_zero + 1 :] if first_zero and last_zero + 1 < len(row) else row[last_zero:]
            best[index] = min(rest, key=lambda item: item[0])[1]
    wholes = [(t.graph.avg_us, k) for k, b in enumerate(OLD) if (t := traces.get(b)) and t.graph]
    default = OLD[min(wholes)[1]]
    return default, {i: b for i, b in best.items() if b != default}


OLD = ["cpu", "ruy", "xnnpack"]


@st.composite
def trace_sets(draw: st.DrawFn, most: int = 8) -> dict[str, Trace]:
    """Traces as the tool takes them: all on cpu, then for each backend the types that it is tried for on it."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=most))
    backends = ["cpu", *draw(st.lists(st.sampled_from(["ruy", "xnnpack"]), unique=True))]
    micros = st.integers(0, 6) | st.integers(0, 5000)
    made = {}
    for backend in backends:
        rows = []
        for index, type_ in enumerate(types):
            taken = type_ in OP_LIST.get(backend, ()) and draw(st.integers(0, 9)) > 0
            rows.append((index, type_, backend if taken else "cpu", draw(micros)))
        made[backend] = trace(draw(micros), *rows)
    return made


@given(trace_sets())
def test_the_published_decision_is_that_of_its_rule(traces: dict[str, Trace]) -> None:
    decision = published_decision(traces)
    assert (decision.default, decision.mapped) == restated(traces)
    assert decision.typed == dict.fromkeys(OP_LIST.get(decision.default, ()), decision.default)


@given(trace_sets())
def test_the_exact_decision_is_never_slower_than_the_published_one_or_any_single_backend(
    traces: dict[str, Trace],
) -> None:
    exact, published = exact_decision(traces), published_decision(traces)
    assert exact.chosen.predicted_us is not None
    limit = exact.chosen.predicted_us - 1e-6
    for single in exact.singles.values():
        assert single.predicted_us is not None
        assert single.predicted_us >= limit
    other = exact.price(published.placed(exact.types)).predicted_us
    assert other is None or other >= limit
    best = exact.singles[exact.best_single].predicted_us
    assert best is not None
    assert exact.mixes == (exact.chosen.predicted_us < best)


@given(trace_sets(most=5))
def test_it_is_the_least_of_all_placements(traces: dict[str, Trace]) -> None:
    exact = exact_decision(traces)
    least = min(sum(times) for times in itertools.product(*(row.values() for row in exact.prices_us.values())))
    assert exact.chosen.predicted_us == pytest.approx(least)


MIXED = {
    "cpu": trace(900, (0, "Conv2D", "cpu", 800), (1, "Conv2D", "cpu", 60), (2, "Add", "cpu", 9)),
    "ruy": trace(2000, (0, "Conv2D", "ruy", 1900), (1, "Conv2D", "ruy", 20), (2, "Add", "cpu", 7)),
}


def test_a_plain_case_is_decided_alike_by_both() -> None:
    published, exact = published_decision(MIXED), exact_decision(MIXED)
    assert published.mapped == {1: "ruy"}
    assert published.backends == ("cpu", "ruy", "xnnpack")
    assert published.ended_by == ""
    assert published.placed(exact.types) == exact.chosen.placement == {0: "cpu", 1: "ruy", 2: "cpu"}
    assert exact.chosen.predicted_us == 829  # an operator's time is that of its backend's own trace
    assert published.scheduled_us == 827  # the published tool takes the Add from the last trace
    assert published.told_us == {"cpu": 867, "ruy": 1927, "xnnpack": 867}
    assert exact.best_single == "cpu"
    assert any("no interval" in lack for lack in exact.lacks)


def test_a_measured_zero_is_unset_for_the_published_tool_and_a_value_for_the_exact_one() -> None:
    traces = {
        "cpu": trace(50, (0, "Conv2D", "cpu", 0)),
        "ruy": trace(60, (0, "Conv2D", "ruy", 40)),
    }
    assert published_decision(traces).mapped == {0: "ruy"}
    exact = exact_decision(traces)
    assert exact.chosen.placement == {0: "cpu"}
    assert exact.chosen.predicted_us == 0
    assert not exact.mixes


def test_a_fastest_backend_that_is_the_default_but_not_by_type_stays_on_cpu() -> None:
    """Nothing is written for it: not in the map, as it is the default's, and not by type, as ruy's list lacks it."""
    traces = {
        "cpu": trace(90, (0, "DepthwiseConv2D", "cpu", 80)),
        "ruy": trace(30, (0, "DepthwiseConv2D", "ruy", 20)),
    }
    decision = published_decision(traces)
    assert (decision.default, decision.mapped) == ("ruy", {})
    assert decision.placed({0: "DepthwiseConv2D"}) == {0: "cpu"}
    assert exact_decision(traces).chosen.placement == {0: "ruy"}


def test_where_the_published_tool_ends_with_an_error_that_is_told() -> None:
    traces = {
        "cpu": trace(90, (0, "Conv2D", "cpu", 80), (1, "DepthwiseConv2D", "cpu", 8)),
        "ruy": trace(30, (0, "Conv2D", "ruy", 20), (1, "DepthwiseConv2D", "cpu", 9)),
    }
    decision = published_decision(traces)
    assert decision.mapped == {1: "cpu"}
    assert decision.ended_by == "KeyError: operator 1 has no time on the default backend ruy"
    alone = {"ruy": trace(30, (0, "Conv2D", "ruy", 20))}
    assert published_decision(alone).ended_by == "KeyError: operator 0 has no time on cpu"
    assert published_decision(alone).scheduled_us == 20


def test_traces_without_whole_runs_are_refused_as_the_tool_would_end() -> None:
    with pytest.raises(ProblemError, match="time of a whole run"):
        published_decision({"cpu": trace(None, (0, "Conv2D", "cpu", 1))})
    exact = exact_decision({"cpu": trace(None, (0, "Conv2D", "cpu", 1))})
    assert any("Traces without the time of a whole run: cpu." in lack for lack in exact.lacks)


def test_names_are_read_as_the_published_tool_reads_them() -> None:
    named = TraceOperator(index=3, type="ADD", backend="cpu", time=us(1), subgraph=2, session=1)
    assert (published_index(named), published_type(named)) == (2, "ADD")
    oldest = TraceOperator(index=3, type="ADD", backend="cpu", time=us(1))
    assert (published_index(oldest), published_type(oldest)) == (3, "ADD")


def test_several_sessions_or_models_are_refused_by_the_exact_decision() -> None:
    both = tuple(
        TraceOperator(index=0, type="Conv2D", backend="cpu", time=us(1), subgraph=0, session=s) for s in (0, 1)
    )
    with pytest.raises(ProblemError, match="2 sessions"):
        exact_decision({"cpu": Trace(operators=both, graph=us(5))})
    with pytest.raises(ProblemError, match="operator 0 is Add in the trace for ruy and Conv2D in another"):
        exact_decision({"cpu": trace(1, (0, "Conv2D", "cpu", 1)), "ruy": trace(1, (0, "Add", "cpu", 1))})
    with pytest.raises(ProblemError, match="no operator"):
        exact_decision({"cpu": Trace(operators=(), graph=us(1))})


def test_what_onert_adds_itself_is_no_slot_and_inner_graphs_belong_to_their_operator() -> None:
    inner = TraceOperator(index=0, type="Mul", backend="cpu", time=us(3), subgraph=1)
    outer = trace(20, (0, "While", "cpu", 12), (7, "Permute", "builtin", 2))
    exact = exact_decision({"cpu": Trace(operators=(*outer.operators, inner), graph=outer.graph)})
    assert exact.types == {0: "While"}
    assert any("Permute operators" in lack and lack.endswith(": 1.") for lack in exact.lacks)

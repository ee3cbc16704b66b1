"""Kernels of profiled runs, and which operators each of them computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.core.sample import OperatorSamples, Run, Samples
from gnomon.measure.campaign import Measured
from gnomon.session.kernels import Breakdown, Kernel, Sources, absorb, breakdown, by_clock, kernels


def whole_of(made: Breakdown) -> float:
    """What its parts add up to."""
    return sum(made.times_s.values()) + sum(kernel.time_s for kernel in made.own) + made.unattributed_s


def graph_of(feeds: Sequence[Sequence[int]], macs: Sequence[int | None], kinds: Sequence[str] = ()) -> Graph:
    """Operators, each reading what the ones named before it write (none: the input)."""
    tensors = [Tensor(name="x", shape=(1,), dtype="float32", size_bytes=4)]
    tensors += [Tensor(name=f"t{k}", shape=(1,), dtype="float32", size_bytes=4) for k in range(len(feeds))]
    operators = tuple(
        Operator(
            index=k,
            name=f"op{k}",
            type=kinds[k] if kinds else "Conv",
            inputs=tuple(i + 1 for i in sources) or (0,),
            outputs=(k + 1,),
            macs=macs[k],
        )
        for k, sources in enumerate(feeds)
    )
    return Graph(
        name="g",
        format="onnx",
        digest="0" * 64,
        tensors=tuple(tensors),
        operators=operators,
        inputs=(0,),
        outputs=(len(feeds),),
    )


def line(count: int, macs: Sequence[int | None] | None = None) -> Graph:
    return graph_of([[]] + [[k] for k in range(count - 1)], macs or [0] * count)


def profiled(*processes: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> Measured:
    runs = [
        Run(
            candidate="c",
            process=number,
            block=0,
            started_at_s=0.0,
            samples=Samples(wall_ns=(1,), cpu_ns=(1,)),
            profiled=True,
            operators=tuple(
                OperatorSamples(name=name, sources=sources, backend="b", wall_ns=times) for name, sources, times in rows
            ),
        )
        for number, rows in enumerate(processes)
    ]
    return Measured(key="c", runs=tuple(runs), failure=None)


def test_times_are_medians_over_calls_and_then_over_processes() -> None:
    found = kernels(
        line(1),
        profiled([("k", (0,), (1000, 9000, 2000))], [("k", (0,), (4000,))], [("k", (0,), (900_000,))]),
    )
    assert [(k.name, k.operators, k.backend) for k in found] == [("k", (0,), "b")]
    assert found[0].time_s == pytest.approx(4e-6)


def test_without_a_profiled_run_there_are_none() -> None:
    assert kernels(line(2), Measured(key="c", runs=(), failure=None)) == ()


def test_an_activation_joins_what_feeds_it_and_a_product_what_reads_it() -> None:
    home = {0: 7, 2: 8}
    absorb(line(3, [5, 0, 5]), home)
    assert home == {0: 7, 1: 7, 2: 8}
    home = {0: 7, 2: 8}
    absorb(line(3, [5, 5, 5]), home)
    assert home == {0: 7, 1: 8, 2: 8}


def test_a_sum_joins_the_later_of_what_feeds_it() -> None:
    # 1 reads 0, and 2 adds both up: a runtime adds while it computes 1, which has all that the sum needs.
    for feeds in ([[], [0], [0, 1]], [[], [0], [1, 0]]):
        home = {0: 3, 1: 4}
        absorb(graph_of(feeds, [5, 5, 0]), home)
        assert home[2] == 4


@given(st.data(), st.integers(1, 12))
def test_every_operator_finds_a_home_where_the_graph_hangs_together(data: st.DataObject, count: int) -> None:
    feeds = [[], *(sorted(data.draw(st.sets(st.integers(0, k - 1), min_size=1))) for k in range(1, count))]
    macs = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    known = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 3), min_size=1))
    home = dict(known)
    absorb(graph_of(feeds, macs), home)
    assert home.keys() == set(range(count))
    assert known.items() <= home.items()  # nobody is moved
    assert set(home.values()) == set(known.values())


def test_a_fused_kernels_time_is_that_of_the_operator_which_makes_it() -> None:
    graph = line(4, [2, 0, 0, 9])
    found = [Kernel(name="k", operators=(0, 1), backend="b", time_s=1.0, named=(1, 0))]
    assert breakdown(graph, found, 3.0).times_s == {0: 1.0}  # no second of it is invented for 1
    assert breakdown(graph, found, 3.0).within == {1: 0}
    # Of what the runtime did not name there is no time, however much it computes.
    found = [Kernel(name="k", operators=(0, 3), backend="b", time_s=1.0, named=(0,))]
    assert breakdown(graph, found, 3.0).times_s == {0: 1.0}
    assert breakdown(graph, found, 3.0).within == {3: 0}
    # But a product that is named after the addition behind it is the product.
    found = [Kernel(name="FullyConnected op1", operators=(0, 1), backend="b", time_s=1.0, named=(1,))]
    assert breakdown(graph, found, 3.0).times_s == {0: 1.0}
    assert breakdown(graph, found, 3.0).within == {1: 0}
    # Where nobody knows how much the named one computes, the time is its own.
    graph = line(2, [2, None])
    found = [Kernel(name="LSTM op1", operators=(0, 1), backend="b", time_s=1.0, named=(1,))]
    assert breakdown(graph, found, 3.0).times_s == {1: 1.0}


def test_all_kernels_that_name_an_operator_count_for_it() -> None:
    found = [
        Kernel(name="conv", operators=(0, 1), backend="b", time_s=1.0, named=(0, 1)),
        Kernel(name="reorder of conv", operators=(), backend="b", time_s=0.5, named=(1,)),
        Kernel(name="Reorder", operators=(), backend="b", time_s=0.25),
    ]
    made = breakdown(line(3, [2, 0, 0]), found, 2.0)
    assert made.times_s == {0: 1.5}
    assert [kernel.name for kernel in made.own] == ["Reorder"]
    assert made.unattributed_s == pytest.approx(0.25)


def test_a_kernel_of_the_whole_graph_tells_of_no_operator() -> None:
    found = kernels(line(3), profiled([("whole graph", (0, 1, 2), (3000,))]))
    made = breakdown(line(3), found, 4e-6)
    assert not made.times_s
    assert not made.within
    assert [kernel.name for kernel in made.own] == ["whole graph"]
    assert made.own[0].time_s == pytest.approx(3e-6)
    assert breakdown(line(1), [Kernel(name="k", operators=(0,), backend="b", time_s=1.0)], 1.0).times_s == {0: 1.0}


@given(st.data(), st.integers(1, 8), st.floats(0, 10))
def test_operators_kernels_and_the_rest_are_the_whole(data: st.DataObject, count: int, whole_s: float) -> None:
    feeds = [[], *([k] for k in range(count - 1))]
    macs = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    sources = st.lists(st.integers(0, count - 1), max_size=3, unique=True).map(tuple)
    rows = data.draw(st.lists(st.tuples(sources, st.integers(1, 10**9)), max_size=8))
    graph = graph_of(feeds, macs)
    traced = profiled([(f"Reorder {k}", named, (ns,)) for k, (named, ns) in enumerate(rows)])
    found = kernels(graph, traced)
    made = breakdown(graph, found, whole_s)
    assert whole_of(made) == pytest.approx(whole_s)
    assert made.unattributed_s >= 0
    assert made.overhead_s == pytest.approx(max(0.0, sum(kernel.time_s for kernel in found) - whole_s))
    assert not made.within.keys() & made.times_s.keys()
    assert set(made.within.values()) <= made.times_s.keys()


def test_kernels_take_no_more_cpu_time_than_the_calls() -> None:
    traced = profiled([("a", (0,), (9000,)), ("b", (1,), (3000,))])
    found = kernels(line(2), traced)
    for cpu_ns, expected in ((6_000, [4.5e-6, 1.5e-6]), (15_000, [9e-6, 3e-6])):
        # The wall time of a call tells nothing: a runtime that waits between its kernels takes no more for them.
        samples = Samples(wall_ns=(90_000,), cpu_ns=(cpu_ns,))
        again = replace(traced, runs=(replace(traced.runs[0], samples=samples),))
        assert by_clock(found, again, "wall") == found
        assert [kernel.time_s for kernel in by_clock(found, again, "cpu")] == pytest.approx(expected)


EEG = graph_of(
    [[], [0], [1], [2], [3], [4]], [900, 0, 0, 0, 0, 50], ["Conv", "Relu", "LSTM", "Squeeze", "LSTM", "MatMul"]
)
"""Like a detector of seizures: its LSTMs have no multiply-accumulates that could be counted."""


def openvino_like(*names: str) -> Measured:
    """A profile in which the LSTMs' kernels have names that the runtime made up."""
    made_up = [(name, (), (400_000 + k,)) for k, name in enumerate(names)]
    rows = [("Convolution op0", (0, 1), (20_000,)), ("Reorder op0_abc_acb", (), (5_000,)), *made_up]
    return profiled([*rows, ("FullyConnected op5", (5,), (7_000,))])


def test_an_lstm_under_a_made_up_name_has_its_kernels_time() -> None:
    found = kernels(EEG, openvino_like("LSTMSequence LSTMSequence_71", "LSTMSequence LSTMSequence_131"))
    assert [(k.operators, k.named) for k in found] == [
        ((0, 1), (0, 1)),
        ((), ()),
        ((2, 3), (2,)),
        ((4,), (4,)),
        ((5,), (5,)),
    ]
    made = breakdown(EEG, found, 900e-6)
    assert made.times_s == pytest.approx({0: 20e-6, 2: 400e-6, 4: 400.001e-6, 5: 7e-6})
    assert made.within == {1: 0, 3: 2}
    assert [kernel.name for kernel in made.own] == ["Reorder op0_abc_acb"]


def test_kernels_that_could_be_mixed_up_are_left_alone_but_never_lost() -> None:
    found = kernels(EEG, openvino_like("LSTMSequence LSTMSequence_71"))
    made = breakdown(EEG, found, 900e-6)
    assert [kernel.name for kernel in made.own] == ["Reorder op0_abc_acb", "LSTMSequence LSTMSequence_71"]
    assert made.times_s.keys() == {0, 5}
    assert whole_of(made) == pytest.approx(900e-6)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("LSTMSequence LSTMSequence_71", "LSTM"),
        ("GRUSequence GRUSequence_5", "GRU"),
        ("RNNSequence r", "RNN"),
        ("lstm", "LSTM"),
        ("layernorm layernorm_3", "LayerNormalization"),
        ("Reduce Reduce_3", "ReduceMean"),
        ("MaxPool p", "MaxPool"),
    ],
)
def test_a_kernels_kind_leads_to_its_operator(name: str, kind: str) -> None:
    graph = graph_of([[], [0], [1]], [0, 0, 0], ["Conv", kind, "Max"])
    found = kernels(graph, profiled([("c", (0,), (1,)), (name, (), (1,)), ("m", (2,), (1,))]))
    assert found[1].operators == (1,)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Reorder x", "Or"), ("Convert c", "Conv"), ("MatMul m", "Mul"), ("Expand e", "Exp"), ("", "LSTM")],
)
def test_a_kind_is_whole_words(name: str, kind: str) -> None:
    graph = graph_of([[], [0]], [0, 0], ["Other", kind])
    found = kernels(graph, profiled([("c", (0,), (1,)), (name, (), (1,))]))
    assert found[1].operators == ()


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("op1", 1),
        ("t1", 1),  # what it writes
        ("op1_nchwc", 1),
        ("op1/MatMulAddFusion", 1),
        ("fused op1", 1),
        ("op11", None),  # is not op1
        ("reorder", None),
        ("", None),
    ],
)
def test_a_profilers_name_leads_to_its_operator(name: str, index: int | None) -> None:
    assert Sources(line(3))(name) == index

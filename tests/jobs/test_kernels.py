"""Kernels of profiled runs, and which operators each of them computes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.core.sample import OperatorSamples, Run, Samples
from gnomon.jobs.kernels import Kernel, Sources, _absorb, kernels, operator_times
from gnomon.measure.campaign import Measured


def graph_of(feeds: Sequence[Sequence[int]], macs: Sequence[int]) -> Graph:
    """Operators, each reading what the ones named before it write (none: the input)."""
    tensors = [Tensor(name="x", shape=(1,), dtype="float32", size_bytes=4)]
    tensors += [Tensor(name=f"t{k}", shape=(1,), dtype="float32", size_bytes=4) for k in range(len(feeds))]
    operators = tuple(
        Operator(
            index=k,
            name=f"op{k}",
            type="Conv",
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


def line(count: int, macs: Sequence[int] | None = None) -> Graph:
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
    _absorb(line(3, [5, 0, 5]), home)
    assert home == {0: 7, 1: 7, 2: 8}
    home = {0: 7, 2: 8}
    _absorb(line(3, [5, 5, 5]), home)
    assert home == {0: 7, 1: 8, 2: 8}


def test_a_sum_joins_the_later_of_what_feeds_it() -> None:
    # 1 reads 0, and 2 adds both up: a runtime adds while it computes 1, which has all that the sum needs.
    for feeds in ([[], [0], [0, 1]], [[], [0], [1, 0]]):
        home = {0: 3, 1: 4}
        _absorb(graph_of(feeds, [5, 5, 0]), home)
        assert home[2] == 4


@given(st.data(), st.integers(1, 12))
def test_every_operator_finds_a_home_where_the_graph_hangs_together(data: st.DataObject, count: int) -> None:
    feeds = [[], *(sorted(data.draw(st.sets(st.integers(0, k - 1), min_size=1))) for k in range(1, count))]
    macs = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    known = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 3), min_size=1))
    home = dict(known)
    _absorb(graph_of(feeds, macs), home)
    assert home.keys() == set(range(count))
    assert known.items() <= home.items()  # nobody is moved
    assert set(home.values()) == set(known.values())


def test_a_fused_kernels_time_goes_to_its_operators_by_their_work() -> None:
    found = [Kernel(name="k", operators=(0, 1), backend="b", time_s=1.0)]
    times = operator_times(line(3, [2, 0, 0]), found)
    assert times == pytest.approx({0: 0.75, 1: 0.25})


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("op1", 1),
        ("t1", 1),  # what it writes
        ("op1_nchwc", 1),
        ("op1/MatMulAddFusion", 1),
        ("op11", None),  # is not op1
        ("reorder", None),
        ("", None),
    ],
)
def test_a_profilers_name_leads_to_its_operator(name: str, index: int | None) -> None:
    assert Sources(line(3))(name) == index

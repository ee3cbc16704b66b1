"""Blocks, chains and the buffers between their segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.core.graph import Tensor
from gnomon.core.sample import Run, Samples
from gnomon.jobs.place.across import (
    SegmentFiles,
    choose_blocks,
    kernel_spans,
    least_times,
    merge,
    node_times,
    random_chains,
    split_places,
)
from gnomon.measure.campaign import Measured
from gnomon.models.onnx.cut import OnnxCutter
from gnomon.runtimes.base import Accelerator, Configuration, PlacedModel, RunSettings, Support
from gnomon.session.contender import choose_clock
from gnomon.session.kernels import Kernel
from gnomon.session.model_session import ModelSession


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_merging_keeps_the_choices_and_leaves_no_needless_cut(assignment: list[int]) -> None:
    chain = merge(assignment)
    assert [c for first, last, c in chain for _ in range(first, last)] == assignment
    assert chain[0][0] == 0
    assert all(a[1] == b[0] and a[2] != b[2] for a, b in pairwise(chain))


@given(st.integers(2, 9), st.integers(2, 4), st.integers(1, 30), st.integers(0, 99))
def test_random_chains_are_different_whole_and_really_mixed(blocks: int, backends: int, count: int, seed: int) -> None:
    chains = random_chains(blocks, backends, count, np.random.default_rng(seed))
    assert 1 <= len(chains) <= count
    assert len(set(chains)) == len(chains)
    for chain in chains:
        assert 2 <= len(chain) <= 4
        assert (chain[0][0], chain[-1][1]) == (0, blocks)
        assert all(a[1] == b[0] and a[2] != b[2] for a, b in pairwise(chain))
        assert all(first < last and 0 <= backend < backends for first, last, backend in chain)


def test_every_cut_is_used_about_equally_often() -> None:
    for seed in range(5):
        chains = random_chains(8, 2, 24, np.random.default_rng(seed))
        cuts = Counter(first for chain in chains for first, _, _ in chain[1:])
        directions = Counter((first, backend) for chain in chains for first, _, backend in chain[1:])
        assert set(cuts) == set(range(1, 8))
        assert max(cuts.values()) <= 2 * min(cuts.values()) + 2
        assert len(directions) >= 12  # of 14
    # No more chains are asked for than there are.
    assert set(random_chains(2, 2, 50, np.random.default_rng(0))) == {((0, 1, 0), (1, 2, 1)), ((0, 1, 1), (1, 2, 0))}


def tensor(number: int) -> Tensor:
    return Tensor(name=f"t{number}", shape=(number + 1,), dtype="float32", size_bytes=4 * number + 4)


@given(st.data(), st.integers(1, 8))
def test_tensors_that_are_alive_together_never_share_memory(data: st.DataObject, count: int) -> None:
    made: dict[tuple[int, int], Any] = {}
    written: list[Tensor] = []
    life: dict[str, tuple[int, int]] = {}  # name -> the segments that write it and that read it last
    for k in range(count):
        reads = data.draw(st.sets(st.integers(0, len(written) - 1))) if written else set()
        fresh = [tensor(len(written) + i) for i in range(data.draw(st.integers(0, 3)))]
        for i in reads:
            life[written[i].name] = (life[written[i].name][0], k)
        life.update({t.name: (k, k) for t in fresh})
        made[k, k + 1] = (SimpleNamespace(inputs=[written[i] for i in reads], outputs=fresh), "")
        written += fresh
    files = SegmentFiles.__new__(SegmentFiles)
    files._segments = made
    whole = PlacedModel(graph=cast(Any, None), path="", inputs=("x",), outputs=("y",))
    found = files.boundary(list(made), whole)
    assert found.keys() == life.keys()
    for a, (born, last) in life.items():
        assert found[a]["dtype"] == "float32"
        for b, (other_born, other_last) in life.items():
            if a != b and found[a]["slab"] == found[b]["slab"]:
                assert last < other_born or other_last < born


@pytest.fixture(scope="module")
def cutter(zoo_model: Callable[[str], Path]) -> OnnxCutter:
    return OnnxCutter(zoo_model("efficientnet-lite0.onnx"))


@pytest.mark.parametrize("most", [2, 4, 8])
def test_blocks_are_balanced_and_cut_where_little_is_alive(cutter: OnnxCutter, most: int) -> None:
    weight = [1.0] * len(cutter.order)
    places = choose_blocks(cutter, weight, most)
    assert (places[0], places[-1]) == (0, len(cutter.order))
    assert len(places) - 1 == most
    assert all(len(cutter.live(place)) == 1 for place in places[1:-1])
    sizes = np.diff(places) / len(cutter.order)
    assert sizes.max() < 2.0 / most
    assert sizes.min() > 0.3 / most


def test_a_graph_without_weight_is_one_block_or_more_but_never_an_error(cutter: OnnxCutter) -> None:
    assert len(choose_blocks(cutter, [0.0] * len(cutter.order), 8)) >= 2
    assert choose_blocks(cutter, [1.0] * len(cutter.order), 1) == (0, len(cutter.order))


@pytest.mark.parametrize("heavy", [0.9, 0.999, 1.0])
@pytest.mark.parametrize("end", [0, -1])
def test_a_graph_whose_time_is_one_node_s_is_cut_all_the_same(cutter: OnnxCutter, heavy: float, end: int) -> None:
    """One disturbed sample can make a node of the profile look like that."""
    weight = [1.0 - heavy] * len(cutter.order)
    weight[end] = heavy * len(weight)
    for most in (2, 3):
        assert len(choose_blocks(cutter, weight, most)) >= 3


@given(st.data())
@settings(max_examples=30)
def test_blocks_take_at_least_what_is_surely_theirs(cutter: OnnxCutter, data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(st.tuples(st.sets(st.sampled_from(cutter.order), max_size=3), st.floats(0, 1)), max_size=8)
    )
    inner = data.draw(st.sets(st.integers(1, len(cutter.order) - 1), max_size=5))
    places = (0, *sorted(inner), len(cutter.order))
    found = [Kernel(name=str(k), operators=tuple(ops), backend="b", time_s=t) for k, (ops, t) in enumerate(rows)]
    least = least_times(kernel_spans(cutter, found), places)
    told = node_times(cutter, found)
    for block, (a, b) in enumerate(pairwise(places)):
        assert least[block] <= sum(told[a:b]) + 1e-9
    assert sum(told) == pytest.approx(sum(t for _, t in rows))  # nodes' times add up to the kernels
    assert sum(least_times(kernel_spans(cutter, found), (0, len(cutter.order)))) == pytest.approx(sum(told))


def test_what_reaches_over_a_cut_is_no_blocks_for_sure(cutter: OnnxCutter) -> None:
    a, b, c, d = cutter.order[:4]
    found = [
        Kernel(name="a", operators=(a,), backend="k", time_s=1.0),
        Kernel(name="reorder within", operators=(), backend="k", time_s=2.0),
        Kernel(name="a again", operators=(), backend="k", time_s=4.0, named=(a,)),
        Kernel(name="reorder at the cut", operators=(), backend="k", time_s=8.0),
        Kernel(name="over the cut", operators=(b, c), backend="k", time_s=16.0),
        Kernel(name="d", operators=(d,), backend="k", time_s=32.0),
    ]
    spans = kernel_spans(cutter, found)
    assert least_times(spans, (0, 2, 4)) == [7.0, 32.0]
    assert least_times(spans, (0, 1, 3, 4)) == [7.0, 16.0, 32.0]


def test_what_the_runtime_did_not_name_has_no_time_unless_it_computes(cutter: OnnxCutter) -> None:
    macs = [cutter.graph.operators[i].macs for i in cutter.order]
    light = next(k for k in range(1, len(macs)) if macs[k - 1] and macs[k] == 0)
    conv, after = cutter.order[light - 1 : light + 1]
    heavy = next(i for i in cutter.order[light + 1 :] if cutter.graph.operators[i].macs)
    places = (0, light, len(macs))
    for others, least in (((after,), [1.0, 0.0]), ((after, heavy), [0.0, 0.0])):
        found = [Kernel(name="k", operators=(conv, *others), backend="k", time_s=1.0, named=(conv,))]
        assert least_times(kernel_spans(cutter, found), places) == least
        assert light in split_places(cutter, found)
    whole = [Kernel(name="k", operators=tuple(cutter.order), backend="k", time_s=1.0)]
    assert split_places(cutter, whole) == set()
    assert least_times(kernel_spans(cutter, whole), places) == [0.0, 0.0]


def test_kernels_are_not_cut_where_there_is_another_place(cutter: OnnxCutter) -> None:
    weight = [1.0] * len(cutter.order)
    usual = choose_blocks(cutter, weight, 4)
    others = choose_blocks(cutter, weight, 4, usual)
    assert len(others) == len(usual)
    assert not set(others[1:-1]) & set(usual)
    assert choose_blocks(cutter, weight, 4, range(len(weight))) == usual


def measured(wall: int, cpu: int, *, waits: int = 0) -> Measured:
    samples = Samples(wall_ns=(wall,) * 6, cpu_ns=(cpu,) * 6)
    runs = tuple(
        Run(candidate="c", process=p, block=0, started_at_s=0.0, samples=samples, facts={"waits": waits})
        for p in range(2)
    )
    return Measured(key="c", runs=runs, failure=None)


@pytest.mark.parametrize(
    ("threads", "field", "clock"),
    [
        (1, [measured(1000, 990)], "cpu"),
        (1, [measured(3000, 1000)], "cpu"),  # interrupted by others, which is what CPU time is good for
        (2, [measured(1000, 990)], "wall"),
        (1, [measured(1000, 1900)], "wall"),  # threads that nobody asked for
        (1, [measured(1000, 990), measured(1000, 1900)], "wall"),  # one such is enough
        (1, [measured(1000, 100, waits=6)], "wall"),  # another processor does the work
        (1, [measured(1000, 999, waits=15)], "cpu"),  # another thread of the process does it while the caller waits
    ],
)
def test_the_clock_is_the_one_that_tells_the_whole_story(threads: int, field: list[Measured], clock: str) -> None:
    session = cast(
        ModelSession, SimpleNamespace(request=SimpleNamespace(settings=RunSettings(threads=threads)), targets=())
    )
    assert choose_clock(session, field) == clock


def test_wall_time_decides_where_an_accelerator_takes_anything() -> None:
    """A driver that waits by spinning looks in CPU time like a processor that works."""
    card = Accelerator(backend="gpu", name="Card", software=False)
    configuration = Configuration(
        runtime="r", name="r", backends=("cpu", "gpu"), options={}, transfers=True, accelerators=(card,)
    )
    for takes, clock in ({0, 1}, "wall"), (set[int](), "cpu"):
        support = Support(operators={"cpu": frozenset({0, 1}), "gpu": frozenset(takes)})
        target = SimpleNamespace(configuration=configuration, support=support)
        session = cast(
            ModelSession, SimpleNamespace(request=SimpleNamespace(settings=RunSettings()), targets=(target,))
        )
        assert choose_clock(session, [measured(1000, 990)]) == clock

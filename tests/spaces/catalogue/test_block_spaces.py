"""Spaces of a user's own: rows of blocks against walking all of their nets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.nets_csv import NetRow, read_nets, write_nets
from gnomon.spaces import (
    UNFUSED,
    Block,
    BlockSpace,
    Choice,
    FusionRules,
    SearchSpace,
    Stage,
    Symbol,
    blocks,
    fuse,
    skip,
)
from gnomon.spaces.layers import Shape
from gnomon.spaces.loading import draw
from gnomon.testing.search_space import ODD, USUAL, SearchSpaceContract


def conv(channels: int, kernel: int = 3, stride: int = 1) -> Block:
    return lambda x: x.conv(channels, kernel, stride=stride).batch_norm()


def conv_relu(channels: int) -> Block:
    return lambda x: x.conv(channels, 1).relu()


def residual(x: Symbol) -> Symbol:
    return x + x.relu().conv(x.channels, 3).batch_norm()


def two_ways(x: Symbol) -> Symbol:
    return x.conv(4, 1).concat(x.max_pool(3, pad=1)).conv(8, 1).batch_norm()


def gated(x: Symbol) -> Symbol:
    return x * x.global_average_pool().conv(x.channels, 1).hard_sigmoid()


def last(x: Symbol) -> Symbol:
    return x.relu().global_average_pool().linear(3)


IMAGE = (1, 3, 8, 8)
BLOCKS: list[Block] = [conv(8), conv(4, 1, 2), conv_relu(8), residual, two_ways, gated, skip, Symbol.relu]


def small() -> BlockSpace:
    return BlockSpace(
        name="small",
        inputs=((1, 3, 16, 16), (1, 3, 20, 20)),
        parts=(
            conv(8, 3, 2),
            Choice("a", {"conv": conv(8), "residual": residual, "skip": skip}),
            Stage(
                "s", (0, 1, 2), (Choice("s0", {"r": residual, "c": conv(8)}), Choice("s1", {"g": gated, "r": residual}))
            ),
            Choice("b", {"two": two_ways, "relu": conv_relu(8)}),
            last,
        ),
    )


class TestSmall(SearchSpaceContract):
    @pytest.fixture
    def search_space(self) -> SearchSpace:
        return small()


def everything(space: BlockSpace) -> np.ndarray:
    return np.array(list(itertools.product(*(range(len(slot.choices)) for slot in space.space.slots))), np.int64)


def check_against_all_nets(space: BlockSpace, in_force: FusionRules) -> None:
    """Every unit, every count, and the number of different nets."""
    tables = space.tables(in_force)
    chosen = everything(space).reshape(-1, len(space.space.slots))
    nets = [fuse(space.net(assignment), in_force) for assignment in chosen]
    assert set(tables.units) == {unit for net in nets for unit in net.counts()}
    for net, row in zip(nets, tables.counts(chosen), strict=True):
        assert {u: int(c) for u, c in zip(tables.units, row, strict=True) if c} == net.counts()


def test_as_many_nets_as_there_are_different_ones() -> None:
    space = small()
    tables = space.tables()
    chosen = everything(space)
    assert space.space.size == len(chosen) == 2 * 3 * 3 * 2 * 2 * 2
    assert tables.nets() == 2 * 3 * (1 + 2 + 4) * 2 == len(np.unique(tables.canonical(chosen), axis=0))
    assert {space.net(row) for row in tables.canonical(chosen)} == {space.net(row) for row in chosen}
    assert len(draw(tables, tables.nets(), seed=0)) == tables.nets()
    with pytest.raises(ProblemError, match="only 84 nets"):
        draw(tables, 85, seed=0)


@st.composite
def spaces(make: st.DrawFn) -> BlockSpace:
    """A row of a few choices among a few blocks, some in a stage."""
    parts: list[Block | Choice | Stage] = []
    for number in range(make(st.integers(1, 3))):
        chosen = make(st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=3, unique=True))
        choice = Choice(f"p{number}", {f"b{i}": BLOCKS[i] for i in chosen})
        parts.append(Stage(f"s{number}", (0, 1), (choice,)) if make(st.booleans()) else choice)
    return BlockSpace(name="drawn", inputs=((1, 8, 8, 8),), parts=(*parts, last))


@settings(max_examples=25)
@given(spaces(), st.sampled_from([UNFUSED, USUAL, ODD]))
def test_tables_agree_with_all_nets_of_any_row(space: BlockSpace, in_force: FusionRules) -> None:
    check_against_all_nets(space, in_force)


def test_layers_that_nothing_reads_are_told() -> None:
    def wasteful(x: Symbol) -> Symbol:
        x.conv(4, 3)
        return x.relu()

    with pytest.raises(ProblemError, match="does not use the result of Conv 3x3 4"):
        BlockSpace(name="x", inputs=((1, 3, 8, 8),), parts=(wasteful,)).tables()


def test_a_block_that_makes_nothing_is_named() -> None:
    broken: Any = lambda x: None  # noqa: E731
    space = BlockSpace(name="x", inputs=(IMAGE,), parts=(conv(8), Choice("a", {"b": skip, "c": broken})))
    for fails in (space.tables, lambda: space.net([1])):
        with pytest.raises(ProblemError, match=r"a=c for the input shape \(1, 8, 8, 8\) returns a NoneType"):
            fails()


def test_what_does_not_fit_is_named_by_slot_and_choice() -> None:
    space = BlockSpace(name="x", inputs=(IMAGE,), parts=(Choice("a", {"b": skip, "c": lambda x: x.conv(4, 3) + x}),))
    with pytest.raises(ProblemError, match=r"a=c for the input shape \(1, 3, 8, 8\): an Add cannot add"):
        space.tables()


def test_a_space_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_MOST_MET", 8)
    with pytest.raises(ProblemError, match="its blocks get more than 8 different inputs"):
        small().tables()


@pytest.mark.parametrize("in_force", [UNFUSED, USUAL], ids=["unfused", "usual"])
def test_a_block_that_is_another_one_each_time_is_refused(in_force: FusionRules) -> None:
    widths = itertools.count(1)
    space = BlockSpace(
        name="x", inputs=(IMAGE,), parts=(Choice("a", {"b": skip, "c": lambda x: x.conv(next(widths), 3)}), last)
    )
    with pytest.raises(ProblemError, match="a=c makes different layers each time"):
        space.tables(in_force)


def test_choices_that_are_named_by_numbers_are_texts() -> None:
    kernels: Any = {3: conv(8), 5: conv(8, 5), " 7": conv(8, 7)}
    space = BlockSpace(name="x", inputs=(IMAGE,), parts=(Choice(" kernel", kernels), last))
    assert (space.space.slots[0].name, space.space.slots[0].choices) == ("kernel", ("3", "5", "7"))
    nets = write_nets([NetRow(assignment=(k,)) for k in range(3)], space.space, measured=False)
    assert [net.assignment for net in read_nets(nets.encode(), space.space)] == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (((1, 3, 8, 8), (1, 3, 16, 8)), ("8", "16")),
        (((1, 3, 8, 8), (1, 3, 8, 16)), ("1x3x8x8", "1x3x8x16")),
        (((1, 16), (1, 32)), ("1x16", "1x32")),
    ],
)
def test_input_shapes_have_names_that_differ(inputs: Any, names: tuple[str, ...]) -> None:
    space = BlockSpace(name="x", inputs=inputs, parts=(Choice("a", {"b": skip, "r": Symbol.relu}),))
    assert space.space.slots[0].choices == names
    check_against_all_nets(space, UNFUSED)


def one(*parts: Block | Choice | Stage, inputs: tuple[Shape, ...] = ()) -> BlockSpace:
    return BlockSpace(name="x", inputs=inputs, parts=parts)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: one(), "no input shape"),
        (lambda: one(Stage("s", (0, 2), (Choice("a", {"b": skip}),)), inputs=(IMAGE,)), "do not fit"),
        (lambda: one(Choice("a", {"b": skip}), Choice("a", {"b": skip}), inputs=(IMAGE,)), "named 'a'"),
        (lambda: one(Choice("a", {}), inputs=(IMAGE,)), "no choice"),
        (lambda: one(skip, inputs=cast("Any", IMAGE)), "not a list of shapes"),
        (lambda: one(Choice("a", cast("Any", {3: skip, "3": skip})), inputs=(IMAGE,)), "twice"),
    ],
)
def test_spaces_that_cannot_be_are_refused(wrong: Callable[[], BlockSpace], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        wrong()


@pytest.mark.parametrize("values", [[1.5], [1, 2]])
def test_assignments_of_a_wrong_kind_are_refused(values: list[float]) -> None:
    space = BlockSpace(name="x", inputs=((1, 3, 8, 8),), parts=(Choice("a", {"b": skip, "c": last}),))
    with pytest.raises(ProblemError):
        space.tables().counts([values])

"""Spaces and codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.space import Slot, Space, decimal, parse_decimal
from gnomon.errors import ProblemError


def space_of(sizes: list[int]) -> Space:
    return Space(tuple(Slot(f"s{i}", tuple(f"c{c}" for c in range(k))) for i, k in enumerate(sizes)))


def test_first_slot_is_least_significant() -> None:
    space = space_of([2] * 5)
    assert space.decode(4) == (0, 0, 1, 0, 0)
    assert space.encode((0, 0, 1, 0, 0)) == 4
    assert space.size == 32


@given(st.data(), st.lists(st.integers(1, 7), max_size=40))
def test_round_trip(data: st.DataObject, sizes: list[int]) -> None:
    space = space_of(sizes)
    assignment = tuple(data.draw(st.integers(0, k - 1)) for k in sizes)
    code = space.encode(assignment)
    running, expected = 1, 0
    for index, k in zip(assignment, sizes, strict=True):
        expected, running = expected + index * running, running * k
    assert code == expected and space.size == running
    assert space.decode(code) == assignment
    assert space.indices(space.names(assignment)) == assignment


@given(st.integers(0, 8), st.integers(0, 60_000))
def test_decimal_of_any_size(low: int, bits: int) -> None:
    code = (1 << bits) + low
    assert parse_decimal(decimal(code)) == code
    if code < 10**4000:
        assert decimal(code) == str(code)


def test_thousands_of_slots() -> None:
    space = space_of([8] * 10_000)
    assert space.decode(space.size - 1) == (7,) * 10_000
    assert len(decimal(space.size)) == 9031


def test_empty_space_has_one_assignment() -> None:
    assert (Space(()).size, Space(()).encode(()), Space(()).decode(0)) == (1, 0, ())


@pytest.mark.parametrize("code", [-1, 32])
def test_code_out_of_range(code: int) -> None:
    with pytest.raises(ProblemError, match="outside"):
        space_of([2] * 5).decode(code)


def test_refusals() -> None:
    space = space_of([2, 3])
    for wrong in [(0,), (0, 3), (-1, 0)]:
        with pytest.raises(ProblemError):
            space.encode(wrong)
    with pytest.raises(ProblemError, match="no choice 'x'"):
        space.indices(("c0", "x"))
    for text in ["", "-1", "1.5", "\u0663"]:
        with pytest.raises(ProblemError):
            parse_decimal(text)
    with pytest.raises(ProblemError, match="no choice"):
        Slot("a", ())
    with pytest.raises(ProblemError, match="twice"):
        Slot("a", ("x", "x"))
    with pytest.raises(ProblemError, match="named 'a'"):
        Space((Slot("a", ("x",)), Slot("a", ("y",))))

"""oplist.json: both forms, golden files, hostile ones, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.pareto.oplist import MOST_SLOTS, OpList, read_oplist, write_oplist

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "pareto"
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)


@st.composite
def oplists(draw: st.DrawFn) -> OpList:
    types = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    if draw(st.booleans()):
        return OpList(oplist=tuple(types))
    more = draw(st.lists(st.integers(0, len(types) - 1), max_size=6))
    type_of = [*range(len(types)), *more]  # of each group
    opmap = draw(st.permutations([*range(len(type_of)), *draw(st.lists(st.sampled_from(range(len(type_of)))))]))
    return OpList(
        oplist=tuple(types), opmap=tuple(opmap), opname_by_indx=tuple(types[type_of[group]] for group in opmap)
    )


@given(oplists())
def test_what_is_written_is_read_back(found: OpList) -> None:
    assert read_oplist(write_oplist(found)) == found
    assert read_oplist(write_oplist(found).encode()) == found


@pytest.mark.parametrize("name", ["oplist-name", "oplist-index"])
def test_golden_files_are_written_letter_for_letter(name: str) -> None:
    text = (GOLDEN / f"{name}.json").read_text()
    assert write_oplist(read_oplist(text)) == text


def test_by_name_a_digit_is_a_type() -> None:
    found = read_oplist((GOLDEN / "oplist-name.json").read_bytes())
    assert (found.mode, found.slots) == ("name", ("Pool2D", "Conv2D", "Reshape"))


def test_by_index_a_digit_is_a_group_of_nodes() -> None:
    found = read_oplist((GOLDEN / "oplist-index.json").read_bytes())
    assert found.mode == "index"
    assert found.opmap == (0, 1, 2, 0)
    assert found.slots == ("0 Conv2D", "1 Pool2D", "2 Conv2D")


INDEX: dict[str, Any] = {
    "opmap": [0, 1, 2, 0],
    "oplist": ["Conv2D", "Pool2D"],
    "opname_by_indx": ["Conv2D", "Pool2D", "Conv2D", "Conv2D"],
}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"oplist": []}, r"\$\.oplist: 1 to 4096 operator types"),
        ({"oplist": ["Conv2D", "a b"]}, r"\$\.oplist\[1\]: an operator type"),
        ({"oplist": ["Conv2D", "Conv2D"]}, r"\$\.oplist\[1\]: 'Conv2D' is already in \$\.oplist\[0\]"),
        ({"oplist": [f"T{i}" for i in range(MOST_SLOTS + 1)]}, r"\$\.oplist: 1 to 4096 .* 4097 found"),
        ({"oplist": ["Conv2D", "Pool2D", "Add"]}, r"\$\.oplist\[2\]: no node"),
        ({"opmap": [0, 1, 3, 0]}, r"\$\.opmap: group 3 has nodes, but group 2"),
        ({"opmap": [0, 1, 10**40, 0]}, r"\$\.opmap\[2\]"),
        ({"opmap": [0, 0, 1, 0]}, r"\$\.opname_by_indx\[1\]: 'Conv2D' expected, as for other nodes of group 0"),
        ({"opmap": [0, 1]}, r"\$\.opname_by_indx: 2 names"),
        ({"opname_by_indx": ["Conv2D", "Pool2D", "Conv2D", "Add"]}, r"\$\.opname_by_indx\[3\]: a type of"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ProblemError, match=path) as told:
        read_oplist(json.dumps({**INDEX, **change}))
    assert told.value.hint

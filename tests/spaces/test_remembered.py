"""Spaces as data: what is read back counts and writes the same nets, without the Python that made it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.jobs.estimator.estimator_kit import small_space
from tests.spaces.catalogue.test_block_spaces import everything, spaces

from gnomon.core.strict_json import Strict
from gnomon.errors import ProblemError
from gnomon.spaces import UNFUSED, BlockSpace, Choice, load_space, rules, skip
from gnomon.spaces.remembered import read_space, remembered

STRICT = Strict(what="space", hint="Write it again.", most_letters=1 << 20)
RULES = rules(["Conv+BatchNormalization+Relu", "Conv+Add"])


def again(space: BlockSpace) -> BlockSpace:
    space.tables(UNFUSED)
    read = read_space(json.dumps(remembered(space)), STRICT)
    assert isinstance(read, BlockSpace)
    return read


def check_alike(space: BlockSpace) -> None:
    read = again(space)
    assert read.space == space.space
    assert (read.name, read.inputs, read.dtype) == (space.name, space.inputs, space.dtype)
    nets = everything(space)
    for in_force in (UNFUSED, RULES):
        before, after = space.tables(in_force), read.tables(in_force)
        assert after.units == before.units
        assert np.array_equal(after.counts(nets), before.counts(nets))
    assert all(read.net(net) == space.net(net) for net in nets[:50].tolist())
    assert remembered(read) == remembered(space)


@given(space=spaces())
def test_any_row_of_blocks_comes_back(space: BlockSpace) -> None:
    check_alike(space)


def test_stages_resolutions_and_cells_come_back() -> None:
    check_alike(small_space())
    cell = {"conv": lambda x: x.conv(8, 3), "skip": skip}
    check_alike(
        BlockSpace(
            name="cells",
            inputs=((1, 8, 8, 8),),
            dtype="float16",
            parts=(Choice("cell", cell), lambda x: x.relu(), Choice("cell", cell, again=True)),
        )
    )


def test_what_its_name_or_only_its_python_says_is_not_written() -> None:
    class Own(BlockSpace):
        """A space with methods of its own."""

    assert remembered(load_space("fbnet")) is None
    assert remembered(load_space("nasbench201")) is None
    assert remembered(Own(name="own", inputs=((1, 3, 8, 8),), parts=(lambda x: x.relu(),))) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "x"}, "format"),
        ({"name": 3}, "name: a text expected"),
        ({"inputs": [[1, -3, 8, 8]]}, "a positive whole number"),
        ({"layers": []}, "missing or not valid"),
        ({"nets": []}, "missing or not valid"),
        ({"nets": [{"shape": [1, 3, 8, 8], "nodes": [[0, [5]]], "output": 0}]}, "reads a later node's result"),
        ({"parts": [{"stage": None, "depths": [], "positions": []}]}, "missing or not valid"),
        (
            {"parts": [{"stage": None, "depths": [], "positions": [{"slot": None, "again": False, "choices": {}}]}]},
            "missing or not valid",
        ),
        ({"parts": [{"stage": "s", "depths": [7], "positions": []}]}, "do not fit its 0 positions"),
        ({"space": "evil.py:space"}, "space"),
    ],
)
def test_hostile_spaces_are_told(change: dict[str, Any], told: str) -> None:
    space = small_space()
    space.tables(UNFUSED)
    with pytest.raises(ProblemError, match=told):
        read_space({**(remembered(space) or {}), **change}, STRICT)


def test_a_module_whose_origin_would_be_run_is_refused_and_a_gap_is_told() -> None:
    space = small_space()
    space.tables(UNFUSED)
    kept: Any = remembered(space)
    module = {"kind": "Module", "block": "evil.py:space", "shape": [8, 8, 8], "weights": 0, "macs": 0}
    with pytest.raises(ProblemError, match=r"\$\.layers\[0\]"):
        read_space({**kept, "layers": [{**kept["layers"][0], "layers": [module]}, *kept["layers"][1:]]}, STRICT)
    kept["parts"][-1]["positions"][0]["choices"][""] = []
    with pytest.raises(ProblemError, match="the space is damaged"):
        read_space(kept, STRICT).tables(UNFUSED)

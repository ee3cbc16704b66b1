"""The contract of `gnomon.spaces.loading.SearchSpace` as tests.

Subclass `SearchSpaceContract` in a test module and give it a fixture `search_space`::

    class TestMySpace(SearchSpaceContract):
        @pytest.fixture
        def search_space(self):
            return space
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnomon.errors import ProblemError
from gnomon.spaces.fuse import UNFUSED, FusionRules, fuse, rules
from gnomon.spaces.loading import SearchSpace, draw
from gnomon.spaces.unit import Unit, unit_of

# ruff: noqa: S101, D102 - tests assert, and a test's name is its sentence


USUAL = rules(["Conv+BatchNormalization+Relu", "Conv+BatchNormalization+Relu6", "Conv+BatchNormalization+Add"])
ODD = rules(["Add+Conv+BatchNormalization+Add", "Relu+Conv", "BatchNormalization+Relu"])

_FEW = 12


def _counts(search_space: SearchSpace, in_force: FusionRules, assignment: np.ndarray) -> dict[Unit, int]:
    """The counts of one net in the tables, without units that the net does not have."""
    tables = search_space.tables(in_force)
    (row,) = tables.counts(assignment[None])
    return {unit: int(count) for unit, count in zip(tables.units, row[: len(tables.units)], strict=True) if count}


class SearchSpaceContract:
    """The contract of every search space."""

    def test_it_has_a_name_and_slots(self, search_space: SearchSpace) -> None:
        assert isinstance(search_space, SearchSpace)
        assert search_space.name and search_space.space.size >= 1

    @pytest.mark.parametrize("in_force", [UNFUSED, USUAL, ODD], ids=["unfused", "usual", "odd"])
    def test_tables_count_what_nets_have(self, search_space: SearchSpace, in_force: FusionRules) -> None:
        few = min(_FEW, search_space.tables(UNFUSED).nets())
        for assignment in draw(search_space.tables(UNFUSED), few, seed=1):
            net = fuse(search_space.net(assignment), in_force)
            assert _counts(search_space, in_force, assignment) == net.counts()

    def test_fusing_loses_no_layer(self, search_space: SearchSpace) -> None:
        for assignment in draw(search_space.tables(UNFUSED), min(_FEW, search_space.tables(UNFUSED).nets()), seed=2):
            net = search_space.net(assignment)
            whole = sorted(kind for node in net.nodes for kind in node.unit.kinds)
            assert sorted(kind for node in fuse(net, USUAL).nodes for kind in node.unit.kinds) == whole

    def test_units_are_different_and_have_different_ids(self, search_space: SearchSpace) -> None:
        units = search_space.tables(UNFUSED).units
        assert units and len(set(units)) == len(units) == len({unit.id for unit in units})
        assert all(len(unit.layers) == 1 for unit in units)

    def test_units_go_through_json(self, search_space: SearchSpace) -> None:
        for unit in search_space.tables(UNFUSED).units:
            assert unit_of(json.loads(unit.canonical())) == unit

    def test_no_table_holds_a_unit_that_no_net_has(self, search_space: SearchSpace) -> None:
        for in_force in (UNFUSED, USUAL):
            tables = search_space.tables(in_force)
            assert tables.rows.shape[1] == len(tables.units) + len(tables.extras)
            assert bool((tables.rows.max(axis=0) > 0).all())

    def test_sums_are_counts_times_values(self, search_space: SearchSpace) -> None:
        tables = search_space.tables(UNFUSED)
        chosen = draw(tables, 20, seed=3, distinct=False)
        values = np.random.default_rng(0).uniform(size=(tables.rows.shape[1], 2))
        np.testing.assert_allclose(tables.sums(chosen, values), tables.counts(chosen) @ values, rtol=1e-9)

    def test_slots_that_make_no_difference_make_none(self, search_space: SearchSpace) -> None:
        tables = search_space.tables(UNFUSED)
        radices = [len(slot.choices) for slot in search_space.space.slots]
        for assignment in np.random.default_rng(4).integers(0, radices, size=(_FEW, len(radices))):
            (canonical,) = tables.canonical(assignment[None])
            assert search_space.net(canonical) == search_space.net(assignment)

    def test_a_draw_is_a_function_of_the_seed(self, search_space: SearchSpace) -> None:
        tables = search_space.tables(UNFUSED)
        many = min(30, tables.nets())
        first = draw(tables, many, seed=5)
        assert np.array_equal(first, draw(tables, many, seed=5))
        assert len(np.unique(first, axis=0)) == many

    def test_what_is_outside_is_refused(self, search_space: SearchSpace) -> None:
        slots = search_space.space.slots
        outside = [len(slot.choices) for slot in slots]
        with pytest.raises(ProblemError):
            search_space.net([0] * (len(slots) + 1))
        with pytest.raises(ProblemError):
            search_space.tables(UNFUSED).counts([[0] * (len(slots) + 1)])
        if slots:
            with pytest.raises(ProblemError):
                search_space.net(outside)
            with pytest.raises(ProblemError):
                search_space.tables(UNFUSED).counts([outside])

"""Networks of several families: what tells families apart in each cell group."""

from __future__ import annotations

import pytest

from gnomon.jobs.space.profiling.methods import across_families
from gnomon.jobs.space.profiling.study import Study, open_study

CONFIG = """\
search_space_cfg:
  num_cell_groups: 2
  cell_layout: [0, 1]
  reduce_cell_groups: [1]
  shared_primitives: [Mobileblock_0, Mobileblock_1, VGGblock_0, VGGblock_1, Resblock_0]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 10
  cell_group_kwargs: [{C_in: 1, C_out: 4}, {C_in: 4, C_out: 8}]
"""


def study(*families: str) -> Study:
    """A small study."""
    return open_study(CONFIG, (1, 8, 8), families=families)


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize("seed", [0, 7])
def test_each_is_of_several_families_and_another_one(count: int, seed: int) -> None:
    found = across_families(study(), count, seed=seed)
    assert len(found) == len({n.id for n in found}) <= count
    assert all(not n.family and len({name.split("block")[0] for name in n.primitives}) == 2 for n in found)
    assert found == across_families(study(), count, seed=seed)
    assert len(found) >= count - 2


def test_one_family_has_none() -> None:
    assert across_families(study("VGG"), 5, seed=0) == []
    assert across_families(study(), 0, seed=0) == []

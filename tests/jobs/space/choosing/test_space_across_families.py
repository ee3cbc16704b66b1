"""Networks of several families, and how long those are trained that predictions are held against."""

from __future__ import annotations

import pytest
from tests.jobs.space.kits.studykit import study, trained

from gnomon.jobs.space.choosing.front import epochs_of
from gnomon.jobs.space.profiling.folder import PROOF
from gnomon.jobs.space.profiling.methods import across_families

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize("seed", [0, 7])
def test_each_is_of_several_families_and_another_one(count: int, seed: int) -> None:
    found = across_families(study(), count, seed=seed)
    assert len(found) == len({n.id for n in found}) <= count
    assert all(not n.family and len({name.split("block")[0] for name in n.primitives}) == 2 for n in found)
    assert found == across_families(study(), count, seed=seed)
    assert len(found) >= count - 2


def test_one_family_has_none() -> None:
    assert across_families(study(families=["VGG"]), 5, seed=0) == []
    assert across_families(study(), 0, seed=0) == []


def test_a_proof_is_trained_as_long_as_most_networks_of_the_profile() -> None:
    a, b = (study().families["VGG"].swaps()[k] for k in (0, 1))
    proofs = [trained(a, 0.9, seed=seed, method=PROOF, epochs=7) for seed in range(9)]
    others = [trained(b, None, seed=seed, epochs=8, reason="crash: it ended") for seed in range(9)]
    others += [trained(b, 0.9, seed=seed, epochs=8, origin="nets.csv") for seed in range(9)]
    assert epochs_of([*proofs, *others]) is None, "then the config says"
    rows = [trained(a, 0.9, epochs=3), trained(a, 0.9, epochs=5), trained(b, 0.9, epochs=5)]
    rows += [trained(a, 0.9, seed=1, epochs=3)]
    assert epochs_of([*proofs, *others, *rows]) == 5, "of each network the longest counts"

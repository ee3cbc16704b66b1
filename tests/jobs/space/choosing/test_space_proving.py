"""Networks that predictions are held against: trained as long as those that the predictions are of."""

from __future__ import annotations

import pytest
from tests.jobs.space.kits.studykit import study, trained

from gnomon.jobs.space.choosing.proving import epochs_of
from gnomon.jobs.space.profiling.folder import PROOF

pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed: pip install '.[space]'")


def test_a_proof_is_trained_as_long_as_most_networks_of_the_profile() -> None:
    a, b = (study().families["VGG"].swaps()[k] for k in (0, 1))
    proofs = [trained(a, 0.9, seed=seed, method=PROOF, epochs=7) for seed in range(9)]
    others = [trained(b, None, seed=seed, epochs=8, reason="crash: it ended") for seed in range(9)]
    others += [trained(b, 0.9, seed=seed, epochs=8, origin="nets.csv") for seed in range(9)]
    assert epochs_of([*proofs, *others]) is None, "then the config says"
    rows = [trained(a, 0.9, epochs=3), trained(a, 0.9, epochs=5), trained(b, 0.9, epochs=5)]
    rows += [trained(a, 0.9, seed=1, epochs=3)]
    assert epochs_of([*proofs, *others, *rows]) == 5, "of each network the longest counts"

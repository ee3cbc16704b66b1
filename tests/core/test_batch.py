"""The batch evaluator against the cost model itself."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.placement_problems import random_problem

from gnomon.core import batch
from gnomon.core.batch import BatchEvaluator
from gnomon.errors import ProblemError


@pytest.mark.parametrize("entries", [1, 8, 4096])
@pytest.mark.parametrize("seed", range(30))
def test_costs_are_those_of_the_model(seed: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_GROUP_ENTRIES", entries)
    monkeypatch.setattr(batch, "_CHUNK", 7)
    model = random_problem(seed, objectives=1 + seed % 3)
    sizes = [len(slot.choices) for slot in model.space.slots]
    rows = np.random.default_rng(seed).integers(0, sizes, (40, len(sizes)))
    expected = model.evaluate(rows)
    for kind in (np.int64, np.uint8):
        found = BatchEvaluator(model).evaluate(rows.astype(kind))
        assert np.array_equal(found, expected) if seed % 2 else np.allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_what_is_no_assignment() -> None:
    model = random_problem(9)
    slots = len(model.space.slots)
    assert slots
    evaluator = BatchEvaluator(model)
    for rows in (np.full((3, slots), 9), np.full((3, slots), -1), np.zeros((3, slots)), np.zeros((3, slots + 1), int)):
        with pytest.raises(ProblemError):
            evaluator.evaluate(rows)
    assert evaluator.evaluate(np.zeros((0, slots), int)).shape == (0, 1)

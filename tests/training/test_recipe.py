"""Recipes: what PyTorch cannot do is told before anything is trained, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.errors import ProblemError
from gnomon.training.recipe import Recipe, check

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SGD = {"type": "SGD", "lr": 0.1}


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [
        (SGD, None),
        ({"type": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True}, {"type": "CosineAnnealingLR", "T_max": 3}),
        (
            {"type": "Adam", "lr": 1e-3, "betas": [0.9, 0.99]},
            {"type": "MultiStepLR", "milestones": [1, 2], "gamma": 0.3},
        ),
        ({"type": "AdamW"}, {"type": "StepLR", "step_size": 2}),
    ],
)
def test_what_pytorch_can_do_is_taken(optimizer: dict[str, Any], scheduler: dict[str, Any] | None) -> None:
    check(Recipe(epochs=3, optimizer=optimizer, scheduler=scheduler))


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [
        ({"type": "Sgd", "lr": 0.1}, "not one of .*Adam.*SGD"),
        ({"lr": 0.1}, "not one of"),
        ({"type": "lr_scheduler"}, "not one of"),
        ({"type": "SGD", "rate": 0.1}, "refuses it.*rate"),
        ({"type": "SGD", "lr": -1}, "refuses it: Invalid learning rate"),
        ({"type": "SGD", "lr": float("nan")}, "not a number"),
        ({"type": "SGD", "lr": print}, "not a number"),
        ({"type": "LBFGS"}, "refuses it.*closure"),
    ],
)
def test_an_optimiser_that_cannot_be_is_refused(optimizer: dict[str, Any], told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        check(Recipe(epochs=1, optimizer=optimizer))


def test_the_keys_that_a_recipe_was_read_from_are_named() -> None:
    for optimizer, scheduler, told in (
        ({"type": "Sgd"}, None, "of.train.type: 'Sgd' is not one of"),
        ({"type": "SGD", "lr": -1}, None, "of.train: PyTorch refuses it"),
        (SGD, {"type": "StepLR"}, "at.rate: PyTorch refuses it.*step_size"),
    ):
        with pytest.raises(ProblemError, match=told):
            check(Recipe(epochs=1, optimizer=optimizer, scheduler=scheduler), optimizer="of.train", scheduler="at.rate")


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        ({"type": "Cosine"}, "not one of .*CosineAnnealingLR"),
        ({"type": "CosineAnnealingLR"}, "refuses it.*T_max"),
        ({"type": "StepLR", "step_size": 0}, "refuses it"),
        ({"type": "LambdaLR", "lr_lambda": abs}, "not a number"),
        ({"type": "ReduceLROnPlateau"}, "refuses it.*metrics"),
    ],
)
def test_a_scheduler_that_cannot_be_is_refused(scheduler: dict[str, Any], told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        check(Recipe(epochs=1, optimizer=SGD, scheduler=scheduler))


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = Recipe(
        epochs=0,
        optimizer={"type": "SDG"},
        scheduler={"type": "Steps", "size": 1},
    )
    with pytest.raises(ProblemError) as told:
        check(wrong)
    for place in ("epochs:", "optimizer.type:", "scheduler.type:"):
        assert place in told.value.message


def test_a_check_leaves_the_global_random_numbers() -> None:
    before = torch.random.get_rng_state()
    check(Recipe(epochs=1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_list_that_is_nested_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ProblemError, match="recipe"):
        check(Recipe(epochs=1, optimizer={"type": "SGD", "lr": deep}))

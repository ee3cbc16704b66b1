"""Plans: which networks are trained, from what, for how long; and what goes on from what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_images
from tests.jobs.space.kits.studykit import made, study

from gnomon.jobs.space.profiling.folder import AccuracyRow
from gnomon.jobs.space.profiling.images import open_images
from gnomon.jobs.space.profiling.methods import plan, recipes
from gnomon.jobs.space.profiling.study import Study
from gnomon.jobs.space.profiling.training import OpenProfile, Trainer, Training, TrainRequest, train, weights_path
from gnomon.measure.progress import Steps
from gnomon.session.request import MeasureRequest
from gnomon.spaces.cells.space import state_prefix
from gnomon.training.data.dataset import Dataset
from gnomon.training.loop import Trained
from gnomon.training.recipe import Recipe

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

RECIPES = FIRST, FINETUNE = Recipe(epochs=4), Recipe(epochs=2)


def row(one: Training, *, reason: str = "", validation: float | None = None) -> AccuracyRow:
    """A row: the larger its indices, the more accurate a network is, unless it is told."""
    value = sum(one.network.assignment) / 100 + 0.5 if validation is None else validation
    return AccuracyRow(
        key=one.key,
        network=one.network.id,
        primitives=one.network.primitives,
        method=one.method,
        stage=one.stage,
        seed=one.seed,
        epochs=one.recipe.epochs,
        validation=value,
        reason=reason,
    )


def keep_weights(folder: Path, one: Training, state: Mapping[str, Any]) -> None:
    """Weights of a training as the profile in a folder keeps them."""
    from gnomon.training.loop import write_state

    path = weights_path(folder / "p", one)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_state(path, dict(state))


def test_published_trains_defaults_then_tunes_each_swap_from_the_default_of_its_family() -> None:
    one = study()
    first, second = plan("published", one, RECIPES)
    defaults = {family.name: family.swaps()[0] for family in one.families.values()}
    assert [t.network for t in first] == list(defaults.values())
    assert all((t.recipe, t.begins_with) == (FIRST, None) for t in first)
    swaps = [n for family in one.families.values() for n in family.swaps()[1:]]
    assert [t.network for t in second] == swaps
    assert all(t.recipe == FINETUNE and t.begins_with is not None for t in second)
    assert all(t.begins_with.network == defaults[t.network.family] for t in second if t.begins_with)


def test_published_leaves_a_family_out_whose_default_failed(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed: pip install '.[space]'")
    one = study()
    profile = opened(tmp_path, one)
    first, second = plan("published", one, RECIPES)
    for default in first:
        profile.folder.add(row(default, reason="memory: too little" if default.network.family == "VGG" else ""))
        state = {f"{state_prefix(tag)}weight": np.zeros(3, np.float32) for tag in one.tagged(default.network).tags}
        keep_weights(tmp_path, default, state)
    assert isinstance(profile.data, Dataset)
    trainer = Trainer(profile=profile, images=profile.data)
    trainer.round(second, cast("Any", OneAfterAnother()), Steps("networks trained", None))
    tuned = [found.network for found in profile.folder.accuracy.values() if found.stage == "finetune"]
    assert {name.split("_")[0] for name in tuned} == {"Mobile"}
    profile.folder.close()


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_fair_trains_each_alike_from_the_same_seeds(seeds: int) -> None:
    one = study()
    (wanted,) = plan("fair", one, RECIPES, seeds=seeds, seed=7)
    defaults = {family.swaps()[0].id for family in one.families.values()}
    for network, often in Counter(t.network.id for t in wanted).items():
        assert often == (max(3, seeds) if network in defaults else seeds)
    for network in {t.network.id for t in wanted}:
        mine = [t for t in wanted if t.network.id == network]
        assert [t.seed for t in mine] == list(range(7, 7 + len(mine)))
    assert all((t.recipe, t.begins_with) == (FIRST, None) for t in wanted)
    assert len({t.key for t in wanted}) == len(wanted)


@pytest.mark.parametrize(("networks", "seeds"), [(None, 1), (5, 1), (7, 4)])
def test_balanced_has_each_primitive_equally_often(networks: int | None, seeds: int) -> None:
    one = study()
    (wanted,) = plan("balanced", one, RECIPES, networks=networks, seeds=seeds)
    for name, family in one.families.items():
        mine = [t.network for t in wanted if t.network.family == name and t.seed == 0]
        assert len(mine) == (networks or len(family.swaps()))
        for group in range(2):
            often = Counter(n.assignment[group] for n in mine)
            assert max(often.values()) - min(often.values()) <= 1
            assert len(often) == len(family.primitives)
    again = Counter(t.network.id for t in wanted if t.network.family == "VGG")
    assert max(again.values()) >= 3, "one network of each family tells the noise"


@pytest.mark.parametrize("name", ["published", "fair", "balanced"])
def test_another_number_of_epochs_is_another_training(name: str) -> None:
    keys = []
    for epochs in (4, 5):
        recipe = Recipe(epochs=epochs)
        found = plan(name, study(), (recipe, recipe))
        keys.append({t.key for wanted in found for t in wanted})
    assert not keys[0] & keys[1]


def test_recipes_are_the_configs_and_epochs_end_a_schedule_that_has_an_end() -> None:
    own = CONFIG.replace(
        "first_train_scheduler_cfg: null", "first_train_scheduler_cfg: {type: CosineAnnealingLR, T_max: 20}"
    )
    first, finetune = recipes(study(own))
    assert (first.epochs, first.optimizer["lr"], first.batch_size) == (2, 0.1, 16)
    assert (finetune.epochs, finetune.optimizer["lr"], finetune.scheduler) == (1, 0.05, None)
    longer, same = recipes(study(own), epochs=9)
    assert longer.epochs == 9 and longer.scheduler == {"type": "CosineAnnealingLR", "T_max": 9}
    assert same == finetune
    assert first.scheduler == {"type": "CosineAnnealingLR", "T_max": 20}


def opened(folder: Path, one: Study) -> OpenProfile:
    data = open_images(one.config.gnomon, write_images(folder), classes=3)
    asked = TrainRequest(request=MeasureRequest(), workers=1)
    return OpenProfile(
        asked=asked, folder=made(folder / "p", one), study=one, data=data, watch=None, tell=lambda sentence: None
    )


def test_a_swap_begins_with_the_weights_it_shares_with_the_default_and_no_others(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")

    one = study()
    profile = opened(tmp_path, one)
    assert isinstance(profile.data, Dataset)
    trainer = Trainer(profile=profile, images=profile.data)
    first, second = plan("published", one, RECIPES)
    for default in first:
        tags = one.tagged(default.network).tags
        state = {f"{state_prefix(tag)}weight": np.full(3, k, np.float32) for k, tag in enumerate(tags)}
        keep_weights(tmp_path, default, state)
    for training in second:
        assert training.begins_with is not None
        init = trainer.job(training).init
        assert init is not None
        own, its = (set(map(state_prefix, one.tagged(t.network).tags)) for t in (training, training.begins_with))
        assert {name.removesuffix("weight") for name in init} == own & its
        changed = next(
            g for g in range(2) if training.network.assignment[g] != training.begins_with.network.assignment[g]
        )
        assert not any(name.startswith(f"l{changed}.") for name in init)
        assert any(name.startswith(f"l{1 - changed}.") for name in init) and any(n.startswith("head.") for n in init)
    assert all(trainer.job(training).init is None for training in first)
    profile.folder.close()


class OneAfterAnother:
    """Workers whose trainings all end alike."""

    def run_all(self, work: Any, jobs: Mapping[str, Any]) -> Iterator[tuple[str, Trained]]:
        for key in jobs:
            yield key, Trained(state={"w": np.zeros(1 << 18, np.float32)}, accuracies=(0.5,), epochs=1, seconds=14.0)


def test_what_all_trainings_cost_is_said_after_the_first(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed: pip install '.[space]'")
    one, told = study(), list[str]()
    profile = replace(opened(tmp_path, one), asked=TrainRequest(request=MeasureRequest(), workers=2), tell=told.append)
    assert isinstance(profile.data, Dataset)
    trainer = Trainer(profile=profile, images=profile.data, expected=38, models=70)
    for trainings in plan("fair", one, RECIPES):
        trainer.round(trainings, cast("Any", OneAfterAnother()), Steps("networks trained", None))
    profile.folder.close()
    assert told == [
        "38 trainings of about 14 s each on 2 workers: 4 min 26 s; "
        "the weights and 70 models take about 108 MiB of disk space"
    ]


@pytest.mark.slow
def test_what_failed_is_tried_again_unless_it_diverged(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
    one = study(CONFIG.replace("VGGblock_2, Mobileblock_0, Mobileblock_1", "VGGblock_2"))
    profile = opened(tmp_path, one)
    short = recipes(one, epochs=1)
    (wanted,) = plan("fair", one, short)
    for number, training in enumerate(wanted[:3]):
        reason = "wrong-output: the loss is not finite" if number == 0 else "memory: too little"
        profile.folder.add(row(training, reason=reason))
    train(profile, plan("fair", one, short))
    found = profile.folder.accuracy
    assert [bool(found[t.key].reason) for t in wanted[:3]] == [True, False, False]
    assert all(not found[t.key].reason for t in wanted[1:])
    profile.folder.close()

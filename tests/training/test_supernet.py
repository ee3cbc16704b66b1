"""Shared weights: what is drawn, what is learnt, and that a network's accuracy is its own."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.training.trainkit import CLASSES, LAYOUT, PRIMITIVES, data, net, shapes, space

from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.cell_space import CellLayout, CellSpace, tagged_net
from gnomon.spaces.primitives import Primitive
from gnomon.spaces.symbol import Symbol
from gnomon.spaces.weights import shared
from gnomon.training import Epoch, Recipe, state_of
from gnomon.training.batches import feed
from gnomon.training.evaluation import evaluate, recalibrate_statistics
from gnomon.training.paths import path_space
from gnomon.training.supernet import SupernetJob, fair_paths, train_supernet
from gnomon.training.torch_net import build, generator

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

VGG = space("VGGblock_1", "VGGblock_2", "VGGblock_3")
MOBILE = space("Mobileblock_0", "Mobileblock_1")


def job(epochs: int = 2, *, lr: float = 0.05, spaces: tuple[CellSpace, ...] = (VGG, MOBILE)) -> SupernetJob:
    recipe = Recipe(
        epochs=epochs,
        optimizer={"type": "SGD", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4},
        scheduler={"type": "CosineAnnealingLR", "T_max": epochs},
        batch_size=32,
    )
    return SupernetJob(spaces=spaces, recipe=recipe, data=data(), seed=2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_a_step_has_each_choice_once_or_as_evenly_as_may_be(counts: list[int], seed: int) -> None:
    paths = fair_paths(counts, generator(seed))
    assert len(paths) == max(counts)
    for slot, count in enumerate(counts):
        seen = np.bincount([path[slot] for path in paths], minlength=count)
        assert len(seen) == count and seen.max() - seen.min() <= 1
    assert paths == fair_paths(counts, generator(seed))


def test_networks_put_together_are_those_of_the_space() -> None:
    """Of groups with different counts, sizes that halve unevenly, a block without a layer, and one with dead ends."""

    def nothing(x: Symbol, channels: int, stride: int) -> Symbol:
        return x

    def dead(x: Symbol, channels: int, stride: int) -> Symbol:
        y = x.conv(channels, 3, stride=stride)
        y.relu()
        return y

    own = [Primitive(family="Own", number=k, block=block) for k, block in enumerate((nothing, dead))]
    layout = CellLayout(
        input_shape=(1, 1, 13, 13), groups=(0, 0, 1, 2), widths=(8, 8, 8, 8), reduces=frozenset({1, 2}), classes=4
    )
    known = [PRIMITIVES[name] for name in ("VGGblock_2", "Mobileblock_1", "Resblock_3")]
    first = (known[1], own[1])  # the first layer has 1 channel in, so that it cannot be left out
    uneven = CellSpace(name="u", layout=layout, choices=(first, (*known, own[1]), (*known[:2],)))
    even = CellSpace(
        name="e",
        layout=dataclasses.replace(layout, groups=(0, 1, 2, 3), reduces=frozenset({2})),
        choices=((known[0],), (own[0], known[2]), (known[0], own[1]), (own[0], known[1])),
    )
    for one in (uneven, even):
        sent = path_space(one)
        for path in itertools.product(*map(range, sent.counts)):
            assert sent.tagged(path) == one.tagged(path)


def test_paths_are_uniform() -> None:
    """A chi-square of 9 cells over 900 steps of 3 networks; 8 degrees of freedom, far in the tail."""
    random, seen = generator("uniform"), np.zeros((3, 3))
    for _ in range(900):
        for path in fair_paths([3, 3], random):
            seen[path] += 1
    assert ((seen - 300) ** 2 / 300).sum() < 40


def test_a_supernet_learns_all_of_its_networks_above_chance() -> None:
    made = train_supernet(job(12, lr=0.2))
    assert made.failure is None and made.state is not None and len(made.history) == 12
    assert made.history[-1].loss < made.history[0].loss
    for one, path in ((VGG, (0, 0, 0)), (VGG, (2, 1, 0)), (VGG, (1, 2, 2)), (MOBILE, (0, 1, 0)), (MOBILE, (1, 1, 1))):
        before = {name: array.copy() for name, array in made.state.items()}
        correct = evaluate(made.state, one.tagged(path), shapes())
        assert correct.shape == (len(shapes().validation),)
        assert correct.mean() > 1 / CLASSES + 0.3  # six standard deviations of guessing on 81 images
        assert all(np.array_equal(before[name], array) for name, array in made.state.items())


def test_statistics_are_the_networks_own() -> None:
    """With the statistics of a pool that are made useless, a network is right only after recalibration."""
    made = train_supernet(job(12, lr=0.2, spaces=(VGG,)))
    assert made.state is not None
    spoilt = {
        name: (array + 50).astype(np.float32) if name.endswith(".mean") else array for name, array in made.state.items()
    }
    tagged = VGG.tagged((1, 0, 2))
    assert evaluate(spoilt, tagged, shapes()).mean() == evaluate(made.state, tagged, shapes()).mean()
    assert evaluate(spoilt, tagged, shapes(), recalibrate=0).mean() < evaluate(made.state, tagged, shapes()).mean()


def test_recalibration_takes_the_mean_over_its_batches() -> None:
    tagged = net("VGGblock_1")
    module = build(tagged, None, seed=0)
    state = state_of(module)
    seen: list[NDArray[np.float32]] = []
    norm = module.by_tag["l0/VGGblock_1/1"]
    norm.register_forward_pre_hook(lambda _, x: seen.append(x[0].detach().mean((0, 2, 3)).numpy()))
    rows = np.random.default_rng(0).permutation(len(shapes().train))[: 3 * 64]
    source = feed(shapes(), shapes().train.take(rows), "cpu")
    recalibrate_statistics(module, source, Recipe(epochs=1, batch_size=64), 0)
    after = state_of(module)
    assert len(seen) == 3
    assert after["l0/VGGblock_1/1.mean"] == pytest.approx(np.mean(seen, axis=0), abs=1e-6)
    assert all(np.array_equal(after[name], array) for name, array in state.items() if name.endswith(".w"))
    assert norm.momentum == 0.1


class Killed(Exception):
    pass


def kill(row: Epoch) -> None:
    raise Killed


def test_a_supernet_goes_on_from_its_file_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "super.pt"
    with pytest.raises(Killed):
        train_supernet(job(3), partial=path, on_epoch=kill)
    again, whole = train_supernet(job(3), partial=path), train_supernet(job(3))
    assert again.notes == () and again.state is not None and whole.state is not None
    assert all(np.array_equal(again.state[name], array) for name, array in whole.state.items())
    assert [(row.loss, row.accuracy) for row in again.history] == [(row.loss, row.accuracy) for row in whole.history]
    other = train_supernet(dataclasses.replace(job(1), seed=7), partial=path)
    assert "another training" in other.notes[0]


def test_a_pool_has_all_primitives_at_all_places_and_begins_as_networks_do() -> None:
    made = train_supernet(job(1, lr=1e-12))
    assert made.state is not None
    for one, path in ((VGG, (2, 0, 1)), (MOBILE, (1, 0, 1))):
        fresh = state_of(build(one.tagged(path), None, seed=2))
        own = shared(made.state, one.tagged(path))
        assert own.keys() == fresh.keys()
        assert all(own[name] == pytest.approx(fresh[name], abs=1e-6) for name in fresh if name.endswith(".w"))


def test_divergence_is_data() -> None:
    made = train_supernet(job(1, lr=1e30))
    assert made.state is None and made.failure is not None and "diverged" in made.failure.message


def test_spaces_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    wide = CellLayout(**{**{f: getattr(LAYOUT, f) for f in LAYOUT.__slots__}, "widths": (8, 8, 8)})
    other = CellSpace(name="o", layout=wide, choices=VGG.choices)
    with pytest.raises(ProblemError, match="one layout"):
        job(spaces=(VGG, other))
    with pytest.raises(ProblemError, match="one layout"):
        job(spaces=())
    false = dataclasses.replace(PRIMITIVES["VGGblock_1"], block=PRIMITIVES["VGGblock_3"].block)
    twin = CellSpace(name="t", layout=LAYOUT, choices=((false,),) * 3)
    with pytest.raises(ProblemError, match="two primitives"):
        job(spaces=(VGG, twin))
    with pytest.raises(ProblemError, match="4 classes"):
        few = CellLayout(**{**{f: getattr(LAYOUT, f) for f in LAYOUT.__slots__}, "classes": 3})
        train_supernet(job(spaces=(CellSpace(name="f", layout=few, choices=VGG.choices),)))
    with pytest.raises(UsageError, match="device"):
        train_supernet(dataclasses.replace(job(), device="tpu"))
    with pytest.raises(UsageError, match="folder"):
        train_supernet(job(), partial=tmp_path / "no" / "p.pt")


def test_a_network_that_the_pool_lacks_is_refused() -> None:
    pool = state_of(build(net("VGGblock_1"), None, seed=0))
    with pytest.raises(ProblemError, match=r"no parameters l0/Resblock_1/0"):
        evaluate(pool, tagged_net(LAYOUT, [PRIMITIVES["Resblock_1"]] * 3), shapes())

"""What is believed of accuracies: the last stage counts, failed ones are out, noise is told, rankings beat raw rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import study, trained

from gnomon.errors import UsageError
from gnomon.jobs.space.profiling.estimates import accuracy_effects, method_of, ranking, seen_networks, training_noise
from gnomon.jobs.space.profiling.folder import AccuracyRow
from gnomon.jobs.space.profiling.study import Network, Study

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

VGG = "[VGGblock_0, VGGblock_1, VGGblock_2, VGGblock_3, VGGblock_4]"
FOUR = (
    CONFIG.replace("[VGGblock_0, VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1]", VGG)
    .replace("num_cell_groups: 2", "num_cell_groups: 4")
    .replace("cell_layout: [0, 1]", "cell_layout: [0, 1, 2, 3]")
    .replace("{C_in: 4, C_out: 8}", "{C_in: 4, C_out: 8}, {C_in: 8, C_out: 8}, {C_in: 8, C_out: 8}")
)


@pytest.fixture(scope="module")
def four() -> Study:
    """One family of five primitives in four cell groups: 17 one-change variants."""
    return study(FOUR)


def network(one: Study, *names: str) -> Network:
    return one.mixed([f"VGGblock_{name}" for name in names])


def test_of_a_networks_stages_the_last_counts_and_failed_ones_do_not() -> None:
    one = study()
    a, b, c, d = (network(one, *names) for names in ("00", "01", "02", "12"))
    rows = [
        trained(a, 0.5, epochs=1),
        trained(a, 0.7, epochs=4),
        trained(a, 0.6, epochs=2),
        trained(b, 0.9, reason="wrong-output: the loss is not finite"),
        trained(c, 0.4, epochs=1),
        trained(c, 0.1, epochs=2, reason="crash: it ended"),
        trained(d, None),
        trained(d, 0.8, method="published"),
    ]
    seen = seen_networks(one, rows, "fair")
    assert {name: s.accuracy for name, s in seen.items()} == {a.id: 0.7, c.id: 0.4}
    assert all(s.trainings == 1 and s.network.id == name for name, s in seen.items())


def test_the_error_is_of_the_seed_and_of_the_images() -> None:
    one = study()
    a, b = network(one, "0", "0"), network(one, "0", "1")
    rows = [trained(a, value, seed=k, images=100) for k, value in enumerate((0.6, 0.7, 0.8))]
    seen = seen_networks(one, [*rows, trained(b, 0.5, images=100)], "fair")
    assert seen[a.id].accuracy == pytest.approx(0.7)
    assert seen[a.id].error == pytest.approx(math.hypot(math.sqrt(0.7 * 0.3 / 100), 0.1 / math.sqrt(3)))
    assert seen[b.id].error == pytest.approx(math.hypot(0.05, 0.1))
    alone = seen_networks(one, [trained(b, 0.5, images=0)], "fair")[b.id]
    assert 0.5 < alone.error < 0.51, "no images say nothing"


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=6))
def test_noise_is_pooled_over_networks_with_several_seeds(values: list[list[float]]) -> None:
    rows = []
    for k, ones in enumerate(values):
        net = Network(id=f"VGG_{k}", family="VGG", assignment=(k,), primitives=(f"VGGblock_{k}",))
        for seed, value in enumerate(ones):
            # What came before in the same training says nothing of the seed, nor does what failed.
            rows += [trained(net, 0.0, seed=seed, epochs=1), trained(net, value, seed=seed, epochs=2)]
            rows.append(trained(net, 0.5, seed=seed + 100, reason="crash: it ended"))
    again = [ones for ones in values if len(ones) > 1]
    if not again:
        assert training_noise(rows) is None
        return
    degrees = sum(len(ones) - 1 for ones in again)
    by_hand = math.sqrt(sum(float(np.var(ones, ddof=1)) * (len(ones) - 1) for ones in again) / degrees)
    assert training_noise(rows) == pytest.approx(by_hand, abs=1e-12)


def test_the_method_is_the_wanted_one_or_the_first_with_an_accuracy() -> None:
    one = study()
    a = network(one, "0", "0")
    rows = [
        trained(a, None, method="balanced", reason="crash: it ended"),
        trained(a, 0.2, method="balanced", reason="wrong-output: the loss is not finite"),
        trained(a, 0.5, method="published"),
        trained(a, 0.5, method="fair"),
    ]
    assert method_of(rows, None) == "fair"
    assert method_of(rows, "published") == "published"
    for wanted in ("balanced", "halving"):
        with pytest.raises(UsageError, match=wanted) as told:
            method_of(rows, wanted)
        assert "fair, published" in told.value.hint
    with pytest.raises(UsageError, match="no network was trained") as told:
        method_of(rows[:2], None)
    assert "gnomon space profile" in told.value.hint


def without_noise(nets: list[Network], rng: np.random.Generator) -> list[AccuracyRow]:
    """Rows of these networks, the first from three seeds: a primitive is about as good in every group."""
    effects = rng.standard_normal(5) * 0.25 + rng.standard_normal((4, 5)) * 0.1
    rows = []
    for number, net in enumerate(nets):
        value = float(1 / (1 + np.exp(-1 - sum(effects[g, k] for g, k in enumerate(net.assignment)))))
        rows += [trained(net, value, seed=seed, images=10**7) for seed in range(3 if number == 0 else 1)]
    return rows


def test_repeatability_is_near_0_for_noise_and_near_1_without_any(four: Study) -> None:
    family, rng = four.families["VGG"], np.random.default_rng(3)
    swaps = list(family.swaps())
    noise = [trained(n, 0.7 + 0.05 * float(rng.standard_normal()), images=10**7) for n in swaps]
    noise += [trained(swaps[0], 0.7 + 0.05 * float(rng.standard_normal()), seed=k, images=10**7) for k in (1, 2, 3)]
    told = {}
    for name, rows in (("noise", noise), ("none", without_noise(swaps, rng))):
        found = ranking(family, seen_networks(four, rows, "fair"), "fair", training_noise(rows))
        assert found is not None
        told[name] = found.repeatability
        assert found.trainings == len(rows) and [*found.networks] == sorted(found.networks, key=lambda n: -n.accuracy)
        assert all(net.low <= net.accuracy <= net.high for net in found.networks)
    assert abs(told["noise"]) < 0.35
    assert told["none"] > 0.9


def test_a_family_without_trained_networks_has_no_ranking() -> None:
    one = study()
    seen = seen_networks(one, [trained(network(one, "0", "1"), 0.5)], "fair")
    assert ranking(one.families["Mobile"], seen, "fair", None) is None
    found = ranking(one.families["VGG"], seen, "fair", None)
    assert found is not None and len(found.networks) == 5
    across = trained(one.mixed(["VGGblock_0", "Mobileblock_0"]), 0.5)
    assert accuracy_effects(one.families["VGG"], seen_networks(one, [across], "fair")) is None

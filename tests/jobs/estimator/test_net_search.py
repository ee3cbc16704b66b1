"""The best nets within a bound: against looking at every net, with states, scores of every kind, and no net at all."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.estimator.estimator_kit import kit, measured

from gnomon.core.front.front import exact_front
from gnomon.errors import GnomonError, InfeasibleError, ProblemError, UsageError
from gnomon.estimate.columns import Unknown
from gnomon.jobs.estimator.job import SpaceEstimator, described, fit_estimator
from gnomon.jobs.estimator.scores import AdditiveScores, FunctionScores, additive, load_scores
from gnomon.jobs.estimator.search import Wanted, chain_model, search_nets
from gnomon.spaces.loading import draw


def fitted(folder: Path) -> SpaceEstimator:
    found, _, _ = kit(folder)
    return fit_estimator(found, measured(found, 15, noise=0.02))


def random_scores(made: SpaceEstimator, seed: int = 0) -> AdditiveScores:
    rng = np.random.default_rng(seed)
    slots = made.described.space.space.slots
    return additive(made.described.tables, {s.name: {c: float(rng.normal()) for c in s.choices} for s in slots})


def everything(made: SpaceEstimator) -> np.ndarray:
    tables = made.described.tables
    return draw(tables, tables.nets(), seed=0)


def middle(made: SpaceEstimator, share: float = 0.5) -> float:
    return float(np.quantile(made.mean_s(everything(made)), share))


def test_scores_that_add_up_leave_out_slots_that_make_no_difference(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    space, tables, scores = made.described.space.space, made.described.tables, random_scores(made)
    nets = np.array(list(itertools.product(*(range(len(slot.choices)) for slot in space.slots))))
    names = [slot.name for slot in space.slots]
    depth = nets[:, names.index("s.depth")]
    expected = np.zeros(len(nets))
    for slot, name in enumerate(names):
        counts = {"s0": depth > 0, "s1": depth > 1}.get(name, np.full(len(nets), True))
        expected += np.where(counts, scores.parts[slot][nets[:, slot]], 0.0)
    np.testing.assert_allclose(scores.of(nets), expected)
    np.testing.assert_allclose(scores.of(tables.canonical(nets)), expected)


@pytest.mark.parametrize("seed", range(3))
def test_the_chain_costs_what_the_estimator_says_and_loses_what_scores_say(tmp_path: Path, seed: int) -> None:
    made = fitted(tmp_path)
    scores, tables = random_scores(made, seed), made.described.tables
    model, keys = chain_model(tables, scores, made.estimator.coefficients.mean[2:])
    front = exact_front(model)
    assert front.certificate.kind == "exact"
    nets = everything(made)
    value, time = scores.of(nets), made.mean_s(nets)
    kept = [
        (v, t)
        for v, t in zip(value, time, strict=True)
        if not ((value >= v) & (time <= t) & ((value > v) | (time < t))).any()
    ]
    assert len(front) == len(kept)
    base = made.estimator.coefficients.mean[:2].sum()
    np.testing.assert_allclose(np.sort(front.costs[:, 1] + base), sorted(t for _, t in kept))
    np.testing.assert_allclose(np.diff(np.sort(front.costs[:, 0])), np.diff(sorted(-v for v, _ in kept)), atol=1e-12)
    assert len(keys) == len(tables.steps)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_exact_and_whole_are_as_looking_at_every_net(tmp_path: Path, seed: int, share: float) -> None:
    made = fitted(tmp_path)
    scores, bound = random_scores(made, seed), middle(made, share)
    nets = everything(made)
    meets = made.probability(nets, bound) >= 0.8
    best = scores.of(nets)[meets].max()
    whole = search_nets(made, scores, Wanted(bound_s=bound, confidence=0.8))
    exact = search_nets(made, scores, Wanted(bound_s=bound, confidence=0.8), method="exact")
    assert whole.evaluations == 84
    assert whole.nets[0].score == pytest.approx(best)
    assert whole.most_score == whole.nets[0].score
    assert exact.most_score is not None
    # The front is of expected times: it may miss a net that is known better, but never by more than it says.
    assert exact.nets[0].score <= best + 1e-12 <= exact.most_score + 2e-12
    for found in (whole, exact):
        told = [net.score for net in found.nets]
        assert told == sorted(told, reverse=True)
        assert min(net.probability for net in found.nets) >= 0.8 - 1e-9
        assert len({net.assignment for net in found.nets}) == len(found.nets) <= 10


def test_evolution_comes_near_the_best_of_a_space_that_nobody_can_list() -> None:
    found = described(None, "mobilenetv2-cifar10")
    made = fit_estimator(found, measured(found, 60))
    scores = random_scores(made)
    bound = float(np.median(made.mean_s(draw(found.tables, 200, seed=0), unknown=Unknown.WIDEN)))
    wanted = Wanted(bound_s=bound, confidence=0.7)
    exact = search_nets(made, scores, wanted, method="exact")
    drawn = scores.of(draw(found.tables, 4000, seed=1))
    evolved = search_nets(made, scores, wanted, evaluations=4000, seed=1)
    assert exact.most_score is not None
    assert evolved.nets[0].score <= exact.most_score + 1e-9
    assert evolved.nets[0].score > drawn.max()
    assert evolved.nets[0].score > 0.85 * exact.nets[0].score
    assert evolved.most_score is None
    assert evolved.evaluations <= 4000
    again = search_nets(made, scores, wanted, evaluations=4000, seed=1)
    assert again == evolved
    assert search_nets(made, scores, wanted, evaluations=4000, seed=2).nets != evolved.nets


def test_a_function_of_the_net_is_called_once_a_net_with_names(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    seen = []

    def score(net: dict[str, str]) -> float:
        seen.append(tuple(net.values()))
        assert set(net) == {slot.name for slot in made.described.space.space.slots}
        return -np.inf if net["a"] == "wide" else len(net["b"]) + 0.1 * int(net["s.depth"])

    scores = FunctionScores(space=made.described.space.space, function=score)
    found = search_nets(made, scores, Wanted(bound_s=1.0, nets=84))
    assert len(seen) == len(set(seen)) == 84
    assert len(found.nets) == 56
    assert found.nets[0].score == pytest.approx(2.2)
    with pytest.raises(UsageError, match="needs scores that add up"):
        search_nets(made, scores, Wanted(bound_s=1.0), method="exact")


def test_a_bound_that_no_net_meets_tells_the_fastest(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    fastest = made.mean_s(everything(made)).min()
    for method in ("evolution", "exact"):
        with pytest.raises(InfeasibleError, match=f"the fastest is expected to take {fastest:.4g} s"):
            search_nets(made, random_scores(made), Wanted(bound_s=float(fastest) / 3), method=method)


def test_more_confidence_never_finds_a_better_net(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    best = [
        search_nets(made, random_scores(made), Wanted(bound_s=middle(made), confidence=c)).nets[0].score
        for c in (0.3, 0.6, 0.9, 0.99)
    ]
    assert best == sorted(best, reverse=True)


@pytest.mark.parametrize(
    "wanted", [{"bound_s": 0.0}, {"bound_s": np.nan}, {"bound_s": 1.0, "confidence": 1.0}, {"bound_s": 1.0, "nets": 0}]
)
def test_what_cannot_be_wanted(wanted: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Wanted(**wanted)  # type: ignore[arg-type]


def test_units_that_nothing_is_known_of_make_a_net_doubtful_but_end_no_search(tmp_path: Path) -> None:
    found, _, _ = kit(tmp_path, lacking=True)
    made = fit_estimator(found, ())
    scores = additive(found.tables, {"b": {"k1": 0.0, "k5": 1.0}})
    bound = float(made.predict(everything(made), unknown=Unknown.WIDEN).high_s.max()) / 3
    nets = search_nets(made, scores, Wanted(bound_s=bound, nets=84)).nets
    assert all(net.probability >= 0.9 for net in nets)


def test_a_learner_that_is_not_linear_has_no_exact_search(tmp_path: Path) -> None:
    made = fitted(tmp_path)
    odd = replace(made, estimator=replace(made.estimator, residual=object()))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="residual learner"):
        search_nets(odd, random_scores(made), Wanted(bound_s=1.0), method="exact")
    with pytest.raises(UsageError, match="residual learner"):
        odd.relaxed()


GOOD = {"b": {"k1": 1.0, "k5": 2}}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("s.csv", "slot,choice,score\nb,k1,1\n", "lack the choice 'k5'"),
        ("s.csv", "slot,choice,score\nb,k1,1\nb,k5,2\nb,k9,2\n", "name the choice 'k9'"),
        ("s.csv", "slot,choice,score\nbee,k1,1\n", "a slot 'bee', which the space does not have"),
        ("s.csv", "slot,choice\nb,k1\n", "lack a column"),
        ("s.csv", "slot,choice,score,score\n", "lack a column"),
        ("s.csv", "", "lack a column"),
        ("s.csv", "slot,choice,score\nb,k1,one\n", "line 2: 'one' is not a score"),
        ("s.csv", "slot,choice,score\nb,k1,nan\nb,k5,1\n", "not finite"),
        ("s.csv", "slot,choice,score\nb,k1\n", "line 2: 2 columns"),
        ("s.csv", "slot,choice,score\nb,k1,1\nb,k1,2\n", "b, k1 is there twice"),
        ("s.csv", "slot,choice,score\n" + "x" * 300 + ",k1,1\n", "which the space does not have"),
        ("s.json", '{"b": {"k1": "1", "k5": 2}}', "a number expected"),
        ("s.json", '{"b": {"k1": 1, "k1": 2}}', "twice"),
        ("s.json", '{"b": [1, 2]}', "an object expected"),
        ("s.json", '{"b": {"k1": 1' + "0" * 400 + ', "k5": 2}}', "not finite"),
    ],
)
def test_scores_that_are_malformed_are_told(tmp_path: Path, name: str, text: str, told: str) -> None:
    tables = kit(tmp_path)[0].tables
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ProblemError, match=told) as error:
        load_scores(str(tmp_path / name), tables)
    assert len(error.value.message) < 300


def test_scores_of_files(tmp_path: Path) -> None:
    tables = kit(tmp_path)[0].tables
    (tmp_path / "s.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (tmp_path / "s.csv").write_text("\ufeffscore, slot,choice\n1.0,b,k1\n\n2,b,k5\n", encoding="utf-8")
    (tmp_path / "e.csv").write_text("score;slot;choice\r\n1,0;b;k1\r\n2;b;k5\r\n;;\r\n", encoding="utf-16")
    (tmp_path / "s.py").write_text("def score(net):\n    return 1 + (net['b'] == 'k5')\nodd = 3\n", encoding="utf-8")
    nets = draw(tables, 84, seed=0)
    first, *others = (
        load_scores(f"{tmp_path}/{name}", tables).of(nets) for name in ("s.json", "s.csv", "e.csv", "s.py:score")
    )
    for other in others:
        np.testing.assert_array_equal(first, other)
    with pytest.raises(UsageError, match="has no 'scores'") as told:
        load_scores(f"{tmp_path}/s.py:scores", tables)
    assert told.value.hint == "Its functions: score."
    with pytest.raises(UsageError, match="is not a function"):
        load_scores(f"{tmp_path}/s.py:odd", tables)
    with pytest.raises(UsageError, match="which function"):
        load_scores(f"{tmp_path}/s.py", tables)
    with pytest.raises(UsageError, match="cannot be read"):
        load_scores(f"{tmp_path}/none.csv", tables)
    with pytest.raises(UsageError, match="there is no file"):
        load_scores(f"{tmp_path}/none.py:score", tables)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("None", "TypeError"),
        ("float('nan')", "is nan"),
        ("float('inf')", "is inf"),
        ("net['nothing']", "KeyError"),
    ],
)
def test_functions_that_give_no_score_are_told(tmp_path: Path, body: str, told: str) -> None:
    tables = kit(tmp_path)[0].tables
    (tmp_path / "s.py").write_text(f"def score(net):\n    return {body}\n", encoding="utf-8")
    with pytest.raises(GnomonError, match=told):
        load_scores(f"{tmp_path}/s.py:score", tables).of(draw(tables, 2, seed=0))

"""Verdicts: the gate's order, bounds that hold together, looks that spend, and power that is as large as told."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from gnomon.core.decision import Looks, Rule, gate_of, joint_bounds
from gnomon.core.stats import Apart, Side, compare_by_turns

RULE = Rule(alpha=0.01, relevant=0.01)
GATE = replace(RULE, limit=0.03)


def apart(ratio: float, error: float, freedom: float = 100.0) -> Apart:
    return Apart(before_s=1.0, after_s=ratio, error=error, freedom=freedom, p=0.5, drift=0.0)


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.99, 1.029, "pass"), (1.016, 1.029, "pass"), (1.016, 1.05, "slower"), (1.01, 1.05, "undecided")],
)
def test_a_gate_passes_first_and_then_fails(low: float, high: float, told: str) -> None:
    assert gate_of(low, high, 0.03) == told


@pytest.mark.parametrize(("ratio", "limit"), [(1.0, None), (1.01, None), (1.03, 0.03)])
@pytest.mark.parametrize("half", [0.006, 0.0075, 0.009])
def test_all_bounds_hold_together_while_some_are_decided(ratio: float, limit: float | None, half: float) -> None:
    """With intervals of the widths at which some configurations are decided and others are not."""
    rng, rule, wrong = np.random.default_rng(5), Rule(alpha=0.1, relevant=0.01, limit=limit), 0
    error = half / NormalDist().inv_cdf(1 - 0.1 / 5 / 2)
    for _ in range(400):
        logs = np.log(ratio) + error * rng.standard_normal(5)
        sides = {f"{k}": (apart(float(np.exp(log)), error, freedom=1e6), True) for k, log in enumerate(logs)}
        wrong += not all(found.low <= ratio <= found.high for found in joint_bounds(sides, rule).values())
    assert wrong <= 56, "10 % and 2.7 standard errors"


def test_two_sessions_are_a_gate_only_where_they_would_find_the_limit() -> None:
    for error, one_session, told in ((0.008, True, "pass"), (0.008, False, "undecided"), (0.003, False, "pass")):
        assert joint_bounds({"a": (apart(1.0, error), one_session)}, GATE)["a"].gate == told
    assert joint_bounds({"a": (apart(2.0, 0.008), False)}, GATE)["a"].gate == "slower"


def test_of_two_turns_nothing_is_seen() -> None:
    told = joint_bounds({"a": (apart(1.0, 1.0, freedom=1.0), True)}, replace(GATE, alpha=1e-4))["a"]
    assert told.gate == "undecided" and told.sees is not None and told.sees > 1e3


def test_looks_spend_the_probability_of_error_once() -> None:
    looks, spent, seen = Looks(60.0), 0.0, []
    for turn in range(1, 61):
        share = looks.share(float(turn), turn)
        assert looks.share(float(turn), turn) == 0.0, "nobody looks twice at once"
        spent += share
        seen += [turn] if share else []
    assert spent == pytest.approx(1.0) and looks.are_over
    assert seen == [6, 8, 15, 30, 60]


def turns(rng: np.random.Generator, count: int, effect: float) -> Apart:
    levels = np.exp(0.01 * rng.standard_normal((2, count)) + 0.05 * rng.standard_normal(count))
    levels[1] *= 1 + effect
    first, second = (Side(levels_s=tuple(one), moments_s=tuple(map(float, range(count)))) for one in levels)
    return compare_by_turns(first, second)


@pytest.mark.parametrize("rule", [RULE, GATE])
def test_the_slow_down_that_would_have_been_seen_is_seen(rule: Rule) -> None:
    """In 95 of 100 measurements, and equal ones are called nothing."""
    rng, found, wrong = np.random.default_rng(2), 0, 0
    for _ in range(400):
        bounds = joint_bounds({"a": (turns(rng, 30, 0.0), True)}, rule)["a"]
        assert bounds.sees is not None
        wrong += bounds.change in ("slower", "faster") or bounds.gate == "slower"
        again = joint_bounds({"a": (turns(rng, 30, bounds.sees), True)}, rule)["a"]
        found += "slower" in (again.change if rule.limit is None else again.gate or "")
    assert wrong <= 8 and 360 <= found <= 396


@pytest.mark.parametrize(("effect", "told", "least"), [(0.0, "unknown same", 393), (0.03, "slower", 380)])
def test_looking_again_and_again_does_not_err_more(effect: float, told: str, least: int) -> None:
    rng, right = np.random.default_rng(3), 0
    for _ in range(400):
        looks, levels = Looks(60.0), np.exp(0.01 * rng.standard_normal((2, 60)))
        levels[1] *= 1 + effect
        for turn in range(1, 61):
            if not (share := looks.share(float(turn), turn)):
                continue
            moments = tuple(map(float, range(turn)))
            sides = (Side(levels_s=tuple(one[:turn]), moments_s=moments) for one in levels)
            look = replace(RULE, alpha=RULE.alpha * share)
            bounds = joint_bounds({"a": (compare_by_turns(*sides), True)}, look)["a"]
            if bounds.is_decided or looks.are_over:
                break
        right += bounds.change in told
    assert right >= least


def test_turns_count_without_their_outer_tenths() -> None:
    """As beside busy neighbours, where one turn in seven is off: intervals are narrower, and as rarely wrong."""
    rng, wrong, narrower = np.random.default_rng(4), 0, 0
    for _ in range(400):
        logs = 0.02 * rng.standard_normal(30) * np.where(rng.random(30) < 0.15, 4, 1)
        levels = np.exp(np.stack([np.zeros(30), logs]))
        first, second = (Side(levels_s=tuple(one), moments_s=tuple(map(float, range(30)))) for one in levels)
        found = compare_by_turns(first, second)
        wrong += found.p < 0.01
        narrower += found.error < 0.9 * logs.std(ddof=1) / 30**0.5
    assert wrong <= 8 and narrower >= 200

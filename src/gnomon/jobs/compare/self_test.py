"""Comparing a model with itself shows the power of comparisons on a machine: how long it takes to find a slow-down.

The turns of such a comparison are resampled into whole comparisons, half of them with one side slower by the limit,
half with equal sides. Each goes through the looks and bounds that end a real comparison, so that right and wrong
results can be counted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from gnomon.core.decision import FEWEST_TURNS, LAST_SHARE, Gate, Looks, Rule, joint_bounds
from gnomon.core.stats import Side, by_turns, compare_by_turns
from gnomon.jobs.compare.document import PairPart, SelfTestPart
from gnomon.jobs.compare.job import levels_of
from gnomon.jobs.compare.sides import Side as Named

_WINDOWS = 100
_TOGETHER = 10
"""The number of consecutive turns that are drawn together, so that effects lasting over several turns are preserved."""
_MOST_TURNS = 100_000


def self_tests(sides: Sequence[Named], pair: PairPart, rule: Rule, budget_s: float) -> tuple[SelfTestPart, ...]:
    """The self-test of each configuration that was measured in turn on two equal sides.

    `rule` is the rule of a gate, and `budget_s` is the time that a comparison with this gate may take.
    """
    rule = replace(rule, alpha=rule.alpha / max(len(pair.configurations), 1))
    tests = []
    for row in pair.configurations:
        samples = (side.configurations[row.label].runs.samples for side in sides)
        first, second = (levels_of(columns, "cpu" if pair.clock == "cpu" else "wall") for columns in samples)
        if by_turns(first, second):
            tests.append(_tested(row.label, first, second, rule, budget_s))
    return tuple(tests)


def _tested(label: str, first: Side, second: Side, rule: Rule, budget_s: float) -> SelfTestPart:
    apart, measured, limit = compare_by_turns(first, second), len(first.levels_s), rule.limit or 0.0
    lasted_s = np.diff(np.minimum(first.moments_s, second.moments_s))
    turn_s = float(lasted_s.mean())
    last = replace(rule, alpha=rule.alpha * LAST_SHARE)

    def sees(turns: int) -> float | None:
        """The slow-down that this many turns can detect, computed as if both sides were equal."""
        more = turns / measured
        freedom = max(apart.freedom * more, 1.0)
        equal = replace(apart, after_s=apart.before_s, error=apart.error / math.sqrt(more), freedom=freedom)
        return joint_bounds({label: (equal, True)}, last)[label].sees

    needed = bisect_left(range(_MOST_TURNS), True, lo=FEWEST_TURNS, key=lambda n: (sees(n) or math.inf) <= limit)
    turns = list(zip(first.levels_s, second.levels_s, (*lasted_s.tolist(), turn_s), strict=True))
    rng = np.random.default_rng(measured)
    planted = [_decided(_drawn(turns, limit, rng), rule, budget_s) for _ in range(_WINDOWS)]
    equal = [_decided(_drawn(turns, 0.0, rng), rule, budget_s) for _ in range(_WINDOWS)]
    return SelfTestPart(
        label=label,
        scatter=apart.error * math.sqrt(measured),
        turn_s=turn_s,
        sees_in_60_s=sees(max(round(60 / turn_s), FEWEST_TURNS)),
        sees_in_300_s=sees(max(round(300 / turn_s), FEWEST_TURNS)),
        needed_s=needed * turn_s if needed < _MOST_TURNS else None,
        budget_s=budget_s,
        windows=_WINDOWS,
        found=planted.count("slower"),
        wrong=equal.count("slower"),
    )


_Turn = tuple[float, float, float]
"""The levels of both sides in a turn, and the turn's duration in seconds."""


def _drawn(turns: Sequence[_Turn], slower: float, rng: np.random.Generator) -> Iterator[_Turn]:
    """Endless turns, with the second side `slower` by this share.

    Both sides measured the same model, so each stretch of turns takes one of them at random as the second.
    """
    while True:
        begin, swapped = rng.integers(len(turns)), rng.integers(2)
        for at in range(begin, begin + _TOGETHER):
            first, second, lasted_s = turns[at % len(turns)]
            first, second = (second, first) if swapped else (first, second)
            yield first, second * (1 + slower), lasted_s


def _decided(turns: Iterator[_Turn], rule: Rule, budget_s: float) -> Gate | None:
    """The verdict of a gate on turns, as soon as it is decided or the budget is used up."""
    looks, used_s = Looks(budget_s), 0.0
    measured: list[_Turn] = []
    for turn in turns:
        measured.append(turn)
        used_s += turn[-1]
        if share := looks.share(used_s, len(measured)):
            first, second, lasted_s = zip(*measured, strict=True)
            moments_s = tuple(accumulate(lasted_s))
            sides = (Side(levels_s=levels_s, moments_s=moments_s) for levels_s in (first, second))
            bounds = joint_bounds({"": (compare_by_turns(*sides), True)}, replace(rule, alpha=rule.alpha * share))[""]
            if looks.are_over or bounds.is_decided:
                return bounds.gate
    raise AssertionError("unreachable")

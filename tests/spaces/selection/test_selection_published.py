"""The published selection: as another reading of the rule says, ties, and tables that are wrong."""

from __future__ import annotations

import heapq
import math
from decimal import Decimal, getcontext
from random import Random

import pytest

from gnomon.errors import ProblemError
from gnomon.spaces.selection.published import (
    Network,
    PublishedRule,
    PublishedSelection,
    select_published,
)

Prices = dict[Network, tuple[float, float]]
Tables = tuple[dict[str, tuple[str, ...]], Prices]


def names(counts: dict[str, int]) -> dict[str, tuple[str, ...]]:
    return {family: tuple(f"{family}block_{i}" for i in range(count)) for family, count in counts.items()}


def random_tables(random: Random) -> Tables:
    """One-change variants of families, some of whose names begin alike; latencies at some scale, some of them tied."""
    groups = random.randint(1, 6)
    counts = {family: random.randint(1, 12) for family in random.sample(["Mobile", "Res", "ResX", "Res_1", "VGG"], 3)}
    scale, coarse = 10 ** random.uniform(-3, 4), random.random() < 0.3
    prices: Prices = {}
    for family, count in counts.items():
        default = (random.randrange(count),) * groups
        swapped = {(*default[:g], i, *default[g + 1 :]) for g in range(groups) for i in range(count)}
        for assignment in (default, *sorted(swapped - {default})):
            accuracy = round(random.uniform(0.5, 1), 1 if coarse else 5)
            prices[family, assignment] = accuracy, round(random.uniform(0.5, 2), 1 if coarse else 6) * scale
    return names(counts), prices


def random_rule(random: Random) -> PublishedRule:
    return PublishedRule(
        accuracy_threshold=random.choice([0.92, 0.8, random.uniform(0.5, 1)]),
        accuracy_cost_scale=random.choice([1.0, 2.0, random.uniform(0.05, 3)]),
        latency_cost_coeff=random.choice([0.5, 0.01, 10 ** random.uniform(-3, 2)]),
        select_ss_threshold=random.choice([5, random.randint(1, 30)]),
    )


def read_anew(tables: Tables, rule: PublishedRule) -> tuple[str, list[set[str]]] | None:
    """The rule as its text has it, in decimal numbers of fifty digits and with a heap."""
    getcontext().prec = 50
    heap: list[tuple[Decimal, int, str, tuple[int, ...]]] = []
    for line, ((family, assignment), (accuracy, latency_ms)) in enumerate(tables[1].items()):
        above = (Decimal(accuracy) - Decimal(rule.accuracy_threshold)) / Decimal(rule.accuracy_cost_scale)
        speed = -1 / Decimal(latency_ms)
        cost = (-above).exp() + Decimal(rule.latency_cost_coeff) * speed
        # Costs that differ by rounding alone are ties to whoever computes in floats.
        heapq.heappush(heap, (round(cost, 11), line, family, assignment))
    bags: dict[str, list[set[str]]] = {}
    sizes: dict[str, int] = {}
    while heap:
        _, _, family, assignment = heapq.heappop(heap)
        bag = bags.setdefault(family, [set() for _ in assignment])
        for group, index in zip(bag, assignment, strict=True):
            group.add(tables[0][family][index])
        sizes[family] = sizes.get(family, 0) + 1
        if sizes[family] == rule.select_ss_threshold:
            return family, bag
    return None


def attempt(tables: Tables, rule: PublishedRule) -> PublishedSelection | None:
    try:
        return select_published(*tables, rule)
    except ProblemError:
        return None


def test_a_thousand_random_tables_select_what_another_reading_of_the_rule_selects() -> None:
    random, won = Random(20), 0
    for _ in range(1000):
        tables, rule = random_tables(random), random_rule(random)
        told, found = read_anew(tables, rule), attempt(tables, rule)
        assert (told is None) == (found is None)
        if told is not None and found is not None:
            won += 1
            assert found.family == told[0]
            assert [set(group) for group in found.groups] == told[1]
            known = tables[0][found.family]
            assert all(
                [known.index(one) for one in own] == sorted(known.index(one) for one in own) for own in found.groups
            )
    assert won > 500


def two_families(latency_unit: float = 1.0) -> Tables:
    """A fast family and a more accurate one, which the unit of latency decides between."""
    prices: Prices = {}
    for i in range(3):
        prices["Fast", (i, 0)] = 0.80, (1.0 + 0.01 * i) * latency_unit
        prices["Sure", (i, 1)] = 0.90, 3.0 * latency_unit
    return names({"Fast": 3, "Sure": 3}), prices


def test_the_published_winner_goes_with_the_unit() -> None:
    rule = PublishedRule(select_ss_threshold=2)
    assert select_published(*two_families(), rule).family == "Fast"
    assert select_published(*two_families(1000.0), rule).family == "Sure"


def test_ties_go_by_the_lines_of_the_table() -> None:
    prices: Prices = {(family, (i,)): (0.9, 1.0) for family in "BA" for i in (2, 10, 1)}
    found = select_published(names({"A": 11, "B": 11}), prices, PublishedRule(select_ss_threshold=2))
    assert [one.id for one in found.networks] == ["B_2", "B_10"]
    assert found.groups == (("Bblock_2", "Bblock_10"),)
    assert found.counts == {"A": 0, "B": 2}


def test_no_family_that_reaches_the_threshold_is_an_error_with_the_next_step() -> None:
    with pytest.raises(
        ProblemError, match=r"no family has 9 networks \(select_ss_threshold\): the largest has 3"
    ) as caught:
        select_published(*two_families(), PublishedRule(select_ss_threshold=9))
    assert "at most 3" in caught.value.hint


def test_costs_beyond_all_numbers_come_last() -> None:
    rule = PublishedRule(accuracy_cost_scale=1e-4, select_ss_threshold=2)
    assert rule.cost(0.0, 1.0) == math.inf
    assert select_published(*two_families(), rule).family == "Sure"

"""The JSON of placement problems: round trips, and one clear error for anything malformed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.core.solver.placement_problems import random_problem

from gnomon.core.cost import CostModel
from gnomon.errors import ProblemError
from gnomon.formats import problem
from gnomon.formats.problem import problem_document, read_problem, write_problem

PROBLEM: dict[str, Any] = {
    "format": "gnomon-problem",
    "version": 1,
    "objectives": [{"name": "latency", "unit": "s"}, {"name": "memory", "unit": "byte"}],
    "slots": [
        {"name": "conv1", "choices": ["cpu", "gpu"], "cost": [[1.0, 4], [0.5, 8]]},
        {"name": "conv2", "choices": ["cpu", "gpu"], "cost": [[1.0, None], None]},
    ],
    "pairs": [{"slots": [0, 1], "cost": [[[0, 0], None], [[0.1, 1], [0, 0]]]}],
    "charges": [{"choice": "gpu", "cost": [0.0, 3e8]}],
}


def equal(a: CostModel, b: CostModel) -> bool:
    same = a.space == b.space and a.objectives == b.objectives
    one, other = ([*m.slot_costs, *(p.cost for p in m.pairs), *(c.cost for c in m.charges)] for m in (a, b))
    ends = [[(p.first, p.second) for p in m.pairs] for m in (a, b)]
    names = [[c.choice for c in m.charges] for m in (a, b)]
    return same and ends[0] == ends[1] and names[0] == names[1] and all(map(np.array_equal, one, other))


def test_reads_the_documented_example() -> None:
    model = read_problem(json.dumps(PROBLEM))
    assert model.slot_costs[1].tolist() == [[1.0, np.inf], [np.inf, np.inf]]
    assert model.pairs[0].cost.tolist() == [[[0, 0], [np.inf, np.inf]], [[0.1, 1], [0, 0]]]
    assert model.charges[0].cost.tolist() == [0.0, 3e8]
    assert equal(read_problem(json.dumps(PROBLEM).encode()), model)
    assert equal(read_problem(PROBLEM), model)
    assert problem_document(model) == {**PROBLEM}


def test_pairs_charges_and_unit_may_be_left_out() -> None:
    least = {k: v for k, v in PROBLEM.items() if k not in ("pairs", "charges")} | {
        "objectives": [{"name": "a"}, {"name": "b"}]
    }
    assert read_problem(least).objectives[0].unit == ""


@pytest.mark.parametrize("seed", range(6))
def test_round_trip(seed: int) -> None:
    model = random_problem(seed, objectives=1 + seed % 3)
    text = write_problem(model)
    assert equal(read_problem(text), model)
    assert write_problem(read_problem(text)) == text


def set_to(*path: Any) -> Callable[[Any], None]:
    def change(problem: Any) -> None:
        for key in path[:-2]:
            problem = problem[key]
        problem[path[-2]] = path[-1]

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_to("slots", 1, "cost", 0, [1.0]), "$.slots[1].cost[0]: 2 numbers expected, 1 found"),
        (set_to("slots", 1, "cost", [[1, 2]]), "$.slots[1].cost: 2 rows expected, 1 found"),
        (set_to("slots", 0, "cost", 0, 1, True), "$.slots[0].cost[0][1]: a finite number expected, true or false"),
        (set_to("slots", 0, "cost", 0, 1, 10**400), "$.slots[0].cost[0][1]: a finite number expected, a number of"),
        (set_to("slots", 1, "name", "conv1"), "$.slots[1].name: $.slots[0] has the name 'conv1' already"),
        (set_to("slots", 1, "name", ""), "$.slots[1].name: a name that is not empty expected"),
        (set_to("slots", 1, "name", "\ud800"), "$.slots[1].name: a name that is not empty expected"),
        (
            set_to("slots", 1, "choices", ["cpu", "cpu"]),
            "$.slots[1].choices[1]: $.slots[1].choices[0] has the name 'cpu'",
        ),
        (set_to("slots", 1, "choices", []), "$.slots[1].choices: at least one choice expected"),
        (set_to("slots", 1, "colour", 1), "$.slots[1].colour: there is no such field. Fields: name, choices, cost"),
        (set_to("slots", 1, {"name": "a", "choices": ["x"], "costs": [[1]]}), "no such field. Did you mean 'cost'?"),
        (set_to("an odd key", 1), "$.'an odd key': there is no such field"),
        (set_to("format", "x"), "$.format: 'gnomon-problem' expected"),
        (set_to("version", 3), "$.version: version 1 or 2 expected, 3"),
        (set_to("objectives", []), "$.objectives: at least one objective expected"),
        (set_to("objectives", 1, "name", "latency"), "$.objectives[1].name: $.objectives[0] has the name 'latency'"),
        (set_to("pairs", 0, "slots", [0, 2]), "$.pairs[0].slots: indices from 0 to 1 expected"),
        (set_to("pairs", 0, "slots", [0, 0]), "$.pairs[0].slots: two different slots expected"),
        (set_to("charges", 0, "cost", [0, -1]), "$.charges[0].cost[1]: a number from 0 expected, -1"),
    ],
)
def test_says_what_is_wrong_and_where(change: Callable[[Any], None], says: str) -> None:
    problem = copy.deepcopy(PROBLEM)
    change(problem)
    with pytest.raises(ProblemError) as caught:
        read_problem(problem)
    assert says in caught.value.message
    with pytest.raises(ProblemError) as caught:
        read_problem(json.dumps(problem))
    assert says in caught.value.message


LIMITED: dict[str, Any] = {
    **PROBLEM,
    "version": 2,
    "limits": [
        {"objective": "memory", "choices": ["gpu"], "at_most": 4e9},
        {
            "name": "copies",
            "unit": "B",
            "at_most": 7,
            "use": {"slots": [[0, 3], None], "pairs": [[[0, 1], [2, 0]]], "charges": [5]},
        },
        {"objective": "memory", "choices": ["cpu"], "at_most": 9, "order": [1, 0]},
    ],
}


def test_limits_are_on_an_objective_or_a_use_of_their_own() -> None:
    model = read_problem(LIMITED)
    gpu, copies, peak = model.limits
    assert (peak.order, peak.pairs, peak.charges, model.used(peak, (0, 1))) == ((1, 0), (), (), 4)
    assert (gpu.name, gpu.unit, gpu.at_most) == ("memory:gpu", "byte", 4e9)
    assert model.used(gpu, (1, 0)) == 8 + 3e8 and model.used(gpu, (0, 0)) == 0
    assert model.used(copies, (1, 0)) == 3 + 2 + 5 and copies.unit == "B"
    again = read_problem(write_problem(model))
    for one, other in zip(model.limits, again.limits, strict=True):
        assert (one.name, one.unit, one.at_most, one.charges) == (other.name, other.unit, other.at_most, other.charges)
        assert one.order == other.order
        assert all(map(np.array_equal, (*one.slots, *one.pairs), (*other.slots, *other.pairs)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_to("version", 1), "$.version: 2 expected"),
        (set_to("limits", 0, "objective", "speed"), "$.limits[0]: no objective is named 'speed'"),
        (set_to("limits", 0, "choices", ["tpu"]), "$.limits[0]: no slot has a choice named 'tpu'"),
        (set_to("limits", 0, "name", "x"), "$.limits[0]: objective (and optionally choices)"),
        (set_to("limits", 1, "at_most", 7.5), "$.limits[1]: whole numbers of bytes expected"),
        (set_to("limits", 1, "use", "slots", [[0, 3]]), "$.limits[1].use.slots: 2 rows expected, 1 found"),
        (set_to("limits", 1, "use", "slots", 0, [1]), "$.limits[1].use.slots[0]: 2 numbers expected, 1 found"),
        (set_to("limits", 1, "order", [0, 1]), "$.limits[1]: the peak limit 'copies' must"),
        (
            set_to("limits", 2, "order", [0]),
            "$.limits[2]: the peak limit 'memory:cpu' must order each slot once",
        ),
        (set_to("limits", 2, "order", []), "$.limits[2].order: the index of each slot expected"),
        (set_to("limits", 2, "at_most", -1), "have uses of slots only, from 0"),
    ],
)
def test_says_what_is_wrong_with_a_limit(change: Callable[[Any], None], says: str) -> None:
    problem = copy.deepcopy(LIMITED)
    change(problem)
    with pytest.raises(ProblemError) as caught:
        read_problem(problem)
    assert says in caught.value.message


def test_all_problems_at_once_up_to_a_number() -> None:
    problem = copy.deepcopy(PROBLEM)
    problem["slots"][0]["cost"] = [[1.0], [2.0]]
    problem["pairs"][0]["slots"] = [0, 9]
    problem["version"] = 1
    with pytest.raises(ProblemError) as caught:
        read_problem(problem)
    assert caught.value.message.count("$.") == 3
    problem["slots"] = [3] * 1000
    with pytest.raises(ProblemError, match=r"and \d+ more") as caught:
        read_problem(problem)
    assert caught.value.message.count("an object expected") == 20


@pytest.mark.parametrize("text", ["", "3", "[" * 100_000, '{"a": NaN}', "1" * 5000, '{"a": 1, "a": 2}', b"\xff\xfe"])
def test_broken_text(text: str | bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        read_problem(text)
    assert caught.value.hint


def test_a_repeated_key_is_found_among_very_many() -> None:
    """In time that grows with the number of keys: a search among those before would take hours here."""
    keys = [f'"{i}":0' for i in range(100_000)]
    with pytest.raises(ProblemError, match="'99999' is given twice"):
        read_problem("{" + ",".join([*keys, keys[-1]]) + "}")
    with pytest.raises(ProblemError, match="given twice") as caught:
        read_problem("{" + ",".join([f'"{"x" * 10_000}":0'] * 2) + "}")
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("kind", [str, bytes])
def test_a_text_beyond_the_limit_is_refused_unread(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(PROBLEM)
    given = text if kind is str else text.encode()
    monkeypatch.setattr(problem, "MOST_LETTERS", len(text))
    assert equal(read_problem(given), read_problem(PROBLEM))
    monkeypatch.setattr(problem, "MOST_LETTERS", len(text) - 1)
    with pytest.raises(ProblemError, match=f"{len(text)} characters") as caught:
        read_problem(given)
    assert caught.value.hint

"""The job `solve`, from JSON to JSON."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import numpy as np
import pytest
from tests.core.solver.placement_problems import exhaustive, random_problem

from gnomon.api.solve import front
from gnomon.core.cost import CostModel, Objective
from gnomon.core.space import Slot, Space, parse_decimal
from gnomon.errors import InfeasibleError, UsageError
from gnomon.formats.problem import write_problem
from gnomon.jobs.solve.job import solve_problem
from gnomon.jobs.solve.report import solve_report
from gnomon.measure.progress import Progress
from gnomon.report.page import Page

PROBLEM: dict[str, Any] = {
    "format": "gnomon-problem",
    "version": 1,
    "objectives": [{"name": "latency", "unit": "s"}, {"name": "memory", "unit": "byte"}],
    "slots": [
        {"name": "conv1", "choices": ["cpu", "gpu"], "cost": [[1.0, 1], [0.5, 1]]},
        {"name": "conv2", "choices": ["cpu", "gpu"], "cost": [[1.0, 1], [0.5, 1]]},
    ],
    "pairs": [{"slots": [0, 1], "cost": [[[0, 0], [0.1, 0]], [[0.1, 0], [0, 0]]]}],
    "charges": [{"choice": "gpu", "cost": [0.0, 300]}],
}


def test_report() -> None:
    report = json.loads(solve_problem(json.dumps(PROBLEM), {"latency": 1.0}).to_json())
    seconds = report.pop("seconds")
    assert seconds > 0
    assert report == {
        "format": "gnomon-solve",
        "version": 1,
        "assignment": ["gpu", "gpu"],
        "code": "3",
        "cost": [1.0, 302.0],
        "optimal": True,
        "method": "elimination",
        "bound": 1.0,
        "width": 1,
        "limits": [],
        "free": None,
    }
    both = solve_problem(json.dumps(PROBLEM).encode(), {"latency": 1.0, "memory": 1.0})
    assert both.assignment == ("cpu", "cpu") and both.bound == 4.0


def test_limits_of_the_command_have_the_objective_s_unit() -> None:
    text = json.dumps(PROBLEM)

    def chosen(**under: float | str) -> tuple[str, ...]:
        names = {name.replace("_", ":"): most for name, most in under.items()}
        return solve_problem(text, {"latency": 1.0}, under=names).assignment

    assert chosen(latency="1800ms", memory=1e3) == ("gpu", "gpu")
    assert chosen(latency="2 s", memory="301") == ("cpu", "cpu")
    assert chosen(memory_gpu=300) == ("cpu", "cpu")  # the charge, and a byte
    for under in ({"latency": "8 MB"}, {"memory": "8s"}, {"speed": 1.0}, {"memory_tpu": 1.0}):
        with pytest.raises(UsageError):
            chosen(**under)


def test_each_limit_has_its_use_and_its_price() -> None:
    problem = {name: value for name, value in PROBLEM.items() if name != "charges"} | {"version": 2}
    problem["limits"] = [{"objective": "latency", "choices": ["gpu"], "at_most": 0.7}]
    found = solve_problem(json.dumps(problem), {"latency": 1.0})
    (limit,) = found.limits
    assert (found.free, found.cost[0], limit.name, limit.used) == (1.0, 1.6, "latency:gpu", 0.5)
    assert limit.slack == pytest.approx(0.2) and limit.price is not None and limit.price > 0
    file = StringIO()
    solve_report(found, Page(file))
    text = file.getvalue()
    assert "The limits add 0.6 to the cost." in text
    assert "latency:gpu: 500 ms of at most 700 ms, 200 ms left; 1 % more saves about" in text


def test_a_peak_has_its_slot() -> None:
    problem = {name: value for name, value in PROBLEM.items() if name != "charges"} | {"version": 2}
    use = {"slots": [[0, 5], [0, 12]]}
    problem["limits"] = [{"name": "activations", "unit": "B", "at_most": 10, "use": use, "order": [0, 1]}]
    solution = solve_problem(json.dumps(problem), {"latency": 1.0})
    (limit,) = solution.limits
    assert (solution.assignment, solution.free, limit.used, limit.at) == (("gpu", "cpu"), 1.0, 5, "conv1")
    assert limit.price is None
    file = StringIO()
    solve_report(solution, Page(file))
    assert "activations: 5 B at the peak, in conv1, of at most 10 B, 5 B left." in file.getvalue()
    assert "The limits add 0.6 to the cost." in file.getvalue()


@pytest.mark.parametrize("weights", [None, {}, {"speed": 1.0}, {"latency": -1.0}, {"latency": float("nan")}])
def test_weights_that_cannot_be_meant(weights: dict[str, float] | None) -> None:
    with pytest.raises(UsageError) as caught:
        solve_problem(json.dumps(PROBLEM), weights)
    if not weights:
        assert "latency, memory" in caught.value.message


@pytest.mark.parametrize("seed", range(8))
def test_one_objective_needs_no_weight(seed: int) -> None:
    model = random_problem(seed)
    best = exhaustive(model, {"o0": 1.0})
    if best == np.inf:
        with pytest.raises(InfeasibleError):
            solve_problem(write_problem(model))
    else:
        report = json.loads(solve_problem(write_problem(model)).to_json())
        assert report["bound"] == pytest.approx(best, abs=1e-9) and report["cost"] == [report["bound"]]


def test_code_of_thousands_of_digits() -> None:
    slots = tuple(Slot(f"s{i}", tuple("abcdefgh")) for i in range(6000))
    costs = tuple(np.roll(np.arange(8.0), i)[:, None] for i in range(6000))
    report = json.loads(solve_problem(write_problem(CostModel(Space(slots), (Objective("t"),), costs))).to_json())
    assert len(report["code"]) > 5000
    assert Space(slots).names(Space(slots).decode(parse_decimal(report["code"]))) == tuple(report["assignment"])


def test_a_sweep_shows_what_a_limit_costs() -> None:
    """Each point is the least that keeps its limit, by exhaustive search; below the last one nothing does."""
    rng = np.random.default_rng(0)
    slots = tuple(Slot(f"s{i}", ("cpu", "gpu", "npu")) for i in range(5))
    costs = tuple(rng.uniform(1, 9, (3, 2)).round(2) for _ in slots)
    model = CostModel(Space(slots), (Objective("o0", "s"), Objective("o1", "B")), costs)
    every = model.evaluate([model.space.decode(code) for code in range(model.space.size)])
    seen: list[Progress] = []
    found = front(json.loads(write_problem(model)), sweep="o1", on_progress=seen.append)
    assert [(p.done, p.total) for p in (seen[0], seen[1], seen[-1])] == [(0, 20), (1, 20), (len(found.points),) * 2]
    assert found.certificate == "exact" and found.swept is not None and found.swept.name == "o1"
    most = [point.at_most or 0.0 for point in found.points]
    assert most == sorted(most) and 2 < len(most) <= 20
    for at_most, point in zip(most, found.points, strict=True):
        assert point.cost[0] == pytest.approx(every[every[:, 1] <= at_most, 0].min())
    if len(most) < 20:
        assert every[:, 1].min() > most[-1] * (20 - len(most)) / 20
    with pytest.raises(UsageError, match="cannot be combined with --epsilon"):
        front(json.loads(write_problem(model)), sweep="o1", epsilon=0.1)
    with pytest.raises(UsageError, match="no objective but"):
        front(json.loads(write_problem(random_problem(3))), sweep="o0")

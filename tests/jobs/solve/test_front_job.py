"""The job `front`, from JSON to JSON."""

from __future__ import annotations

import json

import pytest
from tests.core.solver.placement_problems import random_problem
from tests.jobs.solve.test_solve_job import PROBLEM

from gnomon.core.front.front import Front
from gnomon.core.space import parse_decimal
from gnomon.errors import InfeasibleError, ProblemError, UsageError
from gnomon.formats.problem import write_problem
from gnomon.jobs.solve.job import front_problem


def test_report() -> None:
    report = json.loads(front_problem(json.dumps(PROBLEM)).to_json())
    assert report.pop("seconds") > 0
    assert report == {
        "format": "gnomon-front",
        "version": 1,
        "certificate": "exact",
        "objectives": PROBLEM["objectives"],
        "points": [
            {"assignment": ["gpu", "gpu"], "code": "3", "cost": [1.0, 302.0], "at_most": None},
            {"assignment": ["cpu", "cpu"], "code": "0", "cost": [2.0, 2.0], "at_most": None},
        ],
        "swept": None,
    }


def test_an_epsilon_is_written_as_an_object() -> None:
    seen: list[Front] = []
    report = front_problem(json.dumps(PROBLEM), epsilon=0.5, time_limit_s=60.0, watch=seen.append).document()
    assert report["certificate"] == "exact" or 0 < report["certificate"]["epsilon"] <= 0.5
    assert seen


@pytest.mark.parametrize("seed", range(8))
def test_codes_and_costs_belong_to_the_assignments(seed: int) -> None:
    model = random_problem(seed, objectives=2, impossible=0.02)
    try:
        report = front_problem(write_problem(model)).document()
    except InfeasibleError:
        return
    for point in report["points"]:
        assignment = model.space.indices(point["assignment"])
        assert model.space.decode(parse_decimal(point["code"])) == assignment
        assert model.evaluate([assignment])[0].tolist() == point["cost"]


def test_what_cannot_be_meant() -> None:
    for options in ({"epsilon": -1.0}, {"time_limit_s": 0.0}, {"time_limit_s": float("nan")}):
        with pytest.raises(UsageError):
            front_problem(json.dumps(PROBLEM), **options)  # type: ignore[arg-type]
    with pytest.raises(ProblemError):
        front_problem("[]")

"""The programme for HiGHS against another modelling of the same problem through SciPy."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.milp import minimise_milp
from gnomon.core.solver.prune import ScalarCharge


@pytest.mark.parametrize("seed", range(10))
def test_unlike_choices_formulation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    potts = {(a, b): (1 - np.eye(3)) * rng.random() for b in range(7) for a in range(b) if rng.random() < 0.6}
    energy = Energy(tuple(rng.random(3) for _ in range(7)), potts)
    result = minimise_milp(energy, (), [])
    values = [energy.value(x) for x in np.ndindex(*[3] * 7)]
    assert result.assignment is not None and result.optimal
    assert energy.value(result.assignment) == pytest.approx(min(values), abs=1e-7)
    assert result.bound == pytest.approx(min(values), abs=1e-5)


def test_nothing_allowed() -> None:
    unlike = np.where(np.eye(2) > 0, np.inf, 0.0)
    energy = Energy(tuple(np.zeros(2) for _ in range(3)), {(0, 1): unlike, (0, 2): unlike, (1, 2): unlike})
    result = minimise_milp(energy, (), [(0, 0, 0)])
    assert result.infeasible and result.assignment is None and not result.optimal


def test_start_is_never_lost() -> None:
    rng = np.random.default_rng(0)
    table = {(a, b): rng.random((4, 4)) for b in range(30) for a in range(b)}
    energy = Energy(tuple(rng.random(4) for _ in range(30)), table)
    begin = tuple(rng.integers(0, 4, 30).tolist())
    result = minimise_milp(energy, (), [begin], lambda: 0.05)
    assert result.assignment is not None and energy.value(result.assignment) <= energy.value(begin)
    assert result.bound <= energy.value(result.assignment)


def test_the_solution_is_that_of_the_value_that_is_told() -> None:
    """HiGHS 1.16 solves this in presolving, and gives back what it was begun with."""
    unary = (
        np.array([0.415, -0.327]),
        np.array([1.82, 0.162]),
        np.array([1.206, np.inf, np.inf, -1.149]),
        np.array([-0.129, -0.58, -0.763]),
    )
    pairwise = {
        (0, 3): np.array([[0.551, 0.139, -1.513], [-0.288, 0.54, np.inf]]),
        (2, 3): np.array(
            [[-0.102, -0.281, 1.241], [1.787, np.inf, 0.284], [-0.198, -0.026, 0.108], [-1.463, np.inf, 0.375]]
        ),
    }
    charge = ScalarCharge(name="c", cost=3.0, slots=np.array([1]), choices=np.array([1]))
    result = minimise_milp(Energy(unary, pairwise), (charge,), [(1, 1, 3, 0)])
    assert result.optimal and result.assignment == (1, 0, 3, 0)


_ALONE = """
import numpy as np
from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.milp import minimise_milp
table = np.random.default_rng(0).random((3, 3))
print(minimise_milp(Energy(tuple(table), {(0, 1): table, (0, 2): table, (1, 2): table}), (), []).optimal)
"""


def test_nothing_else_is_written_where_answers_are_read() -> None:
    """HiGHS greets at most once in a process, and not through Python."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _ALONE], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")

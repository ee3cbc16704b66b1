"""The optional toulbar2 against every assignment, and what it leaves behind in the process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.milp import minimise_milp
from gnomon.core.solver.prune import ScalarCharge, charged_value

pytest.importorskip("pytoulbar2", reason="pytoulbar2 is not installed: pip install 'gnomon[toulbar2]'")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e7])
def test_it_equals_every_assignment(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    pairs = {(a, b): scale * rng.normal(size=(3, 3)) for b in range(7) for a in range(b)}
    pairs[0, 1][0, 1] = pairs[2, 5][1] = np.inf
    energy = Energy(tuple(scale * rng.normal(size=3) for _ in range(7)), pairs)
    charge = ScalarCharge(name="c", cost=2 * scale, slots=np.array([0, 3, 4]), choices=np.array([0, 1, 2]))
    least = min(charged_value(energy, [charge], x) for x in np.ndindex(*[3] * 7))
    result = minimise_milp(energy, [charge], [(1, 1, 0, 0, 0, 0, 0)], toulbar2=True)
    assert result.method == "toulbar2" and result.optimal and result.assignment is not None
    assert charged_value(energy, [charge], result.assignment) == pytest.approx(least)
    assert result.bound <= least + 1e-9 * scale


def test_in_little_time_it_gives_its_best_and_a_bound() -> None:
    rng = np.random.default_rng(0)
    energy = Energy(
        tuple(rng.random(4) for _ in range(40)), {(a, b): rng.random((4, 4)) for b in range(40) for a in range(b)}
    )
    begin = (0,) * 40
    result = minimise_milp(energy, (), [begin], lambda: 1.0, toulbar2=True)
    assert result.assignment is not None and not result.optimal
    assert result.bound < energy.value(result.assignment) <= energy.value(begin)


_ALONE = """
import os, signal
import numpy as np
from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.milp import minimise_milp
table = np.random.default_rng(0).random((3, 3))
energy = Energy(tuple(table), {(0, 1): table, (0, 2): table, (1, 2): table})
print(minimise_milp(energy, (), [(0, 0, 0)], toulbar2=True).method)
try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_it_writes_nothing_and_an_interrupt_still_ends_the_program() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _ALONE], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("toulbar2\ninterrupted\n", "")

"""Training in other processes, and on a machine without PyTorch."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.training.trainkit import job

from gnomon.errors import ProblemError, RuntimeMissingError
from gnomon.installing import install_line
from gnomon.training.recipe import Recipe, check
from gnomon.training.worker import run_training


def test_jobs_run_in_processes_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        trained = executor.submit(run_training, job(epochs=1), str(tmp_path / "p.pt")).result()
        refused = executor.submit(run_training, job(epochs=0)).exception()
    here = run_training(job(epochs=1))
    assert trained.failure is None and trained.losses == here.losses
    assert trained.state is not None and here.state is not None
    assert all(np.array_equal(trained.state[name], array) for name, array in here.state.items())
    assert isinstance(refused, ProblemError) and "epochs" in refused.message and refused.hint


def test_without_pytorch_the_failure_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    failure = run_training(job()).failure
    assert failure is not None and failure.stage == "load"
    assert install_line("torch", python=sys.executable) in failure.message
    with pytest.raises(RuntimeMissingError) as told:
        check(Recipe(epochs=1))
    assert told.value.hint == install_line("torch", python=sys.executable)


def test_nothing_loads_pytorch_before_a_network_is_trained() -> None:
    code = "import gnomon.training.worker, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Training in other processes, and on a machine without PyTorch."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.training.trainkit import data, job, net, shapes, space

from gnomon.errors import ProblemError, RuntimeMissingError
from gnomon.training import Recipe, build, check, state_of
from gnomon.training.evaluation import evaluate
from gnomon.training.supernet import SupernetJob
from gnomon.training.worker import PathJob, ProxyJob, run_path, run_proxies, run_supernet, run_training


def one_supernet() -> SupernetJob:
    return SupernetJob(spaces=(space("VGGblock_1", "Resblock_1"),), recipe=Recipe(epochs=1), data=data())


def test_jobs_run_in_processes_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pool = state_of(build(net("VGGblock_1"), None, seed=0))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        trained = executor.submit(run_training, job(epochs=1), str(tmp_path / "p.pt")).result()
        scored = executor.submit(
            run_proxies, ProxyJob(key="a", tagged=net("VGGblock_1"), data=data(), inits=1, batch=16)
        ).result()
        path = executor.submit(run_path, PathJob(key="b", tagged=net("VGGblock_1"), pool=pool, data=data())).result()
        shared = executor.submit(run_supernet, one_supernet(), str(tmp_path / "s.pt")).result()
        refused = executor.submit(run_training, job(epochs=0)).exception()
    here = run_training(job(epochs=1))
    assert shared.failure is None
    assert [row.loss for row in shared.history] == [row.loss for row in run_supernet(one_supernet()).history]
    assert trained.failure is None and trained.losses == here.losses
    assert trained.state is not None and here.state is not None
    assert all(np.array_equal(trained.state[name], array) for name, array in here.state.items())
    assert scored.failure is None and scored.scores["params"]
    assert path.correct is not None
    assert np.array_equal(path.correct, evaluate(pool, net("VGGblock_1"), shapes()))
    assert isinstance(refused, ProblemError) and "epochs" in refused.message and refused.hint


def test_without_pytorch_the_failure_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    made = (
        run_training(job()),
        run_proxies(ProxyJob(key="a", tagged=net("VGGblock_1"), data=data())),
        run_path(PathJob(key="a", tagged=net("VGGblock_1"), pool={}, data=data(), seed=1)),
        run_supernet(one_supernet()),
    )
    for one in made:
        assert one.failure is not None and one.failure.stage == "load"
        assert "pip install 'gnomon[space]'" in one.failure.message
    with pytest.raises(RuntimeMissingError) as told:
        check(Recipe(epochs=1))
    assert told.value.hint == "pip install 'gnomon[space]'"


def test_nothing_loads_pytorch_before_a_network_is_trained() -> None:
    code = "import gnomon.training.worker, gnomon.training, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_jobs_and_results_travel() -> None:
    one = job()
    again = pickle.loads(pickle.dumps(one))  # noqa: S301
    assert again.digest() == one.digest() and again.tagged == one.tagged and again.data == one.data

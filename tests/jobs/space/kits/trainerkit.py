"""Training processes that many tests share: each loads PyTorch and its optimizers, which takes three seconds of the
processor and longer than the small networks of these tests are trained.

`trained_alike` is the fixture (import it by name, and ask for it in what profiles). What the processes do is as real as
ever; those of a block that failed are ended and never used again. A test of the processes themselves does without.
Networks are measured in two processes instead of six or twelve: no test of profiles sees how fast they are, and
`test_space_latency.py` has the usual effort.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from tests.shortkit import FEW_PROCESSES

from gnomon.jobs.space.profiling import training
from gnomon.jobs.space.profiling.latency import NETWORK_EFFORT, measure_files


class _Kept:
    """A pool for each number of workers, until one of its blocks fails or it is closed."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[training._Pool, ExitStack]] = {}
        self._start = training._pool

    @contextmanager
    def pool(self, workers: int) -> Iterator[training._Pool]:
        if workers not in self._open:
            stack = ExitStack()
            self._open[workers] = stack.enter_context(self._start(workers)), stack
        pool, stack = self._open[workers]
        try:
            yield pool
        finally:
            if pool._broken or pool._pending_work_items:  # of work that nobody waits for
                del self._open[workers]
                for process in list(pool._processes.values()):
                    process.kill()
                stack.close()

    def close(self) -> None:
        for _, stack in self._open.values():
            stack.close()
        self._open.clear()


@pytest.fixture(scope="session")
def trainers() -> Iterator[_Kept]:
    """Kept for the whole run."""
    kept = _Kept()
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def trained_alike(trainers: _Kept) -> Iterator[None]:
    """The profiles of a file are trained by shared processes, and measured in few."""
    usual = measure_files.__kwdefaults__
    assert usual is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_pool", trainers.pool)
        patch.setitem(usual, "effort", replace(NETWORK_EFFORT, **FEW_PROCESSES))
        yield

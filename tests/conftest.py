"""What the tests that really measure have in common."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

import zoo
from gnomon.measure.effort import Effort

# A shell starts its background jobs with interrupts ignored, which their children inherit; some tests send them one.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No example is timed, as the machine may have other work. GNOMON_EXAMPLES=1000 looks longer for one that fails.
hypothesis.settings.register_profile("gnomon", deadline=None, max_examples=int(os.environ.get("GNOMON_EXAMPLES", "50")))
hypothesis.settings.load_profile("gnomon")


@pytest.fixture(scope="session")
def zoo_model() -> Callable[[str], Path]:
    """A function from the name of a model of the zoo to its path; the test skips where a wheel cannot be had."""

    def build(name: str) -> Path:
        try:
            return zoo.build(name)
        except zoo.ZooError as error:
            pytest.skip(f"zoo: {error}")

    return build


@pytest.fixture(scope="session")
def small() -> Effort:
    """An effort that is enough to see whether something works, not how fast it is."""
    return Effort(
        processes_least=1,
        processes_most=1,
        rounds=2,
        block_s=0.01,
        warm_s=0.005,
        rewarm_s=0.001,
        laggard=1e9,
        timeout_s=60.0,
    )


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a record and leases of its own, so that it neither sees nor waits for anybody else's."""
    home = tmp_path / "home"
    monkeypatch.setenv("GNOMON_HOME", str(home))
    monkeypatch.setenv("GNOMON_LEASES", str(tmp_path_factory.mktemp("leases")))
    return home

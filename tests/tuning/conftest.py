"""One workshop, one child and one small network for all tests of the worker: a child takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.tvm_models import small_net
from tests.tuning.tvmkit import MISSING

from gnomon.core.overlay.records import TuningLayer
from gnomon.core.sample import Failure
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.tvm import TvmPool

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


class Kit:
    """A workshop; a worker to a child that any job can be asked of; a small network as it has read it."""

    def __init__(self, pool: TvmPool, folder: Path) -> None:
        self.pool, self.folder = pool, folder
        self.worker = pool.worker(threads=2, job_timeout_s=120.0)
        self.model = folder / "small.onnx"
        self.model.write_bytes(small_net())
        self._layers: tuple[TuningLayer, ...] = ()
        self._made = 0

    def asked(self, **job: Any) -> Mapping[str, Any]:
        """The facts of a job that must succeed."""
        said = self.worker.ask("test", job)
        assert not isinstance(said, Failure), said
        return said

    def network(self, source: Source) -> Network:
        """A network that reads in the shared child, at once. It is the last that this child has read."""
        network = Network(self.pool, source)
        network.worker = self.worker
        self.worker.start()
        failure = network._read(self.worker)
        assert failure is None, failure
        return network

    @property
    def layers(self) -> tuple[TuningLayer, ...]:
        """The layers of the small network."""
        if not self._layers:
            self._layers = self.network(Source(path=self.model)).layers(TARGET)
        return self._layers

    @property
    def heavy(self) -> TuningLayer:
        """The one that computes most."""
        return max(self.layers, key=lambda layer: layer.flops or 0)

    def named(self, text: str) -> TuningLayer:
        """The first whose name holds a text."""
        return next(layer for layer in self.layers if text in layer.name)

    def path(self, suffix: str) -> Path:
        """A path that is not there yet."""
        self._made += 1
        return self.folder / f"made-{self._made}{suffix}"


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    if MISSING:
        pytest.skip(MISSING)
    with TvmPool() as pool:
        yield Kit(pool, tmp_path_factory.mktemp("kit"))

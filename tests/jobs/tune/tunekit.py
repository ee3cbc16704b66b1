"""Tiny networks to tune, and children with TVM that many tests of a run share: starting one takes seconds.

`pooled` is the fixture (import it by name), `pooling()` the same as a context manager. What the children do is as real
as ever; a child that crashed, hung or answered nonsense is ended and never used again.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.agent.drivers.tvm_models import model_bytes

from gnomon.core.overlay.records import UNTUNED, TunedDevice, TunedModel, TuningLayer, TuningRecords, TuningTrial
from gnomon.core.sample import Failure
from gnomon.jobs.tune.records import made_trial
from gnomon.system.children import ChildProcess, Program
from gnomon.system.process import Guard, guarded_folder
from gnomon.tuning import tvm as worker

QUICK: dict[str, Any] = {"repeat": 2, "min_repeat_ms": 1, "processes": 1}


def counts(document: dict[str, Any]) -> dict[str, int]:
    """How many trials were made; the number of relevant layers, which follows from measured times, is checked here."""
    trials = dict(document["trials"])
    shares = sorted((layer["share"] for layer in document["layers"]), reverse=True)
    assert trials.pop("relevant") == sum(before < 0.99 for before in accumulate(shares[:-1], initial=0.0))
    return trials


def tiny_net(channels: int = 8, size: int | str = 8) -> bytes:
    """Two convolutions of 3 x 3, each with its own bias and a ReLU: two layers for TVM."""
    rng = np.random.default_rng(3)
    held = {
        "w1": (rng.standard_normal((channels, 3, 3, 3)) * 0.3).astype(np.float32),
        "w2": (rng.standard_normal((channels, channels, 3, 3)) * 0.3).astype(np.float32),
        "b": rng.standard_normal(channels).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["y"]),
    ]
    shape = (1, 3, size, size)
    return model_bytes(nodes, held, {"x": shape}, {"y": (TensorProto.FLOAT, (1, channels, size, size))})  # type: ignore[dict-item]


def layerless_net() -> bytes:
    """A network that only hands its input on."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    return model_bytes(nodes, {}, {"x": (1, 4)}, {"y": (TensorProto.FLOAT, (1, 4))})


class _Shared(ChildProcess):
    """A child that is put back when its worker is closed, if it is in order."""

    def __init__(self, pool: _Pool, key: str, program: Program, folder: Path, guard: Guard) -> None:
        self._pool, self._key, self._asked = pool, key, False
        self._versions: dict[str, Any] | None = None
        super().__init__(program, folder, guard)

    def ready(self, timeout_s: float) -> dict[str, Any] | Failure:
        if self._versions is None:
            said = super().ready(timeout_s)
            if isinstance(said, Failure):
                return said
            self._versions = said
        return self._versions

    def ask(self, job: Mapping[str, Any], **how: Any) -> Any:
        self._asked = True
        said = super().ask(job, **how)
        self._asked = False
        return said

    def kill(self) -> None:
        usable = not self._asked and self.alive and self._versions is not None
        # A session that it may have with a server ends, as it would with its process.
        leave = {"do": "leave"}
        if usable and not isinstance(super().ask(leave, stage="run", timeout_s=30.0, log=None), Failure):
            self._pool.put(self._key, self)
        else:
            super().kill()

    def end(self) -> None:
        super().kill()


class _Pool:
    """Children in order that nobody uses at this moment."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._free: dict[str, list[_Shared]] = {}
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> _Pool:
        if not self._users:
            self._folder = self._stack.enter_context(guarded_folder("test-tvm-"))
            self._guard = Guard()
            self._stack.callback(self._guard.close)
        self._users += 1
        return self

    def __exit__(self, *raised: object) -> None:
        self._users -= 1
        if not self._users:
            for child in [child for free in self._free.values() for child in free]:
                child.end()
            self._free.clear()
            self._stack.close()

    def start(self, program: Program, home: Path, guard: Guard) -> _Shared:
        key = json.dumps([dict(program.settings), dict(program.environment)], sort_keys=True)
        with self._lock:
            while free := self._free.get(key):
                if (child := free.pop()).alive:
                    return child
        return _Shared(self, key, program, self._folder, self._guard)

    def put(self, key: str, child: _Shared) -> None:
        with self._lock:
            if child not in (free := self._free.setdefault(key, [])):
                free.append(child)


_POOL = _Pool()


@contextlib.contextmanager
def pooling() -> Iterator[pytest.MonkeyPatch]:
    """The doors of the block use shared children."""
    with _POOL, pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "ChildProcess", _POOL.start)
        yield patch


@pytest.fixture(scope="session")
def children() -> Iterator[None]:
    """The pool is there for the whole run."""
    with _POOL:
        yield


@pytest.fixture
def pooled(children: None) -> Iterator[None]:
    """The doors of the test use shared children."""
    with pooling():
        yield


def one_core() -> None:
    """With one core there is one process that builds, and less to start."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def trials_of(path: Path) -> list[dict[str, Any]]:
    """The lines of trials of a record file, but for the untuned ones; a line that is cut off is left out."""
    made = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            if json.loads(line).get("trial", UNTUNED) != UNTUNED:
                made.append(json.loads(line))
    return made


def hand_made(
    device: str,
    times: Mapping[str, Mapping[int | None, tuple[float, ...] | Failure]],
    *,
    found_on: str = "",
    weights: Mapping[str, int] | None = None,
) -> TuningRecords:
    """Records of layers by name; a configuration is a number, or None for untuned."""
    layers = tuple(
        TuningLayer(
            layer=f"7{number}",
            name=name,
            weight=(weights or {}).get(name, 1),
            arguments=(("float32", (4,)),),
            workload="AAAA",
        )
        for number, name in enumerate(times)
    )
    trials: list[TuningTrial] = []
    for layer in layers:
        for number, said in times[layer.name].items():
            trace = None if number is None else [[number], []]
            facts = {"failure": said} if isinstance(said, Failure) else {"times_s": said, "error": 0.0}
            trials.append(made_trial(layer.layer, trace, **facts))
    return TuningRecords(
        device=TunedDevice(key=device, target={"kind": "llvm", "num-cores": 1}),
        model=TunedModel(name="net", sha256="ab" * 32),
        layers=layers,
        trials=tuple(trials),
        found_on=found_on,
    )

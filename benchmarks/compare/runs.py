"""Real runs of three models on ONNX Runtime, made in turn, as documents that `gnomon compare` reads.

The models are chains of 100, 101 and 103 equal matrix products, so calls of the latter two really take 1 % and 3 %
longer. A run is made as `gnomon profile` makes it, with visits so short that many fresh processes fit into a second.
During every third run of the first model, a neighbour works through memory on another core: this is the injected load.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import own_record
from gnomon.api.options import model_request
from gnomon.jobs.place.job import profile

PLAIN, SLOWER = 100, (101, 103)
"""The numbers of matrix products: those of the model, and those of the two models that are really slower."""

WIDTH, ROWS = 192, 64  # about 5 ms a call on a core of 2 GHz
PROCESSES = 36
TURNS = ((PLAIN, False), (PLAIN, False), (PLAIN, True), (103, False), (PLAIN, False), (PLAIN, False), (101, False))
"""The order of the runs: the number of products, and whether a neighbour runs at the same time."""

_NEIGHBOUR = "import numpy as n\na = n.ones(1 << 23)\nwhile True:\n    a *= 1.0000001\n"


def chain(folder: Path, products: int) -> Path:
    """A chain of this many equal matrix products."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    scale = WIDTH**-0.5
    weights = [
        numpy_helper.from_array((scale * rng.standard_normal((WIDTH, WIDTH))).astype(np.float32), f"w{k}")
        for k in range(products)
    ]
    names = ["x", *(f"t{k}" for k in range(1, products)), "y"]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]], name=f"m{k}") for k in range(products)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    path = folder / f"chain-{products}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """A process that loads another core during the block, if `busy` is true."""
    if not busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", _NEIGHBOUR]) as child:
        try:
            yield
        finally:
            child.kill()


def measure(data: Path, seconds: float) -> None:
    """Make runs in turn for this long, and keep each document as a numbered file in the folder."""
    data.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    number = len(list(data.glob("run-*.json")))
    with tempfile.TemporaryDirectory() as folder, own_record() as record:
        models = {products: chain(Path(folder), products) for products in (PLAIN, *SLOWER)}
        while time.monotonic() < end:
            products, busy = TURNS[number % len(TURNS)]
            request = model_request(
                models[products],
                {"runtimes": ("onnxruntime",), "processes": PROCESSES, "fresh": True, "record": record, "threads": 1},
                sweeps=True,
                limited=True,
            )
            short = replace(request.effort, rounds=2, block_s=0.04, warm_s=0.03, budget_s=600.0)
            with neighbour(busy):
                document = profile(replace(request, effort=short)).document()
            path = data / f"run-{number:04}-{products}{'-busy' if busy else ''}.json"
            path.write_text(json.dumps(document), encoding="utf-8")
            number += 1


def stretches(document: dict[str, Any], processes: int) -> list[dict[str, Any]]:
    """The run cut into disjoint consecutive runs of this many processes, each with the environments of its own
    processes.
    """
    found = []
    for first in range(0, PROCESSES - processes + 1, processes):
        part = copy.deepcopy(document)
        kept = range(first, first + processes)
        part["environments"] = part["environments"][first : first + processes]
        for column in part["columns"]:
            samples = column["runs"]["samples"]
            where = [k for k, process in enumerate(samples["process"]) if process in kept]
            for name, values in samples.items():
                if values is not None:
                    samples[name] = [values[k] for k in where]
            column["runs"]["profile"] = None
        found.append(part)
    return found

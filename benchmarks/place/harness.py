"""The overhead of the harness for a model of about 1 ms: gnomon's timing loop against a hand-written one.

Both loops call the same loaded model of the same runtime in the same process, in alternating blocks in random order. In
each round, the ratio of their lower quintiles (of undisturbed calls) is computed, so drift cancels out. Target: at most
1 %.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, model_path, publish, spread
from gnomon.agent.job import Job
from gnomon.agent.timing import inner_loop, take, warm_up

ROUNDS, BLOCK_S = 60, 0.1


def one_millisecond_onnx(folder: Path) -> Path:
    """A convolution that takes about a millisecond."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((32, 32, 3, 3), dtype=np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 56, 56])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 56, 56])
    graph = helper.make_graph([node], "one", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "one.onnx"
    onnx.save(model, path)
    return path


def jobs(folder: Path) -> dict[str, Any]:
    """A job for each runtime."""
    onnx_file = str(one_millisecond_onnx(folder))
    tensors = {name: {"shape": [1, 32, 56, 56], "dtype": "float32"} for name in "xy"}
    made = {}
    for runtime in ("onnxruntime", "openvino"):
        segment: dict[str, Any] = {"runtime": runtime, "model": onnx_file, "options": {"threads": 1}}
        segment.update(inputs=[["x", "x"]], outputs=[["y", "y"]])
        made[runtime] = {"tensors": tensors, "feeds": {"x": {}}, "outputs": ["y"], "segments": [segment]}
    circle = str(model_path("mix.circle"))
    segment = {"runtime": "onert", "model": circle, "options": {"threads": 1, "settings": {"BACKENDS": "cpu"}}}
    segment.update(inputs=[["i", "i"]], outputs=[["o", "o"]])
    shapes = {"i": {"shape": [1, 64, 64, 3], "dtype": "float32"}, "o": {"shape": [1, 10], "dtype": "float32"}}
    made["onert"] = {"tensors": shapes, "feeds": {"i": {}}, "outputs": ["o"], "segments": [segment]}
    return made


def by_hand(call: Any, seconds: float, inner: int) -> list[float]:
    """The usual hand-written loop; a sample is the mean of as many calls as in gnomon's loop, so that the two are
    comparable.
    """
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    whole = len(times) // inner * inner
    return [float(t) for t in np.asarray(times[:whole]).reshape(-1, inner).mean(axis=1)]


def by_gnomon(call: Any, seconds: float, inner: int) -> list[float]:
    """The agent's loop, in seconds per call."""
    wall, _ = take(call, inner=inner, seconds=seconds, least=2, most=100_000)
    return [t / inner * 1e-9 for t in wall]


def figures(job: Any) -> dict[str, Any]:
    """The ratio of gnomon's level to that of the hand-written loop, for each round."""
    loaded = Job(job)
    inner = inner_loop(warm_up(loaded.call, count=5, seconds=0.3), 1_000_000)
    rng = random.Random(0)
    ratios, calls = [], []
    for _ in range(ROUNDS):
        found = {}
        for kind in rng.sample(["hand", "gnomon"], 2):
            warm_up(loaded.call, count=1, seconds=0.003)
            times = by_hand(loaded.call, BLOCK_S, inner) if kind == "hand" else by_gnomon(loaded.call, BLOCK_S, inner)
            found[kind] = float(np.quantile(times, 0.2))
        ratios.append(found["gnomon"] / found["hand"])
        calls.append(found["hand"])
    loaded.close()
    return {"call_s": spread(calls), "ratio": spread(ratios), "inner": inner}


def main() -> None:
    """Run all runtimes."""
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: figures(job) for name, job in jobs(Path(folder)).items()}
    publish({"benchmark": "harness", "runtimes": found}, given)


if __name__ == "__main__":
    main()

"""Compares predicted and measured times of random placements within a runtime that copies tensors.

One profile is taken as `gnomon place` does it: of ncnn on CPU and Vulkan, or of ONNX Runtime with execution providers
(`--runtime onnxruntime --backend cpu --backend webgpu`). Then placements are drawn from a seed that pricing does not
use, each layer on its own. They are predicted, checked, and measured in fresh processes, interleaved with the plan, the
single backends, and some of the placements used for pricing, whose median change of time since the profile is reported
(`speed_since_profile`). The best single backend runs in each group of placements: `error_beside` is the error of the
ratio to it, by the deciding clock, which is free of drift between groups. Targets: a median error within 15 %, and a
plan that is the fastest of all measured placements. `behind` is how much slower the plan is than the fastest, and
`of_best_single` is its share of the time of the best single backend. Everything is reported by wall time and by the CPU
time of all threads of the process: if an accelerator is a program on the CPU, other work can double its wall time.
`--model stretched` makes a model with an operator that is slow on the processor. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import model_path, own_record, publish, spread
from gnomon.core.pricing.transfers import HOME, Sides
from gnomon.devices.config import load_devices
from gnomon.jobs.place.inside import DRAWN, TransferPlacer, TransferResult
from gnomon.measure.effort import Clock, Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session.contender import Anchor, choose_clock, level, measure_beside, profile_singles
from gnomon.session.model_session import ModelSession, open_session
from gnomon.session.reference import reference
from gnomon.session.request import THIS_MACHINE, ModelRequest
from gnomon.session.targets import describe

SEED = 2024
ANCHORS = 5


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="efficientnet-lite0.onnx", help="a model of the zoo, a file, or stretched")
    parser.add_argument("--runtime", default="ncnn", help="the runtime whose operators are placed")
    parser.add_argument("--backend", action="append", default=[], help="its backends, the first one home")
    parser.add_argument("--placements", type=int, default=30, help="how many random placements")
    parser.add_argument("--data", type=Path, help="unused: the benchmark needs no reference data")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    return parser.parse_args()


def stretched(folder: Path) -> Path:
    """A small classifier after an asinh stretch of its image, as used in astronomy; ONNX Runtime's CPU provider
    computes asinh number by number.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng, width = np.random.default_rng(0), 8

    def weights(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "softening": np.array([4.0], np.float32),
        "w1": weights(width, 4, 3, 3),
        "w2": weights(width, width, 3, 3),
        "w3": weights(10, width),
    }
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "softening"], ["a1"], "soften"),
        node("Asinh", ["a1"], ["a"], "stretch"),
        node("Conv", ["a", "w1"], ["b1"], "conv1", pads=[1] * 4, strides=[4, 4]),
        node("Relu", ["b1"], ["b"], "relu1"),
        node("Conv", ["b", "w2"], ["c1"], "conv2", pads=[1] * 4, strides=[2, 2]),
        node("Sigmoid", ["c1"], ["c2"], "gate"),
        node("Mul", ["c1", "c2"], ["c"], "swish"),
        node("GlobalAveragePool", ["c"], ["d1"], "pool"),
        node("Flatten", ["d1"], ["d"], "flatten"),
        node("Gemm", ["d", "w3"], ["e"], "classify", transB=1),
        node("Softmax", ["e"], ["y"], "softmax"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 4, 256, 256]), ("y", [1, 10]))
    ]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "stretched", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), folder / "stretched.onnx")
    return folder / "stretched.onnx"


def drawn(placer: TransferPlacer, number: int) -> list[Sides]:
    """Random placements, with a draw for each movable layer."""
    rng = np.random.default_rng(SEED)
    count, sides = placer.wiring.count, 1 + len(placer.movable)
    if sides == 2:
        coins = [(rng.random(count) < 0.5).astype(int) for _ in range(number)]
    else:
        coins = [rng.integers(0, sides, count) for _ in range(number)]
    return [
        placer.along([int(s) if s != HOME and k in placer.movable[int(s) - 1] else HOME for k, s in enumerate(coin)])
        for coin in coins
    ]


def compared(
    session: ModelSession, placer: TransferPlacer, results: dict[Clock, TransferResult], number: int, anchor: Anchor
) -> list[dict[str, Any]]:
    """The placements, the plan and the single backends, each with its prediction and its time by each clock."""
    wanted: dict[Sides, str] = {}
    for result in results.values():
        for contender in result.contenders:
            wanted.setdefault(placer.assignment(contender), contender.kind)
        wanted.setdefault(result.solution.assignment, "plan")
    for sides in drawn(placer, number):
        wanted.setdefault(sides, "random")
    priced = placer.drawn(DRAWN * len(placer.movable), session.request.seed)
    for sides in [s for s in priced if s not in wanted][:ANCHORS]:
        wanted[sides] = "anchor"
    made = {sides: placer.contender("plan", label, sides, None) for sides, label in wanted.items()}
    candidates = {sides: replace(c.candidate, key=f"compared/{c.key}") for sides, c in made.items()}
    effort = replace(placer.effort(len(candidates)), together=12)
    measured, factors = measure_beside(session.runner, "compare", list(candidates.values()), anchor, effort)
    rows = []
    for sides, label in wanted.items():
        seen, before = measured[candidates[sides].key], session.runner.known(made[sides].key)
        rows.append(
            {
                "kind": label,
                "sides": list(sides),
                "away": sum(side != HOME for side in sides),
                "crossings": sum(sides[a] != sides[b] for a, b, _ in placer.wiring.edges),
                "predicted_s": {clock: found.transfers.total_s(sides) for clock, found in results.items()},
                "measured_s": {clock: level(seen, clock) if seen.ok else None for clock in results},
                "beside_s": level(seen, anchor.clock) * factors[candidates[sides].key] if seen.ok else None,
                "profiled_s": {clock: level(before, clock) if before.ok else None for clock in results},
                "failure": None if seen.ok else describe(seen.failure),
            }
        )
    return rows


def main() -> None:
    """Profile, predict, measure, and print."""
    given = arguments()
    # One process for each candidate, because the question is how well placements can be told apart.
    effort = Effort(processes_least=1, processes_most=1)
    with own_record() as record:
        made = given.model == "stretched"
        request = ModelRequest(
            model=stretched(record.parent) if made else model_path(given.model),
            runtimes=tuple(dict.fromkeys((given.runtime, "onnxruntime"))),
            settings=RunSettings(backends=tuple(given.backend) or ("cpu", "vulkan")),
            device=load_devices().get("local", THIS_MACHINE),
            record=record,
            effort=effort,
            fresh=True,
        )
        with open_session(request, kind="transfers", question={}) as session:
            reference(session)
            target = next(t for t in session.targets if t.runtime.name == given.runtime)
            begun = time.monotonic()
            placer = TransferPlacer(session, target)
            alive = profile_singles(session, placer.singles())
            clock = choose_clock(session, (session.runner.known(c.key) for c in alive))
            result = placer.run(alive, clock)
            profiled = time.monotonic()
            # The same runs, priced by the other clock: nothing is measured again.
            other: Clock = "cpu" if clock == "wall" else "wall"
            results = {clock: result, other: TransferPlacer(session, target).run(alive, other)}
            best = min(alive, key=lambda c: level(session.runner.known(c.key), clock))
            rows = compared(session, placer, results, given.placements, Anchor(candidate=best.candidate, clock=clock))
            randoms = [r for r in rows if r["kind"] == "random" and r["failure"] is None]
            document = {
                "model": given.model,
                "layers": result.transfers.wiring.count,
                "runtime": f"{given.runtime} {session.probes[given.runtime].version}",
                "device": accelerators(session.probes[given.runtime].details),
                "clock": clock,
                "profile_seconds": profiled - begun,
                "compare_seconds": time.monotonic() - profiled,
                "plan_layers_away": sum(side != HOME for side in result.solution.assignment),
                "plan": list(result.solution.choices),
                "optimal": result.solution.optimal,
                "missing": [f"{m.name}: {m.reason}" for m in session.missing],
                "error_beside": spread([abs(r["predicted_s"][clock] / r["beside_s"] - 1) for r in randoms]),
                "by_clock": {name: judged(found, rows, name) for name, found in results.items()},
                "placements": rows,
            }
    publish(document, given)


def accelerators(details: Mapping[str, Any]) -> str:
    """The accelerators that the runtime reports."""
    several = details.get("accelerators", {})
    told = [f"{backend}: {own['device']}{' (software)' * own['software']}" for backend, own in several.items()]
    return "; ".join(told) or str(details.get("vulkan_device", ""))


def judged(result: TransferResult, rows: list[dict[str, Any]], clock: str) -> dict[str, Any]:
    """The target figures by a clock, and their basis."""
    good = [r for r in rows if r["failure"] is None]
    randoms = [r for r in good if r["kind"] == "random"]
    speed = float(np.median([r["profiled_s"][clock] / r["measured_s"][clock] for r in good if r["kind"] == "anchor"]))
    plain = [abs(r["predicted_s"][clock] / r["measured_s"][clock] - 1) for r in randoms]
    steady = [abs(r["predicted_s"][clock] / (r["measured_s"][clock] * speed) - 1) for r in randoms]
    fastest = min(good, key=lambda r: r["measured_s"][clock])
    decided = next(r for r in rows if r["sides"] == list(result.solution.assignment))
    single = min(r["measured_s"][clock] for r in good if r["kind"] == "single")
    prices = result.transfers
    return {
        "error": spread(plain),
        "within_15_percent": float(np.median(plain)) <= 0.15,
        "plan_is_fastest": fastest is decided,
        "behind": decided["measured_s"][clock] / fastest["measured_s"][clock] - 1,
        "of_best_single": decided["measured_s"][clock] / single,
        "failed": len(rows) - len(good),
        "speed_since_profile": speed,
        "error_at_speed_of_profile": spread(steady),
        "fit_error": prices.error,
        "bring_s": prices.bring_s,
        "fetch_s": prices.fetch_s,
        "base_s": prices.base_s,
    }


if __name__ == "__main__":
    main()

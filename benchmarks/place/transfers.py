"""Predicted against measured time of thirty random placements of ncnn layers on CPU and Vulkan: one JSON document.

One profile is taken as `gnomon place` does it. Then placements are drawn from a seed that pricing does not use, each
layer's side by a coin, and are predicted, checked and measured in fresh processes, interleaved with the plan, the
single backends, and some of the placements that were priced from, whose median change of time since the profile is
told beside (`speed_since_profile`). Asked for are a median error within 15 %, and that the plan is the fastest of all
that were measured. Both are told by wall time and by the CPU time of all threads of the process: where Vulkan is a
program on the CPU, neighbours can double its wall time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import model_path, own_record, publish, spread
from gnomon.core.transfers import AWAY, HOME, Sides, random_sides
from gnomon.jobs.place.transfers import DRAWN, TransferPlacer, TransferResult
from gnomon.measure.effort import Clock, Effort
from gnomon.runtimes.base import Wish
from gnomon.session.contender import choose_clock, level, profile_singles
from gnomon.session.model_session import Lab, open_lab
from gnomon.session.reference import reference
from gnomon.session.request import Request
from gnomon.session.targets import describe

SEED = 2024
ANCHORS = 5


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="efficientnet-lite0.onnx", help="a model of the zoo, or a file")
    parser.add_argument("--placements", type=int, default=30, help="how many random placements")
    parser.add_argument("--data", type=Path, help="unused: the benchmark needs no reference data")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    return parser.parse_args()


def drawn(placer: TransferPlacer, number: int) -> list[Sides]:
    """Placements by a coin for each layer that can move."""
    rng = np.random.default_rng(SEED)
    count = placer.wiring.count
    return [
        tuple(AWAY if k in placer.movable[0] and coin else HOME for k, coin in enumerate(rng.random(count) < 0.5))
        for _ in range(number)
    ]


def compared(
    lab: Lab, placer: TransferPlacer, results: dict[Clock, TransferResult], number: int
) -> list[dict[str, Any]]:
    """The placements, the plan and the single backends, each with its prediction and what it took by each clock."""
    result = next(iter(results.values()))
    wanted: dict[Sides, str] = {result.solution.assignment: "plan"}
    for contender in result.contenders:
        wanted.setdefault(placer.sides(contender), "single")
    for sides in drawn(placer, number):
        wanted.setdefault(sides, "random")
    priced = random_sides(placer.wiring.count, placer.movable[0], DRAWN, lab.request.seed)
    for sides in [s for s in priced if s not in wanted][:ANCHORS]:
        wanted[sides] = "anchor"
    made = {sides: placer.contender("plan", label, sides, None) for sides, label in wanted.items()}
    candidates = {sides: replace(c.candidate, key=f"compared/{c.key}") for sides, c in made.items()}
    effort = replace(placer.effort(len(candidates)), together=12)
    measured = lab.runner.measure("compare", list(candidates.values()), effort)
    rows = []
    for sides, label in wanted.items():
        seen, before = measured[candidates[sides].key], lab.runner.known(made[sides].key)
        rows.append(
            {
                "kind": label,
                "away": sum(sides),
                "crossings": sum(sides[a] != sides[b] for a, b, _ in placer.wiring.edges),
                "predicted_s": {clock: found.transfers.total_s(sides) for clock, found in results.items()},
                "measured_s": {clock: level(seen, clock) if seen.ok else None for clock in results},
                "profiled_s": {clock: level(before, clock) if before.ok else None for clock in results},
                "failure": None if seen.ok else describe(seen.failure),
            }
        )
    return rows


def main() -> None:
    """Profile, predict, measure, print."""
    given = arguments()
    # One process for each candidate: what is asked is how well placements are told from each other.
    effort = Effort(processes_least=1, processes_most=1)
    with own_record() as record:
        request = Request(
            model=model_path(given.model),
            runtimes=("ncnn", "onnxruntime"),
            wish=Wish(backends=("cpu", "vulkan")),
            record=record,
            effort=effort,
            fresh=True,
        )
        with open_lab(request, kind="transfers", question={}) as lab:
            reference(lab)
            target = next(t for t in lab.targets if t.runtime.name == "ncnn")
            begun = time.monotonic()
            placer = TransferPlacer(lab, target)
            alive = profile_singles(lab, placer.singles())
            clock = choose_clock(lab, (lab.runner.known(c.key) for c in alive))
            result = placer.run(alive, clock)
            profiled = time.monotonic()
            # The same runs, priced by the other clock: nothing is measured again.
            other: Clock = "cpu" if clock == "wall" else "wall"
            results = {clock: result, other: TransferPlacer(lab, target).run(alive, other)}
            rows = compared(lab, placer, results, given.placements)
            document = {
                "model": given.model,
                "layers": result.transfers.wiring.count,
                "device": lab.probes["ncnn"].details.get("vulkan_device", ""),
                "clock": clock,
                "profile_seconds": profiled - begun,
                "compare_seconds": time.monotonic() - profiled,
                "plan_layers_away": sum(result.solution.assignment),
                "optimal": result.solution.optimal,
                "missing": [f"{m.name}: {m.reason}" for m in lab.missing],
                "by_clock": {name: judged(found, rows, name) for name, found in results.items()},
                "placements": rows,
            }
    publish(document, given)


def judged(result: TransferResult, rows: list[dict[str, Any]], clock: str) -> dict[str, Any]:
    """The figures asked for by a clock, and what they rest on."""
    good = [r for r in rows if r["failure"] is None]
    randoms = [r for r in good if r["kind"] == "random"]
    speed = float(np.median([r["profiled_s"][clock] / r["measured_s"][clock] for r in good if r["kind"] == "anchor"]))
    plain = [abs(r["predicted_s"][clock] / r["measured_s"][clock] - 1) for r in randoms]
    steady = [abs(r["predicted_s"][clock] / (r["measured_s"][clock] * speed) - 1) for r in randoms]
    fastest = min(good, key=lambda r: r["measured_s"][clock])
    prices = result.transfers
    return {
        "error": spread(plain),
        "within_15_percent": float(np.median(plain)) <= 0.15,
        "plan_is_fastest": fastest["kind"] == "plan",
        "speed_since_profile": speed,
        "error_at_speed_of_profile": spread(steady),
        "fit_error": prices.error,
        "bring_s": prices.bring_s[0],
        "fetch_s": prices.fetch_s[0],
        "base_s": prices.base_s,
    }


if __name__ == "__main__":
    main()

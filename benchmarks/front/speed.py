"""How fast are fronts of two objectives? Prints one JSON document.

The problems are recorded graphs in DATA/graphs, turned into problems by `graph_model`, and three seeds of each made-up
net of `training_graphs`. Seconds are those of one call, without the construction of the model: wall time, CPU time of
the process, and wall time until the first front of two points and until one that is proved within 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.front.models import blocks_model, graph_model
from benchmarks.front.training_graphs import inception, tangled, training_model, transformer
from gnomon.core.cost import CostModel
from gnomon.core.front.front import Front, exact_front

_EXACT = (
    ("LayerGraphs_bert24_inference", 2),
    ("LayerGraphs_gnmt_inference", 2),
    ("LayerGraphs_gnmt_inference", 3),
    ("LayerGraphs_resnet50_inference", 2),
    ("LayerGraphs_resnet50_inference", 3),
)
_NEAR = (
    ("OperatorGraphs_bert_l-12_inference", 2),
    ("OperatorGraphs_bert_l-12_inference", 3),
    ("OperatorGraphs_bert_l-6_training", 3),
)


def timed(name: str, model: CostModel, epsilon: float, limit_s: float) -> dict[str, Any]:
    """One front with its intermediate results."""
    wall, cpu = time.perf_counter(), time.process_time()
    seen: list[dict[str, Any]] = []

    def watch(front: Front) -> None:
        now = time.perf_counter() - wall
        seen.append({"wall_s": round(now, 3), "points": len(front), "certificate": front.certificate.document()})

    front = exact_front(model, epsilon=epsilon, left_s=lambda: wall + limit_s - time.perf_counter(), watch=watch)
    return {
        "problem": name,
        "slots": len(model.space.slots),
        "choices": len(model.space.slots[0].choices),
        "epsilon": epsilon,
        "points": len(front),
        "certificate": front.certificate.document(),
        "wall_s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "first_s": next((s["wall_s"] for s in seen if s["points"] > 1), None),
        "percent_s": next((s["wall_s"] for s in seen if _within(s["certificate"], 0.01)), None),
        "on_the_way": seen,
    }


def _within(certificate: Any, epsilon: float) -> bool:
    return certificate == "exact" or (isinstance(certificate, dict) and certificate["epsilon"] <= epsilon)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The smallest, the median and the largest of each number over the runs of a problem."""
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["problem"], row["epsilon"]), []).append(row)
    report = []
    for (problem, epsilon), runs in found.items():
        entry: dict[str, Any] = {"problem": problem, "epsilon": epsilon, "runs": len(runs)}
        entry["slots"] = sorted({run["slots"] for run in runs})
        entry["proved"] = sorted({str(run["certificate"]) for run in runs})
        for key in ("wall_s", "cpu_s", "first_s", "percent_s"):
            known = sorted(run[key] for run in runs if run[key] is not None)
            entry[key] = [known[0], known[len(known) // 2], known[-1]] if len(known) == len(runs) else None
        report.append(entry)
    return report


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("GNOMON_DATA"), help="folder with graphs/*.json")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of each")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each")
    parser.add_argument("--only", choices=("exact", "near", "training"), help="a part of the problems")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    skipped = "" if options.data else "recorded graphs: give --data or set GNOMON_DATA"
    for repeat in range(options.repeats):
        if options.only in (None, "exact"):
            rows += [
                timed(f"blocks {n} x {k}", blocks_model(n, k), 0.0, options.limit) for n, k in ((177, 2), (326, 2))
            ]
        for part, names, epsilon in (("exact", _EXACT, 0.0), ("near", _NEAR, 0.01)):
            if options.data and options.only in (None, part):
                for name, backends in names:
                    model = graph_model(Path(options.data) / "graphs" / f"{name}.json", backends)
                    rows.append(timed(f"{name} x {backends}", model, epsilon, options.limit))
        for make in (transformer, inception, tangled) if options.only in (None, "training") else ():
            tape = make(np.random.default_rng(repeat))
            for charged in (False, True):
                name = f"{make.__name__} x 3{' charged' if charged else ''}"
                rows.append(timed(name, training_model(tape, 3, charged=charged, seed=repeat), 0.01, options.limit))
    print(json.dumps({"summary": summary(rows), "fronts": rows, "skipped": skipped}, indent=1))


if __name__ == "__main__":
    main()

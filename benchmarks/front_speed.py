"""How fast are fronts of two objectives? Prints one JSON document.

Recorded graphs of DATA/graphs as `front_models.graph_model` makes them problems, and synthetic nets. Seconds are those
of one call, both wall and process CPU, without the construction of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from front_models import blocks_model, graph_model
from gnomon.core.cost import CostModel
from gnomon.core.front import Front, exact_front

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
    """One front, and what was known on the way."""
    wall, cpu = time.perf_counter(), time.process_time()
    seen: list[dict[str, Any]] = []

    def watch(front: Front) -> None:
        now = time.perf_counter() - wall
        seen.append({"wall_s": round(now, 3), "points": len(front), "certificate": front.certificate.document()})

    front = exact_front(model, epsilon=epsilon, out_of_time=lambda: time.perf_counter() - wall > limit_s, watch=watch)
    return {
        "problem": name,
        "slots": len(model.space.slots),
        "choices": len(model.space.slots[0].choices),
        "epsilon": epsilon,
        "points": len(front),
        "certificate": front.certificate.document(),
        "wall_s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "on_the_way": seen,
    }


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("GNOMON_DATA"), help="folder with graphs/*.json")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each")
    options = parser.parse_args()
    rows = [timed(f"blocks {n} x {k}", blocks_model(n, k), 0.0, options.limit) for n, k in ((177, 2), (326, 2))]
    skipped = "" if options.data else "recorded graphs: give --data or set GNOMON_DATA"
    if options.data:
        folder = Path(options.data) / "graphs"
        for names, epsilon in ((_EXACT, 0.0), (_NEAR, 0.01)):
            for name, backends in names:
                model = graph_model(folder / f"{name}.json", backends)
                rows.append(timed(name, model, epsilon, options.limit))
    print(json.dumps({"fronts": rows, "skipped": skipped}, indent=1))


if __name__ == "__main__":
    main()

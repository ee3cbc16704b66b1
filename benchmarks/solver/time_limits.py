"""Do commands keep to their time limits? Prints one JSON document.

The problems are all those of the benchmarks of the solver and of fronts (recorded graphs in DATA/graphs, with two to
four backends), and made-up ones that are too hard to solve: wide trees, many charges, many objectives. Each is written
to a file and given to `gnomon solve` and `gnomon front` with `--time-limit`. The measured value is by how much the wall
time of the whole command exceeds 1.2 times the limit plus 2 s. The document also says what was reached: a gap, or the
factor within which a front is proved.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import parser, publish, spread
from benchmarks.front.models import blocks_model, graph_model
from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.space import Slot, Space
from gnomon.formats.problem import write_problem

PROGRAM = "import sys; from gnomon.cli.main import main; sys.exit(main())"


def tree(count: int, width: int, choices: int, *, charged: int = 0, objectives: int = 1) -> CostModel:
    """A k-tree with random costs; with charges, each slot has some of the charged choices."""
    rng = np.random.default_rng(count + width)
    cliques = [list(range(width + 1))]
    edges = set(itertools.combinations(range(min(count, width + 1)), 2))
    for slot in range(width + 1, count):
        kept = rng.choice(cliques[rng.integers(len(cliques))], width, replace=False).tolist()
        edges.update((min(u, slot), max(u, slot)) for u in kept)
        cliques.append([*kept, slot])
    names = [f"b{i}" for i in range(max(choices, charged))]
    slots = [
        Slot(f"s{i}", tuple(names[c] for c in rng.choice(len(names), choices, replace=False))) for i in range(count)
    ]
    return CostModel(
        Space(tuple(slots)),
        tuple(Objective(f"o{i}") for i in range(objectives)),
        tuple(rng.uniform(1, 10, (choices, objectives)) for _ in slots),
        tuple(PairCost(a, b, rng.uniform(0, 5, (choices, choices, objectives))) for a, b in sorted(edges)),
        tuple(Charge(name, np.full(objectives, 2.0)) for name in names[:charged]),
    )


SOLVED: dict[str, Callable[[], CostModel]] = {
    "8-tree, 800 slots, 4 choices": lambda: tree(800, 8, 4),
    "6-tree, 40 slots, 12 charges": lambda: tree(40, 6, 4, charged=12),
    "8-tree, 40 slots, 12 charges": lambda: tree(40, 8, 4, charged=12),
    "10-tree, 40 slots, 12 charges": lambda: tree(40, 10, 4, charged=12),
    "10-tree, 200 slots, 4 charges": lambda: tree(200, 10, 4, charged=4),
    "16-tree, 3000 slots, 2 choices": lambda: tree(3000, 16, 2),
    "40-clique, 4 choices": lambda: tree(40, 39, 4),
}
FRONTS: dict[str, Callable[[], CostModel]] = {
    "chain of 30, 5 objectives": lambda: tree(30, 1, 3, objectives=5),
    "chain of 200, 3 objectives": lambda: tree(200, 1, 3, objectives=3),
    "chain of 100, 4 objectives": lambda: tree(100, 1, 4, objectives=4),
    "chain of 2000, 2 objectives": lambda: tree(2000, 1, 4, objectives=2),
    "11-tree, 30 slots, 2 objectives": lambda: tree(30, 11, 3, objectives=2),
    "10-tree, 400 slots, 2 objectives": lambda: tree(400, 10, 3, objectives=2),
    "18-tree, 60 slots, 3 objectives": lambda: tree(60, 18, 3, objectives=3),
    "4-tree, 60 slots, 8 charges, 2 objectives": lambda: tree(60, 4, 4, charged=8, objectives=2),
    "blocks 326 x 2": lambda: blocks_model(326, 2),
}


def problems(data: Path | None) -> Iterator[tuple[str, str, CostModel, list[str]]]:
    """The command, the name, the model, and further words."""
    for name, make in SOLVED.items():
        yield "solve", name, make(), []
    for name, make in FRONTS.items():
        for epsilon in ("0", "0.01"):
            yield "front", name, make(), ["--epsilon", epsilon]
    for path in sorted((data / "graphs").glob("*.json")) if data is not None else ():
        for backends in (2, 3, 4):
            model = graph_model(path, backends)
            weights = ",".join(f"{objective.name}=1" for objective in model.objectives)
            yield "solve", f"{path.stem} x {backends}", model, ["--weights", weights]
            for epsilon in ("0", "0.01"):
                yield "front", f"{path.stem} x {backends}", model, ["--epsilon", epsilon]


def measured(command: str, words: list[str], file: Path, limit_s: float) -> dict[str, Any]:
    """One command: its wall time, and what it reached."""
    argv = [sys.executable, "-c", PROGRAM, command, str(file), "--time-limit", f"{limit_s:g}", "--json", *words]
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    took_s = time.perf_counter() - began
    if done.returncode == 2:
        sys.exit(done.stderr)
    told = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()[-300:]}
    if command == "solve":
        reached = {key: told.get(key) for key in ("method", "optimal", "value", "bound", "error")}
    else:
        reached = {
            "certificate": told.get("certificate"),
            "points": len(told.get("points", ())),
            "error": told.get("error"),
        }
    return {"took_s": round(took_s, 2), "over": round((took_s - 2.0) / limit_s, 3), **reached}


def main() -> None:
    """Run all and print."""
    made = parser(__doc__)
    made.add_argument("--limits", type=float, nargs="*", default=[5.0, 20.0], help="seconds (5 and 20)")
    made.add_argument("--only", choices=("solve", "front"), help="one of the commands")
    given = made.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.json"
        for command, name, model, words in problems(given.data):
            if given.only not in (None, command):
                continue
            file.write_text(write_problem(model), encoding="utf-8")
            for limit_s in given.limits:
                row = measured(command, words, file, limit_s)
                rows.append({"command": command, "problem": name, "words": words, "limit_s": limit_s, **row})
    over = [row["over"] for row in rows]
    publish(
        {
            "benchmark": "time limits",
            "asked": "took_s <= 1.2 * limit_s + 2",
            "kept": sum(value <= 1.2 for value in over),
            "over": spread(over) if over else None,
            "rows": rows,
        },
        given,
    )


if __name__ == "__main__":
    main()

"""Exact minima of wide trees, with and without charges: CPU seconds and memory. Prints one JSON document.

Each case is solved by `solve` with its default method, in a separate process. Targets: see ASKED_S.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

from benchmarks.common import parser, publish
from benchmarks.solver.time_limits import tree
from gnomon.core.solver.solve import solve

CASES: dict[str, dict[str, int]] = {
    "6-tree, 40 x 4, 12 charges": {"count": 40, "width": 6, "choices": 4, "charged": 12},
    "8-tree, 40 x 4, 12 charges": {"count": 40, "width": 8, "choices": 4, "charged": 12},
    "10-tree, 40 x 4, 12 charges": {"count": 40, "width": 10, "choices": 4, "charged": 12},
    "10-tree, 200 x 4, 4 charges": {"count": 200, "width": 10, "choices": 4, "charged": 4},
    "16-tree, 3000 x 2": {"count": 3000, "width": 16, "choices": 2},
    "12-tree, 200 x 4": {"count": 200, "width": 12, "choices": 4},
    "10-tree, 100 x 6": {"count": 100, "width": 10, "choices": 6},
}
ASKED_S = dict(zip(CASES, (0.5, 1.0, 12.0, 13.0, 6.0, 60.0, 150.0), strict=True))


def solved(name: str) -> dict[str, Any]:
    """One case, in this process."""
    model = tree(**CASES[name])
    began_s = time.process_time()
    found = solve(model)
    took_s = time.process_time() - began_s
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"value": found.value, "bound": found.bound, "optimal": found.optimal, "method": found.method}
    return {"problem": name, "cpu_s": round(took_s, 2), "asked_s": ASKED_S[name], "peak_bytes": held, **told}


def main() -> None:
    """Run all and print."""
    made = parser(__doc__)
    made.add_argument("--case", choices=CASES, help="one case, in this process")
    given = made.parse_args()
    if given.case:
        print(json.dumps(solved(given.case)))
        return
    rows = []
    for name in CASES:
        command = [sys.executable, "-m", "benchmarks.solver.wide", "--case", name]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    publish({"benchmark": "wide", "rows": rows}, given)


if __name__ == "__main__":
    main()

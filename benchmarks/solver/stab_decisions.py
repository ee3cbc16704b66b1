"""What do stab's published rule and the exact decision make of the same traces? Prints one JSON document.

`--traces DIR` holds trace files named ``<package>_<backend>_<threads>``, as the scheduler stab and `gnomon stab` leave
them. For each package and number of threads, the document has both placements, their predicted times by the same
prices, and the best single backend, in microseconds.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from benchmarks.common import publish
from gnomon.core.pricing.stab import OP_LIST, exact_decision, published_decision
from gnomon.core.sample import Trace
from gnomon.errors import ProblemError
from gnomon.formats.onert.trace import read_trace

_NAME = re.compile(rf"(.+)_(cpu|{'|'.join(OP_LIST)})_([0-9]+)")


def trace_sets(folder: Path) -> dict[tuple[str, int], dict[str, Trace]]:
    """The traces in a folder by package and threads, then by backend in the published order."""
    found: dict[tuple[str, int], dict[str, Trace]] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.is_file():
            found.setdefault((match[1], int(match[3])), {})[match[2]] = read_trace(path.read_bytes())
    order = ["cpu", *OP_LIST]
    return {key: {b: traces[b] for b in order if b in traces} for key, traces in found.items()}


def compared(traces: dict[str, Trace]) -> dict[str, Any]:
    """Both decisions on one set of traces."""
    exact = exact_decision(traces)
    document: dict[str, Any] = {
        "operators": len(exact.types),
        "singles_us": {b: p.predicted_us for b, p in exact.singles.items()},
        "whole_runs_us": {b: t.graph.avg_us if t.graph else None for b, t in traces.items()},
        "best_single": exact.best_single,
        "exact_us": exact.chosen.predicted_us,
        "exact_placement": {str(i): b for i, b in exact.chosen.placement.items()},
    }
    try:
        published = published_decision(traces)
    except ProblemError as error:
        return document | {"published_error": error.message}
    placed = published.placed(exact.types)
    return document | {
        "published_us": exact.price(placed).predicted_us,
        "published_told_us": published.scheduled_us,
        "published_default": published.default,
        "published_map": {str(i): b for i, b in published.mapped.items()},
        "published_ends_with": published.ended_by,
        "placed_unlike": sorted(i for i, b in placed.items() if exact.chosen.placement[i] != b),
    }


def main() -> None:
    """Compare the decisions on every set of traces in the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of traces")
    parser.add_argument("--data", type=Path, help="not used: the traces are the data")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    given = parser.parse_args()
    sets = [
        {"package": package, "threads": threads, **compared(traces)}
        for (package, threads), traces in trace_sets(given.traces).items()
    ]
    publish({"benchmark": "stab_decisions", "sets": sets}, given)


if __name__ == "__main__":
    main()

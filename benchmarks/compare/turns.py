"""Two models measured by turns and compared, as `gnomon profile NEW --beside OLD` does it: one JSON document.

The models are the chains of `runs.py`: 100 equal matrix products beside itself, and beside 101 and 103, whose calls
truly take 1 % and 3 % longer. Each --pairs times, in order, with the product's own defaults but for --processes, in a
fresh results database. Asked for are no verdict of equal models but "same" and "unknown", in 98.5 of 100 pairs; and
that 3 % is found in 95 and 1 % in 60 of 100, within 60 s of measuring a side.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import own_record, parser, publish, spread
from benchmarks.compare.runs import PLAIN, SLOWER, chain


def main() -> None:
    """The pairs, by turns themselves."""
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=10, help="how many of each")
    options.add_argument("--processes", type=int, help="fresh processes a side, if not the default")
    given = options.parse_args()
    rows: dict[int, list[dict[str, Any]]] = {products: [] for products in (PLAIN, *SLOWER)}
    with tempfile.TemporaryDirectory() as folder, own_record() as record:
        models = {products: chain(Path(folder), products) for products in rows}
        for _ in range(given.pairs):
            for products, found in rows.items():
                began = time.monotonic()
                how: dict[str, Any] = {"processes": given.processes} if given.processes else {}
                pair = gnomon.compare_models(
                    models[PLAIN], models[products], runtimes=("onnxruntime",), record=record, fresh=True, **how
                ).pairs[0]
                (row,) = pair.configurations
                kernels = sum(len(part.changed) for part in pair.operators)
                found.append(
                    {
                        "verdict": row.verdict,
                        "ratio": row.ratio,
                        "interval": [row.low, row.high],
                        "p": row.p,
                        "clock": pair.clock,
                        "kernels_changed": kernels,
                        "seconds_a_side": (time.monotonic() - began) / 2,
                    }
                )
    told = {
        f"{products} beside {PLAIN}": {
            "verdicts": {v: sum(r["verdict"] == v for r in found) for v in ("slower", "faster", "same", "unknown")},
            "ratio": spread([r["ratio"] for r in found]),
            "half_width": spread([(r["interval"][1] - r["interval"][0]) / 2 for r in found if r["interval"][0]]),
            "seconds_a_side": spread([r["seconds_a_side"] for r in found]),
            "pairs": found,
        }
        for products, found in rows.items()
    }
    publish({"benchmark": "compare by turns", "models": told}, given)


if __name__ == "__main__":
    main()

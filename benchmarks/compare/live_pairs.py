"""The verdicts of `gnomon compare OLD NEW` on live pairs of models that are measured alternately on this machine.

A model is a chain of equal matrix products (`runs.chain`, 5 ms a call). A slower model has a certain share more of
them, so its calls really take that much longer. --pairs pairs of equal models, and as many with each slower model, are
compared through `gnomon.compare`, with and without a limit. Target: no equal pair is called slower or faster, and a
gate never passes a model that is slower by more than its limit.

Prints a JSON document with each pair, and with the counts of verdicts for each kind of pair. With --data DIR, the
models and the results database are kept in that folder.
"""

from __future__ import annotations

import os
import tempfile
from argparse import Namespace
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import parser, publish
from benchmarks.compare.runs import PLAIN, chain
from gnomon.core.stats import median

_SLOWER = (0.0, 0.01, 0.03, 0.05)


def compared(old: Path, new: Path, record: Path, given: Namespace) -> dict[str, Any]:
    """The verdict of a comparison of two models, and how long the comparison took."""
    load = os.getloadavg()[0]
    found = gnomon.compare(
        old,
        new,
        runtimes=("onnxruntime",),
        threads=1,
        budget_s=given.budget,
        fail_slower=given.fail_slower,
        record=record,
        fresh=True,
    )
    (row,) = found.pairs[0].configurations
    answer = gnomon.answer_of_run(found.sides[0].campaign, record=record) or {}
    return {
        "verdict": row.gate or row.verdict,
        "ratio": round(row.ratio, 5),
        "sees": row.sees,
        "turns": row.processes[0],
        "seconds": round(answer["seconds"], 1),
        "load": round(load, 1),
    }


def _given() -> Namespace:
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=20, help="how many pairs of each kind")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of a pair")
    options.add_argument(
        "--slower", type=float, nargs="+", default=_SLOWER, help="by which shares the models are slower"
    )
    options.add_argument("--fail-slower", type=float, help="a gate with this limit, such as 0.03")
    return options.parse_args()


def main() -> None:
    """Compare pairs of each kind in turn, so that changes of the machine affect all kinds alike."""
    given = _given()
    pairs: dict[float, list[dict[str, Any]]] = {share: [] for share in given.slower}
    with ExitStack() as stack:
        folder = given.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        old = chain(folder, PLAIN)
        for _ in range(given.pairs):
            for share, found in pairs.items():
                new = chain(folder, round(PLAIN * (1 + share)))
                found.append(compared(old, new, folder / "record.sqlite", given))
    rows = [
        {
            "slower": share,
            "of": len(found),
            "verdicts": dict(Counter(one["verdict"] for one in found)),
            "seconds": median([one["seconds"] for one in found]),
            "pairs": found,
        }
        for share, found in pairs.items()
    ]
    publish(
        {"benchmark": "live pairs", "budget_s": given.budget, "fail_slower": given.fail_slower, "rows": rows}, given
    )


if __name__ == "__main__":
    main()

"""Compares packages with the page: the time of a call from the second session on, and the page's figure.

The models are the zoo's and those of the table in --data (see `new_files`), at most --most in total, with one thread
(--threads auto: gnomon's default). One process runs the package first, and does not count; then --processes fresh
processes run it through its agent. An nnpackage is also loaded twice in a process by onert alone, without the variables
that the agent sets; the second session counts. The document has the ratio to the page's figure by the page's clock
(medians of processes, 95 % interval by Welch). Because the machine may have changed since the page was made, there is
also the ratio to the hand-written loop of the same configuration, which alternates with the package. Target: 10 of 10
within 3 % of the page.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import kept_rows, publish, row_parser
from benchmarks.place.asked import ask, many_entries, side_of, wanted
from benchmarks.place.by_hand import (
    RUNTIMES,
    Side,
    by_turns,
    converted,
    feeds_of,
    in_fresh_process,
    levels,
    ratio_apart,
    ratio_by_turns,
)

_WITHIN = 0.03
_BY_HAND = "by hand"


def arguments() -> argparse.Namespace:
    """The command line."""
    made = row_parser(__doc__)
    made.add_argument("--most", type=int, default=10, help="how many models")
    made.add_argument("--threads", default="1", help="a number, or auto: what the product takes by itself")
    made.add_argument("--processes", type=int, default=7, help="of each package")
    made.add_argument("--seconds", type=float, default=1.0, help="how long each of them calls")
    made.add_argument("--limit", type=float, default=1500.0, help="seconds after which a model has no answer")
    return made.parse_args()


def row(entry: Mapping[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """The row of one model."""
    model = Path(entry["path"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        feeds = feeds_of(model, entry["inputs"], folder)
        options = wanted(entry, feeds, given.threads)
        answer = ask(model, folder, limit_s=given.limit, **options)
        if "error" in answer:
            return answer
        package = folder / "package"
        own = {name: feeds[name] for name in options.get("inputs", {})}
        sides = {"agent": Side(runtime="package", how="package", model=str(package), feeds=own, seconds=given.seconds)}
        in_fresh_process(sides["agent"])
        nnpackage = package / "nnpackage"
        if nnpackage.is_dir():
            sides["nnpackage"] = Side(
                runtime="onert", how="nnpackage", model=str(nnpackage), feeds=feeds, seconds=given.seconds, sessions=2
            )
        written = tuple(sides)
        sides |= by_hand(model, folder, feeds, answer, given.seconds)
        told, failed = by_turns(sides, given.processes)
        clock = answer["clock"]
        page = answer["chosen_s"][clock]
        ratios = {name: ratio_apart(levels(told[name], clock), page) for name in written if name not in failed}
        beside = {
            name: ratio_by_turns(levels(told[name], clock), levels(told[_BY_HAND], clock))
            for name in ratios
            if _BY_HAND in sides and _BY_HAND not in failed
        }
        kept = {key: answer[key] for key in ("chosen", "clock", "page", "warnings")}
        return {
            **kept,
            "page_levels_s": page,
            "levels_s": {name: levels(told[name], clock) for name in ratios},
            "ratios": ratios,
            "over_by_hand": beside,
            "within": len(ratios) == len(written) and all(abs(one["ratio"] - 1) <= _WITHIN for one in ratios.values()),
            "meet": len(ratios) == len(written)
            and all(one["low"] <= 1 + _WITHIN and one["high"] >= 1 - _WITHIN for one in ratios.values()),
            "failed": failed,
        }


def by_hand(
    model: Path, folder: Path, feeds: Mapping[str, str], answer: Mapping[str, Any], seconds: float
) -> dict[str, Side]:
    """The hand-written loop of the chosen configuration; empty for a mix, or if there is no such loop."""
    chosen = next(row for row in answer["rows"] if row["label"] == answer["chosen"])
    if chosen["kind"] != "single":
        return {}
    side = side_of(chosen, str(model), feeds, seconds)
    if side.runtime not in RUNTIMES:
        return {}
    return {_BY_HAND: replace(side, model=str(converted(side.runtime, model, folder, feeds)))}


def main() -> None:
    """Run all models."""
    given = arguments()
    entries = many_entries(given.data, given.most)
    rows = kept_rows("packages", entries, lambda name: row(entries[name], given), given)
    done = [found for found in rows if "within" in found]
    publish(
        {
            "benchmark": "packages",
            "models": len(rows),
            "answered": len(done),
            "within": sum(found["within"] for found in done),
            "meet": sum(found["meet"] for found in done),
            "rows": rows,
        },
        given,
    )


if __name__ == "__main__":
    main()

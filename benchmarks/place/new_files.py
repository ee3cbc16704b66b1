"""Compares the answers of `gnomon.place` for new model files with a hand-written loop on the same files.

--data DIR holds the files and models.json, a table of them: ``{"models": [{"file", "package", "version", "kind",
"inputs": {NAME: {"shape": [..], "least": a, "most": b, "values": [..]}}}]}``. `inputs` has the facts that the file
lacks: the sizes of open dimensions, and values or their range. Each file is placed with one thread (with --threads
auto: gnomon's default). Then the page's best two whole configurations run in the loops of `by_hand.py`, alternately in
--processes fresh processes each, by CPU time (with several threads, by wall time). The document has the page's ratio
with its interval, the loop's, and whether the first lies within the second or the intervals overlap. Targets: 29 of 30
answered, and 29 of 30 within.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import kept_rows, publish, row_parser
from benchmarks.place.asked import ask, best_two, entries_of, side_of, wanted
from benchmarks.place.by_hand import RUNTIMES, by_turns, converted, feeds_of, levels, ratio_by_turns


def arguments() -> argparse.Namespace:
    """The command line."""
    made = row_parser(__doc__)
    made.add_argument("--threads", default="1", help="a number, or auto: what the product takes by itself")
    made.add_argument("--processes", type=int, default=7, help="of the loop by hand, a side")
    made.add_argument("--seconds", type=float, default=1.0, help="how long each of them calls")
    made.add_argument("--limit", type=float, default=1500.0, help="seconds after which a file has no answer")
    return made.parse_args()


def row(entry: dict[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """The row of one file."""
    model = Path(entry["path"])
    about = {key: entry[key] for key in ("package", "version", "kind")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        feeds = feeds_of(model, entry["inputs"], folder)
        options = wanted(entry, feeds, given.threads)
        answer = ask(model, folder, limit_s=given.limit, **options)
        made = {**about, "asked": options, "file_bytes": model.stat().st_size, **answer}
        if "error" not in answer:
            try:
                made["by_hand"] = compared(model, folder, feeds, answer, given)
            except Exception as error:  # the answer gets a row, whatever the hand-written loop does
                made["by_hand"] = {"error": f"{type(error).__name__}: {error}"}
    return made


def compared(
    model: Path, folder: Path, feeds: dict[str, str], answer: dict[str, Any], given: argparse.Namespace
) -> dict[str, Any]:
    """The page's best two configurations in the hand-written loop."""
    two = best_two(answer)
    if two is None:
        return {"why": "one configuration alone ran"}
    sides = {}
    for one in two:
        side = side_of(one, str(model), feeds, given.seconds)
        if side.runtime not in RUNTIMES:
            return {"why": f"there is no loop for {side.runtime}"}
        sides[one["label"]] = replace(side, model=str(converted(side.runtime, model, folder, feeds)))
    threads = {side.settings.get("threads") for side in sides.values()}
    clock = "cpu" if threads == {1} else "wall"
    told, failed = by_turns(sides, given.processes)
    if failed:
        return {"failed": failed}
    first, second = (levels(told[one["label"]], clock) for one in two)
    own = ratio_by_turns(second, first)
    page = two[1]["against_best"]
    bounds = (page["low"] or 0.0, page["high"] or float("inf"))
    return {
        "of": [two[1]["label"], two[0]["label"]],
        "clock": clock,
        "levels_s": {"of": second, "over": first},
        "page": {key: page[key] for key in ("ratio", "low", "high")},
        "own": own,
        "inside": own["low"] <= page["ratio"] <= own["high"],
        "meet": bounds[0] <= own["high"] and own["low"] <= bounds[1],
    }


def main() -> None:
    """Run each file in the table."""
    given = arguments()
    entries = entries_of(given.data)
    rows = kept_rows("new files", entries, lambda name: row(entries[name], given), given)
    ratios = [found["by_hand"] for found in rows if "own" in found.get("by_hand", {})]
    document = {
        "benchmark": "new files",
        "files": len(rows),
        "answered": sum("error" not in found for found in rows),
        "ratios": len(ratios),
        "inside": sum(one["inside"] for one in ratios),
        "meet": sum(one["meet"] for one in ratios),
        "rows": rows,
    }
    publish(document, given)


if __name__ == "__main__":
    main()

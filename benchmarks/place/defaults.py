"""Compares the answer of `gnomon.place`, with its defaults, with every runtime as most people run it.

The models are the zoo's and those of the table in --data (see `new_files`), at most --most in total. Each is placed
with gnomon's defaults. Then the package, run by its own command, and the default of each installed runtime (the file, a
dictionary of arrays, no options: `by_hand`) run alternately in --processes fresh processes each. Wall time is measured,
on all cores that the process may use. A default that computes in a lower precision, or whose outputs differ from the
first default's (by their mean magnitudes), is listed separately. Target: no answer is certainly slower than another
default (the interval of its ratio lies above 1). Prints one JSON document.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import kept_rows, publish, row_parser
from benchmarks.place.asked import ask, many_entries, wanted
from benchmarks.place.by_hand import Side, by_turns, converted, feeds_of, levels, ratio_by_turns

_LOADED_BY: Mapping[str, tuple[str, ...]] = {
    ".onnx": ("onnxruntime", "openvino", "mnn"),
    ".tflite": ("litert", "openvino", "onert"),
    ".circle": ("onert",),
    ".param": ("ncnn",),
}
_MODULES = {"litert": "ai_edge_litert", "mnn": "MNN"}
_ANSWER = "answer"


def arguments() -> argparse.Namespace:
    """The command line."""
    made = row_parser(__doc__)
    made.add_argument("--most", type=int, default=20, help="how many models")
    made.add_argument("--processes", type=int, default=7, help="a side")
    made.add_argument("--seconds", type=float, default=1.0, help="how long each of them calls")
    made.add_argument("--limit", type=float, default=1500.0, help="seconds after which a model has no answer")
    return made.parse_args()


def row(entry: Mapping[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """The row of one model."""
    model = Path(entry["path"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        feeds = feeds_of(model, entry["inputs"], folder)
        answer = ask(model, folder, limit_s=given.limit, **wanted(entry, feeds, "auto"))
        if "error" in answer:
            return answer
        package = Side(runtime="package", how="run", model=str(folder / "package"), feeds=feeds, seconds=given.seconds)
        sides, failed = {_ANSWER: package}, {}
        for runtime in _LOADED_BY[model.suffix]:
            if importlib.util.find_spec(_MODULES.get(runtime, runtime)) is None:
                continue
            try:
                file = str(converted(runtime, model, folder, feeds))
            except ValueError as error:
                failed[runtime] = str(error)
                continue
            side = Side(runtime=runtime, how="default", model=file, feeds=feeds, seconds=given.seconds)
            sides[runtime] = side
            if runtime == "openvino":
                sides["openvino, float32"] = replace(side, settings={"precision": "f32"})
        told, more = by_turns(sides, given.processes)
        kept = {key: answer[key] for key in ("chosen", "clock", "page", "elapsed_s", "warnings")}
        return {**kept, **judged(told, failed | more)}


def judged(told: Mapping[str, list[dict[str, Any]]], failed: Mapping[str, str]) -> dict[str, Any]:
    """The ratio of the answer to each default; `ok` means that it is certainly slower than none of equal precision."""
    if _ANSWER in failed:
        return {"ok": False, "failed": dict(failed)}
    mine = levels(told[_ANSWER], "wall")
    ratios: dict[str, dict[str, Any]] = {}
    means: list[float] | None = None
    for name, found in told.items():
        if name != _ANSWER and name not in failed:
            first = found[0]
            means = first["means"] if means is None else means
            apart = first["precision"] if first["precision"] in ("bf16", "f16") else ""
            if len(means) != len(first["means"]) or not np.allclose(first["means"], means, rtol=0.02, atol=1e-6):
                apart = f"{apart} other outputs".strip()
            ratios[name] = {
                **ratio_by_turns(mine, levels(found, "wall")),
                "levels_s": levels(found, "wall"),
                "apart": apart,
            }
    slower = [name for name, one in ratios.items() if one["low"] > 1 and not one["apart"]]
    return {"ok": not slower, "slower_than": slower, "levels_s": mine, "over": ratios, "failed": dict(failed)}


def main() -> None:
    """Run all models."""
    given = arguments()
    entries = many_entries(given.data, given.most)
    rows = kept_rows("defaults", entries, lambda name: row(entries[name], given), given)
    done = [found for found in rows if "ok" in found]
    publish(
        {
            "benchmark": "defaults",
            "models": len(rows),
            "answered": len(done),
            "not_slower": sum(found["ok"] for found in done),
            "rows": rows,
        },
        given,
    )


if __name__ == "__main__":
    main()

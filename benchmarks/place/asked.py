"""Runs `gnomon.place` in a process of its own, as users call it; returns its answer, its page, and its cost.

`python -m benchmarks.place.asked JSON` is this process. It uses gnomon's defaults except for the settings in JSON.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from signal import SIGKILL
from typing import Any

from benchmarks.place.by_hand import ROOT, Side

_LINES = 14
_LAUNCHER = re.compile(r"gnomon-agent\.pyz|plan\..*|README\.txt|environment\.sh|session\..*")
"""The files that a package has besides the model."""


def ask(model: Path, folder: Path, *, limit_s: float = 1500.0, **options: Any) -> dict[str, Any]:
    """The answer for a model, whose package is written to `folder`/package, with a separate results database.

    If there is no answer, the result has `error` and `hint` instead of the parts that come from an answer.
    """
    spec = {"model": str(model), "folder": str(folder), "options": options}
    # This call has its own results database, leases and cache of models, as on a machine where nothing was placed
    # before.
    own = {"GNOMON_HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-m", "benchmarks.place.asked", json.dumps(spec)]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env={**os.environ, **own}, cwd=ROOT, stdout=said, stderr=said, text=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                os.kill(process.pid, SIGKILL)
                process.wait()
            return {"error": f"no answer within {limit_s:.0f} s", "elapsed_s": time.monotonic() - began}
        said.seek(0)
        words = said.read()
    path = folder / "answer.json"
    if not path.is_file():
        return {"error": f"ended with {code}: {words[-400:]}", "elapsed_s": time.monotonic() - began}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def entries_of(data: Path | None) -> dict[str, dict[str, Any]]:
    """The files in the table by name, each with its `path` and the table's facts about its `inputs`."""
    if data is None:
        return {}
    table = json.loads((data / "models.json").read_text(encoding="utf-8"))["models"]
    return {entry["file"]: {**entry, "path": str(data / entry["file"])} for entry in table}


def many_entries(data: Path | None, most: int) -> dict[str, dict[str, Any]]:
    """The zoo's models, then one file of each package in the table: at most `most` in total."""
    import zoo

    models = [name for name in zoo.NAMES if not name.endswith(".npz")]
    found: dict[str, dict[str, Any]] = {name: {"path": str(zoo.build(name)), "inputs": {}} for name in models}
    packages = set()
    for name, entry in entries_of(data).items():
        if entry["package"] not in packages:
            packages.add(entry["package"])
            found[name] = entry
    return dict(list(found.items())[:most])


def wanted(entry: Mapping[str, Any], feeds: Mapping[str, str], threads: str) -> dict[str, Any]:
    """A user's arguments for `place`: shapes that the file leaves open, files for inputs that need certain values, and
    threads.

    With "auto", threads are not given.
    """
    from gnomon.models.load import load

    graph, told = load(Path(entry["path"])).graph, entry["inputs"]
    left_open = {t.name for t in (graph.tensors[i] for i in graph.inputs) if t.shape is None or -1 in t.shape}
    shapes = {name: one["shape"] for name, one in told.items() if name in left_open and "shape" in one}
    inputs = {name: feeds[name] for name, one in told.items() if {"values", "least"} & one.keys()}
    found: dict[str, Any] = {"threads": int(threads)} if threads != "auto" else {}
    return found | ({"shapes": shapes} if shapes else {}) | ({"inputs": inputs} if inputs else {})


def best_two(answer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The best whole configuration on a page, and the fastest other one; None if there are fewer than two."""
    whole = [row for row in answer["rows"] if row["kind"] == "single" and row["level_s"]]
    first = next((row for row in whole if row["label"] == answer["best"]), None)
    others = sorted((row for row in whole if row is not first), key=lambda row: float(row["level_s"]))
    return (first, others[0]) if first is not None and others else None


def side_of(row: Mapping[str, Any], model: str, feeds: Mapping[str, str], seconds: float) -> Side:
    """A whole configuration in the form in which a hand-written loop runs it."""
    (name, settings), *_ = row["settings"].items()
    runtime = re.split(r"[\[:]", name)[0]
    backend = row["label"].partition(":")[2].partition("[")[0]
    chosen = {"backends": backend} if runtime == "onert" and backend else {}
    return Side(runtime=runtime, how="set", model=model, feeds=feeds, settings={**settings, **chosen}, seconds=seconds)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("label", "kind", "level_s", "against_best", "settings", "measured", "cpu")
    kept = {key: row.get(key) for key in keys}
    failure = row["failure"]
    return {**kept, "failure": None if failure is None else failure["message"][:300]}


def _levels(row: Mapping[str, Any], clock: str) -> list[float]:
    """The median of each process of a configuration on the page, in seconds per call."""
    from statistics import median

    samples = row["runs"]["samples"]
    found: dict[int, list[float]] = {}
    for process, block in zip(samples["process"], samples[f"{clock}_us"] or (), strict=False):
        found.setdefault(process, []).extend(block)
    return [median(values) * 1e-6 for values in found.values()]


def _answer(spec: Mapping[str, Any]) -> dict[str, Any]:
    import gnomon
    from gnomon.jobs.place.report import place_report
    from gnomon.report.page import Page

    folder, options = Path(spec["folder"]), spec["options"]
    try:
        found = gnomon.place(spec["model"], out=folder / "package", record=folder / "record.sqlite", **options)
    except gnomon.errors.GnomonError as error:
        return {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
    document = found.document()
    page = StringIO()
    place_report(found, Page(page, width=100, brief=True))
    package = folder / "package"
    sizes = {path.relative_to(package): path.stat().st_size for path in package.rglob("*") if path.is_file()}
    chosen = next(row for row in document["contenders"] if row["label"] == document["decision"]["chosen"])
    return {
        "page": page.getvalue().splitlines()[:_LINES],
        "chosen": chosen["label"],
        "chosen_kind": chosen["kind"],
        "chosen_s": {clock: _levels(chosen, clock) for clock in ("wall", "cpu")},
        "best": document["decision"]["best_single"],
        "clock": document["clock"],
        "rows": [_row(row) for row in document["contenders"]],
        "warnings": [doubt["message"] for doubt in document["doubts"]],
        "skipped": [f"{one['name']}: {one['reason']}"[:300] for one in document["missing"]],
        "package_bytes": sum(sizes.values()),
        "package_model_bytes": sum(size for path, size in sizes.items() if not _LAUNCHER.fullmatch(path.parts[0])),
    }


def main() -> None:
    """Run the process."""
    spec = json.loads(sys.argv[1])
    began = time.monotonic()
    found = _answer(spec)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    found["elapsed_s"] = time.monotonic() - began
    found["cpu_s"] = sum(used.ru_utime + used.ru_stime for used in (own, children))
    found["peak_rss_bytes"] = own.ru_maxrss << 10
    (Path(spec["folder"]) / "answer.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Runs a deployed plan: the same jobs, by the same code, as when it was measured."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import numpy as np

from .job import Job
from .timing import take, warm_up


def absolute_job(plan_path: str) -> dict[str, Any]:
    """The job of a plan file, its paths made absolute."""
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    job: dict[str, Any] = plan["job"]
    folder = os.path.dirname(os.path.abspath(plan_path))
    for segment in job["segments"]:
        segment["model"] = os.path.normpath(os.path.join(folder, segment["model"]))
    return job


def run(argv: list[str]) -> int:
    """Run the plan once on the given (or seeded) inputs, time it, and save its outputs."""
    parser = argparse.ArgumentParser(prog="run", description="Run a plan that gnomon wrote.")
    parser.add_argument("plan", help="the package's plan.json")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--output", metavar="FILE.npz", help="where to save the outputs")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to time it (0: once)")
    given = parser.parse_args(argv)
    job = absolute_job(given.plan)
    for pair in given.input:
        name, _, file = pair.partition("=")
        if name not in job["feeds"] or not file:
            parser.error(f"--input {pair}: the inputs are {', '.join(job['feeds'])}")
        job["feeds"][name] = {"file": file}
    os.environ.update(job.get("environment", {}))
    loaded = Job(job)
    outputs = loaded.outputs(loaded.seed)
    wall = [0]
    if given.seconds > 0:
        warm_up(loaded.call, count=3, seconds=given.seconds / 5)
        wall, _ = take(loaded.call, inner=1, seconds=given.seconds, least=5, most=1_000_000)
    if given.output:
        named = {name.replace("/", "_"): value for name, value in outputs.items()}
        np.savez(given.output, allow_pickle=False, **named)
    report = {name: {"shape": list(v.shape), "dtype": str(v.dtype)} for name, v in outputs.items()}
    print(json.dumps({"outputs": report, "median_ms": float(np.median(wall)) / 1e6, "samples": len(wall)}))
    loaded.close()
    return 0

"""Runs a deployed plan: the same jobs, by the same code, as when it was measured."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrays import Array

# What reads the environment when it is imported (numpy, the runtimes) is imported after it was set.

_RENEWED = "GNOMON_RENEWED"


def absolute_job(plan_path: str) -> dict[str, Any]:
    """The job of a plan file, its paths made absolute."""
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    job: dict[str, Any] = plan["job"]
    folder = os.path.dirname(os.path.abspath(plan_path))
    for segment in job["segments"]:
        segment["model"] = os.path.normpath(os.path.join(folder, segment["model"]))
    return job


def renew(environment: dict[str, str]) -> None:
    """Start this process again with the environment, unless it has it: much of it counts at the start only.

    The loader reads LD_PRELOAD then, the C library GLIBC_TUNABLES, and a worker was measured with it set before
    its start. Keeps the process's number, by which the second start knows that it is the second.
    """
    if os.environ.pop(_RENEWED, "") == str(os.getpid()):
        return
    if all(os.environ.get(name) == value for name, value in environment.items()):
        return
    renewed = {**os.environ, **environment, _RENEWED: str(os.getpid())}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], renewed)  # noqa: S606 - the same program, no shell


def run(argv: list[str]) -> int:
    """Run the plan once on the given (or seeded) inputs, time it, and save its outputs.

    May replace the process: see `renew`.
    """
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
    renew(job.get("environment", {}))
    try:
        from .arrays import InputError
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed for {sys.executable}: README.txt says what the plan needs\n")
        return 5
    try:
        print(json.dumps(_timed(job, given.output, given.seconds)))
    except InputError as error:
        parser.error(f"--input: {error}")
    return 0


def _timed(job: dict[str, Any], output: str | None, seconds: float) -> dict[str, Any]:
    """Run the job; the report of its outputs and of its time."""
    import numpy as np

    from .job import Job
    from .timing import take, warm_up

    loaded = Job(job)
    outputs = loaded.outputs(loaded.seed)
    wall = [0]
    if seconds > 0:
        warm_up(loaded.call, count=3, seconds=seconds / 5)
        wall, _ = take(loaded.call, inner=1, seconds=seconds, least=5, most=1_000_000)
    report = {name: {"shape": list(v.shape), "dtype": str(v.dtype)} for name, v in outputs.items()}
    if output:
        for name, saved_as in save_arrays(output, outputs).items():
            report[name]["saved_as"] = saved_as
    loaded.close()
    return {"outputs": report, "median_ms": float(np.median(wall)) / 1e6, "samples": len(wall)}


def save_arrays(path: str, arrays: dict[str, Array]) -> dict[str, str]:
    """Write a .npz of arrays of any names; returns the name that each has there, unique and without slashes."""
    from numpy.lib.format import write_array

    names: dict[str, str] = {}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # numpy looks a name up with and without .npy at its end: only one of the two may be there.
            plain = re.sub(r"\.npy$", "_npy", re.sub(r"[^\w.:-]", "_", name)) or "output"
            unique, number = plain, 2
            while unique in names.values():
                unique, number = f"{plain}_{number}", number + 1
            names[name] = unique
            with archive.open(f"{unique}.npy", "w", force_zip64=True) as member:
                write_array(member, array, allow_pickle=False)
    return names

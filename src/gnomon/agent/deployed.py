"""Runs a deployed plan with the same code and the same job as when it was measured."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import sys
import zipfile
from typing import TYPE_CHECKING

from .installed import difference, found_here
from .plan import PlanRefused, checked_plan, plain

if TYPE_CHECKING:
    from gnomon import wire

    from .arrays import Array

# Modules that read the environment on import (numpy, the runtimes) are imported only after it has been set.

_RENEWED = "GNOMON_RENEWED"

_MISSING, _FAILED, _REFUSED = 5, 7, 9
"""The exit statuses that gnomon itself uses if a runtime is missing, if a runtime cannot run a model, or if a package
is refused.
"""

_SHOWN = 500


def renew(environment: dict[str, str]) -> None:
    """Restart this process with the environment unless it is already set: many variables take effect only when a
    process starts.

    At that moment the loader reads LD_PRELOAD and the C library reads GLIBC_TUNABLES. A measured worker's environment
    was also set before the worker started. The process keeps its id across the restart, which is how it recognises that
    it has already been restarted.
    """
    if os.environ.pop(_RENEWED, "") == str(os.getpid()):
        return
    if all(os.environ.get(name) == value for name, value in environment.items()):
        return
    renewed = {**os.environ, **environment, _RENEWED: str(os.getpid())}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], renewed)  # noqa: S606 - the same program, no shell


def run(argv: list[str]) -> int:
    """Run the plan once on the given (or seeded) inputs, time it, and save its outputs on request.

    The process may be replaced: see `renew`.
    """
    parser = argparse.ArgumentParser(prog="run", description="Run a plan that gnomon wrote.")
    parser.add_argument("plan", help="the package's plan.json")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--output", metavar="FILE.npz", help="where to save the outputs")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="an environment variable or session option that the plan may set",
    )
    parser.add_argument(
        "--library", action="append", default=[], metavar="FILE", help="a library of operators that the plan needs"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of timing (0: one call after the first)")
    given = parser.parse_args(argv)
    if not 0 <= given.seconds < math.inf:
        parser.error(f"--seconds {given.seconds}: give a number that is 0 or more")
    try:
        plan = checked_plan(given.plan, given.allow, given.library)
    except PlanRefused as refused:
        sys.stderr.write(f"{plain(str(refused))}\n")
        return _REFUSED
    job = plan["job"]
    for pair in given.input:
        name, _, file = pair.partition("=")
        if name not in job["feeds"] or not file:
            parser.error(f"--input {pair}: give NAME=FILE.npy; the inputs are {', '.join(job['feeds'])}")
        job["feeds"][name] = {"file": file}
    renew(job["environment"])
    proved = plan["proved_with"]
    here = found_here(proved)
    unlike = difference(proved, here)
    if unlike:
        sys.stderr.write(f"{plain(unlike)}\n")
    try:
        from .arrays import InputError

        try:
            report = _timed(job, given.output, given.seconds)
        except InputError as error:
            parser.error(f"--input: {error}")
    except Exception as error:  # whatever a runtime raises, the user gets a sentence without a traceback
        if os.environ.get("GNOMON_DEBUG") == "1":
            raise
        sys.stderr.write(f"{plain(_why_not(error, plan))}\n")
        return _MISSING if isinstance(error, ImportError) else _FAILED
    print(json.dumps({**report, "proved_with": proved, "found": here}))
    return 0


def _why_not(error: Exception, plan: wire.Plan) -> str:
    """Why a plan did not run, in one line."""
    said = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
    if isinstance(error, ImportError):
        wanted = shlex.join(plan["requirements"])
        line = f"with: {shlex.quote(sys.executable)} -m pip install {wanted}"
        runtimes = [segment["runtime"] for segment in plan["job"]["segments"]]
        # A third party's runtime is given as the import path of its driver; the requirements may lack the driver's
        # package.
        if getattr(error, "name", None) in [re.split("[.:]", name)[0] for name in runtimes if ":" in name]:
            return f"{said}: install the package that has the driver of this plan's runtime, and the rest {line}"
        return f"{said}: {f'install what this plan needs {line}' if wanted else 'README.txt says what this plan needs'}"
    names = " and ".join(dict.fromkeys(segment["runtime"] for segment in plan["job"]["segments"]))
    return f"the plan does not run here on {names}: {said} (GNOMON_DEBUG=1 shows the traceback)"


def _timed(job: wire.Job, output: str | None, seconds: float) -> dict[str, object]:
    """Run the job; return a report of its outputs and its time."""
    import numpy as np

    from .job import Job
    from .timing import take, warm_up

    loaded = Job(job)
    outputs = loaded.outputs(loaded.seed)
    if seconds > 0:
        warm_up(loaded.call, count=3, seconds=seconds / 5)
    wall, _ = take(loaded.call, inner=1, seconds=seconds, least=5 if seconds > 0 else 1, most=1_000_000)
    report = {name: {"shape": list(v.shape), "dtype": str(v.dtype)} for name, v in outputs.items()}
    if output:
        for name, saved_as in save_arrays(output, outputs).items():
            report[name]["saved_as"] = saved_as
    loaded.close()
    return {"outputs": report, "median_ms": float(np.median(wall)) / 1e6, "samples": len(wall)}


def save_arrays(path: str, arrays: dict[str, Array]) -> dict[str, str]:
    """Write arrays with any names to a .npz; return the unique name, without slashes, of each array in the file."""
    from numpy.lib.format import write_array

    names: dict[str, str] = {}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # numpy looks up a name with and without .npy at the end, so only one of the two may exist.
            plain = re.sub(r"\.npy$", "_npy", re.sub(r"[^\w.:-]", "_", name)) or "output"
            unique, number = plain, 2
            while unique in names.values():
                unique, number = f"{plain}_{number}", number + 1
            names[name] = unique
            with archive.open(f"{unique}.npy", "w", force_zip64=True) as member:
                write_array(member, array, allow_pickle=False)
    return names

"""What the agent does for a device on which it cannot run: it makes inputs, compares outputs and reads a snapshot.

It runs on the machine that measures: `agent offline VERB` takes a JSON object on standard input and answers with one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import Array, InputError, dtype_of, fill, make_buffers, widened
from .job import Job
from .snapshot import snapshot


class _ForeignJob(Job):
    """A job that another program ran: its outputs are read from raw files `PREFIX.k`, a prefix for each seed."""

    def __init__(self, spec: dict[str, Any], names: list[str], prefixes: dict[str, str]) -> None:
        self.spec, self.parts = spec, []
        self._names, self._prefixes = names, prefixes

    def outputs(self, seed: int) -> dict[str, Array]:
        """The outputs for a seed. ValueError where a file is not as long as the model says."""
        arrays = {}
        for number, name in enumerate(self._names):
            spec = self.spec["tensors"][name]
            raw = np.fromfile(f"{self._prefixes[str(seed)]}.{number}", dtype_of(spec["dtype"]))
            arrays[name] = widened(raw.reshape(spec["shape"]))
        return arrays


def _inputs(request: dict[str, Any]) -> dict[str, Any]:
    """Write the inputs of `job` for `seed` as raw files; {} or why a file of an input is `refused`."""
    job, seed = request["job"], request["seed"]
    buffers = make_buffers({name: {**spec, "slab": None} for name, spec in job["tensors"].items()})
    try:
        fill(buffers, job["feeds"], seed, varied=seed != job["seed"])
    except InputError as error:
        return {"refused": f"InputError: {error}"}
    for number, name in enumerate(request["names"]):
        buffers[name].tofile(f"{request['prefix']}.{number}")
    return {}


def _outputs(request: dict[str, Any]) -> dict[str, float] | dict[str, str]:
    """Save raw outputs as a reference, or compare them with one; the answer of `Job`, or why it is `refused`."""
    job = _ForeignJob(request["job"], request["names"], request["files"])
    try:
        return (job.save_outputs if request["save"] else job.check)(request["reference"], request["seeds"])
    except ValueError as error:
        return {"refused": f"the outputs are not as long as the model says: {error}"}


def _state(request: dict[str, Any]) -> dict[str, Any]:
    """The snapshot of the machine whose files lie below `root`."""
    return snapshot(request["root"])


_VERBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "inputs": _inputs,
    "outputs": _outputs,
    "state": _state,
}


def offline(verb: str) -> int:
    """Answer the request on standard input; the exit status."""
    json.dump(_VERBS[verb](json.load(sys.stdin)), sys.stdout)
    return 0

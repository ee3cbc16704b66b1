"""Parts of the agent run on this machine, in a process of their own, for devices where the agent itself cannot run.

So inputs, comparisons and snapshots are made by the same code for every device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import AgentError
from gnomon.measure.pack import packed_agent

_TIMEOUT_S = 600.0
_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
given = json.load(sys.stdin)

def inputs():
    from gnomon_agent.arrays import InputError, fill, make_buffers
    job = given["job"]
    buffers = make_buffers({name: {**spec, "slab": None} for name, spec in job["tensors"].items()})
    try:
        fill(buffers, job["feeds"], given["seed"], varied=given["seed"] != job["seed"])
    except InputError as error:
        return {"refused": f"InputError: {error}"}
    for number, name in enumerate(given["names"]):
        buffers[name].tofile(f"{given['prefix']}.{number}")
    return {}

def outputs():
    import numpy
    from gnomon_agent.job import Job
    class Ran(Job):
        def __init__(self):
            self.spec, self.parts = given["job"], []
        def outputs(self, seed):
            made = {}
            for number, name in enumerate(given["names"]):
                spec = self.spec["tensors"][name]
                raw = numpy.fromfile(f"{given['files'][str(seed)]}.{number}", spec["dtype"])
                made[name] = raw.reshape(spec["shape"])
            return made
    try:
        if given["save"]:
            return Ran().save_outputs(given["reference"], given["seeds"])
        return Ran().check(given["reference"], given["seeds"])
    except ValueError as error:
        return {"refused": f"the outputs are not as long as the model says: {error}"}

def state():
    from gnomon_agent.snapshot import snapshot
    return snapshot(given["root"])

json.dump({"inputs": inputs, "outputs": outputs, "state": state}[sys.argv[2]](), sys.stdout)
"""


class Here:
    """The agent's own arithmetic on this machine. `folder` holds the packed agent; it is the caller's."""

    def __init__(self, folder: Path) -> None:
        self._agent = folder / "gnomon-agent.pyz"
        self._agent.write_bytes(packed_agent())

    def inputs(self, job: Mapping[str, Any], seed: int, names: list[str], prefix: Path) -> str:
        """Write a job's inputs for a seed as raw files `PREFIX.k`; "" or why a file of an input cannot be used."""
        told = self._ask("inputs", {"job": job, "seed": seed, "names": names, "prefix": str(prefix)})
        return str(told.get("refused", ""))

    def outputs(
        self, job: Mapping[str, Any], names: list[str], files: Mapping[int, Path], reference: Path, *, save: bool
    ) -> dict[str, Any]:
        """Save raw outputs `PREFIX.k` of each seed as a reference, or compare them with one.

        The answer is that of the agent's worker: the sensitivity or the difference; or `refused`.
        """
        given = {
            "job": job,
            "names": names,
            "files": {str(seed): str(prefix) for seed, prefix in files.items()},
            "seeds": list(files),
            "reference": str(reference),
            "save": save,
        }
        return self._ask("outputs", given)

    def state(self, root: Path) -> dict[str, Any]:
        """The snapshot of the machine whose files lie below `root`, without what only its own process could tell."""
        found = self._ask("state", {"root": str(root)})
        return {k: v for k, v in found.items() if k not in {"monotonic_s", "pid", "own_cpu_s", "cores"}}

    def _ask(self, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _PROGRAM, str(self._agent), what],
            input=json.dumps(given).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        try:
            if done.returncode:
                raise ValueError(f"status {done.returncode}")
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            raise AgentError(
                f"the agent on this machine failed: {said or error}", hint="Please report this."
            ) from error
        return answer

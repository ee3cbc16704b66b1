"""The conversation with the program that keeps jobs on a device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.devices import unattended_program
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve, visited
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.unattended_records import Job, job_of

_TIMEOUT_S = 600.0
_FILES = ("unattended_state", "unattended_program")
_DEFAULT_FOLDER = "~/.local/share/gnomon"

# The program's files import each other as siblings of one package, here and there.
_STARTER = """
import sys, types
package = types.ModuleType("gnomon_jobs")
package.__path__ = []
sys.modules["gnomon_jobs"] = package
for name, source in {sources!r}:
    module = types.ModuleType("gnomon_jobs." + name)
    module.__package__ = "gnomon_jobs"
    sys.modules[module.__name__] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
module.main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The jobs on an open device. `python` is the Python there."""

    device: Device
    config: DeviceConfig
    python: str

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer to one request.

        UsageError where no single job is meant, or a running one may not be touched; DeviceError for all else.
        """
        root = f"{self.config.folder or _DEFAULT_FOLDER}/unattended"
        whole = json.dumps({"op": op, "root": root, **request})
        argv = [self.python, "-I", "-X", "utf8", "-", whole]
        done = self.device.run(argv, env={}, stdin=_program(), timeout_s=_TIMEOUT_S)
        try:
            answer = json.loads(done.stdout) if done.ok else None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            last = done.stderr.strip().splitlines()[-1:] or ["it did not answer"]
            raise DeviceError(
                f"the jobs on {self.config.name} cannot be seen to: {last[0][:300]}",
                hint="See what `gnomon devices check` says of the device.",
            )
        if "error" in answer:
            raise _refused(answer, self.config.name, str(request.get("id", "")))
        return answer

    def job(self, answer: dict[str, Any]) -> Job:
        """The job that an answer tells of."""
        return job_of(answer.get("job"), self.config.name, str(self.config.address))


@contextmanager
def keep_of(device: str) -> Iterator[Keep]:
    """The jobs on a device, by its name or address, also while one of them measures there."""
    config = resolve(device)
    with visited(config) as there:
        yield Keep(device=there, config=config, python=there.describe().python)


def jobs_in(answer: dict[str, Any], config: DeviceConfig) -> tuple[Job, ...]:
    """The jobs that a list tells of."""
    found = answer.get("jobs")
    if not isinstance(found, list):
        raise DeviceError(f"{config.name} tells of no jobs", hint="Try again.")
    return tuple(job_of(told, config.name, str(config.address)) for told in found)


@cache
def _program() -> bytes:
    folder = Path(unattended_program.__file__).parent
    sources = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _FILES]
    return _STARTER.format(sources=sources).encode()


def _refused(answer: dict[str, Any], device: str, wanted: str) -> DeviceError | UsageError:
    kind, what, reason = (str(answer.get(key, ""))[:500] for key in ("error", "what", "reason"))
    own = f"gnomon unattended --device {device}"
    if kind == "missing":
        told = f"The newest there: {reason}." if reason else "There is none."
        return UsageError(f"there is no job {wanted[:40]!r} on {device}", hint=f"{told} To list them: {own}")
    if kind == "several":
        return UsageError(f"several jobs on {device} begin with {wanted[:40]!r}", hint=f"Give more of: {reason}.")
    if kind == "running":
        return UsageError(f"the job {reason} runs", hint=f"First: gnomon unattended stop {reason} --device {device}")
    other = "or choose another folder for it by `folder` in the file of devices."
    hints = {"full": f"Free space there, {other}", "permission": f"See who may write there, {other}"}
    where = f"{what}: " if what else ""
    return DeviceError(f"on {device}: {where}{reason}", hint=hints.get(kind, "Look at its disk, and try again."))

"""Toolchains of one step that a child program does, ONNX in and quantised ONNX out; and none at all, the float32 model
as it is.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.installing import Missing
from gnomon.system.children import Order, Program, Reply, run_orders
from gnomon.system.files import file_digest
from gnomon.toolchains.base import Artifact, Toolchain, ToolJob, check_ready, read_settings

STEP = "quantize"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildToolchain:
    """A `Toolchain` whose one step, "quantize", is done by a child program. `needs` finds out what is missing."""

    name: str
    runtime: str
    program: Program
    needs: Callable[[], tuple[Missing, ...]]

    def check(self) -> tuple[Missing, ...]:
        """The missing packages and programs."""
        return self.needs()

    def make(self, jobs: Sequence[ToolJob]) -> Iterator[Artifact]:
        """Quantise all models; see `Toolchain`."""
        check_ready(self)
        return self._make(jobs)

    def _make(self, jobs: Sequence[ToolJob]) -> Iterator[Artifact]:
        begun = {job.key: job for job in jobs}
        try:
            for reply in run_orders(self.program, [self._order(job) for job in jobs]):
                yield self._artifact(begun[reply.order.key], reply)
        finally:
            for job in jobs:
                _partial(job).unlink(missing_ok=True)

    def _order(self, job: ToolJob) -> Order:
        """The order to the child program for the job, whose log is begun."""
        log = (job.logs / f"{job.key}.{STEP}.log").absolute()
        log.write_text(
            f"toolchain: {self.name}\nmodel: {job.model}\nSHA-256: {file_digest(job.model)}\n"
            f"command: {shlex.join(self.program.argv)}\n"
            f"settings: {json.dumps(dict(self.program.settings), sort_keys=True)}\n\n",
            encoding="utf-8",
        )
        message = {
            "model": str(job.model.absolute()),
            "calibration": str(job.calibration.absolute()),
            "output": str(_partial(job).absolute()),
        }
        return Order(key=job.key, message=message, stage=STEP, log=log)

    def _artifact(self, job: ToolJob, reply: Reply) -> Artifact:
        if reply.failure is not None:
            return Artifact(key=job.key, path=None, failure=reply.failure)
        log = reply.order.log
        assert log is not None  # noqa: S101
        with log.open("a", encoding="utf-8") as file:
            file.write(f"\nversions: {json.dumps(dict(reply.versions))}\nfacts: {json.dumps(dict(reply.facts))}\n")
        return Artifact(key=job.key, path=_partial(job).replace(job.folder / f"{job.key}.onnx"))


def _partial(job: ToolJob) -> Path:
    """Where a result is written until it is whole.

    Not by `in_place_of`: another program writes it, many are under way at once, and its name tells its format.
    """
    return job.folder / f".{job.key}.{os.getpid()}.part.onnx"


def missing_packages(packages: Sequence[str], hint: str) -> tuple[Missing, ...]:
    """Those packages that this interpreter, which runs the child program too, does not find; none is loaded."""
    return tuple(
        Missing(what=f"the package {name} is not installed", hint=hint)
        for name in packages
        if importlib.util.find_spec(name) is None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Hands each model on to a runtime in float32."""

    name: str
    runtime: str

    def check(self) -> tuple[Missing, ...]:
        """Nothing: whether the runtime is there is asked where it measures."""
        return ()

    def make(self, jobs: Sequence[ToolJob]) -> Iterator[Artifact]:
        """The models' own paths."""
        return (_handed_on(job) for job in jobs)


def _handed_on(job: ToolJob) -> Artifact:
    if job.model.is_file():
        return Artifact(key=job.key, path=job.model)
    failure = Failure(stage="convert", kind="refused", transient=False, message=f"there is no file {job.model}")
    return Artifact(key=job.key, path=None, failure=failure)


def onnxruntime(settings: Mapping[str, object]) -> Toolchain:
    """Float32 by ONNX Runtime; it has no settings."""
    read_settings("onnxruntime", dict, settings)
    return Plain(name="onnxruntime", runtime="onnxruntime")


def openvino(settings: Mapping[str, object]) -> Toolchain:
    """Float32 by OpenVINO; it has no settings."""
    read_settings("openvino", dict, settings)
    return Plain(name="openvino", runtime="openvino")

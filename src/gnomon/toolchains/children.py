"""Toolchains with a single step, in which a child program quantises an ONNX model, and toolchains without any step,
which return the float32 model.
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
    """A `Toolchain` with a single step, "quantize", which a child program does."""

    name: str
    runtime: str
    program: Program
    check: Callable[[], tuple[Missing, ...]]

    def make(self, jobs: Sequence[ToolJob]) -> Iterator[Artifact]:
        """Quantise all models; see `Toolchain`."""
        check_ready(self)
        begun = {job.key: job for job in jobs}
        try:
            for reply in run_orders(self.program, [self._order(job) for job in jobs]):
                yield self._artifact(begun[reply.order.key], reply)
        finally:
            for job in jobs:
                _partial(job).unlink(missing_ok=True)

    def _order(self, job: ToolJob) -> Order:
        """The job's order for the child program; also begins the job's log."""
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
    """The path where a result is written until it is complete.

    `in_place_of` is not used, because another program writes the file, many results are written at once, and the name
    must show the format.
    """
    return job.folder / f".{job.key}.{os.getpid()}.part.onnx"


def missing_packages(packages: Sequence[str], hint: str) -> tuple[Missing, ...]:
    """The packages that this interpreter, which also runs the child program, does not find; none is loaded."""
    return tuple(
        Missing(what=f"the package {name} is not installed", hint=hint)
        for name in packages
        if importlib.util.find_spec(name) is None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Passes each model to a runtime unchanged, in float32."""

    name: str
    runtime: str

    def check(self) -> tuple[Missing, ...]:
        """Report nothing missing: whether the runtime is installed is checked on the measuring device."""
        return ()

    def make(self, jobs: Sequence[ToolJob]) -> Iterator[Artifact]:
        """Yield the models' own paths."""
        return (_handed_on(job) for job in jobs)


def _handed_on(job: ToolJob) -> Artifact:
    if job.model.is_file():
        return Artifact(key=job.key, path=job.model)
    failure = Failure(stage="convert", kind="refused", transient=False, message=f"there is no file {job.model}")
    return Artifact(key=job.key, path=None, failure=failure)


def onnxruntime(settings: Mapping[str, object]) -> Toolchain:
    """Float32 with ONNX Runtime; the toolchain has no settings."""
    read_settings("onnxruntime", dict, settings)
    return Plain(name="onnxruntime", runtime="onnxruntime")


def openvino(settings: Mapping[str, object]) -> Toolchain:
    """Float32 with OpenVINO; the toolchain has no settings."""
    read_settings("openvino", dict, settings)
    return Plain(name="openvino", runtime="openvino")

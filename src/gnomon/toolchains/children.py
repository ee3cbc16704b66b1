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
from typing import Any

from gnomon.core.sample import Failure
from gnomon.system.children import Order, Program, Reply, run_orders, tail
from gnomon.system.files import file_digest
from gnomon.toolchains.base import (
    Artifact,
    Missing,
    StepRecord,
    Tell,
    Toolchain,
    ToolJob,
    check_jobs,
    check_ready,
    read_settings,
)

STEP = "quantize"
SUFFIX = ".onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildToolchain:
    """A `Toolchain` whose one step, "quantize", is done by a child program. `needs` finds out what is missing."""

    name: str
    runtime: str
    program: Program
    needs: Callable[[], tuple[Missing, ...]]

    def check(self) -> tuple[Missing, ...]:
        """What is missing here."""
        return self.needs()

    def make(self, jobs: Sequence[ToolJob], tell: Tell | None = None) -> Iterator[Artifact]:
        """Quantise all models; see `Toolchain`."""
        check_jobs(jobs, SUFFIX)
        check_ready(self)
        return self._make(jobs, tell or (lambda _: None))

    def _make(self, jobs: Sequence[ToolJob], tell: Tell) -> Iterator[Artifact]:
        begun: dict[str, _Begun] = {}
        orders = []
        for job in jobs:
            made = _begin(self.program, self.name, job)
            if isinstance(made, Artifact):
                yield made
                continue
            begun[job.key] = made
            orders.append(Order(key=job.key, message=made.message(), stage=STEP, log=made.log))
        if orders:
            tell(f"{self.name}: {len(orders)} models, {self.program.workers} at a time")
        try:
            for reply in run_orders(self.program, orders):
                one = begun.pop(reply.order.key)
                yield _end(self.program, one, reply)
        finally:
            for one in begun.values():
                one.partial.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    job: ToolJob
    partial: Path
    log: Path
    digest: str

    def message(self) -> dict[str, str]:
        """What the child program is told of the job."""
        return {
            "model": str(self.job.model.absolute()),
            "calibration": str(self.job.calibration.absolute()),
            "output": str(self.partial.absolute()),
        }


def _begin(program: Program, name: str, job: ToolJob) -> _Begun | Artifact:
    log = (job.logs / f"{job.key}.{STEP}.log").absolute()
    try:
        digest = file_digest(job.model)
        log.write_text(
            f"toolchain: {name}\nmodel: {job.model}\nSHA-256: {digest}\ncommand: {shlex.join(program.argv)}\n"
            f"settings: {json.dumps(dict(program.settings), sort_keys=True)}\n\n",
            encoding="utf-8",
        )
    except OSError as error:
        return Artifact(key=job.key, path=None, failure=_refused(f"{error.filename}: {error.strerror or error}"))
    # Not by `in_place_of`: another program writes it, many are under way at once, and its name tells its format.
    partial = job.folder / f".{job.key}.{os.getpid()}.part{SUFFIX}"
    return _Begun(job=job, partial=partial, log=log, digest=digest)


def _end(program: Program, one: _Begun, reply: Reply) -> Artifact:
    job, failure = one.job, reply.failure
    if failure is None:
        try:
            digest = file_digest(one.partial)
            dest = job.folder / f"{job.key}{SUFFIX}"
            one.partial.replace(dest)
            with one.log.open("a", encoding="utf-8") as log:
                log.write(f"\nversions: {json.dumps(dict(reply.versions))}\nfacts: {json.dumps(dict(reply.facts))}\n")
        except OSError as error:
            failure = _refused(f"there is no result: {error.strerror or error}", tail(one.log))
        else:
            step = StepRecord(
                name=STEP,
                argv=program.argv,
                seconds=reply.seconds,
                log=one.log,
                digest_in=one.digest,
                digest_out=digest,
            )
            return Artifact(key=job.key, path=dest, steps=(step,))
    one.partial.unlink(missing_ok=True)
    return Artifact(key=job.key, path=None, failure=failure)


def _refused(why: str, log_tail: str = "") -> Failure:
    return Failure(stage=STEP, kind="refused", transient=False, message=why, log_tail=log_tail)


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

    def make(self, jobs: Sequence[ToolJob], tell: Tell | None = None) -> Iterator[Artifact]:
        """The models' own paths."""
        check_jobs(jobs)
        return (_handed_on(job) for job in jobs)


def _handed_on(job: ToolJob) -> Artifact:
    if job.model.is_file():
        return Artifact(key=job.key, path=job.model)
    failure = Failure(stage="convert", kind="refused", transient=False, message=f"there is no file {job.model}")
    return Artifact(key=job.key, path=None, failure=failure)


def onnxruntime(settings: Mapping[str, Any]) -> Toolchain:
    """Float32 by ONNX Runtime; it has no settings."""
    read_settings("onnxruntime", (), settings)
    return Plain(name="onnxruntime", runtime="onnxruntime")


def openvino(settings: Mapping[str, Any]) -> Toolchain:
    """Float32 by OpenVINO; it has no settings."""
    read_settings("openvino", (), settings)
    return Plain(name="openvino", runtime="openvino")

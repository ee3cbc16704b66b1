"""No toolchain at all: the float32 model as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.core.sample import Failure
from gnomon.toolchains.base import Artifact, Missing, Tell, Toolchain, ToolJob, check_jobs
from gnomon.toolchains.settings import read_settings


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

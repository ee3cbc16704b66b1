"""AMD's programs for DPUs: a quantiser, then the compiler, each a command that can be set.

Command lines as published: `vai_c_xir -x MODEL -a ARCH.json -o FOLDER -n NAME` writes FOLDER/NAME.xmodel (AMD UG1414,
"Compiling with an XIR-based toolchain"); `vai_c_caffe --prototxt .. --caffemodel .. --arch .. --net_name NAME
--output_dir FOLDER` of the Caffe line, which ended with Vitis AI 2.0, writes FOLDER/dpu_NAME.elf. The kernel name
<id>SSPROFILE and the default architecture are those of the published profiler. What comes out is measured on the board,
by the server that the user names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.toolchains.base import Artifact, Missing, StepRecord, Tell, Toolchain, ToolJob, check_jobs, check_ready
from gnomon.toolchains.child_toolchain import SUFFIX
from gnomon.toolchains.commands import (
    PLACEHOLDERS,
    Call,
    CommandStep,
    filled,
    missing_program,
    run_step,
    unknown_placeholders,
)
from gnomon.toolchains.quark_xint8 import SETTINGS as QUARK_SETTINGS
from gnomon.toolchains.quark_xint8 import quark_xint8
from gnomon.toolchains.settings import Setting, path, read_settings, text, words

NAME = "vitis"
ARCH = "/opt/vitis_ai/compiler/arch/dpuv2/ZCU102/ZCU102.json"
COMPILE = ("vai_c_xir", "-x", "{model}", "-a", "{arch}", "-o", "{out}", "-n", "{name}")
INSTALL = (
    "AMD's programs come in the Vitis AI docker image (github.com/Xilinx/Vitis-AI): run gnomon in it, or name them."
)

SETTINGS = (
    *QUARK_SETTINGS,
    Setting(name="arch", read=path, default=Path(ARCH), meaning="the description of the DPU, a JSON file"),
    Setting(name="kernel", read=text, default="{key}SSPROFILE", meaning="the kernel's name, of the model's {key}"),
    Setting(name="convert", read=words, default=None, meaning="a command that converts the ONNX model first"),
    Setting(name="convert_result", read=text, default="{name}.converted", meaning="the file that it writes"),
    Setting(name="quantize", read=words, default=("quark",), meaning="a command, or quark, or none"),
    Setting(name="quantize_result", read=text, default="{name}.quantized", meaning="the file that it writes"),
    Setting(name="compile", read=words, default=COMPILE, meaning="the compiler's command"),
    Setting(name="result", read=text, default="{name}.xmodel", meaning="the file that it writes, or dpu_{name}.elf"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitis:
    """Converts and quantises by commands or by Quark, and compiles; see `Toolchain`."""

    first: tuple[CommandStep, ...]
    quark: Toolchain | None
    last: CommandStep
    arch: Path
    kernel: str
    timeout_s: float
    name: str = NAME
    runtime: str = "http"

    def check(self) -> tuple[Missing, ...]:
        """The programs that are not on the PATH, the architecture's file if it is used, and what Quark misses."""
        steps = (*self.first, self.last)
        found = [one for step in steps for one in missing_program(step, INSTALL)]
        if any("{arch}" in part for step in steps for part in step.argv) and not self.arch.is_file():
            found.append(Missing(what=f"there is no file {self.arch}", hint=f"{INSTALL} Or set arch."))
        return (*found, *(self.quark.check() if self.quark else ()))

    def make(self, jobs: Sequence[ToolJob], tell: Tell | None = None) -> Iterator[Artifact]:
        """Convert, quantise and compile all models."""
        check_jobs(jobs, SUFFIX if self.quark else None)
        check_ready(self)
        return self._make(jobs, tell or (lambda _: None))

    def _make(self, jobs: Sequence[ToolJob], tell: Tell) -> Iterator[Artifact]:
        ready: list[tuple[ToolJob, Path, tuple[StepRecord, ...]]] = []
        for job in jobs:
            made = self._steps(job, job.model, self.first, ())
            if isinstance(made, Artifact):
                yield made
            else:
                ready.append((job, *made))
        for job, model, steps in self._by_quark(ready, tell) if self.quark else iter(ready):
            if isinstance(model, Failure):
                yield Artifact(key=job.key, path=None, steps=steps, failure=model)
                continue
            tell(f"{self.name}: compiling {job.key}")
            made = self._steps(job, model, (self.last,), steps)
            yield made if isinstance(made, Artifact) else Artifact(key=job.key, path=made[0], steps=made[1])

    def _steps(
        self, job: ToolJob, model: Path, steps: Sequence[CommandStep], done: tuple[StepRecord, ...]
    ) -> tuple[Path, tuple[StepRecord, ...]] | Artifact:
        """The last file and the records; an artifact with a failure where a step fails."""
        for step in steps:
            values = {
                "model": str(model.absolute()),
                "arch": str(self.arch.absolute()),
                "out": str(job.folder.absolute()),
                "name": self.kernel.replace("{key}", job.key),
                "calibration": str(job.calibration.absolute()),
            }
            log = (job.logs / f"{job.key}.{step.name}.log").absolute()
            made = run_step(step, Call(values=values, model=model, log=log, timeout_s=self.timeout_s))
            if isinstance(made, Failure):
                return Artifact(key=job.key, path=None, steps=done, failure=made)
            model, done = made[0], (*done, made[1])
        return model, done

    def _by_quark(
        self, ready: Sequence[tuple[ToolJob, Path, tuple[StepRecord, ...]]], tell: Tell
    ) -> Iterator[tuple[ToolJob, Path | Failure, tuple[StepRecord, ...]]]:
        assert self.quark is not None  # noqa: S101
        by_key = {entry[0].key: entry for entry in ready}
        for artifact in self.quark.make([dataclasses.replace(job, model=model) for job, model, _ in ready], tell):
            job, _, steps = by_key[artifact.key]
            result: Path | Failure | None = artifact.path or artifact.failure
            assert result is not None  # noqa: S101
            yield job, result, (*steps, *artifact.steps)


def vitis(settings: Mapping[str, Any]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown ones, and for placeholders that there are not."""
    found = read_settings(NAME, SETTINGS, settings)
    steps = {
        name: CommandStep(name=name, argv=found[name], result=found[result])
        for name, result in (("convert", "convert_result"), ("quantize", "quantize_result"), ("compile", "result"))
        if found[name] not in (None, ("quark",), ("none",))
    }
    told = [
        f"{name} has no placeholder {{{unknown}}}"
        for name, step in steps.items()
        for unknown in unknown_placeholders((*step.argv, step.result))
    ]
    told += [f"{name} writes {step.result!r}, no plain name" for name, step in steps.items() if not _plain(step.result)]
    if "{key}" not in found["kernel"] or not _plain(found["kernel"].replace("{key}", "k")):
        told.append(f"kernel is {found['kernel']!r}, where a plain name with {{key}} is wanted")
    if "compile" not in steps:
        told.append("compile is no command")
    if told:
        names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise UsageError(f"the toolchain {NAME} cannot be set so: {'; '.join(told)}", hint=f"Placeholders: {names}.")
    quark = {one.name: found[one.name] for one in QUARK_SETTINGS if found[one.name] is not None}
    return Vitis(
        first=tuple(steps[name] for name in ("convert", "quantize") if name in steps),
        quark=quark_xint8(quark) if found["quantize"] == ("quark",) else None,
        last=steps["compile"],
        arch=found["arch"],
        kernel=found["kernel"],
        timeout_s=found["timeout_s"],
    )


def _plain(name: str) -> bool:
    """Whether a template is a file's name in the step's own folder."""
    tried = filled(name, dict.fromkeys(PLACEHOLDERS, "x"))
    return bool(tried) and "/" not in tried and "\0" not in tried and not tried.startswith(".")

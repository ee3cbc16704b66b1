"""AMD's programs for DPUs: a quantiser, then the compiler, each a command that can be set.

Command lines as published: `vai_c_xir -x MODEL -a ARCH.json -o FOLDER -n NAME` writes FOLDER/NAME.xmodel (AMD UG1414,
"Compiling with an XIR-based toolchain"); `vai_c_caffe --prototxt .. --caffemodel .. --arch .. --net_name NAME
--output_dir FOLDER` of the Caffe line, which ended with Vitis AI 2.0, writes FOLDER/dpu_NAME.elf. The kernel name
<id>SSPROFILE and the default architecture are those of the published profiler. What comes out is measured on the board,
by the server that the user names.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, UsageError
from gnomon.installing import Missing
from gnomon.system.children import tail
from gnomon.system.files import file_digest
from gnomon.system.process import Completed, run_process
from gnomon.toolchains.base import (
    Artifact,
    StepRecord,
    Tell,
    Text,
    Toolchain,
    ToolJob,
    UserPath,
    Words,
    check_ready,
    read_settings,
)
from gnomon.toolchains.quark_xint8 import QuarkSettings, quark_of

NAME = "vitis"
ARCH = "/opt/vitis_ai/compiler/arch/dpuv2/ZCU102/ZCU102.json"
COMPILE = ("vai_c_xir", "-x", "{model}", "-a", "{arch}", "-o", "{out}", "-n", "{name}")
INSTALL = (
    "AMD's programs come in the Vitis AI docker image (github.com/Xilinx/Vitis-AI): run gnomon in it, or name them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(QuarkSettings):
    """What can be set."""

    arch: Annotated[UserPath, "the description of the DPU, a JSON file"] = Path(ARCH)
    kernel: Annotated[Text, "the kernel's name, of the model's {key}"] = "{key}SSPROFILE"
    convert: Annotated[Words | None, "a command that converts the ONNX model first"] = None
    convert_result: Annotated[Text, "the file that it writes"] = "{name}.converted"
    quantize: Annotated[Words, "a command, or quark, or none"] = ("quark",)
    quantize_result: Annotated[Text, "the file that it writes"] = "{name}.quantized"
    compile: Annotated[Words, "the compiler's command"] = COMPILE
    result: Annotated[Text, "the file that it writes, or dpu_{name}.elf"] = "{name}.xmodel"


PLACEHOLDERS = ("model", "arch", "out", "name", "calibration")
_WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStep:
    """A step as it is configured: its name, its command's template, and the file that it makes in its folder.

    Templates hold {model}, {arch}, {out}, {name} and {calibration}; other braces are left as they are.
    """

    name: str
    argv: tuple[str, ...]
    result: str


def unknown_placeholders(texts: Sequence[str]) -> tuple[str, ...]:
    """The placeholders in templates that do not exist."""
    names = (name for text in texts for name in _WORD.findall(text))
    return tuple(dict.fromkeys(name for name in names if name not in PLACEHOLDERS))


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with each placeholder's value in its place; what a value holds is taken as it is."""
    return _WORD.sub(lambda match: values.get(match[1], match[0]), template)


def run_step(
    step: CommandStep, values: Mapping[str, str], log: Path, timeout_s: float
) -> tuple[Path, StepRecord] | Failure:
    """Run a step's command, its placeholders filled: the file that it made, and the record of it; or how it failed."""
    argv = tuple(filled(part, values) for part in step.argv)
    model, folder = Path(values["model"]), Path(values["out"])
    result = folder / filled(step.result, values)
    began_s = time.monotonic()
    try:
        result.unlink(missing_ok=True)  # of an earlier run: what is found later must be of this one
        digest = file_digest(model)
        done = run_process(argv, env=dict(os.environ), timeout_s=timeout_s, cwd=folder)
        log.write_text(
            f"command: {shlex.join(argv)}\nmodel: {model}\nSHA-256: {digest}\n\n{done.stdout}{done.stderr}",
            encoding="utf-8",
            errors="replace",
        )
        if failure := _failed(step, done, log):
            return failure
        record = StepRecord(
            name=step.name,
            argv=argv,
            seconds=time.monotonic() - began_s,
            log=log,
            digest_in=digest,
            digest_out=file_digest(result),
        )
    except DeviceError as error:
        return Failure(stage=step.name, kind="refused", transient=False, message=error.message)
    except OSError as error:
        why = f"{error.filename or result}: {error.strerror or error}"
        return Failure(stage=step.name, kind="refused", transient=False, message=why, log_tail=tail(log))
    return result, record


def _failed(step: CommandStep, done: Completed, log: Path) -> Failure | None:
    if done.timed_out:
        kind, why = "hang", f"{step.argv[0]} took longer than {done.duration_s:.0f} s"
    elif done.signal is not None:
        kind, why = "crash", f"{step.argv[0]} was ended by signal {done.signal}"
    elif done.returncode != 0:
        kind, why = "refused", f"{step.argv[0]} ended with status {done.returncode}"
    else:
        return None
    return Failure(stage=step.name, kind=kind, transient=False, message=why, log_tail=tail(log))


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
        missing = [
            Missing(what=f"there is no program {step.argv[0]} ({step.name})", hint=INSTALL)
            for step in steps
            if shutil.which(step.argv[0]) is None
        ]
        if any("{arch}" in part for step in steps for part in step.argv) and not self.arch.is_file():
            missing.append(Missing(what=f"there is no file {self.arch}", hint=f"{INSTALL} Or set arch."))
        return (*missing, *(self.quark.check() if self.quark else ()))

    def make(self, jobs: Sequence[ToolJob], tell: Tell | None = None) -> Iterator[Artifact]:
        """Convert, quantise and compile all models."""
        check_ready(self)
        return self._make(jobs, tell or (lambda _: None))

    def _make(self, jobs: Sequence[ToolJob], tell: Tell) -> Iterator[Artifact]:
        by_key = {job.key: job for job in jobs}
        artifacts = (self._after(self.first, job, Artifact(key=job.key, path=job.model)) for job in jobs)
        for artifact in self._by_quark(by_key, list(artifacts), tell) if self.quark else artifacts:
            tell(f"{self.name}: compiling {artifact.key}")
            yield self._after((self.last,), by_key[artifact.key], artifact)

    def _after(self, steps: Sequence[CommandStep], job: ToolJob, artifact: Artifact) -> Artifact:
        """What comes of an artifact by more steps; one that failed stays as it is."""
        for step in steps:
            if artifact.path is None:
                break
            values = {
                "model": str(artifact.path.absolute()),
                "arch": str(self.arch.absolute()),
                "out": str(job.folder.absolute()),
                "name": self.kernel.replace("{key}", job.key),
                "calibration": str(job.calibration.absolute()),
            }
            log = (job.logs / f"{job.key}.{step.name}.log").absolute()
            outcome = run_step(step, values, log, self.timeout_s)
            if isinstance(outcome, Failure):
                artifact = replace(artifact, path=None, failure=outcome)
            else:
                artifact = replace(artifact, path=outcome[0], steps=(*artifact.steps, outcome[1]))
        return artifact

    def _by_quark(self, jobs: Mapping[str, ToolJob], artifacts: Sequence[Artifact], tell: Tell) -> Iterator[Artifact]:
        """What comes of artifacts by Quark, and those that failed before."""
        assert self.quark is not None  # noqa: S101
        ready = {artifact.key: artifact for artifact in artifacts if artifact.path is not None}
        yield from (artifact for artifact in artifacts if artifact.path is None)
        models = [replace(jobs[key], model=artifact.path) for key, artifact in ready.items() if artifact.path]
        for quantised in self.quark.make(models, tell):
            yield replace(quantised, steps=(*ready[quantised.key].steps, *quantised.steps))


def vitis(settings: Mapping[str, object]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown ones, and for placeholders that there are not."""
    values = read_settings(NAME, Settings, settings)
    steps = {
        name: CommandStep(name=name, argv=argv, result=result)
        for name, argv, result in (
            ("convert", values.convert, values.convert_result),
            ("quantize", values.quantize, values.quantize_result),
            ("compile", values.compile, values.result),
        )
        if argv is not None and argv not in (("quark",), ("none",))
    }
    errors = [
        f"{name} has no placeholder {{{unknown}}}"
        for name, step in steps.items()
        for unknown in unknown_placeholders((*step.argv, step.result))
    ]
    errors += [
        f"{name} writes {step.result!r}, no plain name" for name, step in steps.items() if not _plain(step.result)
    ]
    if "{key}" not in values.kernel or not _plain(values.kernel.replace("{key}", "k")):
        errors.append(f"kernel is {values.kernel!r}, where a plain name with {{key}} is wanted")
    if "compile" not in steps:
        errors.append("compile is not a command")
    if errors:
        names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise UsageError(f"the toolchain {NAME} cannot be set so: {'; '.join(errors)}", hint=f"Placeholders: {names}.")
    return Vitis(
        first=tuple(steps[name] for name in ("convert", "quantize") if name in steps),
        quark=quark_of(values) if values.quantize == ("quark",) else None,
        last=steps["compile"],
        arch=values.arch,
        kernel=values.kernel,
        timeout_s=values.timeout_s,
    )


def _plain(name: str) -> bool:
    """Whether a template is a file's name in the step's own folder."""
    tried = filled(name, dict.fromkeys(PLACEHOLDERS, "x"))
    return bool(tried) and "/" not in tried and "\0" not in tried and not tried.startswith(".")

"""AMD's programs for DPUs: a quantiser, then the compiler, each a command that can be set.

Command lines as published: `vai_c_xir -x MODEL -a ARCH.json -o FOLDER -n NAME` writes FOLDER/NAME.xmodel (AMD UG1414,
"Compiling with an XIR-based toolchain"); `vai_c_caffe --prototxt .. --caffemodel .. --arch .. --net_name NAME
--output_dir FOLDER` of the Caffe line, which ended with Vitis AI 2.0, writes FOLDER/dpu_NAME.elf. The kernel name
<id>SSPROFILE and the default architecture are those of the published profiler. What comes out is measured by the
command that the user names.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from gnomon.agent.drivers.command.report import filled, placeholders
from gnomon.core.codec import Words
from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, UsageError
from gnomon.installing import Missing
from gnomon.system.children import tail
from gnomon.system.files import file_digest
from gnomon.system.process import run_process
from gnomon.toolchains.base import (
    COMMAND,
    Artifact,
    StepRecord,
    Tell,
    Text,
    Toolchain,
    ToolJob,
    UserPath,
    check_ready,
    read_settings,
)
from gnomon.toolchains.children import Plain
from gnomon.toolchains.quark_xint8 import QuarkSettings, quark_of

NAME = "vitis"
ARCH = "/opt/vitis_ai/compiler/arch/dpuv2/ZCU102/ZCU102.json"
COMPILE = ("vai_c_xir", "-x", "{model}", "-a", "{arch}", "-o", "{out}", "-n", "{name}")
INSTALL = (
    "AMD's programs come in the Vitis AI docker image (github.com/Xilinx/Vitis-AI): run gnomon in it, or name them."
)
PLACEHOLDERS = frozenset({"model", "arch", "out", "name", "calibration"})
"""What is filled into commands and names of files."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitis:
    """What another toolchain makes, handed on from command to command; see `Toolchain`.

    `steps` are by their names: the words of a command, and the file that it makes in its folder.
    """

    first: Toolchain
    steps: Mapping[str, tuple[tuple[str, ...], str]]
    arch: Path
    kernel: str
    timeout_s: float
    name: str = NAME
    runtime: str = COMMAND

    def check(self) -> tuple[Missing, ...]:
        """The programs that are not on the PATH, the architecture's file if it is used, and what Quark misses."""
        missing = [
            Missing(what=f"there is no program {words[0]} ({name})", hint=INSTALL)
            for name, (words, _) in self.steps.items()
            if shutil.which(words[0]) is None
        ]
        used = placeholders(word for words, _ in self.steps.values() for word in words)
        if "arch" in used and not self.arch.is_file():
            missing.append(Missing(what=f"there is no file {self.arch}", hint=f"{INSTALL} Or set arch."))
        return (*missing, *self.first.check())

    def make(self, jobs: Sequence[ToolJob], tell: Tell | None = None) -> Iterator[Artifact]:
        """Quantise, convert and compile all models."""
        check_ready(self)
        by_key = {job.key: job for job in jobs}
        return (self._compiled(by_key[made.key], made, tell) for made in self.first.make(jobs, tell))

    def _compiled(self, job: ToolJob, made: Artifact, tell: Tell | None) -> Artifact:
        """What comes of an artifact by the steps; one that failed stays as it is."""
        if tell is not None and made.path is not None:
            tell(f"{self.name}: compiling {made.key}")
        for step in self.steps:
            if made.path is None:
                break
            try:
                made = self._after(step, job, made, made.path.absolute())
            except OSError as error:
                log = job.logs / f"{job.key}.{step}.log"
                why = f"{error.filename or job.folder}: {error.strerror or error}"
                made = _failed(made, step, "refused", why, log)
        return made

    def _after(self, step: str, job: ToolJob, made: Artifact, model: Path) -> Artifact:
        """What comes of an artifact by one step, whose log is kept."""
        values = {
            "model": str(model),
            "arch": str(self.arch.absolute()),
            "out": str(job.folder.absolute()),
            "name": self.kernel.replace("{key}", job.key),
            "calibration": str(job.calibration.absolute()),
        }
        words, left = self.steps[step]
        argv = tuple(filled(word, values) for word in words)
        result, log = job.folder.absolute() / filled(left, values), (job.logs / f"{job.key}.{step}.log").absolute()
        result.unlink(missing_ok=True)  # of an earlier run: what is found later must be of this one
        digest, began_s = file_digest(model), time.monotonic()
        try:
            done = run_process(argv, env=dict(os.environ), timeout_s=self.timeout_s, cwd=result.parent)
        except DeviceError as error:
            return _failed(made, step, "refused", error.message, log)
        log.write_text(
            f"command: {shlex.join(argv)}\nmodel: {model}\nSHA-256: {digest}\n\n{done.stdout}{done.stderr}",
            encoding="utf-8",
            errors="replace",
        )
        if done.timed_out:
            return _failed(made, step, "hang", f"{argv[0]} took longer than {done.duration_s:.0f} s", log)
        if done.signal is not None:
            return _failed(made, step, "crash", f"{argv[0]} was ended by signal {done.signal}", log)
        if done.returncode:
            return _failed(made, step, "refused", f"{argv[0]} ended with status {done.returncode}", log)
        record = StepRecord(
            name=step,
            argv=argv,
            seconds=time.monotonic() - began_s,
            log=log,
            digest_in=digest,
            digest_out=file_digest(result),
        )
        return replace(made, path=result, steps=(*made.steps, record))


def _failed(made: Artifact, step: str, kind: str, why: str, log: Path) -> Artifact:
    failure = Failure(stage=step, kind=kind, transient=False, message=why, log_tail=tail(log))
    return replace(made, path=None, failure=failure)


def vitis(settings: Mapping[str, object]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown ones, and for placeholders that there are not."""
    values = read_settings(NAME, Settings, settings)
    steps = {
        "convert": (values.convert or ("none",), values.convert_result),
        "quantize": (values.quantize, values.quantize_result),
        "compile": (values.compile, values.result),
    }
    steps = {name: step for name, step in steps.items() if step[0] not in (("quark",), ("none",))}
    errors = [
        f"{name} has no placeholder {{{unknown}}}"
        for name, (words, result) in steps.items()
        for unknown in sorted(placeholders([*words, result]) - PLACEHOLDERS)
    ]
    errors += [
        f"{name} writes {result!r}, no plain name" for name, (_, result) in steps.items() if not _is_plain(result)
    ]
    if "{key}" not in values.kernel or not _is_plain(values.kernel):
        errors.append(f"kernel is {values.kernel!r}, where a plain name with {{key}} is wanted")
    if "compile" not in steps:
        errors.append("compile is not a command")
    if errors:
        names = ", ".join(f"{{{name}}}" for name in sorted(PLACEHOLDERS))
        raise UsageError(f"the toolchain {NAME} cannot be set so: {'; '.join(errors)}", hint=f"Placeholders: {names}.")
    plain = Plain(name="onnxruntime", runtime="onnxruntime")
    return Vitis(
        first=quark_of(values) if values.quantize == ("quark",) else plain,
        steps=steps,
        arch=values.arch,
        kernel=values.kernel,
        timeout_s=values.timeout_s,
    )


def _is_plain(name: str) -> bool:
    """Whether a template is a file's name in the step's own folder."""
    return bool(name) and "/" not in name and "\0" not in name and not name.startswith(".")

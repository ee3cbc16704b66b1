"""AMD's programs for DPUs: a quantiser, then the compiler, each a command that can be set.

Command lines as published: `vai_c_xir -x MODEL -a ARCH.json -o FOLDER -n NAME` writes FOLDER/NAME.xmodel (AMD UG1414,
"Compiling with an XIR-based toolchain"); `vai_c_caffe --prototxt .. --caffemodel .. --arch .. --net_name NAME
--output_dir FOLDER` of the Caffe line, which ended with Vitis AI 2.0, writes FOLDER/dpu_NAME.elf. The kernel name
<id>SSPROFILE and the default architecture are those of the published profiler. What comes out is measured on the board,
by the server that the user names.

Steps that are programs of others: a command from a template, its log, and the file that it must have made.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, UsageError
from gnomon.system.children import tail
from gnomon.system.files import file_digest
from gnomon.system.process import Completed, own_guard, run_process
from gnomon.toolchains.base import (
    Artifact,
    Missing,
    Setting,
    StepRecord,
    Tell,
    Text,
    Toolchain,
    ToolJob,
    UserPath,
    Words,
    check_jobs,
    check_ready,
    read_settings,
)
from gnomon.toolchains.children import SUFFIX
from gnomon.toolchains.quark_xint8 import SETTINGS as QUARK_SETTINGS
from gnomon.toolchains.quark_xint8 import quark_xint8

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A step for one model: `values` by placeholder, the `model` that it reads, its log and its time limit."""

    values: Mapping[str, str]
    model: Path
    log: Path
    timeout_s: float


def unknown_placeholders(texts: Sequence[str]) -> tuple[str, ...]:
    """The placeholders in templates that there are not."""
    found = (match for text in texts for match in _WORD.findall(text))
    return tuple(dict.fromkeys(name for name in found if name not in PLACEHOLDERS))


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with each placeholder's value in its place; what a value holds is taken as it is."""
    return _WORD.sub(lambda match: values.get(match[1], match[0]), template)


def missing_program(step: CommandStep, hint: str) -> tuple[Missing, ...]:
    """The program of a step, if it is not on the PATH."""
    if shutil.which(step.argv[0]) is not None:
        return ()
    return (Missing(what=f"there is no program {step.argv[0]} ({step.name})", hint=hint),)


def run_step(step: CommandStep, call: Call) -> tuple[Path, StepRecord] | Failure:
    """Run a step's command: the file that it made, and the record of it; or how it failed."""
    argv = tuple(filled(part, call.values) for part in step.argv)
    result = Path(call.values["out"]) / filled(step.result, call.values)
    began_s = time.monotonic()
    try:
        result.unlink(missing_ok=True)  # of an earlier run: what is found later must be of this one
        digest = file_digest(call.model)
        done = run_process(
            argv,
            env=dict(os.environ),
            stdin=b"",
            timeout_s=call.timeout_s,
            on_line=None,
            cwd=Path(call.values["out"]),
            guard=own_guard(),
        )
        call.log.write_text(
            f"command: {shlex.join(argv)}\nmodel: {call.model}\nSHA-256: {digest}\n\n{done.stdout}{done.stderr}",
            encoding="utf-8",
            errors="replace",
        )
        if failure := _failed(step, done, call.log):
            return failure
        made = file_digest(result)
    except DeviceError as error:
        return Failure(stage=step.name, kind="refused", transient=False, message=error.message)
    except OSError as error:
        why = f"{error.filename or result}: {error.strerror or error}"
        return Failure(stage=step.name, kind="refused", transient=False, message=why, log_tail=tail(call.log))
    seconds = time.monotonic() - began_s
    return result, StepRecord(
        name=step.name, argv=argv, seconds=seconds, log=call.log, digest_in=digest, digest_out=made
    )


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


NAME = "vitis"
ARCH = "/opt/vitis_ai/compiler/arch/dpuv2/ZCU102/ZCU102.json"
COMPILE = ("vai_c_xir", "-x", "{model}", "-a", "{arch}", "-o", "{out}", "-n", "{name}")
INSTALL = (
    "AMD's programs come in the Vitis AI docker image (github.com/Xilinx/Vitis-AI): run gnomon in it, or name them."
)

SETTINGS = (
    *QUARK_SETTINGS,
    Setting(name="arch", type=UserPath, default=Path(ARCH), meaning="the description of the DPU, a JSON file"),
    Setting(name="kernel", type=Text, default="{key}SSPROFILE", meaning="the kernel's name, of the model's {key}"),
    Setting(name="convert", type=Words, default=None, meaning="a command that converts the ONNX model first"),
    Setting(name="convert_result", type=Text, default="{name}.converted", meaning="the file that it writes"),
    Setting(name="quantize", type=Words, default=("quark",), meaning="a command, or quark, or none"),
    Setting(name="quantize_result", type=Text, default="{name}.quantized", meaning="the file that it writes"),
    Setting(name="compile", type=Words, default=COMPILE, meaning="the compiler's command"),
    Setting(name="result", type=Text, default="{name}.xmodel", meaning="the file that it writes, or dpu_{name}.elf"),
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
        told.append("compile is not a command")
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

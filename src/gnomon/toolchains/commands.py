"""Steps that are programs of others: a command from a template, its log, and the file that it must have made."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.devices.base import Completed
from gnomon.devices.child_process import tail
from gnomon.devices.guard import Guard
from gnomon.devices.process import run_process
from gnomon.errors import DeviceError
from gnomon.toolchains.base import Missing, StepRecord, file_digest

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
        done = _run(argv, call)
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


def _run(argv: tuple[str, ...], call: Call) -> Completed:
    home = Path(tempfile.mkdtemp(prefix="gnomon-command-"))
    guard = Guard(home)
    try:
        return run_process(
            argv,
            env=dict(os.environ),
            stdin=b"",
            timeout_s=call.timeout_s,
            on_line=None,
            cwd=Path(call.values["out"]),
            guard=guard,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)
        guard.close()


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

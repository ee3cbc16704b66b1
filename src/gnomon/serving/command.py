"""Any program that prints a time, as what measures: how it is started, how its time is read, and what came of it.

The command is a list of words; no shell takes part. The model lies in a private folder, here or on the device, under a
name of the server's own, and all of that goes away with each model.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from gnomon.core.sample import FINISHED, Context, Run, Samples
from gnomon.core.stats import Block, median, median_interval
from gnomon.errors import ModelError, UsageError

if TYPE_CHECKING:
    from gnomon.devices.base import Device, DeviceInfo
    from gnomon.devices.config import DeviceConfig
    from gnomon.serving.worker import Order
    from gnomon.system.process import Completed

MODEL = "model"
PLACEHOLDERS = (MODEL,)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
RATE = "fps"
"""The unit of what is counted in a second, not timed."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNIT_NAMES = (*UNITS, RATE)
_LAST_LINES, _LAST_LETTERS = 5, 160
_EXAMPLE = (
    'For a DPU: --command "xdputil benchmark {model} 1" --read "FPS= (?P<fps>[0-9.]+)"; for a program that prints '
    '"took 3.2 ms": --read "took ([0-9.]+)" --unit ms.'
)


class TookTooLong(Exception):
    """The command was ended at the time limit of its job; `said` are its last lines."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command's words, with {model} where the path of the model goes, and how its time is read of what it prints.

    `read` is a regular expression. Its group of the name s, ms, us, ns or fps holds the number; without such a name it
    has one group, or none and is the number itself, and `unit` is one of these.
    """

    argv: tuple[str, ...]
    read: str
    unit: str = ""

    @property
    def name(self) -> str:
        """What people call it: the program's name."""
        return PurePath(self.argv[0]).name

    def filled(self, model: str) -> list[str]:
        """The words for a model at this path, which is taken as it is."""
        return [_PLACEHOLDER.sub(lambda match: model if match[1] == MODEL else match[0], word) for word in self.argv]

    def times_s(self, printed: str) -> list[float]:
        """The seconds of each match; of one match the first of its groups that took part.

        ModelError for a number that is no time.
        """
        pattern = re.compile(self.read, re.MULTILINE)
        named = [name for name in pattern.groupindex if name in _UNIT_NAMES]
        times = []
        for match in pattern.finditer(printed):
            if named:
                unit, text = next(((name, match[name]) for name in named if match[name] is not None), ("", None))
            else:
                unit, text = self.unit, match[1] if pattern.groups else match[0]
            if text is None:
                continue
            times.append(_seconds(text, unit))
        return times


def command_of(text: str, read: str | None, unit: str | None) -> Command:
    """The command that a user writes in one line. UsageError with all that is wrong."""
    wrong: list[str] = []
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        argv = ()
        wrong.append(f"--command cannot be split into words: {error}")
    if not argv and not wrong:
        wrong.append("--command is empty")
    names = dict.fromkeys(name for word in argv for name in _PLACEHOLDER.findall(word))
    unknown = [name for name in names if name not in PLACEHOLDERS]
    if unknown:
        told = ", ".join(f"{{{name}}}" for name in unknown)
        wrong.append(f"--command has {told}, and the placeholders there are: {', '.join(map(_braced, PLACEHOLDERS))}")
    if argv and MODEL not in names:
        wrong.append("--command has no {model}, where the path of the model goes")
    wrong += _read_complaints(read, unit)
    if wrong:
        raise UsageError("; ".join(wrong), hint=_EXAMPLE)
    return Command(argv=argv, read=read or "", unit=unit or "")


def _braced(name: str) -> str:
    return f"{{{name}}}"


def _read_complaints(read: str | None, unit: str | None) -> list[str]:
    if read is None:
        return ["--command needs --read REGEX, which finds the time in what the program prints"]
    try:
        pattern = re.compile(read, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        return [f"--read is no regular expression: {error}"]
    named = [name for name in pattern.groupindex if name in _UNIT_NAMES]
    if named and unit:
        return [f"--read names its unit ({', '.join(named)}), and --unit is given as well"]
    if not named and not unit:
        return [f"--read has no group named {', '.join(_UNIT_NAMES)}, and no --unit is given"]
    if not named and pattern.groups > 1:
        return [f"--read has {pattern.groups} groups: name the one that is the time, or write the others as (?:..)"]
    return []


def _seconds(text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ModelError(
            f"--read of this server found {text[:40]!r}, which is no time above 0",
            hint="Whoever runs the server can correct its --read.",
        )
    return 1 / number if unit == RATE else number * UNITS[unit]


def measure_by_command(order: Order, config: DeviceConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """What a model takes by a command: each process's time is the median of its matches, the model's that of these.

    Without a model it is only looked whether the device is there. ModelError for what the command says against the
    model, TookTooLong, DeviceError for a device or a program that is not there.
    """
    from gnomon.devices.opening import opened
    from gnomon.store.sqlite import SqliteStore

    assert order.command is not None  # noqa: S101
    command, began_s = order.command, time.monotonic()
    with ExitStack() as stack:
        store = stack.enter_context(SqliteStore.open(order.record_path))
        device = stack.enter_context(opened(config, on_wait=tell))
        info = device.describe()
        runs: list[list[float]] = []
        for _ in range(order.processes if order.model is not None else 0):
            path = device.push(Path(order.model or ""), Path(order.model or "").name)
            left_s = order.job_s - (time.monotonic() - began_s)
            runs.append(_run(device, command, path, max(0.1, left_s)))
        _record(store, order, info, runs)
    return _answer(command, info, runs)


def _run(device: Device, command: Command, path: str, timeout_s: float) -> list[float]:
    """One process of the command. See `measure_by_command`."""
    done = device.run(command.filled(path), env={}, timeout_s=timeout_s)
    printed = f"{done.stdout}\n{done.stderr}"
    said = last_lines(done).replace(path, "the model")
    if done.timed_out:
        raise TookTooLong(said)
    if not done.ok:
        how = f"was ended by signal {done.signal}" if done.signal else f"ended with status {done.returncode}"
        raise ModelError(f"{command.name} {how}: {said}", hint="See what the program wants of a model.")
    times = command.times_s(printed)
    if not times:
        raise ModelError(
            f"{command.name} printed nothing that --read of this server matches: {said}",
            hint="Whoever runs the server can correct its --read.",
        )
    return times


def last_lines(done: Completed) -> str:
    """The last that a program said, on its standard error, or where that is empty on its standard output."""
    lines = [line.strip()[:_LAST_LETTERS] for line in (done.stderr.strip() or done.stdout.strip()).splitlines()]
    return " | ".join(line for line in lines[-_LAST_LINES:] if line) or "it said nothing"


def _answer(command: Command, info: DeviceInfo, runs: Sequence[Sequence[float]]) -> dict[str, Any]:
    each = [median(times) for times in runs]
    blocks = [Block(process=number, block=0, values_s=(value,)) for number, value in enumerate(each)]
    low_s, high_s = median_interval(blocks) if len(each) > 1 else (None, None)
    return {
        "latency_s": median(each) if each else 0.0,
        "low_s": low_s,
        "high_s": high_s,
        "processes": len(each),
        "loads": len(each),
        "samples": sum(map(len, runs)),
        "drift": 1.0,
        "runtime": command.name,
        "version": "",
        "configuration": command.name,
        "clock": "wall",
        "doubts": [],
        "device": info.name,
        "reference_s": [],
        "workload_mop": None,
    }


def _record(store: Any, order: Order, info: DeviceInfo, runs: Sequence[Sequence[float]]) -> None:
    """Put the times into the record of runs, as what the program told: it tells no CPU time."""
    from gnomon import __version__
    from gnomon.measure.campaign import Question, open_campaign
    from gnomon.store.base import note

    if not runs or order.command is None:
        return
    context = Context(
        device=info.fingerprint,
        versions={},
        model_digest=order.digest,
        model_name=f"served model {order.digest[:16]}",
        options={"command": list(order.command.argv), "read": order.command.read, "unit": order.command.unit},
        seed=order.seed,
        gnomon_version=__version__,
    )
    question = Question(kind="serve", context=context, details={"digest": order.digest})
    campaign, _ = open_campaign(store, question, fresh=True)
    for number, times in enumerate(runs):
        wall_ns = tuple(round(value * 1e9) for value in times)
        samples = Samples(wall_ns=wall_ns, cpu_ns=(0,) * len(wall_ns), inner=1)
        store.append(
            campaign.id, Run(candidate=MODEL, process=number, block=0, started_at_s=time.time(), samples=samples)
        )
    note(store, campaign.id, FINISHED, {})

"""A model measured by a command: its processes on the device, what each printed, and the record of it.

The model lies in a private folder on the device, which goes away with each model, with all that the command left there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from gnomon import __version__
from gnomon.core.sample import FINISHED, Context, Run, Samples
from gnomon.core.stats import Block, median, median_interval
from gnomon.devices.address import LOCAL
from gnomon.devices.base import Device, DeviceInfo
from gnomon.devices.config import DeviceConfig
from gnomon.devices.local import LocalDevice
from gnomon.devices.opening import opened, visited
from gnomon.errors import ModelError, RuntimeMissingError
from gnomon.measure.campaign import Question, open_campaign
from gnomon.serving.command import Command
from gnomon.serving.job import Job, Measurement
from gnomon.store.address import record_address
from gnomon.store.base import Store, note
from gnomon.store.opening import open_store
from gnomon.system.process import Completed

_CHECK_S = 60.0
_LAST_LINES, _LAST_LETTERS = 5, 160


class TookTooLong(Exception):
    """The command was ended at the time limit of its job; `printed` are its last lines."""

    def __init__(self, printed: str) -> None:
        super().__init__(printed)
        self.printed = printed


def measure_by_command(job: Job, config: DeviceConfig, tell: Callable[[str], None]) -> Measurement:
    """What a model takes by a command: each process's time is the median of its matches, the model's that of these.

    Without a model it is only looked whether the device and the program are there: DeviceError, RuntimeMissingError.
    ModelError for what the command says against the model, TookTooLong.
    """
    command, deadline_s = job.measuring.command, time.monotonic() + job.limits.job_s
    assert command is not None  # noqa: S101
    if job.model is None:
        _check_soon(config, command)
    with ExitStack() as stack:
        record = None if job.measuring.record is None else record_address(job.measuring.record)
        store = stack.enter_context(open_store(record))
        device = stack.enter_context(opened(config, on_wait=tell))
        info = device.describe()
        runs: list[list[float]] = []
        if job.model is None:
            _check(device, info.name, command)
        else:
            for _ in range(job.processes):
                path = device.push(Path(job.model), Path(job.model).name)
                runs.append(_run(device, command, path, max(0.1, deadline_s - time.monotonic())))
            _record(store, job, info, runs)
    return _result(command, info, runs)


def _check_soon(config: DeviceConfig, command: Command) -> None:
    """The same without a turn on the device, where that is possible: what is missing is said while others measure."""
    if config.address.kind == LOCAL:
        with LocalDevice(config.name, python=config.python, environment=config.environment) as device:
            _check(device, config.name, command)
    elif config.address.kind == "ssh":
        with visited(config) as device:
            _check(device, config.name, command)


def _check(device: Device, name: str, command: Command) -> None:
    done = device.run(["sh", "-c", 'command -v "$1"', "sh", command.argv[0]], env={}, timeout_s=_CHECK_S)
    if not done.ok:
        raise RuntimeMissingError(
            f"there is no program {command.argv[0]!r} on {name}",
            hint="Install it there, and give its whole path in --command where it is not on the PATH of its user.",
        )


def _run(device: Device, command: Command, path: str, timeout_s: float) -> list[float]:
    """One process of the command. See `measure_by_command`."""
    done = device.run(command.filled(path), env={}, timeout_s=timeout_s)
    printed = last_lines(done, path)
    if done.timed_out:
        raise TookTooLong(printed)
    printed = printed or "it said nothing"
    if not done.ok:
        how = f"was ended by signal {done.signal}" if done.signal else f"ended with status {done.returncode}"
        raise ModelError(f"{command.name} {how}: {printed}", hint="See what the program wants of a model.")
    times = command.times_s(f"{done.stdout}\n{done.stderr}")
    if not times:
        raise ModelError(
            f"{command.name} printed nothing that --read of this server matches: {printed}",
            hint="Whoever runs the server can correct its --read.",
        )
    return times


def last_lines(done: Completed, path: str) -> str:
    """The last that a program said, on its standard error, or where that is empty on its standard output.

    Where the model lay is nobody's business.
    """
    printed = (done.stderr.strip() or done.stdout.strip()).replace(path, "the model")
    lines = [line.strip()[:_LAST_LETTERS] for line in printed.splitlines()[-_LAST_LINES:]]
    return " | ".join(filter(None, lines))


def _result(command: Command, info: DeviceInfo, runs: Sequence[Sequence[float]]) -> Measurement:
    medians_s = [median(times) for times in runs]
    blocks = [Block(process=number, block=0, values_s=(value,)) for number, value in enumerate(medians_s)]
    low_s, high_s = median_interval(blocks) if len(blocks) > 1 else (None, None)
    return Measurement(
        latency_s=median(medians_s) if medians_s else 0.0,
        low_s=low_s,
        high_s=high_s,
        processes=len(runs),
        loads=len(runs),
        samples=sum(map(len, runs)),
        runtime=command.name,
        configuration=command.name,
        device=info.name,
    )


def _record(store: Store, job: Job, info: DeviceInfo, runs: Sequence[Sequence[float]]) -> None:
    """Put the times into the record of runs, as what the program printed; of CPU time it knows nothing."""
    command = job.measuring.command
    assert command is not None  # noqa: S101
    context = Context(
        device=info.fingerprint,
        versions={},
        model_digest=job.digest,
        model_name=f"served model {job.digest[:16]}",
        options={"command": list(command.argv), "read": command.read, "unit": command.unit},
        seed=job.measuring.seed,
        gnomon_version=__version__,
    )
    question = Question(kind="serve", context=context, details={"digest": job.digest})
    campaign, _ = open_campaign(store, question, fresh=True)
    for number, times in enumerate(runs):
        wall_ns = tuple(round(value * 1e9) for value in times)
        samples = Samples(wall_ns=wall_ns, cpu_ns=(0,) * len(wall_ns), inner=1)
        store.append(
            campaign.id, Run(candidate="model", process=number, block=0, started_at_s=time.time(), samples=samples)
        )
    note(store, campaign.id, FINISHED, {})

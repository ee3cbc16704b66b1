"""The probe of a device: before anything is measured on it, it shows whether the device is still the same board and as
fast as before.

It measures the no-op model and one convolution, as every table does first (`gnomon.session.bench.baseline`), and
compares them with their times when the device was first probed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gnomon.core.stats import drift, median
from gnomon.devices.config import DeviceConfig
from gnomon.devices.health import Baseline, Health, health_of, passed, put_into_quarantine, refusal
from gnomon.errors import DeviceError, GnomonError, RecordError, RuntimeMissingError
from gnomon.measure.effort import Effort
from gnomon.measure.environment import worst
from gnomon.measure.progress import Tell
from gnomon.models.load import reachable
from gnomon.runtimes.registry import all_runtimes
from gnomon.session.bench.baseline import gauge_of
from gnomon.session.bench.bench import open_bench
from gnomon.session.request import MeasureRequest
from gnomon.spaces.unit import Trace, Unit
from gnomon.store.address import RecordAddress

PROBED_EACH_S = 3600.0
"""The number of seconds for which a device that was in order is not probed again."""

SLOWER = 1.2
"""A device is slow if its probe takes this many times its baseline, beyond the noise of both (`core.stats.drift`), and
fast if it takes less by the same factor.
"""

_EFFORT = Effort(rounds=2, block_s=0.02, processes_least=2, processes_most=2, budget_s=20.0)
"""Four processes in total: the gauge adds two."""

_trace = Trace(((1, 32, 24, 24),))
_KERNEL: Unit = _trace.net(_trace.input().conv(32, 3)).nodes[0].unit

_BOARD = {"machine": "the architecture", "cpu_model": "the processor", "soc": "the chip"}
"""The constant facts about a board; cores and their clocks are not among them because they can be switched."""
_MEMORY = 1.1
"""The ratio from which two memory sizes count as different; a smaller difference may be memory that the kernel
reserves.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The result of a probe: a baseline, and the device's own reports that it was `slowed` down."""

    baseline: Baseline
    slowed: tuple[str, ...] = ()


Fault = tuple[Literal["board", "speed"], str]
"""The aspect of a device that has changed, and the evidence."""


def probe(
    config: DeviceConfig, record: RecordAddress | None, runtimes: Sequence[str] = (), *, tell: Tell | None = None
) -> Probed:
    """Measure the reference kernel on a device with the first available runtime, as a campaign of the kind `probe`.

    DeviceError if the device fails, another GnomonError if no runtime there runs an ONNX model.
    """
    wanted = runtimes or config.runtimes or sorted(r.name for r in all_runtimes()[0] if r.formats & reachable("onnx"))
    ordered = sorted(wanted, key=lambda name: name != "onnxruntime")
    lacking: RuntimeMissingError | None = None
    for name in ordered:
        request = MeasureRequest(device=config, runtimes=(name,), effort=_EFFORT, record=record, fresh=True)
        try:
            with open_bench(request, kind="probe", subject="probe", question={}, tell=tell) as bench:
                gauge = gauge_of(bench, [_KERNEL])
                took_s = median(list(gauge.reference_s))
                bench.runner.finish({"reason": f"The reference kernel takes {took_s * 1e6:.1f} us.", "call_s": took_s})
                fingerprint = bench.device.fingerprint
                baseline = Baseline(
                    at_s=time.time(),
                    fingerprint={key: fingerprint.get(key) for key in (*_BOARD, "memory_bytes")},
                    runtime=f"{bench.runtime.name} {bench.probe.version}, {bench.configuration.name}, {gauge.clock}",
                    calls_s=gauge.reference_s,
                    campaign=bench.runner.campaign.id,
                )
                doubts = worst(bench.runner.environments)
                slowed = tuple(d.message for d in doubts if d.kind in ("throttled", "voltage", "frequency"))
                return Probed(baseline=baseline, slowed=slowed)
        except RuntimeMissingError as error:
            lacking = error
    raise lacking or RuntimeMissingError(f"no runtime can probe {config.name}", hint="To see all: gnomon runtimes")


def judged(probed: Probed, before: Baseline | None) -> Fault | None:
    """The fault of a device that its probe shows; None if it shows none. Without a baseline, only the device's own
    reports count.
    """
    if before is not None:
        other = [
            f"{what} was {str(before.fingerprint[key])[:80]} and is now {str(probed.baseline.fingerprint[key])[:80]}"
            for key, what in _BOARD.items()
            if len({before.fingerprint.get(key), probed.baseline.fingerprint.get(key)} - {None}) == 2
        ]
        memories = [baseline.fingerprint.get("memory_bytes") for baseline in (before, probed.baseline)]
        sizes = [size for size in memories if isinstance(size, int) and size > 0]
        if not other and len(sizes) == 2 and max(sizes) / min(sizes) > _MEMORY:
            other = ["the size of its memory has changed"]
        if other:
            return "board", f"it is another board: {'; '.join(other)}"
    if probed.slowed:
        return "speed", f"it is slowed down: {'; '.join(probed.slowed)}"
    if before is None or before.runtime != probed.baseline.runtime:
        return None
    times = 1 / drift(before.calls_s, probed.baseline.calls_s)
    if 1 / SLOWER < times < SLOWER:
        return None
    day = time.strftime("%Y-%m-%d", time.localtime(before.at_s))
    return "speed", f"the probe takes {times:.2f} times as long as on {day}"


def probe_now(
    config: DeviceConfig, record: RecordAddress | None, runtimes: Sequence[str] = (), *, tell: Tell | None = None
) -> Health:
    """Probe a device and note the result; a fault in its speed counts only if a second probe confirms it.

    A quarantine ends if the device passes. DeviceError if the device fails or does not pass; otherwise the errors of
    `probe`.
    """
    before = health_of(config.name).baseline
    fault, probed = None, None
    for _ in range(2):
        probed = probe(config, record, runtimes, tell=tell)
        fault = judged(probed, before)
        if fault is None or fault[0] == "board":
            break
    assert probed is not None  # noqa: S101 - the loop ran
    if fault is not None:
        health = put_into_quarantine(config.name, *fault)
        assert health.quarantine is not None  # noqa: S101 - just put there
        raise refusal(config.name, health.quarantine)
    renewed = before is None or before.runtime != probed.baseline.runtime
    return passed(config.name, probed.baseline if renewed else None, median(list(probed.baseline.calls_s)))


def check_before_use(config: DeviceConfig, record: RecordAddress | None, runtimes: Sequence[str] = ()) -> None:
    """Probe a device unless it was in order within the last hour; always probe one in quarantine.

    DeviceError if the device fails, stays in quarantine or is put there. If nothing on the device can probe it, it is
    used unprobed, unless it is in quarantine. RecordError if the record cannot be written, which is not the device's
    fault.
    """
    health = health_of(config.name)
    fresh = health.probed_at_s is not None and 0 <= time.time() - health.probed_at_s < PROBED_EACH_S
    if fresh and health.quarantine is None:
        return
    try:
        probe_now(config, record, runtimes)
    except (DeviceError, RecordError):
        raise
    except GnomonError as error:
        if health.quarantine is not None:
            raise refusal(config.name, health.quarantine) from error
        passed(config.name, None, None)

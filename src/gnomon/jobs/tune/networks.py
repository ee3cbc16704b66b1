"""Compile networks with chosen configurations, measure them interleaved in fresh processes, and compare outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core import codec
from gnomon.core.overlay.records import TunedDevice, TunedModel, TuningLayer
from gnomon.core.sample import Failure
from gnomon.core.stats import blocks_of, compare
from gnomon.errors import RecordError, system_errors
from gnomon.jobs.tune.campaign import CallCampaign
from gnomon.jobs.tune.document import RatioPart, TimesPart, TunedNetworkPart, failure_part, ratio_part, times_part
from gnomon.jobs.tune.folder import companions, write_description
from gnomon.jobs.tune.request import TuneEffort
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock
from gnomon.measure.progress import Meter, Watch
from gnomon.tuning.bench import Bench, LayerCall, NetworkCall, visits
from gnomon.tuning.networks import CompiledNetwork, Network

_ROUNDS, _QUICK_ROUNDS = 5, 15
"""The number of visits in a process; the larger one applies if a call is shorter than a sample, because visits are then
cheap.
"""

_LAGGARD = 1.6
"""Networks up to this many times as slow as the fastest are visited several times in a process, slower ones once."""

_NARROW = 0.02
"""No further process is needed once the interval of a network's time has at most this relative half-width."""

Choice = Sequence[tuple[TuningLayer, Any]]
"""Layers, each with the trace of the configuration that it is compiled with."""


def measure_calls(
    bench: Bench,
    calls: Mapping[str, NetworkCall | LayerCall],
    effort: TuneEffort,
    *,
    stage: str,
    watch: Watch | None,
    campaign: CallCampaign,
) -> dict[str, Measured]:
    """Measure all calls in each of several fresh processes on the device, in a different order each time.

    Whole networks that may be the fastest take turns, several times in each process, because a processor's speed
    varies. All networks get up to twice as many processes, until the medians of the fastest are known within 2 %.
    Failed calls are not repeated, and calls that the campaign already has are not measured again. `watch` gets a step
    for each call. The bench records the machine's state before and after. DeviceError if the device is unavailable.
    """
    failed: set[str] = set()

    def given_up(name: str) -> bool:
        failure = campaign.measured(name).failure
        return failure is not None and (name in failed or not failure.transient)

    def missing(name: str) -> int:
        seen = {block.process for block in blocks_of(campaign.measured(name).runs)}
        return 0 if given_up(name) else max(0, effort.processes - len(seen))

    def near() -> dict[str, TimesPart]:
        networks = [name for name, call in calls.items() if isinstance(call, NetworkCall) and name not in failed]
        times = {name: time for name in networks if (time := times_of(campaign.measured(name)))}
        least_s = min((time.median_s for time in times.values()), default=0.0)
        return {name: time for name, time in times.items() if time.median_s <= _LAGGARD * least_s}

    def wanted(name: str, visit: int) -> bool:
        rivals = near()
        if visit:
            rival = rivals.get(name)
            return rival is not None and (visit < _ROUNDS or 1e3 * rival.median_s < effort.min_repeat_ms)
        more = isinstance(calls[name], NetworkCall) and not all(map(_is_narrow, rivals.values()))
        return missing(name) > 0 or (more and not given_up(name))

    meter = Meter(stage, sum(map(missing, calls)), watch)
    with bench.watched():
        for name, visit in visits(bench, calls, 2 * effort.processes, effort.seed, wanted, rounds=_QUICK_ROUNDS):
            before, said = missing(name), bench.call(calls[name], effort.loop(campaign.dtype))
            campaign.add_call(name, said, visit)
            if isinstance(said, Failure):
                failed.add(name)
            meter.step(before - missing(name))
    return {name: campaign.measured(name) for name in calls}


def _is_narrow(times: TimesPart) -> bool:
    if times.low_s is None or times.high_s is None:
        return False
    return times.high_s - times.low_s <= 2 * _NARROW * times.median_s


def clock_of(*measured: Measured) -> Clock:
    """The clock for a comparison: CPU time if all samples have it, else wall time.

    Samples have CPU times if one thread computes and the device reports them.
    """
    samples = [run.samples for call in measured for run in call.runs if run.samples is not None]
    return "cpu" if all(sample.cpu_ns for sample in samples) else "wall"


def times_of(measured: Measured) -> TimesPart | None:
    """The statistics of a call's times; None if the call failed or was not measured."""
    clock = clock_of(measured)
    return times_part(blocks_of(measured.runs, clock=clock), clock) if measured.ok else None


def error_of(measured: Measured) -> float | None:
    """The largest difference of a call's outputs from the reference; None if they were not compared."""
    errors = (run.facts.get("error") for run in measured.runs)
    return max((error for error in errors if error is not None), default=None)


def ratio_of(a: Measured, b: Measured) -> RatioPart | None:
    """The ratio of the times of `a` to those of `b`, paired by process; None if either has no times."""
    if not (a.ok and b.ok):
        return None
    clock = clock_of(a, b)
    return ratio_part(compare(blocks_of(a.runs, clock=clock), blocks_of(b.runs, clock=clock)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A network compiled for a device: the tuned library, and an untuned library for comparison.

    `reference_by` names the software that computed the reference outputs ("": no other software did).
    """

    library: Path
    untuned: Path
    network: CompiledNetwork
    reference_by: str


def compile_untuned(network: Network, device: TunedDevice, library: Path) -> Path | Failure:
    """Compile a network without chosen configurations, into a file next to the tuned library.

    RecordError if the folder cannot be written.
    """
    with system_errors(RecordError, str(library.parent), hint="Give another --out."):
        library.parent.mkdir(parents=True, exist_ok=True)
    untuned = library.with_suffix(".untuned.so")
    built = network.compile(device, (), untuned)
    return built if isinstance(built, Failure) else untuned


def compile_network(
    network: Network,
    device: TunedDevice,
    choice: Choice,
    library: Path,
    *,
    model: TunedModel,
    seed: int,
    untuned: Path | Failure | None = None,
) -> Compiled | Failure:
    """Compile a network with the chosen configurations and, unless `untuned` is given, also without any.

    The files that `gnomon exec` needs are written next to the library. RecordError if the folder cannot be written.
    """
    if untuned is None:
        untuned = compile_untuned(network, device, library)
    if isinstance(untuned, Failure):
        return untuned
    beside = companions(library)
    built = network.compile(device, choice, library, layers=beside["layers"], inputs=beside["inputs"], seed=seed)
    if isinstance(built, Failure):
        return built
    said = network.reference(beside["inputs"], beside["outputs"])
    by = "" if isinstance(said, Failure) else said
    if not by:
        beside["outputs"].unlink(missing_ok=True)
    rows: list[dict[str, Any]] = codec.to_json(network.layers(device.target))
    described = {
        "gnomon": "compiled network",
        "version": 1,
        "device": codec.to_json(device),
        "model": codec.to_json(model),
        "functions": built.functions,
        "scheduled": built.scheduled,
        "reference_by": by or None,
        "layers": [{name: row[name] for name in ("name", "layer", "weight", "arguments")} for row in rows],
    }
    write_description(library, described)
    return Compiled(library=library, untuned=untuned, network=built, reference_by=by)


def prove_network(
    bench: Bench, compiled: Compiled | Failure, effort: TuneEffort, *, watch: Watch | None, campaign: CallCampaign
) -> TunedNetworkPart:
    """Measure the compiled network and the untuned one on the device, interleaved."""
    if isinstance(compiled, Failure):
        return TunedNetworkPart(failure=failure_part(compiled))
    beside = companions(compiled.library)
    inputs, outputs = beside["inputs"], beside["outputs"]
    if not outputs.exists():
        # If no other software computed outputs, the untuned network's outputs are the reference.
        keep = NetworkCall(library=compiled.untuned, inputs=inputs, keep=outputs)
        said = bench.call(keep, effort.loop(campaign.dtype))
        if isinstance(said, Failure):
            return TunedNetworkPart(failure=failure_part(said))
    calls = {
        name: NetworkCall(library=library, inputs=inputs, reference=outputs)
        for name, library in (("untuned", compiled.untuned), ("tuned", compiled.library))
    }
    times = measure_calls(bench, calls, effort, stage="whole networks", watch=watch, campaign=campaign)
    untuned, tuned = times["untuned"], times["tuned"]
    return TunedNetworkPart(
        untuned=times_of(untuned),
        tuned=times_of(tuned),
        ratio=ratio_of(untuned, tuned),
        max_error=error_of(tuned),
        compared_with=compiled.reference_by or "the untuned network on this device",
        scheduled=compiled.network.scheduled,
        functions=compiled.network.functions,
        failure=failure_part(tuned.failure),
        untuned_failure=failure_part(untuned.failure),
    )

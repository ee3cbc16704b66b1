"""Networks compiled with a choice of configurations, and measured by turns in fresh processes; outputs are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gnomon.core import codec
from gnomon.core.overlay.records import TunedDevice, TunedModel, TuningLayer
from gnomon.core.sample import Failure
from gnomon.core.stats import Block, compare
from gnomon.errors import RecordError
from gnomon.jobs.tune.document import RatioPart, TimesPart, TunedNetworkPart, failure_part, ratio_part, times_part
from gnomon.jobs.tune.folder import companions, write_description
from gnomon.jobs.tune.request import Care
from gnomon.measure.progress import Meter, Watch
from gnomon.tuning.bench import Bench, LayerCall, NetworkCall, Timed, visits
from gnomon.tuning.networks import CompiledNetwork, Network

Choice = Sequence[tuple[TuningLayer, Any]]
"""Layers with the trace of the configuration that each is compiled with."""


@dataclass(slots=True, kw_only=True)
class CallTimes:
    """What came of one call: a block of times a process, the largest difference of outputs, a failure."""

    blocks: list[Block] = field(default_factory=list)
    error: float | None = None
    failure: Failure | None = None

    def summary(self) -> TimesPart | None:
        """The median with its interval, samples and processes; None where it failed or was not measured."""
        return None if self.failure is not None or not self.blocks else times_part(self.blocks)


class CallRecord(Protocol):
    """Where calls are recorded as they come, by their name and the number of the fresh process."""

    def known(self, name: str, process: int) -> Timed | Failure | None:
        """What a call came to in a process, if that need not be measured again."""

    def add_call(self, name: str, process: int, said: Timed | Failure) -> None:
        """Add what a call came to."""


def measure_calls(
    bench: Bench,
    calls: Mapping[str, NetworkCall | LayerCall],
    care: Care,
    *,
    dtype: str,
    stage: str,
    watch: Watch | None,
    record: CallRecord,
) -> dict[str, CallTimes]:
    """Measure all calls in each of so many fresh processes of the device, in another order each time.

    What failed once is not called again, and what the record knows is not measured again. `watch` sees a step a call.
    The bench has the machine's state meanwhile. DeviceError where the device cannot be had.
    """
    times = {name: CallTimes() for name in calls}
    meter = Meter(stage, len(calls) * care.processes, watch)
    with bench.watched():
        for name in visits(bench, calls, care.processes, care.seed, lambda name: times[name].failure is None):
            one, process = times[name], len(times[name].blocks)
            said = record.known(name, process)
            if said is None:
                said = bench.call(calls[name], care.loop(dtype))
                record.add_call(name, process, said)
            if isinstance(said, Failure):
                one.failure = said
                meter.step(care.processes - process)
            else:
                one.blocks.append(Block(process=process, block=0, values_s=said.times_s))
                one.error = max((x for x in (one.error, said.error) if x is not None), default=None)
                meter.step()
    return times


def ratio_of(a: CallTimes, b: CallTimes) -> RatioPart | None:
    """Time of a over time of b, paired by process; None where one has no times."""
    if a.failure is not None or b.failure is not None or not a.blocks or not b.blocks:
        return None
    return ratio_part(compare(a.blocks, b.blocks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A network compiled for a device: the tuned library, and the same untuned for comparison.

    `reference_by` says who computed the reference outputs ("" where there are none but the untuned network's own).
    """

    library: Path
    untuned: Path
    network: CompiledNetwork
    reference_by: str


def compile_untuned(network: Network, device: TunedDevice, library: Path) -> Path | Failure:
    """Compile a network without any choice, beside where the tuned library goes.

    RecordError where the folder cannot be written.
    """
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{library.parent}: {error.strerror or error}", hint="Give another --out.") from error
    untuned = library.with_suffix(".untuned.so")
    made = network.compile(device, (), untuned)
    return made if isinstance(made, Failure) else untuned


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
    """Compile a network with a choice, and untuned where that was not done before; write beside it what `gnomon exec`
    needs elsewhere.

    RecordError where the folder cannot be written.
    """
    if untuned is None:
        untuned = compile_untuned(network, device, library)
    if isinstance(untuned, Failure):
        return untuned
    beside = companions(library)
    made = network.compile(device, choice, library, layers=beside["layers"], inputs=beside["inputs"], seed=seed)
    if isinstance(made, Failure):
        return made
    by = network.reference(beside["inputs"], beside["outputs"])
    if isinstance(by, Failure):
        beside["outputs"].unlink(missing_ok=True)
    rows: list[dict[str, Any]] = codec.to_json(network.layers(device.target))
    described = {
        "gnomon": "compiled network",
        "version": 1,
        "device": codec.to_json(device),
        "model": codec.to_json(model),
        "functions": made.functions,
        "scheduled": made.scheduled,
        "reference_by": None if isinstance(by, Failure) else by,
        "layers": [{name: row[name] for name in ("name", "layer", "weight", "arguments")} for row in rows],
    }
    write_description(library, described)
    return Compiled(
        library=library,
        untuned=untuned,
        network=made,
        reference_by="" if isinstance(by, Failure) else by,
    )


def prove_network(
    bench: Bench,
    compiled: Compiled | Failure,
    care: Care,
    *,
    model: TunedModel,
    watch: Watch | None,
    record: CallRecord,
) -> TunedNetworkPart:
    """The compiled network beside the untuned one on the device, interleaved."""
    if isinstance(compiled, Failure):
        return TunedNetworkPart(failure=failure_part(compiled))
    beside = companions(compiled.library)
    inputs, outputs = beside["inputs"], beside["outputs"]
    if not outputs.exists():
        # Without other software the untuned network's outputs are the reference.
        call = NetworkCall(library=compiled.untuned, inputs=inputs, keep=outputs)
        said = bench.call(call, care.loop(model.dtype))
        if isinstance(said, Failure):
            return TunedNetworkPart(failure=failure_part(said))
    calls = {
        name: NetworkCall(library=library, inputs=inputs, reference=outputs)
        for name, library in (("untuned", compiled.untuned), ("tuned", compiled.library))
    }
    times = measure_calls(bench, calls, care, dtype=model.dtype, stage="whole networks", watch=watch, record=record)
    untuned, tuned = times["untuned"], times["tuned"]
    return TunedNetworkPart(
        untuned=untuned.summary(),
        tuned=tuned.summary(),
        ratio=ratio_of(untuned, tuned),
        max_error=tuned.error,
        compared_with=compiled.reference_by or "the untuned network on this device",
        scheduled=compiled.network.scheduled,
        functions=compiled.network.functions,
        failure=failure_part(tuned.failure),
        untuned_failure=failure_part(untuned.failure),
    )

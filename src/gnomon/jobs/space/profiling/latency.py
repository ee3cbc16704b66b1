"""Measure many networks, given as ONNX files, on one device in one configuration of one runtime.

Networks share processes with a reference kernel, the anchor, in random order. A user's command measures each network
separately, because gnomon cannot know what the command loads. An interrupted call continues from the results database.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from gnomon.errors import MeasurementError
from gnomon.measure.effort import Clock, Effort
from gnomon.measure.progress import Steps, Watch
from gnomon.models.load import load, load_unread
from gnomon.models.model import UNREAD
from gnomon.models.onnx.graph import load_outline
from gnomon.session.bench.baseline import KNOWN_WITHIN, Timed, gauge_of, measure_well, parts_of, place_each, timed
from gnomon.session.bench.bench import Bench, Placed, open_bench
from gnomon.session.request import MeasureRequest, patiently
from gnomon.session.targets import describe
from gnomon.spaces.unit import Trace, Unit

NETWORK_EFFORT = Effort(
    rounds=2,
    block_s=0.003,
    sample_s=2e-4,
    samples_least=5,
    warm_s=0.002,
    rewarm_s=0.0005,
    processes_least=6,
    processes_most=6,
    half_width=0.05,
    laggard=1e9,
    together=33,
)
"""The effort for a network of a cell space: six processes with two short visits each, shared by 32 networks and the
anchor, and twice as many processes if the interval's half-width exceeds `half_width`.
"""

_COPIES, _COPY = 4, "/copy-"

_trace = Trace(((1, 32, 24, 24),))
_ANCHOR: Unit = _trace.net(_trace.input().conv(32, 3)).nodes[0].unit
"""A convolution of about the size of a small network."""


def measure_files(
    request: MeasureRequest,
    files: Mapping[str, Path],
    *,
    subject: str,
    question: Mapping[str, object],
    effort: Effort = NETWORK_EFFORT,
    written: Sequence[Path] = (),
    closely: Set[str] = frozenset(),
    worked: Path | None = None,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> tuple[dict[str, Timed], Clock]:
    """The times of a subject's networks by key, in the order of `files`, and their clock; a failure has a reason.

    `question` has JSON values that, together with the subject and the device, identify the campaign. A later call with
    the same question continues an interrupted call or measures more networks; the same anchor makes all their times
    comparable. `written` has the files that are written from the times; the results database names them. `closely` has
    the keys of networks on which many predictions depend, such as the default network. Several copies of each are
    measured, because placement in memory changes a small network's time by a few per cent. `worked` is a network that
    the command has measured before: if it fails too, the fault lies with the command and not with the network.

    A file is identified by its content and is not measured again under another key. GnomonErrors for the device and the
    runtime, MeasurementError if not even the anchor runs or if a command stops working.
    """
    commanded = bool(request.settings.commands)
    if commanded:  # each visit starts the command once, so memory placement does not matter
        effort = replace(effort, block_s=0.0, rounds=1, processes_least=3, processes_most=3, together=9)
        closely = frozenset()
    own = {**question, "protocol": [effort.rounds, effort.block_s, effort.processes_least]}

    def measure(again: MeasureRequest) -> tuple[dict[str, Timed], Clock]:
        steps = Steps("networks", watch)
        patient = replace(again, effort=replace(effort, timeout_s=again.effort.timeout_s))
        with open_bench(
            patient,
            kind="networks",
            subject=subject,
            question=own,
            goes_on=True,
            watch=steps,
            tell=tell,
            loads=UNREAD if commanded else "onnx",
        ) as bench:
            if written:
                bench.runner.note_files(*written)
            placed, times = _placed(bench, files)
            gauge = None if commanded else gauge_of(bench, [_ANCHOR])
            witness = [*_placed(bench, {"": worked})[0].values()] if commanded and worked else []
            copies: dict[str, list[Timed]] = {}
            todo = _shuffled(placed, closely, again.seed)
            steps.expect(len(todo))
            for part in parts_of(todo, effort.together - 1):
                if gauge is None:
                    timings = _commanded(bench, part, witness)
                else:
                    timings = measure_well(bench, gauge, "networks", part, half_width=effort.half_width)
                for name, took in timings.items():
                    copies.setdefault(name.partition(_COPY)[0], []).append(took)
                steps.step(len(part))
            bench.runner.finish({"reason": f"{len(files)} networks of {subject}"})
            times |= {key: together(copies[network.key]) for key, network in placed.items()}
            return {key: times[key] for key in files}, gauge.clock if gauge else "wall"

    return patiently(measure, request, tell)


def _placed(bench: Bench, files: Mapping[str, Path]) -> tuple[dict[str, Placed], dict[str, Timed]]:
    """The files placed on the device, and the failures of files that cannot be read or copied there, both by key."""
    seen: dict[str, Placed] = {}

    def place(key: str) -> Placed:
        # A file that the runtime loads unchanged need not be read in full.
        if bench.request.settings.commands:
            model = load_unread(files[key])
        else:
            model = (load_outline(files[key]) if "onnx" in bench.runtime.formats else None) or load(files[key])
        name = f"network-{model.graph.digest[:16]}"
        if name not in seen:
            seen[name] = bench.put(name, model, files[key])
        return seen[name]

    placed, failed = place_each(files, place)
    return placed, {key: Timed(reason=error.message, at_s=time.time(), samples={}) for key, error in failed.items()}


def _shuffled(placed: Mapping[str, Placed], closely: Set[str], seed: int) -> list[Placed]:
    """Each network once, or several times if in `closely`, in a random order that is the same in a repeated call."""
    copies: dict[str, Placed] = {}
    for key, network in placed.items():
        for copy in range(_COPIES if key in closely else 1):
            name = f"{network.key}{_COPY}{copy}" if copy else network.key
            copies[name] = replace(network, key=name, candidate=replace(network.candidate, key=name))
    ordered = [copies[name] for name in sorted(copies)]
    random.Random(seed).shuffle(ordered)  # noqa: S311  # an order, not a secret
    return ordered


def together(copies: Sequence[Timed]) -> Timed:
    """The time of a network from its copies: their geometric mean, with an interval that assumes independence."""
    failed = next((copy for copy in copies if copy.reason), None)
    if failed is not None or len(copies) == 1:
        return failed or copies[0]
    call_s = math.exp(sum(math.log(copy.call_s) for copy in copies) / len(copies))
    half = math.sqrt(sum(copy.half_width**2 for copy in copies)) / len(copies)
    precise = half <= math.log(KNOWN_WITHIN)
    return Timed(
        at_s=max(copy.at_s for copy in copies),
        call_s=call_s,
        low_s=call_s * math.exp(-half) if precise else None,
        high_s=call_s * math.exp(half) if precise else None,
        drift=math.exp(sum(math.log(copy.drift) for copy in copies) / len(copies)),
        processes=min(copy.processes for copy in copies),
        samples={f"{number}/{block}": v for number, copy in enumerate(copies) for block, v in copy.samples.items()},
    )


def _commanded(bench: Bench, placed: Sequence[Placed], witness: Sequence[Placed]) -> dict[str, Timed]:
    """The times of networks, measured by the user's command. MeasurementError if the command stops working."""
    # Each network gets its own process of the agent, so that a failure can be attributed to a network.
    alone = {network.key: replace(network.candidate, process=None) for network in (*witness, *placed)}
    measured = bench.runner.measure("networks", list(alone.values()), bench.request.effort)
    for network in placed:
        if not measured[network.key].ok and not measured[network.key].own:
            raise MeasurementError(
                f"{bench.runtime.name} cannot measure any network now: {describe(measured[network.key].failure)}",
                hint="Correct the cause, then repeat the command: finished measurements are kept.",
            )
    return {network.key: timed(measured[network.key], "wall") for network in placed}

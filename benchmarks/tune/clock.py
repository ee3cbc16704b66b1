"""Whether times of compiled networks are those of an own loop, also on a busy machine. No reference data needed.

Three small networks are tuned for this machine (`wide`) and for plain code (`narrow`), one thread each. Then

- `prove`: beside four busy processes, `overlay analyze --prove` of one of them, run after run, on both devices. Its
  ratio (the choice over the device's own best) is compared with that of an own loop: the same two networks by turns, by
  CPU time, in processes before and after, of which the geometric mean is the truth.
- `headline`: what `gnomon tune` and `gnomon exec` tell of each network's time, compared with the own loop's, whose
  processes run before and after the command. Two busy processes run beside all of it: else whoever comes and goes on
  the other half of a core makes CPU time a third longer or shorter from one second to the next.

Figures asked for: the own loop's ratio inside the 95 % interval in 17 of 20 proofs, whose half-width is at most 10
points unless the report says "undecided"; the headlines within 2 % of the own loop in 10 of 10.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import parser, publish
from benchmarks.tune.speed import Drawn, network
from gnomon.api.tune import TuneOptions, execute, overlay_analyze, overlay_collect, tune
from gnomon.core.overlay.trials import traces_of
from gnomon.jobs.overlay.document import AnalyzeDocument
from gnomon.jobs.overlay.job import Analysis, analyze
from gnomon.jobs.overlay.report import measured_of, network_sentence
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.tvm import Workshop

LOOP = """
import json, sys, time
sys.modules["torch"] = None
import numpy as np
import tvm
from tvm import relax
inputs, *paths = sys.argv[1:]
with np.load(inputs) as given:
    arrays = [given[f"in_{k}"] for k in range(len(json.loads(str(given["names"]))))]
calls = []
for path in paths:
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    calls.append((machine["main"], [tvm.runtime.tensor(array) for array in arrays]))
    for _ in range(5):
        calls[-1][0](*calls[-1][1])
samples = [[] for _ in calls]
for _ in range(100):
    for (call, tensors), times_s in zip(calls, samples):
        begun_ns = time.process_time_ns()
        for _ in range(5):
            call(*tensors)
        times_s.append((time.process_time_ns() - begun_ns) / 5e9)
print(json.dumps([float(np.median(times_s)) for times_s in samples]))
"""
PROCESSES = 4


def own_loop(inputs: Path, *libraries: Path) -> list[list[float]]:
    """Seconds of a call of each library by CPU time, a row a fresh process."""
    command = [sys.executable, "-c", LOOP, str(inputs), *map(str, libraries)]
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    done = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(PROCESSES)
    ]
    return [json.loads(one.stdout) for one in done]


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _spin(parent: int) -> None:
    while os.getppid() == parent:
        pass


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """So many busy processes, until the end of the block."""
    busy = [
        multiprocessing.get_context("spawn").Process(target=_spin, args=(os.getpid(),), daemon=True)
        for _ in range(count)
    ]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.join()


def mixer(path: Path) -> None:
    """Four blocks of products over tokens and over channels."""
    net = Drawn(2)
    x = "x"
    for _ in range(4):
        y = net.node(
            "Transpose",
            net.node("MatMul", net.node("Transpose", x, perm=[0, 2, 1]), net.weight(64, 64)),
            perm=[0, 2, 1],
        )
        x = net.node("Add", x, net.node("Relu", y))
        x = net.node(
            "Add",
            x,
            net.node("MatMul", net.node("Relu", net.node("MatMul", x, net.weight(128, 256))), net.weight(256, 128)),
        )
    net.save(path, (1, 64, 128), x)


def separable(path: Path) -> None:
    """Depthwise and pointwise convolutions by turns."""
    net = Drawn(3)
    x, channels = net.conv("x", (3, 16, 3), stride=2), 16
    for more, stride in ((32, 1), (64, 2), (64, 1), (96, 2), (96, 1)):
        x = net.conv(net.conv(x, (channels, channels, 3), stride=stride, group=channels), (channels, more, 1))
        channels = more
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.save(path, (1, 3, 96, 96), net.node("Gemm", x, net.weight(96, 10), net.weight(10)))


NETWORKS = {"convolutions": network, "mixer": mixer, "separable": separable}


def libraries(analysis: Analysis, model: Path, folder: Path) -> dict[str, tuple[Path, Path]]:
    """The network compiled for each device under the choice, and under the device's own best."""
    made = {}
    with Workshop() as shop:
        read = Network(shop, Source(path=model))
        for device in {one.device.key: one.device for one in analysis.records}.values():
            read.layers(device.target)
            paths = []
            for name, chosen in (("overlay", analysis.chosen()), ("own", analysis.own(device.key))):
                traces: dict[Any, Any] = {}
                for one in analysis.records:
                    traces |= traces_of(one.trials, set(chosen.items()))
                choice = [
                    (layer, traces.get((layer.layer, chosen.get(layer.layer, "")))) for layer in analysis.described
                ]
                paths.append(folder / f"{device.key}-{name}.so")
                read.compile(device, choice, paths[-1], inputs=folder / "in.npz")
            made[device.key] = (paths[0], paths[1])
    return made


def proved(document: AnalyzeDocument, truth: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row for each device: the proof's interval beside the own loop's ratio."""
    told = network_sentence(measured_of(document))
    rows: list[dict[str, Any]] = []
    for row in document.network:
        ratio = row.to_own
        if row.choice == "overlay" and ratio is not None:
            low, high = ratio.low or 0.0, ratio.high or math.inf
            half_points = 50 * (high - low)
            rows.append(
                {
                    "device": row.device,
                    "clock": row.time.clock if row.time else None,
                    "ratio": [ratio.ratio, low, high],
                    "own_loop": truth[row.device],
                    "inside": low <= truth[row.device] <= high,
                    "half_points": half_points,
                    "narrow_or_undecided": half_points <= 10 or "undecided" in told,
                }
            )
    return rows


def prove(model: Path, out: Path, runs: int) -> list[dict[str, Any]]:
    """Proofs beside a load, each with own loops before and after."""
    logs = [tune(model, trials=24, device=key, out=out, compare=False).records for key in ("wide", "narrow")]
    collected = [
        one for key in ("wide", "narrow") for one in overlay_collect(logs, device=key, best=2, out=out).collected
    ]
    files = [*map(Path, logs), *(Path(one.records) for one in collected)]
    built = libraries(analyze(files), model, out)
    rows: list[dict[str, Any]] = []
    with load(4):
        for _ in range(runs):
            found = {key: own_loop(out / "in.npz", *paths) for key, paths in built.items()}
            document = overlay_analyze(files, prove=True, out=out)
            for key, paths in built.items():
                found[key] += own_loop(out / "in.npz", *paths)
            truth = {key: mean([overlay / own for overlay, own in pairs]) for key, pairs in found.items()}
            rows += proved(document, truth)
            print(json.dumps(rows[-2:]), file=sys.stderr)
    return rows


def headlines(model: Path, out: Path, runs: int) -> list[dict[str, Any]]:
    """What `tune` and `exec` tell of a network's time, beside the own loop's."""
    rows: list[dict[str, Any]] = []
    if not runs:
        return rows
    options: TuneOptions = {"device": "wide", "out": out}
    library = Path(str(tune(model, trials=24, compare=False, **options).library))
    inputs = library.with_suffix(".in.npz")
    for number in range(runs):
        with load(2):
            before = own_loop(inputs, library)
            if number:
                told, part = "exec", execute(library, layers=False, **options).network
            else:
                told, part = "tune", tune(model, trials=24, **options).network.tuned
            own_s = mean([times[0] for times in (*before, *own_loop(inputs, library))])
        if part is not None:
            rows.append({"command": told, "clock": part.clock, "s": part.median_s, "own_s": own_s})
            rows[-1]["apart"] = part.median_s / own_s - 1
            print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--proofs", type=int, default=10, help="runs of the proof, each on two devices")
    options.add_argument(
        "--headlines", type=int, default=4, help="commands whose headline is compared, of each network"
    )
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        os.environ["GNOMON_HOME"] = text  # a file of devices of its own
        plainest = "x86-64" if platform.machine() == "x86_64" else "generic"
        gnomon.add_device("wide", "local", check=False, threads=1)
        gnomon.add_device("narrow", "local", check=False, threads=1, target=plainest)
        told = []
        for name, draw in NETWORKS.items():
            draw(folder / f"{name}.onnx")
            told += [
                {"network": name, **row} for row in headlines(folder / f"{name}.onnx", folder / name, given.headlines)
            ]
        proofs = prove(folder / "separable.onnx", folder / "separable", given.proofs) if given.proofs else []
    document = {
        "benchmark": "tune_clock",
        "headlines": {"within_2_percent": sum(abs(row["apart"]) <= 0.02 for row in told), "of": len(told)},
        "proofs": {
            "inside": sum(row["inside"] for row in proofs),
            "narrow_or_undecided": sum(row["narrow_or_undecided"] for row in proofs),
            "of": len(proofs),
        },
        "rows": {"headlines": told, "proofs": proofs},
    }
    publish(document, given)


if __name__ == "__main__":
    main()

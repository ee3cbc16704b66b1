"""What a few trials achieve: a network of about 40 layers with 64 trials, breadth first and in plain rounds of 8.

Three networks that are drawn here (inverted residuals, residual blocks, and an audio network with long and high
kernels) are tuned from scratch, in both ways alternately, with the same trials and seed. Plain rounds consist of 8
candidates of the search's own for a layer, with the layers in the order of their untuned time (`--no-start
--first-round 8`). The document has the ratio of the two compiled networks, interleaved in fresh processes of one run,
and each network's time relative to ONNX Runtime's, as measured by `gnomon profile`. With `--proper`, each network is
also tuned with 16 trials for each layer that matters, and measured in the same way; with `--seeds 0`, only that is
done. Targets: at most half of the time that rounds of 8 reach (`breadth_over_rounds`, for each network); and with 16
trials per layer at most 1.3 times ONNX Runtime's time (geometric mean). No reference data is needed.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import parser, publish, spread
from benchmarks.tune.speed import Drawn
from gnomon.api.place import profile
from gnomon.api.tune import tune
from gnomon.runtimes.tvm import RECORDS

PROPER = 16
PLAIN = {"first_round": 8, "start": False}


def inverted(path: Path) -> None:
    """Inverted residuals: a widening 1x1, a depthwise 3x3 and a narrowing 1x1 convolution; a sum if shapes allow."""
    net = Drawn(1)
    x, width = net.conv("x", (3, 16, 3), stride=2), 16
    for k, (after, stride) in enumerate(
        [(16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (48, 1), (64, 2), (64, 1), (96, 1)]
    ):
        wide = width * (3 + k % 3)
        y = net.conv(x, (width, wide, 1))
        y = net.conv(y, (wide, wide, 3), stride=stride, group=wide)
        y = net.conv(y, (wide, after, 1))
        x, width = (net.node("Add", x, y) if (after, stride) == (width, 1) else y), after
    _classify(net, path, x, width, (1, 3, 96, 96))


def residual(path: Path) -> None:
    """Residual blocks of two 3x3 convolutions, with 1x1 shortcuts where shapes change; each block is a little wider."""
    net = Drawn(2)
    x, width = net.conv("x", (3, 12, 3)), 12
    for k in range(12):
        after, stride = width + 4, 2 if k % 4 == 3 else 1
        y = net.conv(net.conv(x, (width, after, 3), stride=stride), (after, after, 3))
        x, width = net.node("Add", net.conv(x, (width, after, 1), stride=stride), y), after
    _classify(net, path, x, width, (1, 3, 40, 40))


def audio(path: Path) -> None:
    """An audio network: each block has a kernel along frequency, one along time, and a 1x1 kernel; with pooling in
    between.
    """
    net = Drawn(3)
    x, width = net.conv("x", (1, 16, 3)), 16
    for k in range(12):
        after = width + 8
        x = net.node("Conv", x, net.weight(width, width, 1, 3), net.weight(width), pads=[0, 1, 0, 1])
        x = net.node("LeakyRelu", x, alpha=0.2)
        x = net.node("Conv", x, net.weight(after, width, 3, 1), net.weight(after), pads=[1, 0, 1, 0])
        x, width = net.conv(net.node("Relu", x), (after, after, 1)), after
        if k % 4 == 3:
            x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    _classify(net, path, x, width, (1, 1, 64, 32))


def _classify(net: Drawn, path: Path, x: str, width: int, shape: tuple[int, ...]) -> None:
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.save(path, shape, net.node("Softmax", net.node("Gemm", x, net.weight(width, 10), net.weight(10))))


NETWORKS: dict[str, Callable[[Path], None]] = {"inverted": inverted, "residual": residual, "audio": audio}


def measure(path: Path, trials: int, seeds: int, folder: Path, proper: bool) -> dict[str, Any]:
    """Both ways of tuning one network, alternately."""
    found: list[dict[str, float]] = []
    layers = relevant = 0
    for seed in range(seeds):
        records = {}
        for way, search in (("rounds", PLAIN), ("breadth", {})):
            records[way], done = tuned(path, trials, folder / f"{path.stem}-{way}-{seed}", seed, search)
            layers, relevant = len(done["layers"]), done["trials"]["relevant"]
        found.append(beside(path, records))
    told: dict[str, Any] = {}
    if found:
        told = {
            "layers": layers,
            "relevant": relevant,
            "trials": trials,
            "breadth_over_rounds": spread([one["breadth"] / one["rounds"] for one in found]),
            "over_onnxruntime": {way: spread([one[way] for one in found]) for way in ("rounds", "breadth")},
        }
    if proper:
        if not found:
            relevant = tuned(path, 1, folder / f"{path.stem}-looked", 0, {})[1]["trials"]["relevant"]
        file, done = tuned(path, PROPER * relevant, folder / f"{path.stem}-proper", 0, {})
        told["proper"] = {
            "trials": PROPER * relevant,
            "seconds": done["seconds"],
            "over_onnxruntime": beside(path, {"proper": file})["proper"],
        }
    return told


def tuned(path: Path, trials: int, out: Path, seed: int, search: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The records of a network, with one thread, and the document."""
    done = tune(path, trials=trials, out=out, seed=seed, threads=1, **search, compare=False)
    # The comparison names the records by their files' names.
    return Path(done.records).rename(out / f"{out.name}.json"), done.document()


def beside(path: Path, records: dict[str, Path]) -> dict[str, float]:
    """The network's time with each of these records over ONNX Runtime's, both with one thread, all interleaved."""
    environments = tuple({RECORDS: str(file)} for file in records.values())
    found = profile(path, runtimes=("onnxruntime", "tvm"), environments=environments, threads=1)
    times = {column.label: column.level_s for column in found.columns}
    by_file = {
        way: next(time_s for label, time_s in times.items() if f"records={file.stem}#" in label)
        for way, file in records.items()
    }
    return {way: time_s / times["onnxruntime"] for way, time_s in by_file.items()}


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=64, help="trials of each run")
    options.add_argument("--seeds", type=int, default=1, help="runs of each way")
    options.add_argument("--proper", action="store_true", help="16 trials a layer beside ONNX Runtime, too")
    options.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    arguments = options.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as text:
        for name in arguments.networks:
            path = Path(text) / f"{name}.onnx"
            NETWORKS[name](path)
            result[name] = measure(path, arguments.trials, arguments.seeds, Path(text), arguments.proper)
    told: dict[str, Any] = {"benchmark": "tune_breadth", "networks": result}
    if arguments.seeds:
        ratios = [one["breadth_over_rounds"]["median"] for one in result.values()]
        told |= {"worst": max(ratios), "geometric_mean": geometric_mean(ratios)}
    if arguments.proper:
        told["proper_over_onnxruntime"] = geometric_mean([one["proper"]["over_onnxruntime"] for one in result.values()])
    publish(told, arguments)


def geometric_mean(ratios: list[float]) -> float:
    """The geometric mean of ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    main()

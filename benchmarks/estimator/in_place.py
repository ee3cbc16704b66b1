"""The errors of a table's sums: with units priced inside networks, and with the same units priced alone.

A made-up, unpublished space of residual blocks and inverted residuals (625 nets) gets a table in place, and one with
given chains, which measures each unit alone. Drawn nets are measured together with the reference kernel, and each is
predicted from both tables without any fit: by the overhead and the sum of its units. Prints the mean, median and
largest error, the errors that remain if all predictions are scaled by one factor, and the seconds of each build.
Everything uses the public API with its defaults.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import own_record, parser, publish
from gnomon.api.estimator import measure_nets
from gnomon.api.table import build_table
from gnomon.jobs.table.folder import read_table
from gnomon.spaces import BlockSpace, Choice, draw, fuse, rules
from gnomon.spaces.unit import Symbol

Block = Callable[[Symbol], Symbol]


def _plain(channels: int, kernel: int, stride: int) -> Block:
    return lambda x: _pooled(x, stride).conv(channels, kernel).batch_norm().relu()


def _residual(channels: int, stride: int) -> Block:
    def block(x: Symbol) -> Symbol:
        kept = _pooled(x, stride)
        made = kept.conv(channels, 3).batch_norm().relu().conv(channels, 3).batch_norm()
        return (made + (kept if kept.shape == made.shape else kept.conv(channels, 1).batch_norm())).relu()

    return block


def _inverted(channels: int, kernel: int, expansion: int, stride: int) -> Block:
    def block(x: Symbol) -> Symbol:
        made = x.conv(x.channels * expansion, 1).batch_norm().hard_swish()
        made = made.depthwise(kernel, stride=stride).batch_norm().hard_swish().conv(channels, 1).batch_norm()
        return made + x if made.shape == x.shape else made

    return block


def _pooled(x: Symbol, stride: int) -> Symbol:
    return x if stride == 1 else x.max_pool(2, stride=2)


def space() -> BlockSpace:
    """The space: four slots with five blocks each."""
    slots = [
        Choice(
            name,
            {
                "k3": _plain(channels, 3, stride),
                "k5": _plain(channels, 5, stride),
                "residual": _residual(channels, stride),
                "inverted3": _inverted(channels, 3, 4, stride),
                "inverted5": _inverted(channels, 5, 3, stride),
            },
        )
        for name, channels, stride in (("a", 32, 1), ("b", 48, 2), ("c", 64, 1), ("d", 96, 2))
    ]
    stem: Block = lambda x: x.conv(24, 3, stride=2).batch_norm().hard_swish()  # noqa: E731
    head: Block = lambda x: x.global_average_pool().linear(100)  # noqa: E731
    return BlockSpace(name="blocks", inputs=((1, 3, 96, 96),), parts=(stem, *slots, head))


def figures(folder: Path, record: Path, runtime: str, count: int, seed: int) -> dict[str, Any]:
    """Both tables, the nets, and the errors of the sums."""
    how: dict[str, Any] = {"runtimes": (runtime,), "record": record, "seed": seed}
    own, seconds = space(), {}
    start = time.perf_counter()
    build_table(own, out=folder / "in place", **how)
    seconds["in place"] = round(time.perf_counter() - start, 1)
    chains = read_table(folder / "in place").manifest.rules
    start = time.perf_counter()
    build_table(own, out=folder / "alone", fuse=chains, **how)
    seconds["alone"] = round(time.perf_counter() - start, 1)
    nets = draw(own.tables(rules(chains)), count, seed=seed + 1)
    with (folder / "nets.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[slot.name for slot in own.space.slots], *map(own.space.names, nets.tolist())])
    out = folder / "measured.csv"
    measure_nets(folder / "nets.csv", table=folder / "in place", space=f"{__file__}:space", out=out, **how)
    with out.open(newline="") as file:
        took_s = np.array([float(row["latency_s"]) for row in csv.DictReader(file)])
    return {
        "runtime": runtime,
        "nets": count,
        "fused": len(chains),
        **{
            name: {"seconds": seconds[name], **errors(folder / name, own, nets, took_s)}
            for name in ("in place", "alone")
        },
    }


def errors(path: Path, own: BlockSpace, nets: Any, took_s: Any) -> dict[str, Any]:
    """The errors of a table's sums against the times of the nets."""
    table = read_table(path)
    times, chains = table.times_s, rules(table.manifest.rules)
    sums = (fuse(own.net(net), chains).counts().items() for net in nets.tolist())
    ratio = np.array([table.manifest.overhead_s + sum(times[u] * n for u, n in one) for one in sums]) / took_s
    off, scaled = np.abs(ratio - 1), np.abs(ratio / np.median(ratio) - 1)
    return {
        "units": len(table.rows),
        "units in networks": sum(row.nets > 0 for row in table.rows),
        "mean_error": float(off.mean()),
        "median_error": float(np.median(off)),
        "largest_error": float(off.max()),
        "median_ratio": float(np.median(ratio)),
        "mean_error_scaled": float(scaled.mean()),
    }


def main() -> None:
    """Measure with each runtime in turn."""
    options = parser(__doc__)
    options.add_argument("--runtimes", nargs="+", default=["onnxruntime", "openvino"])
    options.add_argument("--nets", type=int, default=14)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    rows = []
    for runtime in given.runtimes:
        with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder, own_record() as record:
            rows.append(figures(Path(folder), record, runtime, given.nets, given.seed))
    publish({"benchmark": "prices in place", "rows": rows}, given)


if __name__ == "__main__":
    main()

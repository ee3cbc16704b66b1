"""Whether the times of operators add up to the whole, on ExecuTorch and PyTorch. Prints one JSON document.

A MobileNetV2-like network is exported by PyTorch, and lowered for ExecuTorch twice: with all operators on its portable
kernels, and with XNNPACK for all that it takes. Each file is profiled as `gnomon profile` does it. For each profiled
call, the times of its kernels are added up and divided by the call's time (`call`: the median of a process; a busy
machine does not change it, because it slows both). For comparison, there is the sum of the kernels' lower thirds,
divided by the lower third of the calls in processes without the profiler (`whole`), which a busy machine changes a lot.
Target: sums within 10 %.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import own_record, parser, publish, spread
from gnomon.core.sample import Run
from gnomon.core.stats import median, quantile
from gnomon.jobs.place.job import profile
from gnomon.measure.effort import Effort
from gnomon.session.kernels import CALLS_QUANTILE
from gnomon.session.request import ModelRequest
from gnomon.store.base import RunQuery
from gnomon.store.sqlite import SqliteStore


def written(folder: Path) -> list[Path]:
    """The network as .pt2, and lowered for portable kernels and for XNNPACK."""
    import torch
    from torch import nn

    from gnomon.agent.drivers.executorch.lower import lower

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        wide = 4 * inputs
        return nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), block(16, 24, 2), block(24, 32, 2), block(32, 64, 2), block(64, 96, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 1000), nn.Softmax(-1),
    ).eval()  # fmt: skip
    program = torch.export.export(network, (torch.randn(1, 3, 128, 128),))
    paths = [folder / name for name in ("net.pt2", "portable.pte", "xnnpack.pte")]
    torch.export.save(program, paths[0])
    for path, operators in zip(paths[1:], ((), None), strict=True):
        path.write_bytes(lower(str(paths[0]), operators).buffer)
    return paths


def covered(run: Run) -> float:
    """The share of a profiled call that its kernels took: the median over the calls."""
    taken = run.samples.wall_ns if run.samples is not None else ()
    sums = (sum(row.wall_ns[k] for row in run.operators if k < len(row.wall_ns)) for k in range(len(taken)))
    return median([total / whole for total, whole in zip(sums, taken, strict=True)])


def _lower(times_ns: Sequence[int]) -> float:
    return quantile(times_ns, CALLS_QUANTILE) if times_ns else 0.0


def judged(path: Path, runtime: str) -> list[dict[str, Any]]:
    """A row for each configuration: its sums divided by its wholes."""
    with own_record() as record:
        found = profile(ModelRequest(model=path, runtimes=(runtime,), record=record, effort=Effort(), fresh=True))
        with SqliteStore.open(record) as store:
            runs = list(store.query(RunQuery(campaign=found.campaign)))
    rows = []
    for column in found.columns:
        traced = [run for run in runs if run.operators and run.samples is not None]
        plain = [run.samples.wall_s for run in runs if not run.operators and run.samples is not None]
        calls = quantile([taken_s for taken in plain for taken_s in taken], CALLS_QUANTILE)
        rows.append(
            {
                "configuration": column.label,
                "kernels": len(column.kernels),
                "whole_s": column.wall.median_s,
                "call": spread([covered(run) for run in traced]),
                "whole": spread([sum(_lower(row.wall_ns) for row in run.operators) * 1e-9 / calls for run in traced]),
            }
        )
    return rows


def main(arguments: argparse.Namespace) -> None:
    """Export, profile, and print."""
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
        paths = [Path(name) for name in arguments.models] or written(Path(folder))
        rows = [
            {"model": path.name, **row}
            for path in paths
            for row in judged(path, "pytorch" if path.suffix == ".pt2" else "executorch")
        ]
    publish({"operators": rows, "within_10_percent": all(abs(r["call"]["median"] - 1) <= 0.1 for r in rows)}, arguments)


if __name__ == "__main__":
    main(parser(__doc__).parse_args())

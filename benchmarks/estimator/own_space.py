"""A researcher's own PyTorch spaces: predictions for their networks, compared with a separate timing loop.

Three made-up spaces of torch modules (`gnomon.spaces.from_torch`) each get a table, 18 suggested networks that are
measured, and estimators from the table alone, from 10 and from 18 of these networks. Then drawn networks are built in
PyTorch, exported to ONNX, and timed on ONNX Runtime by a plain loop, before and after (CPU time of one thread, the
median of six visits). They are predicted as networks of the space, and as unknown files (`gnomon.predict_model` with
the same table). Errors are reported as they are and after scaling by one factor, because the machine's speed may change
between table and loop. On a machine whose speed changes all the time, the loop's own times before and after differ:
"steady" has the errors of only those networks whose two medians differ by less than 10 %.

Targets: mean errors of 4 and 3 % with 10 and 18 networks, and of 6 % with the table alone; files within 3 % of the
space's networks; 90 % intervals that a binomial test does not refute; and 90 s for 40 units with networks and fit.
"""

from __future__ import annotations

import operator
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from benchmarks.common import own_record, parser, publish
from gnomon.api.estimator import fit_estimator, load_estimator, measure_nets, predict_model, suggest_nets
from gnomon.api.table import build_table
from gnomon.estimate.columns import Unknown
from gnomon.jobs.table.folder import read_table
from gnomon.spaces import BlockSpace, draw, from_torch

VISITS, VISIT_S = 3, 0.15
_STEADY = 0.1
SUGGESTED, FEW = 18, 10


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Sequential(_conv(channels, channels, 3), nn.ReLU(), _conv(channels, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        """The sum, followed by a rectifier."""
        return torch.relu(self.one(x) + x)


class Inverted(nn.Module):  # type: ignore[misc]
    """An expansion, a depthwise convolution and a projection; with `gate`, channels are weighted."""

    def __init__(self, channels: int, kernel: int, expansion: int, *, gate: bool = False) -> None:
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Sequential(_conv(channels, wide, 1), nn.Hardswish())
        self.depthwise = nn.Sequential(_conv(wide, wide, kernel, groups=wide), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.Linear(wide, wide // 4), nn.ReLU(), nn.Linear(wide // 4, wide), nn.Sigmoid())
        self.project, self.gate = _conv(wide, channels, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        """The sum with the input."""
        made = self.depthwise(self.expand(x))
        if self.gate:
            made = made * self.squeeze(made.mean((2, 3)))[:, :, None, None]
        return self.project(made) + x


class Mixed(nn.Module):  # type: ignore[misc]
    """A convolution whose two halves have different kernels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.near, self.far = _conv(channels, channels // 2, 3), _conv(channels, channels // 2, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Both halves."""
        return torch.relu(torch.cat([self.near(x), self.far(x)], 1))


class Head(nn.Module):  # type: ignore[misc]
    """The mean of each channel, then the classes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.classes = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The classes."""
        return self.classes(x.mean((2, 3)))


def _conv(read: int, made: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(read, made, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(made))


def _down(made: int) -> Any:
    return lambda read: nn.Sequential(_conv(read, made, 3, stride=2), nn.ReLU())


_PLAIN: dict[str, Any] = {
    "k3": lambda c: nn.Sequential(_conv(c, c, 3), nn.ReLU()),
    "k5": lambda c: nn.Sequential(_conv(c, c, 5), nn.ReLU()),
    "residual": Residual,
    "mixed": Mixed,
}
_MOBILE: dict[str, Any] = {
    "k3e3": lambda c: Inverted(c, 3, 3),
    "k5e3": lambda c: Inverted(c, 5, 3),
    "k3e6": lambda c: Inverted(c, 3, 6),
    "gated": lambda c: Inverted(c, 3, 4, gate=True),
}
_BOTH = {"residual": _PLAIN["residual"], "k5": _PLAIN["k5"], "k3e3": _MOBILE["k3e3"], "gated": _MOBILE["gated"]}
SPACES: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "plain": (_PLAIN, (24, 40, 64), 64),
    "mobile": (_MOBILE, (16, 32, 56), 112),
    "both": (_BOTH, (16, 32, 48), 80),
}
"""The choices, the channels of the slots, and the size of images."""


def space(name: str) -> BlockSpace:
    """A space with a choice in each slot, after which the image gets smaller."""
    choices, widths, size = SPACES[name]
    slots: dict[str, dict[str, Any]] = {}
    for number in range(len(widths)):
        follow = _down(widths[number + 1]) if number + 1 < len(widths) else None
        slots[f"slot{number}"] = {key: _behind(made, follow) for key, made in choices.items()}
    return from_torch(slots, stem=_down(widths[0]), head=Head, input=(1, 3, size, size), name=name)


def _behind(made: Any, follow: Any) -> Any:
    return made if follow is None else lambda c: nn.Sequential(made(c), follow(c))


def network(name: str, names: Sequence[str]) -> nn.Module:
    """The same network in PyTorch alone."""
    choices, widths, _ = SPACES[name]
    parts: list[nn.Module] = [_down(widths[0])(3)]
    for number, (width, choice) in enumerate(zip(widths, names, strict=True)):
        parts.append(choices[choice](width))
        parts += [_down(widths[number + 1])(width)] if number + 1 < len(widths) else []
    return nn.Sequential(*parts, Head(widths[-1])).eval()


def export(name: str, nets: Sequence[Sequence[str]], folder: Path) -> list[Path]:
    """Export the networks with PyTorch's own exporter to ONNX files."""
    size, files = SPACES[name][2], []
    for number, names in enumerate(nets):
        files.append(folder / f"{name}-{number}.onnx")
        torch.onnx.export(network(name, names), (torch.randn(1, 3, size, size),), files[-1], dynamo=False)
    return files


def loop(files: list[Path], calls: list[list[float]]) -> None:
    """Append the CPU seconds per call of each file, visited in turn."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for _ in range(VISITS):
        for file, seen in zip(files, calls, strict=True):
            session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            one = session.get_inputs()[0]
            feed = {one.name: np.random.default_rng(0).standard_normal(one.shape).astype(np.float32)}
            for _ in range(5):
                session.run(None, feed)
            end = time.perf_counter() + VISIT_S
            while time.perf_counter() < end:
                before = time.process_time()
                session.run(None, feed)
                seen.append(time.process_time() - before)


def figures(name: str, folder: Path, record: Path, count: int, seed: int) -> dict[str, Any]:
    """Take the user's steps; return how far each prediction is from the loop."""
    how: dict[str, Any] = {"runtimes": ("onnxruntime",), "record": record}
    own, table, seconds = space(name), folder / f"{name}.table", {}

    def step(what: str, done: Any) -> None:
        start = time.perf_counter()
        done()
        seconds[what] = round(time.perf_counter() - start, 1)

    nets = draw(own.tables(), count, seed=seed + 1)
    files = export(name, [own.space.names(net) for net in nets.tolist()], folder)
    early: list[list[float]] = [[] for _ in files]
    loop(files, early)
    step("table", lambda: build_table(own, out=table, seed=seed, **how))
    asked, known = folder / f"{name}.csv", folder / f"{name}-measured.csv"
    suggest_nets(table=table, count=SUGGESTED, out=asked, seed=seed)
    step("networks", lambda: measure_nets(asked, table=table, out=known, **how))
    few = folder / f"{name}-few.csv"
    few.write_text("".join(known.read_text().splitlines(keepends=True)[: 1 + FEW]))
    ways = {"table alone": None, f"{FEW} networks": few, f"{SUGGESTED} networks": known}
    read = read_table(table)
    late: list[list[float]] = [[] for _ in files]
    loop(files, late)
    took_s = np.array([np.median(seen) for seen in map(operator.add, early, late)])
    drift = np.array([np.median(first) / np.median(last) for first, last in zip(early, late, strict=True)])
    steady = np.abs(drift - 1) < _STEADY
    told: dict[str, Any] = {"units": len(read.rows), "seconds": seconds}
    told["loop before against after"] = {
        "mean_difference": float(np.abs(drift - 1).mean()),
        "steady": int(steady.sum()),
    }
    for way, samples in ways.items():
        out = folder / f"{name}-{len(told)}.json"
        start = time.perf_counter()
        fit_estimator(table=table, samples=samples, out=out)
        seconds["fit"] = round(time.perf_counter() - start, 1)
        predicted = load_estimator(out).predict(nets, unknown=Unknown.WIDEN)
        told[way] = _scores(predicted.mean_s, predicted.low_s, predicted.high_s, took_s, steady)
    ones = [predict_model(file, tables=[table]) for file in files]
    ends = ([getattr(one, f"{end}_s") for one in ones] for end in ("mean", "low", "high"))
    mean_s, low_s, high_s = map(np.array, ends)
    told["files"] = _scores(mean_s, low_s, high_s, took_s, steady)
    return told


def _scores(mean_s: Any, low_s: Any, high_s: Any, took_s: Any, steady: Any) -> dict[str, float]:
    ratio, within = mean_s / took_s, (low_s <= took_s) & (took_s <= high_s)
    off = np.abs(ratio - 1)
    return {
        "steady_mean_error": float(off[steady].mean()) if steady.any() else float("nan"),
        "steady_within_interval": int(within[steady].sum()),
        "mean_error": float(off.mean()),
        "mean_error_scaled": float(np.abs(ratio / np.median(ratio) - 1).mean()),
        "median_error": float(np.median(off)),
        "ratio": float(np.median(ratio)),
        "within_interval": int(within.sum()),
        "networks": len(took_s),
        "half_width": float(np.median((high_s - low_s) / 2 / mean_s)),
    }


def main() -> None:
    """Measure each space in turn."""
    options = parser(__doc__)
    options.add_argument("--spaces", nargs="+", default=list(SPACES), choices=list(SPACES))
    options.add_argument("--nets", type=int, default=64)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    rows = {}
    for name in given.spaces:
        with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder, own_record() as record:
            rows[name] = figures(name, Path(folder), record, given.nets, given.seed)
            print(name, rows[name], flush=True)
    publish({"benchmark": "own spaces of PyTorch modules", "spaces": rows}, given)


if __name__ == "__main__":
    main()

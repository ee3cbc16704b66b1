"""Public latency measurements as columns and times: what describes nets of each space, and which devices are real.

Files are of the layout of the reference data: `latency/{nb201,fbnet,ofa}.npz` and `latency/hat/*.csv`. What describes a
net is the same for all devices: how often each unit occurs, how often it is still there once a compiler has dropped
what the output does not need, work in multiply-adds and memory traffic from the published shapes of the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnomon.estimate.columns import Columns, Floats

FBNET_WIDTHS = (16, *[24] * 4, *[32] * 4, *[64] * 4, *[112] * 4, *[184] * 4, 352)
OFA_WIDTHS, OFA_STRIDES, OFA_SQUEEZE = (24, 40, 80, 112, 160), (2, 2, 2, 1, 2), (0, 1, 0, 1, 1)
_DEAD = 0.01  # of the median: times below say that nothing ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Nets of one space: what describes them (nets, columns), and times in seconds by device."""

    space: str
    columns: Columns
    x: Floats
    times_s: dict[str, Floats]
    noise: dict[str, float]

    def source_of(self, device: str) -> str:
        """Whether a device's times look like measurements of whole nets, or were computed from a table or a model."""
        y = self.times_s[device]
        sure = np.concatenate([np.ones((len(y), 1)), self.x], axis=1)
        weight = 1 / np.maximum(y, 0.05 * np.median(y))
        solution = np.linalg.lstsq(sure * weight[:, None], y * weight, rcond=None)[0]
        left = float(np.median(np.abs(y - sure @ solution) * weight))
        r2 = 1 - float(((y - sure @ solution) ** 2).sum() / ((y - y.mean()) ** 2).sum())
        if r2 > 0.9999 and left < 1e-3:
            return "synthetic sum: linear in the units to 4 digits"
        _, inverse, counts = np.unique(self.x.round(9), axis=0, return_inverse=True, return_counts=True)
        if (counts > 1).any():
            repeated = counts[inverse] > 1
            mean = np.bincount(inverse.ravel(), weights=y) / counts
            if np.max(np.abs(y / mean[inverse.ravel()] - 1)[repeated]) < 1e-4:
                return "synthetic: nets of equal counts have equal times"
        return "measured"


def load(folder: Path, space: str) -> Iterator[Data]:
    """The data of a space that the folder has: `nb201`, `fbnet`, `ofa`, or `hat` (one a file)."""
    latency = folder / "latency"
    if space == "hat":
        for path in sorted((latency / "hat").glob("*.csv")):
            yield _hat(path)
    elif (latency / f"{space}.npz").is_file():
        with np.load(latency / f"{space}.npz", allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        yield {"nb201": _nb201, "fbnet": _fbnet, "ofa": _ofa}[space](arrays)


def _times(arrays: dict[str, np.ndarray]) -> dict[str, Floats]:
    found = {}
    for name, row in zip(arrays["devices"], arrays["latency_ms"], strict=True):
        y = row.astype(float) / 1e3
        found[str(name)] = np.maximum(y, _DEAD * 1e-2 * float(np.median(y)))
    return found


def _columns(parts: list[tuple[str, list[str], Floats]], *, sized: bool = False) -> tuple[Columns, Floats]:
    """One kind a part, its names and its columns; `sized` gives each column its own typical size."""
    x = np.concatenate([p[2] for p in parts], axis=1).astype(float)
    scale = np.maximum(x.std(axis=0), 1e-9 * (1 + np.abs(x).max(axis=0))) if sized else None
    names = tuple(f"{kind} {name}" for kind, names, _ in parts for name in names)
    return Columns(names=names, kinds=tuple(kind for kind, names, _ in parts for _ in names), scale=scale), x


def _nb201(arrays: dict[str, np.ndarray]) -> Data:
    """Counts of operations: all of the cell, and those that the output needs and the input reaches."""
    arch, edges, ops = arrays["arch"].astype(int), arrays["edges"].astype(int), [str(o) for o in arrays["ops"]]
    none = ops.index("none")
    reached, needed = np.zeros((len(arch), 4), bool), np.zeros((len(arch), 4), bool)
    reached[:, 0] = needed[:, 3] = True
    for k in np.argsort(edges[:, 1], kind="stable"):
        reached[:, edges[k, 1]] |= (arch[:, k] != none) & reached[:, edges[k, 0]]
    for k in np.argsort(-edges[:, 0], kind="stable"):
        needed[:, edges[k, 0]] |= (arch[:, k] != none) & needed[:, edges[k, 1]]
    alive = reached[:, 3:]  # else the output is a constant, and a compiler drops the whole cell
    kept = needed[:, edges[:, 1]] & alive
    used = [o for o in range(len(ops)) if o != none]
    counts = np.stack([(arch == o).sum(axis=1) for o in used], axis=1)
    left = np.stack([((arch == o) & kept).sum(axis=1) for o in used], axis=1)
    names = [ops[o] for o in used]
    columns, x = _columns([("count", names, counts), ("needed", ["alive", *names], np.hstack([alive, left]))])
    return Data(space="nb201", columns=columns, x=x, times_s=_times(arrays), noise={})


def _fbnet(arrays: dict[str, np.ndarray]) -> Data:
    """Counts of each kind of block over all layers, and of each block of each layer."""
    arch, ops = arrays["arch"].astype(int), [str(o) for o in arrays["op_names"]]
    each = np.stack([arch == o for o in range(len(ops))], axis=2)
    names = [f"{layer}:{o}" for layer in range(arch.shape[1]) for o in ops]
    columns, x = _columns([("block", ops, each.sum(axis=1)), ("layer", names, each.reshape(len(arch), -1))])
    return Data(space="fbnet", columns=columns, x=x, times_s=_times(arrays), noise={})


def _ofa(arrays: dict[str, np.ndarray]) -> Data:
    """Work of the whole net at its resolution: multiply-adds by kind of layer, memory traffic, weights, layers."""
    kernel, expand, depth = (arrays[k].astype(int) for k in ("ks", "e", "d"))
    size = np.ceil(arrays["r"].astype(float) / 2)
    count = len(size)
    work = np.zeros((count, 8))
    work[:, 6], work[:, 7] = size**2, arrays["r"]
    width = 16
    for stage, (out, stride, squeeze) in enumerate(zip(OFA_WIDTHS, OFA_STRIDES, OFA_SQUEEZE, strict=True)):
        for layer in range(4):
            on = depth[:, stage] > layer
            after = np.ceil(size / (stride if layer == 0 else 1))
            wide = width * expand[:, 4 * stage + layer]
            square = kernel[:, 4 * stage + layer] ** 2
            traffic = (width + 2 * wide) * size**2 + (2 * wide + out) * after**2
            one = (
                wide * (width * size**2 + out * after**2), wide * square * after**2, traffic,
                wide * (width + out + square), np.ones(count), squeeze * wide * after**2,
            )  # fmt: skip
            work[:, :6] += np.stack(one, axis=1) * on[:, None]
            size, width = np.where(on, after, size), out
    names = ["pointwise", "depthwise", "traffic", "weights", "layers", "squeezed", "area", "resolution"]
    columns, x = _columns([("work", names, work)], sized=True)
    return Data(space="ofa", columns=columns, x=x, times_s=_times(arrays), noise={})


def _hat(path: Path) -> Data:
    """Totals over the layers of a transformer, alone and times its width, and the averages as they are."""
    with path.open(encoding="utf-8") as file:
        names = file.readline().strip().split(",")
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    of = {name: table[:, i] for i, name in enumerate(names)}
    decoder = [n for n in names if n.startswith("decoder_") and n not in ("decoder_layer_num", "decoder_embed_dim")]
    encoder = [n for n in names if n.startswith("encoder_") and n not in ("encoder_layer_num", "encoder_embed_dim")]
    layers, width = of["decoder_layer_num"], of["decoder_embed_dim"]
    totals = np.stack([layers, *[layers * of[n] for n in decoder]], axis=1)
    inner = np.stack([of["encoder_layer_num"] * of[n] for n in encoder], axis=1)
    front = np.concatenate([of["encoder_embed_dim"][:, None], inner, inner * of["encoder_embed_dim"][:, None]], axis=1)
    alone = np.stack([width, *[of[n] for n in decoder]], axis=1)
    parts = [
        ("total", ["layers", *decoder], totals), ("total by width", ["layers", *decoder], totals * width[:, None]),
        ("encoder", ["width", *encoder, *[f"{n} by width" for n in encoder]], front), ("decoder", ["width", *decoder],
        alone),
    ]  # fmt: skip
    columns, x = _columns(parts, sized=True)
    mean = of["latency_mean_encoder"] + of["latency_mean_decoder"]
    noise = np.hypot(of["latency_std_encoder"], of["latency_std_decoder"]) / mean
    return Data(
        space="hat", columns=columns, x=x, times_s={path.stem: mean / 1e3}, noise={path.stem: float(np.median(noise))}
    )

"""Public latency measurements as nets of gnomon's spaces with their times, and which devices are real.

Files have the layout of the reference data: `latency/{nb201,fbnet,ofa}.npz` and `latency/hat/*.csv`. Nets are
assignments of shipped spaces. HAT's files hold averages over layers, and these numbers describe their nets. All nets
are described, chosen and fitted like a user's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnomon.estimate.columns import Columns, Floats
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator.job import Described, described
from gnomon.spaces.catalogue import fbnet, nasbench201
from gnomon.spaces.catalogue.ofa_mobilenetv3 import assignments_of

_HAT = ("mean_encoder", "mean_decoder", "std_encoder", "std_decoder")
_DEAD = 0.01  # share of the median: shorter times mean that nothing ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The nets of one space: assignments (nets, slots), times in seconds by device, and the space as returned by
    `described`.

    `x` (nets, columns) describes the nets by `columns`.
    """

    space: str
    columns: Columns
    x: Floats
    times_s: dict[str, Floats]
    described: Described
    nets: np.ndarray
    noise: dict[str, float] = field(default_factory=dict)

    def rows(self, device: str, chosen: np.ndarray) -> list[NetRow]:
        """Some nets in the form of a csv of measured nets."""
        times = self.times_s[device][chosen].tolist()
        return [
            NetRow(assignment=tuple(n), latency_s=t) for n, t in zip(self.nets[chosen].tolist(), times, strict=True)
        ]

    def source_of(self, device: str) -> str:
        """Whether a device's times look like measurements of whole nets, or like sums from a table or a model."""
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
    """The data of a space in the folder: `nb201`, `fbnet`, `ofa`, or `hat` (one data set per file)."""
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


def _space(space: str, name: str, nets: np.ndarray, arrays: dict[str, np.ndarray]) -> Data:
    """The nets of a shipped space, each written in a single way, as suggested nets are."""
    found = described(None, name)
    nets = found.tables.canonical(nets)
    return Data(
        space=space,
        columns=found.columns,
        x=found.rows(nets),
        times_s=_times(arrays),
        described=found,
        nets=nets.astype(np.int64),
    )


def _nb201(arrays: dict[str, np.ndarray]) -> Data:
    operations = np.array([nasbench201.OPERATIONS.index(str(name)) for name in arrays["ops"]])
    edges = [tuple(edge) for edge in arrays["edges"].tolist()]
    chosen = operations[arrays["arch"].astype(int)]
    return _space("nb201", "nasbench201", chosen[:, [edges.index(edge) for edge in nasbench201.EDGES]], arrays)


def _fbnet(arrays: dict[str, np.ndarray]) -> Data:
    kinds = [*fbnet.KINDS, "skip"]
    blocks = np.array([kinds.index(str(name)) for name in arrays["op_names"]])
    return _space("fbnet", "fbnet", blocks[arrays["arch"].astype(int)], arrays)


def _ofa(arrays: dict[str, np.ndarray]) -> Data:
    return _space("ofa", "ofa-mobilenetv3", assignments_of(*(arrays[key] for key in ("ks", "e", "d", "r"))), arrays)


def _hat(path: Path) -> Data:
    """The nets that the numbers of the file describe, and the total time of encoder and decoder."""
    found = described(None, str(path))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    nets = np.array([found.space.space.indices([row[slot.name] for slot in found.space.space.slots]) for row in rows])
    of = {name: np.array([float(row[f"latency_{name}"]) for row in rows]) for name in _HAT}
    mean = of["mean_encoder"] + of["mean_decoder"]
    noise = np.hypot(of["std_encoder"], of["std_decoder"]) / mean
    return Data(
        space="hat",
        columns=found.columns,
        x=found.rows(nets),
        times_s={path.stem: mean / 1e3},
        noise={path.stem: float(np.median(noise))},
        described=found,
        nets=nets,
    )

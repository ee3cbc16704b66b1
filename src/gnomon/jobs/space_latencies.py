"""What is believed of a study's latencies, toolchain by toolchain, from the lines of its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.core.stats import student_quantile
from gnomon.errors import UsageError
from gnomon.jobs.space_folder import LatencyRow
from gnomon.jobs.space_predict import Assignment, SpacePredictor, fit_predictor
from gnomon.jobs.space_study import Family, Study
from gnomon.spaces.layer_costs import Cells, Latency

_RESAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A quantised toolchain against its float32 twin, over networks that both measured.

    `ratio` is the median of its times over the twin's, with a 95 % interval by resampling networks; `drop` the mean
    loss of accuracy, a share of images, and the largest; None where accuracy was not measured.
    """

    toolchain: str
    twin: str
    networks: int
    ratio: float
    low: float
    high: float
    faster: int
    drop: float | None
    worst_drop: float | None

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def latest(rows: Iterable[LatencyRow], toolchain: str) -> dict[str, LatencyRow]:
    """The last row of each network that a toolchain made, by id; failed ones too."""
    return {row.network: row for row in rows if row.toolchain == toolchain}


def toolchains_of(rows: Iterable[LatencyRow]) -> tuple[str, ...]:
    """The toolchains that measured anything, in the order of their first row."""
    return tuple(dict.fromkeys(row.toolchain for row in rows))


def toolchain_of(rows: Iterable[LatencyRow], wanted: str | None) -> str:
    """The wanted toolchain, or the first that measured anything. UsageError, with those that did, for another."""
    known = tuple(dict.fromkeys(row.toolchain for row in rows if row.call_s is not None))
    if wanted is None and known:
        return known[0]
    if wanted is None or wanted not in known:
        raise UsageError(
            f"nothing was measured{'' if wanted is None else f' by the toolchain {wanted}'}",
            hint=f"Measured by: {', '.join(known) or 'none; run gnomon space profile first'}.",
        )
    return wanted


def standard_error(row: LatencyRow) -> float:
    """The standard error of a row's time in seconds, by its interval; 0 where it has none."""
    if row.low_s is None or row.high_s is None or row.processes < 2:
        return 0.0
    return (row.high_s - row.low_s) / 2 / student_quantile(0.975, row.processes - 1)


def family_latencies(study: Study, family: Family, rows: Mapping[str, LatencyRow]) -> dict[Assignment, Latency]:
    """The measured latencies of a family's networks, by assignment."""
    found = {}
    for row in rows.values():
        if row.call_s is None or row.reason or not all(name in study.primitives for name in row.primitives):
            continue
        network = study.mixed(row.primitives)
        if network.family == family.name:
            found[network.assignment] = Latency(call_s=row.call_s, error_s=standard_error(row))
    return found


def cells_of(study: Study, family: Family) -> Cells:
    """The layers, primitives and defaults of a family, as costs are counted over them."""
    return Cells(
        groups=study.layout.groups,
        choices=tuple(slot.choices for slot in family.space.space.slots),
        defaults=family.defaults,
    )


def predictors(study: Study, rows: Mapping[str, LatencyRow]) -> dict[str, SpacePredictor]:
    """What predicts any network's latency, by family; a family whose default network has no time is left out."""
    found = {}
    for name, family in study.families.items():
        measured = family_latencies(study, family, rows)
        if family.defaults in measured:
            found[name] = fit_predictor(cells_of(study, family), measured)
    return found


def compare_with_twin(rows: Iterable[LatencyRow], toolchain: str) -> Compared | None:
    """A quantised toolchain against the float32 one of the same runtime; None where there is no twin."""
    known = list(rows)
    names = toolchains_of(known)
    twin = next((name for name in names if name != toolchain and toolchain.startswith(f"{name}-")), None)
    if twin is None and toolchain.startswith("quark"):
        twin = "onnxruntime" if "onnxruntime" in names else None
    if twin is None:
        return None
    mine, other = latest(known, toolchain), latest(known, twin)
    pairs = [(row, other[name]) for name, row in mine.items() if name in other]
    timed = np.array([[a.call_s, b.call_s] for a, b in pairs if a.call_s and b.call_s])
    if not len(timed):
        return None
    ratios = timed[:, 0] / timed[:, 1]
    rng = np.random.default_rng(0)
    drawn = np.median(ratios[rng.integers(0, len(ratios), (_RESAMPLES, len(ratios)))], axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    drops = [b.correct - a.correct for a, b in pairs if a.correct is not None and b.correct is not None]
    return Compared(
        toolchain=toolchain,
        twin=twin,
        networks=len(ratios),
        ratio=float(np.median(ratios)),
        low=float(low),
        high=float(high),
        faster=int((ratios < 1).sum()),
        drop=float(np.mean(drops)) if drops else None,
        worst_drop=float(np.max(drops)) if drops else None,
    )

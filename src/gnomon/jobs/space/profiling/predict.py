"""The latency of any network of a cell space: measured, or predicted from its family's networks, or from all.

Costs of a family are learned from all its networks (`effects.learn`), mixed ones too, so that no single one counts more
than another. How far that is off, its mixed networks show: each is predicted from all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats
from gnomon.jobs.space.document import HeldOutPart
from gnomon.jobs.space.profiling.estimates import LEAST_MIXED, latency_evidence
from gnomon.jobs.space.profiling.folder import LatencyRow
from gnomon.jobs.space.profiling.study import Study
from gnomon.spaces.cells.effects import Evidence, Learned, learn
from gnomon.spaces.cells.ranks import kendall_tau
from gnomon.spaces.features import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Latencies:
    """The latency of any network: measured, else predicted from its family's networks, else from all."""

    study: Study
    rows: Mapping[str, LatencyRow]
    by_family: Mapping[str, Learned]
    learned: Learned

    def predict(self, networks: Ints) -> tuple[Floats, Floats, Floats]:
        """Of networks (N, groups) of the space of all primitives the seconds, and the ends of 95 % intervals."""
        times = np.array(self.learned.predict(networks))
        for place, network in enumerate(map(self.study.at, networks.tolist())):
            row, model = self.rows.get(network.id), self.by_family.get(network.family)
            if row is not None and row.call_s is not None:
                ends = (row.call_s if end is None else end for end in (row.low_s, row.high_s))
                times[:, place] = row.call_s, *ends
            elif model is not None:
                times[:, place] = np.concatenate(model.predict([network.assignment]))
        return times[0], times[1], times[2]


def latencies_of(study: Study, rows: Mapping[str, LatencyRow]) -> Latencies:
    """A predictor of any network's latency from rows by id. UsageError where no row has a latency."""
    learned = learn(study.space, latency_evidence(study.space, rows), scale="sums")
    by_family = {
        name: learn(study.families[name].space, measured, scale="sums")
        for name, measured in family_latencies(study, rows).items()
    }
    return Latencies(study=study, rows=rows, by_family=by_family, learned=learned)


def family_latencies(study: Study, rows: Mapping[str, LatencyRow]) -> dict[str, Evidence]:
    """The measured networks of each family by its name, as indices in its own space; without families of none."""
    by_family: dict[str, dict[str, LatencyRow]] = {}
    for name, row in rows.items():
        if row.call_s is not None:
            by_family.setdefault(study.mixed(row.primitives).family, {})[name] = row
    return {name: latency_evidence(study.families[name].space, own) for name, own in by_family.items() if name}


def held_out(study: Study, rows: Mapping[str, LatencyRow]) -> dict[str, HeldOutPart]:
    """How far the mixed networks of each family are from what its others tell; without families of too few."""
    scores = {}
    for name, measured in family_latencies(study, rows).items():
        family = study.families[name]
        mixed = (measured.assignments != np.array(family.defaults)).sum(axis=1) > 1
        if mixed.sum() >= LEAST_MIXED:
            off = learn(family.space, measured, scale="sums").left_out()
            tested = mixed & np.isfinite(off)
            scores[name] = score(measured.values[tested] * np.exp(-off[tested]), measured.values[tested])
    return scores


def score(predicted: Floats, measured: Floats) -> HeldOutPart:
    """The errors |predicted / measured - 1| of networks (networks,), and Kendall's tau-b of both; None of one alone."""
    off = np.abs(predicted / measured - 1)
    return HeldOutPart(
        networks=len(off),
        mean=float(off.mean()),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        tau=tau(predicted, measured),
    )


def tau(predicted: Floats, measured: Floats) -> float | None:
    """Kendall's tau-b of predicted and measured values; None for one alone."""
    return kendall_tau(predicted, measured) if len(measured) > 1 else None

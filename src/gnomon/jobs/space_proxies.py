"""Training-free scores of networks, and whether they can be believed: calibrated on networks that were trained."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.jobs.space_folder import AccuracyRow
from gnomon.jobs.space_study import Network
from gnomon.jobs.space_training import Trainer, done_row
from gnomon.jobs.space_workers import run_all
from gnomon.jobs.steps import Steps
from gnomon.spaces.rank_agreement import kendall_tau, tau_interval
from gnomon.training.proxies import PROXIES
from gnomon.training.worker import ProxyJob, Scored, run_proxies

METHOD = "proxies"
LEAST_TAU = 0.3
"""A score that agrees less than this with trained networks is not believed."""

_BATCH = 64
LEAST_TRAINED = 8
"""Fewer trained networks than this calibrate nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How far a score orders networks of a family as training does: Kendall's tau with its 95 % interval.

    `networks` were both scored and trained. It is believed where the whole interval is above 0 and tau at least 0.3.
    """

    family: str
    score: str
    tau: float
    low: float
    high: float
    networks: int

    @property
    def believed(self) -> bool:
        """Whether it may be used to order networks."""
        return self.networks >= LEAST_TRAINED and self.tau >= LEAST_TAU and self.low > 0


def score_networks(trainer: Trainer, networks: Sequence[Network], *, seed: int = 0) -> dict[str, AccuracyRow]:
    """Score networks, by id; those that the journal has are not scored again. One that fails has its reason."""
    found = {n.id: row for n in networks if (row := done_row(trainer.folder, _key(n, seed))) is not None}
    todo = {n.id: n for n in networks if n.id not in found}
    steps = Steps("networks scored", trainer.watch)
    steps.expect(len(networks))
    steps.step(len(found))
    data = trainer.data.open()
    # Two batches of different images; and jacov compares gradients by pixel, of which there must be more than images.
    batch = max(2, min(_BATCH, len(data.train) // 2, math.prod(data.shape) // 2))
    jobs = {
        name: (ProxyJob(key=name, tagged=trainer.study.tagged(network), data=trainer.data, seed=seed, batch=batch),)
        for name, network in todo.items()
    }
    for name, done in run_all(trainer.workers, trainer.cluster, run_proxies, jobs):
        failure = done.failure if isinstance(done, Scored) else done
        row = AccuracyRow(
            key=_key(todo[name], seed),
            network=name,
            primitives=todo[name].primitives,
            method=METHOD,
            stage="scores",
            seed=seed,
            score=done.scores if isinstance(done, Scored) else {},
            at_s=time.time(),
            reason=failure.message if failure else "",
        )
        trainer.folder.add(row)
        found[name] = row
        steps.step(1)
    return found


def calibrate(
    scores: Mapping[str, AccuracyRow], trained: Mapping[str, float], families: Mapping[str, Sequence[Network]]
) -> list[Calibration]:
    """Each score against the accuracies of trained networks by id, family by family, the best of a family first."""
    found = []
    for family, networks in families.items():
        both = [n.id for n in networks if n.id in trained and n.id in scores and not scores[n.id].reason]
        rows = []
        for name in PROXIES:
            pairs = [(scores[one].score.get(name), trained[one]) for one in both]
            known = [(score, accuracy) for score, accuracy in pairs if score is not None]
            if len(known) < 3:
                continue
            x, y = (np.array(part, np.float64) for part in zip(*known, strict=True))
            low, high = tau_interval(x, y)
            rows.append(
                Calibration(family=family, score=name, tau=kendall_tau(x, y), low=low, high=high, networks=len(known))
            )
        found += sorted(rows, key=lambda one: -one.tau)
    return found


def _key(network: Network, seed: int) -> str:
    return f"{METHOD}/scores/{seed}/{network.id}"

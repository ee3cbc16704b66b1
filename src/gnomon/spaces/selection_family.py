"""Which family a space of one family is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.hypervolume import hypervolume

_DECISIVE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A family: the hypervolume of its front in each resample (K,), and of its networks that were measured."""

    family: str
    volumes: Floats
    measured: float

    @classmethod
    def of(cls, family: str, volumes: Floats, points: Floats, reference: tuple[float, float]) -> Contender:
        """A family by its resampled volumes, and the points (N, 2) of its networks that were measured, as predicted."""
        return cls(family=family, volumes=volumes, measured=hypervolume(points, reference))

    @property
    def expected(self) -> float:
        """The expected hypervolume of its front."""
        return float(self.volumes.mean())


def choose_family(contenders: Sequence[Contender], *, careful: bool) -> tuple[str, str]:
    """The family and the reason: the largest expected hypervolume of all its networks.

    That is an extrapolation. If `careful`, another that leads among the networks that were measured stays, unless nine
    of ten resamples prefer the first.
    """
    best = max(contenders, key=lambda one: (one.expected, one.family))
    lead = max(contenders, key=lambda one: (one.measured, one.family))
    sure = float(np.mean(best.volumes > lead.volumes))
    if best is lead:
        return best.family, "it has the largest expected hypervolume, and the largest of the measured networks"
    if not careful:
        return best.family, "it has the largest expected hypervolume"
    if sure >= _DECISIVE:
        return (
            best.family,
            f"its expected hypervolume is the largest, in {sure:.0%} of the resamples above {lead.family}'s",
        )
    return lead.family, (
        f"its measured networks have the largest hypervolume; {best.family} promises more, "
        f"but only in {sure:.0%} of the resamples"
    )

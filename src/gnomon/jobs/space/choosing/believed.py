"""What a profile tells of any network of its space: what searches of one's own ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.space import Space
from gnomon.jobs.space.profiling.estimates import (
    accuracy_evidence,
    latency_evidence,
    latest,
    method_of,
    mixed_space,
    seen_networks,
    toolchain_of,
)
from gnomon.jobs.space.profiling.look import read_rows, study_of
from gnomon.spaces.cells.effects import Effects, fit_effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """A value with its 95 % interval, and whether that very network was trained or measured."""

    value: float
    low: float
    high: float
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Believer:
    """Accuracies and latencies of any network, by the effects of all that were trained and measured.

    A network is the names of its primitives, one a cell group; `choices` are those of each group, by "cell0", "cell1",
    .. Measured networks too are told as they are believed, which their own measurement has a part in: so no network is
    ahead because chance was with it. `networks` are those of the profile that have both.
    """

    method: str
    toolchain: str
    networks: tuple[tuple[str, ...], ...]
    _space: Space
    _effects: tuple[Effects, Effects]
    _known: tuple[frozenset[tuple[str, ...]], frozenset[tuple[str, ...]]]

    __repr__ = brief

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """The primitives of each cell group."""
        return {slot.name: slot.choices for slot in self._space.slots}

    def accuracy(self, primitives: Sequence[str]) -> Believed:
        """The share of images. ProblemError for what is not a network of the space."""
        return self._told(0, primitives)

    def latency_s(self, primitives: Sequence[str]) -> Believed:
        """The time of a call in seconds. ProblemError for what is not a network of the space."""
        return self._told(1, primitives)

    def _told(self, price: int, primitives: Sequence[str]) -> Believed:
        told = self._effects[price].predict(np.array([self._space.indices(primitives)]))
        value, low, high = (float(one[0]) for one in told)
        return Believed(value=value, low=low, high=high, known=tuple(primitives) in self._known[price])


def open_profile(
    profile: Path, *, method: str | None = None, toolchain: str | None = None, blocks: Sequence[str] = ()
) -> Believer:
    """What a profile tells, by accuracies of a method and latencies of a toolchain (None: the first there are).

    UsageError for what the profile lacks.
    """
    study = study_of(profile, blocks)
    accuracies, latencies = read_rows(profile, study)
    whose, which = method_of(accuracies, method), toolchain_of(latencies, toolchain)
    seen, rows = seen_networks(study, accuracies, whose), latest(latencies, which)
    trained = frozenset(one.network.primitives for one in seen.values())
    timed = frozenset(row.primitives for row in rows.values() if row.call_s is not None)
    space = mixed_space(study)
    return Believer(
        method=whose,
        toolchain=which,
        networks=tuple(sorted(trained & timed)),
        _space=space,
        _effects=(
            fit_effects(space, accuracy_evidence(study, seen), scale="logit"),
            fit_effects(space, latency_evidence(study, rows), scale="plain"),
        ),
        _known=(trained, timed),
    )

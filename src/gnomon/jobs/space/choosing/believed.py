"""Predictions for any network of a profile's space, and the trained networks themselves, for a user's own searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.strict_json import shown
from gnomon.errors import UsageError
from gnomon.jobs.space.profiling.estimates import (
    Accuracy,
    Latencies,
    accuracy_evidence,
    evidence_of,
    latencies_of,
    method_of,
    toolchain_of,
)
from gnomon.jobs.space.profiling.folder import LatencyRow
from gnomon.jobs.space.profiling.look import network_size, read_rows, study_of
from gnomon.jobs.space.profiling.study import Study
from gnomon.jobs.space.profiling.training import best_weights
from gnomon.report.frame import frame
from gnomon.spaces.cells.effects import Learned, learn
from gnomon.spaces.unit import NetSize
from gnomon.training.modules import load_factories
from gnomon.training.network import build


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """A value with its 95 % interval, and whether the network itself was trained or measured."""

    value: float
    low: float
    high: float
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Believer:
    """Accuracies and latencies of any network, estimated from all trained and measured networks.

    A network is given by the names of its primitives, one for each cell group; `choices` has the valid names by group
    ("cell0", "cell1", ..). Even a trained network's accuracy is an estimate, which is also based on other networks, so
    that no network is ahead only by chance. A measured network's latency is its measurement. `networks` are the
    networks of the profile that have both an accuracy and a latency.
    """

    method: str
    toolchain: str
    networks: tuple[tuple[str, ...], ...]
    _study: Study
    _models: tuple[Learned, Latencies]
    _measured: tuple[Mapping[tuple[str, ...], Accuracy], Mapping[tuple[str, ...], LatencyRow]]

    __repr__ = brief

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """The primitives of each cell group."""
        return {slot.name: slot.choices for slot in self._study.space.slots}

    def accuracy(self, primitives: Sequence[str]) -> Believed:
        """The accuracy as a share of images. ProblemError for primitives that the space cannot combine."""
        return self._believed(0, primitives)

    def latency_s(self, primitives: Sequence[str]) -> Believed:
        """The time of a call in seconds. ProblemError for primitives that the space cannot combine."""
        return self._believed(1, primitives)

    def size(self, primitives: Sequence[str]) -> NetSize:
        """Parameters, multiply-accumulates and memory; all are None for an unmeasured network if the space's Python
        code is unavailable.

        ProblemError for primitives that the space cannot combine.
        """
        return network_size(self._study, self._study.mixed(primitives), self._measured[1].get(tuple(primitives)))

    def to_optuna(self, trial: Any) -> tuple[float, float]:
        """The objectives for Optuna: the accuracy (maximise) and the seconds (minimise) of a trial's network.

        The network's size is stored in the trial's attributes, so that the user can add constraints.
        """
        network = [trial.suggest_categorical(slot.name, slot.choices) for slot in self._study.space.slots]
        for name, value in asdict(self.size(network)).items():
            trial.set_user_attr(name, value)
        return self.accuracy(network).value, self.latency_s(network).value

    def to_pandas(self) -> Any:
        """The networks of the profile as a `pandas.DataFrame`: primitives by group, accuracy, latency, and size."""
        rows = []
        for network in self.networks:
            prices = {"accuracy": self.accuracy(network).value, "latency_s": self.latency_s(network).value}
            rows.append({**dict(zip(self.choices, network, strict=True)), **prices, **asdict(self.size(network))})
        return frame(rows, "pandas")

    def _believed(self, price: int, primitives: Sequence[str]) -> Believed:
        bounds = self._models[price].predict(np.array([self._study.space.indices(primitives)]))
        value, low, high = (float(row[0]) for row in bounds)
        return Believed(value=value, low=low, high=high, known=tuple(primitives) in self._measured[price])


def open_profile(
    profile: Path, *, method: str | None = None, toolchain: str | None = None, blocks: Sequence[str] = ()
) -> Believer:
    """A profile's predictions, from a method's accuracies and a toolchain's latencies (None: the first available).

    UsageError if the profile has no such accuracies or latencies.
    """
    study = study_of(profile, blocks)
    journals = read_rows(profile, study)
    whose, which = method_of(journals[0], method), toolchain_of(journals[1], toolchain)
    seen, rows = evidence_of(study, journals, whose, which)
    trained = {row.network.primitives: row for row in seen.values()}
    timed = {row.primitives: row for row in rows.values() if row.call_s is not None}
    return Believer(
        method=whose,
        toolchain=which,
        networks=tuple(sorted(trained.keys() & timed.keys())),
        _study=study,
        _models=(learn(study.space, accuracy_evidence(study, seen), scale="logit"), latencies_of(study, rows)),
        _measured=(trained, timed),
    )


def network_module(profile: Path, name: str, blocks: Sequence[str] = ()) -> Any:
    """The network with this id, in evaluation mode, with the weights of its best training by validation accuracy.

    UsageError for a network that was not trained, or whose weights are gone. Errors of `study_of` are also raised.
    """
    study = study_of(profile, blocks)
    accuracy, _ = read_rows(profile, study)
    row = next((row for row in accuracy if row.network == name), None)
    network = None if row is None else study.mixed(row.primitives)
    state = None if network is None else best_weights(accuracy, profile, network)
    if network is None or state is None:
        trained = list(dict.fromkeys(row.network for row in accuracy if row.validation is not None))
        names = f"Trained networks: {', '.join(trained[:10])}{', ..' if len(trained) > 10 else '.'}" if trained else ""
        raise UsageError(
            f"the profile {profile} has no trained weights for {shown(name)}",
            hint=names or "Train networks with gnomon space profile first.",
        )
    tagged = study.tagged(network)
    factories = load_factories(study.origins(tagged), tagged)
    return build(tagged, state, seed=0, factories=factories).eval()

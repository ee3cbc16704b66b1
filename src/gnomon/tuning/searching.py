"""The search of schedules behind the door: asked for traces, told their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.tuning_record import TuningLayer
from gnomon.tuning.door import Door, DoorSettings, Workshop

STRATEGIES = ("evolutionary", "replay-trace", "random")
_ASK_S = 300.0

Told = tuple[Any, tuple[float, ...]]
"""A trace and its samples in seconds; no samples where it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How layers are searched: one of `STRATEGIES`, the target, at most so many trials a layer, so many a round."""

    target: Mapping[str, Any]
    strategy: str = "evolutionary"
    trials: int = 512
    per_round: int = 8
    seed: int = 0


class Searches:
    """The searches of a network's layers, in one child, whose cost model learns from all. Belongs to one thread.

    A child that is lost is started anew and taught what was told before.
    """

    def __init__(self, shop: Workshop, settings: SearchSettings) -> None:
        self._settings = settings
        self._door = shop.door(DoorSettings(job_timeout_s=_ASK_S), renew=self._taught)
        self._layers: dict[str, TuningLayer] = {}
        self._told: dict[str, list[Told]] = {}

    def begin(self, layer: TuningLayer, told: Sequence[Told]) -> Failure | None:
        """Begin the search of a layer, of which this is known already."""
        self._told[layer.layer] = list(told)
        said = self._door.ask("search", self._job(layer))
        if isinstance(said, Failure):
            return said
        self._layers[layer.layer] = layer
        return None

    def ask(self, layer: str) -> tuple[Any, ...] | Failure:
        """The traces of the next candidates; none where the search is at its end."""
        said = self._door.ask("search", {"do": "ask", "layer": layer})
        return said if isinstance(said, Failure) else tuple(said["traces"])

    def tell(self, layer: str, told: Sequence[Told]) -> Failure | None:
        """What became of all candidates of the last question, in their order."""
        self._told[layer] += told
        job = {"do": "tell", "layer": layer, "times_s": [list(times) or None for _, times in told]}
        alive = self._door.alive
        said = self._door.ask("search", job)
        # One that was started anew has just been taught this.
        return said if isinstance(said, Failure) and alive else None

    def _taught(self, door: Door) -> Failure | None:
        for layer in list(self._layers.values()):
            if isinstance(said := door.ask("search", self._job(layer)), Failure):
                # What cannot be searched on costs its own layer, and not all others at every start from now on.
                del self._layers[layer.layer]
                if not door.alive:
                    return said
        return None

    def _job(self, layer: TuningLayer) -> Mapping[str, Any]:
        asked, told = self._settings, self._told[layer.layer]
        return {
            "do": "search",
            "layer": layer.layer,
            "workload": layer.workload,
            "target": dict(asked.target),
            "strategy": asked.strategy,
            "trials": asked.trials,
            "per_round": asked.per_round,
            "seed": asked.seed + len(told),
            "told": [[trace, list(times)] for trace, times in told],
        }

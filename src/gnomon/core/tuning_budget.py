"""Which layer is tuned next: the one where another round is expected to save the network the most time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_FLOOR = 0.2
_RECENT = 2


@dataclass(slots=True, kw_only=True)
class LayerProgress:
    """How far a layer is: how often the network calls it, its untuned time if known, and the best time after each
    round, in seconds.
    """

    weight: int
    untuned_s: float | None = None
    best_s: list[float] = field(default_factory=list)
    ended: str = ""

    @property
    def now_s(self) -> float:
        """The best time that is known; 0 where there is none."""
        known = [t for t in (self.untuned_s, self.best_s[-1] if self.best_s else None) if t is not None]
        return min(known, default=0.0)

    def gain_s(self) -> float:
        """What the next round may save the network, in seconds.

        Hopefully: as much of the layer's time, relatively, as a round of the last two did on average, and no less than
        a share that falls with the rounds that were spent, so that no layer is given up for one bad round. A layer that
        was not tried yet may save all of its time, so that what takes long is tried first, and what takes next to
        nothing only when little else is left.
        """
        rounds = len(self.best_s)
        if rounds == 0:
            return self.weight * self.now_s
        history = [self.untuned_s or self.best_s[0], *self.best_s][-_RECENT - 1 :]
        past = max(0.0, 1.0 - self.best_s[-1] / history[0]) / (len(history) - 1) if history[0] > 0 else 0.0
        return self.weight * self.now_s * max(past, _FLOOR / (1 + rounds))

    def on_plateau(self, rounds: int, relevant: float) -> bool:
        """Whether the last so many rounds together saved less than a relevant share of the time."""
        if len(self.best_s) <= rounds:
            return False
        return self.best_s[-1] > (1 - relevant) * self.best_s[-1 - rounds]


def next_layer(layers: Mapping[str, LayerProgress]) -> str | None:
    """The layer to tune next; None where all have ended."""
    waiting = {name: one.gain_s() for name, one in layers.items() if not one.ended}
    return max(waiting, key=waiting.__getitem__, default=None)


def shares(layers: Sequence[LayerProgress]) -> list[float | None]:
    """Each layer's share of the untuned network's time; None where one is unknown."""
    total = sum(one.weight * (one.untuned_s or 0.0) for one in layers)
    return [None if one.untuned_s is None or total <= 0 else one.weight * one.untuned_s / total for one in layers]

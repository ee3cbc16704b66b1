"""Orders candidates of a search by what a model, learned from the results so far, expects of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnomon.core.space import Space
from gnomon.search.base import Assignment, Cost
from gnomon.search.gain import expected_gain
from gnomon.search.surrogate import Surrogate

LEAST_RESULTS = 2
_DIGITS = 7  # of gains that are compared: what is left is the rounding of the machine's linear algebra


class Guide:
    """What a search learned of one space. It is a function of the results it was given and of their order."""

    def __init__(self, space: Space) -> None:
        self._model = Surrogate(space)
        self._results: dict[Assignment, Cost | None] = {}
        self._succeeded = 0
        self._fitted = 0

    def learn(self, assignment: Assignment, cost: Cost | None) -> None:
        """Take a result in; of several of one assignment the first counts."""
        if assignment not in self._results:
            self._results[assignment] = cost
            self._succeeded += cost is not None

    @property
    def ready(self) -> bool:
        """Whether enough succeeded to expect anything."""
        return self._succeeded >= LEAST_RESULTS

    def best(self, candidates: Sequence[Assignment], front: Sequence[Cost], count: int) -> list[Assignment]:
        """The `count` candidates of which most is expected, the best first, once it is `ready`.

        Each is expected to do what it does beside the front and those before it, as forecast (the kriging believer of
        Ginsbourger, Le Riche and Carraro, 2010). Of equals the first one.
        """
        if self._fitted < len(self._results):
            self._fitted = len(self._results)
            self._model.fit(self._results)
        forecast = self._model.forecast(candidates)
        believed = forecast.at(np.zeros(forecast.middle.shape[1]))
        costs = np.array([c for c in self._results.values() if c is not None])
        span = np.ptp(costs, axis=0)
        points = np.array(front)
        open_ = np.ones(len(candidates), dtype=bool)
        chosen: list[Assignment] = []
        while len(chosen) < min(count, len(candidates)):
            gains = expected_gain(points, span, forecast).round(_DIGITS)
            number = int(np.argmax(np.where(open_, gains, -np.inf)))
            open_[number] = False
            chosen.append(candidates[number])
            points = np.concatenate([points, believed[number : number + 1]])
        return chosen

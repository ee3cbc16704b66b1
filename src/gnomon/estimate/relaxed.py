"""Expected times of relaxed nets: a slot takes each of its choices with a probability, and gradients follow.

The expected counts of a relaxed net are linear in the probabilities and the model is linear in counts, so the expected
time is exact and its gradient is constant: what one choice costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import UsageError
from gnomon.estimate.columns import Floats
from gnomon.estimate.estimator import Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected time in seconds, and its derivative by the probability of each choice, one array a slot."""

    time_s: float
    gradient_s: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """What each choice adds to the columns: `base` (columns,) always, `choices` one matrix (choices, columns) a slot.

    Raises UsageError for matrices of another width, and for an estimator with a residual learner, which is not linear.
    """

    estimator: Estimator
    base: Floats
    choices: tuple[Floats, ...]

    def __post_init__(self) -> None:
        if self.estimator.residual is not None:
            raise UsageError(
                "the estimator has a residual learner, and its expected time is not linear in probabilities",
                hint="fit it without one (learner='never')",
            )
        columns = self.estimator.columns
        object.__setattr__(self, "base", columns.matrix(self.base, "base")[0])
        object.__setattr__(self, "choices", tuple(columns.matrix(c, "choices") for c in self.choices))

    def expected(self, probabilities: Sequence[ArrayLike]) -> Expected:
        """The expected time of one relaxed net. Probabilities need not add up to 1, so that gradients can be checked.

        Raises UsageError for a wrong number of slots or choices.
        """
        if len(probabilities) != len(self.choices):
            raise UsageError(
                f"probabilities of {len(probabilities)} slots are given for {len(self.choices)}",
                hint="give one array a slot",
            )
        mean = self.estimator.coefficients.mean
        total = float(mean[0] + self.base @ mean[1:])
        gradients = []
        for number, (matrix, given) in enumerate(zip(self.choices, probabilities, strict=True)):
            p = np.asarray(given, dtype=float)
            if p.shape != (len(matrix),):
                raise UsageError(
                    f"slot {number} has {len(matrix)} choices, and {p.size} probabilities are given",
                    hint="give one probability a choice",
                )
            gradient = matrix @ mean[1:]
            total += float(p @ gradient)
            gradients.append(gradient)
        return Expected(time_s=total, gradient_s=tuple(gradients))

"""Expected times, with gradients, of a space's relaxed nets, in which a slot takes each choice with a probability.

The time that a slot's choice adds may depend on earlier choices, for example through the resolution or the depth.
Therefore, the probabilities of the states are computed forwards, and the expected remaining times backwards. Both are
linear in each slot's probabilities, and the result is exactly the mean over all nets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_letters

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import UsageError
from gnomon.estimate.columns import Floats
from gnomon.estimate.estimator import Estimator
from gnomon.spaces.features import CountTables, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected time in seconds, and its derivatives with respect to the probabilities: one array for each slot."""

    time_s: float
    gradient_s: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RelaxedSpace:
    """A space and its estimator, whose first column is the overhead of a call and whose other columns are the units."""

    tables: CountTables
    estimator: Estimator
    _costs: tuple[Floats, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_row = self.tables.rows.astype(np.float64) @ self.estimator.coefficients.mean[2:]
        object.__setattr__(self, "_costs", tuple(by_row[step.row] for step in self.tables.steps))

    @property
    def base_s(self) -> float:
        """The time of every net in addition to its units, in seconds."""
        return float(self.estimator.coefficients.mean[:2].sum())

    def expected(self, probabilities: Sequence[ArrayLike]) -> Expected:
        """The expected time of a relaxed net, and its derivatives with respect to the probabilities.

        Probabilities need not add up to 1, so that gradients can be checked numerically. If they must add up to 1, a
        slot's gradient is defined only up to a constant. UsageError for a wrong number of slots or choices.
        """
        given = self._checked(probabilities)
        steps, costs = self.tables.steps, self._costs
        joint = [_joint([given[slot] for slot in step.slots]) for step in steps]
        behind = _behind(steps, costs, joint)
        reached = np.ones(1)
        gradients = [np.zeros(len(p)) for p in given]
        for number, step in enumerate(steps):
            along = reached @ (costs[number] + behind[number + 1][step.next_state])
            for slot, gradient in zip(step.slots, _apart(along, [given[s] for s in step.slots]), strict=True):
                gradients[slot] += gradient
            after = np.zeros(len(behind[number + 1]))
            np.add.at(after, step.next_state.ravel(), np.outer(reached, joint[number]).ravel())
            reached = after
        return Expected(time_s=self.base_s + float(behind[0][0]), gradient_s=tuple(gradients))

    def _checked(self, probabilities: Sequence[ArrayLike]) -> list[Floats]:
        slots = self.tables.space.slots
        if len(probabilities) != len(slots):
            raise UsageError(
                f"{len(probabilities)} arrays of probabilities are given for {len(slots)} slots",
                hint="Give one array for each slot.",
            )
        given = [np.asarray(p, dtype=float) for p in probabilities]
        for slot, p in zip(slots, given, strict=True):
            if p.shape != (len(slot.choices),) or not np.isfinite(p).all():
                raise UsageError(
                    f"slot '{slot.name}' has {len(slot.choices)} choices, but {p.size} probabilities are given",
                    hint="Give one finite probability for each choice.",
                )
        return given


def _behind(steps: Sequence[Step], costs: Sequence[Floats], joint: Sequence[Floats]) -> list[Floats]:
    """The expected remaining time from each state, before each step and after the last."""
    last = 1 + max((int(step.next_state.max()) for step in steps[-1:]), default=0)
    sums = [np.zeros(last)]
    for step, cost, p in zip(reversed(steps), reversed(costs), reversed(joint), strict=True):
        sums.append((cost + sums[-1][step.next_state]) @ p)
    return sums[::-1]


def _joint(parts: Sequence[Floats]) -> Floats:
    """The probability of each joint choice of some slots; the first slot is the least significant digit."""
    joint = np.ones(1)
    for p in parts:
        joint = np.multiply.outer(p, joint).ravel()
    return joint


def _apart(along: Floats, parts: Sequence[Floats]) -> list[Floats]:
    """The derivatives, with respect to each slot's probabilities, of the time that joint choices add."""
    table = along.reshape([len(p) for p in reversed(parts)])
    axes = ascii_letters[: len(parts)]
    derivatives = []
    for slot, axis in enumerate(axes):
        others = [p for other, p in enumerate(parts) if other != slot]
        # The first slot is the last axis.
        terms = ",".join((axes[::-1], *axes.replace(axis, "")))
        derivatives.append(np.einsum(f"{terms}->{axis}", table, *others))
    return derivatives

"""The features of nets for an estimator: the counts of units, which tables give for many assignments at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.core.space import Space
from gnomon.errors import ProblemError
from gnomon.spaces.unit import Unit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Assignment = Sequence[int] | Ints
"""The index of each slot's choice."""

_CHUNK = 4096  # assignments at a time, so that the sums stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A look-up: the current state and the choices of these slots determine a row of counts and the next state.

    The choices of several slots form one index; the first slot is the least significant. Without a slot the index is 0.
    `row` and `next_state` have the shape (states, choices).
    """

    slots: tuple[int, ...]
    row: Ints
    next_state: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountTables:
    """The counts of all nets of a space as a sum of looked-up rows, one row for each step.

    `units` are all units that occur in any net. `extras` name further counts of a space's nets, such as the operations
    that remain after a compiler has dropped the ones that the output does not need. `rows` has the shape (rows, units +
    extras).
    """

    space: Space
    units: tuple[Unit, ...]
    steps: tuple[Step, ...]
    rows: NDArray[np.float32]
    extras: tuple[str, ...] = ()
    _radix: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_radix", np.array([len(slot.choices) for slot in self.space.slots], np.int64))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The chain of kinds of each unit; the coefficients of units with the same chain share a prior."""
        return tuple(unit.chain for unit in self.units)

    @property
    def extra_kinds(self) -> tuple[str, ...]:
        """The group of each extra; the coefficients of the extras of a group share a prior."""
        return ("extra",) * len(self.extras)

    def counts(self, assignments: ArrayLike) -> Floats:
        """The number of times that each unit and extra occurs in each net: (nets, units + extras), for assignments
        (nets, slots).
        """
        return self._summed(assignments, self.rows)

    def sums(self, assignments: ArrayLike, values: ArrayLike) -> Floats:
        """`counts(assignments) @ values` without computing the counts: a number for each net, or several if `values` is
        2-D.
        """
        return self._summed(assignments, self.rows.astype(np.float64) @ np.asarray(values, np.float64))

    def _summed(self, assignments: ArrayLike, rows: NDArray[Any]) -> Floats:
        """The sum, for each net, of the rows of this table that the steps look up."""
        chosen = self._chosen(assignments)
        out = np.zeros((len(chosen), *rows.shape[1:]))
        for start in range(0, len(chosen), _CHUNK):
            for row in self._walk(chosen[start : start + _CHUNK]):
                out[start : start + _CHUNK] += rows[row]
        return out

    def canonical(self, assignments: ArrayLike) -> Ints:
        """The assignments, with every slot that makes no difference, such as a slot beyond the depth, set to its first
        choice.
        """
        chosen = self._chosen(assignments).copy()
        state = np.zeros(len(chosen), np.int64)
        tied = self._tied()
        for step in self.steps:
            index = self._index(step, chosen)
            still = _idle(step)
            for slot in step.slots:
                if slot not in tied:
                    chosen[still[state], slot] = 0
            state = step.next_state[state, np.where(still[state], 0, index)]
        return chosen

    def nets(self) -> int:
        """The exact number of different nets: assignments that differ only in slots without an effect count once.

        If several steps use the same slot, every slot counts as having an effect.
        """
        if self._tied():
            return self.space.size
        behind: list[int] | None = None
        for step in reversed(self.steps):
            after = behind or [1] * (int(step.next_state.max()) + 1)
            behind = [
                after[row[0]] if still else sum(after[state] for state in row)
                for row, still in zip(step.next_state.tolist(), _idle(step).tolist(), strict=True)
            ]
        return behind[0] if behind else 1

    def _tied(self) -> set[int]:
        """The slots that several steps use, such as the slot of a cell group with several layers."""
        seen = [slot for step in self.steps for slot in step.slots]
        return {slot for slot in seen if seen.count(slot) > 1}

    def _chosen(self, assignments: ArrayLike) -> Ints:
        given = np.asarray(assignments)
        if given.ndim != 2 or given.shape[1] != len(self._radix):
            raise ProblemError(
                f"assignments have the shape {given.shape}, but the space has {len(self._radix)} slots",
                hint="Give an array of shape (nets, slots).",
            )
        if given.size and not np.issubdtype(given.dtype, np.integer):
            raise ProblemError(f"assignments are {given.dtype} numbers", hint="Give the index of each slot's choice.")
        chosen = given.astype(np.int64)
        wrong = np.argwhere((chosen < 0) | (chosen >= self._radix))
        if len(wrong):
            slot = self.space.slots[int(wrong[0][1])]
            raise ProblemError(
                f"choice {chosen[tuple(wrong[0])]} of slot '{slot.name}' is out of range",
                hint=f"Use an index from 0 to {len(slot.choices) - 1}.",
            )
        return chosen

    def _index(self, step: Step, chosen: Ints) -> Ints:
        index = np.zeros(len(chosen), np.int64)
        for slot in reversed(step.slots):
            index = index * self._radix[slot] + chosen[:, slot]
        return index

    def _walk(self, chosen: Ints) -> list[Ints]:
        """The row of each step, for each assignment."""
        state = np.zeros(len(chosen), np.int64)
        rows = []
        for step in self.steps:
            index = self._index(step, chosen)
            rows.append(step.row[state, index])
            state = step.next_state[state, index]
        return rows


def _idle(step: Step) -> NDArray[np.bool_]:
    """For each state, whether the step's slot has no effect. If a step has several slots, they always count as having
    an effect.
    """
    if len(step.slots) != 1:
        return np.zeros(len(step.row), bool)
    same = (step.row == step.row[:, :1]) & (step.next_state == step.next_state[:, :1])
    return np.asarray(same.all(axis=1))


def dense(rows: Sequence[Mapping[Unit, int]]) -> tuple[tuple[Unit, ...], NDArray[np.float32]]:
    """All units of the rows, in the order of their first occurrence, and the rows as an array."""
    units = {unit: number for number, unit in enumerate(dict.fromkeys(unit for row in rows for unit in row))}
    table = np.zeros((len(rows), len(units)), np.float32)
    for index, row in enumerate(rows):
        for unit, count in row.items():
            table[index, units[unit]] = count
    return tuple(units), table

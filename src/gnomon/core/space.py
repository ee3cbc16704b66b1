"""Spaces of assignments: slots, their choices, and the integer code of an assignment."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from gnomon.errors import ProblemError

if TYPE_CHECKING:  # readers of models create spaces, and must work without numpy
    import numpy as np
    import numpy.typing as npt

_MOST_TOLD = 20  # the maximum number of choices in a message
_MOST_COMPARED = 1000
_LONGEST = 200
_MOST_RUN = 1 << 62  # the codes of a run of slots fit into 64 bits


@dataclass(frozen=True, slots=True)
class Slot:
    """Something that takes exactly one of its choices, such as an operator that runs on one backend.

    Raises ProblemError if there is no choice, or if two choices have the same name.
    """

    name: str
    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))
        if not self.choices:
            raise ProblemError(f"slot '{self.name}' has no choice", hint="Give each slot at least one choice.")
        if len(set(self.choices)) != len(self.choices):
            raise ProblemError(f"slot '{self.name}' names a choice twice", hint="Name each choice once.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Runs:
    """Runs of slots whose codes fit into 64 bits: the size of each slot and its weight within its run, and the first
    slot and the number of codes of each run."""

    sizes: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64]
    starts: tuple[int, ...]
    radices: tuple[int, ...]


def _runs_of(sizes: list[int]) -> _Runs:
    import numpy as np

    starts: list[int] = []
    weights: list[int] = []
    radices: list[int] = []
    for slot, size in enumerate(sizes):
        if not radices or radices[-1] * size > _MOST_RUN:
            starts.append(slot)
            radices.append(1)
        weights.append(radices[-1])
        radices[-1] *= size
    return _Runs(
        sizes=np.array(sizes, dtype=np.int64),
        weights=np.array(weights, dtype=np.int64),
        starts=tuple(starts),
        radices=tuple(radices),
    )


@dataclass(frozen=True, slots=True)
class Space:
    """All assignments of a choice to each slot.

    An assignment is a tuple of choice indices, one for each slot. Its code is the mixed-radix integer with the first
    slot least significant: with five slots of two choices each, code 4 gives only the third slot its second choice.
    Codes are exact integers of any size; `size` is the number of assignments (1 without slots).
    """

    slots: tuple[Slot, ...]
    size: int = field(init=False)
    _runs: _Runs | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", tuple(self.slots))
        names = [slot.name for slot in self.slots]
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in set(names[:i]))
            raise ProblemError(f"two slots are named '{twice}'", hint="Give each slot its own name.")
        object.__setattr__(self, "size", _product([len(slot.choices) for slot in self.slots]))

    def encode(self, assignment: Sequence[int]) -> int:
        """The code of an assignment. Raises ProblemError for a wrong length or an index out of range."""
        indices, runs = self._checked(assignment)
        if not self.slots:
            return 0
        import numpy as np

        # The codes of runs are joined pairwise, in nearly linear time; a single sum of large numbers takes quadratic
        # time.
        codes = np.add.reduceat(indices * runs.weights, runs.starts).tolist()
        digits = list(zip(codes, runs.radices, strict=True))
        while len(digits) > 1:
            joined = [
                (low + radix * high, radix * high_radix)
                for (low, radix), (high, high_radix) in zip(digits[::2], digits[1::2], strict=False)
            ]
            digits = joined + digits[len(joined) * 2 :]
        return int(digits[0][0])

    def _checked(self, assignment: Sequence[int]) -> tuple[npt.NDArray[np.int64], _Runs]:
        """The indices of an assignment, each checked against its slot's choices."""
        import numpy as np

        if len(assignment) != len(self.slots):
            raise ProblemError(
                f"the assignment has {len(assignment)} entries for {len(self.slots)} slots",
                hint="Give one choice index for each slot.",
            )
        runs = self._runs
        if runs is None:
            object.__setattr__(self, "_runs", runs := _runs_of([len(slot.choices) for slot in self.slots]))
        try:
            indices = np.asarray(assignment, dtype=np.int64)
            outside = (indices < 0) | (indices >= runs.sizes)
        except OverflowError:  # numbers of more than 64 bits
            outside = np.array([not 0 <= index < size for index, size in zip(assignment, runs.sizes, strict=True)])
        if outside.any():
            wrong = int(outside.argmax())
            raise ProblemError(
                f"choice {int(assignment[wrong])} of slot '{self.slots[wrong].name}' is out of range",
                hint=f"Use an index from 0 to {runs.sizes[wrong] - 1}.",
            )
        return indices, runs

    def decode(self, code: int) -> tuple[int, ...]:
        """The assignment of a code. Raises ProblemError for a code outside 0 .. size - 1."""
        if not 0 <= code < self.size:
            raise ProblemError(
                "the code is outside the space",
                hint=f"Use a code from 0 to {decimal(self.size - 1)}." if self.size < 10**30 else "Check the space.",
            )
        indices: list[int] = []
        for slot in self.slots:
            code, index = divmod(code, len(slot.choices))
            indices.append(index)
        return tuple(indices)

    def names(self, assignment: Sequence[int]) -> tuple[str, ...]:
        """The names of an assignment's choices; ranges are checked as in `encode`."""
        choices = [slot.choices for slot in self.slots]
        return tuple(map(operator.getitem, choices, self._checked(assignment)[0].tolist()))

    def indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """The assignment that gives each slot the choice named for it. Raises ProblemError for unknown names."""
        if len(names) != len(self.slots):
            raise ProblemError(f"{len(names)} choices for {len(self.slots)} slots", hint="Give one for each slot.")
        chosen: list[int] = []
        for slot, name in zip(self.slots, names, strict=True):
            if name not in slot.choices:
                raise ProblemError(
                    f"slot '{slot.name}' has no choice '{name}'", hint=f"Choose one of: {_some_choices(slot, name)}."
                )
            chosen.append(slot.choices.index(name))
        return tuple(chosen)


def _some_choices(slot: Slot, name: str) -> str:
    """The choices of a slot; if there are many, the choices most similar to `name`, followed by the first ones."""
    if len(slot.choices) <= _MOST_TOLD:
        return ", ".join(slot.choices)
    import difflib

    near = difflib.get_close_matches(name[:_LONGEST], slot.choices[:_MOST_COMPARED], n=3)
    listed = list(dict.fromkeys((*near, *slot.choices)))[:_MOST_TOLD]
    return f"{', '.join(listed)} and {len(slot.choices) - len(listed)} others"


def decimal(code: int) -> str:
    """A code of any size in decimal digits.

    The conversion uses `Decimal`, because `str` refuses integers as long as the codes of thousands of slots.
    """
    if code < 0:
        raise ProblemError("a code cannot be negative", hint="Use a code of 0 or more.")
    return str(Decimal(code))


def parse_decimal(text: str) -> int:
    """The code that `decimal` wrote, of any size. Raises ProblemError for anything but ASCII digits."""
    if not (text.isascii() and text.isdigit()):
        raise ProblemError("a code may contain only the digits 0 to 9", hint="Correct the code.")
    return int(Decimal(text))


def _product(factors: list[int]) -> int:
    while len(factors) > 1:
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[len(pairs) * 2 :]
    return factors[0] if factors else 1

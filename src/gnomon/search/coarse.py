"""A coarse space over a finer one: each slot of the finer one follows a slot of the coarse one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.search.base import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Coarse:
    """A coarse space, such as one slot an operator type, and for each slot of the finer space the one it follows.

    `follows[i]` is the index of the coarse slot whose choice fine slot i takes, by its name.
    """

    space: Space
    follows: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "follows", tuple(int(i) for i in self.follows))
        count = len(self.space.slots)
        if set(self.follows) != set(range(count)):
            raise ProblemError(
                "the mapping of the slots does not reach each coarse slot, or leaves their range",
                hint=f"give each fine slot the index, from 0 to {count - 1}, of its coarse slot, and use each",
            )

    def tables(self, fine: Space) -> tuple[tuple[int, ...], ...]:
        """For each fine slot the fine index of each choice of its coarse slot.

        ProblemError where the numbers of slots differ, or a fine slot lacks a choice.
        """
        if len(fine.slots) != len(self.follows):
            raise ProblemError(
                f"{len(self.follows)} slots are mapped, but the space has {len(fine.slots)}",
                hint="give the coarse slot of each slot of the finer space",
            )
        rows: list[tuple[int, ...]] = []
        for slot, index in zip(fine.slots, self.follows, strict=True):
            above = self.space.slots[index]
            missing = [name for name in above.choices if name not in slot.choices]
            if missing:
                raise ProblemError(
                    f"slot '{slot.name}' lacks the choice '{missing[0]}' of its coarse slot '{above.name}'",
                    hint="give coarse slots only choices that all their slots have (gnomon.search.coarse.grouped does)",
                )
            rows.append(tuple(slot.choices.index(name) for name in above.choices))
        return tuple(rows)

    def refine(self, fine: Space, assignment: Assignment) -> Assignment:
        """The fine assignment in which each slot takes the choice of its coarse slot."""
        self.space.encode(assignment)
        rows = self.tables(fine)
        return tuple(row[assignment[index]] for row, index in zip(rows, self.follows, strict=True))


def grouped(fine: Space, labels: Sequence[str]) -> Coarse:
    """The coarse space with one slot a label, in the order of first appearance; `labels` has one a fine slot.

    A coarse slot has the choices that all its fine slots have, in the first one's order. ProblemError where the
    numbers differ, or the slots of a label have no choice in common.
    """
    if len(labels) != len(fine.slots):
        raise ProblemError(f"{len(labels)} labels for {len(fine.slots)} slots", hint="give one label a slot")
    names = list(dict.fromkeys(labels))
    slots: list[Slot] = []
    for name in names:
        members = [slot for slot, label in zip(fine.slots, labels, strict=True) if label == name]
        shared = tuple(c for c in members[0].choices if all(c in m.choices for m in members))
        if not shared:
            raise ProblemError(f"the slots of '{name}' have no choice in common", hint="give them different labels")
        slots.append(Slot(name, shared))
    return Coarse(space=Space(tuple(slots)), follows=tuple(names.index(label) for label in labels))

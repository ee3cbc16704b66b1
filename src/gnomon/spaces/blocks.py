"""The base for search spaces that are a row of blocks, the shipped ones and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.spaces.block_tables import Place, tables_of
from gnomon.spaces.features import Assignment, CountTables
from gnomon.spaces.fuse import UNFUSED, Chain, FusionRules
from gnomon.spaces.layers import Shape
from gnomon.spaces.net import Net
from gnomon.spaces.symbol import Symbol, Trace
from gnomon.spaces.unit import Unit

Block = Callable[[Symbol], Symbol]
"""Writes a block down: what it is given is the block's input, what it returns its output."""


def skip(x: Symbol) -> Symbol:
    """The block that does nothing."""
    return x


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A position where one of several blocks stands, by name."""

    name: str
    blocks: Mapping[str, Block]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Positions of which only the first few are used: a slot chooses how many. Choices behind make no difference."""

    name: str
    depths: tuple[int, ...]
    positions: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSpace:
    """Nets that are a row of parts: a block that is always there, a `Choice`, or a `Stage` of variable depth.

    With several input shapes the first slot, "resolution", chooses one, named by its height. A block sees its input's
    shape and nothing else of the net, and does the same each time that it is called. ProblemError where two positions
    have one name, a block leaves layers that nothing reads, or shapes do not fit in some net.
    """

    name: str
    inputs: tuple[Shape, ...]
    parts: tuple[Block | Choice | Stage, ...]
    dtype: str = "float32"
    space: Space = field(init=False)
    _places: tuple[Place, ...] = field(init=False, repr=False)
    _tables: dict[frozenset[Chain], CountTables] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ProblemError(f"the space '{self.name}' has no input shape", hint="Give one, such as (1, 3, 32, 32).")
        slots: list[Slot] = []
        places: list[Place] = []
        if len(self.inputs) > 1:
            slots.append(Slot("resolution", tuple(str(shape[2]) for shape in self.inputs)))
            places.append(Place(slot=0, kind="input"))
        for part in self.parts:
            if isinstance(part, Stage):
                _check_stage(part)
                places.append(Place(slot=len(slots), kind="depth", depths=part.depths))
                slots.append(Slot(f"{part.name}.depth", tuple(map(str, part.depths))))
            for position in part.positions if isinstance(part, Stage) else (part,):
                if isinstance(position, Choice):
                    kind = "layer" if isinstance(part, Stage) else "choice"
                    places.append(Place(slot=len(slots), kind=kind, blocks=tuple(position.blocks.values())))
                    slots.append(Slot(position.name, tuple(position.blocks)))
                else:
                    places.append(Place(slot=-1, kind="choice", blocks=(position,)))
        object.__setattr__(self, "space", Space(tuple(slots)))
        object.__setattr__(self, "_places", tuple(places))

    def net(self, assignment: Assignment) -> Net:
        """The net of an assignment. ProblemError for an assignment outside the space."""
        self.space.encode([int(choice) for choice in assignment])
        shape, left = self.inputs[0], 0
        trace = Trace((shape,), self.dtype)
        x = trace.input()
        for place in self._places:
            choice = int(assignment[place.slot]) if place.slot >= 0 else 0
            if place.kind == "input":
                trace = Trace((self.inputs[choice],), self.dtype)
                x = trace.input()
            elif place.kind == "depth":
                left = place.depths[choice]
            elif place.kind == "choice" or left > 0:
                x = place.blocks[choice](x)
                left -= 1
        return trace.net(x)

    def tables(self, rules: FusionRules = UNFUSED) -> CountTables:
        """All units and how to count them; made once for each set of rules."""
        if rules.chains not in self._tables:
            self._tables[rules.chains] = tables_of(self.space, self._places, self.inputs, self.dtype, rules)
        return self._tables[rules.chains]

    def units(self) -> tuple[Unit, ...]:
        """All units that occur in some net, an operator each."""
        return self.tables().units


def _check_stage(stage: Stage) -> None:
    if not stage.depths or min(stage.depths) < 0 or max(stage.depths) > len(stage.positions):
        raise ProblemError(
            f"the depths {stage.depths} of stage '{stage.name}' do not fit its {len(stage.positions)} positions",
            hint="Each depth is from 0 to the number of positions.",
        )

"""The base for search spaces whose nets are sequences of blocks, for those that gnomon ships and for users' own.

All units of a sequence are found by visiting each position once for each state in which it can be reached. A state is
everything on which the rest of a net depends: the shape of the value, the number of positions of the stage that are
still to come and, with fusion, the open group that made the value and to which the next block may add layers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, problems_of
from gnomon.spaces.features import Assignment, CountTables, Step, dense
from gnomon.spaces.fuse import UNFUSED, Chain, FusionRules, fuse
from gnomon.spaces.layers import Shape
from gnomon.spaces.unit import Net, Node, Symbol, Trace, Unit

Block = Callable[[Symbol], Symbol]
"""A function that writes the layers of a block: it takes the block's input and returns the block's output."""

BlockLike = Any
"""A `Block`, a `torch.nn.Module`, a class of modules that is called with the number of its input channels, or the path
of an ONNX file.
"""

_MOST_MET = 200_000

Row = tuple[tuple[Unit, int], ...]
"""Complete units, with their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A step of a sequence. Its `kind` says what it decides: the "input" shape, a "depth", a "choice" of blocks, or a
    "layer" of a stage.

    A slot of -1 means that there is no choice. `names` identify the blocks.
    """

    slot: int
    kind: str
    blocks: tuple[Block, ...] = ()
    names: tuple[str, ...] = ()
    depths: tuple[int, ...] = ()

    def write(self, choice: int, x: Symbol) -> Symbol:
        """The output of a block. ProblemError, with the block's name, if the block fails or returns anything but a
        value of the net.
        """
        where = f"{self.names[choice]} for the input shape {x.shape}"
        with problems_of(where):
            output = self.blocks[choice](x)
        if not isinstance(output, Symbol) or output.trace is not x.trace:
            raise ProblemError(
                f"{where} returns a {type(output).__name__} that is not a value of the net",
                hint="Return the output of the block's last layer, or its input.",
            )
        return output


@dataclass(frozen=True, slots=True)
class _State:
    shape: Shape
    left: int
    open: Unit | None


def tables_of(
    space: Space, places: tuple[Place, ...], inputs: tuple[Shape, ...], dtype: str, rules: FusionRules
) -> CountTables:
    """The tables of a sequence of places."""
    walker = _Walker(inputs=inputs, dtype=dtype, rules=rules)
    states = [_State(inputs[0], 0, None)]
    steps: list[Step] = []
    for place in places:
        number: dict[_State, int] = {}
        rows, following = [], []
        for state in states:
            choices = walker.choices(place, state)
            rows.append([row for row, _ in choices])
            following.append([number.setdefault(after, len(number)) for _, after in choices])
        slots = (place.slot,) if place.slot >= 0 else ()
        steps.append(Step(slots=slots, row=np.array(rows, np.int64), next_state=np.array(following, np.int64)))
        states = list(number)
    last = np.array([[walker.number(((state.open, 1),) if state.open else ())] for state in states], np.int64)
    steps.append(Step(slots=(), row=last, next_state=np.zeros_like(last)))
    units, table = dense([dict(row) for row in walker.rows])
    return CountTables(space=space, units=units, steps=tuple(steps), rows=table)


@dataclass(slots=True, kw_only=True)
class _Walker:
    inputs: tuple[Shape, ...]
    dtype: str
    rules: FusionRules
    rows: dict[Row, int] = field(default_factory=lambda: {(): 0})
    walked: dict[tuple[Block, Shape, Unit | None], tuple[int, Shape, Unit | None]] = field(default_factory=dict)
    tried: set[Block] = field(default_factory=set)

    def number(self, row: Row) -> int:
        """The number of a row of counts."""
        return self.rows.setdefault(row, len(self.rows))

    def choices(self, place: Place, state: _State) -> list[tuple[int, _State]]:
        """For each choice, the number of its row and the state after it."""
        if place.kind == "input":
            return [(0, _State(shape, 0, None)) for shape in self.inputs]
        if place.kind == "depth":
            return [(0, _State(state.shape, depth, state.open)) for depth in place.depths]
        if place.kind == "layer" and not state.left:
            return [(0, state)] * len(place.blocks)
        left = max(state.left - 1, 0) if place.kind == "layer" else 0
        behind = []
        for choice in range(len(place.blocks)):
            row, shape, unit = self.block(place, choice, state)
            behind.append((row, _State(shape, left, unit)))
        return behind

    def block(self, place: Place, choice: int, state: _State) -> tuple[int, Shape, Unit | None]:
        """The effect of a block on a state: the number of its row of complete units, and the shape and the open group
        after the block.
        """
        key = (place.blocks[choice], state.shape, state.open)
        if key not in self.walked:
            if len(self.walked) == _MOST_MET:
                raise ProblemError(
                    f"the space is too large: its blocks get more than {_MOST_MET} different inputs",
                    hint="Let fewer shapes reach a position: offer fewer widths, or add blocks of fixed width.",
                )
            self.walked[key] = self._add(place, choice, state)
        return self.walked[key]

    def _net(self, place: Place, choice: int, state: _State) -> Net:
        before = state.open
        trace = Trace((state.shape,) if before is None else before.inputs, self.dtype)
        x = trace.input()
        if before is not None:
            trace.nodes.append(Node(before, tuple(-1 - k for k in range(len(before.inputs)))))
            x = Symbol(trace, 0, state.shape)
        return trace.net(place.write(choice, x))

    def _add(self, place: Place, choice: int, state: _State) -> tuple[int, Shape, Unit | None]:
        net = self._net(place, choice, state)
        block = place.blocks[choice]
        # Gnomon's own blocks depend on their arguments alone.
        tried = block in self.tried or type(block).__module__.startswith("gnomon.spaces.")
        self.tried.add(block)
        if not tried and net != self._net(place, choice, state):
            raise ProblemError(
                f"{place.names[choice]} makes different layers each time it is called",
                hint="Draw random sizes once, outside the block, or offer each size as a choice.",
            )
        _check_read(net)
        fused = fuse(net, self.rules)
        counts = Counter(fused.counts())
        if fused.output < 0 or not self.rules.go_on(fused.nodes[fused.output].unit.kinds):
            # A group that cannot grow is complete, so the state is the shape alone.
            return self.number(tuple(counts.items())), fused.shape(fused.output), None
        last = fused.nodes[fused.output].unit
        counts[last] -= 1
        return self.number(tuple((+counts).items())), last.output, last


def _check_read(net: Net) -> None:
    unread = [net.nodes[index].unit.label for index, readers in enumerate(net.readers()) if not readers]
    if unread:
        raise ProblemError(f"a block does not use the result of {unread[0]}", hint="Use it, or leave the layer out.")


def skip(x: Symbol) -> Symbol:
    """The block that does nothing."""
    return x


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A position with one of several blocks, chosen by name.

    With `again`, the earlier slot with the same name and choices also decides this position, as in a cell group.
    """

    name: str
    blocks: Mapping[str, BlockLike]
    again: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Positions of which only the first ones are used; a slot chooses how many. The choices at unused positions make no
    difference.
    """

    name: str
    depths: tuple[int, ...]
    positions: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSpace:
    """Nets that are sequences of parts: a block that is always used, a `Choice`, or a `Stage` of variable depth.

    If there are several input shapes, the first slot, "resolution", chooses one. A shape is named by its height, or by
    all its dimensions if heights are equal or missing. A block sees the shape of its input and nothing else of the net,
    and must make the same layers in every call. Names are converted to text and stripped of surrounding blanks.
    ProblemError if two positions have the same name, if a block does not use the result of one of its layers, if a
    block's layers change between calls, or if the shapes in any net do not fit.

    `training` says how `gnomon space` trains nets, in the form of a config: {"ss_profiler_cfg": {..}, "gnomon_cfg":
    {..}}.
    """

    name: str
    inputs: tuple[Shape, ...]
    parts: tuple[BlockLike | Choice | Stage, ...]
    dtype: str = "float32"
    training: Mapping[str, Any] = field(default_factory=dict)
    space: Space = field(init=False)
    _places: tuple[Place, ...] = field(init=False, repr=False)
    _tables: dict[frozenset[Chain], CountTables] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ProblemError(f"the space '{self.name}' has no input shape", hint="Give a shape: (1, 3, 32, 32).")
        try:
            object.__setattr__(self, "inputs", tuple(tuple(shape) for shape in self.inputs))
        except TypeError:
            raise ProblemError(
                f"the inputs of the space '{self.name}' are {self.inputs!r}, not a list of shapes",
                hint="Give a list of shapes, even if there is only one: inputs=((1, 3, 32, 32),).",
            ) from None
        slots: list[Slot] = []
        places: list[Place] = []
        if len(self.inputs) > 1:
            slots.append(Slot("resolution", _resolutions(self.inputs)))
            places.append(Place(slot=0, kind="input"))
        for number, part in enumerate(self.parts, start=1):
            if isinstance(part, Stage):
                _check_stage(part)
                places.append(Place(slot=len(slots), kind="depth", depths=part.depths))
                slots.append(Slot(f"{part.name}.depth", tuple(map(str, part.depths))))
            for position in part.positions if isinstance(part, Stage) else (part,):
                if isinstance(position, Choice):
                    kind = "layer" if isinstance(part, Stage) else "choice"
                    # Names have the form in which they are read from a csv.
                    slot = Slot(str(position.name).strip(), tuple(str(name).strip() for name in position.blocks))
                    blocks = tuple(map(block_of, position.blocks.values()))
                    names = tuple(f"{slot.name}={choice}" for choice in slot.choices)
                    if not (position.again and slot in slots):
                        slots.append(slot)
                    places.append(Place(slot=slots.index(slot), kind=kind, blocks=blocks, names=names))
                else:
                    names = (f"part {number} of the space '{self.name}'",)
                    places.append(Place(slot=-1, kind="choice", blocks=(block_of(position),), names=names))
        object.__setattr__(self, "space", Space(tuple(slots)))
        object.__setattr__(self, "_places", tuple(places))

    def net(self, assignment: Assignment) -> Net:
        """The net of an assignment. ProblemError for an assignment outside the space."""
        return self.written(assignment, Place.write)[0]

    def written(self, assignment: Assignment, write: Callable[[Place, int, Symbol], Symbol]) -> tuple[Net, list[str]]:
        """The net of an assignment, and for each node the name of the choice that made it; `write` writes each choice.

        ProblemError for an assignment outside the space.
        """
        self.space.encode([int(choice) for choice in assignment])
        shape, left = self.inputs[0], 0
        trace, owners = Trace((shape,), self.dtype), list[str]()
        x = trace.input()
        for place in self._places:
            choice = int(assignment[place.slot]) if place.slot >= 0 else 0
            if place.kind == "input":
                trace = Trace((self.inputs[choice],), self.dtype)
                x = trace.input()
            elif place.kind == "depth":
                left = place.depths[choice]
            elif place.kind == "choice" or left > 0:
                x = write(place, choice, x)
                owners += [place.names[choice]] * (len(trace.nodes) - len(owners))
                left -= 1
        return trace.net(x), owners

    def block(self, name: str) -> Block:
        """The block of a choice by the name that `written` gives it. ProblemError for an unknown name."""
        blocks = {own: block for place in self._places for own, block in zip(place.names, place.blocks, strict=True)}
        if name not in blocks:
            raise ProblemError(f"the space '{self.name}' has no block {name!r}", hint="Give the unchanged space.")
        return blocks[name]

    def tables(self, rules: FusionRules = UNFUSED) -> CountTables:
        """All units and how to count them. The tables for each set of rules are made only once."""
        if rules.chains not in self._tables:
            self._tables[rules.chains] = tables_of(self.space, self._places, self.inputs, self.dtype, rules)
        return self._tables[rules.chains]


def block_of(given: BlockLike) -> Block:
    """The function that writes the layers of a block. ProblemError for anything that is not a block."""
    from gnomon.spaces.sources import Source, is_module  # needed only for users' own spaces

    return given if callable(given) and not is_module(given) else Source(given)


def from_torch(
    slots: Mapping[str, Mapping[str, Any]],
    *,
    input: Shape | Sequence[Shape],
    stem: Any = None,
    head: Any = None,
    name: str = "space",
    training: Mapping[str, Any] | None = None,
) -> BlockSpace:
    """A space of PyTorch modules: the choices of each slot by name, with the slots in the order in which they run.

    Each choice, the `stem` before the slots and the `head` after them is a `torch.nn.Module`, a function that makes a
    module from the number of its input channels, the path of an ONNX file, or `skip`, which does nothing. `input` is a
    shape with its batch, such as (1, 3, 32, 32), or several shapes, from which the slot "resolution" chooses. For
    `training`, and for errors, see `BlockSpace`.
    """
    shapes: tuple[Any, ...] = (input,) if isinstance(input[0], int) else tuple(input)
    choices = (Choice(slot, {choice: _block(b) for choice, b in blocks.items()}) for slot, blocks in slots.items())
    ends = [() if end is None else (_block(end),) for end in (stem, head)]
    parts = (*ends[0], *choices, *ends[1])
    return BlockSpace(name=name, inputs=shapes, parts=parts, training=training or {})


def _block(given: Any) -> Block:
    from gnomon.spaces.sources import Source

    return given if given is skip or isinstance(given, Source) else Source(given)


def from_onnx(folder: str | os.PathLike[str], *, input: Shape | Sequence[Shape]) -> BlockSpace:
    """A space of ONNX files named SLOT.CHOICE.onnx, with the slots in the order of their names.

    `stem.onnx` and `head.onnx` come before and after the slots; `input` is as in `from_torch`. ProblemError if no file
    is named SLOT.CHOICE.onnx.
    """
    slots: dict[str, dict[str, Path]] = {}
    ends: dict[str, Path] = {}
    for path in sorted(Path(folder).glob("*.onnx")):
        slot, _, choice = path.stem.partition(".")
        if choice:
            slots.setdefault(slot, {})[choice] = path
        elif slot in ("stem", "head"):
            ends[slot] = path
    if not slots:
        raise ProblemError(f"{folder} holds no blocks of a space", hint="Name the files SLOT.CHOICE.onnx.")
    stem, head = ends.get("stem"), ends.get("head")
    return from_torch(slots, input=input, stem=stem, head=head, name=Path(folder).resolve().name)


def _resolutions(shapes: tuple[Shape, ...]) -> tuple[str, ...]:
    """The names of input shapes."""
    heights = tuple(str(shape[2]) for shape in shapes if len(shape) > 2)
    return heights if len(set(heights)) == len(shapes) else tuple("x".join(map(str, shape)) for shape in shapes)


def _check_stage(stage: Stage) -> None:
    if not stage.depths or min(stage.depths) < 0 or max(stage.depths) > len(stage.positions):
        raise ProblemError(
            f"the depths {stage.depths} of stage '{stage.name}' do not fit its {len(stage.positions)} positions",
            hint="Give depths from 0 to the number of positions.",
        )

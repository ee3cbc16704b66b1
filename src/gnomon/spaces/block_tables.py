"""All units of a row of blocks, found by walking each position once for each state in which it can be reached.

The state is all that the rest of a net depends on: the shape that arrives, how many positions of the stage are still
used, and, under fusion, the open group that made the value, which the next block may go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gnomon.core.space import Space
from gnomon.errors import ProblemError
from gnomon.spaces.features import CountTables, Step, dense
from gnomon.spaces.fuse import FusionRules, fuse
from gnomon.spaces.layers import Shape
from gnomon.spaces.net import Net, Node
from gnomon.spaces.symbol import Symbol, Trace
from gnomon.spaces.unit import Unit

Block = Callable[[Symbol], Symbol]
Row = tuple[tuple[Unit, int], ...]
"""Units that are complete, with their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A step of a row: an "input" shape, a "depth", a "choice" of blocks, or a "layer" of a stage; slot -1: fixed."""

    slot: int
    kind: str
    blocks: tuple[Block, ...] = ()
    depths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _State:
    shape: Shape
    left: int
    open: Unit | None


def tables_of(
    space: Space, places: tuple[Place, ...], inputs: tuple[Shape, ...], dtype: str, rules: FusionRules
) -> CountTables:
    """The tables of a row of places."""
    walker = _Walker(inputs=inputs, dtype=dtype, rules=rules)
    states = [_State(inputs[0], 0, None)]
    steps: list[Step] = []
    for place in places:
        number: dict[_State, int] = {}
        rows, following = [], []
        for state in states:
            found = walker.choices(place, state)
            rows.append([row for row, _ in found])
            following.append([number.setdefault(after, len(number)) for _, after in found])
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
    known: dict[tuple[Block, Shape, Unit | None], tuple[int, Shape, Unit | None]] = field(default_factory=dict)

    def number(self, row: Row) -> int:
        """The number of a row of counts."""
        return self.rows.setdefault(row, len(self.rows))

    def choices(self, place: Place, state: _State) -> list[tuple[int, _State]]:
        """For each choice the number of its row and the state behind it."""
        if place.kind == "input":
            return [(0, _State(shape, 0, None)) for shape in self.inputs]
        if place.kind == "depth":
            return [(0, _State(state.shape, depth, state.open)) for depth in place.depths]
        if place.kind == "layer" and not state.left:
            return [(0, state)] * len(place.blocks)
        left = max(state.left - 1, 0) if place.kind == "layer" else 0
        found = []
        for block in place.blocks:
            row, shape, unit = self.block(block, state.shape, state.open)
            found.append((row, _State(shape, left, unit)))
        return found

    def block(self, block: Block, shape: Shape, before: Unit | None) -> tuple[int, Shape, Unit | None]:
        """What a block adds behind an open group: the row of complete units, the shape, the open group now."""
        key = (block, shape, before)
        if key not in self.known:
            self.known[key] = self._add(block, shape, before)
        return self.known[key]

    def _add(self, block: Block, shape: Shape, before: Unit | None) -> tuple[int, Shape, Unit | None]:
        trace = Trace((shape,) if before is None else before.inputs, self.dtype)
        x = trace.input()
        if before is not None:
            trace.nodes.append(Node(before, tuple(-1 - k for k in range(len(before.inputs)))))
            x = Symbol(trace, 0, shape)
        net = trace.net(block(x))
        _check_read(net)
        fused = fuse(net, self.rules)
        counts = Counter(node.unit for node in fused.nodes)
        if fused.output < 0 or not self.rules.go_on(fused.nodes[fused.output].unit.kinds):
            # What cannot grow is complete, so that the state is the shape alone.
            return self.number(tuple(counts.items())), fused.shape(fused.output), None
        last = fused.nodes[fused.output].unit
        counts[last] -= 1
        return self.number(tuple((+counts).items())), last.output, last


def _check_read(net: Net) -> None:
    unread = [net.nodes[index].unit.label for index, readers in enumerate(net.readers()) if not readers]
    if unread:
        raise ProblemError(f"a block computes what nothing reads: {unread[0]}", hint="Use it, or leave it out.")

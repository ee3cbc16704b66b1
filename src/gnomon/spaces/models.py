"""Given models as a search space: one slot that says which of them.

So a latency table of models is a table like any other, and what it has prices other models too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnomon.core.space import Slot, Space
from gnomon.spaces.features import Assignment, CountTables, Step, dense
from gnomon.spaces.fuse import FusionRules, fuse
from gnomon.spaces.unit import Net

NAME = "models"
"""What tables of models name as their space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A user's own file, the `shapes` of inputs that it leaves open, and the numbers of its net's nodes by operator.

    `left_out` are how many of its operators are in no unit.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, int]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSpace:
    """A space whose nets are the given ones, by their names; `files` are those of the nets that were read, likewise.

    `format` is that of all the models.
    """

    nets: Mapping[str, Net]
    name: str = NAME
    format: str = "onnx"
    files: Mapping[str, ModelFile] = field(default_factory=dict)

    @property
    def space(self) -> Space:
        """The slot of models."""
        return Space((Slot("model", tuple(self.nets)),))

    def net(self, assignment: Assignment) -> Net:
        """The net of a model."""
        return self.nets[self.space.names([int(choice) for choice in assignment])[0]]

    def tables(self, rules: FusionRules) -> CountTables:
        """All units of the models, counted."""
        units, rows = dense([fuse(net, rules).counts() for net in self.nets.values()])
        each = np.arange(len(self.nets), dtype=np.int64)[None]
        step = Step(slots=(0,), row=each, next_state=np.zeros_like(each))
        return CountTables(space=self.space, units=units, steps=(step,), rows=rows)

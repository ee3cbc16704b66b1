"""A search space of models, with a single slot that chooses the model.

This makes a latency table of models an ordinary table, whose prices also apply to other models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.spaces.features import Assignment, CountTables, Step, dense
from gnomon.spaces.fuse import FusionRules, fuse
from gnomon.spaces.unit import VIEWS, Net, Unit

NAME = "models"
"""The name of the space in tables of models."""


def format_of(units: Iterable[Unit]) -> str:
    """The format of the models that contain the units, "tflite" or "onnx". UsageError for a mixture of both."""
    flat = {kind.startswith("tflite.") for unit in units for kind in unit.kinds if kind not in VIEWS}
    if len(flat) > 1:
        raise UsageError(
            "units of TFLite models and units of other models cannot be in one table",
            hint="Build a table from models of one format: gnomon table build --from MODEL..",
        )
    return "tflite" if True in flat else "onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A user's own file, with shapes for its open inputs and, for each operator, the number of its node in the net.

    `left_out` is the number of operators that are in no unit.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, int]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSpace:
    """A space whose nets are given by name; `files` holds the files from which nets were read, under the same names."""

    nets: Mapping[str, Net]
    name: str = NAME
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

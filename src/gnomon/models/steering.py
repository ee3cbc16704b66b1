"""The inputs whose values decide how much work a model does.

If all shapes are known, a call usually takes about the same time for any inputs. That is not so if values choose a
branch, count the rounds of a loop, select boxes, or determine the shape of a tensor: random inputs then decide what is
measured. Such inputs are found by walking back from the operators that decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gnomon.core.graph import Graph
from gnomon.models.model import is_known

_CHOICES = {
    **dict.fromkeys(("If", "IF"), ("which branch of an If is taken", slice(1))),
    "Loop": ("how often a Loop repeats", slice(2)),
    "WHILE": ("how often a WHILE repeats", slice(None)),
    **dict.fromkeys(
        ("NonMaxSuppression", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "TFLite_Detection_PostProcess"),
        ("what non-maximum suppression selects", slice(None)),
    ),
}
"""For each operator whose work depends on values even if all shapes are known: the decision, and the operands that make
it.
"""
_FINDS = frozenset({"NonZero", "Unique", "WHERE", "UNIQUE", "Range", "RANGE", "ConstantOfShape", "FILL"})
"""Operators whose output size depends on the values of all their operands."""
SIZED = frozenset(
    {
        *("Reshape", "Expand", "Slice", "Tile", "Pad", "Resize", "Upsample", "TopK", "OneHot", "Compress", "Split"),
        *("CenterCropPad", "Col2Im", "AffineGrid", "MaxUnpool", "STFT", "SplitToSequence", "Broadcast", "StridedSlice"),
        *("RESHAPE", "SLICE", "STRIDED_SLICE", "TILE", "PAD", "PADV2", "TOPK_V2", "ONE_HOT", "BROADCAST_TO", "SPLIT_V"),
        *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
    }
)
"""Operators whose output size depends on the values of the operands after the first."""
OF_SHAPES = frozenset({"Shape", "Size", "ShapeOf", "SHAPE", "RANK"})
"""Operators whose results do not depend on values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator: the tensors that it `reads`, in the order of its operands, and those that it `writes`.

    `fixed` says whether the shape of its result is fixed. `inner` holds the results of its bodies; for a Loop, the
    condition comes first.
    """

    type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    fixed: bool = False
    inner: tuple[str, ...] = ()

    @property
    def decided(self) -> tuple[str, tuple[str, ...]] | None:
        """The decision that values make, and the tensors that hold these values; None if the work
        is always the same.
        """
        if self.type in _CHOICES:
            what, places = _CHOICES[self.type]
            return what, self.reads[places] + (self.inner[:1] if self.type == "Loop" else ())
        if self.fixed or self.type not in _FINDS | SIZED:
            return None
        return f"the output size of {self.type}", self.reads if self.type in _FINDS else self.reads[1:]


def graph_steps(graph: Graph) -> Iterator[Step]:
    """The operators of a graph, but not the operators in their bodies. Of the tensors that a WHILE passes on, only
    single numbers that are not floats count.
    """
    for operator in graph.operators:
        read = [graph.tensors[index] for index in operator.inputs]
        written = [graph.tensors[index] for index in operator.outputs]
        counted = [t for t in read if operator.type != "WHILE" or ((t.size_bytes or 9) <= 8 and t.dtype[:5] != "float")]
        yield Step(
            type=operator.type,
            reads=tuple(tensor.name for tensor in counted),
            writes=tuple(tensor.name for tensor in written),
            fixed=all(map(is_known, written[:1])),
            inner=tuple(tensor.name for tensor in read),
        )


def steered_by(steps: Iterable[Step], inputs: Iterable[str]) -> dict[str, list[str]]:
    """The inputs whose values decide how much work the model does, each with the decisions that its values make."""
    made_of: dict[str, tuple[str, ...]] = {}
    seeds: dict[str, set[str]] = {}
    for step in steps:
        if step.type not in OF_SHAPES:
            made_of |= {name: made_of.get(name, ()) + step.reads + step.inner for name in step.writes}
        if step.decided:
            seeds.setdefault(step.decided[0], set()).update(step.decided[1])
    decides: dict[str, list[str]] = {}
    for what, names in seeds.items():
        left, seen = list(names), set(names)
        while left:
            fresh = set(made_of.get(left.pop(), ())) - seen
            seen |= fresh
            left += fresh
        for name in (name for name in inputs if name in seen):
            decides.setdefault(name, []).append(what)
    return decides

"""Spaces of blocks as data: the record of a user's own space that tables and estimators keep.

A block is kept as its nets for all shapes that reach it. The space that is read back counts and writes the same nets,
without running the Python code of its blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from gnomon.core.codec import ReadBy, read_json, within
from gnomon.core.strict_json import Strict
from gnomon.errors import ProblemError
from gnomon.spaces.blocks import BlockLike, BlockSpace, Choice, Stage, block_of
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.layers import MOST_LONG, Shape
from gnomon.spaces.loading import SearchSpace, known_spaces, load_space
from gnomon.spaces.numbers import FORMAT as NUMBERS
from gnomon.spaces.numbers import NumberSpace
from gnomon.spaces.unit import Net, Node, Symbol, Trace, Unit, unit_of

_AGAIN = "Build the table again, or fit the estimator again."

_Number = Annotated[int, within(0, MOST_LONG, "a number from 0")]
_Shape = tuple[Annotated[int, within(1, MOST_LONG, "a positive whole number")], ...]


def _layer_of(value: object) -> Unit:
    unit = unit_of(value)
    if len(unit.layers) != 1 or unit.kinds == ("Module",):  # a module's origin is Python code that would be run
        raise ProblemError("a single layer expected, which must not be a module")
    return unit


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRecord:
    """The net of a block for an input shape.

    Each of `nodes` is the number of a layer and the inputs of a `Node`.
    """

    shape: _Shape
    nodes: tuple[tuple[_Number, tuple[int, ...]], ...]
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRecord:
    """The indices of each choice's nets; without a slot, the only block is always used."""

    slot: str | None
    again: bool
    choices: Mapping[str, tuple[_Number, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """A stage, or a position outside stages."""

    stage: str | None
    depths: tuple[int, ...]
    positions: tuple[PositionRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceRecord:
    """A `BlockSpace` without its training. `layers` are units of one layer."""

    format: Literal["gnomon-space"]
    version: Literal[1]
    name: str
    inputs: tuple[_Shape, ...]
    dtype: str
    parts: tuple[PartRecord, ...]
    nets: tuple[NetRecord, ...]
    layers: tuple[Annotated[Unit, ReadBy(read=_layer_of)], ...]


def remembered(space: SearchSpace) -> dict[str, object] | None:
    """The JSON values of a space whose tables can be made; `read_space` reads them.

    None for a shipped space, whose name is enough, and for a space that only its Python code describes.
    """
    if isinstance(space, NumberSpace):
        return asdict(space)
    shipped = space.name in known_spaces() and load_space(space.name) is space
    if shipped or type(space) is not BlockSpace:
        return None
    learnt = replace(space, parts=tuple(map(_learning, space.parts)))
    learnt.tables(UNFUSED)  # calls every block with every shape that can reach it
    layers: dict[Unit, int] = {}
    nets: dict[Net, int] = {}

    def position(part: Any) -> dict[str, object]:
        is_slot = isinstance(part, Choice)
        blocks = part.blocks if is_slot else {"": part}
        own = {name: [nets.setdefault(net, len(nets)) for net in block.nets.values()] for name, block in blocks.items()}
        return {"slot": part.name if is_slot else None, "again": is_slot and part.again, "choices": own}

    def written(part: Any) -> dict[str, object]:
        if isinstance(part, Stage):
            positions = list(map(position, part.positions))
            return {"stage": part.name, "depths": list(part.depths), "positions": positions}
        return {"stage": None, "depths": [], "positions": [position(part)]}

    def fragment(net: Net) -> dict[str, object]:
        nodes = [[layers.setdefault(node.unit, len(layers)), list(node.inputs)] for node in net.nodes]
        return {"shape": list(net.inputs[0]), "nodes": nodes, "output": net.output}

    return {
        "format": "gnomon-space",
        "version": 1,
        "name": space.name,
        "inputs": [list(shape) for shape in space.inputs],
        "dtype": space.dtype,
        "parts": list(map(written, learnt.parts)),
        "nets": list(map(fragment, nets)),
        "layers": [layer.document() for layer in layers],
    }


def read_space(value: Any, file: Strict) -> SearchSpace:
    """The space that `remembered` wrote, from a file's JSON text or from its value. ProblemError with all faults."""
    if isinstance(value, Mapping) and value.get("format") == NUMBERS:
        return read_json(NumberSpace, value, file)
    read = read_json(SpaceRecord, value, file)
    try:
        nets = []
        for record in read.nets:
            nodes = tuple(Node(read.layers[layer], inputs) for layer, inputs in record.nodes)
            nets.append(Net(inputs=(record.shape,), nodes=nodes, output=record.output))
        parts = tuple(_part(part, nets) for part in read.parts)
        return BlockSpace(name=read.name, inputs=read.inputs, parts=parts, dtype=read.dtype)
    except (IndexError, ValueError):
        file.fail("$", "it refers to a part, a net or a layer that is missing or not valid")
    except ProblemError as error:
        file.fail("$", error.message)


@dataclass(frozen=True, slots=True, eq=False)
class _KeptBlock:
    """A block as its net for each input shape. If `block` is set, it makes the nets for further shapes, and they are
    kept too.
    """

    nets: dict[Shape, Net]
    block: Any = None

    def __call__(self, x: Symbol) -> Symbol:
        if x.shape not in self.nets:
            if self.block is None:
                raise ProblemError(f"the space is damaged: a block has no net for input shape {x.shape}", hint=_AGAIN)
            trace = Trace((x.shape,), x.trace.dtype)
            self.nets[x.shape] = trace.net(self.block(trace.input()))
        return x.trace.written(self.nets[x.shape], x)


def _learning(part: BlockLike | Choice | Stage) -> Any:
    """A part whose blocks keep the nets that they make."""
    if isinstance(part, Stage):
        return replace(part, positions=tuple(map(_learning, part.positions)))
    if isinstance(part, Choice):
        return replace(part, blocks={name: _learning(block) for name, block in part.blocks.items()})
    return _KeptBlock({}, block_of(part))


def _part(read: PartRecord, nets: list[Net]) -> Any:
    """A part made from its record. ValueError if the record is not valid."""
    positions = []
    for position in read.positions:
        blocks = {name: _KeptBlock({nets[k].inputs[0]: nets[k] for k in own}) for name, own in position.choices.items()}
        (always,) = blocks.values() if position.slot is None else [None]
        positions.append(always or Choice(str(position.slot), blocks, again=position.again))
    if read.stage is not None:
        return Stage(read.stage, read.depths, tuple[Any, ...](positions))
    (only,) = positions
    return only

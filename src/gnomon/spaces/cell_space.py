"""Search spaces of cell groups: every layer of a group is the same primitive, and each group chooses its own.

The layout is that of published base networks (aw_nas, ssprofile): one block a layer, of stride 2 where its group
reduces, then the mean over height and width, then a linear layer without a bias. The width of each layer is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.spaces.block_tables import Place, tables_of
from gnomon.spaces.features import Assignment, CountTables
from gnomon.spaces.fuse import UNFUSED, Chain, FusionRules
from gnomon.spaces.net import Net
from gnomon.spaces.primitives import Primitive
from gnomon.spaces.symbol import Symbol, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLayout:
    """What all networks of a space have in common.

    `input_shape` is (batch, channels, height, width). Layer l belongs to the cell group `groups[l]` and makes
    `widths[l]` channels; it has stride 2 if its group is one of `reduces`. ProblemError for groups that are not
    numbered 0, 1, .. without a gap, and for what does not fit together.
    """

    input_shape: tuple[int, int, int, int]
    groups: tuple[int, ...]
    widths: tuple[int, ...]
    reduces: frozenset[int]
    classes: int

    def __post_init__(self) -> None:
        if not self.groups or len(self.groups) != len(self.widths):
            raise ProblemError(
                f"{len(self.groups)} layers have a cell group, and {len(self.widths)} a width",
                hint="Give each layer a cell group and a width.",
            )
        if set(self.groups) != set(range(max(self.groups) + 1)):
            raise ProblemError("cell groups are not numbered 0, 1, .. without a gap", hint="Correct the cell layout.")
        if self.classes < 1 or min(self.widths) < 1:
            raise ProblemError("a width or the number of classes is below 1", hint="Give positive whole numbers.")

    @property
    def group_count(self) -> int:
        """The number of cell groups."""
        return max(self.groups) + 1

    def stride(self, layer: int) -> int:
        """The stride of a layer."""
        return 2 if self.groups[layer] in self.reduces else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedNet:
    """A net and the tag of each of its nodes: "l3/Mobileblock_2/4" is the fifth node of that primitive at layer 3.

    "head/0", "head/1" are what stands behind the last layer. Nets of one space share what has one tag.
    """

    net: Net
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.tags) != len(self.net.nodes) or len(set(self.tags)) != len(self.tags):
            raise ProblemError("a net needs one tag a node, each another", hint="Tag it anew.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellSpace:
    """All networks of a layout: a slot a cell group ("cell0", ..), a choice a primitive by its name.

    `choices` are the primitives that each group can be made of. A `SearchSpace`. ProblemError where a name stands for
    two primitives, and of `net` and `tables` where a block does not fit its place.
    """

    name: str
    layout: CellLayout
    choices: tuple[tuple[Primitive, ...], ...]
    space: Space = field(init=False)
    _tables: dict[frozenset[Chain], CountTables] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.choices) != self.layout.group_count or not all(self.choices):
            raise ProblemError(
                f"{len(self.choices)} lists of primitives for {self.layout.group_count} cell groups",
                hint="Give each cell group at least one primitive.",
            )
        known: dict[str, Primitive] = {}
        for one in (one for group in self.choices for one in group):
            if known.setdefault(one.name, one) != one:
                raise ProblemError(f"{one.name} stands for two primitives", hint="Give one of them another number.")
        slots = tuple(Slot(f"cell{g}", tuple(one.name for one in ones)) for g, ones in enumerate(self.choices))
        object.__setattr__(self, "space", Space(slots))

    def net(self, assignment: Assignment) -> Net:
        """The network of an assignment, an operator a node. ProblemError for an assignment outside the space."""
        return self.tagged(assignment).net

    def tagged(self, assignment: Assignment) -> TaggedNet:
        """The network of an assignment, with the tag of each node."""
        self.space.encode([int(choice) for choice in assignment])
        return tagged_net(self.layout, [ones[int(k)] for ones, k in zip(self.choices, assignment, strict=True)])

    def tables(self, rules: FusionRules = UNFUSED) -> CountTables:
        """All units and how to count them; made once for each set of rules."""
        if rules.chains not in self._tables:
            self._tables[rules.chains] = tables_of(
                self.space, tuple(self._places()), (self.layout.input_shape,), "float32", rules
            )
        return self._tables[rules.chains]

    def _places(self) -> Iterator[Place]:
        for layer, group in enumerate(self.layout.groups):
            blocks = tuple(_bound(one, self.layout, layer) for one in self.choices[group])
            yield Place(slot=group, kind="choice", blocks=blocks)
        yield Place(slot=-1, kind="choice", blocks=(lambda x: _head(x, self.layout.classes),))


def tagged_net(layout: CellLayout, primitives: Sequence[Primitive]) -> TaggedNet:
    """The network that has this primitive in each cell group. ProblemError where a block does not fit its place."""
    if len(primitives) != layout.group_count:
        raise ProblemError(
            f"{len(primitives)} primitives for {layout.group_count} cell groups", hint="Give one a cell group."
        )
    trace = Trace((layout.input_shape,))
    x, tags = trace.input(), list[str]()
    for layer, group in enumerate(layout.groups):
        one = primitives[group]
        x = _bound(one, layout, layer)(x)
        _tag(tags, trace, f"l{layer}/{one.name}")
    x = _head(x, layout.classes)
    _tag(tags, trace, "head")
    return TaggedNet(net=trace.net(x), tags=tuple(tags))


def swaps(defaults: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The default assignment, then each that differs in one slot: 1 + sum(counts - 1) assignments, slot by slot."""
    yield tuple(defaults)
    for slot, count in enumerate(counts):
        for choice in range(count):
            if choice != defaults[slot]:
                yield (*defaults[:slot], choice, *defaults[slot + 1 :])


def network_id(family: str, assignment: Sequence[int]) -> str:
    """The published name of a network of one family: "Mobile_1_1_3_1_1", indices in the family's list."""
    return "_".join((family, *map(str, assignment)))


def mixed_id(names: Sequence[str]) -> str:
    """The name of a network of any primitives, one a cell group: "Mobileblock_1+VGGblock_3+.."."""
    return "+".join(names)


def _bound(one: Primitive, layout: CellLayout, layer: int) -> _Bound:
    return _Bound(one, layout.widths[layer], layout.stride(layer))


@dataclass(frozen=True, slots=True)
class _Bound:
    """A primitive at a place; equal where it makes the same, so that tables walk it once."""

    primitive: Primitive
    channels: int
    stride: int

    def __call__(self, x: Symbol) -> Symbol:
        y = self.primitive.block(x, self.channels, self.stride)
        height, width = (-(-n // self.stride) for n in x.shape[2:])
        if (
            y.trace is not x.trace
            or y.shape[1] != self.channels
            or any(made not in (n, n - (n > 1)) for made, n in zip(y.shape[2:], (height, width), strict=True))
        ):
            raise ProblemError(
                f"{self.primitive.name} makes {y.shape} of {x.shape}, where {self.channels} channels of about "
                f"{height}x{width} are wanted",
                hint="A block makes the width that it is asked for, and divides height and width by its stride.",
            )
        return y


def _head(x: Symbol, classes: int) -> Symbol:
    return x.global_average_pool().linear(classes, bias=False)


def _tag(tags: list[str], trace: Trace, owner: str) -> None:
    """Tag the nodes that were added since the last call."""
    tags += [f"{owner}/{k}" for k in range(len(trace.nodes) - len(tags))]

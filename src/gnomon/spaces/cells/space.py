"""Search spaces of cell groups: every layer of a group is the same primitive, and each group chooses its own.

The layout is that of published base networks (aw_nas, ssprofile): one block in each layer, with stride 2 if its group
reduces, then the mean over height and width, then a linear layer without a bias. The width of each layer is fixed. A
stem may come before the layers, and another head may replace the mean and the linear layer. Each node of a network has
a tag, and networks of the same space share the trained weights of nodes with equal tags.

Primitives are the published ones, those of packages (by entry-point group), and those of a user's files. A file has a
list `primitives`, or a function of that name that returns such a list::

    from gnomon.spaces.cells.primitives import Primitive

    def wide(x, channels, stride):
        y = x.conv(2 * channels, 1).batch_norm().relu()
        return y.conv(channels, 3, stride=stride).batch_norm().relu()

    primitives = [Primitive(family="Wide", number=0, block=wide, meaning="1x1, 3x3")]

A single primitive can also be given as ``file.py:function`` or ``package.module:function``; this function makes a
PyTorch module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.plugins import entry_points, loaded
from gnomon.spaces.cells.primitives import ModuleFactory, Primitive, parse_name, published_primitives
from gnomon.spaces.loading import called, load_attribute, reason, users_line
from gnomon.spaces.unit import Net, Symbol, Trace, layer_name

State = Mapping[str, NDArray[Any]]
"""Parameters by name, as in the `state_dict` of the network's module: "l3.Mobileblock_2.0.weight" is the weight of the
node with the tag "l3/Mobileblock_2/0". Weights of convolutions are (out, in / group, height, width), and weights of
linear layers are (out, in).
"""

PARTS: dict[str, dict[str, str]] = {
    "Conv": {"weight": "w", "bias": "b"},
    "Linear": {"weight": "w", "bias": "b"},
    "LayerNormalization": {"weight": "scale", "bias": "bias"},
    "BatchNormalization": {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"},
}
"""For each kind of layer with parameters: each parameter's name in PyTorch, and its name in a model file."""

_COUNTER = "num_batches_tracked"
"""A counter in PyTorch's batch normalisations, which model files do not have."""

GROUP = "gnomon.primitives"
_ATTRIBUTE = "primitives"
_PUBLISHED = "the published ones"
_MOST = 10_000
_HINT = (
    "A block is a function of a Symbol, its output channels and its stride, and returns a Symbol. A module is made by "
    "a function of its input channels, its output channels and its stride."
)
_NAMED = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_][A-Za-z0-9_]*)", re.ASCII)

Bind = Callable[[Primitive, str], Primitive]
"""A function that returns a primitive with the block of its module; the text is the primitive's origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLayout:
    """The layout that all networks of a space have in common.

    `input_shape` is (batch, channels, height, width). Layer l belongs to the cell group `groups[l]` and has `widths[l]`
    output channels and, if its group is one of `reduces`, stride 2. `stem` writes the layers before the groups, and
    `head` writes the layers that make one score for each class from the last output. Without a `head`, these layers are
    the mean over height and width, and a linear layer without a bias. Groups are numbered 0, 1, .. without a gap.
    """

    input_shape: tuple[int, int, int, int]
    groups: tuple[int, ...]
    widths: tuple[int, ...]
    reduces: frozenset[int]
    classes: int
    stem: Callable[[Symbol], Symbol] | None = None
    head: Callable[[Symbol], Symbol] | None = None

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

    Nodes after the last layer have the tags "head/0", "head/1" and so on; nodes before the first layer have "stem/0"
    and so on. Nets of one space share the parameters of nodes with the same tag.
    """

    net: Net
    tags: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the blocks that are PyTorch modules. Only PyTorch's exporter can write a net
        with such blocks.
        """
        names = (op["block"] for node in self.net.nodes for op in node.unit.layers if op.kind == "Module")
        return tuple(dict.fromkeys(map(str, names)))


def tagged_net(layout: CellLayout, primitives: Sequence[Primitive]) -> TaggedNet:
    """The network that has these primitives in its cell groups. ProblemError if a block does not fit its place."""
    trace = Trace((layout.input_shape,))
    x, tags = trace.input(), list[str]()
    if layout.stem is not None:
        x = layout.stem(x)
        _tag(tags, trace, "stem")
    for layer, group in enumerate(layout.groups):
        primitive = primitives[group]
        try:
            x = _placed(primitive, x, layout.widths[layer], layout.stride(layer))
        except ProblemError as error:
            if layout.stride(layer) == 1 or min(x.shape[2:4]) > 1:
                raise
            raise ProblemError(
                f"layer {layer} of cell group {group} halves an image of {x.shape[2]}x{x.shape[3]}: {error.message}",
                hint="Let fewer groups halve the image (search_space_cfg.reduce_cell_groups), or give larger images.",
            ) from error
        _tag(tags, trace, f"l{layer}/{primitive.name}")
    x = write_head(x, layout)
    _tag(tags, trace, "head")
    return TaggedNet(net=trace.net(x), tags=tuple(tags))


def swaps(defaults: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The default assignment, then all assignments that differ from it in one slot, slot by slot: in all, 1 +
    sum(counts - 1).
    """
    yield tuple(defaults)
    for slot, count in enumerate(counts):
        for choice in range(count):
            if choice != defaults[slot]:
                yield (*defaults[:slot], choice, *defaults[slot + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class CostedNetwork:
    """A network and its cost by a rule."""

    id: str
    cost: float


def network_id(family: str, assignment: Sequence[int]) -> str:
    """The published name of a network of one family, such as "Mobile_1_1_3_1_1", with indices in the family's list."""
    return "_".join((family, *map(str, assignment)))


def parse_id(name: str, groups: int) -> tuple[str, tuple[int, ...]]:
    """The family and the assignment in a published name of a network with this number of cell groups. ProblemError for
    any other name.
    """
    family, *places = name.rsplit("_", groups)
    assignment = tuple(int(place) for place in places if place.isascii() and place.isdigit() and len(place) < 7)
    if not family or len(assignment) != groups or network_id(family, assignment) != name:
        raise ProblemError(
            f"{name[:60]!r} is not the name of a network of {groups} cell groups",
            hint="Give a family and the index of a primitive for each cell group, such as Mobile_1_1_3.",
        )
    return family, assignment


def _placed(own: Primitive, x: Symbol, channels: int, stride: int) -> Symbol:
    """The output of a primitive at a place. ProblemError if it does not fit."""
    y = own.write(x, channels, stride)
    if not isinstance(y, Symbol):
        raise ProblemError(f"{own.name} returns a {type(y).__name__}", hint="Return the Symbol of its last layer.")
    height, width = (-(-n // stride) for n in x.shape[2:])
    if (
        y.trace is not x.trace
        or len(y.shape) != 4
        or y.shape[1] != channels
        or any(size not in (n, n - (n > 1)) for size, n in zip(y.shape[2:], (height, width), strict=True))
    ):
        raise ProblemError(
            f"{own.name} turns {x.shape} into {y.shape}, but should make {channels} channels of about {height}x{width}",
            hint="Return the requested number of channels, and divide height and width by the stride.",
        )
    return y


def write_head(x: Symbol, layout: CellLayout) -> Symbol:
    """The scores of the classes, from the last layer's output. ProblemError if the space's head
    makes any other output.
    """
    scores = layout.head(x) if layout.head else x.global_average_pool().linear(layout.classes, bias=False)
    if scores.shape != (x.shape[0], layout.classes):
        raise ProblemError(
            f"the head turns {x.shape} into {scores.shape}, but {(x.shape[0], layout.classes)} is expected",
            hint="Return (N, classes); the head is called with the numbers of channels and of classes.",
        )
    return scores


def _tag(tags: list[str], trace: Trace, owner: str) -> None:
    """Tag the nodes that were added since the last call."""
    tags += [f"{owner}/{k}" for k in range(len(trace.nodes) - len(tags))]


def state_prefix(tag: str) -> str:
    """The prefix of the names of a node's parameters."""
    return tag.replace("/", ".") + "."


def model_weights(tagged: TaggedNet, state: State) -> dict[str, NDArray[Any]]:
    """The parameters of one network, by the names that `gnomon.models.units.write_net` expects; those of other networks
    are left out.
    """
    nodes = {state_prefix(tag): index for index, tag in enumerate(tagged.tags)}
    weights = {}
    for name, array in state.items():
        prefix, _, own = name.rpartition(".")
        if own == _COUNTER:
            continue
        if (index := nodes.get(prefix + ".")) is not None:
            kind = tagged.net.nodes[index].unit.kinds[0]
            turned = kind == "Linear" and own == "weight"  # in a model file, the weight is (in, out)
            part = PARTS.get(kind, {}).get(own, own)
            weights[f"{layer_name(index, 0, kind)}.{part}"] = array.T if turned else array
    return weights


def shared(state: State, tagged: TaggedNet) -> dict[str, NDArray[Any]]:
    """The parameters in a state that belong to tags of the network."""
    prefixes = {state_prefix(tag) for tag in tagged.tags}
    return {name: array for name, array in state.items() if not prefixes.isdisjoint(_prefixes(name))}


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) + "." for count in range(1, len(parts))}


# Widths that stay, grow, do not divide each other, and shrink, with and without a stride, and an odd height.
_TRIED = CellLayout(
    input_shape=(1, 3, 31, 16),
    groups=(0, 1, 2, 3, 4),
    widths=(8, 8, 16, 20, 4),
    reduces=frozenset({0, 2}),
    classes=2,
)
# Modules may need whole heads of attention, whole windows, or multiples of their input.
_TRIED_MODULES = replace(_TRIED, input_shape=(1, 64, 32, 32), widths=(64, 64, 128, 128, 256))


def known_primitives(
    numbering: str = "ssprofile", blocks: Sequence[str | Path] = (), bind: Bind | None = None
) -> dict[str, Primitive]:
    """All primitives by name: the published ones in this numbering, and those of packages, files and functions.

    Primitives of packages, files and functions are tried with a few widths and strides; `bind` makes the blocks of
    modules. UsageError for a file or function that cannot be read, run or found, for a block that fails (with its
    line), and for a name from two origins, unless both have the same object.
    """
    by_name: dict[str, Primitive] = published_primitives(numbering)
    bound = dict(by_name)
    origins = dict.fromkeys(by_name, _PUBLISHED)
    for origin, given in (*_packages(), *_given(blocks)):
        for new in _checked(given, origin):
            if by_name.setdefault(new.name, new) is not new:
                raise UsageError(
                    f"two primitives are called {new.name}: from {origins[new.name]} and from {origin}",
                    hint="Give one of the primitives another family or number.",
                )
            if origins.setdefault(new.name, origin) == origin:
                bound[new.name] = new if new.module is None or bind is None else bind(new, origin)
        own = [(bound[name], by_name[name].module is not None) for name, place in origins.items() if place == origin]
        _try(own, origin)
    return bound


def named_function(text: str) -> tuple[str, str] | None:
    """The file or module, and the function, in ``file.py:function`` or ``package.module:function``; None for a file."""
    match = _NAMED.fullmatch(text)
    return None if match is None else (match["place"], match["name"])


def module_of(origin: str, name: str) -> ModuleFactory:
    """The factory of a primitive's modules, by the origin that `known_primitives` passes to `bind`.

    UsageError if the primitive is no longer there.
    """
    given = next((listed for place, listed in _packages() if place == origin), None)
    (listed,) = (own for _, own in _given([origin])) if given is None else (given,)
    for primitive in _checked(listed, origin):
        if primitive.name == name and primitive.module is not None:
            return primitive.module
    raise UsageError(f"{origin} no longer has the module {name}", hint="Restore the file, and start again.")


def _given(blocks: Sequence[str | Path]) -> Iterator[tuple[str, Any]]:
    """The primitives of files and functions: the origin, and the object found there."""
    seen = set()
    for text in map(str, blocks):
        named = named_function(text)
        path = Path(named[0] if named else text)
        if (key := (path.resolve(), named and named[1])) in seen:
            continue
        seen.add(key)
        if named is None:
            yield text, load_attribute(f"{text}:{_ATTRIBUTE}")
            continue
        factory = load_attribute(text)
        if not callable(factory):
            raise UsageError(f"{text} is not a function", hint=_HINT)
        try:
            family, number = parse_name(named[1])
        except ProblemError:
            family, number = named[1], 0
        yield text, [Primitive(family=family, number=number, module=factory, meaning=f"{path.name}:{named[1]}")]


def _packages() -> list[tuple[str, Any]]:
    """The primitives of installed packages: the origin, and the object found there."""
    return [
        (f"the package entry {entry.name} ({entry.value})", loaded(entry, f"the primitives {entry.name!r}"))
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    ]


def _checked(given: Any, origin: str) -> tuple[Primitive, ...]:
    """The primitives in an object or, if it is a function, in its result."""
    if callable(given):
        given = called(given, f"{_ATTRIBUTE} of {origin}")
    if not isinstance(given, list | tuple) or not all(isinstance(p, Primitive) for p in given):
        raise UsageError(
            f"{_ATTRIBUTE} of {origin} is not a list of primitives",
            hint="Make it a list of gnomon.spaces.cells.primitives.Primitive, or a function that returns such a list.",
        )
    if not 1 <= len(given) <= _MOST:
        raise UsageError(f"{origin} has {len(given)} primitives", hint=f"Give 1 to {_MOST}.")
    return tuple(given)


def _try(primitives: Sequence[tuple[Primitive, bool]], origin: str) -> None:
    """Raise UsageError with the faults of primitives, if any. Each primitive comes with True if it is a module."""
    wrong = [f"{p.name}: {fault}" for p, module in primitives if (fault := _fault(p, module))]
    if wrong:
        more = f"; and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise UsageError(f"{origin} has blocks that do not work: {'; '.join(wrong[:20])}{more}", hint=_HINT)


def _fault(primitive: Primitive, module: bool) -> str:
    """The fault of a primitive, in its name or in networks that contain it; empty if there is none."""
    try:
        if parse_name(primitive.name) != (primitive.family, primitive.number):
            return "its family and number do not match its name"
        layout = _TRIED_MODULES if module else _TRIED
        first, second = (tagged_net(layout, [primitive] * layout.group_count) for _ in range(2))
        if first != second:
            return "each call makes different layers"
    except GnomonError as error:
        return f"{error.message} ({line})" if (line := users_line(error)) else error.message
    except Exception as error:  # a block may raise any error
        return reason(error)
    return ""

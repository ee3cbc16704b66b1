"""Configs of aw_nas that describe a search space of cell groups, and what is asked for about it.

The layout is that of aw_nas (github.com/walkerning/aw_nas, configs of ``examples/research/bbssp``) as the published
profiler of search spaces reads it. Read are ``search_space_cfg``, ``weights_manager_cfg`` and the two sections of
`gnomon.formats.aw_nas_sections`; all others are aw_nas's own and pass through. Scalars are read as PyYAML reads them,
since both of those programs do; see `gnomon.formats.yaml_plain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError
from gnomon.formats.aw_nas_output import Keys, filled
from gnomon.formats.aw_nas_sections import GnomonConfig, ProfilerConfig, family_of, read_own, read_profiler
from gnomon.formats.complaints import Complaints
from gnomon.formats.yaml_place import YamlPlace
from gnomon.formats.yaml_tree import read_yaml, yaml_text

_WHAT = "config"
_HINT = "Correct the config. Its layout is that of aw_nas's configs: search_space_cfg, weights_manager_cfg and others."
_MOST_LAYERS = 1000
_MOST_WIDTH = 1 << 16
_MOST_PRIMITIVES = 1000
_READ = ("search_space_cfg", "weights_manager_cfg", "ss_profiler_cfg", "gnomon_cfg")
_FILLED = "cell_shared_primitives"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceConfig:
    """What a config says of its space.

    Layer l is of cell group `cell_layout[l]` and makes `widths[l]` channels; the first one takes `input_channels`.
    Groups of `reduce_cell_groups` halve height and width. `primitives` are the names that each group chooses from, in
    the config's order. `warnings` are sentences about what is there and has no effect.
    """

    num_cell_groups: int
    cell_layout: tuple[int, ...]
    reduce_cell_groups: frozenset[int]
    primitives: tuple[str, ...]
    input_channels: int
    widths: tuple[int, ...]
    classes: int
    profiler: ProfilerConfig
    gnomon: GnomonConfig
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConfigDocument:
    """The config as it was written, to be handed on with the result in it."""

    _text: str
    _mark: str
    _keys: Keys
    _primitives: frozenset[str]
    _groups: int

    def output(self, cell_shared_primitives: Sequence[Sequence[str]]) -> str:
        """The text with each cell group's primitives filled in and ``shared_primitives: null``; all else as it was.

        ProblemError where they are not at least one of the config's primitives for each of its cell groups, each once.
        """
        if len(cell_shared_primitives) != self._groups:
            raise ProblemError(
                f"primitives of {len(cell_shared_primitives)} cell groups, and the config has {self._groups}",
                hint="Give each cell group a list of primitives.",
            )
        for group, names in enumerate(cell_shared_primitives):
            wrong = [name for name in names if name not in self._primitives]
            if wrong or not names or len(set(names)) != len(names):
                told = (
                    f"{', '.join(map(shown, wrong))}, which the config does not have" if wrong else "none, or one twice"
                )
                raise ProblemError(
                    f"cell group {group} has {told}", hint="Give at least one of the config's primitives, each once."
                )
        return self._mark + filled(self._text, self._keys, cell_shared_primitives)


def read_aw_nas_config(text: str | bytes) -> tuple[SpaceConfig, ConfigDocument]:
    """The space that a config describes, and the document to fill in.

    ProblemError with everything that is wrong, each with its path and line; RuntimeMissingError without PyYAML.
    """
    whole = yaml_text(text, _WHAT, _HINT)
    mark = whole[: whole.startswith("\ufeff")]
    whole = whole[len(mark) :]
    root = read_yaml(whole, _WHAT, _HINT)
    complaints = Complaints(what=_WHAT, hint=_HINT)
    top = YamlPlace(node=root, path="$", line=root.line, complaints=complaints)
    if not top.is_mapping():
        if top.missing:
            top.tell("a mapping of sections expected, nothing found")
        complaints.raise_any()
    _in_place(top)
    config = _space(top)
    complaints.raise_any()
    keys = Keys.of(root.entries["search_space_cfg"][1], "shared_primitives", _FILLED)
    document = ConfigDocument(
        _text=whole, _mark=mark, _keys=keys, _primitives=frozenset(config.primitives), _groups=config.num_cell_groups
    )
    return config, document


def _in_place(top: YamlPlace) -> None:
    """What is read is written out where it stands: so it can be edited, and nothing else hangs on it."""
    for name in _READ:
        section = top.entry(name)
        anchors = [node for node in section.node.nodes() if node.anchored] if section.node is not None else []
        if anchors:
            lines = ", ".join(str(line) for line in dict.fromkeys(node.line for node in anchors))
            section.tell(f"anchors are not read here (line {lines}): put them into a section of their own")


def _space(top: YamlPlace) -> SpaceConfig:
    space, manager = _section(top, "search_space_cfg"), _section(top, "weights_manager_cfg")
    groups = space.entry("num_cell_groups").whole(1, _MOST_LAYERS)
    layout = _layout(space.entry("cell_layout"), groups)
    layers = space.entry("num_layers")
    if not layers.missing and layout and layers.whole(1, _MOST_LAYERS) != len(layout):
        layers.tell(f"cell_layout has {len(layout)} layers, and num_layers says another number")
    reduces = _reduces(space.entry("reduce_cell_groups"), groups)
    primitives = _primitives(space.entry("shared_primitives"))
    inputs, widths = _widths(manager.entry("cell_group_kwargs"), len(layout))
    return SpaceConfig(
        num_cell_groups=groups,
        cell_layout=layout,
        reduce_cell_groups=reduces,
        primitives=primitives,
        input_channels=inputs,
        widths=widths,
        classes=manager.entry("num_classes").whole(1, _MOST_WIDTH),
        profiler=read_profiler(top.entry("ss_profiler_cfg")),
        gnomon=read_own(top.entry("gnomon_cfg"), primitives),
        warnings=_warnings(space.entry(_FILLED)),
    )


def _section(top: YamlPlace, name: str) -> YamlPlace:
    section = top.entry(name)
    if not section.is_mapping() and section.missing:
        section.tell("a mapping expected, the section is missing")
    return section


def _layout(place: YamlPlace, groups: int) -> tuple[int, ...]:
    before = len(place.complaints.told)
    layout = tuple(one.whole(0, groups - 1) for one in place.items(least=1))
    if len(layout) > _MOST_LAYERS:
        place.tell(f"{len(layout)} layers, and no more than {_MOST_LAYERS} are read")
    unused = sorted(set(range(groups)) - set(layout))
    if layout and unused and len(place.complaints.told) == before:
        place.tell(f"no layer is of the cell groups {', '.join(map(str, unused[:20]))}")
    return layout


def _reduces(place: YamlPlace, groups: int) -> frozenset[int]:
    found: set[int] = set()
    for one in place.items():
        group = one.whole(0, groups - 1)
        if group in found and one.node is not None and one.node.value == group:
            one.tell(f"the cell group {group} is there already")
        found.add(group)
    return frozenset(found)


def _primitives(place: YamlPlace) -> tuple[str, ...]:
    if place.missing and place.node is not None:
        place.tell("the names of primitives expected, null found: they are what the profiler chooses from")
        return ()
    found: dict[str, int] = {}
    for one in place.items(least=1):
        name = one.word()
        if name and family_of(name) is None:
            one.tell(f"the name of a primitive such as Mobileblock_3 expected, {shown(name)} found")
        elif name in found:
            one.tell(f"{name} is there already, in line {found[name]}")
        elif name:
            found[name] = one.line
    if len(found) > _MOST_PRIMITIVES:
        place.tell(f"{len(found)} primitives, and no more than {_MOST_PRIMITIVES} are read")
    return tuple(found)


def _widths(place: YamlPlace, layers: int) -> tuple[int, tuple[int, ...]]:
    """The channels that the first layer takes, and those that each makes."""
    inputs, widths = 0, list[int]()
    for one in place.items(least=1):
        if not one.is_mapping():
            one.tell("a mapping with C_in and C_out expected")
            continue
        taken, made = (one.entry(key).whole(1, _MOST_WIDTH) for key in ("C_in", "C_out"))
        if not widths:
            inputs = taken
        elif taken != widths[-1]:
            one.tell(f"C_in is {taken}, and the layer before makes {widths[-1]} channels")
        widths.append(made)
    if layers and widths and len(widths) != layers:
        place.tell(f"{len(widths)} layers, and cell_layout has {layers}")
    return inputs, tuple(widths)


def _warnings(place: YamlPlace) -> tuple[str, ...]:
    if place.node is None:
        place.tell("the key is missing: write cell_shared_primitives: null, which the result replaces")
        return ()
    if place.missing:
        return ()
    if place.node.kind not in ("list", "scalar"):
        place.tell("null or a list expected")
    return (f"{place.path} (line {place.line}) is filled already; the result replaces it",)

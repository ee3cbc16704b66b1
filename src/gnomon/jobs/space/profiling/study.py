"""A study of a search space: the families of its config, their networks, and the identity of the study."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.space import Slot, Space
from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError, UsageError, problems_of
from gnomon.formats.aw_nas.config import ConfigDocument, ManagerSection, SpaceConfig, read_aw_nas_config
from gnomon.report.plain import many
from gnomon.spaces.cells.primitives import HEAD, STEM, Primitive, default_of, families_of, named, stem
from gnomon.spaces.cells.space import (
    CellLayout,
    TaggedNet,
    known_primitives,
    named_function,
    network_id,
    swaps,
    tagged_net,
)
from gnomon.spaces.loading import users_errors
from gnomon.spaces.unit import NetSize, Symbol

if TYPE_CHECKING:
    from gnomon.training.modules import ModuleBlock


OF_SPACE = "of the space"
"""The numbering of a space in Python, whose choices have their own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network of a study; its `id` is the published one, or the primitives' names if they belong to several families.

    If the primitives belong to several families, `family` and `assignment` are empty; otherwise `assignment` has their
    indices in the family.
    """

    id: str
    family: str
    assignment: tuple[int, ...]
    primitives: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family: its primitives, the space of its networks, and the default network's assignment."""

    name: str
    primitives: tuple[Primitive, ...]
    space: Space
    defaults: tuple[int, ...]

    @property
    def counts(self) -> list[int]:
        """The number of choices in each cell group."""
        return [len(slot.choices) for slot in self.space.slots]

    @property
    def default_names(self) -> tuple[str, ...]:
        """The primitives of the default network, one for each cell group."""
        return self.space.names(self.defaults)

    def network(self, assignment: Sequence[int]) -> Network:
        """The network of an assignment."""
        chosen = tuple(int(k) for k in assignment)
        return Network(
            id=network_id(self.name, chosen), family=self.name, assignment=chosen, primitives=self.space.names(chosen)
        )

    def swaps(self) -> tuple[Network, ...]:
        """The default network, then every network that differs from it in one cell group."""
        return tuple(self.network(assignment) for assignment in swaps(self.defaults, self.counts))


def space_of(names: Iterable[str], groups: int) -> Space:
    """The space in which each of `groups` cell groups chooses from these primitives."""
    choices = tuple(names)
    return Space(tuple(Slot(f"cell{group}", choices) for group in range(groups)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedSpace:
    """Writes a selection, the choices that each slot keeps, as YAML."""

    slots: tuple[str, ...]
    names_latency_file: bool = False

    def output(self, groups: Sequence[Sequence[str]], *, latency_file: str | None = None) -> str:
        """A line for each slot, such as `first: ["k3", "k5"]`."""
        rows = zip(self.slots, groups, strict=True)
        return "".join(f"{json.dumps(slot)}: {json.dumps(list(names))}\n" for slot, names in rows)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A config's search space, for images of one shape, as `open_study` makes it.

    `ends` has the stem and the head by name, if the config names its own. If the images are unknown, their shape is
    made up.
    """

    config: SpaceConfig
    document: ConfigDocument | ReducedSpace
    text: str
    numbering: str
    layout: CellLayout
    families: Mapping[str, Family]
    ends: Mapping[str, ModuleBlock] = field(default_factory=dict)
    images_known: bool = True

    @cached_property
    def primitives(self) -> dict[str, Primitive]:
        """All primitives of all families by name."""
        return {primitive.name: primitive for family in self.families.values() for primitive in family.primitives}

    def places(self, groups: Sequence[Sequence[str]]) -> list[list[int]]:
        """The indices of kept primitives among all primitives of their cell groups. ProblemError for unknown names."""
        try:
            every = zip(self.space.slots, groups, strict=True)
            return [[slot.choices.index(name) for name in kept] for slot, kept in every]
        except ValueError as error:
            raise ProblemError(
                "the kept primitives belong to another profile", hint="Run gnomon space select on this profile."
            ) from error

    @cached_property
    def space(self) -> Space:
        """The space in which each cell group chooses from the primitives of all families."""
        slots = zip(*(family.space.slots for family in self.families.values()), strict=True)
        return Space(tuple(Slot(own[0].name, tuple(name for slot in own for name in slot.choices)) for own in slots))

    def at(self, assignment: Sequence[int]) -> Network:
        """The network of an assignment in the space of all primitives."""
        return self.mixed(self.space.names(assignment))

    def tagged(self, network: Network) -> TaggedNet:
        """The network itself, with a tag for each node."""
        return _built(self.layout, [self.primitives[name] for name in network.primitives])

    def size(self, network: Network) -> NetSize:
        """Parameters, operations and memory; all are None if the shape of the images is unknown."""
        from gnomon.spaces.work import size_of  # choosing does not need it

        return size_of(self.tagged(network).net) if self.images_known else NetSize()

    def origins(self, tagged: TaggedNet) -> dict[str, str]:
        """The location of each module among a network's blocks, by the block's name."""
        from gnomon.training.modules import ModuleBlock

        blocks = {name: self.ends.get(name) or self.primitives[name].block for name in tagged.modules}
        return {name: block.origin for name, block in blocks.items() if isinstance(block, ModuleBlock)}

    def mixed(self, names: Sequence[str]) -> Network:
        """The network of these primitives, one for each cell group, of one or several families.

        ProblemError for primitives that the space cannot combine.
        """
        if len(names) != (groups := self.layout.group_count):
            raise ProblemError(
                f"{len(names)} primitives are given for {groups} cell groups",
                hint="Give one primitive for each group.",
            )
        chosen = named(self.primitives, names)
        families = {primitive.family for primitive in chosen}
        if len(families) == 1:
            family = self.families[families.pop()]
            return family.network(family.space.indices(names))
        return Network(id="+".join(names), family="", assignment=(), primitives=tuple(names))

    def notes(self) -> list[str]:
        """Warnings about blocks whose outputs are random."""
        from gnomon.training.modules import ModuleBlock

        blocks = (*(primitive.block for primitive in self.primitives.values()), *self.ends.values())
        return [
            f"the outputs of {block.name} are random even outside of training: accuracies of networks with it vary "
            "from run to run, and exported files do not reproduce the module's outputs"
            for block in blocks
            if isinstance(block, ModuleBlock) and not block.steady
        ]

    def check(self, rows: Iterable[Any]) -> None:
        """Raise ProblemError for rows (with `key`, `network` and `primitives`) of networks that the study lacks."""
        wrong = [row.key for row in rows if not self._has(row.network, row.primitives)]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ProblemError(
                f"the profile is malformed: its config lacks the networks of {', '.join(map(shown, wrong[:5]))}{more}",
                hint="Give an unchanged folder of gnomon space profile.",
            )

    def _has(self, name: str, primitives: Sequence[str]) -> bool:
        fits = len(primitives) == self.layout.group_count and all(own in self.primitives for own in primitives)
        try:
            return fits and self.mixed(primitives).id == name
        except ProblemError:  # a choice of a different slot
            return False

    def question(self) -> dict[str, object]:
        """The identity of the study: studies with equal identities have the same networks."""
        return {
            "config": hashlib.sha256(self.text.encode()).hexdigest(),
            "numbering": self.numbering,
            "input_shape": list(self.layout.input_shape),
            "families": {name: {p.name: p.digest for p in family.primitives} for name, family in self.families.items()},
            "defaults": {name: family.default_names[0] for name, family in self.families.items()},
            **{name: block.digest for name, block in self.ends.items()},
        }


def open_study(
    text: str,
    image_shape: tuple[int, int, int],
    *,
    families: Sequence[str] = (),
    numbering: str | None = None,
    blocks: Sequence[str] = (),
) -> Study:
    """The study of a config's text, for images of the shape (channels, height, width).

    `families` are the families to consider (none: all of the config); `numbering` takes precedence over the config.
    `blocks` are the user's primitives, stem and head, whose Python code may be run; code that only the config names is
    not run. ProblemError for errors in the config and for networks that cannot be built; UsageError for an unknown
    family, and for a stem or a head that is not among `blocks`.
    """
    config, document = read_aw_nas_config(text)
    space, manager = config.space, config.manager
    chosen = numbering or config.gnomon.numbering
    own = {name: end for name in (STEM, HEAD) if (end := getattr(config.gnomon, name)) is not None}
    ends = {name: _end_block(name, end, blocks) for name, end in own.items()}
    primitives = known_primitives(
        chosen, [block for block in blocks if block not in {end.origin for end in ends.values()}], _bound
    )
    begin, head = _stem(manager, ends), ends.get(HEAD)
    if begin is None and manager.input_channels != image_shape[0]:
        raise ProblemError(
            f"the first layer takes {many(manager.input_channels, 'channel')}, but an image has {image_shape[0]}",
            hint="Add a stem: weights_manager_cfg.use_stem: true for a 3x3 convolution, or gnomon_cfg.stem for your "
            "own. Without a stem, cell_group_kwargs[0].C_in must be the number of an image's channels.",
        )
    layout = CellLayout(
        stem=begin,
        head=None if head is None else partial(_end, block=head, argument=manager.num_classes),
        input_shape=(1, *image_shape),
        groups=space.cell_layout,
        widths=manager.widths,
        reduces=frozenset(space.reduce_cell_groups),
        classes=manager.num_classes,
    )
    with problems_of(_lines_of(text, [name for name in space.shared_primitives if name not in primitives])):
        members = families_of(named(primitives, space.shared_primitives))
    if unknown := [name for name in families if name not in members]:
        raise UsageError(f"the config has no family {' or '.join(unknown)}", hint=f"Families: {', '.join(members)}.")
    kept = {name: _family(name, members[name], layout, config) for name in members if not families or name in families}
    return Study(config=config, document=document, text=text, numbering=chosen, layout=layout, families=kept, ends=ends)


def _lines_of(text: str, names: Sequence[str]) -> str:
    """Where a config has these names, such as "search_space_cfg.shared_primitives (line 5)"."""
    lines = [k for k, line in enumerate(text.splitlines(), 1) if not set(names).isdisjoint(re.findall(r"\w+", line))]
    where = f" (line {', '.join(map(str, lines))})" if lines else ""
    return f"search_space_cfg.shared_primitives{where}"


def whole_name(text: str, beside: Path) -> str:
    """A file, or a function in a file, with its path made absolute (from `beside`); other functions are unchanged."""
    named = named_function(text)
    place = text if named is None else named[0]
    if named is not None and not place.endswith(".py"):
        return text
    path = str((beside / place).absolute())
    return path if named is None else f"{path}:{named[1]}"


def refused(place: str | Path, options: Iterable[str]) -> UsageError:
    """The error for a config or a profile that names Python files, with the options that allow running them."""
    return UsageError(
        f"{place} names Python code, which gnomon runs only if you name it, because a config may come from anybody",
        hint=f"If you trust the code: {' '.join(options)}, or --trust-config, which runs all such code.",
    )


def changed(what: str) -> UsageError:
    """The error for files that have changed since a profile was made from them."""
    hint = "Restore the former content, or make a new profile in another folder."
    return UsageError(f"{what} changed after the profile was made", hint=hint)


def given_as(wanted: str, blocks: Iterable[str]) -> str | None:
    """The location, as the user named it, of a function that a config names; None if the function may not be run.

    A file matches by its name in any folder; digests show whether it is the right file.
    """
    place, name = named_function(wanted) or (wanted, "")
    for block in blocks:
        where, what = named_function(block) or (block, name)
        if what == name and (where == place or (place.endswith(".py") and Path(where).name == Path(place).name)):
            return f"{where}:{name}"
    return None


def _end_block(name: str, wanted: str, blocks: Sequence[str]) -> ModuleBlock:
    """The stem or head that a config names. UsageError if it is not among the blocks that may be run."""
    from gnomon.training.modules import end_block

    origin = given_as(wanted, blocks)
    if origin is None:
        raise UsageError(
            f"gnomon_cfg.{name} is {wanted}, Python code that gnomon runs only if you name it",
            hint=f"If you trust it, add --blocks {shlex.quote(wanted)} to the command.",
        )
    return end_block(name, origin)


def _bound(primitive: Primitive, origin: str) -> Primitive:
    """A primitive, with a block of this origin if it is a module. The code for modules is imported only if needed."""
    from gnomon.training.modules import bound

    return bound(primitive, origin)


def _stem(manager: ManagerSection, ends: Mapping[str, ModuleBlock]) -> Callable[[Symbol], Symbol] | None:
    if (own := ends.get(STEM)) is not None:
        return partial(_end, block=own, argument=manager.input_channels)
    if manager.stem is None:
        return None
    return partial(stem, operation=manager.stem, channels=manager.input_channels, stride=manager.stem_stride)


def _end(x: Symbol, *, block: ModuleBlock, argument: int) -> Symbol:
    """The output of a stem with `argument` channels, or of a head with `argument` classes. UsageError if it fails."""
    hint = "A stem is called with its input and output channels, a head with its input channels and the classes."
    with users_errors(f"the {block.name} {block.origin} fails", hint):
        output = block(x, argument)
    if block.name == STEM and (len(output.shape) != 4 or output.channels != argument):
        raise ProblemError(
            f"the stem turns {x.shape} into {output.shape}, but the first layer takes {many(argument, 'channel')}",
            hint="The stem is called with the channels of an image and of the first layer; it returns (N, C, H, W).",
        )
    return output


def _family(name: str, ones: tuple[Primitive, ...], layout: CellLayout, config: SpaceConfig) -> Family:
    wanted = config.gnomon.default_primitives.get(name)
    default = next((block for block in ones if block.name == wanted), None) if wanted else default_of(name, ones)
    if default is None:
        raise ProblemError(
            f"the default {wanted} of the family {name} is not among its primitives in the config",
            hint=f"Its primitives: {', '.join(block.name for block in ones)}.",
        )
    for block in ones:  # report a block that does not fit before any work is done
        _built(layout, [block] * layout.group_count)
    space = space_of([block.name for block in ones], layout.group_count)
    return Family(name=name, primitives=ones, space=space, defaults=(ones.index(default),) * layout.group_count)


def _built(layout: CellLayout, ones: Sequence[Primitive]) -> TaggedNet:
    """The network of these primitives; their digests are computed too. UsageError if a user's block fails."""
    names = ", ".join(dict.fromkeys(block.name for block in ones))
    hint = "The block is tried with the config's widths, strides and image size. Correct it, or leave it out."
    with users_errors(f"a block of {names} fails in a network", hint):
        for block in dict.fromkeys(ones):
            _ = block.digest
        return tagged_net(layout, ones)

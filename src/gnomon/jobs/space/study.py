"""A study of a search space: the families of its config, their networks, and what makes two studies the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.formats.aw_nas.config import ConfigDocument, SpaceConfig, read_aw_nas_config
from gnomon.spaces.cells.primitives import Primitive, default_of, families_of, named
from gnomon.spaces.cells.space import (
    CellLayout,
    CellSpace,
    TaggedNet,
    known_primitives,
    mixed_id,
    network_id,
    swaps,
    tagged_net,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network of a study: its published id, or the names of its primitives where it is of several families.

    `family` is empty for a network of several; `assignment` are indices in the family's own list.
    """

    id: str
    family: str
    assignment: tuple[int, ...]
    primitives: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family: its space, in which each cell group chooses from all of its primitives, and its default."""

    name: str
    space: CellSpace
    default: int

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Those that each cell group chooses from, in the order of their numbers."""
        return self.space.choices[0]

    @property
    def defaults(self) -> tuple[int, ...]:
        """The assignment of the default network."""
        return (self.default,) * len(self.space.choices)

    def network(self, assignment: Sequence[int]) -> Network:
        """The network of an assignment."""
        chosen = tuple(int(k) for k in assignment)
        return Network(
            id=network_id(self.name, chosen),
            family=self.name,
            assignment=chosen,
            primitives=tuple(self.primitives[k].name for k in chosen),
        )

    def swaps(self) -> tuple[Network, ...]:
        """The default network, then every one-change variant: 1 + groups * (primitives - 1) networks."""
        counts = [len(ones) for ones in self.space.choices]
        return tuple(self.network(assignment) for assignment in swaps(self.defaults, counts))


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a config asks, for images of one shape. Made by `open_study`."""

    config: SpaceConfig
    document: ConfigDocument
    text: str
    numbering: str
    layout: CellLayout
    families: Mapping[str, Family]

    @cached_property
    def primitives(self) -> dict[str, Primitive]:
        """All primitives of all families by name."""
        return {one.name: one for family in self.families.values() for one in family.primitives}

    def tagged(self, network: Network) -> TaggedNet:
        """The network itself."""
        return _built(self.layout, [self.primitives[name] for name in network.primitives])

    def mixed(self, names: Sequence[str]) -> Network:
        """The network of these primitives, one a cell group, of one family or several. ProblemError for others."""
        if len(names) != self.layout.group_count:
            raise ProblemError(
                f"{len(names)} primitives for {self.layout.group_count} cell groups", hint="Give one a cell group."
            )
        chosen = named(self.primitives, names)
        families = {one.family for one in chosen}
        if len(families) == 1:
            family = self.families[families.pop()]
            return family.network([family.primitives.index(one) for one in chosen])
        return Network(id=mixed_id(names), family="", assignment=(), primitives=tuple(names))

    def check(self, rows: Iterable[Any]) -> None:
        """ProblemError for lines of a profile (with `key`, `network`, `primitives`) whose network is none of it."""
        wrong = [row.key for row in rows if not self._has(row.network, row.primitives)]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ProblemError(
                f"the profile is malformed: {', '.join(map(shown, wrong[:5]))}{more} tell of networks that are none of "
                "its config",
                hint="Give a folder as `gnomon space profile` made it.",
            )

    def _has(self, name: str, primitives: Sequence[str]) -> bool:
        fits = len(primitives) == self.layout.group_count and all(one in self.primitives for one in primitives)
        return fits and self.mixed(primitives).id == name

    def question(self) -> dict[str, Any]:
        """What a profile of it stands for: equal for studies whose networks are the same."""
        return {
            "config": hashlib.sha256(self.text.encode()).hexdigest(),
            "numbering": self.numbering,
            "input_shape": list(self.layout.input_shape),
            "families": {
                name: {one.name: one.digest for one in family.primitives} for name, family in self.families.items()
            },
            "defaults": {name: family.primitives[family.default].name for name, family in self.families.items()},
        }


def open_study(
    text: str,
    image_shape: tuple[int, int, int],
    *,
    families: Sequence[str] = (),
    numbering: str | None = None,
    blocks: Sequence[str] = (),
) -> Study:
    """The study of a config's text, for images of (channels, height, width).

    `families` are those to look at (none: all of the config); `numbering` and `blocks` go before what the config says.
    ProblemError for what the config has wrong and for networks that cannot be built; UsageError for an unknown family.
    """
    config, document = read_aw_nas_config(text)
    chosen = numbering or config.gnomon.numbering
    known = known_primitives(chosen, tuple(blocks) or config.gnomon.blocks)
    if config.input_channels != image_shape[0]:
        raise ProblemError(
            f"the first layer takes {config.input_channels} channels, and an image has {image_shape[0]}",
            hint="Correct weights_manager_cfg.cell_group_kwargs[0].C_in, or take other images.",
        )
    layout = CellLayout(
        input_shape=(1, *image_shape),
        groups=config.cell_layout,
        widths=config.widths,
        reduces=config.reduce_cell_groups,
        classes=config.classes,
    )
    found = families_of(named(known, config.primitives))
    if unknown := [name for name in families if name not in found]:
        raise UsageError(f"the config has no families {', '.join(unknown)}", hint=f"Families: {', '.join(found)}.")
    made = {
        name: _family(name, ones, layout, config) for name, ones in found.items() if not families or name in families
    }
    return Study(config=config, document=document, text=text, numbering=chosen, layout=layout, families=made)


def _family(name: str, ones: tuple[Primitive, ...], layout: CellLayout, config: SpaceConfig) -> Family:
    wanted = config.gnomon.default_primitives.get(name)
    default = next((one for one in ones if one.name == wanted), None) if wanted else default_of(name, ones)
    if default is None:
        raise ProblemError(
            f"the default {wanted} of the family {name} is none of its primitives in the config",
            hint=f"Its primitives: {', '.join(one.name for one in ones)}.",
        )
    space = CellSpace(name=f"{name}-cells", layout=layout, choices=(ones,) * layout.group_count)
    family = Family(name=name, space=space, default=ones.index(default))
    for one in ones:
        _built(
            layout, [one] * layout.group_count
        )  # a block that does not fit its place is told before anything is done
    return family


def _built(layout: CellLayout, ones: Sequence[Primitive]) -> TaggedNet:
    """The network of these primitives, each of which has a digest. UsageError for a user's block that fails."""
    try:
        for one in dict.fromkeys(ones):
            _ = one.digest
        return tagged_net(layout, ones)
    except GnomonError:
        raise
    except Exception as error:  # whatever a user's block does
        names = ", ".join(dict.fromkeys(one.name for one in ones))
        raise UsageError(
            f"a block of {names} fails in its place: {type(error).__name__}: {error}",
            hint="It is tried with the widths, strides and image size of the config. Mend it, or leave it out.",
        ) from error

"""Studies of spaces that are declared in Python: each slot is a cell group, and the slot's choices are its primitives.

A profile stores such a space as data: slots, choices, and a digest of the networks. Selections need only this data.
Building networks needs the space itself, whose Python code runs only if the user names it.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from gnomon.core.codec import Must, decode, document, read_json, within
from gnomon.core.space import Slot, Space
from gnomon.core.strict_json import Complaints, Strict, indented
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.aw_nas.config import GnomonConfig, ManagerSection, ProfilerConfig, SpaceConfig, SpaceSection
from gnomon.jobs.space.profiling.folder import HINT, Name, Names, is_name
from gnomon.jobs.space.profiling.study import OF_SPACE, Family, Network, ReducedSpace, Study
from gnomon.spaces.blocks import BlockSpace, Place
from gnomon.spaces.cells.primitives import Primitive, digest_of
from gnomon.spaces.cells.space import CellLayout, TaggedNet, swaps
from gnomon.spaces.loading import SearchSpace, load_space, users_errors
from gnomon.spaces.sources import OF_PYTHON
from gnomon.spaces.unit import NetSize, Symbol
from gnomon.spaces.work import size_of

_STRICT = Strict(what="space of the profile", hint=HINT, most_letters=1 << 24)
Size = Annotated[int, within(1, 1 << 31, "a whole number from 1")]


def _few(slots: Mapping[str, Sequence[str]]) -> bool:
    return 0 < sum(map(len, slots.values())) <= 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training:
    """The training settings of networks, with the same keys as in aw_nas's configs."""

    ss_profiler_cfg: ProfilerConfig = field(default_factory=ProfilerConfig)
    gnomon_cfg: GnomonConfig = field(default_factory=GnomonConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """A space as a profile stores it; `digest` covers the default network and all one-change variants."""

    format: Literal["gnomon-declared-space"] = "gnomon-declared-space"
    name: Name
    input: tuple[Size, Size, Size, Size] = (1, 1, 1, 1)
    classes: Size = 1
    slots: Annotated[Mapping[str, Names], Must(be="1 to 4000 choices by slot", fits=_few)]
    digest: str
    training: _Training = field(default_factory=_Training)


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A stand-in for a primitive's block, which only the space itself has; `digest` is the choice's name."""

    digest: str

    def __call__(self, x: Symbol, channels: int, stride: int) -> Symbol:
        raise ProblemError("a single choice of a space in Python cannot be built", hint="Build whole networks.")


@dataclass(frozen=True, kw_only=True)
class DeclaredStudy(Study):
    """A study of a space in Python. `declared` is the space, if it is available, and `origin` is its location."""

    declared: BlockSpace | None = None
    origin: str = ""

    def tagged(self, network: Network) -> TaggedNet:
        """The network itself, with a tag for each node. UsageError if the space is known only as data."""
        if self.declared is None:
            raise UsageError(
                "the search space is Python code, which gnomon runs only if you name it",
                hint=f"If you trust the code, add --blocks {shlex.quote(self.origin or 'FILE.py:NAME')}",
            )
        return _tagged(self.declared, network.assignment, self.origin)

    def size(self, network: Network) -> NetSize:
        """Parameters, operations and memory; without the space, all are None.

        The memory is also None if a block's ONNX layers cannot be read.
        """
        if self.declared is None:
            return NetSize()
        peak = None
        with suppress(ProblemError):
            peak = size_of(self.declared.net(network.assignment)).peak_bytes
        return replace(super().size(network), peak_bytes=peak)

    def origins(self, tagged: TaggedNet) -> dict[str, str]:
        """The location of each module among a network's blocks, by the block's name."""
        return dict.fromkeys(tagged.modules, f"{OF_PYTHON}{self.origin}")


def space_origin(space: Any) -> str:
    """Where workers find a space: the given FILE.py:NAME, or the file and the global that hold the given object.

    UsageError if the object is not a global of a Python file.
    """
    if not isinstance(space, BlockSpace):
        path, _, name = str(space).rpartition(":")
        return f"{Path(path).absolute()}:{name}"
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()) if getattr(module, "__file__", None) else ():
            if value is space:
                return f"{Path(str(module.__file__)).absolute()}:{name}"
    raise UsageError(
        "the training processes cannot find the space",
        hint="Assign the space to a global of a Python file, outside of functions.",
    )


def is_declared(config: Any) -> bool:
    """Return True if `config` is a space in Python, as FILE.py:NAME or as an object, and not a config of aw_nas."""
    text = str(config)
    return isinstance(config, BlockSpace) or text.endswith(".py") or text.rpartition(":")[0].endswith(".py")


def declared_study(given: Any) -> DeclaredStudy:
    """The study of a space in Python, for images of its largest resolution.

    UsageError for a space that does not consist of blocks, does not take images, or does not return scores;
    ProblemError for blocks that do not fit together.
    """
    space = given if isinstance(given, BlockSpace) else load_space(str(given))
    origin = space_origin(given)
    if not isinstance(space, BlockSpace):
        raise UsageError(f"the space {space.name} has no blocks", hint="Give a BlockSpace, or a space from from_torch.")
    largest = max(space.inputs, key=math.prod)
    fits = (
        len(shape) == 4 and shape[:2] == largest[:2] and all(n <= most for n, most in zip(shape, largest, strict=True))
        for shape in space.inputs
    )
    if len(largest) != 4 or not all(fits):
        raise UsageError(
            f"networks are trained on images, but the space {space.name} takes " + " and ".join(map(str, space.inputs)),
            hint="Give the space inputs (1, C, H, W) with equal C; one input must have both the largest H and W.",
        )
    slots = space.space.slots
    if wrong := [name for slot in slots for name in slot.choices if not is_name(name)]:
        raise UsageError(f"the choice {wrong[0]!r} is not a valid name", hint="Use letters, digits, - and _.")
    nets = [_tagged(space, row, origin) for row in swaps([0] * len(slots), [len(slot.choices) for slot in slots])]
    shape = nets[0].net.shape(nets[0].net.output)
    if len(shape) != 2:
        raise UsageError(
            f"networks of {space.name} return the shape {shape}, which is not (N, classes)",
            hint="Give the space a head that returns class scores.",
        )
    digest = digest_of([[[n.unit.canonical(), *n.inputs] for n in tagged.net.nodes] for tagged in nets])
    declared = _Declared(
        name=_plain(space.name),
        input=largest,
        classes=shape[1],
        slots={slot.name: slot.choices for slot in slots},
        digest=digest,
        training=_training(space),
    )
    return study_of_text(indented(document(declared)), space, origin)


def imported_study(space: SearchSpace) -> DeclaredStudy:
    """The study of a space whose networks were trained and measured elsewhere; only its slots and choices are known."""
    slots = {s.name: tuple(re.sub("[^A-Za-z0-9_+-]", "_", name) for name in s.choices) for s in space.space.slots}
    declared = _Declared(name=_plain(space.name), slots=slots, digest=digest_of([space.name, slots]))
    return study_of_text(indented(document(declared)))


def _plain(name: str) -> str:
    """A name in the form used in a network's id."""
    return re.sub("[^A-Za-z0-9_]", "_", name)


def _training(space: BlockSpace) -> _Training:
    """The training settings of a space's networks. ProblemError lists all errors in them."""
    complaints = Complaints(what=f"training of {space.name}", hint="docs/jobs/space.md lists the keys of a config.")
    training: _Training = decode(_Training, json.loads(json.dumps(space.training)), complaints)
    complaints.raise_any()
    return training


def study_of_text(text: str, space: BlockSpace | None = None, origin: str = "") -> DeclaredStudy:
    """The study of a space, from the text that a profile keeps of it. ProblemError lists all errors in the text."""
    declared = read_json(_Declared, text.encode(), _STRICT)
    slots = tuple(Slot(name, choices) for name, choices in declared.slots.items())
    choices = dict.fromkeys(choice for slot in slots for choice in slot.choices)
    primitives = tuple(
        Primitive(family=declared.name, number=k, called=choice, block=_Unwritten(choice))
        for k, choice in enumerate(choices)
    )
    layout = CellLayout(
        input_shape=(1, *declared.input[1:]),
        groups=tuple(range(len(slots))),
        widths=(1,) * len(slots),
        reduces=frozenset(),
        classes=declared.classes,
    )
    section = SpaceSection(
        num_cell_groups=len(slots), cell_layout=layout.groups, reduce_cell_groups=(), shared_primitives=tuple(choices)
    )
    config = SpaceConfig(
        space=section,
        manager=ManagerSection(num_classes=declared.classes, cell_group_kwargs=()),
        profiler=declared.training.ss_profiler_cfg,
        gnomon=declared.training.gnomon_cfg,
    )
    family = Family(name=declared.name, primitives=primitives, space=Space(slots), defaults=(0,) * len(slots))
    return DeclaredStudy(
        config=config,
        document=ReducedSpace(slots=tuple(declared.slots)),
        text=text,
        numbering=OF_SPACE,
        layout=layout,
        families={declared.name: family},
        declared=space,
        origin=origin,
    )


def _tagged(space: BlockSpace, assignment: Sequence[int], origin: str) -> TaggedNet:
    """A network whose PyTorch modules are kept as modules. UsageError for a user's block that fails."""
    from gnomon.training.modules import space_block

    def write(place: Place, choice: int, x: Symbol) -> Symbol:
        name = place.names[choice]
        module = space_block(space, name, f"{OF_PYTHON}{origin}")
        with users_errors(f"{name} fails for an input of the shape {x.shape}", f"Correct {name}, or leave it out."):
            return place.write(choice, x) if module is None else module(x)

    net, owners = space.written(assignment, write)
    tags, count = list[str](), dict[str, int]()
    for node, owner in zip(net.nodes, owners, strict=True):
        count[owner] = count.get(owner, -1) + 1
        # After layers of a different width, the same choice has different weights.
        width = "x".join(str(shape[1]) for shape in node.unit.inputs)
        tags.append(f"{re.sub('[^A-Za-z0-9_]', '_', owner)}/{count[owner]}_{width}")
    return TaggedNet(net=net, tags=tuple(tags))

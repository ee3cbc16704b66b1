"""Primitives: the blocks that a cell group can be made of, by name, and where a user's own come from.

A block is a function of a `Symbol`, the width that it makes and its stride. The published names are
`<Family>block_<i>`; what a number means is a matter of the numbering, of which there are two (see
`primitive_families`), so that every primitive says in words what it is made of and has a digest of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnomon.errors import ProblemError
from gnomon.spaces.symbol import Symbol, Trace

PrimitiveBlock = Callable[[Symbol, int, int], Symbol]
"""Writes a block down: its input, the number of channels that it makes, its stride; returns its output."""

_NAME = re.compile(r"(?P<family>[A-Za-z][A-Za-z0-9_]*?)block_(?P<number>[0-9]{1,6})", re.ASCII)
_DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A block by its published name; `meaning` says in words what it is made of."""

    family: str
    number: int
    block: PrimitiveBlock
    meaning: str = ""

    @property
    def name(self) -> str:
        """As configs and tables spell it: "Mobileblock_3"."""
        return f"{self.family}block_{self.number}"

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that stand for what it is made of, whatever it is called and numbered.

        Of the layers that it becomes with 8 channels in and 8 or 16 out, with stride 1 and 2.
        """
        made = []
        for channels, stride in ((8, 1), (16, 2)):
            trace = Trace(((1, 8, 16, 16),))
            net = trace.net(self.block(trace.input(), channels, stride))
            made.append([[node.unit.canonical(), *node.inputs] for node in net.nodes])
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()[:_DIGEST_DIGITS]


def parse_name(name: str) -> tuple[str, int]:
    """The family and the number of a primitive's name. ProblemError for what is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ProblemError(
            f"{name!r} is no name of a primitive", hint="Names are such as Mobileblock_3: a family, 'block_', a number."
        )
    return match["family"], int(match["number"])


def families_of(primitives: Iterable[Primitive]) -> dict[str, tuple[Primitive, ...]]:
    """Primitives by family, families in the order of their first, primitives by their number."""
    found: dict[str, list[Primitive]] = {}
    for one in primitives:
        found.setdefault(one.family, []).append(one)
    return {family: tuple(sorted(ones, key=lambda one: one.number)) for family, ones in found.items()}


def named(known: Mapping[str, Primitive], names: Sequence[str]) -> tuple[Primitive, ...]:
    """The primitives of these names. ProblemError that lists all unknown ones, and what there is."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ProblemError(
            f"there are no primitives {', '.join(unknown)}",
            hint=f"Known: {', '.join(known)}. Your own come from a file or a package: --blocks FILE.py",
        )
    return tuple(known[name] for name in names)

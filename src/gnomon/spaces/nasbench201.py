"""NAS-Bench-201: a cell of four nodes, one of five operations on each of its six edges. Dong and Yang, ICLR 2020.

The nets are those that the benchmark trained (D-X-Y/NAS-Bench-201, TinyNetwork, C = 16, N = 5, CIFAR-10): stem, three
stages of five cells, a residual block between stages, and a head. `none` writes zeros, which the original computes and
adds; `live` leaves out whatever is dead, as an optimising runtime does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.spaces.features import Assignment, CountTables
from gnomon.spaces.fuse import UNFUSED, Chain, FusionRules
from gnomon.spaces.nasbench201_net import EDGES, OPERATIONS, whole_net
from gnomon.spaces.nasbench201_tables import tables_of
from gnomon.spaces.net import Net, live
from gnomon.spaces.unit import Unit

_NODE = re.compile(r"(?P<operation>[a-z0-9_]+)~(?P<source>[0-9])")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NasBench201:
    """The space; `live` says whether dead parts of its nets are left out."""

    live: bool = False
    space: Space = field(init=False)
    _tables: dict[frozenset[Chain], CountTables] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        slots = tuple(Slot(f"edge {source}->{target}", OPERATIONS) for source, target in EDGES)
        object.__setattr__(self, "space", Space(slots))

    @property
    def name(self) -> str:
        """ "nasbench201", or "nasbench201-live" without dead parts."""
        return "nasbench201-live" if self.live else "nasbench201"

    def net(self, assignment: Assignment) -> Net:
        """The net of the operations on the six edges."""
        operations = [int(choice) for choice in assignment]
        self.space.encode(operations)
        whole = whole_net(operations)
        return live(whole) if self.live else whole

    def tables(self, rules: FusionRules = UNFUSED) -> CountTables:
        """All units and how to count them, made once for each set of rules."""
        if rules.chains not in self._tables:
            self._tables[rules.chains] = tables_of(self.space, rules, live=self.live)
        return self._tables[rules.chains]

    def units(self) -> tuple[Unit, ...]:
        """All units that occur in some net, an operator each."""
        return self.tables().units


def assignment_of(text: str) -> tuple[int, ...]:
    """The assignment of an architecture string. ProblemError for one that is malformed."""
    parts = text.strip().split("+")
    found: list[int] = []
    for target, part in enumerate(parts, start=1):
        inner = part[1:-1].split("|") if len(part) > 2 and part[0] == part[-1] == "|" else []
        for source, word in enumerate(inner):
            match = _NODE.fullmatch(word)
            if match is None or match["operation"] not in OPERATIONS or int(match["source"]) != source:
                raise ProblemError(
                    f"{word[:80]!r} is not the operation on the edge from node {source} to node {target}",
                    hint=f"Write operation~source, with an operation of: {', '.join(OPERATIONS)}.",
                )
            found.append(OPERATIONS.index(match["operation"]))
        if len(inner) != target:
            break
    if len(parts) != 3 or len(found) != len(EDGES):
        raise ProblemError(
            f"{text[:80]!r} is no architecture of NAS-Bench-201",
            hint="It is like |nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|.",
        )
    return tuple(found)


def architecture(assignment: Assignment) -> str:
    """The architecture string of an assignment."""
    nodes = []
    for target in (1, 2, 3):
        words = [
            f"{OPERATIONS[int(choice)]}~{source}"
            for (source, end), choice in zip(EDGES, assignment, strict=True)
            if end == target
        ]
        nodes.append("|" + "|".join(words) + "|")
    return "+".join(nodes)


def live_nasbench201() -> NasBench201:
    """The space without the dead parts of its nets."""
    return NasBench201(live=True)

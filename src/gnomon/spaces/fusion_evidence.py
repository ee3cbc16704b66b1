"""Evidence of fusion: from the groups in a runtime's optimised graph, or from the times of a, b and both together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.errors import ProblemError
from gnomon.spaces.fuse import Chain, FusionRules, joins
from gnomon.spaces.net import Net
from gnomon.spaces.unit import Unit

Verdict = Literal["fused", "not fused", "cannot tell"]

SHARE = 0.5
"""The share of the shorter time that fused operators save at least, as in nn-Meter (Zhang et al., MobiSys 2021)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Whether a chain runs as one, and by what it was seen.

    `source` is "graph" or "times". From a graph `seen` places had the chain and `fused` of them ran it as one; from
    times `saved` is the share of the shorter one that ran together they save, `low` to `high` its interval.
    """

    chain: Chain
    verdict: Verdict
    source: Literal["graph", "times"]
    seen: int = 0
    fused: int = 0
    saved: float | None = None
    low: float | None = None
    high: float | None = None

    def document(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        made: dict[str, Any] = {"chain": "+".join(self.chain), "verdict": self.verdict, "source": self.source}
        if self.source == "graph":
            return {**made, "seen": self.seen, "fused": self.fused}
        return {**made, "saved": self.saved, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A time without the overhead of a call, with its interval. ProblemError unless 0 <= low <= mid <= high."""

    low_s: float
    mid_s: float
    high_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.mid_s <= self.high_s < float("inf"):
            raise ProblemError(
                f"{self.low_s}, {self.mid_s}, {self.high_s} s are no time with its interval",
                hint="Give the low end, the middle and the high end, none negative.",
            )


def from_times(chain: Chain, a: Timed, b: Timed, ab: Timed) -> Evidence:
    """Whether a and b run as one in ab: they do where much more than `SHARE` of the shorter of them is saved.

    "cannot tell" where the interval of what is saved holds `SHARE`, or the shorter time cannot be told from nothing.
    """
    shorter = min(a, b, key=lambda timed: timed.mid_s)
    if shorter.low_s <= 0:
        return Evidence(chain=chain, verdict="cannot tell", source="times")
    saved = (a.mid_s + b.mid_s - ab.mid_s) / shorter.mid_s
    ends = [
        (a_s + b_s - ab_s) / (a_s if shorter is a else b_s)
        for a_s in (a.low_s, a.high_s)
        for b_s in (b.low_s, b.high_s)
        for ab_s in (ab.low_s, ab.high_s)
    ]
    low, high = min(ends), max(ends)
    verdict: Verdict = "fused" if low > SHARE else "not fused" if high < SHARE else "cannot tell"
    return Evidence(chain=chain, verdict=verdict, source="times", saved=saved, low=low, high=high)


def from_groups(net: Net, groups: Iterable[Sequence[str]]) -> tuple[Evidence, ...]:
    """What a runtime's optimised graph of a net tells: `groups` are the operators that became one kernel, by name.

    The names are those of the written model (see `Net.layer_names`); of a layer that was written as several operators
    any will do. Names of other operators are passed over, and an operator in no group is taken to be alone. A chain
    that is fused in at least half of the places that have it counts as fused. ProblemError where an operator is in two
    groups, or the units are chains already.
    """
    if any(len(node.unit.layers) > 1 for node in net.nodes):
        raise ProblemError("the net is fused already", hint="Give the net with single operators.")
    named = {name: node for name, node, _ in net.layer_names()}
    group_of: dict[int, int] = {}
    for number, names in enumerate(groups):
        for node in {named[known] for name in names if (known := _known(name, named)) is not None}:
            if group_of.setdefault(node, number) != number:
                raise ProblemError(f"node {node} is in two groups of the runtime", hint="Give each operator once.")
    chains = _chains(net, group_of)
    found: list[Evidence] = []
    for chain in sorted({chain for chain, _ in chains}):
        places = [together for other, together in chains if other == chain]
        fused = sum(places)
        verdict: Verdict = "fused" if 2 * fused >= len(places) else "not fused"
        found.append(Evidence(chain=chain, verdict=verdict, source="graph", seen=len(places), fused=fused))
    return tuple(found)


def rules_of(evidence: Iterable[Evidence]) -> FusionRules:
    """The rules of the chains that are fused, by the evidence."""
    return FusionRules(frozenset(one.chain for one in evidence if one.verdict == "fused"))


def candidates(nets: Iterable[Net]) -> dict[Chain, tuple[tuple[Unit, Unit, Unit], ...]]:
    """What to time to find the next rules: for each chain that could be one, the different units a, b and ab.

    Give nets that are fused by the rules found so far: chains then grow by a layer a round until none is found.
    """
    found: dict[Chain, dict[tuple[Unit, Unit, Unit], None]] = {}
    for net in nets:
        for a, b, ab in joins(net):
            found.setdefault(ab.kinds, {})[a, b, ab] = None
    return {chain: tuple(units) for chain, units in found.items()}


def _known(name: str, named: dict[str, int]) -> str | None:
    """The layer that an operator's name belongs to: "n3.0.Linear" for "n3.0.Linear.Flatten"."""
    while name and name not in named:
        name = name.rpartition(".")[0]
    return name or None


def _chains(net: Net, group_of: dict[int, int]) -> list[tuple[Chain, bool]]:
    """Each chain that the runtime has, and each that it would have with one more layer, with whether it is one."""
    readers = net.readers()
    chain_to: list[Chain] = []
    found: list[tuple[Chain, bool]] = []
    for index, node in enumerate(net.nodes):
        kinds = node.unit.kinds
        refs = [ref for ref in node.inputs if ref >= 0 and readers[ref] == 1]
        refs = refs if kinds[0] == "Add" else [ref for ref in refs if ref == node.inputs[0]]
        together = [ref for ref in refs if ref in group_of and group_of.get(index) == group_of[ref]]
        before = max(together, default=max(refs, default=-1))
        if before >= 0:
            found.append((chain_to[before] + kinds, bool(together)))
        chain_to.append(chain_to[before] + kinds if together else kinds)
    return found

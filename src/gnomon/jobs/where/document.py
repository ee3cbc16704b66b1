"""The JSON document of `gnomon where`, which is what the function returns; docs/jobs/where.md describes each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnomon.errors import GATE_FAILED
from gnomon.measure.environment import Caveat
from gnomon.report import units
from gnomon.report.answer import FirstVersion
from gnomon.session.document import ModelPart, OperatorPart
from gnomon.session.targets import Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePart(OperatorPart):
    """An operator of the model as a runtime loads it: `data` is the type and shape of what it makes first.

    It lies on `backend`, "unknown" where the runtime does not tell. `reason` is what was said of why it does not lie
    where it was asked for: "" where nothing was.
    """

    data: str
    backend: str
    reason: str


def share_of(nodes: Sequence[NodePart], of: Sequence[NodePart]) -> float:
    """The share that operators have of the multiply-accumulates of all, or of their number where there are none."""
    macs = sum(node.macs or 0 for node in of)
    return sum(node.macs or 0 for node in nodes) / macs if macs else len(nodes) / max(1, len(of))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPart:
    """A configuration that was loaded, with all operators.

    `asked` are the backends that were asked for; where any will do, those that it uses. What lies there has the `share`
    of the multiply-accumulates, see `share_of`. `crossings` are the tensors that go from one backend to another.
    """

    name: str
    runtime: str
    asked: tuple[str, ...]
    share: float
    crossings: int
    nodes: tuple[NodePart, ...]

    @property
    def backends(self) -> dict[str, list[NodePart]]:
        """The operators grouped by backend, the requested backends first."""
        by_backend: dict[str, list[NodePart]] = {}
        for node in sorted(self.nodes, key=lambda node: node.backend not in self.asked):
            by_backend.setdefault(node.backend, []).append(node)
        return by_backend

    @property
    def fallback(self) -> str:
        """The operators off the requested backend, and why, in a sentence without its full stop; "" without any."""
        there = [node for node in self.nodes if node.backend in self.asked]
        left = [node for node in self.nodes if node.backend not in self.asked]
        if not left:
            return ""
        first = left[0]
        alike = sum(node.type == first.type for node in there)
        shown = f"{alike} other {first.type} are there, so type, shape or settings decide" if alike else "none is there"
        why = first.reason.rstrip(".") or f"{self.runtime} does not say why; {shown}"
        has = f"{self.name}: {' or '.join(self.asked) or 'what is known'} has {len(there)} of {len(self.nodes)}"
        return f"{has}; the first on {first.backend} is {first.type} {first.name!r} ({first.data}): {why}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhereDocument(FirstVersion):
    """Where configurations run a model's operators. `asked` are the backends that were named, `doubts` what `gnomon
    check` finds and what was done to load the model, `missing` runtimes and backends that were left out. With
    `fail_below` less than that share of any is a failure, and so is a backend that was named and left out.
    """

    format: Literal["gnomon-where"] = "gnomon-where"
    model: ModelPart
    device: str
    versions: Mapping[str, str]
    asked: tuple[str, ...]
    loaded: tuple[LoadedPart, ...]
    doubts: tuple[Caveat, ...]
    missing: tuple[Missing, ...]
    fail_below: float | None
    seconds: float

    main = "loaded"

    def headline(self) -> tuple[str, str]:
        """The file, and how much of it lies where it was asked for, in the configuration with the least there."""
        name, least = Path(self.model.path).name, min(self.loaded, key=lambda part: part.share)
        of = "multiply-accumulates" if self.model.macs else "operators"
        return name, f"{least.name} has {units.share(least.share)} of the {of} of {name} on {' or '.join(least.asked)}"

    @property
    def exit_code(self) -> int:
        """That of the gate, where `fail_below` makes one."""
        least = min(part.share for part in self.loaded)
        used = {backend for part in self.loaded for backend in (part.runtime, *part.asked, *part.backends)}
        failed = self.fail_below is not None and (least < self.fail_below or set(self.asked) - used)
        return GATE_FAILED if failed else 0

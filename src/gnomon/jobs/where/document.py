"""The JSON document that `gnomon where` returns; docs/jobs/where.md describes each key."""

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
    """An operator of the model as a runtime loads it: `data` is the type and shape of its first output.

    It runs on `backend`, which is "unknown" if the runtime does not report it. `reason` is the reported reason why it
    does not run on a requested backend, "" without a reason.
    """

    data: str
    backend: str
    reason: str


def share_of(nodes: Sequence[NodePart], of: Sequence[NodePart]) -> float:
    """The share of `nodes` in the multiply-accumulates of the operators `of`, or in their number if they have none."""
    macs = sum(node.macs or 0 for node in of)
    return sum(node.macs or 0 for node in nodes) / macs if macs else len(nodes) / max(1, len(of))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPart:
    """A configuration that was loaded, with all operators.

    `asked` are the requested backends; without a request, those that the configuration uses. `share` is the share of
    the multiply-accumulates on these backends (see `share_of`). `crossings` are the tensors that pass from one backend
    to another.
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
        """The operators outside the requested backends and why, as a sentence without a full stop; "" without any."""
        there = [node for node in self.nodes if node.backend in self.asked]
        left = [node for node in self.nodes if node.backend not in self.asked]
        if not left:
            return ""
        first = left[0]
        alike = sum(node.type == first.type for node in there)
        shown = f"{alike} other {first.type} ran there" if alike else f"no {first.type} ran there"
        why = first.reason.rstrip(".") or f"{self.runtime} does not report why; {shown}"
        has = f"{self.name}: {' or '.join(self.asked) or 'a known backend'} runs {len(there)} of {len(self.nodes)}"
        return f"{has} operators; the first on {first.backend} is {first.type} {first.name!r} ({first.data}): {why}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhereDocument(FirstVersion):
    """The backends on which configurations run a model's operators.

    `asked` are the named backends. `doubts` are the findings of `gnomon check` and the measures taken to load the
    model. `missing` are the runtimes and backends that were left out. With `fail_below`, a smaller share in any
    configuration is a failure, and so is a named backend that was left out.
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
        """The file, and the smallest share on the requested backends in any configuration."""
        name, least = Path(self.model.path).name, min(self.loaded, key=lambda part: part.share)
        of = "multiply-accumulates" if self.model.macs else "operators"
        return name, f"{least.name} runs {units.share(least.share)} of the {of} of {name} on {' or '.join(least.asked)}"

    @property
    def exit_code(self) -> int:
        """The exit code of the gate if there is one (`fail_below`), otherwise 0."""
        least = min(part.share for part in self.loaded)
        used = {backend for part in self.loaded for backend in (part.runtime, *part.asked, *part.backends)}
        failed = self.fail_below is not None and (least < self.fail_below or set(self.asked) - used)
        return GATE_FAILED if failed else 0

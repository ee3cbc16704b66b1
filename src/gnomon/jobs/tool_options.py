"""What a tool that measures by itself is asked, as a user says it: KEY=VALUE, gnomon's own keys and the tool's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.errors import UsageError
from gnomon.jobs.request import Request
from gnomon.runtimes.bench_tool import BenchOrder, BenchTool, bench_tools

_OWN = ("runs", "inputs", "benches", "anchor", "timeout")
_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """How a tool measures: `benches` separate starts of a model give its interval, each of `runs` over `inputs`.

    Twice as many are made where those do not tell it well enough. The anchor is benched again before each `anchor`
    models. A program of the tool is killed after `timeout_s`.
    `settings` are the tool's own, which it checks.
    """

    runs: int = 5
    inputs: int = 10
    benches: int = 3
    anchor: int = 8
    timeout_s: float = _TIMEOUT_S
    settings: Mapping[str, str] = field(default_factory=dict)

    def order(self, backend: str, seed: int) -> BenchOrder:
        """The order for one backend."""
        return BenchOrder(
            backends=(backend,),
            runs=self.runs,
            inputs=self.inputs,
            seed=seed,
            timeout_s=self.timeout_s,
            settings=self.settings,
        )

    def document(self) -> dict[str, Any]:
        """What must be equal for rows to stand in one table, as JSON values."""
        return {"runs": self.runs, "inputs": self.inputs, "benches": self.benches, "settings": dict(self.settings)}


def tool_options(said: Mapping[str, str]) -> ToolOptions:
    """The options that a user says; what gnomon does not know is the tool's. UsageError for what is no number."""
    numbers = {name: _number(name, said[name]) for name in _OWN if name in said}
    timeout_s = numbers.pop("timeout", _TIMEOUT_S)
    settings = {name: value for name, value in said.items() if name not in _OWN}
    return ToolOptions(timeout_s=float(timeout_s), settings=settings, **numbers)


def options_document(document: Mapping[str, Any]) -> dict[str, str]:
    """What `ToolOptions.document` wrote, as a user would say it."""
    own = {name: str(document[name]) for name in ("runs", "inputs", "benches") if name in document}
    return {**own, **{str(name): str(value) for name, value in dict(document.get("settings", {})).items()}}


def tool_of(request: Request) -> BenchTool | None:
    """The tool that a request names, or None where it names runtimes. UsageError where it names both."""
    tools = bench_tools()
    named = [name for name in request.runtimes if name in tools]
    if named and len(request.runtimes) > 1:
        raise UsageError(
            f"a table is of one runtime, not of {', '.join(request.runtimes)}", hint=f"Give --runtime {named[0]} alone."
        )
    return tools[named[0]] if named else None


def backend_of(tool: BenchTool, request: Request) -> str:
    """The one backend that is meant. UsageError for several, or for one that the tool does not have."""
    wish = request.wish
    known = tool.probe().backends
    if len(wish.backends) > 1:
        raise UsageError(
            f"a table is of one backend of {tool.name}, not of {', '.join(wish.backends)}",
            hint="Build one table each, with --out of its own.",
        )
    if wish.precisions or wish.environments:
        raise UsageError(
            f"{tool.name} measures by itself, and takes no --precision or --env", hint="Use --set for its settings."
        )
    chosen = wish.backends[0] if wish.backends else tool.usual
    if chosen not in known:
        raise UsageError(f"{tool.name} has no backend {chosen[:60]!r}", hint=f"It has: {', '.join(known)}.")
    return chosen


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise UsageError(f"{name} is {text[:60]!r}", hint=f"Give a whole number of 1 or more: {name}=5.")
    return int(text)

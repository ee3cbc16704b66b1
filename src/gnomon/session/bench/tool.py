"""A tool that measures by itself, such as SNPE's, in place of a runtime, and as its link (docs/runtimes/snpe.md)."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.devices.base import Device
from gnomon.errors import MeasurementError, UsageError
from gnomon.measure.effort import Effort
from gnomon.measure.link import Event
from gnomon.measure.program import ProgramLink
from gnomon.runtimes.base import Assignment, Configuration, PlacedModel, whole_segment
from gnomon.runtimes.snpe import Benched, BenchOrder, BenchTool, bench_tools
from gnomon.session.request import MeasureRequest
from gnomon.session.targets import describe


def tool_of(request: MeasureRequest) -> BenchTool | None:
    """The tool that a request names, or None where it names runtimes. UsageError where it names both."""
    tools = bench_tools()
    named = [name for name in request.runtimes if name in tools]
    if named and len(request.runtimes) > 1:
        raise UsageError(
            f"a table is of one runtime, not of {', '.join(request.runtimes)}", hint=f"Give --runtime {named[0]} alone."
        )
    return tools[named[0]] if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRuntime:
    """A tool, and how it is asked: what a bench has in the place of a runtime.

    `benches` separate starts of a model give its interval, each as `order` says; twice as many are made where those do
    not tell it well enough. The anchor is benched again before each `anchor` models.
    """

    tool: BenchTool
    order: BenchOrder
    benches: int = 3
    anchor: int = 8

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def formats(self) -> frozenset[str]:
        """The formats that the tool converts from."""
        return self.tool.formats

    @property
    def backend(self) -> str:
        """The one backend that is asked for."""
        return self.order.backends[0]

    @property
    def protocol(self) -> dict[str, Any]:
        """What must be equal for rows to stand in one table, as JSON values."""
        order = self.order
        return {"runs": order.runs, "inputs": order.inputs, "benches": self.benches, "settings": dict(order.settings)}

    @property
    def configuration(self) -> Configuration:
        """The one configuration that there is."""
        return Configuration(
            runtime=self.name, name=f"{self.name} {self.backend}", backends=(self.backend,), options=self.protocol
        )

    @property
    def effort(self) -> Effort:
        """A process for each bench, and a visit in each."""
        return Effort(
            rounds=1,
            processes_least=self.benches,
            processes_most=self.benches,
            laggard=1e9,
            together=self.anchor + 1,
        )

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> dict[str, Any]:
        """What the link is asked to measure."""
        return whole_segment(self.name, model, configuration.options)


_OWN = ("runs", "inputs", "benches", "anchor", "timeout")


def tool_runtime(
    tool: BenchTool, request: MeasureRequest, said: Mapping[str, str], tell: Callable[[str], None] | None = None
) -> ToolRuntime:
    """What a request asks of a tool, by the settings that a user says; those that gnomon does not know are the tool's.

    Says which wishes the tool has no way to keep. UsageError for what is invalid, RuntimeMissingError for a tool
    that is not there.
    """
    numbers = {name: _number(name, said[name]) for name in _OWN if name in said}
    usual = BenchOrder()
    order = BenchOrder(
        backends=(_backend(tool, request),),
        runs=numbers.pop("runs", usual.runs),
        inputs=numbers.pop("inputs", usual.inputs),
        seed=request.seed,
        timeout_s=float(max(numbers.pop("timeout", usual.timeout_s), request.effort.timeout_s)),
        settings={name: value for name, value in said.items() if name not in _OWN},
    )
    asked = {"--pin": request.device.pin, "--governor": request.device.governor}
    idle = [name for name, value in asked.items() if value]
    if tell is not None and idle:
        tell(f"{tool.name} measures by itself: {' and '.join(idle)} have no part in it")
    return ToolRuntime(tool=tool, order=order, **numbers)


def said_of(protocol: Mapping[str, Any]) -> dict[str, str]:
    """The settings of `ToolRuntime.protocol`, as a user would say them."""
    own = {name: str(protocol[name]) for name in _OWN if name in protocol}
    return {**own, **{str(name): str(value) for name, value in dict(protocol.get("settings", {})).items()}}


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise UsageError(f"{name} is {text[:60]!r}", hint=f"Give a whole number of 1 or more: {name}=5.")
    return int(text)


def _backend(tool: BenchTool, request: MeasureRequest) -> str:
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


class ToolLink(ProgramLink):
    """Measures by a tool that measures by itself, on models that lie on this machine.

    A process of a candidate is one bench of it. The tool keeps no raw times: its average is the one sample. What else
    it told is kept as facts: `reported` (its figures in its own unit), `layers` (their names), `told` (of the device
    and of itself) and `rounding_s` (what the sample may be wrong by as the tool rounds).
    """

    def __init__(self, device: Device, runtime: ToolRuntime) -> None:
        self._runtime = runtime
        super().__init__(device, programs={})

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        """Serve a measuring request, the anchor first; see `AgentLink.request`.

        MeasurementError where the anchor does not run: then it is not the others, and nothing is told of them.
        """
        before = self.state()
        entries = sorted(request["candidates"], key=lambda entry: str(entry["key"]))
        random.Random(request["seed"]).shuffle(entries)  # noqa: S311 - an order that can be repeated
        entries.sort(key=lambda entry: not entry.get("anchor"))
        anchor = next((entry for entry in entries if entry.get("anchor")), None)
        for entry in entries:
            started = time.time()
            found = self._bench(entry)
            if isinstance(found, Failure) and anchor is not None:
                beside = self._bench(anchor)
                if isinstance(beside, Failure):
                    raise MeasurementError(
                        f"{self._runtime.name} no longer runs the reference kernel: {describe(beside)}",
                        hint="See what is wrong with the device or the tool, then start again: what was measured is "
                        "kept.",
                    )
                found = beside if entry is anchor else found
            if isinstance(found, Failure):
                on_event({"event": "failure", "candidate": entry["key"], "block": 0, **asdict(found)})
            else:
                self._say(found, entry["key"], started, on_event)
        on_event({"event": "environment", "data": {"before": before, "after": self.state()}})

    def _bench(self, entry: Mapping[str, Any]) -> Benched | Failure:
        """One bench on the one backend that was asked for, with the time that counts."""
        tool = self._runtime.tool
        found = tool.measure(self.device, Path(entry["open"]["job"]["segments"][0]["model"]), self._runtime.order)
        if isinstance(found, Failure):
            return found
        if not found.times_s:
            silent = Failure(stage="run", kind="refused", transient=False, message=f"{tool.name} reported nothing")
            return next(iter(found.failures.values()), silent)
        key, statistic = tool.lookup
        value = _own(found, found.times_s).get(key, {}).get(statistic, 0.0)
        if not (math.isfinite(value) and value > 0):
            told = f"{tool.name} reported no {key}, {statistic} of it"
            return Failure(stage="run", kind="refused", transient=False, message=told)
        return found

    def _say(self, found: Benched, candidate: str, started: float, on_event: Callable[[Event], None]) -> None:
        tool, order = self._runtime.tool, self._runtime.order
        key, statistic = tool.lookup
        layers, inner = list(_own(found, found.layers_s)), order.runs * order.inputs
        figures = {f"{k}/{s}": value for k, row in _own(found, found.figures).items() for s, value in row.items()}
        on_event(
            {
                "event": "opened",
                "candidate": candidate,
                "reported": figures,
                "layers": layers,
                "told": dict(found.told),
                # Each layer is rounded by itself, and always alike: half a step each, as independent errors add.
                "rounding_s": tool.resolution_s / 2 * math.sqrt(max(1, len(layers))),
            }
        )
        on_event(
            {
                "event": "block",
                "candidate": candidate,
                "block": 0,
                "started_at_s": started,
                "wall_ns": [round(_own(found, found.times_s)[key][statistic] * inner * 1e9)],
                # The tool reports no CPU time: zeros, by which `cpu_tells` decides for the wall.
                "cpu_ns": [0],
                "inner": inner,
                "peak_rss_bytes": None,
            }
        )


_Figures = Mapping[str, Mapping[str, float]]


def _own(found: Benched, by_backend: Mapping[str, _Figures]) -> _Figures:
    """What was told of the one backend that was asked for, as the tool calls it."""
    return by_backend.get(next(iter(found.times_s)), {})

"""ONNX Runtime with several execution providers in one session: the places of nodes, and the times of their steps.

For a provider with its own memory, kernel times cover only the launch, and the copy back waits for the launched
kernels. So an accelerator's step is everything from one such wait to the next, copies and operators together, with a
single time. On the CPU, each operator is a step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...arrays import Buffers
from ...driver import Loaded, Refused
from .binding import bound_call, fed_call
from .events import KERNEL, TraceEvent, calls_of, events_of, profile
from .marks import Node, NotOnnx, marked, nodes_of, number_of
from .providers import CPU, EXPANDED, OLDEST, RULES, WEIGHTS, report_of, session_of, version_of

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Options, Place, Provider, RuntimeModel, Segment

_HOME = "cpu"
_FETCH = "MemcpyToHost"
_BRING = "MemcpyFromHost"
#: Nodes that a provider with another layout may remove; such a provider also adds its own transposes.
_LAYOUT = frozenset({"Transpose"})
_NAMED = re.compile(r"gnomon(\d+)")


class Elsewhere(Refused):
    """Nodes are not on the planned provider, or cannot be placed there; `nodes` are their positions in the file."""

    def __init__(self, message: str, nodes: frozenset[int]) -> None:
        super().__init__(message)
        self.nodes = nodes


class _Placed:
    """A session with a planned place for each node, and the session's own report of the places."""

    def __init__(self, ort: Any, settings: Any, path: str, options: Options, places: dict[int, str]) -> None:
        if version_of(ort) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise Refused(f"ONNX Runtime {ort.__version__} ignores {RULES}: placing nodes needs {oldest} or later")
        model, self.nodes = _read(path)
        self.places = places
        self.folded = {int(a): int(b) for a, b in options.get("folded", ())}
        self.accelerators: Mapping[str, Provider] = options["accelerators"]
        settings.add_session_config_entry(WEIGHTS, os.path.dirname(os.path.abspath(path)))
        names = {
            index: (f"gnomon{index}", f"gnomon{index}/Mul") if node.type in EXPANDED else (f"gnomon{index}",)
            for index, node in enumerate(self.nodes)
        }
        marks = marked(model, places, EXPANDED)
        try:
            self.session = session_of(ort, settings, marks, self.accelerators, places, names)
        except Refused as error:
            blamed = frozenset(int(number) for number in _NAMED.findall(str(error)))
            raise Elsewhere(_NAMED.sub(lambda m: self._called(int(m[1])), str(error)), blamed) from error
        self.report = report_of(self.session)
        self.providers = self._reported()
        self._check()

    def _called(self, index: int) -> str:
        return self.nodes[index].name if index < len(self.nodes) else f"node {index}"

    def backend(self, provider: str) -> str:
        """The backend of a provider, given its name in reports; for a provider that is not in the plan, the name
        itself.
        """
        backends = {str(own["provider"]): backend for backend, own in self.accelerators.items()}
        return _HOME if provider == CPU else backends.get(provider, provider)

    def planned(self, index: int) -> str:
        """The planned backend of a node."""
        return self.places.get(index, _HOME)

    def _reported(self) -> dict[int, str]:
        """The provider of each node in the report; for a node on several providers, a provider that was not planned."""
        providers: dict[int, str] = {}
        for provider, nodes in self.report:
            for name, _ in nodes:
                index = number_of(name)
                if index is not None and (index not in providers or self.backend(provider) != self.planned(index)):
                    providers[index] = provider
        return providers

    def _check(self) -> None:
        """Raise Elsewhere unless every node is on its planned provider, according to the session's own report."""
        moved = {i: provider for i, provider in self.providers.items() if self.backend(provider) != self.planned(i)}
        for index in self.places:
            if index not in self.providers and index not in self.folded and self.nodes[index].type not in _LAYOUT:
                moved[index] = ""
        if moved:
            moves = [
                f"{self._called(i)} (planned: {self.planned(i)}) " + (f"on {provider}" if provider else "not reported")
                for i, provider in sorted(moved.items())[:3]
            ]
            raise Elsewhere(
                f"ONNX Runtime put {len(moved)} of {len(self.nodes)} nodes elsewhere than planned: {', '.join(moves)}",
                frozenset(moved),
            )

    def provider(self, index: int) -> str:
        """The reported provider of a node; a node that was folded away is on none, so its planned provider is
        returned.
        """
        if index in self.providers:
            return self.providers[index]
        planned = self.planned(index)
        return CPU if planned == _HOME else str(self.accelerators[planned]["provider"])


def _read(path: str) -> tuple[bytes, list[Node]]:
    try:
        with open(path, "rb") as file:
            model = file.read()
        return model, nodes_of(model)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from error
    except NotOnnx as error:
        raise Refused(f"{os.path.basename(path)} is not an ONNX model: {error}") from error


class PlacedSession(Loaded):
    """A model loaded by several providers, with each node placed by the option `places` (backend -> nodes)."""

    def __init__(self, ort: Any, settings: Any, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        if profiled:
            profile(settings)
        options = segment["options"]
        places = {int(index): backend for backend, own in options.get("places", {}).items() for index in own}
        self._placed = _Placed(ort, settings, segment["model"], options, places)
        self._session = self._placed.session
        self._keep = buffers
        self.call: Callable[[], object] = (
            # Inputs and outputs are passed instead of bound, so that a run's time in the profile includes their copies.
            fed_call(self._session, segment, buffers)
            if profiled
            else bound_call(self._session, segment, buffers, own_memory=bool(self._placed.places))
        )

    def where(self) -> list[Place]:
        """The provider of each node, by its place in the file, from the session's own report."""
        places: dict[str, list[int]] = {}
        for index in range(len(self._placed.nodes)):
            places.setdefault(self._placed.provider(index), []).append(index)
        return [{"operators": indices, "backend": provider} for provider, indices in places.items()]

    def operators(self, skip: int) -> list[KernelTimes]:
        """Steps from the session's profile: one for each node on the CPU, and one for each wait for an accelerator."""
        reader = _Steps(self._placed)
        rows: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for run, kernels in list(calls_of(events_of(self._session)))[skip:]:
            for step in reader.steps(run, sorted(kernels, key=lambda event: int(event["ts"]))):
                rows.setdefault((step.backend, tuple(step.nodes)), []).append(1000 * max(step.taken_us, 0))
        times: list[KernelTimes] = [
            {"name": reader.name(nodes), "sources": list(nodes), "backend": backend, "wall_ns": taken}
            for (backend, nodes), taken in rows.items()
        ]
        self.close()
        return times


class _Step:
    """The work of one backend between two waits: its nodes, in the order of the file, and its time in whole
    microseconds.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.nodes: list[int] = []
        self.taken_us = 0

    def add(self, nodes: list[int], taken_us: int) -> None:
        self.nodes = sorted({*self.nodes, *nodes})
        self.taken_us += taken_us


class _Steps:
    """Derives steps from the events of a run."""

    def __init__(self, placed: _Placed) -> None:
        self._placed, nodes = placed, placed.nodes
        inputs = {value.name for value in placed.session.get_inputs()}
        outputs = {value.name for value in placed.session.get_outputs()}
        self._reads = {i for i, node in enumerate(nodes) if inputs & set(node.inputs)}
        self._writes = {i for i, node in enumerate(nodes) if outputs & set(node.outputs)}
        self._tensors = {name: i for i, node in enumerate(nodes) for name in node.outputs}

    def name(self, nodes: tuple[int, ...]) -> str:
        """The name of a step."""
        node = self._placed.nodes[nodes[0]]
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        return f"{node.type} {node.name}{more}"

    def steps(self, run: TraceEvent, kernels: list[TraceEvent]) -> list[_Step]:
        """The steps of one run; copies of inputs and outputs belong to the steps that read and write them."""
        steps: list[_Step] = []
        launched: dict[str, _Step] = {}
        parts = self._parts(kernels)
        early_us, home = 0, None
        for event in kernels:
            kind, taken_us = str(event["args"].get("op_name")), int(event["dur"])
            backend = self._placed.backend(str(event["args"].get("provider")))
            if backend == _HOME:
                index = self._index(event)
                if index is not None:
                    home = next((s for s in steps if s.backend == backend and index in s.nodes), None)
                    if home is None:
                        home = _Step(backend)
                        steps.append(home)
                    home.add([index], taken_us + early_us)
                    early_us = 0
                elif home is not None:  # a node added by ONNX Runtime, such as a reorder after a convolution
                    home.add([], taken_us)
                else:
                    early_us += taken_us
                continue
            memory = bool(self._placed.accelerators.get(backend, {}).get("memory"))
            step = launched.get(backend)
            if step is None and kind == _FETCH:
                step = next((s for s in reversed(steps) if s.backend == backend), None)
            if step is None:
                step = launched[backend] = _Step(backend)
                steps.append(step)
            index = self._index(event)
            step.add(parts.get(id(event), [] if index is None else [index]), taken_us)
            if kind == _FETCH or (not memory and kind != _BRING):
                launched.pop(backend, None)
        self._copies(run, kernels, steps)
        self._fused(steps)
        return [step for step in steps if step.nodes]

    def _fused(self, steps: list[_Step]) -> None:
        """Add each node without an event to the step of the preceding node, into which it was fused."""
        at = {index: step for step in steps for index in step.nodes}
        for index, node in enumerate(self._placed.nodes):
            if index in at or index in self._placed.folded:
                continue
            backend = self._placed.backend(self._placed.provider(index))
            before = (at.get(self._tensors.get(name, -1)) for name in node.inputs)
            step = next((s for s in before if s is not None and s.backend == backend), None)
            if step is not None:
                step.add([index], 0)
                at[index] = step

    def _copies(self, run: TraceEvent, kernels: list[TraceEvent], steps: list[_Step]) -> None:
        """Add the copies of inputs and outputs to the steps that read and write them."""
        if not kernels:
            return
        before_us = kernels[0]["ts"] - run["ts"]
        behind_us = run["ts"] + run["dur"] - kernels[-1]["ts"] - kernels[-1]["dur"]
        own = [s for s in steps if self._placed.accelerators.get(s.backend, {}).get("memory")]
        reading = next((s for s in own if self._reads & set(s.nodes)), None)
        writing = next((s for s in reversed(own) if self._writes & set(s.nodes)), None)
        if reading is not None:
            reading.taken_us += before_us
        if writing is not None:
            writing.taken_us += behind_us

    def _parts(self, kernels: list[TraceEvent]) -> dict[int, list[int]]:
        """The nodes of each event of a compiled part; parts are reported in the order of execution."""
        parts: dict[int, list[int]] = {}
        for backend, own in self._placed.accelerators.items():
            reported = [(p, nodes) for p, nodes in self._placed.report if p == own["provider"]]
            kinds = {kind for _, nodes in reported for _, kind in nodes}
            mine = [e for e in kernels if self._placed.backend(str(e["args"].get("provider"))) == backend]
            fused = [e for e in mine if str(e["args"].get("op_name")) not in {*kinds, _FETCH, _BRING}]
            if len(fused) != len(reported) or any(self._index(event) is not None for event in fused):
                continue
            for event, (_, nodes) in zip(fused, reported, strict=True):
                parts[id(event)] = sorted({i for name, _ in nodes if (i := number_of(name)) is not None})
        return parts

    def _index(self, event: TraceEvent) -> int | None:
        """The node of an event, from the name that ONNX Runtime derived from the node's name or from its outputs."""
        name = event["name"].removesuffix(KERNEL)
        number = number_of(name)
        if number is not None:
            return number
        ends = (len(name), *(k for k in range(len(name) - 1, 0, -1) if name[k] == "_"))
        return next((self._tensors[name[:k]] for k in ends if name[:k] in self._tensors), None)


def supports(ort: Any, settings: Callable[[], Any], segment: RuntimeModel) -> Answer:
    """The nodes that the backend in the option `try` takes, found by loading: ``{backend: [nodes]}``.

    For "cpu" these are the nodes that remain after ONNX Runtime has folded the graph. For an accelerator, these are the
    nodes that it took by its own choice, without those that it refuses when they are placed on it. Refused if it takes
    none, or if placing them fails and neither it nor ONNX Runtime names a node to blame.
    """
    options, path = segment["options"], segment["model"]
    backend: str = options["try"]
    if backend == _HOME:
        left = _Placed(ort, settings(), path, options, {})
        return {_HOME: sorted(left.providers)}
    own = options["accelerators"][backend]
    model, _ = _read(path)
    prepared = settings()
    prepared.add_session_config_entry(WEIGHTS, os.path.dirname(os.path.abspath(path)))
    free = session_of(ort, prepared, marked(model, {}), {backend: own}, None, {})
    taken = {
        index
        for provider, nodes in report_of(free)
        for name, _ in nodes
        if provider == own["provider"] and (index := number_of(name)) is not None
    }
    del free
    struck: set[int] = set()
    while taken:
        try:
            _Placed(ort, settings(), path, {**options, "folded": ()}, dict.fromkeys(taken, backend))
        except Elsewhere as error:
            if not error.nodes & taken:
                raise
            struck |= error.nodes & taken
            taken -= error.nodes
        else:
            break
    if not taken:
        raise Refused(f"{own['provider']} supports no node of the model, so the whole model would run on the CPU")
    return {backend: sorted(taken), "struck": sorted(struck)}

"""ONNX Runtime on the device: zero-copy bindings, its profiler, and its own report of where nodes run."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...another import tell
from ...arrays import Buffers
from ...driver import Loaded, Refused, libraries, refusing
from ...lifeline import die_with_parent
from ...said import lines_since, printed
from .binding import bound_call, fed_call
from .events import KERNEL, calls_of, events_of, profile
from .placed import PlacedSession, supports
from .providers import ASSIGNED, CPU, providers_here, report_of, session_of, tried_provider

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Options, Place, ProbeAnswer, RuntimeModel, Segment

_LEFT = re.compile(r"not found|not support|unsupported|fallback to CPU", re.IGNORECASE)
"""Messages of providers that leave a node to the next provider."""

_arena_registered = False


def _onnxruntime() -> Any:
    """The package with its telemetry switched off, so that a measured process does not use the network.

    The variable must be set before the import; builds that do not read it have the function `disable_telemetry_events`.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    with contextlib.suppress(AttributeError):
        onnxruntime.disable_telemetry_events()
    return onnxruntime


def _options(ort: Any, options: Options) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    for name, value in options.get("session", {}).items():
        settings.add_session_config_entry(name, value)
    for path in libraries(options):
        settings.register_custom_ops_library(path)
    settings.add_session_config_entry(ASSIGNED, "1")
    if options.get("usual"):
        return settings
    settings.intra_op_num_threads = int(options.get("threads", 1))
    settings.inter_op_num_threads = 1
    if not options.get("optimise", True):
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, size in options.get("dims", {}).items():
        settings.add_free_dimension_override_by_name(name, int(size))
    if options.get("shared_arena"):
        # Sessions with separate arenas evict each other's memory from the caches; a shared arena keeps a chain's memory
        # warm.
        global _arena_registered
        if not _arena_registered:
            kind = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
            ort.create_and_register_allocator(kind, None)
            _arena_registered = True
        settings.add_session_config_entry("session.use_env_allocators", "1")
    return settings


class OnnxRuntimeSession(Loaded):
    """A model loaded by ONNX Runtime, bound to the caller's arrays."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool, session: Any = None) -> None:
        ort = _onnxruntime()

        options = segment.get("options", {})
        settings = _options(ort, options)
        if profiled:
            profile(settings)
        begun = printed() if options.get("explain") else None
        with refusing():
            self._session = session or _opened(ort, settings, segment)
        self._logged = lines_since(begun)
        self._keep = buffers
        self.call: Callable[[], object] = (
            fed_call(self._session, segment, buffers)
            if options.get("usual")
            else bound_call(self._session, segment, buffers, own_memory="order" in options)
        )

    def beside(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> OnnxRuntimeSession:
        """The same session with other arrays, because a session can run in several threads at once."""
        return OnnxRuntimeSession(segment, buffers, profiled=profiled, session=self._session)

    def where(self) -> list[Place]:
        """The execution provider of each node, from the session's own assignment report.

        For a file in ONNX Runtime's own format there is no report, so the session's providers are returned instead. If
        the session has the option `explain`, the logged reason why a provider did not take a node is returned too.
        """
        report = report_of(self._session)
        reasons = reasons_in(self._logged, {name for _, nodes in report for name, _ in nodes})
        rows: dict[tuple[str, str], list[str | int]] = {}
        for provider, nodes in report:
            for name, _ in nodes:
                rows.setdefault((provider, reasons.get(name, "") if provider == CPU else ""), []).append(name)
        places: list[Place] = [{"operators": own, "backend": on, "reason": why} for (on, why), own in rows.items()]
        return places or [{"operators": [], "backend": name} for name in self._session.get_providers()]

    def operators(self, skip: int) -> list[KernelTimes]:
        """Kernel times, in whole microseconds, from the session's profile."""
        kernels: dict[tuple[str, str], KernelTimes] = {}
        for event in (event for _, events in calls_of(events_of(self._session)) for event in events):
            name = event["name"].removesuffix(KERNEL)
            row = kernels.setdefault(
                (name, str(event["args"].get("node_index", ""))),
                {
                    "name": f"{event['args']['op_name']} {name}",
                    "sources": [name],
                    "backend": event["args"].get("provider", ""),
                    "wall_ns": [],
                },
            )
            row["wall_ns"].append(int(event["dur"]) * 1000)
        self.close()
        for row in kernels.values():
            row["wall_ns"] = row["wall_ns"][skip:]
        return list(kernels.values())


def _opened(ort: Any, settings: Any, segment: RuntimeModel) -> Any:
    """A session with one provider, or with those in the option `order`: each takes any nodes left by the providers
    before it, and the CPU's provider comes last.
    """
    options = segment.get("options", {})
    if options.get("explain"):
        settings.log_severity_level = 0
    if "order" in options:
        return session_of(ort, settings, segment["model"], options["order"], None, {})
    provider = options.get("provider", CPU)
    if provider not in ort.get_available_providers():
        # ONNX Runtime would silently fall back to its CPU provider.
        have = ", ".join(ort.get_available_providers())
        raise Refused(f"this build of ONNX Runtime has no {provider}; it has {have}")
    return ort.InferenceSession(segment["model"], settings, providers=[provider])


def reasons_in(lines: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """The reasons that ONNX Runtime and its providers logged for not taking a node, by the node's name."""
    reasons: dict[str, str] = {}
    for line in lines:
        said = (line.partition("] ")[2] or line).strip().removeprefix("REASON : ")
        if _LEFT.search(said):
            words = (word.strip("'\"`[](),;") for word in said.split())
            reasons |= {word: said for word in words if word in names}
    return reasons


def tell_provider(backend: str, own: str) -> None:
    """Print the result of `tried_provider`, or the reason for a refusal. Runs in a process of its own."""
    die_with_parent()
    try:
        ort = _onnxruntime()
        tell(tried_provider(ort, _options(ort, {}), backend, json.loads(own)))
    except Exception as error:  # a plugin may raise anything
        tell({"refused": f"{error}"[:500]})
    os._exit(0)  # a plugin's exit handlers may crash or hang after the answer has been printed


class OnnxRuntimeDriver:
    """ONNX Runtime's part of the agent."""

    bfloat16 = True

    def probe(self) -> ProbeAnswer:
        """The version and the backends: "cpu" and the accelerators that took a node.

        `accelerators` describes how a session uses each accelerator, and `lacking` says why other installed ones took
        no node.
        """
        ort = _onnxruntime()
        tried = providers_here(ort)
        here = {backend: own for backend, own in tried.items() if "refused" not in own}
        answer: ProbeAnswer = {"version": ort.__version__, "backends": ["cpu", *here]}
        if here:
            answer["accelerators"] = here
        refused = {backend: own["refused"] for backend, own in tried.items() if "refused" in own}
        return {**answer, "lacking": refused} if refused else answer

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> OnnxRuntimeSession | PlacedSession:
        """Load a segment; options are threads, optimise, shared_arena, dims (the values of named dimensions), session
        (entries of the session's configuration), libraries, and one of: provider, accelerators with places, or order
        (providers by backend, each taking any nodes). With `explain`, the session logs which nodes a provider leaves to
        others.

        With `usual`, only the libraries count: the session sets nothing, and each call gets arrays and returns new
        ones.
        """
        if segment.get("options", {}).get("accelerators"):
            ort = _onnxruntime()
            return PlacedSession(ort, _options(ort, segment["options"]), segment, buffers, profiled=profiled)
        return OnnxRuntimeSession(segment, buffers, profiled=profiled)

    def supports(self, segment: RuntimeModel) -> Answer:
        """Check that the whole model loads: ``{"whole": true}``, or Refused with the reason.

        With the option `try`, which names one of several backends, the answer has the nodes that the backend takes: see
        `placed.supports`.
        """
        ort = _onnxruntime()

        if segment.get("options", {}).get("try"):
            return supports(ort, lambda: _options(ort, segment["options"]), segment)
        with refusing():
            _opened(ort, _options(ort, segment.get("options", {})), segment)
        return {"whole": True}

"""ONNX Runtime's execution providers other than its CPU provider: which ones really work here, and how a session uses
them.

A listed provider may load nothing, a plugin may show a device that does not exist, and a session without its requested
provider silently computes on the CPU. So a provider counts only after a session of one node has reported that the node
is on it. This test runs in a separate process, because a plugin may crash.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...another import answer_of, how_it_ended, run_function
from ...driver import Refused, refusing
from .marks import mark_of, marked

if TYPE_CHECKING:
    from gnomon.wire import Provider

CPU = "CPUExecutionProvider"
OLDEST = (1, 25)
"""The first version with rules for nodes; earlier versions silently ignore the setting."""

ASSIGNED = "session.record_ep_graph_assignment_info"
RULES = "session.layer_assignment_settings"
WEIGHTS = "session.model_external_initializers_file_folder_path"
EXPANDED = frozenset({"HardSwish"})
"""ONNX functions without a CPU kernel: an accelerator of the session takes them unless they are expanded."""

_PLUGINS = {
    "ggml": "onnxruntime_ggml",
    "openvino": "onnxruntime_ep_openvino",
    "qnn": "onnxruntime_qnn",
    "tensorrt-rtx": "onnxruntime_ep_nv_tensorrt_rtx",
    "webgpu": "onnxruntime_ep_webgpu",
}
_NO_ACCELERATOR = frozenset({CPU, "AzureExecutionProvider"})
_LIMIT_S = 120.0
_RELU = bytes.fromhex(
    "080812003a3e0a0f0a01781201791a016e220452656c751201675a130a0178120e0a0c080112080a0208010a0208046213"
    "0a0179120e0a0c080112080a0208010a02080442040a001011"
)
"""A model of one node, ``n``, from x to y, both of shape 1 x 4. A provider counts only if it takes the node."""

_devices: dict[str, object] = {}


def version_of(ort: Any) -> tuple[int, ...]:
    """The version of ONNX Runtime as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", str(ort.__version__))[:2])


def device_of(ort: Any, backend: str, module: str) -> Any:
    """The device of a plugin's provider; registers the plugin's library with this process. Refused if there is no
    device.
    """
    if backend not in _devices:
        # This variable is read when the library is registered. A device that is a program on the CPU is marked as
        # software.
        os.environ.setdefault("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
        before = {device.ep_name for device in ort.get_ep_devices()}
        with refusing(f"{module} cannot be registered with ONNX Runtime: "):
            library = importlib.import_module(module).get_library_path()
            ort.register_execution_provider_library(backend, library)
        new = [d for d in ort.get_ep_devices() if d.ep_name not in before and not _virtual(d)]
        if not new:
            raise Refused(f"{module} is installed, but offers ONNX Runtime no device")
        _devices[backend] = new[0]
    return _devices[backend]


def _virtual(device: Any) -> bool:
    """Return True if a device is virtual: models can be compiled for it, but not run."""
    metadata = {**dict(device.device.metadata), **dict(device.ep_metadata)}
    return str(metadata.get("is_virtual", "0")) not in ("0", "false")


def session_of(
    ort: Any,
    settings: Any,
    model: str | bytes,
    accelerators: Mapping[str, Provider],
    places: Mapping[int, str] | None,
    names: Mapping[int, tuple[str, ...]],
) -> Any:
    """A session with the nodes in `places` on the accelerators named there, and all other nodes on the CPU.

    Without places, the accelerators come first and take any nodes. With places, the CPU provider comes first in the
    list and an accelerator has one rule, which covers only its own nodes: with every other form, providers that compile
    nodes fail (docs/upstream/onnxruntime-partitioning.md). With several accelerators, those that accept a list of
    excluded node names go before the CPU, because two rules would fail too. `names` are the nodes' names in the model,
    by place in the file.
    """
    used = list(accelerators) if places is None else [b for b in accelerators if b in places.values()]
    first: list[tuple[str, dict[str, str]]] = []
    behind: list[tuple[str, dict[str, str]]] = []
    rules: list[str] = []
    for backend in used:
        own = accelerators[backend]
        options = {name: str(value) for name, value in own.get("options", {}).items()}
        if places is None:
            first.append((backend, options))
        elif len(used) > 1 and own.get("excludes"):
            kept = [name for index, all_ in names.items() if places.get(index) != backend for name in all_]
            first.append((backend, {**options, own["excludes"]: "\n".join(kept)}))
        else:
            rules.append(f"{own['provider']}({mark_of(backend)})")
            behind.append((backend, options))
    if rules:
        settings.add_session_config_entry(RULES, "; ".join(rules))
    listed = [*first, ("", {}), *behind]
    plugins = any(accelerators[b].get("module") for b, _ in listed if b)
    with refusing():
        if not plugins:
            providers = [(accelerators[b]["provider"] if b else CPU, options) for b, options in listed]
            session = ort.InferenceSession(model, settings, providers=providers)
        else:
            for named, options in listed:
                settings.add_provider_for_devices([_device(ort, named, accelerators.get(named))], options)
            session = ort.InferenceSession(model, settings)
    session.disable_fallback()  # otherwise a failed run would move the session to the CPU
    return session


def _device(ort: Any, backend: str, own: Provider | None) -> Any:
    """The device of a backend in a session with plugins; without a provider, the CPU's device."""
    if own is None:
        return next(d for d in ort.get_ep_devices() if d.ep_name == CPU)
    if not own.get("module"):
        raise Refused(f"{backend} is a built-in provider, which cannot share a session with a plugin's provider")
    return device_of(ort, backend, own["module"])


def report_of(session: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """The parts into which a session was divided: the provider of each, and the names and types of its nodes."""
    return [
        (part.ep_name, [(node.name, node.op_type) for node in part.get_nodes()])
        for part in session.get_provider_graph_assignment_info()
    ]


def providers_here(ort: Any) -> dict[str, Provider]:
    """The providers other than the CPU's, by backend: the installed plugins, and the providers of the build.

    Each has `provider` (the name that sessions report), `options`, `excludes` (the option that excludes nodes by name,
    if there is one), `device`, `software` (whether the device is a program on the CPU), `memory` (whether the device
    has its own memory), and the `module` of a plugin; or ``{"refused": why}`` if it took no node.
    """
    candidates: dict[str, Provider] = {}
    for backend, module in _PLUGINS.items():
        with contextlib.suppress(ImportError, ValueError):
            if importlib.util.find_spec(module) is not None:
                candidates[backend] = {"module": module}
    for provider in ort.get_available_providers():
        if provider not in _NO_ACCELERATOR:
            backend = provider.removesuffix("ExecutionProvider").lower()
            candidates[backend] = {"provider": provider, "device": backend}
    return {backend: _tried(backend, own) for backend, own in candidates.items()}


def _tried(backend: str, own: Provider) -> Provider:
    """The answer of `tried_provider` from a separate process, because a plugin may crash or hang."""
    module = f"{__name__.rpartition('.')[0]}.driver"
    try:
        done = run_function(module, "tell_provider", backend, json.dumps(own), timeout_s=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"refused": f"no answer within {_LIMIT_S:g} s"}
    answer: Provider | None = answer_of(done)
    return answer or {"refused": f"the process that tried the provider {how_it_ended(done)}"}


def tried_provider(ort: Any, settings: Any, backend: str, own: Provider) -> Provider:
    """The description of a backend's provider, once a session with these settings has reported a node on it; otherwise
    Refused.
    """
    described: Provider = {**own, "software": False, "memory": True, "options": dict(_OPTIONS.get(backend, {}))}
    if "module" in own:
        device = device_of(ort, backend, own["module"])
        kind = str(device.device.type).rpartition(".")[2]
        described["provider"] = device.ep_name
        described["device"] = f"{device.ep_vendor or device.ep_name}, {kind}"
        described["software"] = kind == "CPU"
        described["memory"] = device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is not None
        if backend in _EXCLUDES:
            described["excludes"] = _EXCLUDES[backend]
    session = session_of(ort, settings, marked(_RELU, {}), {backend: described}, None, {})
    took = [provider for provider, nodes in report_of(session) if nodes]
    if described["provider"] not in took:
        raise Refused(f"a session with {described['provider']} computes on {' and '.join(took) or 'nothing'}")
    return described


_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # Otherwise nodes are converted to another layout, with transposes between them.
    "webgpu": {"preferredLayout": "NCHW"},
    "qnn": {"backend_type": "htp"},
}
_EXCLUDES: Mapping[str, str] = {"webgpu": "forceCpuNodeNames"}

"""OpenVINO's HETERO device: assigns each operator of the source model to a device, and finds where operators ran.

Packages contain this file too, so it needs only openvino and numpy, and nothing else from the agent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Names = Sequence[Sequence[str]]
"""The names of each operator of the source model, by index: its own name and the names of the tensors that it
writes.
"""

_HELPERS = frozenset({"Constant", "Parameter", "Result"})
_CPU_PLUGIN = re.compile(r"libopenvino_(intel|arm)_cpu_plugin\.(so|dylib)")
_SUBMODEL = re.compile(r"subgraph(\d+): ")
_COMPILED_FOR = re.compile(rb'<compiled_submodel device="([^"]*)"')
_HEADER_BYTES = 1 << 20


def device_name(backend: str) -> str:
    """OpenVINO's name for a backend: "cpu" is CPU, "gpu.1" is GPU.1, and "cpu-bf16" is CPU_BF16, the CPU's plugin
    registered again.
    """
    return backend.upper().replace("-", "_")


def opened(ov: Any, backends: Iterable[str], threads: int) -> Any:
    """A core in which the backends are devices, each set to its precision. RuntimeError if a device is missing.

    A CPU computes in float32 unless the backend's name ends in another precision ("cpu-bf16"), for which its plugin is
    registered again under another name. An NPU computes only in float16.
    """
    core = ov.Core()
    for backend in backends:
        kind, _, precision = backend.partition("-")
        if kind == "cpu" and precision:
            core.register_plugin(_cpu_plugin(ov), device_name(backend))
        elif device_name(kind) not in core.available_devices:
            raise RuntimeError(f"OpenVINO has no device {device_name(kind)} here")
        settings: dict[str, object] = {"INFERENCE_PRECISION_HINT": precision or "f32", "NUM_STREAMS": 1}
        if kind == "cpu":
            settings |= {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
        if kind.startswith("npu"):
            settings = {}
        core.set_property(device_name(backend), settings)
    return core


def _cpu_plugin(ov: Any) -> str:
    """The file of the CPU's plugin among the wheel's libraries."""
    folder = os.path.join(os.path.dirname(ov.__file__), "libs")
    plugins = (
        [name for name in sorted(os.listdir(folder)) if _CPU_PLUGIN.fullmatch(name)] if os.path.isdir(folder) else []
    )
    if not plugins:
        raise RuntimeError(f"OpenVINO's CPU plugin is not in {folder}, so it cannot be registered a second time")
    return os.path.join(folder, plugins[0])


def fold(model: Any) -> Any:
    """Compute in advance all values that depend only on constants; otherwise, a cut among them could turn a
    convolution's weights into an input.
    """
    from openvino import passes

    manager = passes.Manager()
    manager.register_pass(passes.ConstantFolding())
    manager.run_passes(model)
    return model


def computing(model: Any) -> list[Any]:
    """The operations of a model that compute, in order of execution."""
    return [op for op in model.get_ordered_ops() if op.get_type_name() not in _HELPERS]


def owners(model: Any, names: Names) -> dict[str, int]:
    """Unique name of each computing operation -> index of the source operator that it belongs to.

    An operator may become several operations: "conv/WithoutBiases" and "conv" have its name; other operations belong
    with the operation that reads them. ValueError if an operation belongs to no operator.
    """
    indices = {tensor: index for index, labels in enumerate(names) for tensor in labels[1:]}
    indices |= {
        labels[0]: index for index, labels in enumerate(names)
    }  # an operator's own name takes precedence over a tensor's
    homes: dict[str, int] = {}
    for op in reversed(computing(model)):
        own = op.get_friendly_name()
        called = [own, *(name for out in op.outputs() for name in sorted(out.get_names()))]
        called += [own[:end] for end in range(len(own) - 1, 0, -1) if own[end] == "/"]
        index: int | None = next((indices[name] for name in called if name in indices), None)
        if index is None:
            index = next((homes[reader] for reader in _readers(op) if reader in homes), None)
        if index is None:
            raise ValueError(f"operation {own!r} of OpenVINO's model belongs to no operator of the file")
        homes[op.get_name()] = index
    return homes


def _readers(op: Any) -> Iterator[str]:
    for out in op.outputs():
        for target in out.get_target_inputs():
            yield target.get_node().get_name()


def place(ov: Any, model: Any, names: Names, backends: Sequence[str], places: Sequence[int]) -> None:
    """Set the affinity of every operation to the device of its operator: `places` are indices of backends.

    A constant goes with its reader; a constant with readers on several devices is duplicated for each device.
    """
    home = owners(model, names)
    devices = {name: device_name(backends[places[index]]) for name, index in home.items()}
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        if kind == "Constant":
            _spread(ov, op, devices)
            continue
        if kind == "Result":
            near: Iterable[str] = (op.input_value(0).get_node().get_name(),)
        else:
            near = (op.get_name(), *_readers(op))
        device = next((devices[name] for name in near if name in devices), device_name(backends[0]))
        op.get_rt_info()["affinity"] = device


def _spread(ov: Any, constant: Any, devices: Mapping[str, str]) -> None:
    """Give a constant the device of its readers, and a copy to readers on each other device."""
    readers: dict[str, list[Any]] = {}
    for target in constant.output(0).get_target_inputs():
        device = devices.get(target.get_node().get_name(), next(iter(devices.values())))
        readers.setdefault(device, []).append(target)
    for number, (device, targets) in enumerate(sorted(readers.items())):
        own = constant
        if number:
            own = ov.op.Constant(ov.Tensor(constant.get_data().reshape(tuple(constant.shape))))
            for target in targets:
                target.replace_source_output(own.output(0))
        own.get_rt_info()["affinity"] = device


def hetero(backends: Sequence[str]) -> str:
    """The name of the HETERO device for these backends."""
    return "HETERO:" + ",".join(device_name(backend) for backend in backends)


def submodels(compiled: Any) -> list[str]:
    """The device for which each submodel was compiled, read from the exported compiled model."""
    blob = compiled.export_model()
    data = blob.getvalue() if hasattr(blob, "getvalue") else bytes(blob)
    devices = [name.decode() for name in _COMPILED_FOR.findall(data[:_HEADER_BYTES])]
    count = int(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
    if len(devices) != count:
        raise RuntimeError(f"OpenVINO reports {count} submodels, but its exported model names {len(devices)} devices")
    return devices


def submodel_of(counter: str) -> tuple[int, str]:
    """The number of the submodel that a performance counter belongs to, and the counter's own name."""
    match = _SUBMODEL.match(counter)
    return (int(match[1]), counter[match.end() :]) if match else (0, counter)


def edges(model: Any, home: Mapping[str, int]) -> list[tuple[int, int]]:
    """The pairs of operators with a tensor between them: (writer, reader), each pair once."""
    both = {(home[op.get_name()], home[reader]) for op in computing(model) for reader in _readers(op) if reader in home}
    return sorted(pair for pair in both if pair[0] != pair[1])


def between(counter: str, sources: Mapping[str, int]) -> tuple[int | None, int | None]:
    """The operators before and after a conversion of layout or precision, from its name "WRITER_layout_layout_READER".

    An operator is None if it lies in another submodel, or if the caller provides or receives the tensor.
    """
    ends = [k for k, letter in enumerate(counter) if letter == "_"]
    reader = next((sources[counter[k + 1 :]] for k in ends if counter[k + 1 :] in sources), None)
    return next((sources[counter[:k]] for k in reversed(ends) if counter[:k] in sources), None), reader

"""ncnn on the device, through its Python wheel: feature masks in the ``.param`` put each layer on the CPU or on Vulkan.

ncnn does not report the times of layers. A profiled load measures them by extracting the blobs of one layer after
another. Each step computes only its own layer, because ncnn keeps earlier blobs. On Vulkan, the time of a step includes
waiting for the layer, fetching its outputs from the device and, if the layer reads from the CPU, copying its inputs to
the device.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Buffers, output_array
from ..driver import Loaded, Refused, entry_of
from ..said import printed, said_since

if TYPE_CHECKING:
    from gnomon.wire import Answer, DeviceFound, KernelTimes, Place, ProbeAnswer, RuntimeModel, Segment

_FEATURE_MASK, _NO_VULKAN = "31=", 16
_HEADER_LINES = 2
_CPU_DEVICE = 3  # ncnn's GpuInfo.type() of a Vulkan device that is a program on the CPU
#: The kinds of numpy arrays that an integer blob of ncnn can hold.
_INTEGERS = "iub"


def _ncnn() -> Any:
    import ncnn

    return ncnn


def masked(text: str, vulkan: Collection[int]) -> str:
    """A ``.param`` text in which only the layers with these indices may compute on Vulkan."""
    lines = [line for line in text.split("\n") if line.strip()]
    written = lines[:_HEADER_LINES]
    for index, line in enumerate(lines[_HEADER_LINES:]):
        if index not in vulkan:
            words = line.split()
            old = next((word for word in words[4:] if word.startswith(_FEATURE_MASK)), "")
            mask = int(old.removeprefix(_FEATURE_MASK) or 0) | _NO_VULKAN
            line = " ".join([*(word for word in words if word != old), f"{_FEATURE_MASK}{mask}"])
        written.append(line)
    return "\n".join(written) + "\n"


def _device_names(ncnn: Any) -> list[str]:
    """The names of the Vulkan devices, in ncnn's order."""
    return [str(ncnn.get_gpu_info(index).device_name()) for index in range(ncnn.get_gpu_count())]


def _chosen_device(ncnn: Any, wanted: list[Any] | None) -> int:
    """The number of the Vulkan device that a job requests by number and name, or else of the one that ncnn chooses.

    Numbers change with the installed drivers, so the name decides; the number (-1: ncnn's own choice) only
    distinguishes devices with the same name. Refused if there is no such device.
    """
    names, usual = _device_names(ncnn), int(ncnn.get_default_gpu_index())
    if not names:
        raise Refused("ncnn: there is no Vulkan device here")
    index, name = wanted or (-1, names[usual])
    for number in (usual if index < 0 else index, *range(len(names))):
        if number < len(names) and names[number] == name:
            return int(number)
    raise Refused(f"ncnn: there is no Vulkan device {name!r} here; there are {', '.join(names)}")


def _net(segment: RuntimeModel, vulkan: Collection[int]) -> Any:
    """The loaded net in float32, with these layers on Vulkan. Refused with ncnn's output if it does not load."""
    ncnn = _ncnn()
    net = ncnn.Net()
    if vulkan:
        net.set_vulkan_device(_chosen_device(ncnn, segment.get("options", {}).get("device")))
    if not segment.get("options", {}).get("usual"):
        options = net.opt
        for name in dir(options):
            # ncnn computes in half precision by default where it can; here only float32 is wanted.
            if name.startswith(("use_fp16", "use_bf16", "use_int8")):
                setattr(options, name, False)
        options.num_threads = int(segment.get("options", {}).get("threads", 1))
        options.use_vulkan_compute = bool(vulkan)
    path, begun = segment["model"], printed()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # The text is loaded from memory, so that its version with the masks needs no file.
    if net.load_param_mem(masked(text, vulkan) if vulkan else text):
        raise Refused(f"ncnn cannot load {os.path.basename(path)}: {said_since(begun) or 'no reason given'}")
    weights = os.path.splitext(path)[0] + ".bin"
    if not os.path.isfile(weights) or net.load_model(weights):
        raise Refused(f"ncnn cannot load {os.path.basename(weights)}: {said_since(begun) or 'no reason given'}")
    return net


def _sides(net: Any, *, asked: bool) -> dict[str, list[int]]:
    """The layers of a loaded net on the CPU and on Vulkan, as ncnn decided when it loaded the net.

    An Input layer computes nothing: its blob is passed in the CPU's memory.
    """
    sides: dict[str, list[int]] = {"cpu": [], "vulkan": []}
    for index, layer in enumerate(net.layers()):
        sides["vulkan" if asked and layer.support_vulkan and layer.type != "Input" else "cpu"].append(index)
    return sides


class NcnnModel(Loaded):
    """A loaded net, bound to the caller's arrays; the copies into and out of ncnn's blobs are part of a call."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        options = segment.get("options", {})
        self._vulkan = frozenset(int(index) for index in options.get("vulkan", ()))
        self._keep = buffers
        net = self._net = _net(segment, self._vulkan)
        self._layers = [(layer.type, layer.name, tuple(layer.tops)) for layer in net.layers()]
        self._sides = _sides(net, asked=bool(self._vulkan))
        shapes = options.get("shapes") or [list(buffers[b].shape) for _, b in segment["inputs"]]
        if len(shapes) != len(segment["inputs"]):
            raise Refused(f"ncnn: number of inputs: {len(segment['inputs'])}, number of their shapes: {len(shapes)}")
        blobs = dict(zip(net.input_names(), net.input_indexes(), strict=True))
        blobs |= dict(zip(net.output_names(), net.output_indexes(), strict=True))
        self._inputs = [
            (entry_of(blobs, name, "ncnn: the model"), buffers[buffer], tuple(shape))
            for (name, buffer), shape in zip(segment["inputs"], shapes, strict=True)
        ]
        self._outputs = [
            (entry_of(blobs, name, "ncnn: the model"), name, buffer) for name, buffer in segment["outputs"]
        ]
        for _, array, shape in self._inputs:
            if int(np.prod(shape)) != array.size:
                raise Refused(f"ncnn: an array of shape {array.shape} does not fill an input blob of shape {shape}")
        self._step_ns: list[list[int]] = [[] for _ in self._layers]
        self.call: Callable[[], object] = self._profiled_call if profiled else lambda: self._fetch(self._extractor())

    def _extractor(self) -> Any:
        mat = _ncnn().Mat
        extractor = self._net.create_extractor()
        for blob, array, shape in self._inputs:
            data = array.astype(np.int32) if array.dtype.kind in _INTEGERS else array
            # A copy, because the first layer may work in place, and ncnn aligns channels, unlike numpy.
            extractor.input(blob, mat(np.ascontiguousarray(data.reshape(shape), dtype=data.dtype)).clone())
        return extractor

    def _fetch(self, extractor: Any) -> None:
        for blob, name, buffer in self._outputs:
            status, mat = extractor.extract(blob)
            if status:
                raise Refused(f"ncnn: extracting output {name!r} failed with status {status}")
            output = np.asarray(mat)
            array = output_array(self._keep, buffer, output.shape, output.dtype.name)
            # ncnn has no batch axis, and other axes of size 1 may differ too.
            if [n for n in output.shape if n != 1] != [n for n in array.shape if n != 1]:
                raise Refused(f"ncnn: output {name!r} has the shape {output.shape} instead of {array.shape}")
            np.copyto(array, output.reshape(array.shape), casting="unsafe")

    def _profiled_call(self) -> None:
        """Run one layer after another; no extracted blob is held here, so that memory is reused as in a normal run."""
        clock = time.perf_counter_ns
        extractor = self._extractor()
        extract = extractor.extract
        for (kind, name, tops), taken in zip(self._layers, self._step_ns, strict=True):
            if kind == "Input":
                taken.append(0)
                continue
            before = clock()
            for blob in tops:
                # Type 1 returns the blob in its own layout; type 0 would unpack it, at a cost that no real run has.
                if extract(blob, 1)[0]:
                    raise Refused(f"ncnn: layer {name!r} ({kind}) failed")
            taken.append(clock() - before)
        self._fetch(extractor)

    def where(self) -> list[Place]:
        """The place of each layer by its index, as ncnn decided when it loaded the net.

        The place on Vulkan also has the name of the device.
        """
        sides = self._sides.items()
        places: list[Place] = [{"operators": layers, "backend": side} for side, layers in sides if layers]
        if self._sides["vulkan"]:
            places[-1]["device"] = str(self._net.vulkan_device().info().device_name())
        return places

    def operators(self, skip: int) -> list[KernelTimes]:
        """The time of each layer's step; the module's docstring describes what it includes."""
        rows: list[KernelTimes] = [
            {
                "name": f"{kind} {name}",
                "sources": [index],
                "backend": "vulkan" if index in self._sides["vulkan"] else "cpu",
                "wall_ns": self._step_ns[index][skip:],
            }
            for index, (kind, name, _) in enumerate(self._layers)
        ]
        self.close()
        return rows


class NcnnDriver:
    """ncnn's part of the agent."""

    def probe(self) -> ProbeAnswer:
        """The version, the backends, and the Vulkan devices (`devices`) with the memory that Vulkan allows ncnn to use.

        "vulkan" is ncnn's own choice. If there are several devices, each is also a separate backend: vulkan0, vulkan1
        ..
        """
        ncnn = _ncnn()
        answer: ProbeAnswer = {"version": str(ncnn.__version__), "backends": ["cpu"]}
        devices: list[DeviceFound] = [
            {
                "backend": f"vulkan{index}",
                "name": name,
                "software": ncnn.get_gpu_info(index).type() == _CPU_DEVICE,
                "memory_bytes": ncnn.get_gpu_device(index).get_heap_budget() << 20,  # reported in MiB
            }
            for index, name in enumerate(_device_names(ncnn))
        ]
        if not devices:
            return {**answer, "lacking": {"vulkan": "ncnn finds no Vulkan device"}}
        usual: DeviceFound = {**devices[int(ncnn.get_default_gpu_index())], "backend": "vulkan"}
        answer["devices"] = [usual, *(devices if len(devices) > 1 else ())]
        answer["backends"] += [device["backend"] for device in answer["devices"]]
        return answer

    load = NcnnModel
    """Load a segment; options are threads, vulkan (the layers to compute there), device (number and name of the Vulkan
    device), shapes (of the input blobs), and usual (nothing is set).
    """

    def supports(self, segment: RuntimeModel) -> Answer:
        """The places that ncnn chose for the layers: ``{"cpu": [indices], "vulkan": [indices]}``.

        The net is loaded with the layers of the option `vulkan` on Vulkan; layers that ncnn keeps on the CPU are listed
        under "cpu". Refused with ncnn's output if it does not load the model.
        """
        vulkan = frozenset(int(index) for index in segment.get("options", {}).get("vulkan", ()))
        return _sides(_net(segment, vulkan), asked=bool(vulkan))

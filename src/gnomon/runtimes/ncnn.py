"""ncnn: layers are placed one by one on the CPU or on Vulkan; copies between the two cost time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnomon.core.graph import Graph
from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.models.load import copy_model
from gnomon.models.model import Model, read_text
from gnomon.runtimes.base import (
    Accelerator,
    Ask,
    Assignment,
    Configuration,
    PlacedModel,
    Probe,
    RunSettings,
    Support,
    trial_answers,
    whole_segment,
)
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import environment_configurations, usual_configuration
from gnomon.wire import Answer, Packaged, Segment

_CPU, _VULKAN = "cpu", "vulkan"


class Ncnn:
    """The adapter of ncnn. It computes in float32 on both backends.

    Inputs are passed in the CPU's memory, so the backend cpu always exists and is the default.
    """

    name = "ncnn"
    formats = frozenset({"ncnn"})
    wheels: tuple[str, ...] = ("ncnn>=1.0.20250503",)
    float64 = False
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One configuration for each environment, with the backend cpu, and with vulkan if a real device is found or
        vulkan is requested; if several Vulkan devices are requested, each of them has its own configuration.
        """
        requested = tuple(_resolved(probe, name) for name in settings.backends)
        if requested and _CPU not in requested:
            raise UsageError(
                "ncnn takes its inputs in the CPU's memory, so it needs the backend 'cpu'", hint="Add --backend cpu."
            )
        there = {a.backend: a for a in probe.accelerators}
        # A Vulkan device that is a program on the CPU only serves to test placement: it is measured only on request.
        usual = (_VULKAN,) if _VULKAN in there and not there[_VULKAN].software else ()
        chosen = tuple(dict.fromkeys(b for b in requested if b != _CPU)) if requested else usual
        return tuple(c for vulkan in chosen or ("",) for c in _configurations(settings, there.get(vulkan)))

    def usual(self, probe: Probe) -> Configuration:
        """A net with default settings: ncnn rounds weights and computes in half precision where it can."""
        return usual_configuration(self.name, _CPU, precision="float16")

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """ncnn loads the model on each backend in a separate process, and reports which layers it left on the CPU.

        If it fails to load all layers on Vulkan, each type of layer is tried alone.
        """
        everything = frozenset(op.index for op in model.graph.operators)
        home = configuration.backends[0]
        moved = {backend: () if backend == home else everything for backend in configuration.backends}
        answers, failures = self._answers(ask, model, configuration, moved)
        operators = {backend: frozenset[int]() for backend in configuration.backends}
        if home in failures:
            return Support(operators=operators, failures=failures)
        operators[home] = everything
        for vulkan in configuration.backends[1:]:
            if vulkan in failures:
                # The layers whose type ncnn can load on Vulkan if no other layers are on Vulkan.
                alone, _ = self._answers(ask, model, configuration, model.graph.of_types())
                operators[vulkan] = frozenset(index for answer in alone.values() for index in answer[_VULKAN])
            else:
                operators[vulkan] = frozenset(answers[vulkan][_VULKAN]) & everything
        return Support(operators=operators, failures=failures)

    def _answers(
        self, ask: Ask, model: PlacedModel, configuration: Configuration, moved: Mapping[str, Collection[int]]
    ) -> tuple[dict[str, Answer], dict[str, Failure]]:
        """The answers and the failures, by the keys of `moved`, with each key's layers on Vulkan."""
        options = {key: {**configuration.options, "vulkan": sorted(layers)} for key, layers in moved.items()}
        return trial_answers(ask, self.name, model, options)

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The model with the list of layers to keep on Vulkan; the driver masks all others."""
        graph = model.graph
        return {
            **whole_segment(self.name, model, _options(graph, configuration, assignment)),
            "inputs": [[graph.tensors[t].name, own] for t, own in zip(graph.inputs, model.inputs, strict=True)],
            "outputs": [[graph.tensors[t].name, own] for t, own in zip(graph.outputs, model.outputs, strict=True)],
        }

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines for a net on the processor alone; in the usual configuration, they set nothing."""
        if configuration.backends[1:]:
            return []
        settings = [
            "lower = [name for name in dir(net.opt) if name.startswith(('use_fp16', 'use_bf16', 'use_int8'))]",
            "[setattr(net.opt, name, False) for name in lower]",
            f"net.opt.num_threads, net.opt.use_vulkan_compute = {configuration.options.get('threads')}, False",
        ]
        graph = model.graph
        ends = ((own, graph.tensors[index]) for own, index in zip(model.inputs, graph.inputs, strict=True))
        blobs = {own: (tensor.name, tensor.shape) for own, tensor in ends}
        outputs = [graph.tensors[index].name for index in graph.outputs]
        return [
            "import ncnn",
            "net = ncnn.Net()",
            *([] if configuration.usual else settings),
            "net.load_param(file), net.load_model(file.removesuffix('.param') + '.bin')",
            f"blobs = {blobs}",
            "def call():",
            "    extractor = net.create_extractor()",
            "    for name, (blob, shape) in blobs.items():",
            "        array = inputs[name].reshape(shape)",
            "        array = array.astype('int32') if array.dtype.kind in 'iub' else array",
            "        extractor.input(blob, ncnn.Mat(array).clone())",
            f"    return [numpy.array(extractor.extract(blob)[1]) for blob in {outputs}]",
        ]

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """The ``.param`` and the ``.bin``. If layers are on Vulkan, the ``.param`` gets the assignment's masks, which
        every program that uses ncnn obeys.

        Such a program must switch on `use_vulkan_compute`.
        """
        options = _options(model.graph, configuration, assignment)
        if _VULKAN in configuration.backends:
            options.pop("device", None)  # on another device ncnn chooses the Vulkan device
        from gnomon.formats.ncnn_param import MAX_CHARACTERS, parse_ncnn_param, write_ncnn_param

        target = folder / model.path.name
        copy_model(model.path, target)
        if options["vulkan"]:
            param = parse_ncnn_param(read_text(model.path, 4 * MAX_CHARACTERS))
            param = param.masked(frozenset(range(len(param.layers))) - frozenset(options["vulkan"]))
            target.write_text(write_ncnn_param(param), encoding="utf-8")
        return {"runtime": self.name, "model": target.name, "options": options}


def _resolved(probe: Probe, name: str) -> str:
    """The backend that a request means: a backend's name, or "vulkan:PART" for the device with PART in its name."""
    if name in probe.backends:
        return name
    kind, _, part = name.partition(":")
    devices = [a for a in probe.accelerators if kind == _VULKAN and part and part.lower() in a.name.lower()]
    # If there are several devices, the one that ncnn itself would choose is listed twice.
    if len(devices) > 1:
        devices = [a for a in devices if a.backend != _VULKAN]
    if len(devices) != 1:
        names = ", ".join(dict.fromkeys(a.name for a in probe.accelerators))
        refused = probe.refused(Ncnn.name, name)
        raise UsageError(refused.message, hint=refused.hint + (f" Vulkan devices: {names}." if names else ""))
    return devices[0].backend


def _configurations(settings: RunSettings, vulkan: Accelerator | None) -> Iterator[Configuration]:
    """A configuration for each environment, with or without a Vulkan device; its name contains the device unless ncnn
    itself would choose it.
    """
    backend = vulkan.backend if vulkan else ""
    options: dict[str, object] = {"threads": settings.threads}
    if vulkan:
        options["device"] = [int(backend.removeprefix(_VULKAN) or -1), vulkan.name]
    return environment_configurations(
        Ncnn.name,
        settings,
        (_CPU, backend) if vulkan else (_CPU,),
        backend if backend != _VULKAN else "",
        options=options,
        reported={_CPU: _CPU, **({_VULKAN: backend} if vulkan else {})},
        transfers=vulkan is not None,
        accelerators=(vulkan,) if vulkan else (),
    )


def _options(graph: Graph, configuration: Configuration, assignment: Assignment) -> dict[str, Any]:
    """Options of the driver: threads, the Vulkan device and the layers on it, and the shapes of the input blobs."""
    return {
        **configuration.options,
        "vulkan": sorted(index for index, backend in assignment.items() if backend in configuration.backends[1:]),
        "shapes": [list(graph.tensors[t].shape or ()) for t in graph.inputs],
    }

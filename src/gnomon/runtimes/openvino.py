"""OpenVINO: a whole model on the CPU, in float32 unless a lower precision is requested, or its operators on several
devices.

The devices are the CPU, GPUs and NPUs, and the CPU in another precision (`cpu-bf16`). See docs/runtimes/openvino.md.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.errors import UsageError
from gnomon.models.model import Model
from gnomon.runtimes.base import (
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
from gnomon.runtimes.whole import TOLERANCE, WholeModelRuntime, chooser, environment_configurations, usual_configuration
from gnomon.wire import Answer, Options, Packaged, Segment

#: By precision: OpenVINO's hint for it, and the capability that the processor must have.
_PRECISIONS = {"float32": ("f32", "FP32"), "bfloat16": ("bf16", "BF16"), "float16": ("f16", "FP16")}
_CPU, _DEVICES = "cpu", "devices"
#: The name that the agent's `drivers/openvino/hetero.py` has in a package.
_SCRIPT = "openvino_hetero.py"


class OpenVino(WholeModelRuntime):
    """The adapter of OpenVINO.

    Its backend `openvino` takes a whole model on the CPU. The other backends are devices, to which OpenVINO's HETERO
    assigns single operators. The device `cpu`, which holds the inputs and outputs, is always among them.
    """

    name = "openvino"
    formats = frozenset({"openvino", "onnx", "tflite"})
    wheels: tuple[str, ...] = ("openvino>=2025.3",)
    float64 = False
    session_options = True
    resolution_s = 1e-6
    streams = True
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """Whole models in float32 and in each requested precision that the processor has; then models on several
        devices.

        The devices are the requested ones or, if none are requested, the CPU and every GPU and NPU. If the CPU is the
        only device, it takes whole models. With several devices, configurations in which OpenVINO itself chooses among
        them may be added.
        """
        devices = _devices(probe, settings)
        whole = not settings.backends or self.name in settings.backends or devices == (_CPU,)
        chosen = list(self._whole(probe, settings)) if whole else []
        if len(devices) > 1:
            chosen += self._placed(probe, devices, settings)
        if len(devices) > 1 and settings.by_itself:
            reported = {device.upper().replace("-", "_"): device for device in devices}
            placed = replace(next(self._placed(probe, devices, settings)), reported=reported)
            order = [*devices[1:], devices[0]]
            chosen += (chooser(placed, d.lower(), {"order": order, "device": d}) for d in ("AUTO", "HETERO"))
        return tuple(chosen)

    def usual(self, probe: Probe) -> Configuration:
        """The file compiled without settings: its shapes stay open, and OpenVINO chooses the precision."""
        hint = probe.details.get("usual_precision", "f32")
        precision = next((name for name, (own, _) in _PRECISIONS.items() if own == hint), "float32")
        return usual_configuration(self.name, "CPU", precision=precision)

    def _whole(self, probe: Probe, settings: RunSettings) -> Iterator[Configuration]:
        for precision in dict.fromkeys(("float32", *settings.precisions)):
            if precision not in _PRECISIONS:
                raise UsageError(
                    f"unknown precision {precision!r}", hint=f"Precisions: {', '.join(sorted(_PRECISIONS))}."
                )
            hint, capability = _PRECISIONS[precision]
            if capability not in probe.details.get("precisions", ()):
                continue
            short = "" if precision == "float32" else hint
            yield from environment_configurations(
                self.name,
                settings,
                (self.name,),
                short,
                options={"threads": settings.threads, "precision": hint},
                precision=precision,
                tolerance=TOLERANCE[precision],
                reported={"CPU": self.name},
            )

    def _placed(self, probe: Probe, devices: tuple[str, ...], settings: RunSettings) -> Iterator[Configuration]:
        # With several precisions in one process, the tolerance is that of the least accurate one.
        precision = max((_precision(device) for device in devices), key=lambda name: TOLERANCE[name])
        return environment_configurations(
            self.name,
            settings,
            devices,
            _DEVICES,
            options={"threads": settings.threads, "backends": list(devices)},
            precision=precision,
            tolerance=TOLERANCE[precision],
            reported={device: device for device in devices},
            transfers=True,
            steps_within=True,
            accelerators=tuple(a for a in probe.accelerators if a.backend in devices),
        )

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """OpenVINO compiles a whole model. Each of several devices is asked in a separate process which operators it
        takes.

        Operators that any device computes in one kernel are placed together, and a folded operator is placed with the
        one into which it is folded.
        """
        if "backends" not in configuration.options:
            return super().support(ask, model, configuration)
        options = {**configuration.options, "names": _names(model.graph), "shapes": model.shapes}
        trials = {backend: {**options, "backends": [_CPU, backend]} for backend in configuration.backends}
        answers, failures = trial_answers(ask, self.name, model, trials)
        operators = {backend: frozenset[int]() for backend in configuration.backends}
        if _CPU not in answers:
            return Support(operators=operators, failures=failures)
        leaders = _leaders(model.graph, answers.values())
        for backend, answer in answers.items():
            lacking = {leader for k, leader in enumerate(leaders) if k not in answer["operators"]}
            operators[backend] = frozenset(k for k, leader in enumerate(leaders) if leader not in lacking)
        return Support(
            operators=operators,
            failures=failures,
            options={"leaders": list(leaders)},
            folded={k: leader for k, leader in enumerate(leaders) if leader != k},
        )

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The whole model, with the device of each operator if there are several devices."""
        return whole_segment(self.name, model, _options(model.graph, configuration, assignment))

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines for a request on the CPU, bound to arrays that stay in place; the usual request sets and binds
        nothing.
        """
        options = configuration.options
        if options.keys() & {"backends", "order"} or options.get("libraries"):
            return []
        config = (
            {}
            if configuration.usual
            else {
                "INFERENCE_NUM_THREADS": options["threads"],
                "NUM_STREAMS": 1,
                "ENABLE_CPU_PINNING": False,
                "INFERENCE_PRECISION_HINT": options["precision"],
                **options.get("session", {}),
            }
        )
        shapes = "model.reshape({name: array.shape for name, array in inputs.items()})"
        bound = "[request.set_tensor(k, openvino.Tensor(a, shared_memory=True)) for k, a in inputs.items()]"
        return [
            "import openvino",
            "core = openvino.Core()",
            "model = core.read_model(file)",
            *([] if configuration.usual else [shapes]),
            f'request = core.compile_model(model, "CPU", {config}).create_infer_request()',
            *([] if configuration.usual else [bound]),
            f"call = lambda: request.infer({'inputs' if configuration.usual else 'share_outputs=True'})",
        ]

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """A copy of the model, and for a model on several devices also `openvino_hetero.py`, for programs without
        gnomon.

        OpenVINO's own model files do not keep affinities, so a program must set them after reading the model.
        """
        written = super().package(model, configuration, assignment, folder)
        options = _options(model.graph, configuration, assignment)
        if "backends" in options:
            source = importlib.resources.files("gnomon.agent.drivers.openvino").joinpath("hetero.py")
            (folder / _SCRIPT).write_bytes(source.read_bytes())
        return {**written, "options": options}


def _devices(probe: Probe, settings: RunSettings) -> tuple[str, ...]:
    """The devices on which operators are placed, the CPU first; none if only whole models are requested or if the CPU
    is the only device.
    """
    probe.requested(OpenVino.name, settings)
    # The CPU in another precision is the same CPU: it is measured only on request.
    requested = settings.backends or tuple(name for name in probe.backends if not name.startswith("cpu-"))
    devices = tuple(name for name in probe.backends if name in requested)
    if not devices:
        return ()
    if _CPU not in devices and settings.backends:
        raise UsageError(
            "OpenVINO takes inputs and returns outputs on the CPU, so placing needs the backend 'cpu'",
            hint="Add --backend cpu.",
        )
    return devices if len(devices) > 1 or settings.backends else ()


def _precision(device: str) -> str:
    """The precision in which a device computes."""
    if device.startswith("npu"):
        return "float16"
    hint = device.partition("-")[2] or "f32"
    return next(name for name, (short, _) in _PRECISIONS.items() if short == hint)


def _names(graph: Graph) -> list[list[str]]:
    """The names of each operator: its own name and the names of the tensors that it writes."""
    return [[op.name, *(graph.tensors[t].name for t in op.outputs)] for op in graph.operators]


def _options(graph: Graph, configuration: Configuration, assignment: Assignment) -> Options:
    """Options of the driver; for several devices, also the operators' names and the number of each operator's
    backend.
    """
    options = configuration.options
    if "backends" not in options:
        return options
    number = {backend: k for k, backend in enumerate(options["backends"])}
    places = [number[assignment.get(op.index, _CPU)] for op in graph.operators]
    return {**options, "names": _names(graph), "places": places}


def _leaders(graph: Graph, answers: Iterable[Answer]) -> tuple[int, ...]:
    """The leader of each operator: among all operators computed together on some device, the operator with the most
    work.

    An operator that no performance counter names was folded into another. An operator that multiplies was folded into
    its reader (a convolution into its normalisation), and any other into the operator that it reads from.
    """
    groups = [{op.index} for op in graph.operators]

    def join(a: int, b: int) -> None:
        together = groups[a] | groups[b]
        for k in together:
            groups[k] = together

    unnamed: set[int] = set()
    for answer in answers:
        unnamed |= set(answer["unnamed"])
        for first, *rest in answer["kernels"]:
            for other in rest:
                join(first, other)
    before: dict[int, list[int]] = {op.index: [] for op in graph.operators}
    after: dict[int, list[int]] = {op.index: [] for op in graph.operators}
    for edge in graph.edges():
        before[edge.consumer].append(edge.producer)
        after[edge.producer].append(edge.consumer)
    sides = {k: (after[k], before[k]) if graph.operators[k].macs else (before[k], after[k]) for k in unnamed}

    def join_neighbours(likely: int) -> bool:
        """Join unnamed operators to a named neighbour on one side; return whether any had such a neighbour."""
        changed = False
        for k in sorted(unnamed):
            near = next((other for other in sides[k][likely] if other not in unnamed), None)
            if near is not None:
                join(k, near)
                unnamed.discard(k)
                changed = True
        return changed

    while unnamed and (join_neighbours(0) or join_neighbours(1)):
        pass
    work = {op.index: (op.macs or 0, -op.index) for op in graph.operators}
    return tuple(max(group, key=lambda index: work[index]) for group in groups)

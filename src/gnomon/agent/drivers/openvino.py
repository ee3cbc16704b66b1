"""OpenVINO on the device: shared tensors, its performance counters, and its runtime model."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..arrays import Buffers, output_array
from ..driver import Refused


def _openvino() -> Any:
    """The package, without its telemetry: a measured process calls no network and writes nothing into a home.

    Importing openvino imports its telemetry, which then makes an identity file in the user's home; without that
    package it goes on with a stub of its own. Its converter of models is left out too: nothing is converted here, and
    loading it took as long as the rest of the package.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]
    import openvino

    return openvino


class OpenVinoModel:
    """A model compiled by OpenVINO, bound to the caller's arrays."""

    def __init__(self, segment: dict[str, Any], buffers: Buffers, *, profiled: bool) -> None:
        ov = _openvino()

        options = segment.get("options", {})
        config = {
            "INFERENCE_NUM_THREADS": int(options.get("threads", 1)),
            "NUM_STREAMS": 1,
            # OpenVINO binds even one thread to one core: beside a neighbour there, calls took 1.2 to 7 times as long as
            # unbound, and on an idle machine short ones 7 to 10 % longer. The process's own cores hold either way.
            "ENABLE_CPU_PINNING": False,
            # OpenVINO computes in bf16 by itself where the processor can; a lower precision must be asked for.
            "INFERENCE_PRECISION_HINT": options.get("precision", "f32"),
            "PERF_COUNT": profiled,
        }
        self._precision = config["INFERENCE_PRECISION_HINT"]
        core = ov.Core()
        try:
            model = core.read_model(segment["model"])
            if segment["model"].endswith(".tflite"):
                _name_by_tensors(model)
            shapes = {name: buffers[buffer].shape for name, buffer in segment["inputs"]}
            self._compiled = core.compile_model(_with_shapes(model, shapes), "CPU", config)
        except Exception as error:
            raise Refused(str(error)) from error
        self._request = self._compiled.create_infer_request()
        # A tensor over shared memory does not keep its array alive, and the request does not keep the tensor.
        self._keep: list[object] = [buffers]
        bound = [(self._compiled.input(name), buffer) for name, buffer in segment["inputs"]]
        made = []
        for name, buffer in segment["outputs"]:
            port = self._compiled.output(name)
            if buffer not in buffers and port.partial_shape.is_dynamic:
                made.append((port, buffer))
                continue
            if buffer not in buffers:
                output_array(buffers, buffer, tuple(port.shape), port.element_type.to_dtype().name)
            bound.append((port, buffer))
        for port, buffer in bound:
            tensor = ov.Tensor(buffers[buffer], shared_memory=True)
            self._keep.append(tensor)
            self._request.set_tensor(port, tensor)
        self._counted: list[list[Any]] = []
        # Sharing the outputs avoids a copy of each: they are in the bound arrays already.
        infer: Callable[[], object] = functools.partial(self._request.infer, None, share_outputs=True)
        if made:
            infer = _taking(infer, self._request, made, buffers)
        self.call: Callable[[], object] = infer
        if not profiled:
            return
        request, counted = self._request, self._counted

        def call() -> None:
            infer()
            counted.append(request.profiling_info)

        self.call = call

    def _sources(self) -> dict[str, list[str]]:
        """Kernel name -> names of the source model's layers that it computes."""
        found: dict[str, list[str]] = {}
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            names = info["originalLayersNames"].astype(str) if "originalLayersNames" in info else ""
            found[node.get_friendly_name()] = [name for name in names.split(",") if name]
        return found

    def where(self) -> list[dict[str, Any]]:
        """The device of each kernel, with the source layers that it computes and its run-time precision."""
        devices = ",".join(self._compiled.get_property("EXECUTION_DEVICES"))
        report = []
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            if "layerType" in info and info["layerType"].astype(str) in {"Input", "Output", "Const"}:
                continue
            names = info["originalLayersNames"].astype(str) if "originalLayersNames" in info else ""
            precision = info["runtimePrecision"].astype(str) if "runtimePrecision" in info else ""
            report.append({"operators": names.split(","), "backend": devices, "precision": precision})
        return report

    def operators(self, skip: int) -> list[dict[str, Any]]:
        """Kernel times from the performance counters of each call."""
        sources = self._sources()
        rows: dict[str, dict[str, Any]] = {}
        for call in self._counted[skip:]:
            for entry in call:
                if "EXECUTED" not in str(entry.status):
                    continue
                row = rows.setdefault(
                    entry.node_name,
                    {
                        "name": f"{entry.node_type} {entry.node_name}",
                        "sources": sources.get(entry.node_name, []),
                        "backend": str(entry.exec_type),
                        "wall_ns": [],
                    },
                )
                row["wall_ns"].append(round(entry.real_time.total_seconds() * 1e9))
        self.close()
        return list(rows.values())

    def close(self) -> None:
        """Drop the request before the arrays that it reads."""
        self.call = _closed
        self._request = None
        self._compiled = None
        self._keep.clear()


def _name_by_tensors(model: Any) -> None:
    """Name the operations of a TFLite model after the file's tensors, as its reader numbers them instead.

    Of the several operations that stand for one of the file (a convolution between two transposes, with its bias and
    activation) the last writes the file's tensor; those before it that only lead there are named after it too.
    """
    named: dict[str, str] = {}
    for operation in reversed(model.get_ordered_ops()):
        number = operation.get_friendly_name()
        told = sorted(name for output in operation.outputs() for name in output.get_names())
        if operation.get_type_name() in {"Constant", "Parameter", "Result"}:
            continue
        after = [
            target.get_node().get_friendly_name() for out in operation.outputs() for target in out.get_target_inputs()
        ]
        name = told[0] if told else next((named[reader] for reader in after if reader in named), "")
        if name:
            operation.set_friendly_name(name if told else f"{name}/{number}")
            named[operation.get_friendly_name()] = name


def _with_shapes(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The model with its open inputs fixed to the shapes that it will be fed with."""
    opened = {name: shape for name, shape in shapes.items() if model.input(name).partial_shape.is_dynamic}
    if opened:
        model.reshape({name: list(shape) for name, shape in opened.items()})
    return model


def _taking(
    infer: Callable[[], object], request: Any, made: list[tuple[Any, str]], buffers: Buffers
) -> Callable[[], object]:
    """A call that also takes the outputs whose shapes OpenVINO tells only when it has computed them."""

    def call() -> None:
        infer()
        for port, buffer in made:
            buffers[buffer] = request.get_tensor(port).data

    return call


def _closed() -> None:
    raise RuntimeError("the model is closed")


class OpenVinoDriver:
    """OpenVINO's part of the agent."""

    def probe(self) -> dict[str, Any]:
        """Version, devices, and the precisions that the processor computes in natively."""
        ov = _openvino()

        core = ov.Core()
        return {
            "version": ov.__version__.partition("-")[0],
            "backends": list(core.available_devices),
            "precisions": list(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
        }

    def load(self, segment: dict[str, Any], buffers: Buffers, *, profiled: bool) -> OpenVinoModel:
        """Compile a segment; options are threads and precision."""
        return OpenVinoModel(segment, buffers, profiled=profiled)

    def supports(self, segment: dict[str, Any]) -> dict[str, Any]:
        """Whether the whole model compiles: ``{"whole": true}``, or Refused with the reason."""
        ov = _openvino()

        core = ov.Core()
        try:
            core.compile_model(core.read_model(segment["model"]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        except Exception as error:
            raise Refused(str(error)) from error
        return {"whole": True}

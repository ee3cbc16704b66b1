"""The runtime on the device, in a separate process. This example computes models of Relu operators with numpy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from gnomon_agent.driver import Refused  # type: ignore[import-not-found]  # gnomon brings it to the device


def relus(path: str) -> list[str]:
    """The names of a model's operators. Refused if an operator is not Relu."""
    import onnx

    try:
        nodes = onnx.load(path).graph.node
    except Exception as error:
        raise Refused(str(error)) from error
    if any(node.op_type != "Relu" for node in nodes):
        raise Refused("the runtime computes only Relu")
    return [node.name for node in nodes]


class YoursModel:
    """A loaded model. `call` computes once, from the input arrays into the output arrays."""

    def __init__(self, segment: Mapping[str, Any], buffers: Mapping[str, Any], profiled: bool) -> None:
        self.names = relus(segment["model"])
        self.times_ns: list[int] = []
        ((_, source),) = segment["inputs"]
        ((_, target),) = segment["outputs"]

        def call() -> None:
            begin_ns = time.perf_counter_ns()
            np.maximum(buffers[source], 0, out=buffers[target])
            if profiled:
                self.times_ns.append(time.perf_counter_ns() - begin_ns)

        self.call = call

    def where(self) -> list[dict[str, Any]]:
        """The backend of each operator, as the runtime reports it."""
        return [{"operators": self.names, "backend": "numpy"}]

    def operators(self, skip: int) -> list[dict[str, Any]]:
        """The times of each kernel, without the first `skip` calls."""
        return [{"name": "relu", "sources": self.names, "backend": "numpy", "wall_ns": self.times_ns[skip:]}]

    def close(self) -> None:
        """Release the model."""


class YoursDriver:
    """The driver that the agent on the device loads."""

    def probe(self) -> dict[str, Any]:
        """The version and the backends; ImportError if the runtime is not installed."""
        return {"version": np.__version__, "backends": ["numpy"]}

    def load(self, segment: Mapping[str, Any], buffers: Mapping[str, Any], *, profiled: bool) -> YoursModel:
        """Load a model with its options; Refused if the runtime cannot load it."""
        return YoursModel(segment, buffers, profiled)

    def supports(self, segment: Mapping[str, Any]) -> dict[str, Any]:
        """Check that the runtime takes the model; Refused if it does not."""
        relus(segment["model"])
        return {"whole": True}

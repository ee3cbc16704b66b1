"""PyTorch on the device: an exported program (.pt2) as PyTorch itself runs it, eagerly or compiled by Inductor.

In eager mode a profiled load runs the program's graph node by node and times each node. Compiled code no longer has
operators, so it gets a single row. A call of the compiled code must show up in PyTorch's own profiler as proof that it
ran: if TORCHDYNAMO_DISABLE is set, torch.compile silently runs eagerly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Buffers
from ..driver import Loaded, Refused, refusing
from .pt2 import array_over, load_program, operators_of, tensor_over

if TYPE_CHECKING:
    from gnomon.wire import Answer, Details, KernelTimes, Place, ProbeAnswer, RuntimeModel, Segment

EAGER, INDUCTOR = "eager", "inductor"
_COMPILED = "## Call CompiledFxGraph "
"""The profiler's name for a call of code compiled by Inductor; the graph's key in Inductor's cache follows."""


class PyTorchModel(Loaded):
    """A loaded program, bound to the caller's arrays: inputs are read in place, outputs are copied during the call."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        import torch

        options = segment.get("options", {})
        self._mode = options.get("mode", EAGER)
        if not options.get("usual"):
            torch.set_num_threads(int(options.get("threads", 1)))
        program = load_program(segment["model"])
        self._names = operators_of(program.graph)
        self._times: dict[str, list[int]] = {}
        module = program.module()
        run: Callable[..., Any] = module
        if self._mode == INDUCTOR:
            run = torch.compile(module, backend=INDUCTOR, fullgraph=True)
        elif profiled:
            run = self._timing(torch, module)
        inputs = tuple(tensor_over(torch, buffers[buffer]) for _, buffer in segment["inputs"])
        outputs = [buffer for _, buffer in segment["outputs"]]
        flat, keep, names = torch.utils._pytree.tree_leaves, buffers, [name for name, _ in segment["inputs"]]
        arguments, named = _arranged(torch, program, dict(zip(names, inputs, strict=True)))
        fixed = {name for name in outputs if name in buffers}  # the sizes of other outputs may depend on the inputs
        whole_ns = self._times.setdefault("", [])
        clock = time.perf_counter_ns

        def call() -> None:
            before = clock()
            with torch.inference_mode():
                values = flat(run(*arguments, **named))
            for name, tensor in zip(outputs, values, strict=True):
                if name in fixed:
                    np.copyto(keep[name], array_over(torch, tensor))
                else:
                    keep[name] = array_over(torch, tensor).copy()
            whole_ns.append(clock() - before)

        self._compiled: Any = {}
        before = clock()
        # This build may lack an operator, or the program's guards may refuse the inputs.
        with refusing("PyTorch: ", most=300):
            call()
            if self._mode == INDUCTOR:
                self._compiled = {"compile_s": (clock() - before) * 1e-9, **_seen(torch, call)}
                whole_ns.pop()
        self.call: Callable[[], object] = call

    def _timing(self, torch: Any, module: Any) -> Any:
        """A function that runs the module's graph node by node and times each operator."""
        names, times, clock = self._names, self._times, time.perf_counter_ns

        class Timing(torch.fx.Interpreter):  # type: ignore[misc]
            """Runs a graph and records the time of each operator."""

            def run_node(self, node: Any) -> Any:
                before = clock()
                value = super().run_node(node)
                if node.name in names:
                    times.setdefault(node.name, []).append(clock() - before)
                return value

        return Timing(module).run

    def where(self) -> list[Place]:
        """The whole program in its single mode: a compiled program that fails is refused, and never falls back to eager
        mode.

        For a compiled program, the place also has the `compile_s` of the first call, whether the code came
        `from_cache`, the `graphs` whose calls PyTorch's profiler saw, and the ATen operators that they call directly
        (`extern`).
        """
        place: Any = {"operators": list(self._names.values()), "backend": self._mode, **self._compiled}
        return [place]

    def operators(self, skip: int) -> list[KernelTimes]:
        """A row for each operator in eager mode, without the first call; a single row for a compiled program."""
        first = 1 + skip
        if self._mode == EAGER:
            rows: list[KernelTimes] = [
                {"name": name, "sources": [index], "backend": EAGER, "wall_ns": self._times.get(name, [])[first:]}
                for name, index in self._names.items()
            ]
        else:
            every = list(self._names.values())
            rows = [{"name": "whole graph", "sources": every, "backend": INDUCTOR, "wall_ns": self._times[""][first:]}]
        self.close()
        return rows


def _seen(torch: Any, call: Callable[[], object]) -> Details:
    """The compiled graphs that ran in a call, according to PyTorch's profiler; Refused if there were none."""
    from torch._dynamo.utils import counters

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    events = profiler.events()
    graphs = [event for event in events if event.name.startswith(_COMPILED)]
    if not graphs:
        raise Refused("PyTorch ran the program eagerly instead of compiling it with Inductor")
    inner = [child.name for graph in graphs for child in graph.cpu_children]
    return {
        "from_cache": bool(counters["inductor"]["fxgraph_cache_hit"]),
        "graphs": [graph.name.removeprefix(_COMPILED).strip("# ") for graph in graphs],
        "extern": sorted({name for name in inner if name.startswith(("aten::", "mkldnn"))}),
    }


def _arranged(torch: Any, program: Any, tensors: Mapping[str, object]) -> Any:
    """The inputs arranged as the program's own call expects them: it may nest or name inputs, and some may not be
    tensors.
    """
    # A value that is not a tensor was fixed by the export, and `user_inputs` contains the value itself.
    leaves = [
        tensors[own] if isinstance(own, str) and own in tensors else own for own in program.graph_signature.user_inputs
    ]
    return torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)


class PyTorchDriver:
    """PyTorch's part of the agent."""

    bfloat16 = True

    def probe(self) -> ProbeAnswer:
        """The version, and PyTorch's two ways to run a program."""
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        import torch

        return {"version": torch.__version__, "backends": [EAGER, INDUCTOR]}

    load = PyTorchModel
    """Load a segment; options are threads and mode ("eager" or "inductor")."""

    def supports(self, segment: RuntimeModel) -> Answer:
        """Load the program: ``{"whole": true}``, or Refused with the reason."""
        load_program(segment["model"])
        return {"whole": True}

"""ExecuTorch on the device, through its Python wheel: programs (.pte) run unchanged; exported programs (.pt2) are
lowered when loaded.

A profiled load uses ExecuTorch's own trace (ETDump): the time of each instruction, and of each kernel inside a delegate
that reports kernel times (XNNPACK does, in whole microseconds).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...arrays import Buffers, name_of, output_array
from ...driver import Loaded, Refused, refusing
from ..pt2 import array_over, tensor_over
from .lower import PORTABLE, XNNPACK, lower_once

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, ProbeAnswer, RuntimeModel, Segment

_OPERATOR, _DELEGATE = "OPERATOR_CALL", "DELEGATE_CALL"


def _executorch() -> Any:
    """ExecuTorch's runtime without the exporter, which takes seconds to import; PyTorch's libraries must be loaded
    first.
    """
    import torch  # noqa: F401 - the runtime is linked with it
    from executorch.extension.pybindings import _C

    return _C


class _Program:
    """A program with its loaded method, and the result of lowering it, if it was lowered here."""

    def __init__(self, segment: RuntimeModel, *, profiled: bool) -> None:
        """Load the program. Refused with the reason if it does not load; the runtime's output has the details."""
        runtime = _executorch()
        options, path = segment.get("options", {}), segment["model"]
        have = runtime._get_registered_backend_names()
        lacking = sorted(set(options.get("delegates", {}).values()) - set(have))
        if lacking:
            raise Refused(f"this build of ExecuTorch has no {', '.join(lacking)}; it has {', '.join(sorted(have))}")
        if not options.get("usual"):
            runtime._unsafe_reset_threadpool(int(options.get("threads", 1)))
        self.lowered = lower_once(path, options["xnnpack"]) if "xnnpack" in options else None
        checked = {"enable_etdump": profiled, "program_verification": runtime.Verification.InternalConsistency}
        with refusing(f"ExecuTorch cannot load {os.path.basename(path)}: "):
            if self.lowered is None:
                self.program = runtime._load_program(path, **checked)
            else:
                self.program = runtime._load_program_from_buffer(self.lowered.buffer, **checked)
            names = [self.program.get_method_name(number) for number in range(self.program.num_methods())]
            self.method = self.program.load_method("forward" if "forward" in names else names[0])


class ExecuTorchModel(Loaded):
    """A loaded program, bound to the caller's arrays: inputs are read in place, outputs are copied during the call.

    Only the trace of a profiled load shows where operators ran.
    """

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        import torch

        self._delegates = segment.get("options", {}).get("delegates", {})
        self._loaded = _Program(segment, profiled=profiled)
        self._lowered = self._loaded.lowered
        run, keep = self._loaded.method.call, buffers
        inputs = tuple(tensor_over(torch, buffers[buffer]) for _, buffer in segment["inputs"])
        outputs = [buffer for _, buffer in segment["outputs"]]

        def call() -> None:
            tensors = run(inputs, False)
            for name, tensor in zip(outputs, tensors, strict=True):
                value = array_over(torch, tensor)
                np.copyto(output_array(keep, name, value.shape, name_of(value.dtype)), value)

        with refusing("ExecuTorch: "):  # wrong shapes or order of inputs, or a kernel missing in this build
            call()
        self.call: Callable[[], object] = call

    def operators(self, skip: int) -> list[KernelTimes]:
        """Times of instructions; a delegate that reports its kernels has one row for each kernel and one for
        the rest.
        """
        with tempfile.TemporaryDirectory(prefix="gnomon-etdump-") as folder:
            path = os.path.join(folder, "trace.etdp")
            self._loaded.program.write_etdump_result_to_file(path)
            with open(path, "rb") as file:
                runs = _runs(file.read())
        # The first call belongs to loading.
        rows: dict[tuple[int, str], KernelTimes] = {}
        for events in runs[1 + skip :]:
            inside: dict[int, int] = {}
            kernel = ""
            for event in events:
                number, taken = event.instruction, event.taken_ns
                if event.kernel:
                    inside[number] = inside.get(number, 0) + taken
                    self._row(rows, number, event.kernel, _DELEGATE)["wall_ns"].append(taken)
                elif event.name == _DELEGATE:
                    left = max(taken - inside.get(number, 0), 0)
                    self._row(rows, number, "rest of the call", _DELEGATE)["wall_ns"].append(left)
                elif event.name == _OPERATOR:
                    self._row(rows, number, kernel, _OPERATOR)["wall_ns"].append(taken)
                kernel = event.name.removeprefix("native_call_")
        table = list(rows.values())
        if self._lowered is not None:
            table += self._folded(table)
        self.close()
        return table

    def _row(self, rows: dict[tuple[int, str], KernelTimes], number: int, name: str, kind: str) -> KernelTimes:
        sources, backend = [number], PORTABLE if kind == _OPERATOR else self._delegates.get(str(number), kind)
        if self._lowered is not None:
            sources, backend = self._lowered.instructions.get(number, ([], PORTABLE))
        label = f"{name}, {backend} {number}"
        return rows.setdefault((number, name), {"name": label, "sources": sources, "backend": backend, "wall_ns": []})

    def _folded(self, rows: list[KernelTimes]) -> list[KernelTimes]:
        """Rows for operators that lowering left out or folded into others, which take no time themselves."""
        assert self._lowered is not None
        timed = {index for row in rows for index in row["sources"]}
        calls = max((len(row["wall_ns"]) for row in rows), default=0)
        return [
            {
                "name": f"folded {index}",
                "sources": [index],
                "backend": XNNPACK if index in self._lowered.taken else PORTABLE,
                "wall_ns": [0] * calls,
            }
            for index in range(self._lowered.operators)
            if index not in timed
        ]


class _Event(NamedTuple):
    """One event of a trace: its name, the instruction that it belongs to, its kernel, and its duration."""

    name: str
    instruction: int
    kernel: str
    taken_ns: int


def _runs(data: bytes) -> list[list[_Event]]:
    """The events of each call.

    Fields are given by their numbers in ExecuTorch's ``etdump_schema_flatcc.fbs``. ExecuTorch's own reader is not used,
    because it loads the whole exporter, which takes longer than everything else here.
    """
    from flatbuffers.number_types import Int32Flags, Uint64Flags  # ExecuTorch requires the package
    from flatbuffers.table import Table

    def slot(number: int) -> int:
        return 4 + 2 * number

    def text(table: Any, number: int) -> str:
        offset = table.Offset(slot(number))
        return str(table.String(table.Pos + offset).decode()) if offset else ""

    def tables(table: Any, number: int) -> list[Any]:
        offset = table.Offset(slot(number))
        count = table.VectorLen(offset) if offset else 0
        return [Table(data, table.Indirect(table.Vector(offset) + 4 * k)) for k in range(count)]

    def event(table: Any) -> _Event:
        taken = table.GetSlot(slot(7), 0, Uint64Flags) - table.GetSlot(slot(6), 0, Uint64Flags)
        return _Event(text(table, 0), table.GetSlot(slot(2), -1, Int32Flags), text(table, 4), taken)

    root = Table(data, 4)  # the data begins with its size
    runs = [run for run in tables(Table(data, root.Indirect(root.Pos)), 1) if text(run, 0) == "Execute"]
    profiled = [[(entry, entry.Offset(slot(0))) for entry in tables(run, 3)] for run in runs]
    return [[event(Table(data, e.Indirect(e.Pos + offset))) for e, offset in entries if offset] for entries in profiled]


class ExecuTorchDriver:
    """ExecuTorch's part of the agent."""

    bfloat16 = True

    def probe(self) -> ProbeAnswer:
        """The version and the backends: ExecuTorch's own kernels, and the delegates in the wheel."""
        from importlib.metadata import version

        return {
            "version": version("executorch"),
            "backends": [PORTABLE, *_executorch()._get_registered_backend_names()],
        }

    load = ExecuTorchModel
    """Load a segment; options are threads, delegates (of a .pte) and xnnpack (the operators of a .pt2 for XNNPACK)."""

    def supports(self, segment: RuntimeModel) -> Answer:
        """Load the program; for one that is lowered here, return ``{"taken": [operators assigned to XNNPACK]}``."""
        lowered = _Program(segment, profiled=False).lowered
        return {"taken": lowered.taken if lowered else []}

"""MNN on the device, through its Python wheel: an ONNX model is converted by MNN's own converter, and runs on the CPU
as a whole.

    python -m gnomon.agent.drivers.mnn model.onnx model.mnn

writes the converted model, for devices that run it without gnomon. The converter is the wheel's compiled module
`_tools`. The command `mnnconvert` is not used, because it installs a package when it starts, and reports conversions to
its maker.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..another import how_it_ended, run_function
from ..arrays import Buffers, output_array
from ..driver import Loaded, Refused, entry_of
from ..kept import made_of
from ..lifeline import die_with_parent
from ..said import printed, said_since

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Place, ProbeAnswer, RuntimeModel, Segment

_BACKEND = "cpu"
_BACKENDS_INFO = 2  # getSessionInfo's key for MNN's own number of the session's backend
#: MNN's numbers for its portable kernels, and for its kernels that use vector instructions.
_ON_CPU = (0, 13)
_MODEL = "model.mnn"
_OWNER = "MNN: the converted model"
#: Prefixes that MNN's converter prints before a line, and beginnings of lines that give no reason.
_STAMP = re.compile(r"^(\[[0-9:]+\] *:[0-9]+: *|\[ERROR\] *)")
_EMPTY = ("Start to ", "ONNX Model ", "The device supports", "inputTensors", "outputTensors", "Convert")


def _mnn() -> Any:
    import MNN

    return MNN


def convert(source: str, target: str) -> None:
    """Convert an ONNX file in a separate process, because MNN's converter crashes on some files. Refused with the
    converter's output.
    """
    converted = f"{os.path.abspath(target)}.{os.getpid()}"
    # The converter writes another file into its working folder.
    folder = os.path.dirname(converted)
    done = run_function(__spec__.name, "convert_here", os.path.abspath(source), converted, folder=folder)
    if done.returncode == 0 and os.path.isfile(converted):
        os.replace(converted, target)
        return
    lines = [_STAMP.sub("", line.strip()) for line in f"{done.stdout}\n{done.stderr}".splitlines()]
    last = [line for line in lines if line and not line.startswith(_EMPTY)][-2:]
    how = f"; it {how_it_ended(done)}" if done.returncode else ""
    raise Refused(f"MNN cannot convert {os.path.basename(source)}: {'; '.join(last)[:300] or 'no reason given'}{how}")


def convert_here(source: str, target: str) -> None:
    """Convert an ONNX file in this process, in float32 and with exact GELU.

    MNN's newer way to compute LSTM and GRU is switched off, because version 3.6.1 crashes with it.
    """
    die_with_parent()
    import _tools

    arguments = {"-f": "ONNX", "--modelFile": source, "--MNNModel": target, "--bizCode": "gnomon"}
    arguments |= {"--useGeluApproximation": "0", "--useOriginRNNImpl": "1"}
    _tools.mnnconvert(["mnnconvert", *(word for pair in arguments.items() for word in pair)])


class _Session:
    """A model, converted and loaded, with its inputs set to the shapes that they will get."""

    def __init__(self, segment: RuntimeModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        mnn = _mnn()
        model, options = segment["model"], segment.get("options", {})
        # Without "precision" MNN may compute in half precision if the processor supports it.
        wanted = {"backend": "CPU", "precision": "high", "numThread": int(options.get("threads", 1))}

        def make(folder: str) -> None:
            convert(model, os.path.join(folder, _MODEL))

        with made_of(model, ["mnn", mnn.version()], make) as folder:
            self._begun = printed()
            try:
                self.interpreter = mnn.Interpreter(os.path.join(folder, _MODEL))
                self.session = self.interpreter.createSession(*([] if options.get("usual") else [wanted]))
            except Exception as error:
                said = _said(self._begun) or str(error)
                raise Refused(f"MNN cannot load {os.path.basename(model)}: {said}") from error
        self.inputs = self.interpreter.getSessionInputAll(self.session)
        bound = [(entry_of(self.inputs, name, _OWNER), shape) for name, shape in shapes.items()]
        if any(tuple(tensor.getShape()) != shape for tensor, shape in bound):
            for tensor, shape in bound:
                self.interpreter.resizeTensor(tensor, shape)
            self.interpreter.resizeSession(self.session)
        self.outputs = self.interpreter.getSessionOutputAll(self.session)

    def run(self, *callbacks: Callable[[list[Any], Any], bool]) -> None:
        """Run the session; Refused with MNN's output if that fails."""
        run = self.interpreter.runSessionWithCallBackInfo if callbacks else self.interpreter.runSession
        status = run(self.session, *callbacks)
        if status:
            raise Refused(f"MNN: the run failed with status {status}: {_said(self._begun) or 'no reason given'}")


def _said(begun: int | None) -> str:
    """MNN's output since `begun`, without its note about the precision that was set."""
    return "; ".join(part for part in said_since(begun).split("; ") if part != "MNN use high precision")


class MnnModel(Loaded):
    """A loaded model, bound to the caller's arrays; the copies into and out of MNN's tensors are part of a call."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        self._session = _Session(segment, {name: buffers[b].shape for name, b in segment["inputs"]})
        session, keep = self._session, buffers
        inputs = [(entry_of(session.inputs, name, _OWNER), buffers[buffer]) for name, buffer in segment["inputs"]]
        outputs = [(entry_of(session.outputs, name, _OWNER), name, buffer) for name, buffer in segment["outputs"]]
        self._names: list[tuple[str, str]] = []
        self._taken: list[list[int]] = []
        callbacks = self._clocks() if profiled else ()
        taken = self._taken

        def call() -> None:
            # The inputs are copied in each call, because MNN reuses an input's memory for later tensors.
            for tensor, array in inputs:
                np.copyto(tensor.getNumpyData(), array, casting="unsafe")
            if callbacks:
                taken.append([])
            session.run(*callbacks)
            for tensor, name, buffer in outputs:
                value = tensor.getNumpyData()
                array = output_array(keep, buffer, value.shape, value.dtype.name)
                if value.shape != array.shape:
                    raise Refused(f"MNN: output {name!r} has the shape {value.shape} instead of {array.shape}")
                np.copyto(array, value, casting="unsafe")

        self.call: Callable[[], object] = call

    def _clocks(self) -> tuple[Callable[[list[Any], Any], bool], Callable[[list[Any], Any], bool]]:
        """The functions that MNN calls before and after each of its operators."""
        clock, names, taken = time.perf_counter_ns, self._names, self._taken
        begun = 0

        def before(_: list[Any], operator: Any) -> bool:
            nonlocal begun
            if len(taken) == 1:
                names.append((operator.getType(), operator.getName()))
            begun = clock()
            return True

        def after(_: list[Any], operator: Any) -> bool:
            taken[-1].append(clock() - begun)
            return True

        return before, after

    def where(self) -> list[Place]:
        """The backend that the session reports: if MNN lacks the requested backend, it uses the CPU and only prints a
        note.
        """
        number = self._session.interpreter.getSessionInfo(self._session.session, _BACKENDS_INFO)
        backend = _BACKEND if number in _ON_CPU else f"MNN's backend {number}"
        return [{"operators": [], "backend": backend, "mnn_backend": number}]

    def operators(self, skip: int) -> list[KernelTimes]:
        """Times of MNN's own operators in order, each named after the tensor of the file that it computes.

        Suffixes that MNN adds to the name, for the steps of an operator and for changes of layout, are kept.
        """
        rows: list[KernelTimes] = [
            {
                "name": f"{kind} {name}",
                "sources": [name],
                "backend": _BACKEND,
                "wall_ns": [call[number] for call in self._taken[skip:]],
            }
            for number, (kind, name) in enumerate(self._names)
        ]
        self.close()
        return rows


class MnnDriver:
    """MNN's part of the agent."""

    def probe(self) -> ProbeAnswer:
        """The version and the only backend of the wheel."""
        return {"version": str(_mnn().version()), "backends": [_BACKEND]}

    load = MnnModel
    """Load a segment; the option is threads, or `usual` for a session that sets nothing."""

    def supports(self, segment: RuntimeModel) -> Answer:
        """Convert and load the whole model and run it on zeros: ``{"whole": true}``, or Refused."""
        shapes = segment.get("options", {}).get("shapes", {})
        session = _Session(segment, {name: tuple(shape) for name, shape in shapes.items()})
        for tensor in session.inputs.values():
            tensor.getNumpyData()[...] = 0
        session.run()
        return {"whole": True}


if __name__ == "__main__":
    try:
        convert(*sys.argv[1:3])
    except Refused as error:
        sys.exit(str(error))

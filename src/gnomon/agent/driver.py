"""The interface of a runtime on the device, and the modules that implement it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from gnomon import wire

    from .arrays import Buffers


class Refused(Exception):
    """The runtime itself said no: an operator it lacks, an option it rejects, a file it cannot read."""


@contextmanager
def refusing(what: str = "", *, tell: Callable[[Exception], str] = str, most: int | None = None) -> Iterator[None]:
    """Refused for whatever a runtime raises in the block: `what`, then so `most` letters of what `tell` makes of it."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{what}{tell(error)[:most]}") from error


@contextmanager
def undoing(undo: Callable[[], object]) -> Iterator[None]:
    """Undo what was begun where the block ends by an error, or is interrupted."""
    try:
        yield
    except BaseException:
        undo()
        raise


def libraries(options: wire.Options) -> Iterator[str]:
    """The paths of the libraries of operators that a segment's options name.

    Refused, before it is given, for a file that is not what was named: loading one runs its code.
    """
    from .plan import digest_of  # few jobs name any

    for path, digest in options.get("libraries", {}).items():
        if digest_of(path) != digest:
            raise Refused(f"{path} is not the library of operators that was named: its SHA-256 is another")
        yield path


class Loaded(Protocol):
    """A model that is loaded and bound to buffers.

    `call` runs one inference: it reads the bound input arrays and writes the bound output arrays. It ends when they
    are written: where a device computes, bringing the inputs there, waiting and fetching the outputs are part of it.
    The arrays stay the caller's and must outlive the loaded model. An output without an array, as its shape is not
    known before, gets one in the buffers: when it is loaded if the runtime tells its shape then, else in each call. Not
    safe for several threads. `close` ends it; nothing else may be asked afterwards, except `operators` where the
    runtime only tells at its end.
    """

    call: Callable[[], object]

    def where(self) -> list[wire.Place]:
        """Where the runtime reports that its operators run; empty unless it reports this before its end."""
        return []

    def operators(self, skip: int) -> list[wire.KernelTimes]:
        """After a profiled load: times of each kernel, the first `skip` calls left out. Ends the loaded model."""
        return []

    def close(self) -> None:
        """Release the model and all that it holds; may be called twice."""
        vars(self).clear()
        self.call = closed


@runtime_checkable
class Reporting(Protocol):
    """A loaded model whose calls are timed by a program of its own."""

    def take(self, limits: wire.BlockLimits, warm: wire.WarmUp) -> wire.BlockFacts:
        """A block of samples, after calls that do not count."""


class Driver(Protocol):
    """A runtime on the device. Every method may crash or hang: it runs in a process of its own.

    One with `bfloat16 = True` binds inputs and outputs of bfloat16, arrays of the dtype `arrays.BFLOAT16`; one without
    never gets any.
    """

    def probe(self) -> wire.ProbeAnswer:
        """The version and the backends of the runtime; raises ImportError where it is not installed.

        Under `devices` what backends compute on beside the processor, and under `lacking` why others are not there:
        see `gnomon.runtimes.base.Probe`.
        """

    def load(self, segment: wire.Segment, buffers: Buffers, *, profiled: bool) -> Loaded:
        """Load the segment's model with its options and bind its inputs and outputs; Refused where it cannot."""

    def supports(self, segment: wire.RuntimeModel) -> wire.Answer:
        """Which operators each backend takes, found by asking the runtime.

        The form of the answer is private between a driver and its adapter, whose `support` alone reads it: any JSON
        object.
        """


def entry_of(table: Mapping[str, Any], name: str, owner: str) -> Any:
    """The entry of a name. Refused, with the names that the `owner` has, for another."""
    if name not in table:
        raise Refused(f"{owner} has no {name!r}; it has {', '.join(table) or 'nothing'}")
    return table[name]


def closed() -> None:
    """Stands where the call of a model was that is closed."""
    raise RuntimeError("the model is closed")


def driver_for(runtime: str) -> Driver:
    """The driver of a runtime by its name; a third party's by its import path ``package.module:Class``."""
    drivers = {
        "command": ".drivers.command.driver:CommandDriver",
        "evaluator": ".drivers.evaluator:EvaluatorDriver",
        "executorch": ".drivers.executorch.driver:ExecuTorchDriver",
        "litert": ".drivers.litert.driver:LiteRtDriver",
        "mnn": ".drivers.mnn:MnnDriver",
        "ncnn": ".drivers.ncnn:NcnnDriver",
        "onert": ".drivers.onert:OnertDriver",
        "onnxruntime": ".drivers.onnxruntime.driver:OnnxRuntimeDriver",
        "openvino": ".drivers.openvino.driver:OpenVinoDriver",
        "pytorch": ".drivers.pytorch:PyTorchDriver",
        "tvm": ".drivers.tvm.driver:TvmDriver",
    }
    path = drivers.get(runtime, runtime)
    module, _, name = path.partition(":")
    if not name:
        raise Refused(f"no driver for runtime {runtime!r}; known are {', '.join(sorted(drivers))}")
    driver: Driver = getattr(importlib.import_module(module, __package__), name)()
    return driver

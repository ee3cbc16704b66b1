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
    """The runtime itself refused: it lacks an operator, rejects an option, or cannot read a file."""


@contextmanager
def refusing(what: str = "", *, tell: Callable[[Exception], str] = str, most: int | None = None) -> Iterator[None]:
    """Turn any exception in the block into Refused, whose message is `what` followed by at most `most` characters of
    `tell(error)`.
    """
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{what}{tell(error)[:most]}") from error


@contextmanager
def undoing(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block raises an error or is interrupted."""
    try:
        yield
    except BaseException:
        undo()
        raise


def libraries(options: wire.Options) -> Iterator[str]:
    """The paths of the operator libraries that a segment's options name.

    Loading a library runs its code, so if the digest of a file differs, Refused is raised and the path is not yielded.
    """
    from .plan import digest_of  # few jobs name libraries

    for path, digest in options.get("libraries", {}).items():
        if digest_of(path) != digest:
            raise Refused(f"{path} is not the library of operators that was requested: its SHA-256 differs")
        yield path


class Loaded(Protocol):
    """A model that is loaded and bound to buffers.

    `call` runs one inference: it reads the bound input arrays, writes the bound output arrays, and returns once they
    are written. If the model runs on an accelerator, a call includes sending the inputs, waiting, and fetching the
    outputs. The arrays belong to the caller and must outlive the loaded model. If an output's shape is unknown, its
    array is added to the buffers on loading, provided that the runtime already reports the shape, and otherwise in each
    call. Not thread-safe. After `close` no method may be called, except `operators` if the runtime reports times only
    when it ends.
    """

    call: Callable[[], object]

    def where(self) -> list[wire.Place]:
        """The places where operators run, as the runtime reports them; empty unless it reports them before it ends."""
        return []

    def operators(self, skip: int) -> list[wire.KernelTimes]:
        """The times of each kernel after a profiled load, excluding the first `skip` calls. Ends the loaded model."""
        return []

    def close(self) -> None:
        """Release the model and all its resources; may be called twice."""
        vars(self).clear()
        self.call = closed


@runtime_checkable
class Reporting(Protocol):
    """A loaded model that runs in a program of its own, which times the calls."""

    def take(self, limits: wire.BlockLimits, warm: wire.WarmUp) -> wire.BlockFacts:
        """Take a block of samples, after warm-up calls that do not count."""


class Driver(Protocol):
    """A runtime on the device. Every method may crash or hang, so drivers run in a separate process.

    A driver with `bfloat16 = True` can bind bfloat16 inputs and outputs, as arrays of the dtype `arrays.BFLOAT16`;
    other drivers never get such arrays.
    """

    def probe(self) -> wire.ProbeAnswer:
        """The version and the backends of the runtime; raises ImportError if it is not installed.

        In the answer, `devices` lists the accelerators that the backends can use, and `lacking` says why any other
        backends are missing: see `gnomon.runtimes.base.Probe`.
        """

    def load(self, segment: wire.Segment, buffers: Buffers, *, profiled: bool) -> Loaded:
        """Load the segment's model with its options and bind its inputs and outputs; Refused if that is impossible."""

    def supports(self, segment: wire.RuntimeModel) -> wire.Answer:
        """Ask the runtime which operators each backend supports.

        The answer may be any JSON object. Its format is private to the driver and its adapter: only the adapter's
        `support` reads it.
        """


def entry_of(table: Mapping[str, Any], name: str, owner: str) -> Any:
    """The entry with this name. Refused if it is missing; the message lists the names that the `owner` has."""
    if name not in table:
        raise Refused(f"{owner} has no {name!r}; it has {', '.join(table) or 'nothing'}")
    return table[name]


def closed() -> None:
    """Replaces the call of a closed model."""
    raise RuntimeError("the model is closed")


def driver_for(runtime: str) -> Driver:
    """The driver of a runtime, given its name or, for a third party's driver, its import path
    ``package.module:Class``.
    """
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
        raise Refused(f"there is no driver for the runtime {runtime!r}; drivers: {', '.join(sorted(drivers))}")
    driver: Driver = getattr(importlib.import_module(module, __package__), name)()
    return driver

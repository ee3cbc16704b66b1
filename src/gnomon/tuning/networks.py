"""Networks in child processes with TVM: reading, splitting into layers, compiling, and searching schedules."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.codec import from_json, to_json
from gnomon.core.overlay.records import TunedDevice, TuningLayer
from gnomon.core.sample import Failure
from gnomon.errors import ModelError, UsageError
from gnomon.models.load import load
from gnomon.tuning.tvm import TvmPool, TvmWorker

_READ_S = 600.0
_KINDS = (".onnx", ".pt2", ".tflite")
STRATEGIES = ("evolutionary", "replay-trace", "random")
_ASK_S = 300.0
TraceTimes = tuple[Any, tuple[float, ...]]
"""A trace and its samples in seconds; no samples if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A network's file, the data type to compute in, and the input shapes that the file leaves open."""

    path: Path
    dtype: str = "float32"
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def check(self) -> None:
        """Check the file without TVM: its kind, its integrity, and its shapes.

        Raises ModelError, or RuntimeMissingError if the package that reads the file is missing.
        """
        kind = self.path.suffix.lower()
        if kind not in _KINDS:
            raise ModelError(f"{self.path.name} cannot be tuned", hint=f"Give a file of {', '.join(_KINDS)}.")
        if kind == ".pt2":
            if not zipfile.is_zipfile(self.path):
                raise ModelError(f"{self.path} is not an exported PyTorch program", hint="Save it with torch.export.")
        else:
            graph = load(self.path).graph
        if kind != ".onnx":
            if self.shapes:
                raise ModelError(f"{self.path.name} has fixed shapes", hint="Leave out --shape.")
            return
        inputs = {tensor.name: tensor.shape for tensor in (graph.tensors[index] for index in graph.inputs)}
        if unknown := sorted(set(self.shapes) - inputs.keys()):
            raise ModelError(f"the model has no input {unknown[0]!r}", hint=f"Inputs: {', '.join(sorted(inputs))}.")
        for name, dims in inputs.items():
            _check_shape(name, dims, self.shapes.get(name))


def _check_shape(name: str, dims: Sequence[int] | None, given: Sequence[int] | None) -> None:
    """Raise ModelError if an input's shape is open and none is given, or if the given shape does not fit the input."""
    shape = ",".join("?" if d < 0 else str(d) for d in dims or ())
    if given is None and (dims is None or min(dims, default=1) <= 0):
        fixed = ",".join(str(d) if d > 0 else "1" for d in dims or (1, 3, 224, 224))
        raise ModelError(
            f"the model leaves the shape of the input {name!r} open{f': {shape}' if shape else ''}",
            hint=f"Give the shape, for example --shape {shlex.quote(f'{name}={fixed}')}",
        )
    if given is not None and dims is not None:
        fits = len(given) == len(dims) and all(d <= 0 or d == g for d, g in zip(dims, given, strict=True))
        if not fits or min(given, default=1) <= 0:
            raise ModelError(
                f"the shape {list(given)} does not fit the input {name!r}, which is {shape or 'a scalar'}",
                hint="Give one size above 0 for each dimension; only open dimensions (?) may differ.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledNetwork:
    """A compiled network: the number of its functions, and how many of them are scheduled by records."""

    functions: int
    scheduled: int


class Network:
    """A network that a child has read. The object belongs to one thread."""

    def __init__(self, pool: TvmPool, source: Source) -> None:
        self.source = source
        self.worker = pool.worker(job_timeout_s=_READ_S, renew=self._read)
        self.inputs: tuple[tuple[str, str, tuple[int, ...]], ...] = ()

    def layers(self, target: Mapping[str, Any]) -> tuple[TuningLayer, ...]:
        """Each distinct layer once, with the number of its calls.

        ModelError if the file cannot be read, UsageError for a target that TVM does not accept.
        """
        said = self.worker.ask("load", {"do": "layers", "target": dict(target)})
        if isinstance(said, Failure):
            if self.worker.alive:
                wrong = self.worker.ask("load", {"do": "target", "target": dict(target)})
                if isinstance(wrong, Failure) and wrong.kind == "refused":
                    raise UsageError(wrong.message, hint="Give another --target: native, aarch64-cortex-a72, ..")
            raise ModelError(f"{self.source.path}: {said.message}", hint=_hint(said))
        rows = [{name: value for name, value in row.items() if name != "outputs"} for row in said["layers"]]
        return from_json(tuple[TuningLayer, ...], rows)

    def lacking(self, target: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, ...]:
        """The instructions that code for a target may use but the processor `here` lacks; empty if unknown."""
        said = self.worker.ask("load", {"do": "lacking", "target": dict(target), "here": dict(here)})
        return () if isinstance(said, Failure) else tuple(said["lacking"])

    def compile(
        self,
        device: TunedDevice,
        traces: Sequence[tuple[TuningLayer, Any]],
        library: Path,
        *,
        layers: Path | None = None,
        inputs: Path | None = None,
        seed: int = 0,
    ) -> CompiledNetwork | Failure:
        """Compile for a device with configurations for some of the layers; the other layers remain untuned.

        `layers` is the path for a library in which each layer can be called by its name, and `inputs` is the path for a
        file of random inputs.
        """
        job = {
            "do": "network",
            "records": [[layer.layer, layer.workload, trace] for layer, trace in traces if trace is not None],
            "target": dict(device.target),
            "linker": device.linker,
            "library": str(library.absolute()),
            "layers": str(layers.absolute()) if layers else "",
            "inputs": str(inputs.absolute()) if inputs else "",
            "seed": seed,
        }
        said = self.worker.ask("compile", job, timeout_s=_READ_S)
        if isinstance(said, Failure):
            return said
        return CompiledNetwork(functions=int(said["functions"]), scheduled=int(said["scheduled"]))

    def save_module(self, path: Path) -> Failure | None:
        """Write the untuned network in TVM's JSON format, so that a database for its layers can be applied to it."""
        said = self.worker.ask("compile", {"do": "module", "path": str(path.absolute())}, timeout_s=_READ_S)
        return said if isinstance(said, Failure) else None

    def reference(self, inputs: Path, keep: Path) -> str | Failure:
        """Write the outputs that the software for the network's own format computes from a file of inputs.

        Returns the name of that software.
        """
        job = {
            "do": "reference",
            "path": str(self.source.path.absolute()),
            "inputs": str(inputs.absolute()),
            "keep": str(keep.absolute()),
        }
        said = self.worker.ask("run", job)
        return said if isinstance(said, Failure) else str(said["by"])

    def _read(self, worker: TvmWorker) -> Failure | None:
        """Let a newly started child read the network."""
        shapes = {name: list(shape) for name, shape in self.source.shapes.items()}
        said = worker.ask(
            "load",
            {"do": "open", "path": str(self.source.path.absolute()), "dtype": self.source.dtype, "shapes": shapes},
        )
        if isinstance(said, Failure):
            return said
        self.inputs = tuple((name, dtype, tuple(dims)) for name, dtype, dims in said["inputs"])
        return None


def _hint(failure: Failure) -> str:
    if failure.kind in ("crash", "memory", "hang"):
        return "TVM itself failed: simplify the network, or report the failure to Apache TVM with the file."
    return "Give an ONNX file, a PyTorch exported program (.pt2) or a TFLite file that TVM can import."


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """The settings of the search: one of `STRATEGIES`, the target, and the largest number of trials per layer and per
    round.

    With `start` a layer begins with the configurations that were best for similar layers.
    """

    target: Mapping[str, Any]
    strategy: str = "evolutionary"
    start: bool = True
    trials: int = 512
    per_round: int = 8
    seed: int = 0


class Searches:
    """The searches for a network's layers, in one child with one cost model for all layers. The object belongs to one
    thread.

    A lost child is started again and receives all earlier results.
    """

    def __init__(self, pool: TvmPool, settings: SearchSettings) -> None:
        self._settings = settings
        self._worker = pool.worker(job_timeout_s=_ASK_S, renew=self._taught)
        self._layers: dict[str, TuningLayer] = {}
        self._told: dict[str, list[TraceTimes]] = {}
        self.learns = True  # whether the search has a cost model that learns

    def begin(self, layer: TuningLayer, results: Sequence[TraceTimes]) -> Failure | None:
        """Begin the search for a layer, with the results that are already known."""
        self._told[layer.layer] = list(results)
        said = self._worker.ask("search", self._job(layer))
        if isinstance(said, Failure):
            return said
        self._layers[layer.layer], self.learns = layer, bool(said["learns"])
        return None

    def ask(self, layer: str, most: int) -> tuple[Any, ...] | Failure:
        """The traces of the next candidates, at most `most`; none if the search has ended."""
        said = self._worker.ask("search", {"do": "ask", "layer": layer, "most": most})
        return said if isinstance(said, Failure) else tuple(said["traces"])

    def tell(self, layer: str, results: Sequence[TraceTimes]) -> Failure | None:
        """Report the results of all candidates of the last `ask`, in their order."""
        self._told[layer] += results
        job = {"do": "tell", "layer": layer, "times_s": [list(times) or None for _, times in results]}
        alive = self._worker.alive
        said = self._worker.ask("search", job)
        # A child that was started again has just received these results.
        return said if isinstance(said, Failure) and alive else None

    def _taught(self, worker: TvmWorker) -> Failure | None:
        for layer in list(self._layers.values()):
            if isinstance(said := worker.ask("search", self._job(layer)), Failure):
                # Without this, a search that cannot continue would make all others fail at later starts.
                del self._layers[layer.layer]
                if not worker.alive:
                    return said
        return None

    def _job(self, layer: TuningLayer) -> Mapping[str, Any]:
        asked, results = self._settings, self._told[layer.layer]
        return {
            "do": "search",
            "layer": layer.layer,
            "workload": layer.workload,
            **to_json(asked),
            "seed": asked.seed + len(results),
            "told": [[trace, list(times)] for trace, times in results],
        }

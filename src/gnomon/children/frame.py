"""The common part of all child programs: limits, input and output of one JSON object per line, and a log for each job.

The first line on standard input is ``{"memory_bytes": N, "settings": {..}}`` and is answered by ``{"state": "ready",
"versions": {..}}``, or ``{"state": "unusable", "message": ..}`` if a package cannot be loaded. Every further line is a
job, answered by ``{"state": "done", "facts": {..}}`` or ``{"state": "failed", "kind": .., "message": ..}``.
"""

from __future__ import annotations

import contextlib
import gc
import graphlib
import importlib.util
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Job = dict[str, Any]
"""A job: the file that its output goes to (`log`), and further keys defined by the function that does the job."""
Facts = dict[str, Any]
"""The facts of a job as JSON values, defined by the function that does the job."""
Settings = dict[str, Any]
"""The settings of a program, defined by its `setup`."""
Arrays = dict[str, Any]
"""NumPy arrays by name."""
Work = Callable[[Job], Facts]
Setup = Callable[[Settings], tuple[Work, dict[str, str]]]
"""A function that loads the packages; given the settings, it returns the function that does a job, and versions by
package.
"""

MEMORY_WORDS = ("bad_alloc", "bad allocation", "Failed to allocate", "DefaultCPUAllocator", "out of memory")
_MOST_LETTERS = 2000


class Refused(Exception):
    """A job that cannot be done; `kind` is the kind of failure: "refused", or "vanished" for a lost device."""

    def __init__(self, words: str, kind: str = "refused") -> None:
        super().__init__(words)
        self.kind = kind


@contextlib.contextmanager
def refusing(
    words: str, errors: type[Exception] = Exception, tell: Callable[[Exception], str] | None = None
) -> Iterator[None]:
    """Turn errors in the block into Refused with these words, followed by `tell(error)` if given."""
    try:
        yield
    except errors as error:
        raise Refused(f"{words}: {tell(error)}" if tell else words) from error


def serve(setup: Setup, needed: Sequence[str]) -> None:
    """Answers the request and the jobs on standard input until the input ends.

    With GNOMON_CHILD_NEEDS in the environment, it only lists the packages in `needed` that are missing.
    """
    if os.environ.get("GNOMON_CHILD_NEEDS"):
        sys.stdout.write(json.dumps([name for name in needed if importlib.util.find_spec(name) is None]) + "\n")
        return
    request = json.loads(sys.stdin.readline())
    limit = int(request["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Libraries print, even from C++, so descriptor 1 becomes the log and the answers get a separate descriptor.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    own_log = os.dup(2)
    os.dup2(own_log, 1)

    def answer(**said: Any) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    gc.disable()  # TVM and PyTorch take a tenth to a seventh longer to load with garbage collection
    try:
        work, versions = setup(request["settings"])
    except Exception as error:  # a broken package may raise anything at import
        traceback.print_exc()
        answer(state="unusable", message=_words(error))
        sys.exit(3)
    gc.freeze()  # loaded modules stay: searching TVM's modules for garbage takes 50 ms each time
    gc.enable()
    answer(state="ready", versions=versions)
    for line in sys.stdin:
        job = json.loads(line)
        log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if job.get("log") else own_log
        _print_to(log)
        try:
            answer(state="done", facts=work(job))
        except (Exception, SystemExit) as error:  # a library may raise anything on a broken model
            traceback.print_exc()
            answer(state="failed", kind=_kind(error), message=_words(error))
        finally:
            _print_to(own_log)
            if log != own_log:
                os.close(log)


@contextlib.contextmanager
def absent(package: str) -> Iterator[None]:
    """Make an installed package impossible to import in the block, because another package imports it without needing
    it.
    """
    sys.modules[package] = None  # type: ignore[assignment]  # means "not found" to the import system
    try:
        yield
    finally:
        del sys.modules[package]


def one_input(model: Any) -> tuple[str, list[Any]]:
    """The name and shape of an ONNX model's only input; free dimensions are strings. Refused if there are several
    inputs.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) != 1:
        raise Refused(f"the model has {len(inputs)} inputs, but only models with one input can be run on images")
    dims = inputs[0].type.tensor_type.shape.dim
    return inputs[0].name, [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]


def fitted(what: str, images: Any, shape: list[Any]) -> Any:
    """Images at the size of a model's input; larger images are scaled down by averaging. Refused if they do not fit.

    Free dimensions of the input are strings or numbers below 1.
    """
    import numpy as np

    there = images.shape[1:]
    sizes = [size if isinstance(size, int) and size > 0 else n for size, n in zip(shape[1:], there, strict=False)]
    fits = images.ndim == len(shape) and sizes[:1] == list(there[:1])
    if not fits or any(size > n for size, n in zip(sizes, there, strict=True)):
        raise Refused(f"{what} {list(images.shape)} do not fit the model's input {shape}")
    for axis, (size, count) in enumerate(zip(sizes[1:], there[1:], strict=True), 2):
        if size != count:
            ends = [(k * count // size, -(-(k + 1) * count // size)) for k in range(size)]
            images = np.stack([images.take(range(*own), axis).mean(axis) for own in ends], axis)
    return images


def calibration_arrays(job: Job, most: int, shape: list[Any]) -> list[Any]:
    """The calibration images as arrays of a model's input shape (its first dimension is the batch).

    Refused if they do not fit the model.
    """
    import numpy as np

    with np.load(job["calibration"], allow_pickle=False) as stored:
        if "x" not in stored.files:
            raise Refused(f"{Path(job['calibration']).name} has no array x")
        images = np.ascontiguousarray(stored["x"][:most], dtype=np.float32)
    batch = shape[0] if shape and isinstance(shape[0], int) and shape[0] > 0 else 1
    images = fitted("calibration images", images, shape)
    if len(images) < batch:
        raise Refused(f"the calibration data has {len(images)} images, too few for a batch of {batch}")
    if not np.isfinite(images).all():
        raise Refused("the calibration images contain values that are not finite")
    return [images[start : start + batch] for start in range(0, len(images) - batch + 1, batch)]


def reader(model: Any, arrays: list[Any]) -> Any:
    """A reader that gives the arrays to a model's only input as calibration data, for ONNX Runtime's quantiser and
    those based on it.
    """
    name, _ = one_input(model)
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rewind()

        def __len__(self) -> int:
            return len(arrays)

        def get_next(self) -> Arrays | None:
            array = next(self._left, None)
            return None if array is None else {name: array}

        def rewind(self) -> None:
            self._left = iter(arrays)

    return Reader()


def quantising(onnx: Any, settings: Settings, quantise: Callable[[Job, Any, list[Any]], Any]) -> Work:
    """The work of a quantiser for ONNX models whose setting `images` is the largest number of calibration images.

    `quantise` gets the job, the model without any weights kept in other files, and the images; it returns the quantised
    model.
    """

    def work(job: Job) -> Facts:
        model = onnx.load(job["model"], load_external_data=False)
        arrays = calibration_arrays(job, settings["images"], one_input(model)[1])
        finish(onnx, quantise(job, model, arrays), job["output"])
        return {"images": sum(len(array) for array in arrays)}

    return work


def finish(onnx: Any, model: Any, path: str) -> None:
    """Writes a model with all shapes, and with its nodes in the order that ONNX requires: each after the nodes whose
    outputs it reads.

    Quark appends new nodes at the end; the recorded shapes save readers from inferring them. Refused if nothing at all
    was quantised; `read_quantised` reports how much was quantised.
    """
    graph = model.graph
    if not any(node.op_type == "QuantizeLinear" for node in graph.node):
        kinds = ", ".join(sorted({node.op_type for node in graph.node})[:10])
        raise Refused(f"no operator of the model was quantised; its operators are {kinds}")
    written = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    reads = [{written[name] for name in node.input if name in written} for node in graph.node]
    if any(place <= max(before, default=-1) for place, before in enumerate(reads)):
        nodes = [graph.node[place] for place in graphlib.TopologicalSorter(dict(enumerate(reads))).static_order()]
        del graph.node[:]
        graph.node.extend(nodes)
    onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), path)


def one_thread(onnxruntime: Any) -> None:
    """Makes one thread the default for sessions that libraries open, because several children share the cores."""

    class OneThread(onnxruntime.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.intra_op_num_threads = 1
            self.inter_op_num_threads = 1
            self.log_severity_level = 3

    onnxruntime.SessionOptions = OneThread


def _print_to(descriptor: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _kind(error: BaseException) -> str:
    if isinstance(error, Refused):
        return error.kind
    short = isinstance(error, MemoryError) or any(word in str(error) for word in MEMORY_WORDS)
    return "memory" if short else "refused"


def _words(error: BaseException) -> str:
    text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_MOST_LETTERS]

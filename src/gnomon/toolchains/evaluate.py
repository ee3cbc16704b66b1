"""The accuracy of model files on labelled images, by the runtime that runs them; in a process of its own.

The result is which images each model gets right, not a rate alone: two models are compared on the same images.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.system.children import Order, Program, run_orders
from gnomon.system.process import guarded_folder

EvaluationRuntime = Literal["onnxruntime", "openvino"]
STAGE = "check"
_MOST_BYTES = 32 << 30
_BROKEN = (OSError, ValueError, KeyError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """What a model made of labelled images: `correct`, bool (n,), in their order, or a failure.

    `kernels` counts convolution and matrix kernels by the precision in which the runtime says that it computes them
    ("u8", "f32"); OpenVINO tells, ONNX Runtime does not.
    """

    key: str
    correct: NDArray[np.bool_]
    kernels: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def accuracy(self) -> float:
        """The share of images that it gets right; NaN for a failure."""
        return float(self.correct.mean()) if self.correct.size else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """How models are evaluated.

    Images in bytes become (x - mean) / std, with a value a channel, of pixels from 0 to 255; images in float32 are
    taken as they are. `workers` models are run side by side, with one thread each; `timeout_s` is for each model.
    """

    runtime: EvaluationRuntime = "onnxruntime"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    workers: int = 1
    timeout_s: float = 600.0
    memory_bytes: int = 16 << 30


def evaluate(
    models: Mapping[str, Path],
    images: Path,
    options: EvaluationOptions | None = None,
    *,
    logs: Mapping[str, Path] | None = None,
) -> Iterator[Evaluation]:
    """Run each model on an npz file's x, uint8 or float32 (n, channels, height, width), with the classes y, (n,).

    What the runtime prints of a model is added to its file of `logs`. Yields an evaluation a model as soon as it is
    ready; what goes wrong with one is its failure. UsageError for images that is invalid, RuntimeMissingError where no
    child program can be started.
    """
    options = options or EvaluationOptions()
    classes = _classes(images, options)
    return _evaluate(models, images.absolute(), classes, options, logs or {})


def _evaluate(
    models: Mapping[str, Path],
    images: Path,
    classes: NDArray[np.int64],
    options: EvaluationOptions,
    logs: Mapping[str, Path],
) -> Iterator[Evaluation]:
    program = Program(
        name="evaluate_child",
        settings={
            "runtime": options.runtime,
            "images": str(images),
            "mean": list(options.mean),
            "std": list(options.std),
        },
        workers=options.workers,
        job_timeout_s=options.timeout_s,
        memory_bytes=options.memory_bytes,
    )
    with guarded_folder("gnomon-evaluate-") as folder:
        orders = [
            Order(
                key=key,
                message={"model": str(path.absolute()), "output": str(folder / f"{number}.npy")},
                stage=STAGE,
                log=logs[key].absolute() if key in logs else folder / f"{number}.log",
            )
            for number, (key, path) in enumerate(models.items())
        ]
        for reply in run_orders(program, orders):
            key, failure = reply.order.key, reply.failure
            told = np.empty(0, np.int64)
            if failure is None:
                told, failure = _told(Path(reply.order.message["output"]), len(classes))
            correct = told == classes if failure is None else np.empty(0, np.bool_)
            yield Evaluation(key=key, correct=correct, kernels=_kernels(reply.facts), failure=failure)


def _classes(images: Path, options: EvaluationOptions) -> NDArray[np.int64]:
    """The classes of the images. UsageError with all that is wrong with the file or the options."""
    hint = "Give an npz file with x, uint8 or float32 (n, channels, height, width), and y, whole numbers (n,)."
    if options.runtime not in ("onnxruntime", "openvino"):
        raise UsageError(f"no model is evaluated by {options.runtime!r}", hint="Use onnxruntime or openvino.")
    if not all(math.isfinite(value) for value in (*options.mean, *options.std)) or min(options.std, default=0) <= 0:
        raise UsageError("a mean or a standard deviation is not a number, or not above 0", hint="Give those of pixels.")
    try:
        if images.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{images} has more than {_MOST_BYTES >> 30} GiB", hint="Give fewer images.")
        # Of an archive that is broken numpy would leave the file open.
        with images.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise ValueError("it is one array")
            x, y = stored["x"], stored["y"]
            if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):  # a member of another kind is bytes
                raise ValueError("x or y is not an array")
    except _BROKEN as error:
        raise UsageError(f"{images} holds no labelled images: {error}", hint=hint) from error
    told = []
    if x.dtype not in (np.dtype(np.uint8), np.dtype(np.float32)):
        told.append(f"x is of {x.dtype}")
    if y.dtype.kind not in "iu" or y.shape != x.shape[:1] or not len(y):
        told.append(f"y is {y.dtype}{list(y.shape)} for x {list(x.shape)}")
    if x.dtype == np.uint8 and any(len(part) not in (1, *x.shape[1:2]) for part in (options.mean, options.std)):
        told.append(f"means and standard deviations are not of {x.shape[1:2]} channels")
    if told:
        raise UsageError(f"{images} holds no labelled images: {'; '.join(told)}", hint=hint)
    return y.astype(np.int64)


def _told(output: Path, count: int) -> tuple[NDArray[np.int64], Failure | None]:
    """The classes that the child wrote, or why they cannot be used."""
    try:
        told = np.load(output, allow_pickle=False)
        output.unlink()
        if told.dtype == np.int64 and told.shape == (count,):
            return told, None
        why = f"the program wrote {told.dtype}{list(told.shape)}"
    except _BROKEN as error:
        why = f"the program wrote no classes: {error}"
    failure = Failure(stage=STAGE, kind="wrong-output", transient=False, message=why)
    return np.empty(0, np.int64), failure


def _kernels(facts: Mapping[str, Any]) -> dict[str, int]:
    found = facts.get("kernels", {})
    return {str(name): int(count) for name, count in found.items()} if isinstance(found, dict) else {}

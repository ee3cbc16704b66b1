"""The accuracy of model files on labelled images, computed by their runtime in a separate process.

The result lists the images that each model classifies correctly instead of only a rate, so that two models are compared
on the same images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.system.children import Order, Program, run_orders
from gnomon.system.process import guarded_folder


def evaluate(
    models: Mapping[str, Path],
    images: Path,
    runtime: str,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    logs: Mapping[str, Path],
) -> Iterator[tuple[str, NDArray[np.bool_] | Failure]]:
    """Run each model on the images in an npz file: x, uint8 or float32 (n, channels, height, width), with their classes
    y, (n,).

    `runtime` is "onnxruntime" or "openvino". Images in bytes, with pixels from 0 to 255, become (x - mean) / std, with
    one mean and std per channel; images in float32 are used unchanged. What the runtime prints about a model is added
    to the model's file in `logs`. For each model, yields, as soon as it has been run, whether each image is classified
    correctly, or the model's failure. RuntimeMissingError if no child program can be started.
    """
    settings = {"runtime": runtime, "images": str(images.absolute()), "mean": list(mean), "std": list(std)}
    with np.load(images) as stored:
        classes = stored["y"]
    with guarded_folder("gnomon-evaluate-") as folder:
        orders = [
            Order(
                key=key,
                message={"model": str(path.absolute()), "output": str(folder / f"{number}.npy")},
                stage="check",
                log=logs[key].absolute(),
            )
            for number, (key, path) in enumerate(models.items())
        ]
        for reply in run_orders(Program(name="evaluate_child", settings=settings), orders):
            yield reply.order.key, reply.failure or np.load(str(reply.order.message["output"])) == classes

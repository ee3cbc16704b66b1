"""Buffers that models read and write, inputs made from a seed, and the comparison of outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Buffers = dict[str, Array]


def make_buffers(tensors: dict[str, Any]) -> Buffers:
    """An array for each tensor of a job: ``{"x": {"shape": [..], "dtype": "float32", "slab": 0}}``.

    Tensors of the same `slab` are never alive together and share memory, so that a chain reuses warm buffers
    as a whole model reuses its arena.
    """
    sizes: dict[int, int] = {}
    for spec in tensors.values():
        if spec.get("slab") is not None:
            size = math.prod(spec["shape"]) * np.dtype(spec["dtype"]).itemsize
            sizes[spec["slab"]] = max(sizes.get(spec["slab"], 0), size)
    slabs = {slab: np.zeros(size, np.uint8) for slab, size in sizes.items()}
    buffers: Buffers = {}
    for name, spec in tensors.items():
        dtype, shape = np.dtype(spec["dtype"]), tuple(spec["shape"])
        if spec.get("slab") is None:
            buffers[name] = np.zeros(shape, dtype)
        else:
            size = math.prod(shape) * dtype.itemsize
            buffers[name] = slabs[spec["slab"]][:size].view(dtype).reshape(shape)
    return buffers


def fill(buffers: Buffers, feeds: dict[str, Any], seed: int) -> None:
    """Write the inputs: an array file where one is named, else values drawn from `seed`.

    Floating inputs are standard normal, integer inputs 0 or 1 (a valid index, length or mask nearly everywhere).
    """
    for position, (name, feed) in enumerate(sorted(feeds.items())):
        target = buffers[name]
        if feed.get("file"):
            value = np.load(feed["file"], allow_pickle=False)
            if value.shape != target.shape:
                raise ValueError(f"input {name!r}: the file holds {value.shape}, the model wants {target.shape}")
            np.copyto(target, value.astype(target.dtype))
            continue
        rng = np.random.default_rng([seed, position])
        if target.dtype.kind == "f":
            drawn = np.asarray(rng.standard_normal(target.shape), np.float32)
            np.copyto(target, drawn.astype(target.dtype))
        else:
            np.copyto(target, rng.integers(0, 2, target.shape).astype(target.dtype))


def largest_difference(outputs: dict[str, Array], reference: dict[str, Array]) -> dict[str, float]:
    """The largest absolute difference, and the largest one relative to the reference's largest magnitude.

    Values that are not finite where the reference is finite count as an infinite difference.
    """
    absolute = relative = 0.0
    for name, expected in reference.items():
        wide = expected.astype(np.float64)
        got = outputs[name].astype(np.float64)
        if got.shape != wide.shape:
            return {"absolute": math.inf, "relative": math.inf}
        if not got.size:
            continue
        same = (got == wide) | (np.isnan(got) & np.isnan(wide))
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(got - wide))
        worst = float(np.nan_to_num(difference, nan=math.inf, posinf=math.inf).max())
        finite = np.abs(wide[np.isfinite(wide)])
        scale = float(finite.max()) if finite.size else 0.0
        absolute = max(absolute, worst)
        relative = max(relative, worst / scale if scale > 0 else (math.inf if worst > 0 else 0.0))
    return {"absolute": absolute, "relative": relative}

"""A job: a chain of one or more models over shared buffers, loaded by a worker or described by a plan."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .arrays import Array, Buffers, fill, finite_share, largest_difference, make_buffers, widened
from .driver import Driver, Loaded, Refused, Reporting, driver_for

if TYPE_CHECKING:
    from gnomon import wire

_MOST = sys.float_info.max
"""A replacement for infinity, which JSON does not have."""


class Job:
    """The loaded models of a job. Close a job when done; a closed job cannot be used again.

    If the first segment has the option `streams`, `beside` has `streams - 1` further jobs, which run the same models at
    the same time; all of them share the loaded model if the runtime can run it several times at once. If a segment
    cannot be loaded, the exception has the segment's number in its attribute `segment`.
    """

    def __init__(self, spec: wire.Job, *, profiled: bool = False, beside: Job | None = None) -> None:
        self.spec = spec
        self.buffers: Buffers = make_buffers(spec["tensors"])
        self.seed = int(spec.get("seed", 0))
        fill(self.buffers, spec["feeds"], self.seed)
        self.parts: list[Loaded] = []
        self.beside: list[Job] = []
        try:
            for segment in spec["segments"]:
                driver = driver_for(segment["runtime"])
                _refuse_bfloat16(driver, segment, spec["tensors"])
                # A chain is profiled by timing its segments, a single model by the runtime's own profiler.
                inner = profiled and len(spec["segments"]) == 1
                load = getattr(beside and beside.parts[len(self.parts)], "beside", driver.load)
                self.parts.append(load(segment, self.buffers, profiled=inner))
            for _ in range(1, 1 if beside else spec["segments"][0]["options"].get("streams", 1)):
                self.beside.append(Job(spec, beside=self))
        except BaseException as error:
            self.close()
            vars(error)["segment"] = len(self.parts)
            raise
        self._segment_ns: list[list[int]] = [[] for _ in self.parts]
        self.call = self._make_call(profiled)

    def _make_call(self, profiled: bool) -> Callable[[], object]:
        calls = [part.call for part in self.parts]
        if len(calls) == 1:
            return calls[0]
        if not profiled:

            def chain() -> None:
                for call in calls:
                    call()

            return chain
        clock, times = time.perf_counter_ns, self._segment_ns

        def timed_chain() -> None:
            before = clock()
            for call, taken in zip(calls, times, strict=True):
                call()
                after = clock()
                taken.append(after - before)
                before = after

        return timed_chain

    @property
    def program(self) -> Reporting | None:
        """The job's program if it times its calls itself; None for a job that is timed here."""
        part = self.parts[0]
        return part if len(self.parts) == 1 and isinstance(part, Reporting) else None

    def where(self) -> list[list[wire.Place]]:
        """Where the operators run, as reported by each segment's runtime."""
        return [part.where() for part in self.parts]

    def operators(self, skip: int) -> list[wire.KernelTimes]:
        """The profiled times of the kernels (or segments, if there are several), excluding the first `skip` calls."""
        if len(self.parts) == 1:
            return self.parts[0].operators(skip)
        return [
            {"name": str(k), "sources": [], "backend": segment["runtime"], "wall_ns": taken[skip:]}
            for k, (segment, taken) in enumerate(zip(self.spec["segments"], self._segment_ns, strict=True))
        ]

    def outputs(self, seed: int) -> dict[str, Array]:
        """Copies of the outputs for the inputs of `seed`, with bfloat16 as float32; the job's own inputs are restored.

        Inputs from files have the files' values for the job's own seed, and varied values for any other seed.
        """
        fill(self.buffers, self.spec["feeds"], seed, varied=seed != self.seed)
        self.call()
        copies = {name: widened(self.buffers[name]).copy() for name in self.spec["outputs"]}
        fill(self.buffers, self.spec["feeds"], self.seed)
        return copies

    def check(self, reference: str, seeds: list[int]) -> wire.Difference:
        """The worst difference from the reference outputs in a file that `save_outputs` wrote.

        The result is at most the largest float, as JSON has no infinity.
        """
        absolute = relative = 0.0
        with np.load(reference, allow_pickle=False) as stored:
            for seed in seeds:
                expected = {name: stored[f"{seed}/{k}"] for k, name in enumerate(self.spec["outputs"])}
                difference = largest_difference(self.outputs(seed), expected)
                absolute, relative = max(absolute, difference["absolute"]), max(relative, difference["relative"])
        return {"absolute": min(absolute, _MOST), "relative": min(relative, _MOST)}

    def save_outputs(self, path: str, seeds: list[int]) -> wire.Sensitivity:
        """Write the outputs for each seed as a reference; return how much they differ between seeds.

        The differences come from `largest_difference`, and are at most the largest float, as JSON has no infinity.
        """
        arrays: dict[str, Array] = {}
        by_seed = [self.outputs(seed) for seed in seeds]
        for seed, outputs in zip(seeds, by_seed, strict=True):
            for k, name in enumerate(self.spec["outputs"]):
                # A .npz file can hold text of fixed length, but no objects.
                array = outputs[name]
                arrays[f"{seed}/{k}"] = array.astype(str) if array.dtype == object else array
        np.savez(path, allow_pickle=False, **arrays)
        moved = largest_difference(by_seed[-1], by_seed[0])
        again = largest_difference(self.outputs(seeds[0]), by_seed[0])
        return {
            "absolute": min(moved["absolute"], _MOST),
            "relative": min(moved["relative"], _MOST),
            "finite": min(map(finite_share, by_seed)),
            "again": min(again["relative"], _MOST),
        }

    def close(self) -> None:
        """Release the models of this job and of the jobs beside it."""
        closing: list[Job | Loaded] = [*self.beside, *self.parts]
        for part in closing:
            part.close()


def _refuse_bfloat16(driver: Driver, segment: wire.Segment, tensors: dict[str, wire.Tensor]) -> None:
    """Raise Refused if the segment reads or writes bfloat16 and its driver does not declare support for it."""
    if getattr(driver, "bfloat16", False):
        return
    for model_name, tensor in (*segment["inputs"], *segment["outputs"]):
        if tensors[tensor]["dtype"] == "bfloat16":
            raise Refused(
                f"the tensor {model_name!r} is bfloat16, which the driver of {segment['runtime']} does not support"
            )

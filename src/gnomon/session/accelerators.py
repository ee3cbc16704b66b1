"""What is to be said of devices beside the processor, which are programs, and of what is compiled in a first run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnomon.core.stats import median
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import Doubt
from gnomon.session.contender import Contender
from gnomon.session.targets import Target


def software_devices(targets: Sequence[Target]) -> list[Doubt]:
    """A doubt for each accelerator that is a program on the processor."""
    found = {f"{t.configuration.runtime}:{a.backend}": a for t in targets for a in t.configuration.accelerators}
    return [
        Doubt(
            kind="software-device",
            message=f"{backend} is {device.name}, a program on the processor: its times say nothing of a GPU",
            hint="Outputs and places hold; measure times where there is a GPU.",
        )
        for backend, device in found.items()
        if device.software
    ]


def first_runs(measured: Iterable[tuple[Contender, Sequence[Measured]]]) -> list[Doubt]:
    """For each contender with an accelerator, or that is compiled when it is loaded, what loading it and its first call
    took, which no time of a call holds.

    Shaders or code are compiled then: in the first process, and in all others too where nothing keeps them. `measured`
    are the contenders that ran, with what was measured of each in that order.
    """
    told = []
    for contender, found in measured:
        compiled = any("compile_s" in row for part in found[-1].fact("where") or () for row in part)
        if not (contender.accelerators or compiled):
            continue
        what = "shaders are" if contender.accelerators else "its code is"
        first, *later = (1e-9 * ns for one in found for ns in _begun_ns(one))
        others = f", {median(later):.2g} s (median) in {len(later)} later ones" if later else ""
        held = held_bytes(found[-1])
        memory = "" if held is None else f"; it holds {held / 2**20:.3g} MiB of the device's memory"
        told.append(
            Doubt(
                kind="first-run",
                message=f"in its first process {contender.label} took {first:.2g} s to load and for the first "
                f"call{others}: {what} compiled then; no time of a call holds it{memory}",
                hint="Count it where processes are short-lived.",
            )
        )
    return told


def _begun_ns(measured: Measured) -> list[int]:
    """What loading and the first call took in each process."""
    first = {run.process: run.facts for run in reversed(measured.runs) if "load_ns" in run.facts}
    return [first[process]["load_ns"] + first[process]["first_call_ns"] for process in sorted(first)]


def held_bytes(measured: Measured) -> int | None:
    """What a model holds of the memory of devices, in bytes; None where its runtime does not tell it."""
    told = [row.get("device_memory_bytes") for part in measured.fact("where") or () for row in part]
    return sum(found) if (found := [held for held in told if held is not None]) else None

"""The conditions of measured times: processor, threads, precision, shapes, inputs and day, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.report import units
from gnomon.report.plain import listed, many

if TYPE_CHECKING:
    from gnomon.core.cost import Limit

_MOST_SHAPES = 3
"""The maximum number of inputs whose shapes are given in a report's second line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FedInput:
    """An input, and the data it was `fed`, in words; `sha256` is the digest of the file, null for random numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    fed: str
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsPart:
    """The conditions of an answer; `defaults` tells whether the runtimes' own default `threads` were measured too.

    `inputs` are the inputs of the user's own model. `machine` is the processor, with `cores` usable cores (null: not
    known). `date` is the local date on which the measurements began. `signature` is the requested signature. An empty
    value means not known or not set.
    """

    threads: tuple[int, ...]
    defaults: bool = False
    precisions: tuple[str, ...] = ()
    inputs: tuple[FedInput, ...] = ()
    machine: str = ""
    cores: int | None = None
    date: str = ""
    signature: str = ""


def table_conditions(context: Mapping[str, Any], at_s: float | None = None) -> ConditionsPart:
    """The conditions of times that were measured in a table's context, beginning at `at_s`."""
    device, threads = context.get("device") or {}, (context.get("options") or {}).get("threads")
    machine = device.get("ro.product.model") or device.get("cpu_model") or device.get("machine") or ""
    return ConditionsPart(
        threads=(threads,) if isinstance(threads, int) else (),
        precisions=(str(context["dtype"]),) if context.get("dtype") else (),
        machine=str(machine),
        date=units.day(at_s),
    )


def measured_with(context: Mapping[str, Any], conditions: ConditionsPart | None = None, clock: str = "") -> str:
    """The conditions of a table's times, in one sentence: runtime, processor, threads, day, and a known clock."""
    name = context.get("configuration") or context.get("runtime") or "an unknown runtime"
    held = held_for(f"{name} {context.get('version') or ''}".strip(), "", conditions or table_conditions(context))
    return f"{held}{f', by {units.CLOCKS[clock]}' if clock else ''}."


def held_for(name: str, device: str, conditions: ConditionsPart) -> str:
    """The conditions of times on a device, as a sentence; the device "" is named after its machine."""
    cores = conditions.cores
    machine = conditions.machine + ("" if cores is None else f", {many(cores, 'core')}")
    where = f"{device} ({machine})" if device and machine else device or machine or "an unknown device"
    counts = " and ".join(map(str, conditions.threads))
    threads = f"{counts} thread{'' if counts == '1' else 's'}{' and defaults' if conditions.defaults else ''}"
    fed = conditions.inputs
    threads = threads if counts else "threads not set by gnomon" if fed else ""
    shapes = [f"{row.name if len(fed) > 1 else ''} {'x'.join(map(str, row.shape))}".strip() for row in fed]
    more = [f"{len(shapes) - _MOST_SHAPES} more"] if len(shapes) > _MOST_SHAPES else []
    drawn = [row.name for row in fed if row.sha256 is None]
    inputs = "given inputs" if fed else ""
    if drawn:
        inputs = "random inputs" if len(drawn) == len(fed) else f"random {listed(drawn, 3)}"
    signature = conditions.signature and f"signature {conditions.signature}"
    parts = [threads, *conditions.precisions, signature, *shapes[:_MOST_SHAPES], *more, inputs, conditions.date]
    facts = ", ".join(filter(None, parts))
    return f"{name} on {where}{facts and f': {facts}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPart:
    """A limit with its use and slack, and the `price`: how much one more unit of it would lower the bound.

    `price` is in weighted units, is only valid for small changes, and is null if it is not known. For a limit on a
    peak, `at` is the slot in whose step the peak occurs; for a limit on a sum, it is null.
    """

    name: str
    unit: str
    at_most: float
    used: float
    slack: float
    price: float | None
    at: str | None = None


def limit_parts(limits: Sequence[Limit], uses: Sequence[float], prices: Sequence[float]) -> tuple[LimitPart, ...]:
    """The limits with their uses, and with a solver's prices if they are known."""
    priced: Sequence[float | None] = prices or [None] * len(limits)
    return tuple(
        LimitPart(name=row.name, unit=row.unit, at_most=row.at_most, used=used, slack=row.at_most - used, price=price)
        for row, used, price in zip(limits, uses, priced, strict=True)
    )

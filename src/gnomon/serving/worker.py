"""A program: measures the models that the orders on its standard input name, and writes one JSON answer for each.

It is a process of its own, in a group of its own, one for each device, so that whatever a model does to it, the server
goes on; what it starts itself ends with it, however it ends. Between orders it keeps what takes long to start: itself,
the way to the device, what was found there and, on this machine, the agent with the reference kernel. It lets go of the
device when no order comes for a while, and now and then in any case, as others may wait for it.

A model is measured as the nets of search spaces are: beside a reference kernel, which brings all times to the speed
that the machine had when the server was started.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from gnomon.errors import GnomonError, MeasurementError, ModelError, ProblemError
from gnomon.serving.commanded import TookTooLong, measure_by_command
from gnomon.serving.models import sent_model
from gnomon.serving.orders import FAILED, REFUSED, TIMED_OUT, Order, order_of

if TYPE_CHECKING:
    from gnomon.session.bench.bench import Bench, Placed

_MORE = 2
"""Processes of the reference kernel's first measurement beyond those of models, which all rest on it."""

_LOADS = 3
"""How often a model is loaded where one process is kept."""

_IDLE_S, _MOST_HELD_S = 5.0, 30.0
"""How long the device is held without an order, and with orders: then others get their turn."""


def main() -> None:
    """Reads, measures, writes, until there is nothing more to read."""
    signal.signal(signal.SIGTERM, _terminated)
    with ExitStack() as stack:
        held = stack.enter_context(_Held())
        for order in _orders(held):
            _limit(order)
            sys.stdout.write(json.dumps(_answered(order, held), allow_nan=False) + "\n")
            sys.stdout.flush()


def _orders(held: _Held) -> Iterator[Order]:
    """The orders as they come. What is held is let go of while none comes."""
    read = bytearray()
    while True:
        if b"\n" not in read:
            wait_s = _IDLE_S if held.bench is not None else None
            if not select.select([0], [], [], wait_s)[0]:
                held.close()
                continue
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            read += chunk
            continue
        line, _, rest = bytes(read).partition(b"\n")
        read = bytearray(rest)
        yield order_of(line)
        held.close_old()


class _Held:
    """A bench that is open, with the reference kernel on it."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.anchor: Placed | None = None
        self._stack = ExitStack()
        self._since_s = 0.0

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def for_order(self, order: Order, subject: str) -> tuple[Bench, Placed]:
        """The bench with a campaign of its own for a model. Raises GnomonError."""
        question = {"digest": order.digest, "processes": "one that is kept" if order.warm else order.processes}
        if self.bench is None or self.anchor is None:
            self._since_s = time.monotonic()
            self.bench = self._stack.enter_context(_opened(order, subject, question))
            self.anchor = _anchor(self.bench)
        else:
            self.bench.runner = self.bench.begin(subject, question)
        return self.bench, self.anchor

    def close_old(self) -> None:
        """Let go of it where it was held for long: who waits for the device comes first then."""
        if time.monotonic() - self._since_s > _MOST_HELD_S:
            self.close()

    def close(self) -> None:
        """Let go of the device."""
        self.bench = self.anchor = None
        self._stack.close()


def _answered(order: Order, held: _Held) -> dict[str, Any]:
    """What came of an order."""
    try:
        if order.command is not None:
            return measure_by_command(order, _device_of(order), _tell)
        return _measured(order, held)
    except (ModelError, ProblemError, MeasurementError) as error:
        kind = REFUSED if order.model is not None else FAILED
        # Where the server keeps it is nobody's business, and means nothing to who sent it.
        message = _without_paths(error.message, order)
        answer: dict[str, Any] = {kind: {"message": message, "hint": error.hint}}
        if kind == FAILED:
            answer[FAILED]["kind"] = type(error).__name__
        return answer
    except TookTooLong as late:
        return {TIMED_OUT: {"limit_s": order.job_s, "said": _without_paths(late.said, order)}}
    except GnomonError as error:
        message = _without_paths(error.message, order)
        return {FAILED: {"kind": type(error).__name__, "message": message, "hint": error.hint}}
    except MemoryError:
        return {
            REFUSED: {
                "message": f"measuring it takes more than {order.memory_bytes >> 20} MiB of memory",
                "hint": "Start the server with more, --memory-mb, or send a smaller model.",
            }
        }


def _without_paths(text: str, order: Order) -> str:
    """A text without where the server keeps the model."""
    if order.model is None:
        return text
    return re.sub(re.escape(str(Path(order.model).parent)) + r"[^\s:,'\"]*", "the model", text)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that every block is left, and ends what it started


def _limit(order: Order) -> None:
    """Soft limits alone: the programs behind this one are the house's own, and some set theirs themselves."""
    wished = {
        resource.RLIMIT_AS: order.memory_bytes,
        resource.RLIMIT_FSIZE: order.disk_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for what, soft in wished.items():
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _device_of(order: Order) -> Any:
    from gnomon.devices.opening import resolve

    # What is served is sent once: none of it stays in the device's cache of pushed files.
    return replace(resolve(order.device), keep=False)


def _opened(order: Order, subject: str, question: Mapping[str, Any]) -> Any:
    from gnomon.models.load import reachable
    from gnomon.runtimes.base import Wish
    from gnomon.runtimes.registry import all_runtimes
    from gnomon.session.bench.bench import open_bench
    from gnomon.session.request import Request

    formats = next((runtime.formats for runtime in all_runtimes()[0] if runtime.name == order.runtime), frozenset())
    request = Request(
        model=Path(),
        device=_device_of(order),
        runtimes=(order.runtime,),
        wish=Wish(
            threads=order.threads,
            backends=(order.backend,) if order.backend else (),
            precisions=(order.precision,) if order.precision else (),
        ),
        effort=_effort(order),
        seed=order.seed,
        record=order.record_path,
        fresh=True,
    )
    return open_bench(
        request,
        kind="serve",
        subject=subject,
        question=question,
        tell=_tell,
        loads=min(formats - reachable("onnx"), default="onnx") if not formats & reachable("onnx") else "onnx",
        kept=order.warm,
    )


def _measured(order: Order, held: _Held) -> dict[str, Any]:
    from gnomon.measure.environment import worst
    from gnomon.measure.link import KeptLink
    from gnomon.session.bench.baseline import clock_of, levels_of, timed
    from gnomon.session.request import device_met
    from gnomon.session.targets import describe

    model = None if order.model is None else sent_model(Path(order.model), order.model_bytes)
    subject = "the reference kernel of a server" if model is None else f"served model {order.digest[:16]}"
    bench, anchor = held.for_order(order, subject)
    with device_met(bench.runner):
        placed = anchor if model is None else _placed(bench, model)
        beside = replace(anchor.candidate, stays=model is not None)
        wanted = list({one.key: one for one in (beside, placed.candidate)}.values()) if model else [beside]
        try:
            measured = bench.runner.measure("served", wanted, _effort(order))
        finally:
            bench.runner.finish({"reason": "a server was asked for it"})
    if not measured[placed.key].ok:
        raise MeasurementError(
            f"{bench.runtime.name} does not run it: {describe(measured[placed.key].failure)}",
            hint="Try it on the server's machine: gnomon profile MODEL",
        )
    clock = clock_of(bench, list(measured.values()))
    anchors = [measured[anchor.key]] if model is not None else []
    one = timed(measured[placed.key], clock, reference_s=order.reference_s, anchors=anchors)
    kept = isinstance(bench.link, KeptLink)
    return {
        "latency_s": one.call_s,
        "low_s": one.low_s,
        "high_s": one.high_s,
        "processes": 1 if kept else one.processes,
        "loads": one.processes,
        "interval_of": "loads in one process" if kept else "processes",
        "samples": sum(map(len, one.samples.values())),
        "drift": one.drift,
        "runtime": bench.runtime.name,
        "version": bench.probe.version,
        "configuration": bench.configuration.name,
        "clock": clock,
        "doubts": [{"kind": d.kind, "message": d.message, "hint": d.hint} for d in worst(bench.runner.environments)],
        "device": bench.device.name,
        "reference_s": list(order.reference_s) or list(levels_of(measured[anchor.key], clock).values()),
        "workload_mop": None if placed.graph.macs is None else 2e-6 * placed.graph.macs,
    }


def _placed(bench: Bench, path: Path) -> Placed:
    """The model on the device. ModelError for one of a format that the runtime does not load."""
    from gnomon.models.load import load, reachable

    model = load(path)
    wanted = bench.runtime.formats
    if not wanted & reachable(model.graph.format):
        loads = ", ".join(sorted(wanted))
        raise ModelError(
            f"it is a model of the format {model.graph.format}, and {bench.runtime.name} loads {loads}",
            hint="Send it to a server with a runtime for that format: gnomon runtimes lists them.",
        )
    if model.package and "circle" not in wanted:
        return _placed(bench, model.package.models[0])  # a package is loaded whole by onert alone
    return bench.put("model", model, path)


def _effort(order: Order) -> Any:
    """A whole small net's: a tenth of a second in each process. What it takes beyond that is starting processes."""
    from gnomon.jobs.table.job import EFFORT

    processes = (_LOADS if order.warm else order.processes) + (0 if order.model is not None else _MORE)
    return replace(
        EFFORT,
        rounds=3,
        block_s=0.02,
        warm_s=0.02,
        processes_least=processes,
        processes_most=processes,
        together=2,
        timeout_s=order.job_s,
    )


def _anchor(bench: Bench) -> Placed:
    """A kernel of some ten microseconds, in the format that the runtime loads: long enough to be timed well."""
    from gnomon.models.load import reachable
    from gnomon.models.tflite.kernel import product_kernel
    from gnomon.session.bench.baseline import placed_unit
    from gnomon.spaces.layers import layer
    from gnomon.spaces.unit import single

    if bench.runtime.formats & reachable("onnx"):
        unit = single(layer("Conv", out_channels=16, kernel=3, pad=1), ((1, 16, 32, 32),))
        return placed_unit(bench, unit, "anchor")
    path = bench.folder / "anchor.tflite"
    path.write_bytes(product_kernel(96))
    return bench.place("anchor", path)


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

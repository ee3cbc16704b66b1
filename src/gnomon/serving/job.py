"""A program: measures the one model that the order on its standard input names, and writes one JSON answer.

It is a process of its own, in a group of its own, so that whatever a model does to it, the server goes on; what it
starts itself ends with it, however it ends. The model is measured as the nets of search spaces are: in fresh processes,
beside an anchor, which brings all times to the speed that the machine had when the server was started.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from gnomon.errors import GnomonError, MeasurementError, ModelError, ProblemError
from gnomon.serving.order import FAILED, REFUSED, Order, order_of

_MORE = 2
"""Processes of the anchor's reference beyond those of models, which all rest on it."""

_OTHER_FORMATS = "Send an ONNX model, which is converted here where the runtime loads another format."


def main() -> None:
    """Reads, measures, writes."""
    signal.signal(signal.SIGTERM, _terminated)
    order = order_of(sys.stdin.read())
    _limit(order)
    try:
        answer = _measured(order)
    except (ModelError, ProblemError, MeasurementError) as error:
        kind = REFUSED if order.model is not None else FAILED
        # Where the server keeps it is nobody's business, and means nothing to who sent it.
        message = error.message.replace(order.model or "\0", "the model")
        answer = {kind: {"message": message, "hint": error.hint}}
        if kind == FAILED:
            answer[FAILED]["kind"] = type(error).__name__
    except GnomonError as error:
        answer = {FAILED: {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}
    except MemoryError:
        answer = {
            REFUSED: {
                "message": f"measuring it takes more than {order.memory_bytes >> 20} MiB of memory",
                "hint": "Start the server with more, --memory-mb, or send a smaller model.",
            }
        }
    sys.stdout.write(json.dumps(answer, allow_nan=False))


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


def _measured(order: Order) -> dict[str, Any]:
    from gnomon.jobs.bench import open_bench
    from gnomon.jobs.gauge import clock_of, placed_unit
    from gnomon.jobs.request import Request
    from gnomon.jobs.targets import describe
    from gnomon.jobs.timed import levels_of, timed
    from gnomon.measure.environment import worst
    from gnomon.runtimes.base import Wish

    model = None if order.model is None else _checked(Path(order.model))
    request = Request(
        model=model or Path(),
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
    subject = f"served model {order.digest[:16]}" if model else "the anchor of a server"
    with open_bench(request, kind="serve", subject=subject, question={"digest": order.digest}, tell=_tell) as bench:
        anchor = placed_unit(bench, _anchor(), "anchor")
        placed = anchor if model is None else bench.place("model", model)
        wanted = list({one.key: one.candidate for one in (anchor, placed)}.values())
        try:
            measured = bench.runner.measure("served", wanted, request.effort)
        finally:
            bench.runner.finish({"reason": "a server was asked for it"})
        if not measured[placed.key].ok:
            raise MeasurementError(
                f"{bench.runtime.name} does not run it: {describe(measured[placed.key].failure)}",
                hint="Try it on the server's machine: gnomon profile MODEL",
            )
        clock = clock_of(bench, list(measured.values()))
        beside = [measured[anchor.key]] if model is not None else []
        one = timed(measured[placed.key], clock, reference_s=order.reference_s, anchors=beside)
        return {
            "latency_s": one.call_s,
            "low_s": one.low_s,
            "high_s": one.high_s,
            "processes": one.processes,
            "samples": sum(map(len, one.samples.values())),
            "drift": one.drift,
            "runtime": bench.runtime.name,
            "version": bench.probe.version,
            "configuration": bench.configuration.name,
            "clock": clock,
            "doubts": [
                {"kind": d.kind, "message": d.message, "hint": d.hint} for d in worst(bench.runner.environments)
            ],
            "device": bench.device.name,
            "reference_s": list(order.reference_s) or list(levels_of(measured[anchor.key], clock).values()),
            "workload_mop": None if placed.graph.macs is None else 2e-6 * placed.graph.macs,
        }


def _effort(order: Order) -> Any:
    """A whole small net's: a tenth of a second in each process. What it takes beyond that is starting processes."""
    from gnomon.jobs.table_build import EFFORT

    processes = order.processes + (0 if order.model is not None else _MORE)
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


def _anchor() -> Any:
    """A convolution of some ten microseconds: long enough to be timed well, short enough to cost nothing."""
    from gnomon.spaces.layers import layer
    from gnomon.spaces.unit import single

    return single(layer("Conv", out_channels=16, kernel=3, pad=1), ((1, 16, 32, 32),))


def _checked(model: Path) -> Path:
    """The model, if it can be ONNX. ModelError for another format that can be told."""
    from gnomon.models.flat_graph import MAGICS
    from gnomon.models.ncnn import NCNN_MAGIC

    with model.open("rb") as file:
        head = file.read(8)
    if head[4:8] in MAGICS or head.startswith(NCNN_MAGIC):
        raise ModelError("it is no ONNX model, but TFLite, Circle or ncnn", hint=_OTHER_FORMATS)
    return model


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

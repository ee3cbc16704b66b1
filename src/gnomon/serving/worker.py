"""A program: measures the one model that the order on its standard input names, and writes one JSON answer.

It is a process of its own, in a group of its own, so that whatever a model does to it, the server goes on; what it
starts itself ends with it, however it ends. The model is measured as the nets of search spaces are: in fresh processes,
beside an anchor, which brings all times to the speed that the machine had when the server was started.

What passes between the server and the program that measures one model: an order, and what came of it, in JSON.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from gnomon.core.codec import decode
from gnomon.core.strict_json import Complaints, Strict
from gnomon.errors import GnomonError, MeasurementError, ModelError, ProblemError

_MOST_LETTERS = 1 << 20
_ANSWER = Strict(what="answer of the measuring program", hint="Please report this.", most_letters=_MOST_LETTERS)
REFUSED, FAILED = "refused", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is measured, with what, and within which limits.

    Without a `model` the anchor alone is measured, which tells the speed of the machine as the server starts: its
    calls by process are the `reference_s` of later orders. `digest` names what is in the model's file.
    """

    runtime: str
    threads: int
    backend: str | None
    precision: str | None
    processes: int
    seed: int
    record: str | None
    job_s: float
    memory_bytes: int
    disk_bytes: int
    model: str | None = None
    digest: str = ""
    reference_s: tuple[float, ...] = ()

    def text(self) -> str:
        """As one JSON text; `order_of` reads it."""
        return json.dumps(asdict(self))

    @property
    def record_path(self) -> Path | None:
        """The record of runs; None: the user's own."""
        return None if self.record is None else Path(self.record)


def order_of(text: str) -> Order:
    """The order that `Order.text` wrote."""
    given = json.loads(text)
    return Order(**{**given, "reference_s": tuple(given["reference_s"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The model cannot be measured, which is the model's own affair: why, and the next step."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The measuring itself failed, whatever the model: the kind of error (of `gnomon.errors`), why, the next step."""

    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """The job was ended at its time limit; `said` is the last that it had told."""

    limit_s: float
    said: str = ""


Found = Mapping[str, Any]
"""What was measured: the keys of the JSON reply (docs/jobs/serve.md), `reference_s`, `workload_mop`."""

Outcome = Found | Refused | Failed | TimedOut


def outcome_of(text: str) -> Outcome:
    """What the program's standard output says. ProblemError where it is not an answer."""
    answer = _ANSWER.object(_ANSWER.parse(text), "$")
    for key, kind in ((REFUSED, Refused), (FAILED, Failed)):
        if key in answer:
            complaints = Complaints(what=_ANSWER.what, hint=_ANSWER.hint)
            found: Refused | Failed = decode(kind, answer[key], complaints, f"$.{key}")
            complaints.raise_any()
            return found
    if not {"latency_s", "reference_s", "runtime"} <= answer.keys():
        raise ProblemError("the measuring program's answer lacks something", hint="Please report this.")
    return answer


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
    from gnomon.measure.environment import worst
    from gnomon.runtimes.base import Wish
    from gnomon.session.baseline import clock_of, levels_of, placed_unit, timed
    from gnomon.session.bench import open_bench
    from gnomon.session.request import Request
    from gnomon.session.targets import describe

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
    from gnomon.jobs.table.job import EFFORT

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
    from gnomon.models.model import FLAT_MAGICS, NCNN_MAGIC

    with model.open("rb") as file:
        head = file.read(8)
    if head[4:8] in FLAT_MAGICS or head.startswith(NCNN_MAGIC):
        raise ModelError("it is not an ONNX model, but TFLite, Circle or ncnn", hint=_OTHER_FORMATS)
    return model


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

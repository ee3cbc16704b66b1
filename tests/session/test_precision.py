"""A precision that the processor has and nobody asked for is named, with what it would bring where that is cheap."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.placement_kit import NO_JOB

from gnomon.core.sample import Failure, Run, Samples
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import Probe, RunSettings
from gnomon.runtimes.openvino import OpenVino
from gnomon.session.precision import precision_hints

F32, BF16 = OpenVino().configurations(
    Probe(version="1", backends=(), details={"precisions": ["FP32", "BF16"]}), RunSettings(precisions=("bfloat16",))
)


def measured(key: str, call_us: float, *, failure: Failure | None = None, off: float = 0.0) -> Measured:
    samples = Samples(wall_ns=(int(call_us * 1e3),) * 9, cpu_ns=(int(call_us * 1e3),) * 9)
    facts = {"difference": {"relative": off, "absolute": off}}
    runs = [Run(candidate=key, process=0, block=b, started_at_s=0.0, samples=samples, facts=facts) for b in range(6)]
    if failure:
        runs = [Run(candidate=key, process=0, block=0, started_at_s=0.0, failure=failure)]
    return Measured(key=key, runs=tuple(runs), failure=failure)


class ModelSession:
    """As much of a lab as hints ask for: what is measured takes the times that the test gives."""

    link = object()
    lowered = ()
    unrepeatable = False

    def __init__(
        self, bf16: Measured, *, call_us: float = 1000.0, precisions: Any = ("FP32", "BF16"), requested: Any = ()
    ) -> None:
        self.probes = {"openvino": Probe(version="1", backends=(), details={"precisions": list(precisions)})}
        self.request = SimpleNamespace(settings=RunSettings(precisions=requested), effort=Effort())
        self.asked: list[Effort] = []
        self.bf16, self.call_us = bf16, call_us
        self.runner = SimpleNamespace(known=lambda key: measured(key, call_us), measure=self.measure, stopped="")

    def job(self, segments: Any) -> dict[str, Any]:
        return {"segments": segments}

    def tolerance(self, configuration: Any) -> float:
        return float(configuration.tolerance)

    def measure(self, stage: str, candidates: Any, effort: Effort) -> dict[str, Measured]:
        self.asked.append(effort)
        beside, wanted = candidates
        return {beside.key: measured(beside.key, self.call_us), wanted.key: replace(self.bf16, key=wanted.key)}


def contender() -> Any:
    runtime = SimpleNamespace(
        name="openvino",
        segment=lambda placed, configuration, assignment: {"options": dict(configuration.options)},
        configurations=OpenVino().configurations,
    )
    part = SimpleNamespace(target=SimpleNamespace(runtime=runtime, placed=None), configuration=F32)
    return SimpleNamespace(parts=(part,), key="openvino", threads=1, candidate=Candidate(key="openvino", job=NO_JOB))


def hints(session: ModelSession) -> list[str]:
    return [d.message for d in precision_hints(session, [contender()], "cpu")]  # type: ignore[arg-type]


def test_what_it_would_bring_is_measured_in_one_process_and_told_with_its_spread() -> None:
    session = ModelSession(measured("bf16", 600.0, off=0.012))
    (told,) = hints(session)
    gain = "1.67 times as fast as float32 [1.67, 1.67] in one process"
    assert told.startswith(f"openvino[bf16] computes in bfloat16: {gain}")
    assert "within 0.01 of the largest" in told
    assert [e.processes_most for e in session.asked] == [1]


def test_what_is_dear_is_named_and_not_measured() -> None:
    session = ModelSession(measured("bf16", 600.0), call_us=900_000.0)
    (told,) = hints(session)
    assert told == "openvino[bf16] computes in bfloat16, which may be faster"
    assert session.asked == []


def test_what_the_time_of_the_job_leaves_no_room_for_is_named_alone() -> None:
    failure = Failure(stage="run", kind="unmeasured", transient=True, message="not reached")
    session = ModelSession(measured("bf16", 600.0, failure=failure))
    session.runner.stopped = "precision"
    (told,) = hints(session)
    assert told == "openvino[bf16] computes in bfloat16, which may be faster"


def test_what_computes_too_coarsely_is_said_so() -> None:
    failure = Failure(stage="check", kind="wrong-output", transient=False, message="off by 0.2")
    (told,) = hints(ModelSession(measured("bf16", 600.0, failure=failure)))
    assert told == "openvino[bf16] computes in bfloat16, but its outputs are not within 0.05 of those in float32"


@pytest.mark.parametrize(
    ("took_us", "kind"),
    [(600.0, "precision"), (980.0, "precision-no-gain"), (1400.0, "precision-no-gain")],
    ids=["faster", "inside the noise", "slower"],
)
def test_what_is_not_surely_faster_is_no_tip(took_us: float, kind: str) -> None:
    (told,) = precision_hints(ModelSession(measured("bf16", took_us)), [contender()], "cpu")  # type: ignore[arg-type]
    assert told.kind == kind


@pytest.mark.parametrize(
    "more",
    [{"precisions": ("FP32",)}, {"requested": ("bfloat16",)}, {"precisions": ()}],
    ids=["none", "requested", "untold"],
)
def test_nothing_is_said_where_there_is_nothing_to_bring(more: dict[str, Any]) -> None:
    assert hints(ModelSession(measured("bf16", 600.0), **more)) == []

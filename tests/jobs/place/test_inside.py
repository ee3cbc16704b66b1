"""Placement inside a runtime, from made-up traces and totals: what is run, and what is solved for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.cli.placement_kit import TARGET

from gnomon.core.sample import OperatorSamples, Run, Samples
from gnomon.jobs.place.inside import InsidePlacer, InsideResult
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Effort
from gnomon.session.contender import profile_singles
from gnomon.session.model_session import ModelSession

US = 1000
TRACED: dict[str, tuple[int | None, ...]] = {"cpu": (300, 8, 10, 10), "ruy": (900, None, 3, 3)}
"""Microseconds of each operator on each backend, as a trace shows them; ruy takes all but the second."""


class Machine:
    """Runs assignments. Totals without a trace are the sum of it, but where ruy has the first operator `slow` times."""

    def __init__(self, slow: float) -> None:
        self.slow = slow
        self.stages: list[str] = []
        self.runs: dict[str, Measured] = {}

    def measure(self, stage: str, candidates: Sequence[Candidate], effort: Effort) -> dict[str, Measured]:
        self.stages.append(stage)
        for candidate in candidates:
            self.runs[candidate.key] = self._run(candidate)
        return {c.key: self.runs[c.key] for c in candidates}

    def known(self, key: str) -> Measured:
        return self.runs.get(key, Measured(key=key, runs=(), failure=None))

    def _run(self, candidate: Candidate) -> Measured:
        backends = cast(Any, candidate.job)["backends"]
        times = [cast(int, TRACED[b][i]) * US for i, b in sorted(backends.items())]
        operators = tuple(
            OperatorSamples(name=str(i), sources=(i,), backend=backends[i], wall_ns=(t,) * 9)
            for i, t in enumerate(times)
        )
        slow = self.slow if backends[0] == "ruy" and not candidate.profiled else 1.0
        total = (int(sum(times) * slow),) * 9
        runs = tuple(
            Run(
                candidate=candidate.key,
                process=process,
                block=0,
                started_at_s=0.0,
                samples=Samples(wall_ns=total, cpu_ns=total),
                profiled=candidate.profiled,
                operators=operators if candidate.profiled else (),
            )
            for process in range(3)
        )
        return Measured(key=candidate.key, runs=runs, failure=None)


def placed(monkeypatch: pytest.MonkeyPatch, slow: float) -> tuple[InsideResult, Machine]:
    monkeypatch.setattr(type(TARGET.runtime), "segment", lambda self, model, configuration, named: {"named": named})
    machine = Machine(slow)

    def job(segments: Any) -> dict[str, Any]:
        return {"backends": dict(segments[0]["named"])}

    request = SimpleNamespace(effort=Effort())
    session: Any = SimpleNamespace(runner=machine, request=request, job=job, tolerance=lambda c: 1e-3, missing=[])
    placer = InsidePlacer(cast(ModelSession, session), TARGET)
    alive = profile_singles(session, placer.singles())
    return placer.run(alive, "cpu"), machine


@pytest.mark.parametrize("slow", [1.0, 1.1, 1.3, 2.0])
def test_a_gain_that_a_neighbour_hid_from_the_prices_is_found(monkeypatch: pytest.MonkeyPatch, slow: float) -> None:
    """All runs of ruy without a trace were slowed down, so that its small operators seem to take more than cpu's."""
    found, machine = placed(monkeypatch, slow)
    assert "refine" in machine.stages
    (plan,) = (c for c in found.contenders if c.kind == "plan")
    assert list(plan.backends.values()) == ["cpu", "cpu", "ruy", "ruy"]
    assert plan.predicted_s == pytest.approx(314e-6, rel=0.05)
    assert found.why == ""


def test_what_promises_nothing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACED, "ruy", (900, None, 11, 11))
    found, machine = placed(monkeypatch, 1.0)
    assert machine.stages == ["profile", "profile, traced"]
    assert {c.kind for c in found.contenders} == {"single"}
    assert found.why


def test_a_plan_that_was_run_and_gained_nothing_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traces promise 4 %, and the whole run takes longer than cpu alone."""
    run = Machine._run

    def slower(self: Machine, candidate: Candidate) -> Measured:
        found = run(self, candidate)
        if candidate.profiled or len(set(cast(Any, candidate.job)["backends"].values())) == 1:
            return found
        samples = [replace(r.samples, cpu_ns=tuple(2 * t for t in r.samples.cpu_ns)) for r in found.runs if r.samples]
        runs = tuple(replace(r, samples=s) for r, s in zip(found.runs, samples, strict=True))
        return replace(found, runs=runs)

    monkeypatch.setattr(Machine, "_run", slower)
    found, machine = placed(monkeypatch, 1.0)
    assert "refine" in machine.stages
    assert {c.kind for c in found.contenders} == {"single"}

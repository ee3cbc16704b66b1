"""The decision: which contender is chosen, from what was measured of each. Made-up measurements, known answers."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnomon.core.sample import Failure, Run, Samples
from gnomon.errors import MeasurementError, PackageError
from gnomon.jobs.contender import Contender, Kind
from gnomon.jobs.packages import check_destination
from gnomon.jobs.prove import judge_contenders, prove
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Effort


def contender(key: str, kind: Kind = "single") -> Contender:
    return Contender(key=key, label=key, kind=kind, parts=(), candidate=Candidate(key=key, job={}))


def measured(
    key: str, wall_s: float, *, processes: int = 4, luck: float = 0.005, seed: int = 0, **more: Any
) -> Measured:
    """Runs of a contender of that time; each process has its luck, each call a little noise."""
    rng = np.random.default_rng([seed, len(key), *map(ord, key)])
    runs = []
    for process in range(processes):
        level = wall_s * float(np.exp(rng.normal(0, luck)))
        for block in range(3):
            wall = tuple(int(level * f * 1e9) for f in np.exp(rng.normal(0, 0.002, 9)))
            runs.append(
                Run(
                    candidate=key,
                    process=process,
                    block=block,
                    started_at_s=0.0,
                    samples=Samples(wall_ns=wall, cpu_ns=wall),
                )
            )
    return Measured(key=key, runs=tuple(runs), failure=None)


def refused(key: str) -> Measured:
    failure = Failure(stage="check", kind="wrong-output", transient=False, message="outputs differ")
    return Measured(key=key, runs=(), failure=failure)


FIELD = [contender("a"), contender("b"), contender("plan", "plan"), contender("greedy", "greedy")]


def times(plan: float, greedy: float = 1.3, **more: Any) -> dict[str, Measured]:
    return {
        "a": measured("a", 1.0, **more),
        "b": measured("b", 1.4, **more),
        "plan": measured("plan", plan, **more),
        "greedy": measured("greedy", greedy, **more),
    }


@pytest.mark.parametrize("clock", ["wall", "cpu"])
@pytest.mark.parametrize(
    ("plan", "greedy", "chosen", "said"),
    [
        (0.7, 1.3, "plan", r"^Mix: plan is 1\.4\d times as fast as a alone\.$"),
        (0.7, 0.6, "greedy", r"^Mix: greedy is 1\.6\d times"),
        (1.0, 1.3, "a", r"^Do not mix: what the plan gains is inside the noise; use a, 1\.4\d times as fast as b\.$"),
        (1.2, 1.3, "a", r"^Do not mix: the plan is slower; use a, 1\.4\d times as fast as b\.$"),
    ],
)
def test_the_fastest_that_is_surely_faster_is_chosen(
    clock: Any, plan: float, greedy: float, chosen: str, said: str
) -> None:
    verdict = judge_contenders(FIELD, times(plan, greedy), clock)
    assert verdict.best_single.contender.key == "a"
    assert verdict.chosen.contender.key == chosen
    assert re.search(said, verdict.reason), verdict.reason


def test_the_plan_is_preferred_to_a_mix_that_is_not_surely_faster() -> None:
    verdict = judge_contenders(FIELD, times(0.700, 0.699), "wall")
    assert verdict.chosen.contender.key == "plan"


def test_a_gain_inside_the_noise_is_no_gain() -> None:
    verdict = judge_contenders(FIELD, times(0.97, luck=0.08), "wall")
    assert verdict.chosen.contender.key in {"a", "b"}
    assert verdict.chosen.contender.kind == "single"


def test_equal_contenders_are_hardly_ever_mixed() -> None:
    mixed = 0
    for seed in range(200):
        verdict = judge_contenders(FIELD[:3], times(1.0, luck=0.03, seed=seed), "wall")
        mixed += verdict.chosen.contender.kind != "single"
    assert mixed <= 12  # 5 % two-sided, of which half is the wrong side


def test_one_process_cannot_tell_a_gain_from_its_luck() -> None:
    verdict = judge_contenders(FIELD, times(0.7, processes=1), "wall")
    assert verdict.chosen.contender.key == "a"
    assert "one process" in verdict.reason


def test_refused_contenders_are_never_chosen() -> None:
    results = times(0.7, 0.6)
    verdict = judge_contenders(FIELD, {**results, "plan": refused("plan"), "greedy": refused("greedy")}, "wall")
    assert verdict.chosen.contender.key == "a"
    assert "the plan was refused (refused: outputs differ)" in verdict.reason
    verdict = judge_contenders(FIELD, {**results, "a": refused("a")}, "wall")
    assert verdict.best_single.contender.key == "b"
    with pytest.raises(MeasurementError, match="no single backend is left"):
        judge_contenders(FIELD, {**results, "a": refused("a"), "b": refused("b")}, "wall")


def test_runtimes_inside_the_noise_are_told_so() -> None:
    field = {"a": measured("a", 1.0, luck=0.05), "b": measured("b", 1.01, luck=0.05)}
    verdict = judge_contenders(FIELD[:2], field, "wall")
    assert "may be as fast: the difference is inside the noise" in verdict.reason


def test_only_gnomons_own_packages_are_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "plan.json").write_text("{}")
    (folder / "gnomon-agent.pyz").write_bytes(b"")
    with pytest.raises(PackageError):
        check_destination(folder, overwrite=True)
    (folder / "plan.json").write_text('{"format": "gnomon-plan"}')
    check_destination(folder, overwrite=True)
    with pytest.raises(PackageError):
        check_destination(folder, overwrite=False)
    check_destination(tmp_path / "new" / "deep", overwrite=False)


def test_what_the_profile_showed_to_be_hopeless_is_not_run_again() -> None:
    contenders = [contender("a"), contender("b"), contender("c"), contender("p", "plan")]
    profile = {"a": measured("a", 1.0), "b": measured("b", 9.0), "c": measured("c", 2.0)}
    asked: list[str] = []

    def measure(stage: str, candidates: Any, effort: Effort) -> dict[str, Measured]:
        asked.extend(c.key for c in candidates)
        return {c.key: measured(c.key, {"a": 1.5, "c": 3.0, "p": 1.2}[c.key[-1]]) for c in candidates}

    known = lambda key: profile.get(key, Measured(key=key, runs=(), failure=None))  # noqa: E731
    runner = SimpleNamespace(measure=measure, known=known)
    lab: Any = SimpleNamespace(runner=runner, request=SimpleNamespace(effort=Effort()), link=object())
    verdict = prove(lab, contenders, "wall")
    assert asked == ["proof/a", "proof/c", "proof/p"]
    ratio = next(p.against_best for p in verdict.proved if p.contender.key == "b")
    assert ratio is not None
    assert ratio.ratio == pytest.approx(9.0, rel=0.05)  # by the profile, where both were: not 9 / 1.5
    assert verdict.chosen.contender.key == "p"

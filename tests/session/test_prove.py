"""The decision: which contender is chosen, from what was measured of each. Made-up measurements, known answers."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cli.placement_kit import NO_JOB

from gnomon.core.sample import Failure, Run, Samples
from gnomon.errors import MeasurementError
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import Accelerator, Configuration, RunSettings
from gnomon.session.contender import Clocks, Contender, Kind, fastest_of, level
from gnomon.session.prove import judge_contenders, prove


def contender(key: str, kind: Kind = "single") -> Contender:
    return Contender(label=key, kind=kind, parts=(), candidate=Candidate(key=key, job=NO_JOB))


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


WALL, CPU = Clocks(serial="wall"), Clocks(serial="cpu")

FIELD = [contender("a"), contender("b"), contender("plan", "plan"), contender("greedy", "greedy")]


def times(plan: float, greedy: float = 1.3, **more: Any) -> dict[str, Measured]:
    return {
        "a": measured("a", 1.0, **more),
        "b": measured("b", 1.4, **more),
        "plan": measured("plan", plan, **more),
        "greedy": measured("greedy", greedy, **more),
    }


@pytest.mark.parametrize(
    ("plan", "greedy", "chosen", "said"),
    [
        (0.7, 1.3, "plan", r"^Mix: plan is 1\.4\d times as fast as a alone \[1\.[34]\d, 1\.[45]\d\]\.$"),
        (0.7, 0.6, "greedy", r"^Mix: greedy is 1\.6\d times"),
        (
            1.0,
            1.3,
            "a",
            r"^Use a: 1\.4\d times as fast as b \[1\.3\d, 1\.4\d\]; the gain of a mix is within the noise\.$",
        ),
        (1.2, 1.3, "a", r"^Use a: 1\.4\d times as fast as b \[1\.3\d, 1\.4\d\]; a mix is slower\.$"),
    ],
)
def test_the_fastest_that_is_surely_faster_is_chosen(plan: float, greedy: float, chosen: str, said: str) -> None:
    verdict = judge_contenders(FIELD, times(plan, greedy), CPU)
    assert verdict.best_single.contender.key == "a"
    assert verdict.chosen.contender.key == chosen
    assert re.search(said, verdict.reason), verdict.reason


def test_the_plan_is_preferred_to_a_mix_that_is_not_surely_faster() -> None:
    verdict = judge_contenders(FIELD, times(0.700, 0.699), WALL)
    assert verdict.chosen.contender.key == "plan"


def test_a_gain_inside_the_noise_is_no_gain() -> None:
    verdict = judge_contenders(FIELD, times(0.97, luck=0.08), WALL)
    assert verdict.chosen.contender.key in {"a", "b"}
    assert verdict.chosen.contender.kind == "single"


def test_one_process_cannot_tell_a_gain_from_its_luck() -> None:
    verdict = judge_contenders(FIELD, times(0.7, processes=1), WALL)
    assert verdict.chosen.contender.key == "a"
    assert "one process" in verdict.reason


def test_what_a_program_that_plays_a_device_gains_is_no_claim() -> None:
    def on(one: Contender, *, software: bool) -> Contender:
        device = Accelerator(backend="vulkan", name="Card", software=software)
        configuration = Configuration(
            runtime="r", name="r", backends=("cpu", "vulkan"), options={}, accelerators=(device,)
        )
        parts: Any = (SimpleNamespace(configuration=configuration, backends={0: "cpu", 1: "vulkan"}),)
        return replace(one, parts=parts)

    field = [*FIELD[:2], on(FIELD[2], software=True), FIELD[3]]
    verdict = judge_contenders(field, times(0.8), WALL)
    assert verdict.chosen.contender.key == "plan"
    assert verdict.chosen.against_best is None
    why = "because an accelerator here is a program on the processor"
    assert verdict.reason == f"Mix: plan; no ratio is reported, {why}."
    real = judge_contenders([*FIELD[:2], on(FIELD[2], software=False), FIELD[3]], times(0.8), WALL)
    assert "times as fast as a alone" in real.reason
    # What is slower on a program is measured, and named as the slower of nobody.
    slow = judge_contenders([on(FIELD[1], software=True), FIELD[0]], times(1.0), WALL)
    assert (slow.chosen.contender.key, slow.reason) == ("a", "Use a.")


def test_what_is_barred_is_not_chosen_and_a_mix_is_where_all_single_ones_are() -> None:
    results = times(1.5, greedy=1.6)
    assert judge_contenders(FIELD, results, WALL).chosen.contender.key == "a"
    one = judge_contenders(FIELD, results, WALL, barred=("a",))
    assert one.chosen.contender.key == one.best_single.contender.key == "b"
    every = judge_contenders(FIELD, results, WALL, barred=("a", "b"))
    assert (every.chosen.contender.key, every.best_single.contender.key) == ("plan", "a")
    assert "a breaks a limit" in every.reason
    failed = {**results, "plan": refused("plan"), "greedy": refused("greedy")}
    assert judge_contenders(FIELD, failed, WALL, barred=("a", "b")).chosen.contender.key == "a", "for `prove` to refuse"


def test_refused_contenders_are_never_chosen() -> None:
    results = times(0.7, 0.6)
    verdict = judge_contenders(FIELD, {**results, "plan": refused("plan"), "greedy": refused("greedy")}, WALL)
    assert verdict.chosen.contender.key == "a"
    assert "the plan, a mix, was refused" in verdict.reason and "outputs differ" not in verdict.reason
    verdict = judge_contenders(FIELD, {**results, "a": refused("a")}, WALL)
    assert verdict.best_single.contender.key == "b"
    with pytest.raises(MeasurementError, match="no single backend survived"):
        judge_contenders(FIELD, {**results, "a": refused("a"), "b": refused("b")}, WALL)


def test_runtimes_inside_the_noise_are_told_so() -> None:
    field = {"a": measured("a", 1.0, luck=0.05), "b": measured("b", 1.01, luck=0.05)}
    verdict = judge_contenders(FIELD[:2], field, WALL)
    assert re.search(r"^Use [ab]: [ab] may be as fast \(ratio 1\.\d\d \[0\.\d\d\d, 1\.\d\d\]\)\.$", verdict.reason)
    assert verdict.tied == (("b",) if verdict.chosen.contender.key == "a" else ("a",))


def test_without_a_plan_a_mix_is_denied_only_if_one_was_thought_of() -> None:
    field = {"a": measured("a", 1.0), "b": measured("b", 1.4)}
    told = r"^Use a: 1\.4\d times as fast as b \[1\.3\d, 1\.4\d\]"
    assert re.search(told + r"\.$", judge_contenders(FIELD[:2], field, WALL).reason)
    priced = judge_contenders(FIELD[:2], field, WALL, priced=True)
    assert re.search(told + r"; the profile predicts no gain from a mix\.$", priced.reason)
    assert judge_contenders(FIELD[:1], field, WALL).reason == "Use a."


def with_memory(found: Measured, mebibytes: int) -> Measured:
    facts = {"peak_rss_bytes": mebibytes << 20}
    return replace(found, runs=tuple(replace(run, facts=facts) for run in found.runs))


@pytest.mark.parametrize(
    ("memory", "converted", "chosen", "said"),
    [
        ((300, 200), (), "b", "; chosen for less memory."),
        ((200, 300), (), "a", "; chosen for less memory."),
        ((202, 200), (), "a", ")."),  # 1 % is not a difference
        ((200, 300), ("a",), "b", "; chosen for no conversion."),
        ((300, 200), ("a",), "b", "; chosen for no conversion and less memory."),
        ((300, 200), ("a", "b"), "b", "; chosen for less memory."),
        ((200, 300), ("b",), "a", "; chosen for no conversion and less memory."),
    ],
)
def test_a_tie_goes_to_no_conversion_and_less_memory(
    memory: tuple[int, int], converted: tuple[str, ...], chosen: str, said: str
) -> None:
    """`a` is faster by 0.4 %, which is a tie."""
    field = {"a": with_memory(measured("a", 1.0), memory[0]), "b": with_memory(measured("b", 1.004), memory[1])}
    verdict = judge_contenders(FIELD[:2], field, WALL, converted=converted)
    assert verdict.chosen is verdict.best_single
    assert verdict.chosen.contender.key == chosen
    assert "may be as fast" in verdict.reason
    assert verdict.reason.endswith(said), verdict.reason


def test_a_tie_goes_to_what_has_no_environment_of_its_own() -> None:
    own = SimpleNamespace(accelerators=(), usual=False, serial=True, options={}, precision="", tolerance=0.0)
    own.clean, own.checked = False, True
    parts: Any = (SimpleNamespace(configuration=own, backends={}),)
    set_ = replace(FIELD[0], parts=parts)
    field = {"a": with_memory(measured("a", 1.0), 200), "b": with_memory(measured("b", 1.004), 201)}
    assert judge_contenders([set_, FIELD[1]], field, WALL).chosen.contender.key == "b"
    assert judge_contenders(FIELD[:2], field, WALL).chosen.contender.key == "a"


def test_what_is_a_mix_itself_is_told_of_another() -> None:
    parts: Any = (
        SimpleNamespace(
            configuration=SimpleNamespace(
                accelerators=(),
                usual=False,
                serial=True,
                options={},
                precision="",
                tolerance=0.0,
                backends=("x", "y"),
                clean=True,
                checked=True,
            ),
            backends={0: "x", 1: "y"},
        ),
    )
    verdict = judge_contenders([replace(FIELD[0], parts=parts)], {"a": measured("a", 1.0)}, WALL, priced=True)
    assert verdict.reason == "Use a: the profile predicts no gain from another mix."


def test_who_is_faster_by_more_than_a_tie_wins_whatever_memory_it_takes() -> None:
    field = {"a": with_memory(measured("a", 1.0), 900), "b": with_memory(measured("b", 1.1), 90)}
    assert judge_contenders(FIELD[:2], field, WALL, converted=("a",)).chosen.contender.key == "a"
    # Inside the noise, but behind by too much to give it away: few processes tell hardly anything.
    field = {"a": with_memory(measured("a", 1.0, luck=0.1), 900), "b": with_memory(measured("b", 1.2, luck=0.1), 90)}
    verdict = judge_contenders(FIELD[:2], field, WALL)
    assert verdict.tied == ("b",)
    assert verdict.chosen.contender.key == "a"


def test_a_mix_must_beat_the_fastest_not_the_one_of_least_memory() -> None:
    """The plan is surely faster than `b`, which takes least memory, and not than `a`: neither it nor `b` is chosen."""
    field = {
        "a": with_memory(measured("a", 1.0, processes=6), 900),
        "b": with_memory(measured("b", 1.012, processes=6), 90),
        "plan": with_memory(measured("plan", 0.992, processes=6), 900),
    }
    verdict = judge_contenders(FIELD[:3], field, WALL)
    assert verdict.chosen.contender.key == "a"
    assert "within the noise" in verdict.reason


def by_cpu(found: Measured, factor: float, *, waits: int = 0) -> Measured:
    """The same with this much CPU time over wall time."""
    runs = [
        replace(
            run,
            samples=replace(run.samples, cpu_ns=tuple(int(factor * w) for w in run.samples.wall_ns)),
            facts={"waits": waits},
        )
        for run in found.runs
        if run.samples is not None
    ]
    return replace(found, runs=tuple(runs))


def test_where_the_clocks_name_different_winners_it_is_said() -> None:
    """As a runtime that is bound to one core beside a neighbour: 48 us of CPU time, 169 us by the wall."""
    field = {"a": by_cpu(measured("a", 169e-6), 48 / 169), "b": by_cpu(measured("b", 63e-6), 62 / 63)}
    verdict = judge_contenders(FIELD[:2], field, CPU)
    assert verdict.chosen.contender.key == "a"
    (warning,) = verdict.warnings
    assert warning.kind == "clocks-disagree"
    assert warning.message.startswith("wall time names another winner, b, which takes 0.37 times as long as a [0.3")
    assert warning.hint
    agreeing = {"a": by_cpu(measured("a", 48e-6), 1.0), "b": by_cpu(measured("b", 62e-6), 1.0)}
    assert judge_contenders(FIELD[:2], agreeing, CPU).warnings == ()


def test_cpu_time_that_does_not_tell_contradicts_nobody() -> None:
    field = {"a": by_cpu(measured("a", 1.0), 1.0), "b": by_cpu(measured("b", 1.4), 0.2, waits=100)}
    assert judge_contenders(FIELD[:2], field, WALL).warnings == ()
    field["b"] = by_cpu(measured("b", 1.4), 0.5)  # it is only interrupted
    (warning,) = judge_contenders(FIELD[:2], field, WALL).warnings
    assert warning.message.startswith("CPU time names another winner, b, which takes 0.7")


def test_where_the_median_says_something_else_than_the_undisturbed_calls_it_is_said() -> None:
    """The plan takes 0.98 times as long as `a` by the fastest fifth of calls, 0.69 times by the median."""

    def slowed(found: Measured, factor: float) -> Measured:
        def wall(values: tuple[int, ...]) -> tuple[int, ...]:
            quick = len(values) // 3
            return tuple(v if k < quick else int(factor * v) for k, v in enumerate(values))

        runs = [
            replace(run, samples=replace(run.samples, wall_ns=wall(run.samples.wall_ns)))
            for run in found.runs
            if run.samples is not None
        ]
        return replace(found, runs=tuple(runs))

    field = {
        "a": by_cpu(slowed(measured("a", 1.0, luck=0.02), 1.42), 0.0),
        "plan": by_cpu(measured("plan", 0.98, luck=0.02), 0.0),
    }
    verdict = judge_contenders([FIELD[0], FIELD[2]], field, WALL)
    (warning,) = verdict.warnings
    assert warning.kind == "medians-disagree"
    assert re.search(
        r"^plan takes 0\.9\d times as long as a by the fastest 20 % .* but 0\.[67]\d times", warning.message
    )
    field["a"] = by_cpu(measured("a", 1.0, luck=0.02), 0.0)
    assert judge_contenders([FIELD[0], FIELD[2]], field, WALL).warnings == ()


def test_the_fastest_is_never_one_that_another_surely_beats() -> None:
    """Levels are of each candidate alone; where the interleaved comparison is sure of the contrary, that counts."""
    a, b = measured("a", 1.0, luck=0.0), measured("b", 1.0, luck=0.0)
    drift = (1.0, 1.0, 3.0, 3.0)  # of a process, for both; `a` is 5 % slower wherever both were seen

    def drifted(found: Measured, factor: float, kept: tuple[int, ...]) -> Measured:
        runs = [
            replace(
                run, samples=Samples(wall_ns=tuple(int(factor * drift[run.process] * w) for w in samples), cpu_ns=())
            )
            for run in found.runs
            if run.process in kept and run.samples is not None and (samples := run.samples.wall_ns)
        ]
        return replace(found, runs=tuple(runs))

    field = {"a": drifted(a, 1.05, (0, 1, 2)), "b": drifted(b, 1.0, (0, 1, 2, 3))}
    assert level(field["a"], "wall") < level(field["b"], "wall")
    assert fastest_of(field, "wall") == "b"


def run_by(key: str, *, precision: str = "float32", **options: Any) -> Contender:
    """A contender of one configuration with these options."""
    tolerance = 1e-3 if precision == "float32" else 5e-2
    made = Configuration(
        runtime="r", name=key, backends=("cpu",), options=options, precision=precision, tolerance=tolerance
    )
    parts: Any = (SimpleNamespace(configuration=made, backends={}),)
    return replace(contender(key), parts=parts)


ONE, TWO, DEFAULT = run_by("one", threads=1), run_by("two", threads=2), run_by("default", usual=True)
THREADS = [ONE, run_by("other", threads=1), TWO, DEFAULT]


def of_threads(one: float, other: float, two: float, default: float, **more: Any) -> dict[str, Measured]:
    """The same time by both clocks where one thread works; else twice as much CPU time as wall time."""
    return {
        "one": by_cpu(measured("one", one, **more), 1.0),
        "other": by_cpu(measured("other", other, **more), 1.0),
        "two": by_cpu(measured("two", two, **more), 2.0),
        "default": by_cpu(measured("default", default, **more), 2.0, waits=100),
    }


def test_several_threads_are_chosen_where_they_are_surely_faster_by_wall_time() -> None:
    verdict = judge_contenders(THREADS, of_threads(1.0, 1.3, 0.7, 0.9), CPU)
    assert verdict.chosen.contender is TWO
    assert (verdict.clock, verdict.undecided) == ("wall", "")
    assert verdict.default is not None
    assert verdict.default.label == "default"
    assert verdict.default.gain is not None
    assert verdict.default.gain.ratio == pytest.approx(0.9 / 0.7, rel=0.02)
    found = r"^Use two: 1\.\d\d times as fast as the best default, default \[1\.2\d, 1\.[23]\d\]\.$"
    assert re.search(found, verdict.reason), verdict.reason


def test_a_tie_of_one_thread_and_several_goes_to_one() -> None:
    verdict = judge_contenders(THREADS, of_threads(1.0, 1.3, 1.0, 1.5, luck=0.03), CPU)
    assert verdict.chosen.contender is ONE
    assert verdict.chosen_for == ("one thread",)
    assert "two may be as fast" in verdict.reason
    assert verdict.reason.endswith("; chosen for one thread.")


def test_on_a_busy_machine_it_is_undecided_whether_several_threads_are_faster() -> None:
    busy = "other processes used 40 % of the cores"
    verdict = judge_contenders(THREADS, of_threads(1.0, 1.3, 1.2, 1.5), CPU, busy=busy)
    assert verdict.chosen.contender is ONE
    assert verdict.undecided == f"whether two is faster, as {busy}"
    assert verdict.reason.startswith("With one thread, use one: 1.")
    assert verdict.reason.endswith("; it is undecided whether two is faster.")
    assert [w.message for w in verdict.warnings] == [f"it is undecided whether two is faster, as {busy}"]
    assert "default" not in verdict.reason
    # What is surely faster although others were busy is no less so without them.
    assert not judge_contenders(THREADS, of_threads(1.0, 1.3, 0.7, 1.5), CPU, busy=busy).undecided


def test_a_wide_tie_with_the_default_is_not_called_as_fast() -> None:
    verdict = judge_contenders(THREADS, of_threads(1.0, 1.3, 0.7, 0.75, luck=0.1), CPU)
    gain = verdict.default.gain if verdict.default else None
    assert gain is not None and gain.verdict == "tie"
    assert f"{gain.ratio:.2f} times as fast as the best default, default [" in verdict.reason


def test_what_is_surely_faster_is_chosen_beside_a_faster_one_that_is_too_noisy_to_compare() -> None:
    field = of_threads(1.0, 1.3, 0.7, 0.8)
    field["two"] = by_cpu(measured("two", 0.7, luck=2.0), 2.0)
    verdict = judge_contenders(THREADS, field, CPU, busy="other processes used 40 % of the cores")
    assert (verdict.chosen.contender.label, verdict.undecided) == ("default", "")


def test_one_thread_is_compared_with_one_by_cpu_time_whatever_the_wall_says() -> None:
    field = {
        **of_threads(1.0, 1.3, 2.6, 2.7),
        "one": by_cpu(measured("one", 2.0), 0.5),
        "other": by_cpu(measured("other", 1.3), 1.0),
    }
    verdict = judge_contenders(THREADS, field, CPU)
    assert verdict.chosen.contender is ONE
    beaten = next(p.against_best for p in verdict.proved if p.contender.key == "other")
    assert beaten is not None
    assert beaten.ratio == pytest.approx(1.3, rel=0.02)
    assert [w.kind for w in verdict.warnings] == ["clocks-disagree"]


def test_a_default_in_lower_precision_is_shown_and_never_chosen() -> None:
    lower = run_by("half", precision="bfloat16", usual=True)
    field = {**of_threads(1.0, 1.3, 0.9, 1.1), "half": by_cpu(measured("half", 0.3), 2.0)}
    verdict = judge_contenders([*THREADS, lower], field, CPU)
    assert verdict.chosen.contender is TWO
    assert verdict.default is not None
    assert verdict.default.label == "default"
    assert "half" not in verdict.reason
    shown = next(p for p in verdict.proved if p.contender is lower)
    assert shown.against_best is not None
    assert shown.against_best.verdict == "faster"
    asked = judge_contenders([*THREADS, lower], field, CPU, precisions=("float32", "bfloat16"))
    assert asked.chosen.contender is lower
    assert asked.reason.startswith("Use half, the runtime's default")
    assert asked.default is not None
    assert (asked.default.label, asked.default.gain) == ("half", None)


def test_what_the_profile_showed_to_be_hopeless_is_not_run_again() -> None:
    priced = [replace(contender(key), predicted_s=1.0) for key in "abc"]
    contenders = [*priced, contender("d"), contender("p", "plan")]
    # Nothing but its own time speaks for `d`, which was not thought of in a mix.
    profile = {key: measured(key, time_s) for key, time_s in {"a": 1.0, "b": 9.0, "c": 2.0, "d": 1.5}.items()}
    asked: list[str] = []

    def measure(stage: str, candidates: Any, effort: Effort) -> dict[str, Measured]:
        asked.extend(c.key for c in candidates)
        return {c.key: measured(c.key, {"a": 1.5, "c": 3.0, "p": 1.2}[c.key[-1]]) for c in candidates}

    known = lambda key: profile.get(key, Measured(key=key, runs=(), failure=None))  # noqa: E731
    runner = SimpleNamespace(measure=measure, known=known, environments=[])
    request = SimpleNamespace(effort=Effort(), settings=RunSettings())
    session: Any = SimpleNamespace(runner=runner, request=request, link=object(), targets=(), doubts=[])
    verdict = prove(session, contenders, WALL)
    assert asked == ["proof/a", "proof/c", "proof/p"]
    ratio = next(p.against_best for p in verdict.proved if p.contender.key == "b")
    assert ratio is not None
    assert ratio.ratio == pytest.approx(9.0, rel=0.05)  # by the profile, where both were: not 9 / 1.5
    assert verdict.chosen.contender.key == "p"

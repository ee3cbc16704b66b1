"""Documents of placements and profiles made by hand: what `place` and `profile` answer, without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.core.sample import Failure, OperatorSamples, Run, Samples
from gnomon.jobs.place.decide import column_part, contender_part, decision_part
from gnomon.jobs.place.document import (
    PlaceDocument,
    PlacedOperator,
    ProfileDocument,
    ProfiledOperator,
    SolutionPart,
)
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Caveat
from gnomon.models.model import Model
from gnomon.report.conditions import ConditionsPart, FedInput
from gnomon.runtimes.base import Configuration, PlacedModel, Support
from gnomon.runtimes.onert import Onert
from gnomon.session.contender import Clocks, Contender, Kind, Part, Proved, level, versus
from gnomon.session.document import (
    DifferencePart,
    environment_parts,
    graph_part,
    kernel_part,
    labels_of,
    model_part,
)
from gnomon.session.kernels import Breakdown, Kernel, breakdown, divided
from gnomon.session.package import run_line
from gnomon.session.prove import Verdict, Verified
from gnomon.session.targets import Missing, Target

NO_JOB: Any = {}

HOSTILE = "conv\x1b[31m\u202e\n1"
"""A name that would colour a terminal, turn its text around and break a line."""

OPERATORS = (("conv0", "CONV_2D"), ("pool", "MAX_POOL_2D"), (HOSTILE, "CONV_2D"), ("fc", "FULLY_CONNECTED"))
PRICES_S = {"cpu": (100e-6, 20e-6, 90e-6, 5e-6), "ruy": (300e-6, None, 30e-6, 4e-6)}


def graph(names: tuple[tuple[str, str], ...] = OPERATORS) -> Graph:
    """A chain of operators."""
    tensors = [Tensor(name=f"t{k}", shape=(1, 8), dtype="float32", size_bytes=32) for k in range(len(names) + 1)]
    operators = [
        Operator(index=k, name=name, type=kind, inputs=(k,), outputs=(k + 1,), macs=1000 * k)
        for k, (name, kind) in enumerate(names)
    ]
    return Graph(
        name="hand",
        format="circle",
        digest="00" * 32,
        tensors=tuple(tensors),
        operators=tuple(operators),
        inputs=(0,),
        outputs=(len(names),),
    )


MODEL = graph()
TARGET = Target(
    runtime=Onert(),
    configuration=Configuration(runtime="onert", name="onert", backends=("cpu", "ruy"), options={}),
    support=Support(operators={"cpu": frozenset(range(4)), "ruy": frozenset((0, 2, 3))}),
    placed=PlacedModel(graph=MODEL, path="/hand.circle", inputs=("t0",), outputs=("t4",)),
    model=Model(path=Path("hand.circle"), graph=MODEL, kind="circle", package=None, size_bytes=1000),
)


CONDITIONS = ConditionsPart(
    threads=(1,),
    defaults=False,
    precisions=("float32",),
    inputs=(FedInput(name="t0", shape=(1, 8), dtype="float32", fed="standard normal, seed 0", sha256=None),),
    machine="x86_64",
    cores=2,
    date="2026-01-02",
)


def measured(key: str, time_us: int, *, failure: Failure | None = None) -> Measured:
    """Three processes of four blocks around a time, or a failure."""
    facts = {"peak_rss_bytes": 40 << 20, "difference": {"absolute": 1e-7, "relative": 2e-7}}
    facts |= {"load_ns": 10_000_000, "first_call_ns": 1_000_000}
    if failure is not None:
        run = Run(candidate=key, process=0, block=0, started_at_s=0.0, failure=failure)
        return Measured(key=key, runs=(run,), failure=failure)
    runs = []
    for process in range(3):
        for block in range(4):
            wall = tuple(time_us * 1000 + 500 * process + 100 * block + 10 * k for k in range(5))
            samples = Samples(wall_ns=wall, cpu_ns=tuple(t - 200 for t in wall))
            runs.append(
                Run(candidate=key, process=process, block=block, started_at_s=0.0, samples=samples, facts=facts)
            )
    return Measured(key=key, runs=tuple(runs), failure=None)


def traced() -> Measured:
    """Two processes with the runtime's profiler on: a kernel of three operators, and one of the last."""
    runs = []
    for process in range(2):
        rows = (
            OperatorSamples(name="fused", sources=(0, 1, 2), backend="cpu", wall_ns=(190_000 + process, 195_000)),
            OperatorSamples(name="fc", sources=(3,), backend="cpu", wall_ns=(5_000, 5_100)),
        )
        samples = Samples(wall_ns=(230_000, 231_000), cpu_ns=(229_000, 230_000))
        run = Run(candidate="cpu/traced", process=process, block=0, started_at_s=0.0, samples=samples, profiled=True)
        runs.append(replace(run, operators=rows))
    return Measured(key="cpu/traced", runs=tuple(runs), failure=None)


def environment(*candidates: str) -> Any:
    """What a session tells of the device before and after."""
    before = {
        "monotonic_s": 10.0,
        "pid": 7,
        "cores": 2,
        "load_average_1m": 0.5,
        "cpu_busy_s": 100.0,
        "cpu_total_s": 400.0,
        "cpu_steal_s": 1.0,
        "own_cpu_s": 1.0,
        "memory_available_bytes": 1 << 30,
        "frequencies_khz": {"cpu0": [1_800_000, 600_000, 2_000_000, 2_000_000], "cpu1": [1_700_000, None, None, None]},
        "governors": {"cpu0": "performance", "cpu1": "performance"},
        "temperatures_c": {"thermal_zone0:cpu": 41.5},
        "throttle_count": 3,
    }
    after = {**before, "monotonic_s": 12.5, "cpu_busy_s": 104.0, "cpu_total_s": 405.0, "own_cpu_s": 4.0}
    return {"process": 0, "candidates": list(candidates), "at_s": 1.7e9, "before": before, "after": after}


def contender(kind: Kind, label: str, assignment: tuple[str, ...], predicted_s: float | None) -> Contender:
    """An assignment inside onert."""
    backends = dict(enumerate(assignment))
    part = Part(target=TARGET, operators=tuple(backends), backends=backends)
    return Contender(
        label=label,
        kind=kind,
        parts=(part,),
        candidate=Candidate(key=label, job=NO_JOB),
        predicted_s=predicted_s,
    )


def proved(found: Contender, runs: Measured, best: Measured, clock: Clock) -> Proved:
    """A contender and its runs."""
    against = None if runs is best or runs.failure is not None else versus(runs, best, clock)
    return Proved(contender=found, measured=runs, against_best=against)


def operators(planned: Mapping[int, str], graph: Graph = MODEL) -> tuple[PlacedOperator, ...]:
    """The operators of the model, each run where it was planned."""
    return tuple(
        PlacedOperator(
            index=op.index,
            name=op.name,
            type=op.type,
            macs=op.macs,
            planned=planned[op.index],
            ran_on=planned[op.index],
            times_s={backend: PRICES_S[backend][op.index] for backend in PRICES_S},
            within={},
        )
        for op in graph.operators
    )


def document(
    verdict: Verdict,
    rows: tuple[PlacedOperator, ...],
    times: Mapping[str, Breakdown],
    traces: Mapping[str, Measured] | None = None,
    **more: Any,
) -> PlaceDocument:
    """The document of a verdict over the operators of `rows`, with `more` of its fields as they are given."""
    fields: dict[str, Any] = {
        "model": model_part(Path("models/hand\x07.circle"), MODEL),
        "graph": graph_part(MODEL),
        "device": "local",
        "fingerprint": {"machine": "x86_64", "cores": 2},
        "versions": {"onert": "0.1.0"},
        "clock": verdict.clock,
        "decision": decision_part(verdict),
        "contenders": tuple(
            contender_part(
                one,
                verdict.clocks.of(one.contender),
                rows,
                times.get(one.contender.label),
                (traces or {}).get(one.contender.label),
            )
            for one in verdict.proved
        ),
        "operators": rows,
        "verified": Verified(ok=True, skipped=False, moved=(), difference=OFF, failure=None),
        "solutions": {"onert": SOLUTION},
        "unattributed_s": {label: parts.unattributed_s for label, parts in times.items()},
        "ideal_s": None,
        "why_not_mixed": None,
        "sensitivity": 0.5,
        "reference": "onert 0.1.0 on the model's file, unmodified",
        "reference_checked_by": "litert 2.3.0",
        "missing": (Missing(name="onert:train", reason="crashed with SIGSEGV", hint="Leave it out."),),
        "doubts": (Caveat(kind="busy", message="others used 30% of the machine", hint="Stop them."),),
        "environments": environment_parts(
            (environment("cpu", "ruy", "plan"),),
            labels_of({one.contender.label: one.measured for one in verdict.proved}),
        ),
        "package": "out.gnomon",
        "run": run_line({"tensors": {}, "feeds": {}, "outputs": [], "seed": 0, "segments": [], "environment": {}}),
        "pictures": (),
        "campaign": "0123456789abcdef",
        "record": "record.sqlite",
        "resumed": True,
        "seconds": 75.0,
        "waited_s": 0.0,
        "threads": CONDITIONS.threads,
        "conditions": CONDITIONS,
    }
    return PlaceDocument(format="gnomon-place", version=2, **{**fields, **more})


def placement(*, mixed: bool = True, clock: Clock = "cpu") -> PlaceDocument:
    """A plan that is faster than the best single backend, one contender that crashed, one that was left out."""
    crash = Failure(stage="run", kind="crash", transient=False, message="ended by SIGSEGV", log_tail="at \x1b[2Jkernel")
    cpu, ruy, plan = measured("cpu", 220), measured("ruy", 360), measured("plan", 160)
    failed = measured("greedy", 0, failure=crash)
    ruy_of, plan_of = ("ruy", "cpu", "ruy", "ruy"), ("cpu", "cpu", "ruy", "ruy")
    proven = (
        proved(contender("single", "onert:cpu", ("cpu",) * 4, 215e-6), cpu, cpu, clock),
        proved(contender("single", "onert:ruy (+cpu for 1 of 4)", ruy_of, 354e-6), ruy, cpu, clock),
        proved(contender("plan", "onert: plan", plan_of, 154e-6), plan, cpu, clock),
        proved(contender("greedy", "onert: greedy", ("ruy",) * 4, None), failed, cpu, clock),
    )
    chosen = proven[2] if mixed else proven[0]
    verdict = Verdict(
        proved=proven,
        best_single=proven[0],
        chosen=chosen,
        reason="Mix: the plan is faster." if mixed else "Use onert:cpu: it alone is the fastest.",
        clock=clock,
        clocks=Clocks(serial=clock),
    )
    times = {
        one.contender.label: divided(
            {i: PRICES_S[backend][i] or 0.0 for i, backend in one.contender.backends.items()},
            (),
            level(one.measured, clock),
        )
        for one in proven
        if one.ok
    }
    return document(verdict, operators(chosen.contender.backends), times, {"onert:cpu": traced()})


OFF = DifferencePart(absolute=1e-7, relative=2e-7)
SOLUTION = SolutionPart(method="elimination", optimal=True, value_s=154e-6, bound_s=154e-6, width=0, code="12")
"""The certificate of the plan."""


def profiled() -> ProfileDocument:
    """Two columns, one of them with a kernel that the runtime added itself."""
    kernels = (
        Kernel(name="fused", operators=(0, 1, 2), backend="cpu", time_s=190e-6),
        Kernel(name="reorder", operators=(), backend="cpu", time_s=10e-6),
        Kernel(name="fc", operators=(3,), backend="cpu", time_s=5e-6),
    )
    fast, slow = measured("cpu", 220), measured("ruy", 360)
    times = breakdown(MODEL, kernels, 220e-6)
    none = Measured(key="ruy/traced", runs=(), failure=None)
    columns = [
        replace(
            column_part(contender("single", label, (backend,) * 4, None), runs, traces, times, fast, "cpu"),
            kernels=tuple(map(kernel_part, kernels)),
            peak_rss_bytes=None,
            difference=DifferencePart(absolute=0.0, relative=0.0),
            settings={},
        )
        for label, backend, runs, traces in (("onert:ruy", "ruy", slow, none), ("onert:cpu", "cpu", fast, traced()))
    ]
    labels = [column.label for column in columns]
    return ProfileDocument(
        format="gnomon-profile",
        version=2,
        model=model_part(Path("hand.circle"), MODEL),
        graph=graph_part(MODEL),
        device="local",
        fingerprint={"machine": "x86_64", "cores": 2},
        versions={"onert": "0.1.0"},
        threads=CONDITIONS.threads,
        conditions=CONDITIONS,
        clock="cpu",
        fastest="onert:cpu",
        tied=(),
        columns=tuple(columns),
        operators=tuple(
            ProfiledOperator(
                index=op.index,
                name=op.name,
                type=op.type,
                macs=op.macs,
                times_s={label: times.times_s.get(op.index) for label in labels},
                within={label: times.within[op.index] for label in labels if op.index in times.within},
            )
            for op in MODEL.operators
        ),
        missing=(),
        doubts=(),
        environments=environment_parts((environment("cpu", "ruy"),), labels_of({"onert:ruy": slow, "onert:cpu": fast})),
        campaign="0123456789abcdef",
        record="record.sqlite",
        resumed=False,
        seconds=3.0,
        waited_s=0.0,
        turns=(),
    )


def keys_of(value: Any, prefix: str = "") -> set[str]:
    """The paths of all keys of a JSON value: "contenders[].measured.median_s"."""
    if isinstance(value, dict):
        found: set[str] = set()
        for key, item in value.items():
            path = f"{prefix}.{key}" if prefix else key
            found |= {path} | keys_of(item, path)
        return found
    if isinstance(value, list):
        return set().union(*(keys_of(item, f"{prefix}[]") for item in value)) if value else set()
    return set()

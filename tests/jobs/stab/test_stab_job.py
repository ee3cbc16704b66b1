"""The job `stab`: from traces alone, what it refuses, what it writes, and once for real."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.formats.onert.tracing_kit import onert_trace, skip_without_onert
from tests.jobs.stab.stab_kit import ON_RUY, trace_for, us

from gnomon.core.pricing.stab import published_decision
from gnomon.core.sample import OperatorSamples, Origin, Run, Samples, Spread, Trace
from gnomon.errors import ModelError, PackageError, ProblemError
from gnomon.formats.onert.trace import read_trace
from gnomon.jobs.stab.job import StabRequest, stab
from gnomon.jobs.stab.traces import same_operation, trace_from_runs, write_traces
from gnomon.measure.effort import Effort
from gnomon.models.load import load
from gnomon.models.model import Model
from gnomon.models.nnpackage import read_nnpackage, write_nnpackage
from gnomon.runtimes.base import RunSettings
from gnomon.session.package import Schedule, write_scheduled
from gnomon.session.request import ModelRequest

HELD = {"EXECUTOR": "Linear", "OP_BACKEND_Conv2D": "ruy"}


@pytest.fixture
def package(zoo_model: Callable[[str], Path], tmp_path: Path) -> Model:
    """mix.circle as a package whose config holds settings of its own."""
    write_nnpackage(load(zoo_model("mix.circle")), tmp_path / "net", HELD)
    return load(tmp_path / "net")


def keep(model: Model, folder: Path, **changed: Trace) -> Path:
    """Write traces of cpu and ruy, or other ones in their place."""
    traces = {"cpu": trace_for(model, "cpu"), "ruy": trace_for(model, "ruy", whole=1500), **changed}
    write_traces(traces, folder, model.path.name, 1)
    return folder


def asked(model: Model, tmp_path: Path, **more: bool) -> StabRequest:
    return StabRequest(
        measuring=ModelRequest(model=model.path),
        traces=tmp_path / "traces",
        out=tmp_path / "sched" / "net",
        profile=more.pop("profile", False),
        **more,
    )


def launched(package: str) -> dict[str, str]:
    """The environment that the package's launcher sets."""
    script = ". ./gnomon/environment.sh && env -0"
    done = subprocess.run(["sh", "-c", script], cwd=package, capture_output=True, check=True, timeout=30)
    return dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)


def test_traces_alone_give_the_exact_placement_beside_what_the_config_held(package: Model, tmp_path: Path) -> None:
    keep(package, tmp_path / "traces")
    steps: list[str] = []
    found = stab(asked(package, tmp_path), step=steps.append)
    wanted = {op.index: "ruy" if op.index >= 3 and op.type != "RESHAPE" else "cpu" for op in package.graph.operators}
    assert found.placement == wanted
    settings = read_nnpackage(Path(found.package)).config.settings
    assert settings["OP_BACKEND_MAP"] == "".join(f"{i}={b};" for i, b in sorted(wanted.items()))
    assert settings == {
        "BACKENDS": "cpu;ruy",
        "OP_BACKEND_MAP": settings["OP_BACKEND_MAP"],
        "NUM_THREADS": "1",
    }
    assert [doubt.kind for doubt in found.doubts] == ["not-proved"]
    assert found.proof is None
    assert steps == [
        f"Read the traces of net in {tmp_path / 'traces'}",
        "Schedule a backend for each operator",
        f"The scheduled nnpackage is {found.package}",
    ]
    assert read_nnpackage(package.path).config.settings == HELD  # the source stays as it is
    environment = launched(found.package)
    assert {key: environment[key] for key in settings} == settings
    plan = json.loads((Path(found.package) / "gnomon" / "plan.json").read_text())
    assert plan["job"]["segments"][0]["model"] == ".."
    assert plan["model"]["sha256"] == package.graph.digest
    assert {row["index"]: row["backend"] for row in plan["operators"]} == wanted


def test_compat_writes_what_the_published_scheduler_writes(package: Model, tmp_path: Path) -> None:
    keep(package, tmp_path / "traces")
    found = stab(asked(package, tmp_path, compat=True))
    listed = "".join(f"{op.index}=ruy;" for op in package.graph.operators if op.index >= 3 and op.type != "RESHAPE")
    text = (Path(found.package) / "metadata" / "config.cfg").read_text()
    assert text == f"OP_BACKEND_MAP={listed}\nBACKENDS=cpu;ruy;xnnpack\nRUY_THREADS=1\nXNNPACK_THREADS=1"
    assert found.published.predicted_us == found.exact.predicted_us


def test_compat_is_refused_where_the_published_scheduler_would_end(package: Model, tmp_path: Path) -> None:
    fast = replace(trace_for(package, "ruy"), graph=us(1))
    only_cpu = replace(fast.operators[0], type="Conv2D", backend="cpu", time=us(9))
    keep(package, tmp_path / "traces", ruy=replace(fast, operators=(only_cpu, *fast.operators[1:])))
    with pytest.raises(ProblemError, match="no time on the default backend ruy"):
        stab(asked(package, tmp_path, compat=True))
    assert not (tmp_path / "sched").exists()
    assert Path(stab(asked(package, tmp_path)).package).is_dir()


def changed_origin(trace: Trace, **fields: str | float) -> Trace:
    assert trace.origin is not None
    return replace(trace, origin=replace(trace.origin, **fields))  # type: ignore[arg-type]


def test_traces_that_are_not_the_packages_own_are_refused(package: Model, tmp_path: Path) -> None:
    good = trace_for(package, "ruy")
    other = replace(good.operators[0], type="Softmax")
    extra = replace(good.operators[0], index=99)
    wrong = {
        "comes from another model: SHA-256 0000": changed_origin(good, model_sha256="0" * 64),
        "comes from runs with 4 threads, not 1": changed_origin(good, threads=4),
        "from the backend cpu, not ruy": changed_origin(good, backend="cpu"),
        "not comparable: the trace of cpu comes from board, the trace of ruy from phone": changed_origin(
            good, device="phone"
        ),
        "no time for operator 0": replace(good, operators=good.operators[1:]),
        "operator 0 is Softmax": replace(good, operators=(other, *good.operators[1:])),
        "has an operator 99": replace(good, operators=(*good.operators, extra)),
    }
    for message, trace in wrong.items():
        keep(package, tmp_path / "traces", ruy=trace)
        with pytest.raises(ProblemError, match=message) as caught:
            stab(asked(package, tmp_path))
        assert "--no-profile" in caught.value.hint
        assert not (tmp_path / "sched").exists()


def test_missing_and_malformed_traces_are_named(package: Model, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="there is no trace of net with 1 thread") as caught:
        stab(asked(package, tmp_path))
    assert "net_cpu_1" in caught.value.hint
    keep(package, tmp_path / "traces")
    (tmp_path / "traces" / "net_ruy_1").write_text('{"version": "2"}')
    with pytest.raises(ProblemError, match=r"net_ruy_1: .*\$\.Execution_Data: missing"):
        stab(asked(package, tmp_path))
    (tmp_path / "traces" / "net_ruy_1").unlink()
    os.mkfifo(tmp_path / "traces" / "net_ruy_1")
    with pytest.raises(ProblemError, match="not a regular file"):
        stab(asked(package, tmp_path))


def test_what_traces_do_not_say_of_themselves_is_a_doubt(package: Model, tmp_path: Path) -> None:
    def kinds() -> list[str]:
        return [doubt.kind for doubt in stab(asked(package, tmp_path)).doubts]

    traces = keep(package, tmp_path / "traces", ruy=replace(trace_for(package, "ruy"), origin=None))
    found = stab(asked(package, tmp_path))
    assert [doubt.kind for doubt in found.doubts] == ["origin", "not-proved"]
    assert "net_ruy_1" in found.doubts[0].message
    (package.path / "mix.circle").touch()
    os.utime(traces / "net_ruy_1", (1e9, 1e9))
    assert kinds() == ["origin", "older", "not-proved"]
    keep(package, traces, ruy=changed_origin(trace_for(package, "ruy"), taken_at_s=1e9 + 90_000))
    assert kinds() == ["apart", "not-proved"]
    (traces / "net_cpu_1").unlink()
    assert kinds() == ["no-cpu", "not-proved"]
    assert stab(asked(package, tmp_path)).published.decides


def test_only_what_gnomon_scheduled_is_replaced(package: Model, tmp_path: Path) -> None:
    keep(package, tmp_path / "traces")
    request = asked(package, tmp_path)
    stab(request)
    stab(request)  # its own is replaced
    assert sorted(p.name for p in request.out.parent.iterdir()) == ["net"]
    foreign = replace(request, out=tmp_path / "foreign")
    foreign.out.mkdir()
    (foreign.out / "mine.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(PackageError, match="did not schedule it"):
            stab(replace(foreign, overwrite=overwrite))
    assert (foreign.out / "mine.txt").read_text() == "mine"
    write_nnpackage(package, tmp_path / "old", {})
    with pytest.raises(PackageError, match="did not schedule"):
        stab(replace(request, out=tmp_path / "old"))
    stab(replace(request, out=tmp_path / "old", overwrite=True))
    with pytest.raises(PackageError, match="overlaps"):
        stab(replace(request, out=package.path, overwrite=True))


@pytest.mark.parametrize("name", ["replaced", "n" * 250])
def test_a_scheduled_package_may_have_any_name(package: Model, tmp_path: Path, name: str) -> None:
    schedule = Schedule(label="mine", settings={}, placement={}, threads=1)
    for _ in range(2):
        write_scheduled(package, schedule, tmp_path / "out" / name)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


def test_what_is_no_package_is_refused(zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    request = StabRequest(
        measuring=ModelRequest(model=zoo_model("mix.circle")), traces=tmp_path, out=tmp_path / "out", profile=False
    )
    with pytest.raises(ModelError, match="is not an nnpackage"):
        stab(request)


def test_which_names_of_traces_can_mean_an_operator() -> None:
    same = "Conv2D=CONV_2D CONV_2D=CONV_2D ADD=ADD Add=ADD AvgPool2D=AVERAGE_POOL_2D Logistic=LOGISTIC ReduceSum=SUM"
    for pair in f"{same} anything=A_NEW_OPERATOR".split():
        assert same_operation(*pair.split("=")), pair
    for pair in ["DepthwiseConv2D=CONV_2D", "Conv2D=ADD", "Softmax=AVERAGE_POOL_2D"]:
        assert not same_operation(*pair.split("=")), pair


def test_a_trace_is_made_of_all_profiled_runs_together() -> None:
    def run(process: int, whole: tuple[int, ...], first: tuple[int, ...]) -> Run:
        return Run(
            candidate="a",
            process=process,
            block=0,
            started_at_s=0.0,
            samples=Samples(wall_ns=whole, cpu_ns=whole),
            operators=(
                OperatorSamples(name="Conv2D", sources=(0,), backend="ruy", wall_ns=first),
                OperatorSamples(name="Reshape", sources=(1,), backend="cpu", wall_ns=(0, 999)),
            ),
            profiled=True,
        )

    origin = Origin(model_sha256="", device="", backend="ruy", threads=1, runtime="", taken_at_s=0.0, runs=4)
    trace = trace_from_runs([run(0, (9000, 11_000), (2000, 4000)), run(1, (10_000,), (9999,))], origin)
    assert trace is not None
    assert trace.graph == Spread(avg_us=10, min_us=9, max_us=11)
    assert trace.operators[0].time == Spread(avg_us=5, min_us=2, max_us=9)
    assert trace.operators[1].time == Spread(avg_us=0, min_us=0, max_us=0)
    assert trace_from_runs([], origin) is None


def test_profiling_for_real_leaves_traces_and_a_proved_package(package: Model, small: Effort, tmp_path: Path) -> None:
    skip_without_onert()
    request = asked(package, tmp_path, profile=True)
    request = replace(
        request, measuring=ModelRequest(model=package.path, effort=small, settings=RunSettings(threads=1))
    )
    found = stab(request)
    assert found.proof is not None
    assert found.proof.verified.ok
    assert {row.index: row.ran_on for row in found.operators} == found.placement
    assert sorted(p.name for p in request.traces.iterdir()) == ["net_cpu_1", "net_ruy_1"]
    ruy = read_trace((request.traces / "net_ruy_1").read_bytes())
    assert {op.type for op in ruy.main if op.backend == "ruy"} == ON_RUY
    assert found.doubts == ()
    # The traces are good for another decision without the device, and the written package runs as it says.
    again = stab(replace(request, profile=False, compat=True, out=tmp_path / "again"))
    assert again.exact == found.exact
    assert again.published.decides
    for scheduled in (found, again):
        ran = read_trace(onert_trace(Path(scheduled.package), launched(scheduled.package), tmp_path / "workspace"))
        assert {op.index: op.backend for op in ran.main} == scheduled.placement


@pytest.mark.parametrize("default", ["cpu", "ruy"])
def test_onert_puts_operators_where_the_published_settings_are_taken_to_put_them(
    package: Model, tmp_path: Path, default: str
) -> None:
    whole = {"cpu": 10 if default == "cpu" else 99, "ruy": 50}
    traces = {b: trace_for(package, b, whole=us_) for b, us_ in whole.items()}
    write_traces(traces, tmp_path / "traces", "net", 1)
    assert published_decision(traces).default == default
    found = stab(asked(package, tmp_path, compat=True))
    scheduled = Path(found.package)
    settings = {k: v for k, v in read_nnpackage(scheduled).config.settings.items() if "THREADS" not in k}
    ran = read_trace(onert_trace(scheduled, settings, tmp_path / "workspace"))
    assert {op.index: op.backend for op in ran.main} == found.placement

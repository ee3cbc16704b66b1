"""Several numbers of threads in one job: a configuration of each, by wall time, also from the record."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.cli.placement_kit import NO_JOB

from gnomon.api import place as api
from gnomon.api.options import model_request
from gnomon.api.pareto import pareto
from gnomon.core.graph import Graph
from gnomon.core.sample import Run, Samples
from gnomon.errors import UsageError
from gnomon.jobs.place.decide import _mixable
from gnomon.measure.campaign import Candidate, Measured
from gnomon.models.model import Model
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings, Runtime, Support
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.onert import Onert
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.tunings import configurations
from gnomon.session.contender import Contender, Part
from gnomon.session.targets import Target

PROBES: list[tuple[Runtime, Probe]] = [
    (OnnxRuntime(), Probe(version="1", backends=("CPUExecutionProvider",))),
    (OpenVino(), Probe(version="1", backends=("CPU",), details={"precisions": ["FP32", "BF16"]})),
    (Onert(), Probe(version="1", backends=("cpu", "ruy"))),
    (LiteRt(), Probe(version="1", backends=("xnnpack", "builtin"))),
]


@pytest.mark.parametrize(("runtime", "probe"), PROBES)
def test_each_number_is_a_configuration_that_is_named_by_it(runtime: Runtime, probe: Probe) -> None:
    settings = RunSettings(threads=4, environments=({"A": "1"},))
    plain = configurations(runtime, probe, settings)
    assert plain == runtime.configurations(probe, settings)
    assert not any("threads" in c.name for c in plain)
    swept = configurations(runtime, probe, RunSettings(threads=1, more_threads=(2, 4), environments=({"A": "1"},)))
    assert len({c.name for c in swept}) == len(swept) == 3 * len(plain)
    for number, c in enumerate(swept):
        threads = (1, 2, 4)[number // len(plain)]
        assert c.options["threads"] == threads
        assert c.name.removesuffix("]").endswith(f"threads={threads}")
    assert [c.options for c in swept[-len(plain) :]] == [c.options for c in plain]


def test_a_sequence_is_several_numbers_once_each_and_a_number_one() -> None:
    settings = model_request("m.onnx", {"threads": (2, 1, 2)}, sweeps=True).settings
    assert (settings.threads, settings.more_threads, settings.thread_counts) == (2, (1,), (2, 1))
    for given in (2, [2]):
        assert model_request("m.onnx", {"threads": given}).settings == RunSettings(threads=2)
    assert model_request("m.onnx", {"threads": None}).settings == RunSettings()


@pytest.mark.parametrize("given", [0, -1, [], [1, 0], [1.5], ["2"], True])
def test_what_is_no_number_of_threads_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="threads cannot be"):
        model_request("m.onnx", {"threads": given}, sweeps=True)


def test_jobs_that_take_one_number_say_so() -> None:
    with pytest.raises(UsageError, match="several numbers of threads") as refused:
        pareto("m.onnx", threads=[1, 2])
    assert "--tuning threads=1,2" in refused.value.hint


def test_only_configurations_of_as_many_threads_as_the_fastest_are_mixed(tmp_path: Path) -> None:
    graph = Graph(name="g", format="onnx", digest="d", operators=(), tensors=(), inputs=(), outputs=())
    placed = PlacedModel(graph=graph, path="", inputs=(), outputs=())
    model = Model(path=tmp_path, graph=graph, kind="onnx", package=None, size_bytes=0)
    contenders, known = [], {}
    for name, threads, taken_ns in (("a", 1, 3), ("b", 1, 4), ("a2", 2, 2), ("b2", 2, 5), ("c4", 4, 9)):
        made = Configuration(runtime="r", name=name, backends=("r",), options={"threads": threads})
        support = Support(operators={})
        target = Target(runtime=OnnxRuntime(), configuration=made, support=support, placed=placed, model=model)
        part = Part(target=target, operators=(), backends={})
        candidate = Candidate(key=name, job=NO_JOB)
        contenders.append(Contender(label=name, kind="single", parts=(part,), candidate=candidate))
        samples = Samples(wall_ns=(taken_ns,), cpu_ns=(taken_ns,))
        run = Run(candidate=name, process=0, block=0, started_at_s=0.0, samples=samples)
        known[name] = Measured(key=name, runs=(run,), failure=None)
    session: Any = SimpleNamespace(runner=SimpleNamespace(known=lambda key: known[key]), targets=())
    assert [c.label for c in _mixable(session, contenders)] == ["a2", "b2"]
    assert [c.label for c in _mixable(session, [c for c in contenders if c.label != "a2"])] == ["a", "b"]


@pytest.mark.usefixtures("short_visits")
def test_place_and_profile_try_each_and_the_record_knows_them(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(matmul_onnx())
    how: Any = {"runtimes": ["onnxruntime"], "processes": 1, "record": tmp_path / "r.sqlite", "budget_s": 1.0}
    many = len(os.sched_getaffinity(0)) + 1
    names = ["onnxruntime[threads=1]", f"onnxruntime[threads={many}]"]
    found = api.place(model, out=tmp_path / "out", threads=[1, many], **how)
    assert {c.label for c in found.contenders} == set(names)  # which is faster is the machine's
    assert found.clock == "wall"
    [doubt] = [d for d in found.doubts if d.kind == "threads"]
    assert doubt.message.startswith(f"{many} threads were measured on ")
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    threads = 1 if found.decision.chosen == names[0] else many
    assert plan["job"]["segments"][0]["options"]["threads"] == threads
    again = api.place(model, out=tmp_path / "again", threads=[1, many], measure=False, **how)
    assert again.campaign == found.campaign
    assert {c.label for c in again.contenders} == set(names)
    columns = api.profile(model, threads=[1, 2], **how).columns
    assert [c.label for c in columns] == ["onnxruntime[threads=1]", "onnxruntime[threads=2]"]

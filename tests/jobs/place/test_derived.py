"""Operators inside kernels: prices from parts that are cut out, exact where times add up, and real ones."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tests.agent.drivers.litertkit import tflite
from tests.cli.placement_kit import profiled
from tests.models.modelkit import model, node, save, value
from tests.runtimes.openvinokit import net

import gnomon
from gnomon.core import codec
from gnomon.core.sample import Failure, Run, Samples
from gnomon.errors import MeasurementError, ModelError, UsageError
from gnomon.jobs.place.derived import Span, contrast, take_apart
from gnomon.jobs.place.document import InsidePart, ProfileDocument
from gnomon.jobs.place.job import profile
from gnomon.jobs.place.report import profile_report
from gnomon.measure.campaign import CampaignRunner, Measured
from gnomon.measure.effort import Effort
from gnomon.models.cutters import open_cutter
from gnomon.report.page import Page
from gnomon.report.plain import json_text
from gnomon.runtimes.base import RunSettings
from gnomon.session.kernels import Kernel
from gnomon.session.request import ModelRequest
from gnomon.store.base import RunQuery
from gnomon.store.sqlite import SqliteStore

CALL_NS = 5_000


class World:
    """Operators whose times add up, with a call's own time, and what fusing neighbours saves; three processes.

    Each process is a machine of another speed, which all parts of it see.
    """

    def __init__(self, costs_ns: Sequence[int], fused_ns: int = 0, broken: Span | None = None) -> None:
        self.costs_ns, self.fused_ns, self.broken = costs_ns, fused_ns, broken
        self.asked: list[list[Span]] = []

    def time_ns(self, span: Span) -> int:
        return CALL_NS + sum(self.costs_ns[span[0] : span[1]]) - self.fused_ns * (span[1] - span[0] - 1)

    def __call__(self, number: int, spans: Sequence[Span]) -> Mapping[Span, Measured]:
        assert number == len(self.asked)
        self.asked.append(list(spans))
        return {span: self.measured(span) for span in spans}

    def measured(self, span: Span) -> Measured:
        if span == self.broken:
            failure = Failure(stage="load", kind="error", transient=False, message="no such kernel")
            return Measured(key=str(span), runs=(), failure=failure)
        runs = []
        for process in range(3):
            for block in range(2):
                time_ns = self.time_ns(span) * (1 + process)
                samples = Samples(wall_ns=(time_ns,) * 3, cpu_ns=(time_ns,) * 3)
                runs.append(Run(candidate=str(span), process=process, block=block, started_at_s=0.0, samples=samples))
        return Measured(key=str(span), runs=tuple(runs), failure=None)

    def taken(self) -> InsidePart:
        operators = tuple(range(10, 10 + len(self.costs_ns)))
        return take_apart(Kernel(name="k", operators=operators, backend="b", time_s=1.0), operators, self, "cpu")


def test_prices_are_exact_where_times_add_up() -> None:
    world = World((10_000, 3_000, 40_000), fused_ns=1_000)
    found = world.taken()
    assert not found.why
    assert [step.operators for step in found.steps] == [(10,), (11,), (12,)]
    # The mean of the processes' speeds is twice the first one's.
    assert [s.derived.value_s for s in found.steps] == pytest.approx([2 * 15e-6, 2 * 2e-6, 2 * 39e-6])
    assert [s.alone.value_s for s in found.steps] == pytest.approx([2 * 15e-6, 2 * 8e-6, 2 * 45e-6])
    assert found.together is not None
    assert sum(s.derived.value_s for s in found.steps) == pytest.approx(found.together.value_s)
    assert found.saved is not None
    assert found.saved.value_s == pytest.approx(2 * (2 * CALL_NS + 2 * 1_000) * 1e-9)
    assert len(world.asked) == 1
    assert set(world.asked[0]) == {(0, 1), (0, 2), (0, 3), (1, 2), (2, 3)}


@pytest.mark.parametrize("count", [7, 8, 33])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_a_long_kernel_is_bisected_to_what_takes_most(count: int, where: float) -> None:
    """Rounds are logarithmic, and the steps cover each operator once."""
    heavy = round(where * (count - 1))
    costs = [1_000] * count
    costs[heavy] = 500_000
    world = World(costs)
    found = world.taken()
    assert len(world.asked) <= (count - 1).bit_length()
    assert max(map(len, world.asked)) <= 5
    assert [i for s in found.steps for i in s.operators] == list(range(10, 10 + count))
    worst = max(found.steps, key=lambda s: s.derived.value_s)
    assert worst.operators == (10 + heavy,)
    assert worst.derived.value_s == pytest.approx(2 * (500_000 + CALL_NS * (heavy == 0)) * 1e-9)
    assert sum(s.derived.value_s for s in found.steps) == pytest.approx(2 * world.time_ns((0, count)) * 1e-9)


def test_what_cannot_be_measured_leaves_the_kernel_whole_or_as_far_as_it_came() -> None:
    found = World((1, 2, 3), broken=(1, 2)).taken()
    assert not found.steps
    assert found.together is None
    assert found.why == "not cut: error while loading: no such kernel"
    found = World([1_000] * 8, broken=(0, 2)).taken()
    assert [len(s.operators) for s in found.steps] == [4, 4]
    assert found.why


def test_an_interval_needs_processes_that_measured_all_parts() -> None:
    world = World((10, 20))
    both = {span: world.measured(span) for span in ((0, 1), (0, 2))}
    one = {span: Measured(key="", runs=m.runs[:2], failure=None) for span, m in both.items()}
    only = contrast(one, {(0, 2): 1, (0, 1): -1}, "cpu")
    assert (only.low_s, only.high_s, only.processes) == (None, None, 1)
    apart = {(0, 1): one[0, 1], (0, 2): Measured(key="", runs=both[0, 2].runs[2:], failure=None)}
    with pytest.raises(MeasurementError, match="no process"):
        contrast(apart, {(0, 2): 1, (0, 1): -1}, "cpu")


def diamond(folder: Path) -> Path:
    """A product and two that are fused into it, then a branch with a way around it."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], "relu"),
        node("Tanh", ["r"], ["t"], "tanh"),
        node("Add", ["r", "t"], ["y"], "add"),
    ]
    made = model(nodes, [value("x", [1, 3, 16, 16])], [value("y", [1, 4, 16, 16])], {"w": weights})
    return save(made, folder / "diamond.onnx")


def test_a_part_is_any_closed_set_of_nodes(tmp_path: Path) -> None:
    cutter = open_cutter(diamond(tmp_path), "onnx")
    made = cutter.part([0, 1], tmp_path / "a.onnx")
    assert [t.name for t in made.inputs] == ["x"]
    assert [t.name for t in made.outputs] == ["r"]
    with pytest.raises(ModelError, match="needs the result of a node outside the part"):
        cutter.part([1, 3], tmp_path / "b.onnx")
    with pytest.raises(UsageError):
        cutter.part([], tmp_path / "b.onnx")


def inside_runs(record: Path, campaign: str) -> list[str]:
    with SqliteStore.open(record) as store:
        return [r.candidate for r in store.query(RunQuery(campaign=campaign)) if r.candidate.startswith("inside/")]


def test_onnx_runtime_is_taken_apart_and_goes_on(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The convolution's kernel has the Relu too: its price is that of two real models, and none is measured twice."""
    pytest.importorskip("onnxruntime")
    record = tmp_path / "record.sqlite"
    request = ModelRequest(model=diamond(tmp_path), runtimes=("onnxruntime",), effort=small, record=record)

    def interrupted(self: CampaignRunner, decision: Mapping[str, Any]) -> None:
        raise MeasurementError("interrupted", hint="go on")

    with monkeypatch.context() as patch:
        patch.setattr(CampaignRunner, "finish", interrupted)
        with pytest.raises(MeasurementError, match="interrupted"):
            profile(request, inside=True)
    # Without any budget that is left, what is known is told, and nothing more is measured.
    found = profile(replace(request, effort=replace(small, budget_s=1e-9)), inside=True)
    assert found.resumed
    assert len(inside_runs(record, found.campaign)) == 3 * 2, "a, b and ab, each visited twice"
    (part,) = found.columns[0].inside
    assert not part.why, part.why
    assert [step.operators for step in part.steps] == [(0,), (1,)]
    assert part.saved is not None
    assert all(step.alone.value_s > 0 for step in part.steps)
    assert part.derived is True
    # No measured time has become another by it.
    assert found.columns[0].kernels[0].operators == (0, 1)
    text = io.StringIO()
    profile_report(found, Page(text, width=100))
    assert "inside its kernels, derived (~)" in text.getvalue()
    assert any("Relu" in line and "~" in line for line in text.getvalue().splitlines())
    spent = profile(replace(request, fresh=True, effort=replace(small, budget_s=1e-9)), inside=True)
    (part,) = spent.columns[0].inside
    assert (part.steps, part.why) == ((), "not cut: the time ran out")


def test_openvinos_convolution_with_its_normalisation_and_activation_is_taken_apart(
    tmp_path: Path, small: Effort
) -> None:
    pytest.importorskip("openvino")
    record = tmp_path / "record.sqlite"
    request = ModelRequest(model=net(tmp_path / "net.onnx"), runtimes=("openvino",), effort=small, record=record)
    (column,) = profile(request, inside=True).columns
    part = next(part for part in column.inside if 0 in part.operators)
    assert {0, 1, 2} <= set(part.operators)
    assert not part.why, part.why
    priced = [operator for step in part.steps for operator in step.operators]
    assert sorted(priced) == sorted(part.operators)
    assert len(part.steps) == len(priced)
    assert part.saved is not None and part.saved.value_s > 0, "a call of a model by itself takes more than fusing"


def test_what_tells_one_time_of_the_whole_model_is_taken_apart(tmp_path: Path, small: Effort) -> None:
    """LiteRT's reference kernels have no profiler: all of the model is one kernel."""
    pytest.importorskip("ai_edge_litert")
    given = tmp_path / "chain.tflite"
    given.write_bytes(tflite("conv", "floor_mod", "softmax"))
    request = ModelRequest(
        model=given,
        runtimes=("litert",),
        settings=RunSettings(backends=("reference",)),
        effort=small,
        record=tmp_path / "record.sqlite",
    )
    found = profile(request, inside=True)
    (part,) = found.columns[0].inside
    assert not part.why, part.why
    assert [step.operators for step in part.steps] == [(0,), (1,), (2,)]
    label = found.columns[0].label
    assert {row.times_s[label] for row in found.operators} == {None}, "a derived price is not a measured time"


def test_the_document_fits_its_schema_and_the_report_marks_every_price(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    found = profiled()
    kernel = Kernel(name="fused", operators=(0, 1, 2), backend="cpu", time_s=190e-6)
    apart = take_apart(kernel, (0, 1, 2), World((10_000, 3_000, 40_000)), "cpu")
    left = InsidePart(kernel="fused", operators=(0, 1, 2), why="not cut: it is one")
    columns = (found.columns[0], replace(found.columns[1], inside=(apart, left)))
    found = replace(found, columns=columns)
    document = json.loads(json_text(found.document()))
    jsonschema.Draft202012Validator(gnomon.document_schema("profile")).validate(document)
    assert codec.from_json(ProfileDocument, document).columns[1].inside[0].steps[2].operators == (2,)
    text = io.StringIO()
    profile_report(found, Page(text, width=120))
    lines = text.getvalue().split("derived (~)")[1].splitlines()
    assert sum("~" in line for line in lines) == 4
    assert any("~80.0 us" in line for line in lines)
    assert "it is one" in text.getvalue()
    before = json.loads(json_text(document))
    for column in before["columns"]:
        del column["inside"]
    assert codec.from_json(ProfileDocument, before).columns[0].inside == ()

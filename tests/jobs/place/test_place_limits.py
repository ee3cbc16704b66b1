"""Limits of a placement: what keeps them is chosen, exactly, and what runs is checked. No times are judged."""

from __future__ import annotations

import itertools
import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from tests.bad_days.livekit import matmul_onnx

from gnomon.core.cost import CostModel, Objective
from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, MeasurementError, UsageError
from gnomon.jobs.place import decide
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import place
from gnomon.jobs.place.limits import Limits, names_of, solved
from gnomon.jobs.place.report import place_report
from gnomon.measure.effort import Effort
from gnomon.report.page import Page
from gnomon.runtimes.base import Configuration
from gnomon.session import prove
from gnomon.session.contender import Contender
from gnomon.session.request import ModelRequest

WHOLE = ("onnxruntime", "openvino")
DEVICES = Configuration(runtime="r", name="r[devices]", backends=("cpu", "gpu", "npu"), options={})


def drawn(rng: np.random.Generator, count: int) -> Graph:
    """Operators that each read a weight and some of what is before them; the first makes a weight of another one."""
    tensors = [Tensor(name="x", shape=(1,), dtype="float32", size_bytes=4)]
    operators = []
    for k in range(count):
        tensors.append(Tensor(name=f"w{k}", shape=(1,), dtype="int8", size_bytes=int(rng.integers(50)), constant=True))
        tensors.append(Tensor(name=f"y{k}", shape=(1,), dtype="float32", size_bytes=int(rng.integers(20))))
        before = [] if k == 0 else [int(p) for p in rng.choice([0, *range(2, 2 * k + 1, 2)], min(k, 2), replace=False)]
        operators.append(
            Operator(index=k, name=f"o{k}", type="Add", inputs=(2 * k + 1, *before), outputs=(2 * k + 2,), macs=1)
        )
    last = (len(tensors) - 1,)
    return Graph(
        name="drawn",
        format="onnx",
        digest="0",
        tensors=tuple(tensors),
        operators=tuple(operators),
        inputs=(0,),
        outputs=last,
    )


def contender(graph: Graph, backends: tuple[int, ...]) -> Contender:
    part = SimpleNamespace(configuration=DEVICES, backends={k: DEVICES.backends[b] for k, b in enumerate(backends)})
    return cast(Contender, SimpleNamespace(graph=graph, parts=[part]))


@pytest.mark.parametrize("seed", range(25))
def test_the_least_within_limits_is_that_of_exhaustive_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 6))
    graph = drawn(rng, count)
    under: dict[str, float | str] = {"memory:gpu": float(rng.integers(120)), "switches": float(rng.integers(3))}
    under |= {"operators:r[devices]:npu": 1.0, "memory:cpu": float(rng.integers(200))}
    limits = Limits(dict(itertools.islice(under.items(), int(rng.integers(1, 5)))))
    costs = rng.integers(0, 9, (count, 3)).astype(float)
    model = CostModel(
        space=Space(tuple(Slot(f"o{k}", DEVICES.backends) for k in range(count))),
        objectives=(Objective("latency", "s"),),
        slot_costs=tuple(row[:, None] for row in costs),
    )
    names = [names_of(DEVICES, backend) for backend in DEVICES.backends]
    every = list(itertools.product(range(3), repeat=count))
    kept = [a for a in every if not limits.broken(contender(graph, a))]
    within = limits.within(model, graph, [(k,) for k in range(count)], names)
    for a in every:
        assert [within.used(limit, a) for limit in within.limits] == limits.uses(contender(graph, a))
    if not kept:
        with pytest.raises(InfeasibleError, match="at least"):
            solved(within)
        return
    least = min(sum(costs[k, b] for k, b in enumerate(a)) for a in kept)
    found = solved(within)
    assert found.value == pytest.approx(least) and found.optimal and found.assignment in kept


def test_what_only_prepares_constants_counts_where_it_is_read() -> None:
    tensors = (
        Tensor(name="x", shape=(1,), dtype="float32", size_bytes=4),
        Tensor(name="w", shape=(8,), dtype="int8", size_bytes=8, constant=True),
        Tensor(name="wide", shape=(8,), dtype="float32", size_bytes=32),
        Tensor(name="y", shape=(1,), dtype="float32", size_bytes=4),
    )
    operators = (
        Operator(index=0, name="widen", type="DequantizeLinear", inputs=(1,), outputs=(2,), macs=0),
        Operator(index=1, name="product", type="MatMul", inputs=(0, 2), outputs=(3,), macs=8),
    )
    graph = Graph(name="q", format="onnx", digest="0", tensors=tensors, operators=operators, inputs=(0,), outputs=(3,))
    limits = Limits({"memory": "1MB", "operators:gpu": 1.0, "switches": 0.0})
    assert limits.uses(contender(graph, (0, 1))) == [12.0, 1.0, 0.0]


def chain(path: Path) -> tuple[Path, int]:
    """Products in a row, and the bytes of the weights and of what is written."""
    path.write_bytes(matmul_onnx(width=64, depth=4))
    found = onnx.load_model(path)
    weights = sum(len(tensor.raw_data) or 4 * int(np.prod(tensor.dims)) for tensor in found.graph.initializer)
    sizes = onnx.shape_inference.infer_shapes(found).graph
    written = [*sizes.value_info, *sizes.output]
    return path, weights + sum(4 * int(np.prod([d.dim_value for d in v.type.tensor_type.shape.dim])) for v in written)


def page_of(document: PlaceDocument) -> str:
    file = StringIO()
    place_report(document, Page(file, width=200))
    return re.sub(r"\s+", " ", file.getvalue())


def test_a_single_backend_that_breaks_a_limit_is_no_candidate(small: Effort, tmp_path: Path) -> None:
    path, most = chain(tmp_path / "m.onnx")
    under: dict[str, float | str] = {"memory:openvino": most - 1, "memory:onnxruntime": most}
    found = place(ModelRequest(model=path, effort=small, runtimes=WHOLE, under=under), tmp_path / "out")
    parts = {c.label: c for c in found.contenders}
    assert found.decision.chosen == "onnxruntime" and found.verified.ok
    assert parts["openvino"].breaks.startswith("memory:openvino is ") and not parts["onnxruntime"].breaks
    (_, kept) = found.limits
    assert (kept.name, kept.unit, kept.at_most, kept.used, kept.slack) == ("memory:onnxruntime", "B", most, most, 0.0)
    assert "openvino is not a candidate: memory:openvino" in page_of(found)


@pytest.mark.usefixtures("few_blocks")
def test_a_mix_that_keeps_the_limits_is_chosen_where_no_single_backend_does(small: Effort, tmp_path: Path) -> None:
    path, most = chain(tmp_path / "m.onnx")
    share = 0.8 * most
    under: dict[str, float | str] = {**{f"memory:{name}": share for name in WHOLE}, "switches": 1.0}
    found = place(ModelRequest(model=path, effort=small, runtimes=WHOLE, under=under), tmp_path / "out")
    assert found.decision.kind == "plan" and found.verified.ok
    assert "breaks a limit" in found.decision.reason
    *memory, switches = found.limits
    assert sum(limit.used for limit in memory) == most and all(0 < limit.used <= share for limit in memory)
    assert (switches.used, switches.slack) == (1.0, 0.0)
    assert len({row.ran_on for row in found.operators}) == 2
    assert "Within limits of memory:onnxruntime, memory:openvino and switches" in page_of(found)
    with pytest.raises(InfeasibleError, match="at least"):
        request = ModelRequest(model=path, effort=small, runtimes=WHOLE, under=under | {"switches": 0.0})
        place(request, tmp_path / "none")


def test_what_ran_is_checked_and_not_only_what_was_planned(
    small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, most = chain(tmp_path / "m.onnx")
    real = prove.verify

    def elsewhere(*given: Any) -> Any:
        verified, places = real(*given)
        return verified, dict.fromkeys(places, "gpu")

    monkeypatch.setattr(decide, "verify", elsewhere)
    monkeypatch.setattr(Limits, "check", lambda *_: None)
    request = ModelRequest(model=path, effort=small, runtimes=("openvino",), under={"memory:gpu": most - 1})
    with pytest.raises(MeasurementError, match="broke a limit when it ran: memory:gpu"):
        place(request, tmp_path / "out")


@pytest.mark.parametrize(
    ("under", "told"),
    [
        ({"energy": "2J"}, "a placement cannot be limited by 'energy'"),
        ({"switches:gpu": 2.0}, "a placement cannot be limited by 'switches:gpu'"),
        ({"memory:gpu": "4ms"}, "the limit on memory:gpu: '4ms'"),
        ({"memory:gpu": "4GB"}, "no configuration runs on 'gpu', which the limit memory:gpu names"),
    ],
)
def test_limits_that_mean_nothing_are_refused(
    under: dict[str, float | str], told: str, small: Effort, tmp_path: Path
) -> None:
    path, _ = chain(tmp_path / "m.onnx")
    request = ModelRequest(model=path, effort=small, runtimes=("openvino",), under=under)
    with pytest.raises(UsageError, match=re.escape(told)) as refused:
        place(request, tmp_path / "out")
    assert refused.value.hint


@pytest.mark.parametrize(("barred_s", "cost_s"), [(0.002, 0.0), (0.0004, 0.0006)])
def test_limits_cost_what_a_faster_row_that_breaks_one_would_save(barred_s: float, cost_s: float) -> None:
    kept = SimpleNamespace(label="kept", level_s=0.001, breaks="")
    rows = [kept, SimpleNamespace(label="barred", level_s=barred_s, breaks="memory")]
    assert decide._limits_cost_s(cast("Any", rows), "kept", None) == pytest.approx(cost_s)

"""trace.json: the three layouts of names, real files, hostile ones, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.formats.onert.tracing_kit import onert_trace

from gnomon.core.sample import Spread, Trace, TraceOperator
from gnomon.errors import ProblemError
from gnomon.formats.onert.trace import read_trace, write_trace

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "onert"


def golden(name: str) -> Trace:
    return read_trace((GOLDEN / f"stab-trace-{name}.json").read_bytes())


def spread(avg: int, least: int, most: int) -> Spread:
    return Spread(avg_us=avg, min_us=least, max_us=most)


def test_the_layout_of_today() -> None:
    trace = golden("2")
    assert trace.version == "2"
    assert trace.graph == spread(11320, 10751, 12020)
    assert trace.operators == (
        TraceOperator(index=0, type="Conv2D", backend="ruy", time=spread(8455, 8001, 9000), subgraph=0),
        TraceOperator(index=1, type="DepthwiseConv2D", backend="cpu", time=spread(2853, 2744, 3011), subgraph=0),
        TraceOperator(index=2, type="Reshape", backend="cpu", time=spread(0, 0, 1), subgraph=0),
    )
    assert trace.origin is None
    assert trace.sessions == (0,)


def test_the_oldest_names_and_a_trace_without_whole_runs() -> None:
    trace = golden("1")
    assert (trace.version, trace.graph) == ("1", None)
    assert [(op.index, op.type, op.subgraph, op.session) for op in trace.operators] == [
        (0, "CONV_2D", None, None),
        (1, "ADD", None, None),
    ]
    assert trace.operators[1].time.avg_us == 0
    assert trace.main == trace.operators


def test_names_of_several_sessions() -> None:
    trace = golden("sessions")
    assert [(op.session, op.subgraph, op.index) for op in trace.operators] == [(0, 0, 3), (1, 2, 3)]
    assert trace.sessions == (0, 1)
    assert trace.main == trace.operators[:1]
    assert trace.operators[1].name == "$1 session $2 subgraph $3 ADD"


def test_a_trace_that_onert_writes_is_read(zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    settings = {"BACKENDS": "cpu;ruy", "OP_BACKEND_MAP": "0=ruy;", "NUM_THREADS": "1"}
    trace = read_trace(onert_trace(zoo_model("mix.circle"), settings, tmp_path))
    assert [op.index for op in trace.main] == list(range(29))
    assert {op.index for op in trace.main if op.backend == "ruy"} == {0}
    assert trace.main[0].type == "Conv2D"
    assert trace.graph is not None
    assert trace.graph.avg_us > 0
    assert read_trace(write_trace(trace)) == trace


def document(**changes: Any) -> dict[str, Any]:
    time = {"Avg_Time": 2, "Min_Time": 1, "Max_Time": 3, "Runtime": "cpu"}
    data = {"cpu": {"$0 subgraph $0 Conv2D": time}, "runtime": {"Graph": time}, "memory": {}}
    return {"version": "2", "Execution_Data": data, **changes}


def with_operators(backend: str, operators: dict[str, Any]) -> dict[str, Any]:
    made = document()
    made["Execution_Data"][backend] = operators
    return made


TIME = {"Avg_Time": 2, "Min_Time": 1, "Max_Time": 3}
ORIGIN = {"model_sha256": "a", "device": "d", "backend": "cpu", "runtime": "onert 0.1.0"} | {
    "threads": 1,
    "taken_at_s": 1.5,
    "runs": 3,
}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (document(version="3"), "$.version"),
        ({"version": "2"}, "$.Execution_Data: missing"),
        (document(Execution_Data={"memory": {}}), "$.Execution_Data: it contains neither operators nor a whole run"),
        (with_operators("cpu", {"Conv2D": TIME}), "'Conv2D'"),
        (with_operators("cpu", {"$0 subgraph $-1 A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $١ A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $" + "9" * 10 + " A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Avg_Time": 2.5}}), "Avg_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Max_Time": 10**30}}), "a number of more than 30 digits"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Min_Time": -1}}), "Min_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Min_Time": 9}}), "is not between"),
        (with_operators("cpu", {"$0 subgraph $7 A": TIME, "$0 subgraph $07 A": TIME}), "has two times on 'cpu'"),
        (with_operators("cpu", {"$7 A": TIME, "$0 subgraph $7 B": TIME}), "has two times on 'cpu'"),
        (with_operators("ruy", {"$0 subgraph $0 Add": TIME}), "operator 0 is 'Add' here and 'Conv2D' elsewhere"),
        (with_operators("ruy", {"$0 subgraph $9 A\ud800": TIME}), "surrogate"),
        (document(gnomon=ORIGIN | {"threads": -1}), "$.gnomon.threads"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(given: Any, path: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_trace(json.dumps(given))
    assert path in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["1", "2", "sessions"])
def test_the_published_readers_expressions_find_what_was_written(name: str) -> None:
    """stab takes index and type from a name by splitting it; 0 stands for a subgraph or session in front."""
    trace = golden(name)
    data = json.loads(write_trace(trace))["Execution_Data"]
    for operator in trace.operators:
        words = operator.name.split(" ")
        assert words[-1] == operator.type
        assert int(words[-2][1:]) == operator.index
        assert data[operator.backend][operator.name]["Avg_Time"] == operator.time.avg_us

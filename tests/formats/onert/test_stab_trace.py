"""trace.json: the three layouts of names, real files, hostile ones, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.onert.tracing_kit import onert_trace

from gnomon.core.sample import Origin, Spread, Trace, TraceOperator
from gnomon.errors import ProblemError
from gnomon.formats.onert.trace import MOST_LETTERS, read_trace, write_trace

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


@pytest.mark.parametrize("name", ["1", "2", "sessions"])
def test_golden_files_come_back_equal(name: str) -> None:
    assert read_trace(write_trace(golden(name))) == golden(name)


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
        ([], "$: an object expected"),
        (document(version="3"), "$.version"),
        (document(version=2), "$.version"),
        ({"version": "2"}, "$.Execution_Data: missing"),
        (document(Execution_Data=[1]), "$.Execution_Data: an object expected"),
        (document(Execution_Data={"memory": {}}), "$.Execution_Data: no operator and no whole run"),
        (document(Execution_Data={"memory": 3}), "$.Execution_Data.memory"),
        (document(Execution_Data={"runtime": {"Graph": 3}}), "$.Execution_Data.runtime.Graph"),
        (with_operators("cpu", {"Conv2D": TIME}), "'Conv2D'"),
        (with_operators("cpu", {"$x subgraph $0 A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $-1 A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $١ A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $" + "9" * 10 + " A": TIME}), "a name such as"),
        (with_operators("cpu", {"$0 subgraph $0 A": 7}), "'$0 subgraph $0 A'"),
        (with_operators("cpu", {"$0 subgraph $0 A": {"Avg_Time": 2}}), "Min_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Avg_Time": "2"}}), "Avg_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Avg_Time": True}}), "Avg_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Avg_Time": 2.5}}), "Avg_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Max_Time": 10**30}}), "a number of more than 30 digits"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Min_Time": -1}}), "Min_Time"),
        (with_operators("cpu", {"$0 subgraph $0 A": TIME | {"Min_Time": 9}}), "does not lie between"),
        (with_operators("cpu", {"$0 subgraph $7 A": TIME, "$0 subgraph $07 A": TIME}), "has a time on 'cpu' already"),
        (with_operators("cpu", {"$7 A": TIME, "$0 subgraph $7 A": TIME}), "has a time on 'cpu' already"),
        (with_operators("cpu", {"$7 A": TIME, "$0 subgraph $7 B": TIME}), "has a time on 'cpu' already"),
        (with_operators("ruy", {"$0 Add": TIME}), "operator 0 is"),
        (with_operators("ruy", {"$0 subgraph $0 Add": TIME}), "operator 0 is 'Add' here and 'Conv2D' elsewhere"),
        (with_operators("ruy", {"$0 subgraph $9 A\ud800": TIME}), "surrogate"),
        (document(gnomon=3), "$.gnomon"),
        (document(gnomon=ORIGIN | {"threads": -1}), "$.gnomon.threads"),
        (document(gnomon=ORIGIN | {"device": None}), "$.gnomon.device"),
        (document(gnomon=ORIGIN | {"taken_at_s": "now"}), "$.gnomon.taken_at_s"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(given: Any, path: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_trace(json.dumps(given))
    assert path in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe{",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"version":"2","version":"2"}',
        b'{"Execution_Data":{"cpu":{"$0 A":{"Avg_Time":NaN}}}}',
        b'{"Execution_Data":{"cpu":{"$0 A":{"Avg_Time":' + b"9" * 10_000 + b"}}}}",
        b" " * (MOST_LETTERS + 1),
    ],
    ids=["empty", "utf-16", "deep lists", "deep objects", "twice", "nan", "digits", "long"],
)
def test_hostile_text_is_one_error(text: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        read_trace(text)
    assert len(caught.value.message) < 300


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5), st.data())
def test_whatever_json_is_put_into_a_trace_it_is_read_or_refused(value: Any, data: st.DataObject) -> None:
    whole = document(gnomon=dict(ORIGIN))
    paths = [
        (whole, "version"),
        (whole, "Execution_Data"),
        (whole, "gnomon"),
        (whole["gnomon"], "threads"),
        (whole["Execution_Data"], "cpu"),
        (whole["Execution_Data"], "runtime"),
        (whole["Execution_Data"]["cpu"], "$0 subgraph $0 Conv2D"),
        (whole["Execution_Data"]["cpu"]["$0 subgraph $0 Conv2D"], "Avg_Time"),
    ]
    holder, key = data.draw(st.sampled_from(paths))
    holder[key] = value
    try:
        trace = read_trace(json.dumps(whole))
    except ProblemError:
        return
    assert read_trace(write_trace(trace)) == trace


times = st.lists(st.integers(0, 10**9), min_size=3, max_size=3).map(sorted).map(lambda t: spread(t[1], t[0], t[2]))
words = st.text("ABCab_012", min_size=1, max_size=8)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
origins = st.builds(
    Origin,
    model_sha256=texts,
    device=texts,
    backend=texts,
    threads=st.integers(0, 1024),
    runtime=texts,
    taken_at_s=st.floats(0, 1e12),
    runs=st.integers(0, 10**6),
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    layout = draw(st.sampled_from([(None, None), (None, 0), (0, 0)]))
    types = draw(st.dictionaries(st.integers(0, 10**9 - 1), words, min_size=1, max_size=12))
    backends = draw(st.lists(words, min_size=1, max_size=3, unique=True))
    operators = []
    for index, type_ in sorted(types.items()):
        for backend in sorted(draw(st.sets(st.sampled_from(backends), min_size=1))):
            session, subgraph = layout
            time = draw(times)
            operators.append(
                TraceOperator(index=index, type=type_, backend=backend, time=time, subgraph=subgraph, session=session)
            )
    return Trace(operators=tuple(operators), graph=draw(st.none() | times), origin=draw(st.none() | origins))


@given(traces())
def test_written_traces_come_back_equal(trace: Trace) -> None:
    assert read_trace(write_trace(trace)) == trace


@given(traces())
def test_the_published_readers_expressions_find_what_was_written(trace: Trace) -> None:
    """stab takes index and type from a name by splitting it; 0 stands for a subgraph or session in front."""
    data = json.loads(write_trace(trace))["Execution_Data"]
    for operator in trace.operators:
        words_ = operator.name.split(" ")
        assert words_[-1] == operator.type
        assert int(words_[-2][1:]) == operator.index
        assert data[operator.backend][operator.name]["Avg_Time"] == operator.time.avg_us

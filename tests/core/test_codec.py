"""The codec: what goes in comes back, what does not fit is named by its path."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.codec import OTHERS_TOO, Must, decode, dumps, from_json, loads, to_json
from gnomon.core.sample import LAST_S, Failure, OperatorSamples, Run, Samples
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, RecordError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.lists(st.integers(0, 2**63 - 1), max_size=8).map(tuple)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.floats(0, LAST_S)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
MAPS = st.dictionaries(TEXT, JSON, max_size=4)
SAMPLES = st.builds(Samples, wall_ns=INTS, cpu_ns=INTS, inner=st.integers(1, 1000))
FAILURES = st.builds(Failure, stage=TEXT, kind=TEXT, transient=st.booleans(), message=TEXT, log_tail=TEXT)
OPERATORS = st.builds(OperatorSamples, name=TEXT, sources=INTS, backend=TEXT, wall_ns=INTS)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    samples = draw(st.none() | SAMPLES)
    return Run(
        candidate=draw(TEXT),
        process=draw(st.integers(0, 99)),
        block=draw(st.integers(0, 99)),
        started_at_s=draw(MOMENTS),
        samples=samples,
        failure=draw(FAILURES) if samples is None else None,
        profiled=draw(st.booleans()),
        operators=tuple(draw(st.lists(OPERATORS, max_size=3))),
        facts=draw(MAPS),
    )


@given(runs())
def test_runs_come_back(run: Run) -> None:
    assert from_json(Run, loads(dumps(run))) == run


@pytest.mark.parametrize(
    "text",
    [
        "1e999",
        b"-1E+0400",
        b'{"a": 1e99999}',
        "9" * 400 + ".5",
    ],
)
def test_numbers_beyond_any_float_are_refused(text: str | bytes) -> None:
    with pytest.raises(RecordError, match="is too large for a number"):
        loads(text)


@pytest.mark.parametrize("text", ["1e300", "1e-999", "0.1", "[1e0005, 7]", "9" * 400])
def test_numbers_within_are_taken(text: str) -> None:
    assert loads(text) == json.loads(text)


def test_numpy_numbers_are_numbers() -> None:
    assert to_json({"a": np.int64(3), "b": np.float32(0.5)}) == {"a": 3, "b": 0.5}


@pytest.mark.parametrize("value", [float("nan"), np.float64("inf"), b"x", {1: 2}, object(), Run, {1}])
def test_what_json_lacks_is_named(value: object) -> None:
    with pytest.raises(RecordError, match=r"^\$\.a\[1\]"):
        to_json({"a": [1, value]})


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"process": "0"}, "$.process"),
        ({"process": True}, "$.process"),
        ({"started_at_s": None}, "$.started_at_s"),
        ({"samples": {"wall_ns": [1, "2"], "cpu_ns": []}}, "$.samples.wall_ns[1]"),
        ({"samples": {"wall_ns": [1]}}, "$.samples.cpu_ns"),
        ({"operators": [{}]}, "$.operators[0].name"),
        ({"facts": []}, "$.facts"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], path: str) -> None:
    good = {"candidate": "a", "process": 0, "block": 0, "started_at_s": 1}
    assert from_json(Run, good).started_at_s == 1.0
    with pytest.raises(RecordError) as refused:
        from_json(Run, {**good, **change})
    assert path in refused.value.message


def test_all_that_does_not_fit_is_told_at_once() -> None:
    good = {"candidate": 1, "process": 0, "started_at_s": "x", "more": 2}
    with pytest.raises(RecordError) as refused:
        from_json(Run, good)
    for part in (
        "$.candidate: a text",
        "$.block: missing",
        "$.started_at_s: a finite number",
        "$.more: there is no such field",
    ):
        assert part in refused.value.message


SHARES = Annotated[
    tuple[Annotated[float, Must(be="a share", fits=lambda value: value <= 1)], ...],
    Must(be="two", fits=lambda value: len(value) == 2),
]


@dataclass(frozen=True, kw_only=True)
class Checked:
    shares: SHARES
    maybe: SHARES | None = None


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([0, 0.5], []),
        ([0.5], ["$.shares: two expected"]),
        (3, ["$.shares: a list expected, 3 found"]),
        ([2.0, "x"], ["$.shares[0]: a share expected, 2.0 found", "$.shares[1]: a finite number expected, 'x' found"]),
        ([10**400, float("inf")], None),
    ],
)
def test_what_a_value_must_be(shares: Any, told: list[str] | None) -> None:
    complaints = Complaints(what="file", hint="-")
    found = decode(Checked, {"shares": shares, "maybe": None}, complaints)
    assert complaints.sentences == told if told is not None else len(complaints.sentences) == 2
    assert (found is None) == bool(complaints.sentences)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "[" * 100_000, b"\xff"])
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(RecordError):
        loads(text)


@dataclass(frozen=True)
class Columns:
    times_s: tuple[float | None, ...] = ()
    names: tuple[str, ...] = ()


def test_columns_are_read_at_once_and_checked_all_the_same() -> None:
    found = from_json(Columns, {"times_s": [1.5, None, 2], "names": ["a", ""]})
    assert found == Columns(times_s=(1.5, None, 2.0), names=("a", ""))
    assert [type(time_s) for time_s in found.times_s] == [float, type(None), float]
    large = [1e308, None, 1e308]
    assert from_json(Columns, {"times_s": large}).times_s == tuple(large)
    for times, place in (([1.5, None, float("inf")], 2), ([None, float("nan")], 1), ([True], 0), (["1"], 0)):
        with pytest.raises(RecordError, match=rf"\$\.times_s\[{place}\]"):
            from_json(Columns, {"times_s": times})
    for names in (["a", None], ["a", 1]):
        with pytest.raises(RecordError, match=r"\$\.names\[1\]"):
            from_json(Columns, {"names": names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    low: float
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ProblemError(f"{self.low} is above {self.high}", hint="-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    spans: Mapping[str, tuple[Ordered, ...]]
    pair: tuple[int, str] = (1, "a")
    proof: str | Mapping[str, float] | None = None
    kind: Literal["wide", "narrow"] = "wide"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"spans": {"a": [{"low": 2}]}}, "$.spans.a[0]: 2.0 is above 1.0"),
        ({"spans": {"a": [{"low": 0, "hihg": 1}]}}, "$.spans.a[0].hihg: there is no such field. Did you mean 'high'?"),
        ({"spans": {"a": [{"low": 0, "x": 1}]}}, "$.spans.a[0].x: there is no such field. Fields: low, high"),
        ({"spans": {"a": [[]]}}, "$.spans.a[0]: an object expected, a list found"),
        ({"pair": [1]}, "$.pair[1]: missing"),
        ({"proof": {"gap": "1"}}, "$.proof.gap: a finite number expected, '1' found"),
        ({"kind": "round"}, "$.kind: 'wide' or 'narrow' expected, 'round' found"),
        ({"more": 1}, "$.more: there is no such field. Fields: spans, pair, proof, kind"),
    ],
)
def test_what_is_wrong_inside_is_told_with_its_place(change: dict[str, Any], told: str) -> None:
    good = {"spans": {"a": [{"low": 0}]}, "pair": [2, "b"], "proof": {"gap": 0}}
    assert from_json(Nested, good) == Nested(spans={"a": (Ordered(low=0.0),)}, pair=(2, "b"), proof={"gap": 0.0})
    with pytest.raises(RecordError) as refused:
        from_json(Nested, {**good, **change})
    assert told in refused.value.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    count: int = 0


def test_a_record_may_pass_over_fields_of_others_and_is_strict_all_the_same() -> None:
    assert from_json(Foreign, {"count": 3, "more": [1]}) == Foreign(count=3)
    with pytest.raises(RecordError, match=r"\$\.count: a whole number expected, '3' found"):
        from_json(Foreign, {"count": "3"})


def test_of_a_document_with_many_values_the_first_wrong_one_of_each_list_is_told() -> None:
    few, many = ["x"] * 30, ["x"] * 200_000
    with pytest.raises(RecordError) as refused:
        from_json(Columns, {"times_s": few, "names": [1]})
    assert refused.value.message.endswith("; and 11 more")
    with pytest.raises(RecordError) as refused:
        from_json(Columns, {"times_s": many, "names": [1]})
    told = "$.times_s[0]: a finite number expected, 'x' found; $.names[0]: a text expected, 1 found"
    assert refused.value.message == f"the record is malformed: {told}"
    with pytest.raises(RecordError, match=r"^the record is malformed: \$: 200000 of its values are invalid"):
        from_json(Columns, dict.fromkeys(map(str, range(200_000))))


def test_pydantic_is_imported_where_something_is_read_alone() -> None:
    code = (
        "import sys, gnomon.cli.main, gnomon.jobs.suite.plan, gnomon.devices.config, gnomon.store.rows\n"
        "try: gnomon.cli.main.run(['place', '--help'])\n"
        "finally: print('pydantic' in sys.modules, 'pydantic_core' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "False False"

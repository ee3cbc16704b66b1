"""onert's trace in Chrome's format: every call of every operator, and one error for anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.onert.trace import read_chrome_trace


def event(name: str, place: str, phase: str, at: object) -> dict[str, Any]:
    return {"name": name, "pid": "0", "tid": place, "ph": phase, "ts": at, "args": {}}


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["cpu", "ruy"]), st.integers(0, 10**6)), min_size=1, max_size=40
    )
)
def test_what_was_written_is_read(calls: list[tuple[int, str, int]]) -> None:
    at, events = 10**9, [event("$0 subg", "$0 sess, $0 subg", "B", "5"), {}]
    wanted: dict[tuple[int, str], list[int]] = {}
    for index, backend, took in calls:
        place = f"$0 sess, $0 subg, {backend}"
        events += [
            event(f"@{index} Conv2D", place, "B", str(at)),
            event(f"@{index} Conv2D", place, "E", str(at + took)),
        ]
        wanted.setdefault((index, backend), []).append(1000 * took)
        at += took + 1
    events.append(event("@0 Inner", "$0 sess, $1 subg, cpu", "B", "7"))  # another subgraph
    found = read_chrome_trace(json.dumps({"traceEvents": events}).encode())
    assert found == tuple(
        {"name": "Conv2D", "sources": [key[0]], "backend": key[1], "wall_ns": wanted[key]} for key in sorted(wanted)
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"traceEvents": [1]}',
        b'{"traceEvents": [',
        b"\xff",
        b"[" * 100_000,
        json.dumps({"traceEvents": [event("@1 A", "$0 sess, $0 subg, cpu", "B", "soon")]}).encode(),
        json.dumps({"traceEvents": [event("@1 A", "$0 sess, $0 subg, cpu", p, t) for p, t in ("B9", "E3")]}).encode(),
    ],
)
def test_anything_else_is_one_error(text: bytes) -> None:
    with pytest.raises(ProblemError) as refused:
        read_chrome_trace(text)
    assert refused.value.hint

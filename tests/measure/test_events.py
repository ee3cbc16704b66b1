"""What an agent may say: all that the real one says is taken, and any harm to it is one error."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import AgentError
from gnomon.measure.link import check_asked, event_of

BLOCK: dict[str, Any] = {
    "event": "block",
    "candidate": "c",
    "block": 0,
    "started_at_s": 1.0,
    "wall_ns": [1, 0],
    "cpu_ns": [0, 0],
    "inner": 1,
    "peak_rss_bytes": None,
    "waits": 3,
    "operators": [{"name": "Conv", "sources": [0, "conv"], "backend": "cpu", "wall_ns": [5]}],
    "pace": {"delay_ns": [0, 7], "late": 1, "skipped": 0},
    "state": {"monotonic_s": 5.5, "frequencies_khz": {"cpu0": [None, 1, 2, 3]}, "temperatures_c": {"soc": 41.5}},
}
FAILURE: dict[str, Any] = {
    "event": "failure",
    "candidate": "c",
    "stage": "run",
    "kind": "crash",
    "transient": False,
    "message": "crashed",
    "log_tail": "",
    "block": 1,
}
OPENED: dict[str, Any] = {"event": "opened", "candidate": "c", "where": [[]], "difference": {"relative": 0.0}}
SEEN: dict[str, Any] = {"event": "environment", "data": {"before": {"cores": 2}, "after": {"load_average_1m": 0.5}}}


@pytest.mark.parametrize("event", [BLOCK, FAILURE, OPENED, SEEN, {"event": "end"}])
def test_sense_is_taken(event: dict[str, Any]) -> None:
    assert event_of(json.dumps(event)) == event


HARM: list[tuple[dict[str, Any], str, list[Any]]] = [
    (BLOCK, "wall_ns", [None, [], ["1"], [-1], [1.5], [True], [1 << 63], {}]),
    (BLOCK, "cpu_ns", [None, 3, [None]]),
    (BLOCK, "inner", [0, -1, 1.0, True]),
    (BLOCK, "block", [-1, "0", None]),
    (BLOCK, "started_at_s", [float("nan"), float("inf"), "now", None, 10**400]),
    (BLOCK, "operators", [None, [{}], [{**BLOCK["operators"][0], "sources": [[]]}]]),
    (BLOCK, "peak_rss_bytes", ["1", -1]),
    (BLOCK, "pace", [None, {}, {**BLOCK["pace"], "late": -1}, {**BLOCK["pace"], "delay_ns": ["1"]}]),
    (BLOCK, "state", [None, 3, {"monotonic_s": "now"}, {"cpu_busy_s": None}, {"cpu_total_s": float("nan")}]),
    (BLOCK, "state", [{"temperatures_c": {"soc": "hot"}}, {"temperatures_c": [1]}, {"temperatures_c": {"a": None}}]),
    (BLOCK, "state", [{"frequencies_khz": {"cpu0": []}}, {"frequencies_khz": {"cpu0": ["1"]}}, {"governors": 3}]),
    *((FAILURE, field, [None, [], 3]) for field in ("stage", "kind", "message", "log_tail")),
    (FAILURE, "transient", ["no"]),
    (FAILURE, "block", [None]),
    (OPENED, "candidate", [["c"]]),
    (OPENED, "where", [None]),
    (SEEN, "data", [None, [], {}, {"before": None, "after": None}]),
    (SEEN, "data", [{"before": {}, "after": {"memory_available_bytes": "much"}}]),
    (SEEN, "data", [{"before": {"cores": [1], "load_average_1m": 3.0}, "after": {}}]),
]


@pytest.mark.parametrize(("event", "field", "value"), [(e, f, value) for e, f, values in HARM for value in values])
def test_harm_to_a_field_is_an_error(event: dict[str, Any], field: str, value: Any) -> None:
    with pytest.raises(AgentError, match="not an event"):
        event_of(json.dumps({**event, field: value}))


@given(st.sampled_from([BLOCK, FAILURE, OPENED, SEEN]), st.data())
def test_a_missing_field_is_an_error(event: dict[str, Any], data: st.DataObject) -> None:
    needed = sorted(
        event.keys() - {"waits", "operators", "where", "difference", "pace", "state"} - ({"block"} & FAILURE.keys())
    )
    harmed = copy.deepcopy(event)
    del harmed[data.draw(st.sampled_from(needed))]
    with pytest.raises(AgentError):
        event_of(json.dumps(harmed))


def test_only_what_was_asked_for_is_taken() -> None:
    asked = {"c": frozenset({0, 2})}
    for event in (BLOCK, FAILURE, OPENED, SEEN):
        check_asked(cast(Any, event), asked)
    for event in ({**BLOCK, "block": 1}, {**BLOCK, "candidate": "d"}, {**FAILURE, "candidate": "d"}):
        with pytest.raises(AgentError, match="not requested"):
            check_asked(cast(Any, event), asked)

"""ONNX Runtime's profile, and the selection of events that belong to the model's own nodes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict


class TraceEvent(TypedDict, total=False):
    """An event of the profile: its kind (`cat`), its start and duration in microseconds, and, for a node, further
    `args`.
    """

    cat: str
    name: str
    ts: int
    dur: int
    args: dict[str, str]


def profile(settings: Any) -> None:
    """Make a session with these settings write a profile into a new folder, which `events_of` removes."""
    settings.enable_profiling = True
    settings.profile_file_prefix = os.path.join(tempfile.mkdtemp(prefix="gnomon-ort-"), "profile")


def events_of(session: Any) -> list[TraceEvent]:
    """End a session's profile and return its events."""
    path = session.end_profiling()
    with open(path, encoding="utf-8") as file:
        events: list[TraceEvent] = json.load(file)
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    return events


KERNEL = "_kernel_time"
"""The suffix that follows the node's name in the name of a kernel's event."""
_EXECUTED, _CALLED = "SequentialExecutor::Execute", "model_run"


def calls_of(events: Iterable[TraceEvent]) -> Iterator[tuple[TraceEvent, list[TraceEvent]]]:
    """The event of each call, with the kernel events of the graph's own nodes.

    Nodes in a branch or a loop body have events too, possibly with the same names as the graph's own nodes; their time
    is included in that of the operator that contains them. An event is written when it ends, so a graph's event follows
    the events of its nodes, and a call's event follows that of the model's graph.
    """
    open_nodes: list[TraceEvent] = []
    executed: list[TraceEvent] = []
    for event in events:
        if event.get("cat") == "Node":
            open_nodes.append(event)
        elif event.get("name") == _EXECUTED:
            began = int(event["ts"])
            executed = [node for node in open_nodes if int(node["ts"]) >= began]
            open_nodes = [node for node in open_nodes if int(node["ts"]) < began]
        elif event.get("name") == _CALLED:
            yield event, [node for node in executed if node["name"].endswith(KERNEL)]
            executed, open_nodes = [], []

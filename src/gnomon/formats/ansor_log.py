"""Logs of Ansor, TVM's auto-scheduler: JSON lines, one a trial. They can be compared, not replayed.

A line is ``{"i": [[workload key, target, hardware, target host, layout rewriting, ..], [stages, steps]],
"r": [[seconds, ..], error number, seconds of all, time of day], "v": "v0.6"}``; one that begins with # is a comment.
Source: ``src/auto_scheduler/measure_record.cc`` of Apache TVM 0.7 to 0.19.

A layer is a workload key, ``["<hash of the computation>", numbers or shapes..]``. A configuration is the second part of
``i``, the state; Ferule took the first, which all configurations of a layer share.
"""

from __future__ import annotations

import json
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.core.tuning_record import TunedModel, TuningRecords
from gnomon.formats.complaints import Complaints
from gnomon.formats.json_lines import LineRules, json_lines
from gnomon.formats.tuner_log import LogEntry, TunerLog, shape_text

_HINT = "Give a log that the auto-scheduler of TVM wrote, one JSON object a line."
_RULES = LineRules(comments=("#",))
_HASH_SHOWN = 8


def read_ansor_log(text: str | bytes, *, key: str, model: TunedModel) -> TuningRecords:
    """Reads a log of the device `key`. ProblemError with everything that is wrong, each with its line."""
    complaints = Complaints(what="Ansor log", hint=_HINT)
    log = TunerLog(tuner="ansor", complaints=complaints)
    for number, value in json_lines(text, complaints, _RULES):
        place = f"line {number}"
        entry = _entry(value, place, complaints)
        if entry is not None and not log.take(place, entry):
            break
    return log.finish(key, model)


def is_ansor(value: Any) -> bool:
    """Whether a line looks like one of Ansor; AutoTVM's first logs have the same keys, and more in the first."""
    return (
        isinstance(value, dict) and {"i", "r"} <= value.keys() and isinstance(value["i"], list) and len(value["i"]) == 2
    )


def _entry(value: Any, place: str, complaints: Complaints) -> LogEntry | None:
    if not is_ansor(value):
        complaints.tell(place, f'an object with "i", of two parts, and "r" expected, {shown(value)} found')
        return None
    task, state = value["i"]
    if not isinstance(task, list) or len(task) < 2 or not all(isinstance(item, str) for item in task[:2]):
        complaints.tell(place, f"i: a workload key and a target expected, {shown(task)} found")
        return None
    if not isinstance(state, list) or len(state) != 2 or not all(isinstance(part, list) for part in state):
        complaints.tell(place, f"i: a state of stages and steps expected, {shown(state)} found")
        return None
    return LogEntry(layer=task[0], name=_name(task[0]), trace=state, target=task[1], result=value["r"])


def _name(key: str) -> str:
    """``2d10de66 1x56x56x64``: the begin of the hash, or the function's name, and the first shape; else the key."""
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        return key
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        return key
    shapes = [shape_text(part) for part in parts[1:] if isinstance(part, list)]
    numbers = "x".join(str(part) for part in parts[1:] if type(part) is int)
    name = parts[0][:_HASH_SHOWN] if len(parts[0]) == 32 else parts[0]
    return f"{name} {next(filter(None, shapes), numbers)}".strip()

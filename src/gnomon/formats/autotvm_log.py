"""Logs of AutoTVM: JSON lines, one a trial. They can be compared, not replayed: TVM no longer has AutoTVM.

A line is ``{"input": [target, task, args, kwargs], "config": {"index", "code_hash", "entity"},
"result": [[seconds, ..], error number, seconds of all, time of day], "version": 0.2, "tvm_version": ".."}``; one that
begins with # is a comment.
Source: ``python/tvm/autotvm/record.py`` of Apache TVM 0.7 to 0.19.

A layer is a task with its arguments. A configuration is its entity and nothing else: the index counts in a space that
depends on the target, and the target is the device's.
"""

from __future__ import annotations

import json
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.core.tuning_record import TunedModel, TuningRecords
from gnomon.formats.complaints import Complaints
from gnomon.formats.json_lines import LineRules, json_lines
from gnomon.formats.tuner_log import LogEntry, TunerLog, shape_text

_HINT = "Give a log that AutoTVM wrote (version 0.2), one JSON object a line."
_RULES = LineRules(comments=("#",))


def read_autotvm_log(text: str | bytes, *, key: str, model: TunedModel) -> TuningRecords:
    """Reads a log of the device `key`. ProblemError with everything that is wrong, each with its line."""
    complaints = Complaints(what="AutoTVM log", hint=_HINT)
    log = TunerLog(tuner="autotvm", complaints=complaints)
    for number, value in json_lines(text, complaints, _RULES):
        place = f"line {number}"
        entry = _entry(value, place, complaints)
        if entry is not None and not log.take(place, entry):
            break
    return log.finish(key, model)


def is_autotvm(value: Any) -> bool:
    """Whether a line looks like one of AutoTVM."""
    return isinstance(value, dict) and {"input", "config", "result"} <= value.keys()


def _entry(value: Any, place: str, complaints: Complaints) -> LogEntry | None:
    if not is_autotvm(value):
        complaints.tell(place, f"an object with input, config and result expected, {shown(value)} found")
        return None
    asked, config = value["input"], value["config"]
    if not isinstance(asked, list) or len(asked) < 3 or not all(isinstance(item, str) for item in asked[:2]):
        complaints.tell(place, f"input: [target, task, args, kwargs] expected, {shown(asked)} found")
        return None
    target, task, args = asked[:3]
    if not isinstance(args, list):
        complaints.tell(place, f"input: a list of arguments expected, {shown(args)} found")
        return None
    entity = config.get("entity") if isinstance(config, dict) else None
    if not isinstance(entity, list):
        complaints.tell(place, f"config: an entity, a list, expected, {shown(entity)} found")
        return None
    named = [item for item in asked[3:4] if item]  # the arguments with names, which hardly any task has
    try:
        layer = json.dumps([task, args, *named], separators=(",", ":"), sort_keys=True, allow_nan=False)
    except ValueError:
        complaints.tell(place, "input: a number that is none")
        return None
    return LogEntry(layer=layer, name=_name(task, args), trace=entity, target=target, result=value["result"])


def _name(task: str, args: list[Any]) -> str:
    """``conv2d_NCHWc.x86 1x64x56x56``: the task and the shape of its first tensor."""
    tensors = (arg for arg in args if isinstance(arg, list) and len(arg) == 3 and arg[0] == "TENSOR")
    shape = next((shape_text(arg[1]) for arg in tensors), "")
    return f"{task} {shape}".strip()

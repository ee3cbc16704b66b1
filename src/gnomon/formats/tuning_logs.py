"""Tuning records of any kind, told apart by what is in them: gnomon's own, MetaSchedule's, AutoTVM's and Ansor's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.core.tuning_record import TunedModel, TuningRecords
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.ansor_log import is_ansor, read_ansor_log
from gnomon.formats.autotvm_log import is_autotvm, read_autotvm_log
from gnomon.formats.complaints import Complaints
from gnomon.formats.json_lines import MOST_OF_A_LINE, LineRules, json_lines
from gnomon.formats.metaschedule_database import RECORDS, WORKLOADS, read_metaschedule_database
from gnomon.formats.tuning_names import TuningName, parse_tuning_name
from gnomon.formats.tuning_records import read_tuning_records

FOLDER_FILES = (WORKLOADS, RECORDS)
"""The files of a folder that `read_tuning_log` wants: a database of MetaSchedule."""

_UNDERSTOOD = (
    f"Give a file of gnomon tune, a folder with the {WORKLOADS} and {RECORDS} of MetaSchedule, or a log of AutoTVM "
    "or of Ansor, one JSON object a line."
)
_RULES = LineRules(begun="any", comments=("#",))
_UNKNOWN = "unknown"
_GONE = {"autotvm": "AutoTVM", "ansor": "Ansor (the auto-scheduler)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of a file that does not say it itself, besides its name, and before it.

    `key` is the device that was measured and `model` the network, empty where the name is to say them. `known` are keys
    of devices at which a name may be cut, see `parse_tuning_name`.
    """

    key: str = ""
    model: str = ""
    known: tuple[str, ...] = ()


NOTHING = Told()


def read_tuning_log(name: str, content: bytes | Mapping[str, bytes], told: Told = NOTHING) -> TuningRecords:
    """Reads a file, or of a folder the files in `FOLDER_FILES`, by what is in it.

    `name` is its path. What gnomon wrote says itself which device and model it is of, whatever its name. Raises
    ProblemError for what is no tuning record, or wrong, and UsageError where the device stays unknown.
    """
    if isinstance(content, Mapping):
        missing = [file for file in FOLDER_FILES if file not in content]
        if missing:
            raise ProblemError(f"the folder {shown(name)} has no {' and no '.join(missing)}", hint=_UNDERSTOOD)
        said = _said(name.rstrip("/") + ".json", told)
        found = read_metaschedule_database(content[WORKLOADS], content[RECORDS], key=said.key, model=_model(said))
        return replace(found, found_on=said.found_on)
    first, damage = _first(content)
    if isinstance(first, dict) and not {"gnomon", "layer"}.isdisjoint(first):
        return read_tuning_records(content)
    if not is_autotvm(first) and not is_ansor(first):
        raise ProblemError(f"{shown(name)} has no tuning records{_guess(first, damage)}", hint=_UNDERSTOOD)
    said = _said(name, told)
    read = read_autotvm_log if is_autotvm(first) else read_ansor_log
    return replace(read(content, key=said.key, model=_model(said)), found_on=said.found_on)


def replay_problem(records: TuningRecords) -> str | None:
    """Why today's TVM cannot replay these configurations; None if it can."""
    if records.tuner in _GONE:
        return (
            f"it was written by {_GONE[records.tuner]}, which Apache TVM no longer has: gnomon overlay analyze can "
            "still compare it; to compile or measure, tune again with gnomon tune"
        )
    lacking = [layer.name for layer in records.layers if not layer.workload]
    if lacking:
        return f"it does not hold the function of {shown(lacking[0])}: tune again with gnomon tune"
    return None


def _first(content: bytes) -> tuple[Any, str]:
    """The value of the first line that has one, None without any, and what was wrong before it."""
    quiet = Complaints(what="file", hint=_UNDERSTOOD)
    # The line that is cut in two here is never the first one that can be read at all.
    value = next((value for _, value in json_lines(content[: MOST_OF_A_LINE + 1], quiet, _RULES)), None)
    return value, quiet.told[0] if quiet.told else ""


def _guess(first: Any, damage: str) -> str:
    """What a file without records seems to be, for the message."""
    if isinstance(first, dict) and isinstance(first.get("i"), list) and len(first["i"]) > 2:
        return ": it seems to be a log of AutoTVM before 0.7, of 2020, which is not read"
    if isinstance(first, list) and len(first) == 2:
        return f": it seems to be half a database of MetaSchedule; give the folder with {WORKLOADS} and {RECORDS}"
    return f": {damage}" if damage else ""


def _said(name: str, told: Told) -> TuningName:
    """What the name says, and before it what is told."""
    try:
        said = parse_tuning_name(name, (*told.known, told.key) if told.key else told.known)
    except UsageError as error:
        if told.key:
            return TuningName(key=told.key, model=told.model or _UNKNOWN, dtype="float32")
        hint = f"Say of which device it is. {error.hint}"
        raise UsageError(f"{error.message}, and the file itself does not either", hint=hint) from error
    said = replace(said, model=told.model or said.model)
    if not told.key or told.key == said.key:
        return said
    front = f"{said.key}_{said.found_on}" if said.found_on else said.key
    behind = front.removeprefix(f"{told.key}_")
    return replace(said, key=told.key, found_on="" if behind == front else behind)


def _model(said: TuningName) -> TunedModel:
    return TunedModel(name=said.model, dtype=said.dtype)

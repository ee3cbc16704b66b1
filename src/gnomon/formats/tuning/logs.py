"""Logs of tuning, distinguished by their content: gnomon's record files, and logs of MetaSchedule, AutoTVM and Ansor.

AutoTVM and Ansor (the auto-scheduler) were removed from TVM: their logs can be compared, but not replayed. A line of
their logs is a trial in JSON, or a comment that begins with #; nothing describes the network. Both use the same error
numbers, and 1e9 or 1e10 seconds for a failure.

AutoTVM: ``{"input": [target, task, args, kwargs], "config": {"index", "code_hash", "entity"}, "result": [[seconds, ..],
error number, seconds of all, time of day], "version": 0.2, "tvm_version": ".."}``. A layer is a task with its
arguments. A configuration is identified by its entity alone: the index refers to a space that depends on the target,
and the target depends on the device. Version 0.1, of TVM before 0.7: ``{"i": [target, task, args, kwargs, workload,
{"i": index, "t": template, "c", "e": entity}], "r": as result, "v": 0.1}``; a configuration is a template and an
entity.

Ansor: ``{"i": [[workload key, target, hardware, target host, layout rewriting, ..], [stages, steps]], "r": [[seconds,
..], error number, seconds of all, time of day], "v": "v0.6"}``. A layer is a workload key, ``["<hash of the
computation>", numbers or shapes..]``. A configuration is the second part of ``i``, the state. Ferule took the first
part, which is the same for all configurations of a layer.

Source: ``python/tvm/autotvm/record.py``, ``src/auto_scheduler/measure_record.cc`` and ``MeasureErrorNo`` in
``autotvm/measure`` and ``auto_scheduler/measure.py`` of Apache TVM 0.7 to 0.19.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.core.overlay.records import (
    MOST_LAYER_LETTERS,
    TunedDevice,
    TunedModel,
    Tuner,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    identity_of,
    trace_text,
)
from gnomon.core.overlay.trials import TrialBuilder
from gnomon.core.sample import Failure
from gnomon.core.strict_json import Complaints, is_text, shown
from gnomon.errors import ProblemError
from gnomon.formats.json_lines import (
    MOST_LETTERS,
    MOST_OF_A_LINE,
    LineRules,
    json_lines,
    left_out,
    part_of_a_line,
    value_at,
)
from gnomon.formats.tuning.metaschedule import RECORDS, WORKLOADS, read_metaschedule_database
from gnomon.formats.tuning.records import (
    MOST_LAYERS,
    MOST_SAMPLES,
    MOST_TRIALS,
    as_times,
    read_tuning_records,
    unsound,
)
from gnomon.formats.tuning.texts import Configuration, Texts

FAILED_S = 1e9
"""A time of this many seconds or more stands for a failure."""
_MOST_NAME = 200
_ERRORS: Mapping[int, tuple[str, str, str]] = {
    1: ("build", "refused", "the schedule could not be created"),
    2: ("build", "refused", "the host code could not be compiled"),
    3: ("build", "refused", "the device code could not be compiled"),
    4: ("run", "crash", "the trial failed on the device"),
    5: ("check", "wrong-output", "the output was wrong"),
    6: ("build", "hang", "the build timed out"),
    7: ("run", "hang", "the run timed out"),
    8: ("run", "refused", "the trial failed for an unknown reason"),
}
_OTHER = ("run", "refused", "the trial failed")
_MOST_ENDS = 1000
_NUMBERS = (int, float)
_FLOATS = {float}
_MOST_AT_S = 1e12
_OF_DEVICE = frozenset({"kind", "mcpu", "mtriple", "mattr", "model"})
"""The words of a target that identify its device; the other words differ between versions of TVM."""
_LOG_RULES = LineRules(comments=("#",))
_HASH_SHOWN = 8
FOLDER_FILES = (WORKLOADS, RECORDS)
"""The files that `read_tuning_log` needs from a folder, which is a database of MetaSchedule."""

_HINT = (
    f"Give a file of gnomon tune, a folder with MetaSchedule's {WORKLOADS} and {RECORDS}, or a log of AutoTVM or Ansor "
    "with one JSON object per line."
)
_RULES = LineRules(begun="any", comments=("#",))
_GZIP, _MARK = b"\x1f\x8b", b"\xef\xbb\xbf"
_ASKED = 4  # target, task, args, kwargs
_GONE = {"autotvm": "AutoTVM", "ansor": "Ansor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A line of a log: the layer and its name, the configuration, the target as the tuner writes it, and the result.

    `result` is ``[[seconds, ..], error number, seconds of all, time of day, ..]``.
    """

    layer: str
    name: str
    trace: Any
    target: str
    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LineShape:
    """The exact form of a tuner's lines: the text before, between and after the three values of a trial.

    `trace` finds the configuration in the second value, and raises ValueError if there is none. `entry` reads any line
    of the tuner.
    """

    tuner: Tuner
    begin: str
    middle: str
    end: str
    trace: Callable[[Any], Any]
    entry: Callable[[Any, str, Complaints], LogEntry | None]


@dataclass(slots=True, kw_only=True)
class TunerLog:
    """The entries of a log that have been read so far; `bad` has the complaints about lines that are not entries.

    Most lines begin like an earlier line, hold a configuration that occurred before, perhaps in another file, and end
    like an earlier line. Each of these texts is parsed once and then recognised (`quick`), so reading such a line takes
    little more time than reading its times. A line that does not have the tuner's own form is parsed as a whole.
    """

    complaints: Complaints
    bad: Complaints
    shape: LineShape
    texts: Texts
    targets: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    trials: TrialBuilder = field(default_factory=TrialBuilder)
    _heads: dict[str, tuple[str, dict[str, Configuration]]] = field(default_factory=dict)
    _ends: set[str] = field(default_factory=set)
    _foreign: int = 0
    _head: str = ""
    _met: tuple[str, str] = ("", "")

    def read(self, text: str | bytes) -> TuningRecords:
        """The record set of a log. ProblemError for faults, and for a log without a trial."""
        for number, value in json_lines(text, self.bad, _LOG_RULES, self.quick):
            entry = self.shape.entry(value, f"line {number}", self.bad)
            if entry is not None and not self.take(number, entry):
                break
        lost = left_out(self.bad, len(self.trials), self.complaints)
        if not self.trials and not self.complaints.sentences:
            self.complaints.tell("line 1", "the log has no trial")
        wrong = self.complaints.sentences
        if wrong and len(wrong) == self._foreign:
            hint = "Give each device its own file, DEVICE.NETWORK.DTYPE.json."
            raise ProblemError(f"a log has lines of several devices: {'; '.join(wrong[:5])}", hint=hint)
        self.complaints.raise_any()
        used: dict[str, int] = {}
        layers = []
        for layer, name in self.names.items():
            used[name] = used.get(name, 0) + 1
            nth = "" if used[name] == 1 else f" ({used[name]})"
            layers.append(TuningLayer(layer=layer, name=f"{name}{nth}"))
        return TuningRecords(
            device=TunedDevice(key="", target=_of_device("".join(self.targets[:1]))),
            model=TunedModel(name=""),
            layers=tuple(layers),
            trials=self.trials.columns(),
            tuner=self.shape.tuner,
            left_out=lost,
        )

    def quick(self, number: int, line: str) -> bool:
        """Read a line if all of it except the times is known; see `gnomon.formats.json_lines.Quick`."""
        shape, self._met = self.shape, ("", "")
        if not self._head or not line.startswith(self._head):
            if not line.startswith(shape.begin):
                return False
            _, end = value_at(line, len(shape.begin))
            if not line.startswith(shape.middle, end):
                return False
            head = line[: end + len(shape.middle)]
            if head not in self._heads:
                self._met = head, ""  # `take` remembers it once it has read the whole line
                return False
            self._head = head
        begin = len(self._head)
        layer, configurations = self._heads[self._head]
        if (end := line.find(shape.end, begin)) < 0:
            return False
        text = line[begin:end]
        if (kept := configurations.get(text)) is None:
            trace = trace_text(shape.trace(part_of_a_line(text)))
            kept = self.texts.keep(configurations, text, (layer, identity_of(layer, trace)), (trace,))
        value, end = value_at(line, end + len(shape.end))
        read = _quick_result(value)
        if read is None or line[end:] not in self._ends or len(self.trials) >= MOST_TRIALS:
            self._met = "", line[end:]
            return False
        times_s, failure, at_s = read
        self.trials.add(*kept, times_s, failure, at_s=at_s, line=number)
        return True

    def take(self, number: int, entry: LogEntry) -> bool:
        """Add an entry. Return False if there are too many."""
        tell, before, place = self.complaints.tell, len(self.complaints.sentences), f"line {number}"
        if entry.target not in self.targets:
            self.targets.append(entry.target)
            if _of_device(entry.target) != _of_device(self.targets[0]):
                self._foreign += 1
                now, first = shown(entry.target), shown(self.targets[0])
                tell(place, f"the target changes from {first} to {now}: put the lines of each target into its own file")
        if not 0 < len(entry.layer) <= MOST_LAYER_LETTERS or not is_text(entry.layer + entry.target):
            tell(place, f"a layer of 1 to {MOST_LAYER_LETTERS} characters expected, {shown(entry.layer)} found")
        read = _result(entry.result)
        try:
            trace = trace_text(entry.trace)
        except ValueError:
            self.bad.tell(place, "the configuration contains NaN or infinity")
            return True
        if read is None:
            self.bad.tell(place, f"[[seconds], error number, ..] expected as the result, {shown(entry.result)} found")
            return True
        times_s, failure, at_s = read
        name = (entry.layer, identity_of(entry.layer, trace))
        self.trials.add(name, (trace,), times_s, failure, at_s=at_s, line=number)
        self.names.setdefault(entry.layer, _plain(entry.name))
        if len(self.trials) > MOST_TRIALS or len(self.names) > MOST_LAYERS:
            tell(place, f"more than {MOST_TRIALS} trials or {MOST_LAYERS} layers")
            return False
        head, end = self._met
        if head and len(self.complaints.sentences) == before:
            self._heads[head] = (entry.layer, self.texts.of(self.shape.tuner, entry.layer))
        elif end and len(self._ends) < _MOST_ENDS:
            self._ends.add(end)
        return True


def read_target(text: str) -> dict[str, Any]:
    """A target of an old TVM, ``llvm -keys=cpu -mcpu=cortex-a72 -link-params``, as a mapping; a flag has True."""
    words = text.split()
    target: dict[str, Any] = {"kind": words[0]} if words else {}
    for word in words[1:]:
        name, equals, value = word.removeprefix("-").partition("=")
        target.setdefault(name, value if equals else True)
    return target


def _of_device(target: str) -> dict[str, object]:
    return {name: value for name, value in read_target(target).items() if name in _OF_DEVICE}


def shape_text(shape: Any) -> str:
    """A shape such as ``1x64x56x56``; empty for anything but a shape."""
    good = isinstance(shape, list) and shape and all(type(size) is int for size in shape)
    return "x".join(map(str, shape)) if good else ""


def _result(result: Any) -> tuple[tuple[float, ...], Failure | None, float] | None:
    """The times, the failure and the time of day; None for anything but a result."""
    if not isinstance(result, list) or len(result) < 2 or type(result[1]) is not int:
        return None
    times_s, number, at = as_times(result[0]), result[1], result[3] if len(result) > 3 else 0.0
    if times_s is None or type(at) not in (int, float) or not 0 <= at < _MOST_AT_S:
        return None
    if number != 0:
        stage, kind, why = _ERRORS.get(number, _OTHER)
        return (
            (),
            Failure(stage=stage, kind=kind, transient=False, message=f"{why} (error {shown(number)})"),
            float(at),
        )
    failure = unsound(times_s)
    if failure is None and any(t >= FAILED_S for t in times_s):
        failure = Failure(stage="run", kind="refused", transient=False, message="the logged time marks a failure")
    return () if failure else times_s, failure, float(at)


def _quick_result(value: Any) -> tuple[Sequence[float], Failure | None, float] | None:
    """A faster form of `_result` for most results. None for values that `take` should examine with the whole line."""
    if not isinstance(value, list) or len(value) != 4 or type(value[2]) not in _NUMBERS or type(value[0]) is not list:
        return None
    times_s, number, _, at = value
    # A sum that includes infinity or NaN is not below any number.
    if (
        number == 0
        and type(number) is int
        and type(at) is float
        and 0 <= at < _MOST_AT_S
        and set(map(type, times_s)) == _FLOATS
        and min(times_s) > 0
        and sum(times_s) < FAILED_S
        and len(times_s) <= MOST_SAMPLES
    ):
        return times_s, None, at
    return _result(value)


def _plain(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:_MOST_NAME] or "layer"


def read_tuner_log(text: str | bytes, tuner: Tuner, *, texts: Texts | None = None) -> TuningRecords:
    """Read a log of AutoTVM or Ansor, which names no device and no model. ProblemError with all faults and their lines.

    Lines that are not trials are left out if they are fewer than the trials. `texts` are the texts that the log shares
    with other logs.
    """
    name, shape = ("Ansor", _ANSOR_SHAPE) if tuner == "ansor" else ("AutoTVM", _AUTOTVM_SHAPE)
    what, hint = f"{name} log", f"Give a log that TVM's {name} wrote, with one JSON object per line."
    complaints, bad = Complaints(what=what, hint=hint), Complaints(what=what, hint=hint)
    return TunerLog(complaints=complaints, bad=bad, shape=shape, texts=texts or Texts()).read(text)


def is_ansor(value: Any) -> bool:
    """Return True if a line looks like a line of Ansor. AutoTVM's first logs have the same keys, but more values in
    "i".
    """
    return (
        isinstance(value, dict) and {"i", "r"} <= value.keys() and isinstance(value["i"], list) and len(value["i"]) == 2
    )


def _ansor_entry(value: Any, place: str, complaints: Complaints) -> LogEntry | None:
    if not is_ansor(value):
        complaints.tell(place, f'an object with "i", a list of two parts, and "r" expected, {shown(value)} found')
        return None
    task, state = value["i"]
    if not isinstance(task, list) or len(task) < 2 or not all(isinstance(item, str) for item in task[:2]):
        complaints.tell(place, f"i: a workload key and a target expected, {shown(task)} found")
        return None
    try:
        _state(state)
    except ValueError as error:
        complaints.tell(place, f"i: {error} expected, {shown(state)} found")
        return None
    return LogEntry(layer=task[0], name=_ansor_name(task[0]), trace=state, target=task[1], result=value["r"])


def _state(state: Any) -> Any:
    if isinstance(state, list) and len(state) == 2 and all(isinstance(part, list) for part in state):
        return state
    raise ValueError("a state of stages and steps")


_ANSOR_SHAPE = LineShape(tuner="ansor", begin='{"i": [', middle=", ", end='], "r": ', trace=_state, entry=_ansor_entry)


def _ansor_name(key: str) -> str:
    """The name of a layer, such as ``2d10de66 1x56x56x64 3x3x64x64``.

    It consists of the beginning of the hash, or the function's name, and the shapes of input and weights. A key of
    another form is the name itself.
    """
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        return key
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        return key
    shapes = _two_shapes(part for part in parts[1:] if isinstance(part, list))
    numbers = "x".join(str(part) for part in parts[1:] if type(part) is int)
    name = parts[0][:_HASH_SHOWN] if len(parts[0]) == 32 else parts[0]
    return f"{name} {shapes or numbers}".strip()


def _two_shapes(parts: Iterable[Any]) -> str:
    """The first two shapes: that of the input, and that of the weights, which differs between
    layers with equal inputs.
    """
    return " ".join(itertools.islice(filter(None, map(shape_text, parts)), 2))


def is_autotvm(value: Any) -> bool:
    """Return True if a line looks like a line of AutoTVM."""
    value = _renamed(value)
    return isinstance(value, dict) and {"input", "config", "result"} <= value.keys()


def _renamed(value: Any) -> Any:
    """A line of version 0.1 in the form of version 0.2; any other line unchanged.

    In version 0.1 a task has several templates, and gnomon compares the configurations of all of them.
    """
    match value:
        case {"i": [*asked, _, {"t": template, "e": [*entity]} as config], "r": result} if len(asked) == _ASKED:
            configuration = {"index": config.get("i"), "entity": [template, *entity]}
            return {"input": asked, "config": configuration, "result": result}
    return value


def _autotvm_entry(value: Any, place: str, complaints: Complaints) -> LogEntry | None:
    value = _renamed(value)
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
    try:
        entity = _entity(config)
    except ValueError as error:
        complaints.tell(place, f"config: {error} expected, {shown(config)} found")
        return None
    named = [item for item in asked[3:4] if item]  # the arguments with names, which few tasks have
    try:
        layer = json.dumps([task, args, *named], separators=(",", ":"), sort_keys=True, allow_nan=False)
    except ValueError:
        complaints.tell(place, "input: the arguments contain NaN or infinity")
        return None
    return LogEntry(layer=layer, name=_autotvm_name(task, args), trace=entity, target=target, result=value["result"])


def _entity(config: Any) -> Any:
    if isinstance(config, dict) and isinstance(config.get("entity"), list):
        return config["entity"]
    raise ValueError("an entity, a list,")


_AUTOTVM_SHAPE = LineShape(
    tuner="autotvm", begin='{"input": ', middle=', "config": ', end=', "result": ', trace=_entity, entry=_autotvm_entry
)


def _autotvm_name(task: str, args: list[Any]) -> str:
    """The task and the shapes of its input and weights, such as ``conv2d_NCHWc.x86 1x64x56x56 64x64x3x3``."""
    tensors = (arg for arg in args if isinstance(arg, list) and len(arg) == 3 and arg[0] == "TENSOR")
    return f"{task} {_two_shapes(arg[1] for arg in tensors)}".strip()


def read_tuning_log(name: str, content: bytes | Mapping[str, bytes], texts: Texts | None = None) -> TuningRecords:
    """Read a file, or the `FOLDER_FILES` of a folder; the content decides the format, and messages use `name`.

    Files written by gnomon contain their device and model. For all others both are empty, and
    `gnomon.formats.tuning.keys` finds them. `texts` are the texts that the file shares with other files. Raises
    ProblemError for anything but tuning records, and for malformed records.
    """
    if isinstance(content, Mapping):
        content = {file: _unpacked(f"{name}/{file}", packed) for file, packed in content.items()}
        missing = [file for file in FOLDER_FILES if file not in content]
        if missing:
            raise ProblemError(f"the folder {shown(name)} has no {' and no '.join(missing)}", hint=_HINT)
        return read_metaschedule_database(content[WORKLOADS], content[RECORDS], texts=texts)
    content = _unpacked(name, content)
    first, damage = _first(content)
    if isinstance(first, dict) and not {"gnomon", "layer"}.isdisjoint(first):
        return read_tuning_records(content, texts)
    if not is_autotvm(first) and not is_ansor(first):
        raise ProblemError(f"{shown(name)} has no tuning records{_guess(first, damage)}", hint=_HINT)
    return read_tuner_log(content, "autotvm" if is_autotvm(first) else "ansor", texts=texts)


def _unpacked(name: str, content: bytes) -> bytes:
    """The content, decompressed if it is gzip data, up to a little over the limit. ProblemError for a damaged file."""
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            return file.read(MOST_LETTERS + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ProblemError(f"the gzip file {shown(name)} is damaged: {error}", hint=_HINT) from error


def replay_problem(records: TuningRecords) -> str | None:
    """The reason why today's TVM cannot replay these configurations; None if it can."""
    if tuner := _GONE.get(records.tuner):
        return f"{tuner} logs can be compared but not run: today's TVM has no {tuner}; tune again with gnomon tune"
    if (problem := kind_problem(records.device.target)) is not None:
        return problem
    lacking = [layer.name for layer in records.layers if not layer.workload]
    if lacking:
        return f"it does not contain the function of {shown(lacking[0])}: tune again with gnomon tune"
    return None


def kind_problem(target: Mapping[str, object]) -> str | None:
    """The reason why gnomon can neither compile for a target nor run code for it; None if it can."""
    kind = target.get("kind", "llvm")
    if kind == "llvm":
        return None
    return f"its target has the kind {shown(kind)}, but gnomon compiles only for processors (kind llvm)"


def _first(content: bytes) -> tuple[Any, str]:
    """The value of the first line that is JSON, or None, and the first fault before it, or ""."""
    quiet = Complaints(what="file", hint=_HINT)
    # The limit truncates only a later line: a first line that is longer than the limit cannot be read anyway.
    value = next((value for _, value in json_lines(content[: MOST_OF_A_LINE + 1], quiet, _RULES)), None)
    return value, quiet.sentences[0] if quiet.sentences else ""


def _guess(first: Any, damage: str) -> str:
    """A guess at the kind of a file without records, or its fault, for a message."""
    if isinstance(first, list) and len(first) == 2:
        return f": it seems to be part of a database of MetaSchedule, which is a folder with {WORKLOADS} and {RECORDS}"
    return f": {damage}" if damage else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedLine:
    """A line of a log as bytes, with its line end, and AutoTVM's index (None for Ansor, or if it is missing)."""

    line: bytes
    index: int | None


def logged_lines(content: bytes, tuner: Tuner, wanted: Mapping[int, TuningTrial]) -> dict[int, LoggedLine]:
    """The lines of trials of a log that was read before, by line number. Lines that have changed since are left out.

    ProblemError for a damaged compressed file.
    """
    lines: dict[int, LoggedLine] = {}
    for number, text in enumerate(io.BytesIO(_unpacked("the log", content)), 1):
        if number in wanted:
            line = text.removeprefix(_MARK)
            with contextlib.suppress(ProblemError):
                if read_tuner_log(line, tuner).trials == (wanted[number],):
                    index = _renamed(json.loads(line))["config"].get("index") if tuner == "autotvm" else None
                    lines[number] = LoggedLine(line=line, index=index if type(index) is int else None)
    return lines

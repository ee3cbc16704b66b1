"""The database of TVM's MetaSchedule: a file of workloads and a file of tuning records, both JSON lines.

A workload is ``["<structural hash>", "<base64>"]``: the base64 holds the length in eight bytes and a JSON graph of the
function. A record is ``[workload, [[instructions, decisions], seconds, target, arguments]]``: `workload` is the number
of a line of the first file, counted from 0, and a failure has ``[1e10]`` for seconds.

Source: ``src/s_tir/meta_schedule/database`` of Apache TVM, and files that 0.27.0.post1 wrote. TVM's reader parses every
line, so a blank line ends its process; it accepts neither NaN nor ``\\u``. TVM's writer gives a decimal number twenty
digits and a whole number no point, and writes true and false as 1 and 0. This module writes the same form, byte for
byte. A trace that TVM provides in memory still has its true and false.

A database does not contain the names and weights of layers, the untuned trials, the reasons for failures, or the server
that measured: all this is lost when a database is written.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.core.codec import decode
from gnomon.core.overlay.records import (
    Arguments,
    TunedDevice,
    TunedModel,
    TuningLayer,
    TuningRecords,
    identity_of,
    sound_times,
    trace_text,
)
from gnomon.core.overlay.trials import Name, Trace, TrialBuilder
from gnomon.core.sample import Failure
from gnomon.core.strict_json import Complaints, is_json, shown
from gnomon.errors import UsageError
from gnomon.formats.json_lines import json_lines, left_out, value_at
from gnomon.formats.tuning.records import MOST_LAYERS, MOST_TRIALS, as_times, unsound
from gnomon.formats.tuning.texts import Texts

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
FAILED_S = 1e10
"""The time in seconds that stands for a failure."""

_HINT = f"Give the {WORKLOADS} and {RECORDS} of one folder, as MetaSchedule wrote them."
_BEGIN = re.compile(r"\[(0|[1-9][0-9]{0,8}),\[", re.ASCII)
_HASH = re.compile(r"[0-9]{1,20}", re.ASCII)
_VERSION = re.compile(rb'"tvm_version": *"([0-9A-Za-z.+-]{1,64})"')
_END = 1 << 12
_LENGTH = 8
_BACKSLASHED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


def read_metaschedule_database(
    workloads: str | bytes, records: str | bytes, *, texts: Texts | None = None
) -> TuningRecords:
    """Read the two files, which name neither device nor model.

    `texts` are the texts that the files share with other databases. ProblemError with all faults of the first file, or
    of the second.
    """
    layers = _Workloads(complaints=Complaints(what=f"MetaSchedule database ({WORKLOADS})", hint=_HINT))
    for number, value in json_lines(workloads, layers.complaints):
        layers.take(number, value)
    layers.complaints.raise_any()
    complaints, bad = (Complaints(what=f"MetaSchedule database ({RECORDS})", hint=_HINT) for _ in range(2))
    trials = _Records(complaints=complaints, bad=bad, layers=layers.pairs, texts=texts or Texts())
    for number, value in json_lines(records, trials.bad, quick=trials.quick):
        trials.take(number, value)
    lost = left_out(trials.bad, len(trials.built), trials.complaints)
    trials.complaints.raise_any()
    named: dict[str, TuningLayer] = {}
    for index, (layer, workload) in enumerate(layers.pairs):
        arguments = trials.arguments.get(layer, ())
        shape = "x".join(map(str, arguments[-1][1])) if arguments else ""
        name = f"workload {index} {shape}".rstrip()
        named.setdefault(layer, TuningLayer(layer=layer, name=name, arguments=arguments, workload=workload))
    return TuningRecords(
        device=TunedDevice(key="", target=trials.target or {}),
        model=TunedModel(name=""),
        layers=tuple(named.values()),
        trials=trials.built.columns(),
        versions={"apache-tvm": ", ".join(sorted(layers.versions))} if layers.versions else {},
        left_out=lost,
    )


def write_metaschedule_database(records: TuningRecords) -> tuple[str, str]:
    """The texts of the two files of a record set, with the workloads first.

    A trial without valid times is written as a failure; untuned trials are left out. UsageError for records of another
    tuner, records without workloads, and content that TVM's reader does not accept.
    """
    hint = "Give records that gnomon tune wrote, or a database of MetaSchedule."
    lacking = [layer.name for layer in records.layers if not layer.workload]
    if records.tuner != "metaschedule" or lacking:
        why = f"the layer {shown(lacking[0])} has no workload" if lacking else f"their tuner is {records.tuner}"
        raise UsageError(f"these records cannot be written as a MetaSchedule database: {why}", hint=hint)
    indices = {layer.layer: index for index, layer in enumerate(records.layers)}
    target = dict(records.device.target) or None
    infos = {
        layer.layer: [["TENSOR", dtype, list(shape)] for dtype, shape in layer.arguments] or None
        for layer in records.layers
    }
    lines = []
    try:
        for trial in records.trials:
            if trial.trace is None:
                continue
            sound = trial.failure is None and sound_times(trial.samples_s)
            seconds = list(trial.samples_s) if sound else [FAILED_S]
            lines.append(tvm_json([indices[trial.layer], [trial.trace, seconds, target, infos[trial.layer]]]))
        heads = [tvm_json([layer.layer, layer.workload]) for layer in records.layers]
    except (KeyError, ValueError) as error:
        raise UsageError(f"these records cannot be written as a MetaSchedule database: {error}", hint=hint) from error
    return "".join(f"{line}\n" for line in heads), "".join(f"{line}\n" for line in lines)


def tvm_json(value: Any) -> str:
    """JSON as MetaSchedule writes it. ValueError for content that its reader does not accept."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(int(value))  # for true and false too
    if isinstance(value, float):
        if value - value != 0:
            raise ValueError(f"{value} is not a JSON number")
        return f"{value:.20g}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_quoted(name)}:{tvm_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(tvm_json, value)) + "]"
    raise ValueError(f"JSON cannot express a {type(value).__name__}")


def _quoted(text: str) -> str:
    letters = "".join(_BACKSLASHED.get(letter, letter) for letter in text)
    if any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in letters):
        raise ValueError(f"TVM cannot read the text {ascii(text)[:60]}")
    return f'"{letters}"'


@dataclass(slots=True, kw_only=True)
class _Workloads:
    """The lines of the first file: the hash and base64 of each."""

    complaints: Complaints
    pairs: list[tuple[str, str]] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)

    def take(self, number: int, value: Any) -> None:
        """Add a line. Records refer to workloads by line, so no line may be blank."""
        place = f"line {number}"
        if number != len(self.pairs) + 1 and not self.complaints.sentences:
            self.complaints.tell(place, f"a blank line precedes it, so its number is unclear ({len(self.pairs)}?)")
        self.pairs.extend([("", "")] * (number - len(self.pairs)))
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(item, str) for item in value):
            self.complaints.tell(place, f"a hash and a function in base64 expected, {shown(value)} found")
            return
        layer, workload = value
        if not _HASH.fullmatch(layer):
            self.complaints.tell(place, f"a hash of digits expected, {shown(layer)} found")
        elif self.seen.setdefault(layer, workload) != workload:
            self.complaints.tell(place, f"an earlier line has another workload with the hash {layer}")
        elif len(self.pairs) > MOST_LAYERS:
            self.complaints.tell(place, f"more than {MOST_LAYERS} workloads")
        else:
            self.pairs[-1] = (layer, workload)
            self._graph(place, workload)

    def _graph(self, place: str, workload: str) -> None:
        try:
            graph = base64.b64decode(workload, validate=True)
        except (binascii.Error, ValueError):
            self.complaints.tell(place, "the function is not base64")
            return
        if len(graph) < _LENGTH or int.from_bytes(graph[:_LENGTH], "little") != len(graph) - _LENGTH:
            self.complaints.tell(place, "the function does not have the length that it claims")
        elif version := _VERSION.search(graph[-_END:]):
            self.versions.add(version[1].decode())


@dataclass(slots=True, kw_only=True)
class _Records:
    """The lines of the second file; `bad` has the complaints about lines that are not records.

    After a trace and its times, most lines end like an earlier line of the same layer, which makes reading faster.
    """

    complaints: Complaints
    bad: Complaints
    layers: list[tuple[str, str]]
    texts: Texts
    built: TrialBuilder = field(default_factory=TrialBuilder)
    target: Mapping[str, object] | None = None
    arguments: dict[str, tuple[tuple[str, tuple[int, ...]], ...]] = field(default_factory=dict)
    _ends: set[tuple[str, str]] = field(default_factory=set)
    _met: tuple[str, str] | None = None

    def quick(self, number: int, line: str) -> bool:
        """Read a line if it ends like an earlier one; see `gnomon.formats.json_lines.Quick`."""
        self._met = None
        begin = _BEGIN.match(line)
        if begin is None or int(begin[1]) >= len(self.layers) or len(self.built) >= MOST_TRIALS:
            return False
        layer = self.layers[int(begin[1])][0]
        (name, trace), end = self.texts.trace_at(layer, line, begin.end())
        seconds, end = value_at(line, end + 1)
        times = as_times(seconds)
        if times is None or (layer, line[end:]) not in self._ends:
            self._met = layer, line[end:]  # `take` remembers it once it has read the whole line
            return False
        self._add(number, name, trace, times)
        return True

    def take(self, number: int, value: Any) -> None:
        """Add a line."""
        place, before = f"line {number}", len(self.complaints.sentences)
        if not (isinstance(value, list) and len(value) == 2 and isinstance(value[1], list) and len(value[1]) == 4):
            self.bad.tell(place, f"a workload and the four parts of a record expected, {shown(value)} found")
            return
        index, (trace, seconds, target, infos) = value
        if type(index) is not int or not 0 <= index < len(self.layers):
            self.complaints.tell(place, f"a workload number below {len(self.layers)} expected, {shown(index)} found")
            return
        layer = self.layers[index][0]
        times = () if seconds is None else as_times(seconds)
        if times is None:
            self.bad.tell(place, f"a list of seconds expected, {shown(seconds)} found")
        self._target(place, target)
        self._arguments(place, layer, infos)
        if not _is_trace(trace):
            self.bad.tell(place, f"a trace of instructions and decisions expected, {shown(trace)} found")
        elif times is not None:
            try:
                text = trace_text(trace)
                self._add(number, (layer, identity_of(layer, text)), (text,), times)
            except ValueError:
                self.bad.tell(place, "the trace contains NaN or infinity")
        if len(self.built) == MOST_TRIALS + 1:
            self.complaints.tell(place, f"more than {MOST_TRIALS} records")
        if self._met is not None and len(self.complaints.sentences) == before and len(self._ends) < MOST_LAYERS:
            self._ends.add(self._met)

    def _add(self, number: int, name: Name, trace: Trace, times: tuple[float, ...]) -> None:
        failure = _failed(times)
        self.built.add(name, trace, () if failure else times, failure, line=number)

    def _target(self, place: str, target: Any) -> None:
        if target is None:
            return
        if not isinstance(target, dict) or not is_json(target):
            self.complaints.tell(place, f"a target expected, {shown(target)} found")
        elif self.target is None:
            self.target = target
        elif self.target != target:
            self.complaints.tell(place, "the target differs from that of earlier lines, but a database has one device")

    def _arguments(self, place: str, layer: str, infos: Any) -> None:
        if infos is None:
            return
        good = isinstance(infos, list) and all(isinstance(info, list) and info[:1] == ["TENSOR"] for info in infos)
        wrong = Complaints(what="record", hint="")
        arguments = decode(Arguments, [info[1:] for info in infos], wrong) if good else ()
        if not good or wrong.sentences:
            self.complaints.tell(
                place, f"arguments such as ['TENSOR', 'float32', [1, 8]] expected, {shown(infos)} found"
            )
        elif self.arguments.setdefault(layer, arguments) != arguments:
            self.complaints.tell(place, "the arguments differ from those in earlier records of this workload")


def _is_trace(trace: Any) -> bool:
    return isinstance(trace, list) and len(trace) == 2 and all(isinstance(part, list) for part in trace)


def _failed(times: tuple[float, ...]) -> Failure | None:
    """The failure that these times stand for; None if they are valid."""
    if any(t >= FAILED_S for t in times) or not times:
        message = "MetaSchedule could not build or run the trial; the reason is in MetaSchedule's logs"
        return Failure(stage="run", kind="refused", transient=False, message=message)
    return unsound(times)

"""The file of tuning records: JSON lines, with a header first, and then layers and trials in any order.

``docs/jobs/tune.md`` describes the format. A truncated line is left out: its writer was killed, and the next writer
began a new line. A trial with impossible times becomes a failure when it is written or read, so such times are never
compared.

The first trial of a configuration contains the trace, which later trials need not repeat. In version 1 every trial
repeated it; before version 3 trials had no CPU times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, get_args

from gnomon.core.codec import Least0, Must, decode, fields_of, to_json
from gnomon.core.overlay.records import (
    UNTUNED,
    KeyOrNone,
    LayerDigest,
    Line,
    LineOrNone,
    TunedDevice,
    TunedModel,
    Tuner,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    identity_of,
    one_line,
    sound_times,
    trace_text,
)
from gnomon.core.overlay.trials import Name, Trace, TrialBuilder
from gnomon.core.sample import Failure
from gnomon.core.strict_json import Complaints, is_line, is_text, shown
from gnomon.formats.json_lines import LineRules, json_lines, part_of_a_line
from gnomon.formats.tuning.texts import Texts

MOST_TRIALS = 1 << 20
MOST_LAYERS = 1 << 16
MOST_SAMPLES = 1 << 16

T = TypeVar("T")
KIND = "tuning records"
VERSION = 3
_READ = (1, 2, VERSION)
_HINT = "Give a file that gnomon tune or gnomon overlay collect wrote; docs/jobs/tune.md describes it."
_RULES = LineRules(begun="any")
_MOST_NAME = 64
_CONFIGURATION = {"trial", "layer", "trace"}
_BEGIN = re.compile(r'\{"trial": "([0-9a-z]{1,16})", "layer": "([0-9A-Za-z]{1,64})"(, "trace": )?', re.ASCII)
_NO_TRACE: Trace = ("null",)
_Word = Annotated[str, one_line(_MOST_NAME)]
_Tuner = Annotated[str, Must(be=f"one of {', '.join(get_args(Tuner))}", fits=lambda value: value in get_args(Tuner))]
_Times = Annotated[tuple[Any, ...], Must(be="a list of seconds", fits=lambda value: as_times(value) is not None)]


def as_times(value: Any) -> tuple[float, ...] | None:
    """The value as samples if it is a list of numbers, which may be of any size and even NaN; otherwise None."""
    if not isinstance(value, list | tuple) or len(value) > MOST_SAMPLES or not {*map(type, value)} <= {int, float}:
        return None
    return tuple(float(t) for t in value)


def unsound(times_s: tuple[float, ...]) -> Failure | None:
    """The failure of a trial with impossible samples; None if they are possible."""
    if sound_times(times_s):
        return None
    wrong = next((t for t in times_s if not sound_times((t,))), None)
    message = "the trial has no times" if wrong is None else f"{wrong!r} is not a time"
    return Failure(stage="run", kind="wrong-output", transient=False, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The first line: everything about a record set except its layers and trials."""

    gnomon: str
    version: int
    tuner: _Tuner
    device: TunedDevice
    found_on: KeyOrNone = ""
    model: TunedModel
    versions: Mapping[str, Line]


def _is_failure(failure: Failure) -> bool:
    words = (failure.stage, failure.kind)
    return all(is_line(word, _MOST_NAME) for word in words) and is_text(failure.message + failure.log_tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The line of a trial, with the fields of `TuningTrial` (`trial` is its `configuration`). Times
    may be any numbers.
    """

    trial: _Word
    layer: LayerDigest
    trace: Any = None
    times_s: _Times
    cpu_s: _Times | None = None
    failure: Annotated[Failure, Must(be="a failure with one-line stage and kind", fits=_is_failure)] | None = None
    error: Least0 | None = None
    server: LineOrNone = ""
    at_s: Least0 | None = None


def header_line(records: TuningRecords) -> dict[str, object]:
    """The document of the first line."""
    return _document(_Header(gnomon=KIND, version=VERSION, **fields_of(_Header, records)))


def layer_line(layer: TuningLayer) -> dict[str, object]:
    """The document of a layer."""
    return _document(layer)


def trial_line(trial: TuningTrial, *, repeated: bool = False) -> dict[str, object]:
    """The document of a trial, without its trace if it is `repeated` from an earlier line. A failure has no times."""
    failure = trial_failure(trial)
    line = _Trial(
        trial=trial.configuration,
        layer=trial.layer,
        trace=None if repeated else trial.trace,
        times_s=() if failure else trial.times_s,
        cpu_s=None if failure else trial.cpu_s or None,
        failure=failure,
        error=trial.error if trial.error is not None and math.isfinite(trial.error) else None,
        server=trial.server,
        at_s=trial.at_s,
    )
    return _document(line)


def trial_failure(trial: TuningTrial) -> Failure | None:
    """The failure of a trial: its own, or that of impossible times or of outputs whose difference is not finite."""
    failure = trial.failure or unsound(trial.times_s + trial.cpu_s)
    if failure or trial.error is None or math.isfinite(trial.error):
        return failure
    message = f"the outputs differ by {trial.error!r}"
    return Failure(stage="check", kind="wrong-output", transient=False, message=message)


def record_lines(records: TuningRecords) -> list[dict[str, object]]:
    """The documents of all lines of a record set."""
    lines = [header_line(records), *map(layer_line, records.layers)]
    seen: set[Name] = set()
    for trial in records.trials:
        name = (trial.layer, trial.configuration)
        lines.append(trial_line(trial, repeated=name in seen))
        seen.add(name)
    return lines


def read_tuning_records(text: str | bytes, texts: Texts | None = None) -> TuningRecords:
    """Read a record file. Raises ProblemError with all faults, each with its line.

    `texts` are the texts that the file shares with other files.
    """
    complaints = Complaints(what="record file", hint=_HINT)
    file = _File(complaints=complaints, texts=texts or Texts())
    for number, value in json_lines(text, complaints, _RULES, file.quick):
        if not isinstance(value, dict):
            complaints.tell(f"line {number}", f"an object expected, {shown(value)} found")
        elif not file.take(number, value):
            break
    return file.finish()


@dataclass(slots=True, kw_only=True)
class _File:
    """The parts of a record file that have been read so far."""

    complaints: Complaints
    texts: Texts
    header: _Header | None = None
    seen_header: bool = False
    layers: dict[str, TuningLayer] = field(default_factory=dict)
    trials: TrialBuilder = field(default_factory=TrialBuilder)
    homeless: list[tuple[int, str]] = field(default_factory=list)

    def quick(self, number: int, line: str) -> bool:
        """Read a trial if its trace has known parts or is in an earlier line; see `json_lines.Quick`.

        The rest of the line after the trace is parsed as an object of its own. If it repeats none of the fields before
        it, the whole line is JSON with the same content.
        """
        begin = _BEGIN.match(line)
        if begin is None:
            return False
        name, trace, end = (begin[2], begin[1]), _NO_TRACE, begin.end()
        if begin[3]:
            (identity, trace), end = self.texts.trace_at(name[0], line, end)
            if identity != name:
                return False
        elif name[1] != UNTUNED and name not in self.trials.indices:
            return False
        rest = part_of_a_line("{" + line[end:].removeprefix(", "))
        if not line.startswith(", ", end) or not rest.keys().isdisjoint(_CONFIGURATION):
            return False
        wrong = Complaints(what="line", hint="")
        read = decode(_Trial, {"layer": name[0], "trial": name[1], **rest}, wrong)
        good = name[0] in self.layers and not wrong.sentences and not _times_problem(read)
        if not good or len(self.trials) >= MOST_TRIALS:
            return False
        self._add(number, read, trace)
        return True

    def take(self, number: int, value: dict[str, object]) -> bool:
        """Add a line. Return False if the rest of the file should not be read."""
        place = f"line {number}"
        if "gnomon" in value:
            if self.seen_header:
                self.complaints.tell(place, "gnomon: a second header; a file has records of only one device and model")
                return True
            self.seen_header = True
            self.header = self._header(place, value)
            return self.header is not None
        if not self.seen_header:
            self.complaints.tell(place, f'the header {{"gnomon": "{KIND}", ..}} expected as the first line')
            return False
        if "trial" in value:
            self._trial(number, value)
        elif "layer" in value:
            self._layer(place, value)
        else:
            self.complaints.tell(place, "a layer or a trial expected")
        if len(self.trials) > MOST_TRIALS or len(self.layers) > MOST_LAYERS:
            self.complaints.tell(place, f"more than {MOST_TRIALS} trials or {MOST_LAYERS} layers")
            return False
        return True

    def finish(self) -> TuningRecords:
        """The record set; ProblemError for its faults."""
        if not self.seen_header and not self.complaints.sentences:
            self.complaints.tell("line 1", "there is no header")
        if self.header is not None:
            for number, layer in self.homeless:
                if layer not in self.layers:
                    self.complaints.tell(f"line {number}", f"no line describes the layer {shown(layer)}")
        self.complaints.raise_any()
        header = self.header
        assert header is not None  # noqa: S101 - any fault of it has raised above
        return TuningRecords(
            layers=tuple(self.layers.values()),
            trials=self.trials.columns(),
            left_out=self.complaints.cut,
            **fields_of(TuningRecords, header),
        )

    def _header(self, place: str, value: dict[str, object]) -> _Header | None:
        """The header; None, with a complaint, if the rest of the file cannot be understood."""
        if value["gnomon"] != KIND:
            self.complaints.tell(place, f"gnomon: {KIND!r} expected, {shown(value['gnomon'])} found")
            return None
        version = value.get("version")
        if type(version) is not int or version not in _READ:
            message = (
                f"version: {', '.join(map(str, _READ[:-1]))} or {_READ[-1]} expected, {shown(version)} found "
                "(a newer gnomon may read it)"
            )
            self.complaints.tell(place, message)
            return None
        return self._decoded(_Header, place, value)

    def _layer(self, place: str, value: dict[str, object]) -> None:
        layer = self._decoded(TuningLayer, place, value)
        if layer is not None and self.layers.setdefault(layer.layer, layer) != layer:
            self.complaints.tell(place, f"layer: an earlier line describes {shown(layer.layer)} differently")

    def _trial(self, number: int, value: dict[str, object]) -> None:
        place = f"line {number}"
        before = len(self.complaints.sentences)
        line = self._decoded(_Trial, place, value)
        if line is None:
            return
        trace = self._trace(place, line, absent="trace" not in value)
        if (problem := _times_problem(line)) is not None:
            self.complaints.tell(place, problem)
        if line.layer not in self.layers:
            self.homeless.append((number, line.layer))
        if len(self.complaints.sentences) == before:
            self._add(number, line, (trace,))

    def _trace(self, place: str, line: _Trial, *, absent: bool) -> str:
        """The trace as JSON. A trace that is missing or does not match the line is reported."""
        name = (line.layer, line.trial)
        if absent and line.trial != UNTUNED:
            # If an earlier line is faulty, the trace may be in that line.
            if name not in self.trials.indices and not self.complaints.sentences:
                self.complaints.tell(place, f"trace: missing, and no earlier line has the trace of {shown(line.trial)}")
            return "null"
        try:
            text = trace_text(line.trace)
        except ValueError:
            self.complaints.tell(place, "trace: it contains NaN or infinity")
            return "null"
        expected = UNTUNED if line.trace is None else identity_of(line.layer, text)
        if line.trial != expected:
            message = f"trial: {expected} expected for this layer and trace, {shown(line.trial)} found"
            self.complaints.tell(place, message)
        return text

    def _add(self, number: int, line: _Trial, trace: Trace) -> None:
        times_s, cpu_s = tuple(map(float, line.times_s)), tuple(map(float, line.cpu_s or ()))
        failure = line.failure or unsound(times_s + cpu_s)
        self.trials.add(
            (line.layer, line.trial),
            trace,
            () if failure else times_s,
            failure,
            cpu_s=() if failure else cpu_s,
            at_s=line.at_s or 0.0,
            error=line.error,
            server=line.server,
            line=number,
        )

    def _decoded(self, kind: type[T], place: str, value: dict[str, object]) -> T | None:
        """The line as this type; None, with a complaint, if it is not of this type."""
        wrong = Complaints(what="line", hint="")
        record: T = decode(kind, value, wrong, "")
        for sentence in wrong.sentences:
            self.complaints.tell(place, sentence.lstrip(".: "))
        return None if wrong.sentences else record


def _times_problem(line: _Trial) -> str | None:
    """The fault of a line's times, without a check of the numbers themselves; None if there is none."""
    if line.failure and (line.times_s or line.cpu_s):
        return "times_s: a trial with a failure has no times"
    if line.cpu_s and len(line.cpu_s) != len(line.times_s):
        return f"cpu_s: {len(line.times_s)} times expected, as in times_s, {len(line.cpu_s)} found"
    return None


def _document(record: Any) -> dict[str, object]:
    """The JSON values of a record, without those that are None."""
    return {name: value for name, value in to_json(record).items() if value is not None}

"""The file of tuning records: JSON lines, a header and then layers and trials in any order, only ever appended.

The format is told in ``docs/jobs/tune.md``. A line that was cut off, as its writer was killed, was never complete and
is left out; the next writer began a line of its own. A trial whose times cannot be times is a failure when it is
written and when it is read, so that none of them is ever compared.

The fields of tuning records, taken one by one: what is wrong with one is told, and something harmless returned.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from gnomon.core.overlay.records import (
    TunedDevice,
    TunedModel,
    Tuner,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    configuration_id,
    sound_times,
)
from gnomon.core.sample import Failure
from gnomon.core.strict_json import Complaints, shown
from gnomon.formats.json_lines import LineRules, json_lines

MOST_TRIALS = 1 << 20
MOST_LAYERS = 1 << 16
MOST_SAMPLES = 1 << 16
MOST_LAYER_LETTERS = 1 << 16
_MOST_WHOLE = 1 << 53
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of an object at a place of a file. `within` is the object's own name, with a dot, if it has one."""

    data: Mapping[str, Any]
    place: str
    complaints: Complaints
    within: str = ""

    def tell(self, name: str, sentence: str) -> None:
        """Tell what is wrong with a field."""
        self.complaints.tell(self.place, f"{self.within}{name}: {sentence}")

    def only(self, *names: str) -> None:
        """Tell of fields that nobody knows."""
        for name in self.data:
            if name not in names:
                self.complaints.tell(self.place, f"there is no field {self.within}{shown(name)}")

    def text(self, name: str, *, most: int = 1000, default: str | None = None) -> str:
        """A text of one line; one that must not be empty where it has no default."""
        value = self.data.get(name, default)
        if isinstance(value, str) and value == default:
            return value
        if not isinstance(value, str) or not value or len(value) > most or not value.isprintable():
            self.tell(name, f"a text of one line and at most {most} letters expected, {self._found(name)} found")
            return default or ""
        return value

    def long_text(self, name: str) -> str:
        """A text of any letters that can be written again; empty without it."""
        value = self.data.get(name, "")
        if isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value):
            return value
        self.tell(name, f"a text expected, {self._found(name)} found")
        return ""

    def whole(self, name: str, *, least: int = 0, default: int | None = None) -> int:
        """A whole number from `least`."""
        value = self.data.get(name, default)
        if type(value) is int and least <= value <= _MOST_WHOLE:
            return value
        self.tell(name, f"a whole number from {least} expected, {self._found(name)} found")
        return least

    def number(self, name: str) -> float | None:
        """A number from 0; None without it."""
        value = self.data.get(name)
        if value is None:
            return None
        if type(value) in (int, float) and 0 <= value < math.inf:
            return float(value)
        self.tell(name, f"a number from 0 expected, {self._found(name)} found")
        return None

    def inner(self, name: str) -> Fields:
        """An object among the fields."""
        value = self.data.get(name)
        if not isinstance(value, dict):
            self.tell(name, f"an object expected, {self._found(name)} found")
            value = {}
        return Fields(data=value, place=self.place, complaints=self.complaints, within=f"{self.within}{name}.")

    def times(self, name: str) -> tuple[float, ...]:
        """A list of numbers, whatever they are: see `unsound`."""
        value = self.data.get(name)
        found = as_times(value)
        if found is None:
            self.tell(name, f"a list of seconds expected, {self._found(name)} found")
        return found or ()

    def _found(self, name: str) -> str:
        value = self.data.get(name, _ABSENT)
        return "nothing" if value is _ABSENT else shown(value)


def as_times(value: Any) -> tuple[float, ...] | None:
    """Samples, if the value is a list of numbers; they may be anything, even NaN."""
    if not isinstance(value, list) or len(value) > MOST_SAMPLES or any(type(t) not in (int, float) for t in value):
        return None
    return tuple(float(t) for t in value)


def unsound(times_s: tuple[float, ...]) -> Failure | None:
    """The failure of a trial whose samples cannot be times at all; None if they can."""
    if sound_times(times_s):
        return None
    wrong = next((t for t in times_s if not sound_times((t,))), None)
    told = "there are no times at all" if wrong is None else f"{wrong!r} is not a time"
    return Failure(stage="run", kind="wrong-output", transient=False, message=told)


def is_json(value: Any) -> bool:
    """Whether JSON can say a value: it may hold NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


KIND = "tuning records"
VERSION = 1

_HINT = "Give a file that gnomon tune or gnomon overlay collect wrote; docs/jobs/tune.md describes it."
_RULES = LineRules(begun="any")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}|", re.ASCII)
_MOST_ARGUMENTS = 1 << 12
_MOST_AXES = 32


def header_line(records: TuningRecords) -> dict[str, Any]:
    """The document of the first line: all that is said of a record set but its layers and trials."""
    device, model = records.device, records.model
    return {
        "gnomon": KIND,
        "version": VERSION,
        "tuner": records.tuner,
        "device": {
            "key": device.key,
            "target": dict(device.target),
            "linker": device.linker,
            "threads": device.threads,
        },
        "found_on": records.found_on,
        "model": {"name": model.name, "sha256": model.sha256, "dtype": model.dtype},
        "versions": dict(records.versions),
    }


def layer_line(layer: TuningLayer) -> dict[str, Any]:
    """The document of a layer."""
    flops = {} if layer.flops is None else {"flops": layer.flops}
    return {
        "layer": layer.layer,
        "name": layer.name,
        "weight": layer.weight,
        "arguments": [[dtype, list(shape)] for dtype, shape in layer.arguments],
        **flops,
        "workload": layer.workload,
    }


def trial_line(trial: TuningTrial) -> dict[str, Any]:
    """The document of a trial. Invalid times, and an error that is not a number, are written as a failure."""
    failure = trial.failure or unsound(trial.times_s)
    error = trial.error
    if error is not None and not math.isfinite(error):
        failure = failure or Failure(
            stage="check", kind="wrong-output", transient=False, message=f"the outputs differ by {error!r}"
        )
        error = None
    document: dict[str, Any] = {
        "trial": trial.configuration,
        "layer": trial.layer,
        "trace": trial.trace,
        "times_s": [] if failure else list(trial.times_s),
    }
    if failure is not None:
        document["failure"] = {
            "stage": failure.stage,
            "kind": failure.kind,
            "transient": failure.transient,
            "message": failure.message,
            **({"log_tail": failure.log_tail} if failure.log_tail else {}),
        }
    if error is not None:
        document["error"] = error
    return {**document, "server": trial.server, "at_s": trial.at_s}


def read_tuning_records(text: str | bytes) -> TuningRecords:
    """Reads a record file. Raises ProblemError with everything that is wrong, each with its line."""
    complaints = Complaints(what="record file", hint=_HINT)
    file = _File(complaints=complaints)
    for number, value in json_lines(text, complaints, _RULES):
        if not isinstance(value, dict):
            complaints.tell(f"line {number}", f"an object expected, {shown(value)} found")
        elif not file.take(number, Fields(data=value, place=f"line {number}", complaints=complaints)):
            break
    return file.finish()


@dataclass(slots=True, kw_only=True)
class _File:
    """What was read so far."""

    complaints: Complaints
    header: TuningRecords | None = None
    seen_header: bool = False
    layers: dict[str, TuningLayer] = field(default_factory=dict)
    trials: list[tuple[int, TuningTrial]] = field(default_factory=list)

    def take(self, number: int, line: Fields) -> bool:
        """Take a line; False if nothing behind it is worth reading."""
        if "gnomon" in line.data:
            if self.seen_header:
                line.tell("gnomon", "a second header; a file has the records of one device and model")
                return True
            self.seen_header = True
            self.header = _header(line)
            return self.header is not None
        if not self.seen_header:
            self.complaints.tell(line.place, f'the header {{"gnomon": "{KIND}", ..}} expected as the first line')
            return False
        if "trial" in line.data:
            self.trials.append((number, _trial(line)))
        elif "layer" in line.data:
            self._layer(_layer(line), line)
        else:
            self.complaints.tell(line.place, "neither a layer nor a trial")
        if len(self.trials) > MOST_TRIALS or len(self.layers) > MOST_LAYERS:
            self.complaints.tell(line.place, f"more than {MOST_TRIALS} trials or {MOST_LAYERS} layers")
            return False
        return True

    def finish(self) -> TuningRecords:
        """The record set; ProblemError for what was wrong."""
        if not self.seen_header and not self.complaints.told:
            self.complaints.tell("line 1", "there is no header, and nothing else")
        if self.header is not None:
            for number, trial in self.trials:
                if trial.layer and trial.layer not in self.layers:
                    self.complaints.tell(f"line {number}", f"there is no layer {shown(trial.layer)}")
        self.complaints.raise_any()
        assert self.header is not None  # noqa: S101 - what is wrong with it was told
        return TuningRecords(
            device=self.header.device,
            model=self.header.model,
            layers=tuple(self.layers.values()),
            trials=tuple(trial for _, trial in self.trials),
            found_on=self.header.found_on,
            tuner=self.header.tuner,
            versions=self.header.versions,
        )

    def _layer(self, layer: TuningLayer, line: Fields) -> None:
        before = self.layers.setdefault(layer.layer, layer)
        if layer.layer and before != layer:
            line.tell("layer", f"{shown(layer.layer)} is there already, and is another there")


def _header(line: Fields) -> TuningRecords | None:
    """A header without layers and trials; None, and told, where the rest of the file cannot be understood."""
    if line.data["gnomon"] != KIND:
        line.tell("gnomon", f"{KIND!r} expected, {shown(line.data['gnomon'])} found")
        return None
    version = line.data.get("version")
    if type(version) is not int or version != VERSION:
        line.tell("version", f"{VERSION} expected, {shown(version)} found: a newer gnomon may read it")
        return None
    line.only("gnomon", "version", "tuner", "device", "found_on", "model", "versions")
    tuner: Tuner = "metaschedule"
    named = line.data.get("tuner")
    if isinstance(named, str) and named in get_args(Tuner):
        tuner = next(known for known in get_args(Tuner) if known == named)
    else:
        line.tell("tuner", f"one of {', '.join(get_args(Tuner))} expected, {shown(named)} found")
    device, model, versions = line.inner("device"), line.inner("model"), line.inner("versions")
    device.only("key", "target", "linker", "threads")
    model.only("name", "sha256", "dtype")
    target = device.inner("target").data
    if not is_json(target):
        device.tell("target", "a number that is none")
    digest = model.text("sha256", default="")
    if not _DIGEST.fullmatch(digest):
        model.tell("sha256", f"64 hexadecimal digits expected, {shown(digest)} found")
    return TuningRecords(
        device=TunedDevice(
            key=device.text("key", most=200),
            target=target,
            linker=device.text("linker", default=""),
            threads=device.whole("threads", default=0),
        ),
        model=TunedModel(name=model.text("name"), sha256=digest, dtype=model.text("dtype", default="float32")),
        layers=(),
        trials=(),
        found_on=line.text("found_on", most=200, default=""),
        tuner=tuner,
        versions={name: versions.text(name) for name in versions.data},
    )


def _layer(line: Fields) -> TuningLayer:
    line.only("layer", "name", "weight", "arguments", "flops", "workload")
    workload = line.long_text("workload")
    if not _BASE64.fullmatch(workload):
        line.tell("workload", "base64 expected")
    return TuningLayer(
        layer=line.text("layer", most=MOST_LAYER_LETTERS),
        name=line.text("name"),
        weight=line.whole("weight", least=1, default=1),
        arguments=_arguments(line),
        flops=line.number("flops"),
        workload=workload,
    )


def _arguments(line: Fields) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = line.data.get("arguments", [])
    if not isinstance(found, list) or len(found) > _MOST_ARGUMENTS:
        line.tell("arguments", f"a list of data types and shapes expected, {shown(found)} found")
        return ()
    read = [as_argument(item) for item in found]
    if None in read:
        line.tell("arguments", f"a data type and a shape expected, {shown(found[read.index(None)])} found")
    return tuple(item for item in read if item is not None)


def as_argument(item: Any) -> tuple[str, tuple[int, ...]] | None:
    """Data type and shape, if the value is such a pair."""
    if not isinstance(item, list) or len(item) != 2:
        return None
    dtype, shape = item
    if not isinstance(dtype, str) or not 0 < len(dtype) <= 64 or not dtype.isprintable():
        return None
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        return None
    if any(type(size) is not int or not 0 <= size < 1 << 53 for size in shape):
        return None
    return dtype, tuple(shape)


def _trial(line: Fields) -> TuningTrial:
    line.only("trial", "layer", "trace", "times_s", "failure", "error", "server", "at_s")
    layer, configuration = line.text("layer", most=MOST_LAYER_LETTERS), line.text("trial", most=64)
    trace, times_s = line.data.get("trace"), line.times("times_s")
    try:
        expected = configuration_id(layer, trace)
    except ValueError:
        line.tell("trace", "it holds a number that is none")
    else:
        if layer and configuration != expected:
            line.tell("trial", f"{shown(configuration)} is not what its layer and trace make: that is {expected}")
    failure = _failure(line.inner("failure")) if line.data.get("failure") is not None else None
    if failure and times_s:
        line.tell("times_s", "there are both times and a failure")
    failure = failure or unsound(times_s)
    return TuningTrial(
        layer=layer,
        configuration=configuration,
        trace=trace,
        times_s=() if failure else times_s,
        failure=failure,
        error=line.number("error"),
        server=line.text("server", default=""),
        at_s=line.number("at_s") or 0.0,
    )


def _failure(fields: Fields) -> Failure:
    fields.only("stage", "kind", "transient", "message", "log_tail")
    transient = fields.data.get("transient", False)
    if not isinstance(transient, bool):
        fields.tell("transient", f"true or false expected, {shown(transient)} found")
    return Failure(
        stage=fields.text("stage", most=64),
        kind=fields.text("kind", most=64),
        transient=transient is True,
        message=fields.long_text("message"),
        log_tail=fields.long_text("log_tail"),
    )

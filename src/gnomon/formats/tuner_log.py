"""What the logs of AutoTVM and Ansor have in common: a line a trial, errors by number, nothing about the network.

Both write 1e9 or 1e10 seconds for what failed. Source of the numbers: ``MeasureErrorNo`` in ``autotvm/measure`` and
``auto_scheduler/measure.py`` of Apache TVM up to 0.19; they are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.strict_json import is_text, shown
from gnomon.core.tuning_record import (
    TunedDevice,
    TunedModel,
    Tuner,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    configuration_id,
)
from gnomon.formats.complaints import Complaints
from gnomon.formats.tuning_fields import MOST_LAYER_LETTERS, MOST_LAYERS, MOST_TRIALS, as_times, unsound

FAILED_S = 1e9
"""From so many seconds on, a time stands for a failure."""
_MOST_NAME = 200
_ERRORS: Mapping[int, tuple[str, str, str]] = {
    1: ("build", "refused", "the schedule could not be made"),
    2: ("build", "refused", "the host's part could not be compiled"),
    3: ("build", "refused", "the device's part could not be compiled"),
    4: ("run", "crash", "it failed on the device"),
    5: ("check", "wrong-output", "its output was wrong"),
    6: ("build", "hang", "building took too long"),
    7: ("run", "hang", "running took too long"),
    8: ("run", "refused", "it failed for an unknown reason"),
}
_OTHER = ("run", "refused", "it failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A line of a log: its layer and a name for it, the configuration, the target in the tuner's words, the result.

    `result` is ``[[seconds, ..], error number, seconds of all, time of day, ..]``.
    """

    layer: str
    name: str
    trace: Any
    target: str
    result: Any


@dataclass(slots=True, kw_only=True)
class TunerLog:
    """The entries of a log, as they come."""

    tuner: Tuner
    complaints: Complaints
    target: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    trials: list[TuningTrial] = field(default_factory=list)

    def take(self, place: str, entry: LogEntry) -> bool:
        """Take an entry; False if there are too many."""
        tell = self.complaints.tell
        if self.target is None:
            self.target = entry.target
        if entry.target != self.target:
            tell(place, f"the target {shown(entry.target)} is not that of the lines before, {shown(self.target)}")
        if not 0 < len(entry.layer) <= MOST_LAYER_LETTERS or not is_text(entry.layer + entry.target):
            tell(place, f"a layer of 1 to {MOST_LAYER_LETTERS} letters expected, {shown(entry.layer)} found")
        read = _result(entry.result)
        try:
            configuration = configuration_id(entry.layer, entry.trace)
        except ValueError:
            tell(place, "the configuration holds a number that is none")
        else:
            if read is None:
                tell(place, f"[[seconds], error number, ..] expected as the result, {shown(entry.result)} found")
            else:
                times_s, failure, at_s = read
                trial = TuningTrial(
                    layer=entry.layer,
                    configuration=configuration,
                    trace=entry.trace,
                    times_s=times_s,
                    failure=failure,
                    at_s=at_s,
                )
                self.trials.append(trial)
        self.names.setdefault(entry.layer, _plain(entry.name))
        if len(self.trials) > MOST_TRIALS or len(self.names) > MOST_LAYERS:
            tell(place, f"more than {MOST_TRIALS} trials or {MOST_LAYERS} layers")
            return False
        return True

    def finish(self, key: str, model: TunedModel) -> TuningRecords:
        """The record set of the device `key`; ProblemError for what was wrong, and for a log without a trial."""
        if not self.trials and not self.complaints.told:
            self.complaints.tell("line 1", "there is no trial")
        self.complaints.raise_any()
        used: dict[str, int] = {}
        layers = []
        for layer, name in self.names.items():
            used[name] = used.get(name, 0) + 1
            nth = "" if used[name] == 1 else f" ({used[name]})"
            layers.append(TuningLayer(layer=layer, name=f"{name}{nth}"))
        return TuningRecords(
            device=TunedDevice(key=key, target=read_target(self.target or "")),
            model=model,
            layers=tuple(layers),
            trials=tuple(self.trials),
            tuner=self.tuner,
        )


def read_target(text: str) -> dict[str, Any]:
    """A target of old TVM, ``llvm -keys=cpu -mcpu=cortex-a72 -link-params``, as a mapping; a flag has True."""
    words = text.split()
    found: dict[str, Any] = {"kind": words[0]} if words else {}
    for word in words[1:]:
        name, equals, value = word.removeprefix("-").partition("=")
        found.setdefault(name, value if equals else True)
    return found


def shape_text(shape: Any) -> str:
    """``1x64x56x56``; empty for what is no shape."""
    good = isinstance(shape, list) and shape and all(type(size) is int for size in shape)
    return "x".join(map(str, shape)) if good else ""


def _result(result: Any) -> tuple[tuple[float, ...], Failure | None, float] | None:
    """Times, failure and the time of day; None for what is no result."""
    if not isinstance(result, list) or len(result) < 2 or type(result[1]) is not int:
        return None
    times_s, number, at = as_times(result[0]), result[1], result[3] if len(result) > 3 else 0.0
    if times_s is None or type(at) not in (int, float) or not 0 <= at < 1e12:
        return None
    if number != 0:
        stage, kind, told = _ERRORS.get(number, _OTHER)
        return (
            (),
            Failure(stage=stage, kind=kind, transient=False, message=f"{told} (error {shown(number)})"),
            float(at),
        )
    failure = unsound(times_s)
    if failure is None and any(t >= FAILED_S for t in times_s):
        failure = Failure(stage="run", kind="refused", transient=False, message="its time stands for a failure")
    return () if failure else times_s, failure, float(at)


def _plain(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:_MOST_NAME] or "layer"

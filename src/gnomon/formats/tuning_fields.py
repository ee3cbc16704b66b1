"""The fields of tuning records, taken one by one: what is wrong with one is told, and something harmless returned."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.strict_json import shown
from gnomon.core.tuning_record import sound_times
from gnomon.formats.complaints import Complaints

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
    told = "there are no times at all" if wrong is None else f"{wrong!r} is no time"
    return Failure(stage="run", kind="wrong-output", transient=False, message=told)


def is_json(value: Any) -> bool:
    """Whether JSON can say a value: it may hold NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True

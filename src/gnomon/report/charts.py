"""Small charts as coordinates, for pages that draw them as SVG: intervals in rows, and points with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.report import units

_FAR = 20.0
"""An axis is logarithmic where the largest value is so many times the least."""
_BEYOND = 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number with its interval, of which either end may not be known; nor is what is not finite."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> bool:
        """Whether there is a number, without which nothing can be drawn."""
        return finite(self.value) is not None

    def times(self, factor: float) -> Value:
        """The same in another unit."""
        value, low, high = (None if one is None else one * factor for one in (self.value, self.low, self.high))
        return Value(value=value, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on an axis in pixels, and its number."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A value in pixels; an end that is not known is at its value."""

    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A scale from values to pixels, `start` to `end`, with its ticks."""

    start: float
    end: float
    low: float
    high: float
    logarithmic: bool
    ticks: tuple[Tick, ...]

    def place(self, value: float) -> float:
        """Pixels of a finite value; one that lies outside is put at the end."""
        return _place(value, self.low, self.high, self.start, self.end, self.logarithmic)

    def drawn(self, found: Value) -> Drawn:
        """A value with its interval in pixels. ValueError where it is not known."""
        at = finite(found.value)
        if at is None:
            raise ValueError("what is not known has no place")
        low, high = (at if (end := finite(one)) is None else end for one in (found.low, found.high))
        return Drawn(at=self.place(at), low=self.place(low), high=self.place(high))


def finite(number: float | None) -> float | None:
    """The number, and None for one that is not finite, or so large that no axis could have room around it."""
    return number if number is not None and abs(number) < _BEYOND else None


def axis(values: Sequence[Value], start: float, end: float, *, most: int = 6, even: bool = False) -> Axis:
    """An axis that holds all the values with their intervals and some room; an `even` one is never logarithmic."""
    known = [one for v in values for end in (v.value, v.low, v.high) if (one := finite(end)) is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    logarithmic = not even and low > 0 and high / low > _FAR
    if logarithmic:
        low, high = low / 1.2, high * 1.2
    else:
        room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
        low, high = max(0.0, low - room) if low >= 0 else low - room, high + room
    places = units.log_ticks(low, high, most) if logarithmic else units.steps(low, high, most)
    ticks = tuple(Tick(at=_place(v, low, high, start, end, logarithmic), text=_text(v)) for v in places)
    return Axis(start=start, end=end, low=low, high=high, logarithmic=logarithmic, ticks=ticks)


def _place(value: float, low: float, high: float, start: float, end: float, logarithmic: bool) -> float:
    value = min(max(value, low), high)
    if logarithmic:
        value, low, high = math.log(value), math.log(low), math.log(high)  # their quotients may be beyond a float
    share = (value - low) / (high - low)
    return round(start + share * (end - start), 2)


def _text(value: float) -> str:
    if not value:
        return "0"
    return f"{value:.1e}" if abs(value) < 1e-4 or abs(value) >= 1e6 else f"{float(units.digits(value)):g}"

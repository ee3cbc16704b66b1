"""Numbers for people: three significant digits with a suitable unit, and round numbers for axes."""

from __future__ import annotations

import math
from time import localtime, strftime

CLOCKS = {"cpu": "CPU time", "wall": "wall time"}
"""The names of the clocks by which times are compared."""

UNKNOWN = "[not known]"
"""The replacement for an interval that is unbounded or too wide to be useful."""

_WIDEST = 10.0
"""The largest ratio of an interval's ends at which the interval is still useful."""


def digits(value: float | None) -> str:
    """Three significant digits: 0.0123, 1.23, 12.3, 123, 1230; "unknown" for an unknown value.

    An exponent is used only below 1e-15 and from 1e18 on.
    """
    if value is None or value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "unknown"
    if not 1e-15 <= abs(value) < 1e18:
        return f"{value:.2e}"
    places = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(value))):
        places -= 1  # 9.996 became 10.0
    return f"{rounded:.{max(places, 0)}f}"


def time(seconds: float | None) -> str:
    """A time: "12.3 us", "1.23 ms", "4.56 s"; "-" for None."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if 0 < abs(seconds) < 0.5e-9:
        return "< 1 ns"
    value, unit = _scaled(seconds)
    return f"{digits(value)} {unit}"


def counted_time(seconds: float | None, resolution_s: float) -> str:
    """A time counted in steps of `resolution_s` (0: in fine steps); less than a step is "< 1 us (resolution)"."""
    if seconds is None or not 0 <= seconds < resolution_s:
        return time(seconds)
    value, unit = _scaled(resolution_s)
    return f"< {value:.3g} {unit} (resolution)"


def interval(low_s: float | None, high_s: float | None, like_s: float | None, *, predicted: bool = False) -> str:
    """An interval in the unit of `like_s`: "[1.20, 1.30]"; `UNKNOWN` without a bound, "-" without `like_s`.

    A measured interval that is `vague` counts as unbounded; a `predicted` one may be wide and begin at 0.
    """
    if like_s is None:
        return "-"
    if low_s is None or high_s is None or not math.isfinite(high_s) or low_s < 0:
        return UNKNOWN
    if vague(low_s, high_s) and not predicted:
        return UNKNOWN
    scale = like_s / _scaled(like_s)[0] if like_s else 1.0
    return f"[{digits(low_s / scale)}, {digits(high_s / scale)}]"


def ratio_interval(low: float | None, high: float | None) -> str:
    """The interval of a ratio in brackets; `UNKNOWN` if it is unbounded or vague."""
    if low is None or high is None or not math.isfinite(high) or vague(low, high):
        return UNKNOWN
    return f"[{digits(low)}, {digits(high)}]"


def vague(low: float, high: float) -> bool:
    """Whether an interval is too wide to be useful: it reaches 0, or its ends differ by more than a factor of ten."""
    return low <= 0 or high > _WIDEST * low


def _scaled(seconds: float) -> tuple[float, str]:
    size = abs(seconds)
    for factor, unit in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if size < 999.5 * factor:
            return (seconds / factor, unit) if size or unit == "us" else (0.0, "s")
    return seconds, "s"


def millis(largest_s: float) -> tuple[float, str]:
    """The factor for seconds on an axis that reaches to `largest_s`, and the unit of the product."""
    return next(((1 / f, u) for f, u in ((1e-6, "us"), (1e-3, "ms")) if largest_s < 999.5 * f), (1.0, "s"))


def energy(joules: float | None) -> str:
    """An energy: "12.3 uJ", "1.23 mJ", "4.56 J"; "-" for None. `interval` also writes the interval of an energy."""
    if joules is None or not math.isfinite(joules):
        return "-"
    value, unit = _scaled(joules)
    return f"{digits(value)} {unit[:-1]}J"


def duration(seconds: float | None) -> str:
    """A duration to wait: "8 s", "3 min 20 s", "2 h 5 min"; "-" if unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def day(at_s: float | None) -> str:
    """The local date of a moment: "2026-11-29"; "" if it is not known."""
    return strftime("%Y-%m-%d", localtime(at_s)) if at_s else ""


def mebibytes(size_bytes: float | None) -> str:
    """Memory in MiB: "123 MiB"; "-" if unknown."""
    return "-" if size_bytes is None else f"{digits(size_bytes / 2**20)} MiB"


def count(number: float | None) -> str:
    """A large count: "123", "1.23 k", "4.56 M", "7.89 G"; "-" if unknown."""
    if number is None:
        return "-"
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= 0.9995 * factor:
            return f"{digits(number / factor)}{unit}"
    return f"{number:.0f}"


def percent(part: float | None) -> str:
    """A change with its sign: "+1.2 %"; "-" if unknown."""
    if part is None or not math.isfinite(part):
        return "-"
    return f"{round(part * 100, 1) + 0.0:+.1f} %"  # adding 0 turns -0.0 into 0.0


def share(part: float | None) -> str:
    """A part of a whole: "82 %"; "-" if unknown."""
    return "-" if part is None or not math.isfinite(part) else f"{part * 100:.0f} %"


def small(value: float | None) -> str:
    """A difference: "0", "1.2e-07"."""
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def value(number: float | None, unit: str) -> str:
    """A number with any unit: a time, an energy, memory in MiB (in bytes if it is small), or a difference."""
    if unit == "s":
        return time(number)
    if unit == "J":
        return energy(number)
    if unit == "B":
        return mebibytes(number) if number is None or not 0 < number < 2**16 else f"{number:.0f} B"
    if not unit:
        return small(number)
    return "-" if number is None else f"{digits(number)} {unit}"


def limited(number: float, unit: str) -> str:
    """A number in the unit of a limit, which is "" for a count."""
    return value(number, unit) if unit else f"{number:g}"


def steps(low: float, high: float, most: int) -> list[float]:
    """Round numbers on a linear axis, about `most` of them."""
    raw = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(k * unit for k in (1, 2, 2.5, 5, 10) if k * unit >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """At most `most` round numbers on a logarithmic axis; over very many decades, only every n-th power of ten."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for between in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in between if low <= m * 10.0**e <= high]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]

"""Reads values written as text: NAME=1,3,224,224, KEY=VALUE, 2ms, 4-7.

Each function raises ValueError with the reason if the text is invalid.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gnomon.errors import UsageError

WAIT_S = 600.0
"""The time for which a device may stay disconnected, in seconds."""
SHORT_NAMES = {"ort": "onnxruntime", "ov": "openvino", "tflite": "litert", "torch": "pytorch"}
"""Runtimes by the short names that people use."""

MOST_SEED = 2**31 - 1
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPANS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_FAMILIES = {
    "B": {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "J": {"nJ": 1e-9, "uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3},
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TOOLCHAIN_KEY = re.compile(r"[A-Za-z0-9_+-]+\.[A-Za-z_][A-Za-z0-9_]*")


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input's name and dimensions. A dimension may be 0, because a decoder's first call has no past. The name may
    contain "=".
    """
    name, sign, sizes = text.rpartition("=")
    numbers = sizes.split(",") if sizes else []
    if not sign or not name or not all(re.fullmatch(r" *[0-9]{1,9} *", n) for n in numbers):
        raise ValueError(f"{text!r} is not a shape: give NAME=1,3,224,224 (whole numbers and commas)")
    return name, tuple(int(n) for n in numbers)


def dimension(text: str) -> tuple[str, tuple[int, ...]]:
    """The name of a dimension and its sizes, each once; 0 is allowed, as in `shape`."""
    name, _, sizes = text.rpartition("=")
    if not name or not re.fullmatch(r" *[0-9]{1,9} *(, *[0-9]{1,9} *)*", sizes, re.ASCII):
        raise ValueError(f"{text!r} is not a dimension: give NAME=64, or several sizes as NAME=16,64")
    return name, tuple(dict.fromkeys(int(n) for n in sizes.split(",")))


def input_files(text: str) -> tuple[str, tuple[Path, ...]]:
    """An input's name and its .npy files: one file if the whole text is an existing path, otherwise files separated
    by commas.
    """
    name, _, files = text.partition("=")
    if not name or not files:
        raise ValueError(f"{text!r} names no file: give NAME=FILE.npy")
    return name, (Path(files),) if Path(files).exists() else tuple(map(Path, files.split(",")))


def environment(text: str) -> dict[str, str]:
    """The environment variables of one variant. A comma that is not followed by KEY= belongs to the value."""
    variables: dict[str, str] = {}
    for part in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*=)", text):
        key, sign, value = part.partition("=")
        if not sign or not _KEY.fullmatch(key):
            raise ValueError(f"{part!r} is not an environment variable: give KEY=VALUE[,KEY=VALUE]")
        if "\0" in value:
            raise ValueError(f"the value of {key} holds a NUL character")
        if key in variables:
            raise ValueError(f"{key} is given twice in {text!r}; give another --env for another variant")
        variables[key] = value
    return variables


def runtime_options(text: str) -> dict[str, str]:
    """Session options of one runtime, each by RUNTIME:KEY. A comma that is not followed by KEY= belongs to the
    value.
    """
    runtime, _, _ = text.partition("=")[0].rpartition(":")
    parts = [part.partition("=") for part in re.split(rf",(?={_OPTION_KEY.pattern}=)", text[len(runtime) + 1 :])]
    settings = {f"{runtime}:{key}": value for key, sign, value in parts if sign and _OPTION_KEY.fullmatch(key)}
    if not runtime or len(settings) < len(parts):
        raise ValueError(f"{text!r} does not set each option of a runtime once: give RUNTIME:KEY=VALUE[,KEY=VALUE]")
    return settings


def toolchain_setting(text: str) -> tuple[str, str]:
    """A setting of a toolchain: its name, prefixed with the toolchain's name, and its value."""
    key, sign, value = text.partition("=")
    if not sign or not value or not _TOOLCHAIN_KEY.fullmatch(key):
        raise ValueError(f"{text!r} is not a setting: give TOOLCHAIN.KEY=VALUE")
    return key, value


def _number(text: str) -> float:
    """The number in a string; NaN for any other string."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def seconds(text: str) -> float:
    """A time span in seconds: a finite number above 0."""
    number = _number(text)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not a finite number of seconds above 0")
    return number


def latency(text: str) -> float:
    """A latency: a number above 0 with its unit. A missing unit is an error, because 2 would mean seconds but is
    probably meant as ms.
    """
    return _with_unit(text, _UNITS, "a latency")


def span(text: str) -> float:
    """A time span with its unit. A missing unit is an error, because 10 may mean minutes or seconds."""
    return _with_unit(text, _SPANS, "a time")


def _with_unit(text: str, units: Mapping[str, float], what: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    number = float(match[1]) * units.get(match[2], math.nan) if match else math.nan
    if not (math.isfinite(number) and number > 0):
        *first, last = units
        raise ValueError(f"{text!r} is not {what} above 0: give a number and {', '.join(first)} or {last}")
    return number


def quantity(text: str, unit: str | None = None) -> float:
    """An amount with a unit of bytes, seconds or joules; a number without a unit is in `unit`.

    The result is in `unit`, such as MB; without `unit` it is in bytes, seconds or joules, or a plain number. 1 GB is
    10^9 bytes, and 1 GiB is 2^30 bytes.
    """
    match = _QUANTITY.fullmatch(text.strip())
    given = match[2] if match else ""
    family = next((units for units in _FAMILIES.values() if given in units), None)
    if match is None or (given and family is None):
        names = ", ".join(name for units in _FAMILIES.values() for name in units)
        raise ValueError(f"{text!r} is not an amount: give a number with a unit of: {names}")
    if given and unit is not None and unit not in (family or {}):
        raise ValueError(f"{text!r}: give an amount in {unit or 'plain numbers'}, not in {given}")
    number = float(match[1])
    if given and family is not None and given != unit:
        number = number * family[given] / (1.0 if unit is None else family[unit])
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not finite")
    return number


def quantity_in(place: str, most: float | str, unit: str) -> float:
    """The limit at a place, such as memory:gpu, in the place's unit. UsageError for other units."""
    try:
        return quantity(most, unit) if isinstance(most, str) else float(most)
    except ValueError as error:
        raise UsageError(f"the limit on {place}: {error}", hint="Give an amount such as 4GB.") from None


def percent(text: str) -> float:
    """A share in per cent: 3% or 0.5%. A missing sign is an error, because 0.03 could mean 3 %."""
    number = _number(text.strip()[:-1]) / 100 if text.strip().endswith("%") else math.nan
    if not 0 <= number <= 1:
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%: write it with the % sign, such as 3%")
    return number


def cores(text: str) -> tuple[int, ...]:
    """The numbers of cores, given as numbers and ranges."""
    numbers: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip(), re.ASCII)
        if not ends or int(ends[2] or ends[1]) < int(ends[1]):
            raise ValueError(f"{part!r} names no cores: give numbers and ranges, such as 0,2 or 4-7")
        numbers.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return tuple(sorted(numbers))


def thread_counts(text: str) -> tuple[int, ...] | Literal["all"]:
    """Numbers of threads in the given order, each once, or "all"."""
    if text == "all":
        return "all"
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,4}", part, re.ASCII) or not 1 <= int(part) <= 1024:
            raise ValueError(f"{part!r} is not a number of threads from 1 to 1024: give 1,2,4 or all")
    return tuple(dict.fromkeys(map(int, parts)))


def folder(text: str) -> Path:
    """The path of a folder that exists or may be created."""
    if Path(text).exists() and not Path(text).is_dir():
        raise ValueError(f"{text!r} is a file, not a folder")
    return Path(text)


def file(text: str) -> Path:
    """The path of a file that exists or may be created."""
    if Path(text).is_dir():
        raise ValueError(f"{text!r} is a folder, not a file")
    return Path(text)


def new_file(text: str) -> Path:
    """A file to write; an unwritable path is refused now instead of after hours of measuring."""
    path = file(text)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{path.parent} is not a folder that can be written to")
    return path


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas; an empty string gives none."""
    return tuple(text.split(",")) if text else ()

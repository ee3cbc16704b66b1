"""Settings of toolchains: declared once, read from texts or values, all complaints at once."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.errors import UsageError

Read = Callable[[Any], Any]
"""Makes a setting's value of what was given; ValueError, with what is wanted, for what cannot be meant."""

_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting: its name, how it is read, what it is where none is given, and what it means."""

    name: str
    read: Read
    default: Any
    meaning: str


def read_settings(toolchain: str, known: Sequence[Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every known setting. UsageError with all that is wrong with the given ones."""
    by_name = {one.name: one for one in known}
    found = {one.name: one.default for one in known}
    told = []
    for name, value in given.items():
        if name not in by_name:
            told.append(f"there is no setting {ascii(name)[:60]}")
            continue
        try:
            found[name] = by_name[name].read(value)
        except ValueError as error:
            told.append(f"{name} is {ascii(value)[:60]}, where {error} is wanted")
    if told:
        choices = "; ".join(f"{one.name}: {one.meaning}" for one in known) or "none"
        raise UsageError(f"the toolchain {toolchain} cannot be set so: {'; '.join(told)}", hint=f"Settings: {choices}.")
    return found


def whole(least: int, most: int) -> Read:
    """Reads a whole number between two."""

    def read(value: Any) -> int:
        text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
        if text.isascii() and text.isdigit() and len(text) < 19 and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"a whole number from {least} to {most}")

    return read


def seconds(value: Any) -> float:
    """Reads a time in seconds, above 0 and up to a week."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not 0 < number <= 7 * 86400:
        raise ValueError("a number of seconds above 0, up to a week,")
    return number


def flag(value: Any) -> bool:
    """Reads yes or no."""
    if isinstance(value, bool):
        return value
    found = _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise ValueError("yes or no")
    return found


def one_of(*choices: str) -> Read:
    """Reads one of some words."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ValueError(f"one of {', '.join(choices)}")

    return read


def text(value: Any) -> str:
    """Reads a text that is not empty and holds no control characters."""
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise ValueError("a text")


def path(value: Any) -> Path:
    """Reads a path; a leading ~ is the user's home."""
    return Path(text(str(value) if isinstance(value, Path) else value)).expanduser()


def words(value: Any) -> tuple[str, ...]:
    """Reads a command: a list of texts, or one text that is split as a shell would (no shell runs it)."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"a command ({error})") from error
    if isinstance(value, list | tuple) and value and all(isinstance(one, str) and "\0" not in one for one in value):
        return tuple(value)
    raise ValueError("a command, as a list of texts,")


COMMON = (
    Setting(name="workers", read=whole(1, 256), default=1, meaning="models at the same time, each in a process"),
    Setting(name="timeout_s", read=seconds, default=600.0, meaning="seconds that a model may take"),
    Setting(name="memory_gib", read=whole(1, 4096), default=16, meaning="GiB of address space of a process"),
)
"""The settings of every toolchain that starts child programs."""

IMAGES = Setting(
    name="images", read=whole(1, 1 << 20), default=64, meaning="how many calibration images are used at most"
)

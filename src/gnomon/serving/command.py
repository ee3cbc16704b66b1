"""Any program that prints a time, as what measures: how it is started, how its time is read, and what came of it.

The command is a list of words; no shell takes part. The model lies in a private folder, here or on the device, under a
name of the server's own, and all of that goes away with each model.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath

from gnomon.errors import ModelError, UsageError

_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)
RATE = "fps"
"""The unit of what is counted in a second, not timed."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNIT_NAMES = (*UNITS, RATE)
_EXAMPLE = (
    'For a DPU: --command "xdputil benchmark {model} 1" --read "FPS= (?P<fps>[0-9.]+)"; for a program that prints '
    '"took 3.2 ms": --read "took ([0-9.]+)" --unit ms.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command's words, with {model} where the path of the model goes, and how its time is read of what it prints.

    `read` is a regular expression. Its group of the name s, ms, us, ns or fps holds the number; without such a name it
    has one group, or none and is the number itself, and `unit` is one of these.
    """

    argv: tuple[str, ...]
    read: str
    unit: str = ""

    @property
    def name(self) -> str:
        """What people call it: the program's name."""
        return PurePath(self.argv[0]).name

    def filled(self, model: str) -> list[str]:
        """The words for a model at this path, which is taken as it is."""
        return [word.replace("{model}", model) for word in self.argv]

    def times_s(self, printed: str) -> list[float]:
        """The seconds of each match; of one match the first of its groups that took part.

        ModelError for a number that is not a time.
        """
        pattern = re.compile(self.read, re.MULTILINE)
        named = [name for name in pattern.groupindex if name in _UNIT_NAMES]
        times = []
        for match in pattern.finditer(printed):
            if named:
                unit, text = next(((name, match[name]) for name in named if match[name] is not None), ("", None))
            else:
                unit, text = self.unit, match[1] if pattern.groups else match[0]
            if text is None:
                continue
            times.append(_seconds(text, unit))
        return times


def timing_command(text: str, read: str | None, unit: str | None) -> Command:
    """The command that a user writes in one line. UsageError with all that is wrong."""
    wrong: list[str] = []
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        argv = ()
        wrong.append(f"--command cannot be split into words: {error}")
    if not argv and not wrong:
        wrong.append("--command is empty")
    names = dict.fromkeys(name for word in argv for name in _PLACEHOLDER.findall(word))
    unknown = [name for name in names if name != "{model}"]
    if unknown:
        wrong.append(f"--command has {', '.join(unknown)}, and the placeholders there are: {{model}}")
    if argv and "{model}" not in names:
        wrong.append("--command has no {model}, where the path of the model goes")
    wrong += _read_complaints(read, unit)
    if wrong:
        raise UsageError("; ".join(wrong), hint=_EXAMPLE)
    return Command(argv=argv, read=read or "", unit=unit or "")


def _read_complaints(read: str | None, unit: str | None) -> list[str]:
    if read is None:
        return ["--command needs --read REGEX, which finds the time in what the program prints"]
    try:
        pattern = re.compile(read, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        return [f"--read is not a regular expression: {error}"]
    named = [name for name in pattern.groupindex if name in _UNIT_NAMES]
    if named and unit:
        return [f"--read names its unit ({', '.join(named)}), and --unit is given as well"]
    if not named and not unit:
        return [f"--read has no group named {', '.join(_UNIT_NAMES)}, and no --unit is given"]
    if not named and pattern.groups > 1:
        return [f"--read has {pattern.groups} groups: name the one that is the time, or write the others as (?:..)"]
    return []


_LEAST_S, _MOST_S = 1e-9, 1e9


def _seconds(text: str, unit: str) -> float:
    try:
        number = float(text)
        seconds = 1 / number if unit == RATE else number * UNITS[unit]
    except (ValueError, ZeroDivisionError):
        seconds = math.nan
    if not _LEAST_S <= seconds <= _MOST_S:
        raise ModelError(
            f"--read of this server found {text[:40]!r}, which is not a time above 0",
            hint="Whoever runs the server can correct its --read.",
        )
    return seconds

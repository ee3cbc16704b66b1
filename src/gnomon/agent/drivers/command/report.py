"""The part of handling declared commands that needs no device: filling in a command, and reading its process's report.

It needs only the standard library, like `reading`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .reading import Unreadable, readings

if TYPE_CHECKING:
    from gnomon.wire import CommandSpec, KernelTimes

_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}", re.ASCII)


def placeholders(texts: Iterable[str]) -> set[str]:
    """The names of all placeholders, such as {model}, in texts."""
    return {name for text in texts for name in _PLACEHOLDER.findall(text)}


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with each placeholder replaced by its value; placeholders inside values are not replaced."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


@dataclass(frozen=True)
class Report:
    """The times of a process's calls in nanoseconds, or one number for all calls, and the times of its operators."""

    calls_ns: list[int]
    operators: list[KernelTimes]


def report_of(
    spec: CommandSpec, printed: str, read_file: Callable[[str], str], *, profiled: bool, wall_ns: int
) -> Report:
    """The report of a process, read as its declaration says; `read_file` reads a file in the process's folder.

    Unreadable if times are missing or invalid, or if the output says that the program did not run as declared.
    """
    refusal = re.search(spec["refused_if"], printed, re.MULTILINE) if spec.get("refused_if") else None
    if refusal is not None:
        raise Unreadable(f"it printed {refusal[0].strip()[:200]!r}")
    text = read_file(spec["file"]) if spec.get("file") else printed
    calls = [wall_ns]
    if spec.get("read"):
        calls = [round(time_ns) for _, time_ns in readings(spec["read"], text, unit=spec.get("unit", ""))]
        if not calls:
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
            raise Unreadable(f"it wrote no time that {spec['read']!r} matches; its last line is {last.strip()[:200]!r}")
    each = spec.get("each", "call")
    if each == "part":
        calls = [sum(calls)]
    elif each == "average":
        calls = [round(sum(calls) / len(calls))]
    elif each != "call":
        calls = calls[-1:]
    if min(calls) <= 0:
        raise Unreadable(f"it reports {min(calls)} ns for a call")
    return Report(calls_ns=calls, operators=_operators(spec, printed, read_file) if profiled else [])


def _operators(spec: CommandSpec, printed: str, read_file: Callable[[str], str]) -> list[KernelTimes]:
    table = spec.get("operators")
    if table is None:
        return []
    text = read_file(table["file"]) if table.get("file") else printed
    rows: dict[str, list[int]] = {}
    for name, time_ns in readings(table["read"], text, unit=table.get("unit", ""), label=table.get("label", "")):
        rows.setdefault(name, []).append(round(time_ns))
    return [
        {"name": name, "sources": [name], "backend": spec["name"], "wall_ns": times} for name, times in rows.items()
    ]

"""Reads times from a program's output: from JSON, a column of CSV, or matches of a regular expression.

This module needs only the standard library, so that gnomon can also read a program's output on the host, for a device
without Python.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from typing import Any

UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
"""Nanoseconds of each unit."""
RATE = "fps"
"""The unit of a rate: a count per second instead of a time."""
UNITS = (*UNITS_NS, RATE)
JSON, CSV = "json:", "csv:"
_DELIMITERS = ",;\t"
_NAMED_UNIT = re.compile(r"(?:^|[^A-Za-z0-9])(s|ms|us|ns|fps)\W*$")
_CAPITAL_UNIT = re.compile(r"(?<=[a-z])(Ms|Us|Ns)$")
_STEP = re.compile(r'"([^"]*)"|\[(\d*)\]|(\*)|([^.\[\]"*]+)')
_JSON_LINE = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_DECODER = json.JSONDecoder()
_MOST_WRONG = 1000
"""The largest number of lines that may begin like JSON without being JSON: each such error costs a scan of all the text
before it.
"""
_LONGEST_NS = 1e18

Reading = tuple[str, float]
"""A label ("" if none is read) and a time in nanoseconds."""


class Unreadable(Exception):
    """The output does not match the declaration; the message is one sentence."""


def unit_of(name: str) -> str:
    """The unit at the end of a name, as in "latency_ms", "realTime (ms)" and "averageMs"; "" if there is none."""
    match = _NAMED_UNIT.search(name) or _CAPITAL_UNIT.search(name)
    return match[1].lower() if match else ""


def declared_unit(read: str) -> str:
    """The unit that `read` itself names; "" if it names none. ValueError for an invalid expression."""
    if read.startswith(JSON):
        keys = [quoted or plain for quoted, _, _, plain in _STEP.findall(read.removeprefix(JSON)) if quoted or plain]
        return unit_of(keys[-1]) if keys else ""
    if read.startswith(CSV):
        return unit_of(read.removeprefix(CSV))
    try:
        groups = re.compile(read, re.MULTILINE).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is not a regular expression ({error})") from error
    return next((unit for unit in UNITS if unit in groups), "")


def readings(read: str, text: str, *, unit: str = "", label: str = "") -> list[Reading]:
    """All times in a text, in order, each with its label.

    `read` is "json:PATH" (keys separated by dots, [] for each item, [N] for one item, * for each key, quotes around a
    key that contains any of these), "csv:COLUMN" with the column's title or number, or a regular expression. In an
    expression, the number is the group named s, ms, us, ns or fps; without such a group, it is the first group or, if
    there is none, the whole match. `unit` applies unless the last key, the title or the group names a unit. `label` is
    a key next to a number in JSON ("*": the number's own key), the title of a CSV column, or a named group. Raises
    Unreadable for text in another format and for a number that cannot be a time.
    """
    own = declared_unit(read) or unit
    if read.startswith(JSON):
        return [(name, _nanoseconds(value, own)) for name, value in _in_json(read.removeprefix(JSON), text, label)]
    if read.startswith(CSV):
        try:
            return [(name, _nanoseconds(value, own)) for name, value in _in_csv(read.removeprefix(CSV), text, label)]
        except csv.Error as error:
            raise Unreadable(f"it is not CSV ({error})") from error
    return list(_matches(read, text, own, label))


def _nanoseconds(value: object, unit: str) -> float:
    try:
        number = float(str(value).strip())
        time_ns = 1e9 / number if unit == RATE else number * UNITS_NS[unit]
    except (ValueError, ZeroDivisionError):
        time_ns = math.nan
    if not 0 <= time_ns <= _LONGEST_NS:
        raise Unreadable(f"{str(value)[:40]!r} is not a time, although the declaration reads it as one")
    return time_ns


def _in_json(path: str, text: str, label: str) -> list[tuple[str, object]]:
    places: list[_Place] = [(None, "", document) for document in _documents(text)]
    for match in _STEP.finditer(path):
        quoted, index, every, plain = match.groups()
        key = plain if quoted is None else quoted
        places = [place for _, _, value in places for place in _below(value, key=key, index=index, every=bool(every))]
    numbers = [place for place in places if _is_number(place[2])]
    return [(key if label == "*" else _beside(parent, label), value) for parent, key, value in numbers]


_Place = tuple[Any, str, Any]
"""The place of a value: its container, its key in the container, and the value itself."""


def _beside(parent: Any, label: str) -> str:
    return str(parent.get(label, "")) if isinstance(parent, dict) else ""


def _below(value: Any, *, key: str | None, index: str | None, every: bool) -> Iterator[_Place]:
    """The places to which a step of a path leads from a value; none if the value has no such part."""
    if isinstance(value, dict):
        yield from ((value, own, item) for own, item in value.items() if every or own == key)
    elif isinstance(value, list) and index is not None:
        items = value if index == "" else value[int(index) : int(index) + 1]
        yield from ((value, "", item) for item in items)


def _is_number(value: object) -> bool:
    if isinstance(value, str):  # some programs write numbers as text
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int | float) and not isinstance(value, bool)


def _documents(text: str) -> list[Any]:
    """The JSON documents in a text that may contain other lines: from each line that begins with a bracket or, without
    such a line, from the first bracket.
    """
    starts = [match.end() for match in _JSON_LINE.finditer(text)]
    starts = starts or sorted(text.find(bracket) for bracket in "{[" if bracket in text)
    documents: list[Any] = []
    end = wrong = 0
    for start in starts:
        if start < end or wrong > _MOST_WRONG:
            continue  # the bracket is inside the previous document, or the text is not JSON
        try:
            document, end = _DECODER.raw_decode(text, start)
            documents.append(document)
        except ValueError:
            wrong += 1
        except RecursionError as error:
            raise Unreadable("its JSON is nested too deeply") from error
    if not documents:
        raise Unreadable("it is not JSON")
    return documents


def _in_csv(column: str, text: str, label: str) -> list[tuple[str, object]]:
    lines = text.splitlines()
    if column.isdecimal():  # a number never counts as a title, because a row of numbers may contain it
        by_delimiter = (list(_cells(lines, delimiter, int(column) - 1, None)) for delimiter in _DELIMITERS)
        return next(filter(None, by_delimiter), [])
    for number, line in enumerate(lines):
        for delimiter in _DELIMITERS:
            titles = [title.strip() for title in next(csv.reader([line], delimiter=delimiter), [])]
            if column in titles:
                names = titles.index(label) if label in titles else None
                return list(_cells(lines[number + 1 :], delimiter, titles.index(column), names))
    raise Unreadable(f"there is no column {column[:60]!r}")


def _cells(lines: list[str], delimiter: str, column: int, names: int | None) -> Iterator[tuple[str, object]]:
    """The label and the number of each row that has a number in the column."""
    for row in csv.reader(lines, delimiter=delimiter):
        if 0 <= column < len(row) and _is_number(row[column]):
            yield row[names] if names is not None and names < len(row) else "", row[column]


def _matches(pattern: str, text: str, unit: str, label: str) -> Iterator[Reading]:
    """The number of each match: its first matched group with a unit's name, otherwise its first group or the whole
    match.
    """
    expression = re.compile(pattern, re.MULTILINE)
    named = [name for name in UNITS if name in expression.groupindex]
    for match in expression.finditer(text):
        took_part = [(name, match[name]) for name in named if match[name] is not None]
        own, value = next(iter(took_part), (unit, None if named else match[min(1, expression.groups)]))
        if value is not None:
            name = match[label] if label in expression.groupindex else ""
            yield (name or "").strip(), _nanoseconds(value, own)

"""Strict readers of JSON files: they refuse duplicate keys, NaN, huge numbers and deep nesting.

`Strict` stops at the first error. `Complaints` gathers all errors of a file, to report them at once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gnomon.errors import ProblemError, UsageError

_MOST_TOLD = 20
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{1,64}", re.ASCII)
_KINDS = {dict: "an object", list: "a list", bool: "true or false", type(None): "nothing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strict:
    """A reader of one kind of file: a name for the file in errors, a hint for the user, and the maximum length."""

    what: str
    hint: str
    most_letters: int

    def parse(self, text: str | bytes) -> Any:
        """The JSON value of a text (UTF-8 if bytes). Raises ProblemError for any error in the text."""
        if len(text) > self.most_letters:
            self.fail("$", f"{len(text)} characters, but at most {self.most_letters} are read")
        try:
            if isinstance(text, bytes):
                text = text.decode("utf-8-sig")
            return json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
        except UnicodeDecodeError as error:
            self.fail("$", not_utf8(text, error))
        except json.JSONDecodeError as error:
            self.fail("$", f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}")
        except ValueError as error:
            too_long = str(error).startswith("Exceeds the limit")  # the limit on the digits that Python converts
            self.fail("$", "a number of more than 4300 digits" if too_long else str(error))
        except RecursionError:
            self.fail("$", "nested too deeply")

    def object(self, data: Any, path: str) -> Mapping[str, Any]:
        """The value, which must be an object."""
        if not isinstance(data, dict):
            self.fail(path, f"an object expected, {shown(data)} found")
        return data

    def fail(self, path: str, what: str, hint: str | None = None) -> NoReturn:
        """Raise the ProblemError for an error at a path of the file."""
        raise ProblemError(f"the {self.what} is malformed: {path}: {what}", hint=self.hint if hint is None else hint)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these pairs, as json.loads passes them. ValueError for a duplicate key."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {shown(twice)} is given twice in one object")
    return entries


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and the infinities, which json.loads would accept."""
    raise ValueError(f"{name} is not a JSON number")


@dataclass(slots=True, kw_only=True)
class Complaints:
    """The errors of one file; `what` is the kind of file, and `hint` is the next step for the user.

    `sentences` has the errors, each preceded by its place: "line 3: ...". `cut` counts the lines that were cut off, if
    cut lines are not an error.
    """

    what: str
    hint: str
    sentences: list[str] = field(default_factory=list)
    cut: int = 0

    def tell(self, place: str, sentence: str) -> None:
        """Add an error."""
        self.sentences.append(f"{place}: {sentence}")

    def raise_any(self) -> None:
        """Raise a ProblemError for all errors, the first twenty in full; do nothing if there are none."""
        if self.sentences:
            raise ProblemError(complaint(self.what, self.sentences), hint=self.hint)

    def raise_usage(self) -> None:
        """Raise a UsageError for all errors, the first twenty on a line each; do nothing if there are none."""
        if self.sentences:
            more = len(self.sentences) - _MOST_TOLD
            lines = self.sentences[:_MOST_TOLD] + ([f"and {more} more"] if more > 0 else [])
            raise UsageError("\n  ".join([f"{self.what} is invalid:", *lines]), hint=self.hint)


def complaint(what: str, sentences: list[str]) -> str:
    """The message of complaints about a file."""
    more = len(sentences) - _MOST_TOLD
    rest = f"; and {more} more" if more > 0 else ""
    return f"the {what} is malformed: {'; '.join(sentences[:_MOST_TOLD])}{rest}"


def repeated(items: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """The index of each item that occurred before, with the index of its first occurrence."""
    places: dict[Hashable, int] = {}
    for place, item in enumerate(items):
        if places.setdefault(item, place) != place:
            yield place, places[item]


_LONGEST_ESCAPE = 6
_CLOSES = {"[": "]", "{": "}"}
_WORDS = ("true", "false", "null", "NaN", "-Infinity", "Infinity")
_BEGUN_WORD = re.compile("|".join(("", r"\.", "[eE][+-]?", *(w[:end] for w in _WORDS for end in range(1, len(w))))))


def cut_off(text: str) -> bool:
    """Return True if a text is the beginning of an object or list that was never closed, and is otherwise undamaged."""
    text = text.strip()
    try:
        json.loads(text)
        return False
    except json.JSONDecodeError as error:
        rest, fault = text[error.pos :], error.msg
    except (ValueError, RecursionError):
        return False
    in_escape = fault.startswith("Invalid \\u") and len(rest) <= _LONGEST_ESCAPE
    if not (in_escape or fault.startswith("Unterminated string") or _BEGUN_WORD.fullmatch(rest)):
        return False
    opened: list[str] = []
    for letter in re.findall(r"[][{}]", outside_strings(text)):
        if letter in _CLOSES:
            opened.append(_CLOSES[letter])
        elif not opened or opened.pop() != letter:
            return False
    return bool(opened)


def outside_strings(text: str) -> str:
    """The parts of a JSON text outside its strings."""
    return "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])


_OTHERS = (
    (b"\x1f\x8b", "it is compressed with gzip: decompress it first"),
    (b"PK\x03\x04", "it is a ZIP archive: unpack it first"),
    (b"BZh", "it is compressed with bzip2: decompress it first"),
    (b"\xfd7zXZ", "it is compressed with xz: decompress it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: decompress it first"),
    (b"\xff\xfe", "it is UTF-16: save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16: save it as UTF-8"),
)


def not_utf8(data: str | bytes, error: UnicodeDecodeError, *, of: str = "") -> str:
    """The message that bytes `of` something are not UTF-8, with their format if the first bytes reveal it."""
    begin = data[:8]
    advice = next((words for magic, words in _OTHERS if isinstance(begin, bytes) and begin.startswith(magic)), "")
    return f"not UTF-8 text (byte {error.start}{of}){advice and f'; {advice}'}"


def file_text(text: str | bytes, what: str, hint: str, most_letters: int) -> str:
    """The text of a file (UTF-8 if bytes). ProblemError if it is longer than `most_letters`, or not UTF-8."""
    if len(text) > most_letters:
        raise ProblemError(f"the {what} has {len(text)} characters, but at most {most_letters} are read", hint=hint)
    try:
        return text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise ProblemError(f"the {what} is {not_utf8(text, error)}", hint=hint) from error


def shown(value: Any) -> str:
    """A value of a file as an error shows it, short and in ASCII."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    text = _KINDS.get(type(value)) or ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shown_key(key: str) -> str:
    """A key or a name in a file as an error shows it: unchanged if it is a plain word."""
    return key if _WORD.fullmatch(key) else shown(key)


def is_text(text: str) -> bool:
    """Return True if a text can be encoded; JSON may hold half a surrogate pair, which cannot be encoded."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def indented(document: Any) -> str:
    """The JSON text of a file for people to read. ValueError for NaN and infinity, which JSON cannot express."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def is_json(value: Any) -> bool:
    """Return True if JSON can express a value; it cannot if the value holds NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def is_line(text: str, most: int = 1000) -> bool:
    """Return True if a text is one line that is not empty and has at most `most` characters."""
    return 0 < len(text) <= most and text.isprintable()

"""JSON lines of other programs, read line by line; one error reports all faults, each with its line.

A program that is killed while it writes leaves an incomplete last line, which is left out; any other line that is not
JSON is reported. NaN and Infinity, which JSON does not know but many writers write, are accepted here: the reader of a
value decides whether they are valid there.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.core.strict_json import Complaints, cut_off, not_utf8, outside_strings, unique
from gnomon.errors import ProblemError

MOST_LETTERS = 512 << 20
"""The size of the longest file that is read."""
MOST_OF_A_LINE = 32 << 20
"""The longest line: a function of a network with its own constants in base64."""
MOST_DEPTH = 64
_DEPTH_OF_A_PART = MOST_DEPTH - 8
_AS_LISTS, _NO_BRACKETS = bytes.maketrans(b"{}", b"[]"), bytes(set(range(256)) - set(b"[]{}"))
_MOST_DIGITS = 40
_MANY_DIGITS = re.compile(f"[0-9]{{{_MOST_DIGITS + 1}}}", re.ASCII)
_MOST_TOLD = 100
Quick = Callable[[int, str], bool]
"""A function that accepts a line, by its number and text, without parsing it whole.

Returns True if it accepted the line. ValueError or RecursionError mean that it did not.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """The rules for reading the lines of a kind of file.

    `begun` says which lines may be truncated: the last one; any, if a writer that continues a truncated file begins a
    new line; or none, if every line counts. Lines that begin with one of `comments` are left out.
    """

    begun: Literal["last", "any", "none"] = "last"
    comments: tuple[str, ...] = ()


LAST = LineRules()


def json_lines(
    text: str | bytes, complaints: Complaints, rules: LineRules = LAST, quick: Quick | None = None
) -> Iterator[tuple[int, Any]]:
    """The number of each line, from 1, and its value. Reports faults, at most a few hundred.

    Lines that `quick` accepts, and truncated lines, are left out. ProblemError for a file that is too long.
    """
    if len(text) > MOST_LETTERS:
        message = f"the {complaints.what} has {len(text)} letters, and no more than {MOST_LETTERS} are read"
        raise ProblemError(message, hint=complaints.hint)
    lines: Iterable[Any] = io.BytesIO(text) if isinstance(text, bytes) else io.StringIO(text, newline="\n")
    for number, line in enumerate(lines, 1):
        if len(complaints.sentences) >= _MOST_TOLD and line.strip():
            complaints.tell(f"line {number}", "the rest was not read")
            return
        if quick is not None and len(line) <= MOST_OF_A_LINE:
            try:
                if quick(number, (line if isinstance(line, str) else line.decode()).strip()):
                    continue
            except (ValueError, RecursionError):  # also for bytes that are not UTF-8
                pass
        if not line.strip():
            continue
        whole = line[-1:] in ("\n", b"\n")
        read = _line(
            line[:-1] if whole else line,
            number,
            rules.begun == "any" or (rules.begun == "last" and not whole),
            complaints,
            rules,
        )
        if read is not None:
            yield number, read[0]


def left_out(bad: Complaints, good: int, complaints: Complaints) -> int:
    """The number of lines of a log that were left out: truncated ones, and bad ones if there are more good ones.

    If the bad lines are at least as many as the good ones, or the rest was not read because of them, they become
    complaints.
    """
    lines = {sentence.partition(":")[0] for sentence in bad.sentences}
    if len(lines) >= good or len(bad.sentences) >= _MOST_TOLD:
        complaints.sentences.extend(bad.sentences)
    return len(lines) + bad.cut


def part_of_a_line(text: str) -> Any:
    """The value of a text that is part of a line, read as lines are. ValueError or RecursionError.

    A value that is nested nearly as deeply as a line may be is refused too.
    """
    value, end = value_at(text, 0)
    if end != len(text) or _too_deep(text, _DEPTH_OF_A_PART):
        raise ValueError("not a value, or nested too deeply")
    return value


def _line(
    line: str | bytes, number: int, may_be_cut: bool, complaints: Complaints, rules: LineRules
) -> tuple[Any] | None:
    """The value of a line, in a tuple; None for a comment, and for a fault, which is reported unless the line was
    truncated.
    """
    place = f"line {number}"
    if len(line) > MOST_OF_A_LINE:
        complaints.tell(place, f"{len(line)} letters, and no more than {MOST_OF_A_LINE} are read")
        return None
    text, damage = _text(line)
    if rules.comments and text.startswith(rules.comments):
        return None
    try:
        # A function that is called for each number would make json several times slower.
        integer = _integer if _MANY_DIGITS.search(text) else None
        value = json.loads(text, object_pairs_hook=unique, parse_int=integer)
    except json.JSONDecodeError as error:
        if may_be_cut and cut_off(text):
            complaints.cut += 1
        else:
            complaints.tell(place, damage or f"not JSON: {error.msg} in column {error.colno}")
        return None
    except ValueError as error:
        complaints.tell(place, str(error))
        return None
    except RecursionError:
        complaints.tell(place, "nested too deeply")
        return None
    if damage or _too_deep(text):
        complaints.tell(place, damage or "nested too deeply")
        return None
    return (value,)


def _text(line: str | bytes) -> tuple[str, str]:
    """A line as text, and the fault of its bytes."""
    if isinstance(line, str):
        return line.strip().removeprefix("\ufeff"), ""
    try:
        return line.decode("utf-8-sig").strip(), ""
    except UnicodeDecodeError as error:
        return line.decode("utf-8", "replace").strip(), not_utf8(line, error, of=" of the line")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS} digits")
    return int(digits)


value_at = json.JSONDecoder(object_pairs_hook=unique, parse_int=_integer).raw_decode
"""The value that begins at a place of a line, read as lines are, and the place where it ends. ValueError or
RecursionError.
"""


def _too_deep(text: str, most: int = MOST_DEPTH) -> bool:
    """Return True if JSON is nested so deeply that code that walks it later would fail."""
    if text.count("[") + text.count("{") <= most:
        return False
    brackets = outside_strings(text).encode("utf-8", "surrogatepass").translate(_AS_LISTS, _NO_BRACKETS)
    for _ in range(most):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)

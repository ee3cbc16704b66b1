"""Reads the JSON lines of other programs one by one; a single error reports all faults, each with its line.

A program that is killed while it writes leaves an incomplete last line, which is left out; any other line that is not
JSON is reported. NaN and Infinity are accepted although JSON lacks them, because many programs write them: the code
that uses a value decides whether it is valid.
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
"""The largest size of a file that is read."""
MOST_OF_A_LINE = 32 << 20
"""The largest length of a line; the longest lines hold a network's function with its constants in base64."""
MOST_DEPTH = 64
_DEPTH_OF_A_PART = MOST_DEPTH - 8
_AS_LISTS, _NO_BRACKETS = bytes.maketrans(b"{}", b"[]"), bytes(set(range(256)) - set(b"[]{}"))
_MOST_DIGITS = 40
_MANY_DIGITS = re.compile(f"[0-9]{{{_MOST_DIGITS + 1}}}", re.ASCII)
_MOST_TOLD = 100
Quick = Callable[[int, str], bool]
"""A function that gets the number and the text of a line, and tries to read the line without parsing it as a whole.

Returns True if it has read the line. A ValueError or RecursionError means that it has not.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """The rules for reading the lines of a kind of file.

    `begun` says which lines may be truncated: the "last" one; "any", for files whose writer begins a new line after a
    truncated one; or "none". Lines that begin with one of `comments` are left out.
    """

    begun: Literal["last", "any", "none"] = "last"
    comments: tuple[str, ...] = ()


LAST = LineRules()


def json_lines(
    text: str | bytes, complaints: Complaints, rules: LineRules = LAST, quick: Quick | None = None
) -> Iterator[tuple[int, Any]]:
    """The number of each line, counted from 1, and its value. Reports faults, but stops after about a hundred.

    Truncated lines, and lines that `quick` has read, are left out. ProblemError for a file that is too long.
    """
    if len(text) > MOST_LETTERS:
        message = f"the {complaints.what} has {len(text)} characters, but at most {MOST_LETTERS} are read"
        raise ProblemError(message, hint=complaints.hint)
    lines: Iterable[Any] = io.BytesIO(text) if isinstance(text, bytes) else io.StringIO(text, newline="\n")
    for number, line in enumerate(lines, 1):
        if len(complaints.sentences) >= _MOST_TOLD and line.strip():
            complaints.tell(f"line {number}", "there are too many faults, so the rest of the file was not read")
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
    """The number of lines of a log that were left out: truncated lines, and bad ones if there are more good ones.

    If there are at least as many bad lines as good ones, or so many that the rest was not read, the bad lines become
    complaints.
    """
    lines = {sentence.partition(":")[0] for sentence in bad.sentences}
    if len(lines) >= good or len(bad.sentences) >= _MOST_TOLD:
        complaints.sentences.extend(bad.sentences)
    return len(lines) + bad.cut


def part_of_a_line(text: str) -> Any:
    """The value of a string that is part of a line, read by the same rules.

    ValueError or RecursionError for anything else, and for a value that is nested nearly as deeply as a line may be.
    """
    value, end = value_at(text, 0)
    if end != len(text) or _too_deep(text, _DEPTH_OF_A_PART):
        raise ValueError("not a value, or nested too deeply")
    return value


def _line(
    line: str | bytes, number: int, may_be_cut: bool, complaints: Complaints, rules: LineRules
) -> tuple[Any] | None:
    """The value of a line, in a tuple. None for a comment and for a faulty line, which is reported unless it was
    truncated.
    """
    place = f"line {number}"
    if len(line) > MOST_OF_A_LINE:
        complaints.tell(place, f"it has {len(line)} characters, but at most {MOST_OF_A_LINE} are read")
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
    """A line as text, and the fault of its bytes, or ""."""
    if isinstance(line, str):
        return line.strip().removeprefix("\ufeff"), ""
    try:
        return line.decode("utf-8-sig").strip(), ""
    except UnicodeDecodeError as error:
        return line.decode("utf-8", "replace").strip(), not_utf8(line, error, of=" of the line")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    return int(digits)


value_at = json.JSONDecoder(object_pairs_hook=unique, parse_int=_integer).raw_decode
"""A function that returns the value beginning at a position of a line, and the position where it ends. ValueError or
RecursionError if there is none.
"""


def _too_deep(text: str, most: int = MOST_DEPTH) -> bool:
    """Return True if JSON is nested too deeply for later code to walk it."""
    if text.count("[") + text.count("{") <= most:
        return False
    brackets = outside_strings(text).encode("utf-8", "surrogatepass").translate(_AS_LISTS, _NO_BRACKETS)
    for _ in range(most):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)

"""Damages an input as networks, editors, other programs and attackers do: its bytes, words, lines and JSON values.

Everything is drawn from one random number generator, so a seed always gives the same inputs.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

MOST_BYTES = 1 << 18
"""No damaged input is longer."""

NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"2", b"1.5", b"-0.0", b"1e-400", b"1e308", b"1e400", b"-1e400", b"NaN", b"nan", b"inf",
    b"Infinity", b"-Infinity", b"127", b"255", b"256", b"65535", b"65536", b"2147483647", b"2147483648",
    b"4294967296", b"-2147483649", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616",
    b"00", b"0x10", b"1_0", b"1,5", b"+1", b"1.", b".5", b"1e", b"\xd9\xa3", b"\xc2\xb2",
    b"1" + b"0" * 400, b"9" * 5000,
)  # fmt: skip
LETTERS = (
    b"\0", b"\x1b[2J", b"\x07", b"\x7f", b"\r", b"\r\n", b"\n", b"\t", b"\x0b", b"\x1e", b"\x1f", b" ", b"\xc2\xa0",
    b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\xa6\x84", b"\xcc\x81", b"\xe2\x80\xae",
    b"\\ud800", b"\\u0000", b"\\", b'"', b"'", b"`", b"$(id)", b"%s", b"{}", b"{0}", b"[", b"]", b"{", b"}", b"(",
    b")", b"<", b">", b"&a", b"*a", b"!!python/name:os.system", b"#", b"//", b"..", b"../", b"/", b"~", b":", b";",
    b",", b"=", b"-", b"--", b"|", b"@", b"null", b"true", b"None", b"\xff", b"\x80",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.5, -0.5, 1e308, 1e-308, float("nan"), float("inf"), float("-inf"), 2**31, 2**53,
    2**63, -(2**63) - 1, 2**64, 10**30, 10**400, "", "a", " ", "0", "1", "-1", "nan", "\0", "\x1b[2J", "\n", "\ud800",
    "\u202e", "\U0001f984", "é", "../x", "/", "a" * 300, "a" * 70_000, [], [[]], [None], [0], [1, 2], ["a"],
    [0] * 2000, {}, {"": {}}, {"a": 1}, {"\ud800": "\0"},
)  # fmt: skip
WORDS = (0, 1, 2, 3, 4, 7, 8, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, 1 << 63)
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*")
_DEEP = 3000


def mutated(draw: Random, seeds: tuple[bytes, ...]) -> bytes:
    """One of the seeds, damaged; occasionally unchanged."""
    return damaged(draw, draw.choice(seeds), seeds) if draw.random() < 0.9 else draw.choice(seeds)


def damaged(draw: Random, data: bytes, seeds: tuple[bytes, ...]) -> bytes:
    """An input, damaged one to five times; words and parts come from the seeds."""
    dictionary = words_of(seeds)
    for _ in range(draw.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        data = draw.choice(_WAYS)(draw, data, seeds, dictionary)[:MOST_BYTES]
    return data


@functools.cache
def words_of(seeds: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The words of all seeds, which replace other words."""
    return tuple(sorted({word for seed in seeds for word in _WORD.findall(seed[:20_000]) if len(word) < 60})[:500])


Way = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]


def _place(draw: Random, data: bytes) -> tuple[int, int]:
    """The beginning and end of a part, usually a short one."""
    begin = draw.randint(0, len(data))
    return begin, min(len(data), begin + int(draw.choice((1, 1, 2, 4, 8, 32, 200, len(data)))))


def _flip(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8)) if data else 0):
        changed[draw.randrange(len(data))] ^= draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
    return bytes(changed)


def _integer(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Replace or slightly change a binary integer at a place where formats have integers."""
    width = draw.choice((1, 2, 4, 4, 8))
    if len(data) < width:
        return data
    at = draw.randrange(0, len(data) - width + 1, draw.choice((1, width)))
    order = draw.choice(("little", "little", "big"))
    before = int.from_bytes(data[at : at + width], order)  # type: ignore[arg-type]
    value = draw.choice((draw.choice(WORDS), before + draw.randint(-8, 8), len(data) - at)) % (1 << 8 * width)
    return data[:at] + value.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]


def _cut(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    begin, end = _place(draw, data)
    return data[:begin] if draw.random() < 0.2 else data[:begin] + data[end:]


def _put(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    begin, end = _place(draw, data)
    put = draw.choice((draw.choice(LETTERS), draw.choice(LETTERS), draw.choice(NUMBERS), draw.randbytes(4)))
    return data[:begin] + put * draw.choice((1, 1, 1, 1, 40)) + data[draw.choice((begin, end)) :]


def _copy(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Copy a part of this or of another input to another place."""
    begin, end = _place(draw, source := draw.choice((data, draw.choice(seeds))))
    at, rest = _place(draw, data)
    part = source[begin:end]
    times = draw.choice((1, 1, 1, 3, min(1000, 20_000 // (len(part) + 1) + 1)))
    return data[:at] + part * times + data[draw.choice((at, rest)) :]


def _number(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    found = list(_NUMBER.finditer(data[:50_000]))
    if not found:
        return _put(draw, data, seeds, words)
    one = draw.choice(found)
    return data[: one.start()] + draw.choice(NUMBERS) + data[one.end() :]


def _word(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    found = list(_WORD.finditer(data[:50_000]))
    if not found or not words:
        return _put(draw, data, seeds, words)
    one = draw.choice(found)
    return data[: one.start()] + draw.choice(words) + data[one.end() :]


def _line(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(5):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            del lines[one]
        case 2:
            lines.insert(other, lines[one])
        case 3:
            lines[one : one + 1] = [lines[one]] * draw.choice((2, 50, 2000))
        case _:
            lines[one] = draw.choice(LETTERS) + lines[one]
    return b"\n".join(lines)


def _field(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Remove, repeat or replace a field in a line of a table."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    mark = draw.choice((b",", b" ", b":", b"=", b"\t"))
    fields = lines[at].split(mark)
    one = draw.randrange(len(fields))
    fields[one : one + 1] = draw.choice(([], [fields[one]] * 2, [draw.choice(NUMBERS)], [b""], [b'"' + fields[one]]))
    lines[at] = mark.join(fields)
    return b"\n".join(lines)


def _whole(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Change a whole text as editors and other systems do."""
    match draw.randrange(7):
        case 0:
            return b"\xef\xbb\xbf" + data
        case 1:
            return data.decode("utf-8", "replace").encode(draw.choice(("utf-16", "utf-16-le", "utf-32")))
        case 2:
            return data.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\n\n")))
        case 3:
            return data + draw.choice((b"\0", b"\n", b"\x1a", b" ", data))
        case 4:
            return draw.choice((b"", b"\0", b"\n", b"{}", b"[]", b"null", b"0"))
        case 5:
            mark = draw.choice((b"[", b'{"a":', b"(", b"- ", b"[[],"))
            return mark * _DEEP + (data if draw.random() < 0.5 else b"")
        case _:
            return data.decode("utf-8", "replace").swapcase().encode()


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that a key can occur twice."""


def _json(draw: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Replace, remove, move or repeat a value within JSON, or within a line of JSON."""
    lines = data.split(b"\n") if (draw.random() < 0.9 and b"\n{" in data) or b"\n[" in data else [data]
    at = draw.randrange(len(lines))
    try:
        root = [json.loads(lines[at], object_pairs_hook=_Pairs)]
    except (ValueError, RecursionError):
        return draw.choice(_OTHERS)(draw, data, seeds, words)
    places = list(_places(root))
    inside, key = draw.choice(places)
    _change(draw, inside, key, places)
    try:
        lines[at] = _text(root[0]).encode("utf-8", "surrogatepass") if root else b""
    except (RecursionError, ValueError):  # too deep, or a number with too many digits to be written
        return data
    return b"\n".join(lines)


def _places(root: list[Any]) -> Any:
    """Each list, or list of pairs, with each of its indices; only the first few thousand."""
    waiting: list[list[Any]] = [root]
    for _ in range(3000):
        if not waiting:
            return
        inside = waiting.pop()
        for index, item in enumerate(inside):
            yield inside, index
            value = item[1] if isinstance(inside, _Pairs) else item
            if isinstance(value, list):
                waiting.append(value)


def _change(draw: Random, inside: list[Any], index: int, places: Sequence[tuple[list[Any], int]]) -> None:
    def put(value: Any) -> None:
        inside[index] = (inside[index][0], value) if isinstance(inside, _Pairs) else value

    before = inside[index][1] if isinstance(inside, _Pairs) else inside[index]
    match draw.randrange(8):
        case 0:
            del inside[index]
        case 1:
            inside.insert(draw.randint(0, len(inside)), inside[index])
        case 2 if isinstance(inside, _Pairs):
            inside[index] = (draw.choice(("", "a", "\0", "\ud800", inside[0][0])), before)
        case 3:
            other, at = draw.choice(places)
            if at < len(other):
                put(other[at][1] if isinstance(other, _Pairs) else other[at])
        case 4 if isinstance(before, int | float) and not isinstance(before, bool):
            put(
                draw.choice(
                    (-before, before + 1, before * 10**9, f"{before:.3g}" if abs(before) < 1e300 else "", [before])
                )
            )
        case 5 if isinstance(before, str):
            put(draw.choice((before + "\0", before + "\n", before[:-1], before * 50, [before], before.upper())))
        case 6 if draw.random() < 0.1:
            deep: Any = before
            for _ in range(draw.choice((40, 400))):
                deep = [deep]
            put(deep)
        case _:
            put(draw.choice(VALUES))


def _text(value: Any) -> str:
    """The JSON of a tree with objects as pairs; inserted values contain real objects too."""
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{_text(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


_OTHERS: tuple[Way, ...] = (_flip, _cut, _put, _copy, _number, _word, _line, _field, _whole)
_WAYS: tuple[Way, ...] = (*_OTHERS, _integer, _integer, _number, _word, _field, _json, _json, _json, _json)

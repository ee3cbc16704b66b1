"""No reader takes much more than twice as long for twice as much, whatever is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from fuzz.targets import TARGETS

from gnomon.errors import GnomonError

REPEATED = (
    *"01:,-[{(\"'\\ \n\t.x#&*!|",
    *("1:", "1.", "0,", "a,", "a{k},", "a\n", "a{k}\n", "a{k}: 1\n", "- a\n", "? a\n"),
    *("{", "[1,", "[],", "{},", "\\u00", "//", "(0, ", "u{k},R{k},1\n", "u{k},CPU,1\n", "'a{k}': 1, "),
    *('"a{k}": 1, ', '{"a": {k}}\n', "0-1,", "\x1e/f{k}\x1f1\n", "Input a{k} 0 1 x{k}\n"),
)
BEGINNINGS = ("", '{"a": [', "7767517\n100000 100000\n", "uid,runtime,Avg_Time\n")
LETTERS = 2_500


@cache
def text_of(beginning: str, repeated: str, letters: int) -> str:
    """What is repeated, with a number each where it has a place for one, behind a beginning."""
    if "{k}" not in repeated:
        return beginning + repeated * (letters // len(repeated))
    parts, length = [beginning], len(beginning)
    while length < letters:
        parts.append(repeated.replace("{k}", str(len(parts))))
        length += len(parts[-1])
    return "".join(parts)


def cpu_s(reader: Callable[[bytes], Any], text: str) -> float:
    data = text.encode()
    began_s = time.process_time()
    with suppress(GnomonError, ValueError):
        reader(data)
    return time.process_time() - began_s


@pytest.mark.parametrize("name", [target.name for target in TARGETS.values() if target.lines])
def test_four_times_as_much_takes_about_four_times_as_long(name: str) -> None:
    """A reader that takes twice that for the same letters grows faster; the best of several runs counts."""
    reader, slow = TARGETS[name].read, []
    for beginning in BEGINNINGS:
        for repeated in REPEATED:
            large_s = cpu_s(reader, text_of(beginning, repeated, 4 * LETTERS))
            if large_s < 0.025:  # so that a megabyte takes some seconds even where it grows with the square
                continue
            small_s = min(cpu_s(reader, text_of(beginning, repeated, LETTERS)) for _ in range(3))
            if large_s > 8 * small_s + 0.02:  # else another run could change nothing
                large_s = min(large_s, *(cpu_s(reader, text_of(beginning, repeated, 4 * LETTERS)) for _ in range(2)))
            if large_s > 8 * small_s + 0.02:
                slow.append((beginning, repeated, small_s, large_s))
    assert not slow

"""Reading a problem that a command is given: a file, or the standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from gnomon.errors import ProblemError

_MOST_BYTES = 1 << 30


def read_problem_bytes(problem: str) -> bytes:
    """The bytes of a file, or with - of the standard input. ProblemError where it cannot be read or is too large."""
    try:
        if problem == "-":
            found = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(problem).open("rb") as file:
                found = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ProblemError(
            f"the problem {problem} cannot be read: {error.strerror or error}", hint="Give a JSON file, or - for stdin."
        ) from error
    if len(found) > _MOST_BYTES:
        raise ProblemError(f"the problem {problem} is larger than 1 GiB", hint="Give a smaller problem.")
    return found

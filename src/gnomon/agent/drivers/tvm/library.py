"""TVM's compiled models, which are built in a separate process and kept for other processes of the same campaign."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ...another import answer_of, how_it_ended, run_function
from ...driver import Refused
from ...kept import made_of

#: The file name of a compiled model in its kept folder, next to its description.
_LIBRARY = "model.so"
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


class Library(NamedTuple):
    """A compiled model: the path of its shared library, and its description.

    `functions` is the number of its functions, and `scheduled` is how many of them a record schedules. `calls` lists
    the functions in the order in which they are called, each with the nodes that it computes (None if they are
    unknown); a node is named by its first output. `extern` are functions of TVM's own library that the model calls.
    """

    path: str
    functions: int
    scheduled: int
    calls: list[tuple[str, list[str] | None]]
    extern: list[str]
    inputs: list[str]
    outputs: list[str]


def linker() -> str:
    """The linker that TVM will choose for compiled models. Refused without a linker."""
    named = os.environ.get("CXX") or os.environ.get("CC") or ""
    program = shutil.which(named) if named else next(filter(None, map(shutil.which, _LINKERS)), None)
    if program is None:
        what = f"{named}, which CXX or CC names, does not exist" if named else "there is none on the PATH"
        raise Refused(f"TVM needs a C++ compiler to link models, and {what}; install one: apt install g++")
    return program


@contextmanager
def compiled(model: str, *, shapes: Mapping[str, Sequence[int]], records: str, versions: str) -> Iterator[Library]:
    """The model in a file, compiled for inputs of these shapes; it is taken from the private folder if it was compiled
    before. Leave the context once the model is loaded.

    Refused with TVM's reason if it does not compile the model.
    """
    linker()

    def make(folder: str) -> None:
        asked = {"model": model, "shapes": shapes, "records": records, "library": os.path.join(folder, _LIBRARY)}
        # The compiler runs in another process, so that its memory does not count as the model's and a crash ends
        # nothing else.
        done = run_function(f"{__name__.rpartition('.')[0]}.compile", "main", given=json.dumps(asked))
        sys.stderr.write(done.stderr[-4000:])
        answer = answer_of(done)
        if answer is None:
            last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
            raise Refused(f"TVM's compiler {how_it_ended(done)}: {''.join(last)[:300] or 'it printed nothing'}")
        if "refused" in answer:
            raise Refused(answer["refused"])

    with made_of(model, ["tvm", shapes, records, versions], make) as folder:
        path = os.path.join(folder, _LIBRARY)
        with open(f"{path}.json", encoding="utf-8") as file:
            yield Library(path, **json.load(file))

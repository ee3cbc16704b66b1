"""Compiled models of TVM: made in a process of their own, and kept for the other processes of a visit.

A worker's temporary folder is the private one of the visit, which is removed at its end. There a compiled model lies
under the digest of all that it was made from, so that the fresh processes of a campaign compile it once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from ...driver import Refused

if TYPE_CHECKING:
    from typing import Self

#: The beginning of the line of JSON that the compiling process prints.
TOLD = "gnomon-tvm "
_KEPT_MOST = 64
_PREFIX = "gnomon-tvm-"
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
_READ_BYTES = 1 << 20


class Library:
    """A compiled model: the path of its shared library, and what is told of it. Leave it once it is loaded.

    `functions` is the number of its functions, `scheduled` how many of them a record schedules. `calls` are the
    functions in the order of their calls, each with the model's nodes that it computes, None where that could not be
    told. `extern` are functions of TVM's own library that it calls.
    """

    def __init__(self, path: str, told: dict[str, Any], temporary: str | None) -> None:
        self.path = path
        self.functions = int(told["functions"])
        self.scheduled = int(told["scheduled"])
        self.calls: list[tuple[str, list[int] | None]] = [(name, nodes) for name, nodes in told["calls"]]
        self.extern: list[str] = told["extern"]
        self.inputs: list[str] = told["inputs"]
        self.outputs: list[str] = told["outputs"]
        self._temporary = temporary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def linker() -> str:
    """The program that links compiled models, which TVM will choose. Refused where there is none."""
    named = os.environ.get("CXX") or os.environ.get("CC") or ""
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, _LINKERS)), None)
    if found is None:
        what = f"{named}, which CXX or CC names, is not there" if named else "there is no C++ compiler on the PATH"
        raise Refused(f"TVM links what it compiles, and {what}; install one (apt install g++)")
    return found


def compiled(model: str, *, target: Any, records: str, versions: str) -> Library:
    """The compiled model of a file, from the visit's private folder if it is there. Refused with TVM's reason."""
    linker()
    whole = hashlib.sha256()
    with open(model, "rb") as file:
        while chunk := file.read(_READ_BYTES):
            whole.update(chunk)
    # Weights beside the file are read by its path; what lies there stays as it is during a visit.
    whole.update(json.dumps([os.path.abspath(model), target, records, versions], sort_keys=True).encode())
    name = f"{_PREFIX}{whole.hexdigest()[:32]}"
    folder = tempfile.gettempdir()
    temporary = None
    if not _private(folder):
        # Others could put a library of that name there, which this process would run.
        folder = temporary = tempfile.mkdtemp(prefix=_PREFIX)
    path = os.path.join(folder, f"{name}.so")
    try:
        if not os.path.exists(path):
            _keep_few(folder)
            _compile({"model": model, "target": target, "records": records, "library": path})
        with open(f"{path}.json", encoding="utf-8") as file:
            return Library(path, json.load(file), temporary)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _private(folder: str) -> bool:
    found = os.stat(folder)
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _keep_few(folder: str) -> None:
    """Remove the oldest compiled models where there are many: a table measures thousands of networks in a visit."""
    mine = [os.path.join(folder, n) for n in os.listdir(folder) if n.startswith(_PREFIX) and n.endswith(".so")]
    for path in sorted(mine, key=os.path.getmtime)[: max(0, len(mine) + 1 - _KEPT_MOST)]:
        for part in (path, f"{path}.json"):
            try:
                os.remove(part)
            except FileNotFoundError:  # another process was faster
                pass


def _compile(asked: dict[str, Any]) -> None:
    """Compile in another process: the compiler's memory is not the model's, and its crash ends nothing else."""
    root = os.path.abspath(__file__)  # inside the zip application, where this is one
    for _ in __name__.split("."):
        root = os.path.dirname(root)
    module = f"{__name__.rpartition('.')[0]}.compile"
    script = "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2]).main()"
    done = subprocess.run(
        [sys.executable, "-c", script, root, module],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    sys.stderr.write(done.stderr[-4000:])
    told = [line for line in done.stdout.splitlines() if line.startswith(TOLD)]
    if not told:
        how = f"ended with status {done.returncode}" if done.returncode >= 0 else f"died of signal {-done.returncode}"
        last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
        raise Refused(f"TVM's compiler {how}: {''.join(last)[:300] or 'it said nothing'}")
    answer = json.loads(told[-1].removeprefix(TOLD))
    if "refused" in answer:
        raise Refused(answer["refused"])

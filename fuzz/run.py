"""Runs targets in separate processes, with a time and memory limit for each input, and reports the results.

Inputs are determined by the seed, the target's name and a number. So if a process dies, the number that it had reached
is enough to make the input again.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import shlex
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.mutate import mutated
from fuzz.targets import Target
from gnomon.errors import GnomonError, RuntimeMissingError

LIMIT_S, LIMIT_BYTES = 10, 1 << 30
"""The limits for one input: processor seconds, and memory in addition to what the process already has."""

_HANGS_S = 300
_SLOW_S = 1.0
_STATE = struct.Struct("<qqqdq")
_SHOWN = 300


@dataclass(slots=True)
class Tally:
    """The results of a target's inputs.

    `findings` has an entry for each exception and place where it was raised, with the command that repeats it.
    `missing` names the package without which the target cannot be attacked.
    """

    name: str
    accepted: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    slowest: int = -1
    peak_bytes: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    missing: str = ""

    @property
    def inputs(self) -> int:
        """The number of inputs that were tried."""
        return self.accepted + self.refused + len(self.findings)

    def line(self) -> str:
        """A summary in one line."""
        if self.missing:
            return f"{self.name:28} not attacked: {self.missing}"
        found = f"  {len(self.findings)} FOUND" if self.findings else ""
        return (
            f"{self.name:28} {self.accepted:8} accepted {self.refused:8} refused"
            f"  slowest {self.slowest_s:6.3f} s  {self.peak_bytes >> 20:4} MiB{found}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The settings of an attack: the seed of all random numbers, and the folder for findings."""

    seed: int
    folder: Path

    def input_of(self, target: Target, number: int) -> bytes:
        """The input with this number: first the unchanged seeds, then damaged ones."""
        seeds = target.made()
        if number < len(seeds):
            return seeds[number]
        draw = Random(f"{self.seed}/{target.name}/{number}")
        return mutated(draw, seeds)

    def run(self, target: Target, *, seconds: float, count: int | None, first: int = 0) -> Tally:
        """Attack one target for a time, or with a number of inputs, beginning at a number; all seeds are read in any
        case.
        """
        tally = Tally(target.name)
        begin, end = first, None if count is None else first + count
        try:
            seeds = target.made()
        except (ImportError, RuntimeMissingError) as error:
            tally.missing = str(error)
            return tally
        ends_s = time.monotonic() + seconds  # memory for making the seeds does not count as the reader's
        while True:
            with mmap.mmap(-1, _STATE.size) as state:
                child = os.fork()
                if not child:
                    self._child(target, state, begin, end, ends_s)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                number, accepted, refused, slowest_s, slowest = _STATE.unpack(state)
            tally.accepted += accepted
            tally.refused += refused
            if slowest_s > tally.slowest_s:
                tally.slowest_s, tally.slowest = slowest_s, slowest
            tally.peak_bytes = max(tally.peak_bytes, self._read_notes(tally, child))
            if status == 0:
                break
            self._keep(tally, target, number, _death(status))
            begin = number + 1
        if first == 0 and tally.accepted == 0 and seeds:
            tally.findings["no seed is read"] = "its seeds are refused, so that nothing of it was tried"
        return tally

    def _child(self, target: Target, state: mmap.mmap, begin: int, end: int | None, ends_s: float) -> None:
        """Run in a child process; never returns."""
        try:
            with tempfile.TemporaryDirectory(prefix="gnomon-fuzz-") as folder:
                os.chdir(folder)
                found = self._inputs(target, state, begin, end, ends_s)
                (self.folder / f".{os.getpid()}.json").write_text(json.dumps(found), encoding="utf-8")
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)

    def _inputs(
        self, target: Target, state: mmap.mmap, begin: int, end: int | None, ends_s: float
    ) -> tuple[int, dict[str, int]]:
        """Read input by input; return the peak memory, and the first input of each finding."""
        warnings.simplefilter("ignore")
        _confine()
        before, found = _peak(), dict[str, int]()
        accepted = refused = 0
        slowest_s, slowest, number = 0.0, -1, begin
        seeds = len(target.made())
        while (end is None or number < end) and (number < seeds or time.monotonic() < ends_s):
            state[:] = _STATE.pack(number, accepted, refused, slowest_s, slowest)
            data = self.input_of(target, number)
            _wind_up()
            began_s = time.process_time()
            wrong = read_one(target, data)
            took_s = time.process_time() - began_s
            if took_s > slowest_s:
                slowest_s, slowest = took_s, number
            if wrong is None:
                accepted += 1
            elif not wrong:
                refused += 1
            elif wrong not in found:
                found[wrong] = number
                self._told(target, number, wrong)
            number += 1
        state[:] = _STATE.pack(number, accepted, refused, slowest_s, slowest)
        return _peak() - before, found

    def _told(self, target: Target, number: int, wrong: str) -> None:
        self._save(target, number)
        print(f"{target.name}, input {number}: {wrong}", file=sys.stderr, flush=True)

    def _read_notes(self, tally: Tally, child: int) -> int:
        """Add the findings that the process left to the tally; return the memory that it took."""
        path = self.folder / f".{child}.json"
        if not path.exists():
            return 0
        peak, found = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        for wrong, number in found.items():
            tally.findings.setdefault(wrong, self._repeats(tally.name, number))
        return int(peak)

    def _keep(self, tally: Tally, target: Target, number: int, wrong: str) -> None:
        self._told(target, number, wrong)
        tally.findings.setdefault(f"{wrong}, input {number}", self._repeats(target.name, number))

    def _file(self, name: str, number: int) -> Path:
        return self.folder / f"{name.replace(' ', '-')}-{self.seed}-{number}"

    def _save(self, target: Target, number: int) -> None:
        self._file(target.name, number).write_bytes(self.input_of(target, number))

    def _repeats(self, name: str, number: int) -> str:
        return shlex.join(["python", "-m", "fuzz", "--target", name, "--input", str(self._file(name, number))])

    def slow(self, target: Target, tally: Tally) -> float | None:
        """The time of an input that took more than a second, run alone: the best of three. None if there is no such
        input.
        """
        if tally.slowest_s <= _SLOW_S:
            return None
        self._save(target, tally.slowest)
        again = [self.run(target, seconds=60, count=1, first=tally.slowest).slowest_s for _ in range(3)]
        return min(again)


def read_one(target: Target, data: bytes) -> str | None:
    """None if the input was accepted, "" if it was refused, otherwise the fault of the reader."""
    try:
        target.read(data)
    except BaseException as error:
        if not isinstance(error, (GnomonError, *target.refuses)):
            return _place_of(error)
        if any(isinstance(cause, MemoryError) for cause in _causes(error)):
            return f"more than {LIMIT_BYTES >> 20} MiB were asked for, then: {error}"[:_SHOWN]
        return ""
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place_of(error: BaseException) -> str:
    """The exception, and the last line of gnomon that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/gnomon/" in frame.filename] or list(frames)
    last = ours[-1]
    file = last.filename.rpartition("/gnomon/")[2]
    return f"{type(error).__name__} from {file}:{last.lineno}"


def _death(status: int) -> str:
    if -status == signal.SIGXCPU:
        return f"more than {LIMIT_S} s"
    if -status == signal.SIGALRM:
        return f"hung for {_HANGS_S} s"
    return f"the process died with {signal.Signals(-status).name if status < 0 else f'status {status}'}"


def _confine() -> None:
    """Limit the resources of this process; allow no core files, and no output of child processes."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _wind_up() -> None:
    """Start the time limit of the next input: the kernel ends a process that exceeds it, whatever it is doing."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + LIMIT_S + 1, hard))
    signal.setitimer(signal.ITIMER_REAL, _HANGS_S)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

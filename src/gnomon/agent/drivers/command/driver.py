"""A declared command on the device: the files and processes that it needs, and the times that it reports."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np

from ...arrays import Buffers, dtype_of, name_of, output_array
from ...driver import Loaded, Refused
from ...lifeline import kill_tree
from ...plan import digest_of
from ...timing import inner_loop
from .reading import Unreadable
from .report import Report, filled, placeholders, report_of

if TYPE_CHECKING:
    from gnomon.wire import Answer, BlockFacts, BlockLimits, CommandSpec, KernelTimes, RuntimeModel, Segment, WarmUp

_MOST_PRINTED = 64 << 20
"""The largest number of bytes that a process may print on each of its two streams."""
_LEAST_FREE = 64 << 10
"""A disk with fewer free bytes than this counts as full."""
_LOOK_S = 0.1
_BLOCKS = 5
"""A program gets a single block per worker, which is as long as this many blocks of other runtimes, because it loads
its model each time.
"""
_ENOUGH = 0.3
"""The minimum share of a block's time that its calls must have taken."""
_LAST_LINES, _LAST_LETTERS = 3, 300
_MOST_TOLD = 500
"""The largest number of bytes of a stream that are copied to the worker's log each time."""


class Crashed(Refused):
    """The program was ended by a signal; `kind` is the kind of the failure."""

    kind = "crash"


@dataclass(frozen=True)
class Ended:
    """A process that ended with status 0: its output, its times, and its peak memory."""

    printed: str
    wall_ns: int
    cpu_ns: int
    peak_rss_bytes: int


def run_program(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> Ended:
    """Run a program in a folder until it ends. Refused if it cannot start, fails, or prints endlessly."""
    name = os.path.basename(argv[0])
    with tempfile.TemporaryFile(dir=folder) as output, tempfile.TemporaryFile(dir=folder) as errors:
        began = time.perf_counter_ns()
        try:
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        except OSError as error:
            raise Refused(f"{name} cannot be started: {error.strerror or error}") from error
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, (output, errors), ended), daemon=True)
        watcher.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_ns = time.perf_counter_ns() - began
        ended.set()
        watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        printed = "\n".join(_text(stream) for stream in (output, errors))
        if max(map(_size, (output, errors))) > _MOST_PRINTED:
            raise Refused(f"{name} printed more than {_MOST_PRINTED >> 20} MiB, so it was stopped")
        if (
            process.returncode and shutil.disk_usage(folder).free < _LEAST_FREE
        ):  # a full disk is not the program's fault
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} in the folder in which {name} ran")
    _check_end(name, process.returncode, printed)
    cpu_ns = round((used.ru_utime + used.ru_stime) * 1e9)
    return Ended(printed=printed, wall_ns=wall_ns, cpu_ns=cpu_ns, peak_rss_bytes=used.ru_maxrss * 1024)


def _watch(pid: int, streams: Sequence[IO[bytes]], ended: threading.Event) -> None:
    """Kill a process that prints endlessly, because other processes need the disk too.

    Meanwhile the end of its output is copied to the worker's log, which is reported if the worker has to be killed.
    """
    seen = [0] * len(streams)
    while not ended.wait(_LOOK_S):
        for number, stream in enumerate(streams):
            size = _size(stream)
            if size > _MOST_PRINTED:
                kill_tree(pid)
                return
            os.write(2, os.pread(stream.fileno(), _MOST_TOLD, max(seen[number], size - _MOST_TOLD)))
            seen[number] = size


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_MOST_PRINTED).decode("utf-8", "replace")


def _check_end(name: str, code: int, printed: str) -> None:
    lines = [line.strip()[:_LAST_LETTERS] for line in printed.splitlines() if line.strip()]
    last = " | ".join(lines[-_LAST_LINES:]) or "it printed nothing"
    if code < 0:
        names = {int(number): number.name for number in signal.Signals}
        raise Crashed(f"{name} was killed by {names.get(-code, f'signal {-code}')}: {last}")
    if code:
        raise Refused(f"{name} ended with status {code}: {last}")


class LoadedCommand(Loaded):
    """A model that is bound to the caller's arrays and that a command runs, each time in a new process."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        options = segment["options"]
        self._spec: CommandSpec = options["command"]
        self._segment, self._buffers, self._profiled = segment, buffers, profiled
        _sweep()
        self._values = {
            **self._spec.get("choices", {}),
            "model": os.path.abspath(segment["model"]),
            "threads": str(options.get("threads", 1)),
        }
        self._words = [*self._spec["run"], *(self._spec.get("profile", ()) if profiled else ())]
        files, prepare = self._spec.get("files", {}), self._spec.get("prepare", [])
        self._used = placeholders([*self._words, *files.values(), *(w for words in prepare for w in words)])
        self._results = [name for name in (self._spec.get("file"), self._spec.get("operators", {}).get("file")) if name]
        self._first: tuple[Ended, Report] | None = None
        self._listed = ""
        self._fastest_ns = math.inf
        self._peak_rss_bytes = 0
        prepared = os.path.join(os.getcwd(), f"prepared-{_identity(self._spec, segment['model'])}")
        self._enter(prepared if prepare else "")
        if prepare and not os.path.isdir(prepared):
            for words in prepare:
                self._start(words, runs=1, warm_runs=0)
            os.rename(self._folder, prepared)
            self._enter(prepared)
        self.call = self._call

    def _enter(self, prepared: str) -> None:
        """Create this process's own folder, with the files that are prepared once for all processes, the inputs, and
        the declared files.
        """
        self._folder = tempfile.mkdtemp(prefix=f"command-{os.getpid()}-", dir=os.getcwd())
        inputs = os.path.join(self._folder, "inputs", "in")
        listed = os.path.join(self._folder, "inputs.txt")
        self._values |= {"folder": self._folder, "inputs": inputs, "input_list": listed}
        if os.path.isdir(prepared):
            shutil.copytree(prepared, self._folder, dirs_exist_ok=True, symlinks=True)
        os.makedirs(os.path.dirname(inputs), exist_ok=True)
        self._write_inputs()
        for name, text in self._spec.get("files", {}).items():
            path = os.path.join(self._folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(filled(text, {**self._values, "runs": "1", "warm": "0"}))

    def _call(self) -> None:
        """Run one process that makes one call, and read its outputs into the arrays."""
        self._write_inputs()
        self._first = self._run(runs=1, warm_runs=0)
        if self._spec.get("outputs"):
            self._read_outputs()

    def take(self, limits: BlockLimits, warm: WarmUp) -> BlockFacts:
        """A block of samples from one process, or from several if one makes too few calls. The program's own times are
        used if it reports any.
        """
        alone = not self._used & {"runs", "input_list"}
        single = alone or self._spec.get("each", "call") != "call"
        seconds = _BLOCKS * limits["seconds"]
        calls: list[int] = []
        cpu: list[int] = []
        operators: list[KernelTimes] = []
        inner = 1
        end = time.monotonic() + seconds
        # A program that was asked for several calls is started again if they took far less time than expected: the only
        # call timed so far may have been a cold one.
        while not calls or (
            len(calls) < limits["most"]
            and time.monotonic() < end
            and (alone or (not single and sum(calls) < _ENOUGH * seconds * 1e9))
        ):
            best_ns = min(max(self._fastest_ns, 1000.0), 1e12)
            inner = inner if calls or single else inner_loop(int(best_ns), limits["sample_ns"])
            wanted = math.ceil(seconds * 1e9 / (best_ns * inner))
            runs = max(limits["least"], min(limits["most"], wanted)) * inner
            warm_runs = max(warm["warm_count"], math.ceil(warm["warm_s"] * 1e9 / best_ns))
            # If the number of calls cannot be requested, the process that opened the job is as good as any other.
            first, self._first = self._first if alone else None, None
            ended, reported = first or self._run(runs=runs, warm_runs=warm_runs)
            calls += reported.calls_ns
            # If the program times its own calls, their CPU time is unknown; with zeros, wall time decides.
            cpu += [0 if self._spec.get("read") else ended.cpu_ns] * len(reported.calls_ns)
            operators = reported.operators
        inner = inner if len(calls) >= inner else 1
        facts: BlockFacts = {
            "wall_ns": _sums(calls, inner),
            "cpu_ns": _sums(cpu, inner),
            "inner": inner,
            "peak_rss_bytes": self._peak_rss_bytes,
            "waits": None,
        }
        if self._profiled:
            facts["operators"] = operators
        return facts

    def close(self) -> None:
        """Remove the folder; may be called twice."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)
        super().close()

    def _run(self, *, runs: int, warm_runs: int) -> tuple[Ended, Report]:
        for name in self._results:  # remove results of an earlier process; some programs append to them
            for path in self._left(name):
                os.remove(path)
        ended = self._start(self._words, runs=runs, warm_runs=warm_runs)
        try:
            reported = report_of(
                self._spec, ended.printed, self._read_file, profiled=self._profiled, wall_ns=ended.wall_ns
            )
        except Unreadable as error:
            raise Refused(f"{self._spec['name']}: {error}") from error
        self._fastest_ns = min(self._fastest_ns, *reported.calls_ns)
        self._peak_rss_bytes = max(self._peak_rss_bytes, ended.peak_rss_bytes)
        return ended, reported

    def _start(self, words: Sequence[str], *, runs: int, warm_runs: int) -> Ended:
        values = {**self._values, "runs": str(runs), "warm": str(warm_runs)}
        if "input_list" in self._used:
            with open(values["input_list"], "w", encoding="utf-8") as file:
                file.write(runs * f"{self._listed}\n")
        environment = {name: filled(value, values) for name, value in self._spec.get("environment", {}).items()}
        return run_program([filled(word, values) for word in words], self._folder, environment)

    def _read_file(self, name: str) -> str:
        paths = self._left(name)
        if not paths:
            raise Unreadable(f"it wrote no file {name}")
        try:
            with open(paths[-1], encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_PRINTED)
        except OSError as error:
            raise Unreadable(f"its file {name} cannot be read ({error.strerror or error})") from error

    def _left(self, name: str) -> list[str]:
        """The files in the folder that match a name or pattern, sorted by name."""
        return sorted(glob.glob(os.path.join(glob.escape(self._folder), filled(name, self._values))))

    def _write_inputs(self) -> None:
        """Write the inputs in each format that a placeholder asks for."""
        bound = self._segment["inputs"]
        paths = [f"{self._values['inputs']}.{number}" for number in range(len(bound))]
        if self._used & {"inputs", "input_files", "input_list"}:
            for path, (_, tensor) in zip(paths, bound, strict=True):
                self._buffers[tensor].tofile(path)
        pairs = (f"{name}:={os.path.relpath(path, self._folder)}" for path, (name, _) in zip(paths, bound, strict=True))
        self._listed = " ".join(pairs)
        packed = os.path.join(self._folder, "inputs.npz")
        if "inputs_npz" in self._used:
            np.savez(packed, allow_pickle=False, **{name: self._buffers[tensor] for name, tensor in bound})
        chained = os.path.join(self._folder, "inputs.npy")
        if "inputs_npy" in self._used:
            with open(chained, "wb") as file:
                for _, tensor in bound:
                    np.save(file, self._buffers[tensor], allow_pickle=False)
        shapes = (",".join(map(str, reversed(self._buffers[tensor].shape))) for _, tensor in bound)
        self._values.update(
            input_files=",".join(paths),
            inputs_npz=packed,
            inputs_npy=chained,
            ncnn_shapes=",".join(f"[{shape}]" for shape in shapes),
        )

    def _read_outputs(self) -> None:
        """Read the program's outputs into the arrays. Refused if one is missing or has the wrong length."""
        template = os.path.join(self._folder, filled(self._spec["outputs"], self._values))
        for index, (name, tensor) in enumerate(self._segment["outputs"]):
            path = filled(template, {"index": str(index), "name": name})
            try:
                if path.endswith(".npz"):
                    with np.load(path, allow_pickle=False) as stored:
                        array = stored[name] if name in stored else stored[stored.files[index]]
                else:
                    bound = self._buffers.get(tensor)
                    if bound is None:
                        raise Refused(f"the shape of the output {name!r} is open, and raw files do not contain it")
                    array = np.fromfile(path, dtype_of(name_of(bound.dtype))).reshape(bound.shape)
                np.copyto(output_array(self._buffers, tensor, array.shape, name_of(array.dtype)), array)
            except (OSError, ValueError, KeyError, IndexError) as error:
                raise Refused(f"the output {name!r} cannot be read from {os.path.basename(path)}: {error}") from error


def _sweep() -> None:
    """Remove the folders of processes that have ended: killed workers leave them behind, and the prepared files may be
    large.
    """
    for name in os.listdir():
        owner = re.fullmatch(r"command-(\d+)-.*", name)
        try:
            if owner is not None:
                os.kill(int(owner[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(name, ignore_errors=True)


def _identity(spec: CommandSpec, model: str) -> str:
    """A digest that is equal for processes with the same preparation."""
    return hashlib.sha256(json.dumps([spec, model], sort_keys=True).encode()).hexdigest()[:16]


def _sums(values: Sequence[int], inner: int) -> list[int]:
    return [sum(values[k : k + inner]) for k in range(0, len(values) - inner + 1, inner)]


class CommandDriver:
    """The driver of all declared commands; a segment's options contain the command."""

    def probe(self) -> Answer:
        """Report nothing, as nothing is known without a declaration; `supports` finds the program."""
        return {"version": "", "backends": []}

    def supports(self, segment: RuntimeModel) -> Answer:
        """The program's version; "" if it does not report one. Refused if the program does not exist."""
        spec: CommandSpec = segment["options"]["command"]
        name = filled(spec["run"][0], spec.get("choices", {}))
        program = shutil.which(name)
        if program is None:
            raise Refused(f"there is no program {name} on the device's PATH")
        return {"version": _version(spec, program), "backends": [spec["name"]]}

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> Loaded:
        """Write the command's files and prepare the model; nothing stays loaded between processes."""
        return LoadedCommand(segment, buffers, profiled=profiled)


def _version(spec: CommandSpec, program: str) -> str:
    """The first line with a digit that the version command prints; without such a command, the digest of the program's
    file.
    """
    if not spec.get("version"):
        return f"SHA-256 {digest_of(program)[:12]}"
    values = spec.get("choices", {})
    environment = {name: filled(value, values) for name, value in spec.get("environment", {}).items()}
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        lines = run_program([filled(word, values) for word in spec["version"]], folder, environment).printed.split("\n")
    return next((line.strip()[:80] for line in lines if re.search(r"\d", line)), "")

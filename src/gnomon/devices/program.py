"""The interface to a runtime's own program, for devices that have no Python for the agent.

A program runs a model file a number of times in a process of its own, prints the times, and reads and writes tensors as
raw files: the bytes of tensor k are in ``PREFIX.k``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gnomon.system.process import Completed
from gnomon.wire import Answer, KernelTimes, Options, ProbeAnswer, RuntimeModel


class ProgramRefused(Exception):
    """The program does not exist, refuses, or prints unreadable output; the message states the problem in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One process of a program: `warm_runs`, which do not count, followed by `runs`, which do.

    `inputs` and `outputs` are prefixes of raw files; None means inputs chosen by the program, or unwanted outputs.
    `trace` is a folder for the output of the program's own profiler, None for no profiling.
    """

    runs: int
    warm_runs: int
    inputs: str | None = None
    outputs: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command for the device, and the names of the files that it writes to the trace's folder."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    traces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The measurements that a process reported, with times in nanoseconds.

    `calls_ns` are the times of its runs, or empty if the process reports only their mean, `mean_ns`. `load_ns` is the
    time until the first run. `operators` has a row for each operator and backend: name, sources (operator indices),
    backend, and the time of each call, warm-up calls first.
    """

    load_ns: int
    warm_ns: tuple[int, ...]
    calls_ns: tuple[int, ...]
    mean_ns: float
    peak_rss_bytes: int | None = None
    operators: tuple[KernelTimes, ...] = ()


Shell = Callable[[str], Completed]
"""Runs a script in the shell of the device."""

Attempt = Callable[[Options], str]
"""Lets the program prepare the model with these options of a segment; returns "" or, in one line, why it fails."""


class ProgramDriver(Protocol):
    """A runtime's own program. A driver has no state: the result of `probe` is passed back to it as `answer`.

    Contract: only the returned commands change anything on the device; methods raise nothing but `ProgramRefused`.
    """

    name: str

    def probe(self, shell: Shell) -> ProbeAnswer:
        """Find the program: its `version` and `backends`, its path as `program`, and all that `command` needs."""

    def supports(self, attempt: Attempt, options: Options) -> Answer:
        """The operators that a backend takes, in the format of an agent's driver (docs/agent.md)."""

    def command(self, answer: ProbeAnswer, segment: RuntimeModel, order: Order) -> Command:
        """The command that starts a process that runs a segment's model."""

    def read(self, segment: RuntimeModel, ended: Completed, traces: Mapping[str, bytes]) -> Taken:
        """The measurements of a process that ended successfully, from its output and its trace files."""

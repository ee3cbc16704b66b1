"""What gnomon asks of a runtime's own program, on devices that have no Python for the agent.

A program runs a model file a number of times in a process of its own, prints how long that took, and reads and writes
tensors as raw files: the bytes of tensor k lie in ``PREFIX.k``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gnomon.system.process import Completed
from gnomon.wire import Answer, KernelTimes, Options, ProbeAnswer, RuntimeModel


class ProgramRefused(Exception):
    """The program is not there, says no, or prints what cannot be read; the message says which, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One process of a program: `warm_runs` that do not count, then `runs` that do.

    `inputs` and `outputs` are prefixes of raw files; None for inputs of the program's own, and for outputs that nobody
    wants. `trace` is a folder for what the program's own profiler writes, None for no profiling.
    """

    runs: int
    warm_runs: int
    inputs: str | None = None
    outputs: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command for the device, and the names of the files that it leaves in the trace's folder."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    traces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The measurements that a process reported, times in nanoseconds.

    `calls_ns` are its runs one by one, or empty where it only reports their mean, `mean_ns`. `load_ns` is all until the
    first run. `operators` has a row for each operator and backend: name, sources (operator indices), backend, and the
    time of each call, warm ones first.
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
"""Lets the program prepare the model with these options of a segment: "" or, in one line, why it does not."""


class ProgramDriver(Protocol):
    """A runtime's own program. Stateless: what `probe` found is handed back to it as `answer`.

    Contract: nothing is changed on the device but by the commands that are returned; methods raise `ProgramRefused`
    only.
    """

    name: str

    def probe(self, shell: Shell) -> ProbeAnswer:
        """Find the program: its `version` and `backends`, its path as `program`, and whatever `command` needs."""

    def supports(self, attempt: Attempt, options: Options) -> Answer:
        """The operators that a backend takes: the answer of an agent's driver to the same command (docs/agent.md)."""

    def command(self, answer: ProbeAnswer, segment: RuntimeModel, order: Order) -> Command:
        """How a process is started that runs a segment's model."""

    def read(self, segment: RuntimeModel, ended: Completed, traces: Mapping[str, bytes]) -> Taken:
        """The measurements of a process that ended well, from its output and its trace files."""

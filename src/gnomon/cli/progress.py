"""Progress on the standard error: on a terminal a bar for each device, otherwise a line for each stage and every 30
s.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from gnomon.devices.lease import Waiting
from gnomon.report import units
from gnomon.report.plain import clean, shorten
from gnomon.system.stopping import ANSWERS

if TYPE_CHECKING:
    from gnomon.measure.progress import Progress, Standing

_FIRST = "look at the model and the runtimes"
_NAME_WIDTH = 20
_STAGE_WIDTH = 24
_EVERY_S = 30.0
_MOST_ROWS, _MOST_NAMED = 8, 4


def _bar(width: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    class Bars(Progress):
        table: Any = None

        def get_renderables(self) -> Iterable[Any]:
            return (*([self.table] if self.table is not None else []), self.make_tasks_table(self.tasks))

    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=width),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )


def _table(standings: Sequence[Standing]) -> Any:
    """The standings of the compared configurations so far, as a table above the bar."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("so far")
    for title in ("CPU time" if standings[0].clock == "cpu" else "wall time", "95 % interval", "wall", "times as long"):
        table.add_column(title, justify="right")
    for row in standings[:_MOST_ROWS]:
        time_s = row.time.median_s
        bounds = units.interval(row.time.low_s, row.time.high_s, time_s)
        cells = (clean(row.label), units.time(time_s), bounds, units.time(row.wall_s), f"{row.ratio:.2f}")
        table.add_row(*map(Text, cells))  # rich takes a str as markup and would drop [threads=1]
    return table


def _line(standings: Sequence[Standing]) -> str:
    """The standings in one line, for a log."""
    first, *others = standings[:_MOST_NAMED]
    clock = "CPU time" if first.clock == "cpu" else "wall time"
    behind = "".join(f", {clean(row.label)} {row.ratio:.2f} times as long" for row in others)
    return f"so far: {clean(first.label)} {units.time(first.time.median_s)} of {clock}{behind}"


class Show:
    """A context manager that shows the progress and the messages of a job, and removes the bars at its end.

    With the `names` of several devices, each has its own bar, and lines begin with its name. `first` describes the
    work until the first stage is reported. The job calls `on_progress` and `on_message`, from any thread. If the job
    `answers`, Ctrl-C requests the answer so far.
    """

    def __init__(self, *, quiet: bool, names: Sequence[str] = (), first: str = _FIRST, answers: bool = True) -> None:
        self._quiet, self._may_answer = quiet, answers
        self._names = tuple(names)
        self._first = first
        self._wide = max((len(shorten(name, _NAME_WIDTH)) for name in self._names), default=0)
        self._bar: Any = None
        self._tasks: dict[str, object] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        from gnomon.store.base import ARGUMENTS

        self._answers = ANSWERS.set(self._may_answer)
        # Jobs store the command's words in the results database, so that `gnomon runs resume` can repeat the command.
        context = click.get_current_context(silent=True)
        words = context.find_root().obj if context is not None else None
        self._asked = ARGUMENTS.set(words if isinstance(words, tuple) else ())
        if not self._quiet and sys.stderr.isatty():
            self._bar = _bar(10 if self._names else 30)
            self._bar.start()
            for name in self._names or ("",):
                self._tasks[name] = self._bar.add_task(self._labelled(name, self._first), total=None, left="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from gnomon.store.base import ARGUMENTS

        ANSWERS.reset(self._answers)
        ARGUMENTS.reset(self._asked)
        if self._bar is not None:
            self._bar.stop()

    @property
    def on_progress(self) -> Callable[..., Any]:
        """A function that shows the progress of a stage; with several devices, a function that returns it for a
        device's name.
        """
        return self._watch_of if self._names else self._watch_of("")

    def on_message(self, *words: str) -> None:
        """Show a sentence; with several devices, the first word is the device's name. --quiet hides it, except for
        messages about waiting.
        """
        line = ": ".join(map(clean, words))
        if self._bar is not None:
            self._bar.console.print(line, markup=False)
        elif isinstance(words[-1], Waiting) or not self._quiet:
            self._print(line)

    def _labelled(self, name: str, stage: str) -> str:
        if not name:
            return stage
        return shorten(f"{shorten(name, _NAME_WIDTH):<{self._wide}}  {stage}", _STAGE_WIDTH + self._wide)

    def _watch_of(self, name: str) -> Callable[[Progress], None]:
        stage, done, told_s, ahead = "", 0, 0.0, ""

        def watch(progress: Progress) -> None:
            nonlocal stage, done, told_s, ahead
            new = progress.stage != stage or progress.done < done
            stage, done = progress.stage, progress.done
            standings = progress.standings
            if self._bar is not None:
                self._bar.table = _table(standings) if standings and not name else None
                left = "" if progress.left_s is None else f"{units.duration(progress.left_s)} left"
                label = self._labelled(name, progress.stage)
                self._bar.update(
                    self._tasks[name], description=label, completed=progress.done, total=progress.total, left=left
                )
            elif not self._quiet and (new or time.monotonic() - told_s >= _EVERY_S):
                left = "" if progress.left_s is None else f", about {units.duration(progress.left_s)} left"
                far = f" ({progress.total} steps)" if new else f": {progress.done} of {progress.total}{left}"
                self._print(": ".join(filter(None, (clean(name), f"{progress.stage}{far}"))))
                told_s = time.monotonic()
            if self._bar is None and not self._quiet and standings and standings[0].label != ahead:
                ahead = standings[0].label
                self._print(": ".join(filter(None, (clean(name), _line(standings)))))

        return watch

    def _print(self, line: str) -> None:
        with self._lock:  # lines of several threads must not mix
            sys.stderr.write(f"gnomon: {line}\n")
            sys.stderr.flush()

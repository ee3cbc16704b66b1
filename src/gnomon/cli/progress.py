"""Progress on the standard error: one bar a device on a terminal, else a line a stage."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from gnomon.devices.lease import Waiting
from gnomon.report.plain import clean, shorten
from gnomon.report.units import duration

if TYPE_CHECKING:
    from gnomon.measure.progress import Progress

_FIRST = "look at the model and the runtimes"
_NAME_WIDTH = 20
_STAGE_WIDTH = 24


def _bar(width: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=width),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )


class ShowFleet:
    """Shows several devices at once: a bar each on a terminal, else lines that begin with the device's name.

    A context manager: leaving it takes the bars away. `watch_of` and `tell` may be called from any thread.
    """

    def __init__(self, names: Sequence[str], *, quiet: bool) -> None:
        self._names = tuple(names)
        self._quiet = quiet
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._bar = _bar(10)
            self._bar.start()
            wide = max([0, *(len(shorten(name, _NAME_WIDTH)) for name in self._names)])
            for name in self._names:
                told = f"{shorten(name, _NAME_WIDTH):<{wide}}  {_FIRST}"
                self._tasks[name] = self._bar.add_task(shorten(told, _STAGE_WIDTH + wide), total=None, left="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def watch_of(self, name: str) -> Callable[[Progress], None]:
        """What shows how far a stage is on a device; each device has its own."""
        wide = max(len(shorten(other, _NAME_WIDTH)) for other in self._names)
        label = f"{shorten(name, _NAME_WIDTH):<{wide}}"
        stage, done = "", 0

        def watch(progress: Progress) -> None:
            nonlocal stage, done
            new = progress.stage != stage or progress.done < done
            stage, done = progress.stage, progress.done
            if self._bar is not None:
                left = "" if progress.left_s is None else f"{duration(progress.left_s)} left"
                told = shorten(f"{label}  {progress.stage}", _STAGE_WIDTH + wide)
                self._bar.update(
                    self._tasks[name], description=told, completed=progress.done, total=progress.total, left=left
                )
            elif new:
                self._print(name, f"{progress.stage} ({progress.total} steps)")

        return watch

    def tell(self, name: str, sentence: str) -> None:
        """Show a sentence about a device; also where all is quiet, if it tells for whom it is waited."""
        if self._bar is not None:
            self._bar.console.print(f"{clean(name)}: {clean(sentence)}", markup=False)
        else:
            self._print(name, sentence, always=isinstance(sentence, Waiting))

    def _print(self, name: str, sentence: str, *, always: bool = False) -> None:
        if always or not self._quiet:
            with self._lock:  # whole lines, whichever lane writes them
                sys.stderr.write(f"gnomon: {clean(name)}: {clean(sentence)}\n")
                sys.stderr.flush()


class Show:
    """Shows what `watch` and `tell` are told. A context manager: leaving it takes the bar away.

    `first` is what is done until a first stage is told of.
    """

    def __init__(self, *, quiet: bool, first: str = _FIRST) -> None:
        self._quiet = quiet
        self._first = first
        self._bar: Any = None
        self._task: Any = None
        self._stage = ""
        self._done = 0

    def __enter__(self) -> Self:
        from gnomon.store.base import ARGUMENTS

        # What measures notes in the record how it was asked for, so that `gnomon runs resume` can ask again.
        context = click.get_current_context(silent=True)
        words = context.find_root().obj if context is not None else None
        self._asked = ARGUMENTS.set(words if isinstance(words, tuple) else ())
        if not self._quiet and sys.stderr.isatty():
            self._bar = _bar(30)
            self._bar.start()
            self._task = self._bar.add_task(self._first, total=None, left="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from gnomon.store.base import ARGUMENTS

        ARGUMENTS.reset(self._asked)
        if self._bar is not None:
            self._bar.stop()

    def watch(self, progress: Progress) -> None:
        """Show how far a stage is."""
        new = progress.stage != self._stage or progress.done < self._done
        self._stage, self._done = progress.stage, progress.done
        if self._bar is not None:
            left = "" if progress.left_s is None else f"{duration(progress.left_s)} left"
            self._bar.update(
                self._task, description=progress.stage, completed=progress.done, total=progress.total, left=left
            )
        elif new and not self._quiet:
            print(f"gnomon: {progress.stage} ({progress.total} steps)", file=sys.stderr, flush=True)

    def tell(self, sentence: str) -> None:
        """Show a sentence; also where all is quiet, if it tells for whom it is waited."""
        if self._bar is not None:
            self._bar.console.print(clean(sentence), markup=False)
        elif isinstance(sentence, Waiting) or not self._quiet:
            print(f"gnomon: {clean(sentence)}", file=sys.stderr, flush=True)

"""Progress on the standard error: one bar on a terminal, else a line a stage."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gnomon.report.plain import clean
from gnomon.report.units import duration

if TYPE_CHECKING:
    from gnomon.measure.progress import Progress


class Show:
    """Shows what `watch` and `tell` are told. A context manager: leaving it takes the bar away."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._stage = ""
        self._done = 0

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                console=Console(stderr=True, highlight=False),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("look at the model and the runtimes", total=None, left="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Show a sentence."""
        if self._bar is not None:
            self._bar.console.print(clean(sentence), markup=False)
        elif not self._quiet:
            print(f"gnomon: {clean(sentence)}", file=sys.stderr, flush=True)

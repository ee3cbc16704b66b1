"""The output of a command: its document as a report, JSON or a page, and progress and messages meanwhile."""

from __future__ import annotations

import functools
import inspect
import io
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.help import VERBOSE
from gnomon.errors import GnomonError, RecordError, system_errors
from gnomon.report.plain import json_text, listed

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.report.page import Page

PRINTED: ContextVar[bool] = ContextVar("PRINTED", default=False)
"""Whether the command has printed its document; if so, a later error must not print another one."""


def write_json(document: dict[str, object] | list[Any]) -> None:
    """Print a document as indented JSON; numbers that are not finite become null."""
    sys.stdout.write(json_text(document))
    sys.stdout.flush()
    PRINTED.set(True)


def showing(
    *, first: str | None = None, messages: bool = True, answers: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Show the progress of a function that takes `on_progress`, and its `messages` from `on_message`, unless --quiet.

    `first` describes the work until the first stage is reported. With several `devices`, each has its own progress. If
    the function `answers`, Ctrl-C requests the answer so far.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def shown(*, quiet: bool, **values: Any) -> Any:
            from gnomon.cli.progress import Show
            from gnomon.devices.opening import resolve

            devices = tuple(dict.fromkeys(values.get("devices", ())))
            names = [resolve(name).name for name in devices] if len(devices) > 1 else ()
            with Show(quiet=quiet, names=names, answers=answers, **({} if first is None else {"first": first})) as show:
                reported = {"on_message": show.on_message} if messages else {}
                return function(on_progress=show.on_progress, **reported, **values)

        return shown

    return decorated


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, changed to show its progress at a terminal or in a notebook unless a call passes its own
    listeners.
    """
    taken = inspect.signature(function).parameters
    if "on_progress" not in taken:
        return function

    @functools.wraps(function)
    def call(*arguments: Any, **values: Any) -> Any:
        if {"on_progress", "on_message"} & values.keys():
            return function(*arguments, **values)
        show = showing(messages="on_message" in taken, answers=False)
        return show(functools.partial(function, *arguments))(quiet=False, **values)

    return call


def answering(function: Callable[..., Any]) -> Callable[..., int]:
    """Write the result of a function, an `Answer` or a document, in the forms that the output options request.

    The exit code is that of the result, or the second of two returned values; otherwise 0. RecordError if a page cannot
    be written, after everything else has been written.
    """

    @functools.wraps(function)
    def answer(*, as_json: bool, html: Path | None = None, as_markdown: Path | None = None, **values: Any) -> int:
        if as_json:  # a closed output is reported before an hour of measuring, not after it
            with suppress(io.UnsupportedOperation):
                os.write(sys.stdout.fileno(), b"")
        result = function(**values)
        result, code = result if isinstance(result, tuple) else (result, getattr(result, "exit_code", 0))
        document = result if isinstance(result, dict) else result.document()
        if as_json:
            write_json(document)
        else:
            _write_report(document)
        if as_markdown is not None:
            with system_errors(RecordError, f"{as_markdown} cannot be written", hint="Name another file."):
                as_markdown.write_text(result.to_markdown(), encoding="utf-8")
        if html is not None:
            _write_html(document, html, as_json=as_json)
        return int(code)

    return answer


def _write_report(document: dict[str, object]) -> None:
    """Write the report of a document, or the document itself if its format has no report."""
    from gnomon.api.document import report_of

    report = report_of(document)
    if report is None:
        write_json(document)
        return
    page = report_page()
    report(document, page)
    end_report(page)


def _write_html(document: Mapping[str, object], out: Path, *, as_json: bool) -> None:
    """Write the page of a document, and report its path on the standard error."""
    from gnomon.api.html import write_page

    try:
        size = write_page(document, out)
    except Exception as error:  # everything else is written, and the page can be drawn again without measuring
        if os.environ.get("GNOMON_DEBUG") == "1":
            traceback.print_exc()
        message = f"the HTML page {out} cannot be created: {type(error).__name__}: {error}"
        run, record = document.get("campaign"), document.get("record")
        if run and record:
            again = f"gnomon report {str(run)[:8]} --record {shlex.quote(str(record))} -o FILE.html"
        elif as_json:
            again = "save the printed document as DOCUMENT.json, then gnomon report DOCUMENT.json -o FILE.html"
        else:
            again = "the same command with --json > DOCUMENT.json, then gnomon report DOCUMENT.json -o FILE.html"
        raise RecordError(
            error.message if isinstance(error, GnomonError) else message, hint=f"To create the page: {again}"
        ) from error
    click.echo(f"gnomon: the HTML page is {out} ({size:,} bytes)", err=True)


def report_page() -> Page:
    """The page for a report: a brief one, unless -v is given."""
    from gnomon.report.page import Page

    context = click.get_current_context(silent=True)
    if context is None:
        return Page()
    return Page(brief=not context.meta.get(VERBOSE), own_record=context.params.get("record") is not None)


def end_report(page: Page) -> None:
    """Write the names of the parts that a brief page left out, those with counts first."""
    if page.omitted:
        names = sorted(page.omitted, key=lambda name: not name[0].isdigit())
        page.line(f"With -v also: {listed(names, 4)}.", indent=2, style="dim")


def write_lines(lines: Iterable[str]) -> None:
    """Print lines one at a time, as UTF-8 in any locale."""
    out = sys.stdout.buffer
    for line in lines:
        out.write(line.encode("utf-8", "backslashreplace") + b"\n")
    out.flush()

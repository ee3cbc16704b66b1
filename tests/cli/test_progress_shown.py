"""What is shown while measuring: with --quiet nothing but for whom it waits."""

from __future__ import annotations

import builtins
import io
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands.test_tune_commands import logs

import gnomon
from gnomon.api import place
from gnomon.cli import progress
from gnomon.cli.main import run
from gnomon.cli.progress import Show
from gnomon.core.stats import Block, summarise
from gnomon.devices.lease import Waiting
from gnomon.measure.progress import Progress, Standing


@pytest.mark.parametrize("quiet", [False, True])
def test_for_whom_it_waits_is_shown_also_when_quiet(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with Show(quiet=quiet) as show:
        show.on_message("the runtimes are looked at")
        show.on_message(Waiting("another gnomon (process 7) is measuring on local: waiting for it to end"))
    with Show(names=["local", "board"], quiet=quiet) as fleet:
        fleet.on_message("board", "the runtimes are looked at")
        fleet.on_message("board", Waiting("another gnomon (process 8) is measuring on board: waiting for it to end"))
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if "waiting" in line] == [
        "gnomon: another gnomon (process 7) is measuring on local: waiting for it to end",
        "gnomon: board: another gnomon (process 8) is measuring on board: waiting for it to end",
    ]
    assert any("runtimes" in line for line in shown) is not quiet


def test_without_a_terminal_there_is_a_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with Show(quiet=False) as show:
        watch = show.on_progress
        for done in range(7):
            watch(Progress(stage="networks trained", done=done, total=38, left_s=14.0 * (38 - done) if done else None))
            now_s += 14
    assert capsys.readouterr().err.splitlines() == [
        "gnomon: networks trained (38 steps)",
        "gnomon: networks trained: 3 of 38, about 8 min 10 s left",
        "gnomon: networks trained: 6 of 38, about 7 min 28 s left",
    ]


def test_python_shows_progress_to_people_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(model: str, *, on_progress: Any = None, on_message: Any = None) -> str:
        """A function of gnomon."""
        if on_message is not None:
            on_message(f"looks at {model}")
        return model

    def profile(model: str) -> object:
        return gnomon.profile(model)

    monkeypatch.setattr(place, "profile", job)
    assert profile("a") == "a" and capsys.readouterr().err == ""
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    assert profile("b") == "b" and capsys.readouterr().err == "gnomon: looks at b\n"
    heard: list[str] = []
    gnomon.profile("c", on_message=heard.append)
    assert (heard, capsys.readouterr().err) == (["looks at c"], "")
    monkeypatch.setenv("GNOMON_QUIET", "1")
    assert profile("d") == "d" and capsys.readouterr().err == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def standing(label: str, time_s: float, ratio: float) -> Standing:
    block = Block(process=0, block=0, values_s=(time_s,) * 20)
    return Standing(label=label, clock="cpu", time=summarise([block]), wall_s=2 * time_s, ratio=ratio)


def test_a_log_names_who_is_ahead_whenever_that_changes(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = standing("a", 1e-3, 1.0), standing("b", 2e-3, 2.0)
    with Show(quiet=False) as show:
        watch = show.on_progress
        for standings in ((), (a, b), (a, b), (b, a)):
            watch(Progress(stage="profile", done=1, total=9, left_s=None, standings=standings))
    told = [line for line in capsys.readouterr().err.splitlines() if "so far" in line]
    assert told == [
        "gnomon: so far: a 1.00 ms of CPU time, b 2.00 times as long",
        "gnomon: so far: b 2.00 ms of CPU time, a 1.00 times as long",
    ]


def test_a_terminal_has_a_table_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Show(quiet=False) as show:
        rows = (standing("a[threads=1]", 1e-3, 1.0), standing("b", 2e-3, 2.0))
        show.on_progress(Progress(stage="profile", done=1, total=9, left_s=None, standings=rows))
        show._bar.refresh()
    shown = screen.getvalue()
    assert "CPU time" in shown and "1.00 ms" in shown and "2.00" in shown
    assert "a[threads=1]" in shown
    assert shown.index("so far") < shown.index("profile")


def test_the_bar_of_an_analysis_begins_with_the_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[str] = []
    made = progress._bar

    def bar(width: int) -> Any:
        found = made(width)
        add = found.add_task

        def added(told: str, **more: Any) -> Any:
            begun.append(told)
            return add(told, **more)

        monkeypatch.setattr(found, "add_task", added)
        return found

    monkeypatch.setattr(progress, "_bar", bar)
    monkeypatch.setattr(sys, "stderr", _Terminal())
    assert run(["overlay", "analyze", *map(str, logs(tmp_path)), "--no-write"]) == 0
    assert begun == ["read the logs"]

"""The document and the report of several devices, and their progress: everything readable in 80 columns."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import HOSTILE, keys_of
from tests.jobs.place.fleet_kit import device

from gnomon.cli.progress import Show
from gnomon.errors import DeviceError
from gnomon.jobs.place.document import fleet_document
from gnomon.jobs.place.fleet import DeviceResult, Fleet
from gnomon.jobs.place.job import Placement
from gnomon.jobs.place.report import fleet_report
from gnomon.measure.progress import Progress
from gnomon.report.page import Page
from gnomon.report.plain import finite

DOCS = Path(__file__).parents[3] / "docs" / "jobs" / "fleet.md"


def fleet(placements: dict[str, Placement], error: str = "") -> Fleet:
    results = [DeviceResult(name=n, placement=p, error=None) for n, p in placements.items()]
    if error:
        lost = DeviceError("it cannot be reached: no route to host", hint="Check its cable.")
        results.append(DeviceResult(name=error, placement=None, error=lost))
    record = Path("record.sqlite")
    return Fleet(model=Path("hand.circle"), record=record, results=tuple(results), seconds=75.0)


def lossy(error: str = "phone") -> dict[str, Any]:
    placements = {
        "board": device("board", {"cpu": 70, "cpu,cpu,ruy,cpu": 60}),
        "ssh://odroid@192.168.178.100:2222": device("far", {"cpu": 80, "ruy,cpu,ruy,ruy": 40}),
    }
    return fleet_document(fleet(placements, error))


def whole() -> dict[str, Any]:
    times = {"a": {"cpu": 100, "ruy": 160}, "b": {"cpu": 200, "ruy": 110}}
    return fleet_document(fleet({n: device(n, t) for n, t in times.items()}))


def text(document: dict[str, Any], width: int = 80) -> str:
    file = io.StringIO()
    fleet_report(document, Page(file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_lines_fit_but_for_paths(width: int) -> None:
    for document in (lossy(), whole()):
        document["record"] = "r"
        for row in document["devices"]:
            if row["placement"]:
                row["placement"]["package"] = "p"
        assert [line for line in text(document, width).splitlines() if len(line) > max(width, 80)] == []


def test_a_row_a_device() -> None:
    said = text(lossy())
    assert said.startswith("2 of 3 devices have a plan.")
    assert "phone has no plan: it cannot be reached: no route to host" in said and "Check its cable." in said
    assert "4 of 4" in said and "1.17" in said


def test_names_cannot_steer_the_terminal() -> None:
    document = lossy()
    document["devices"][0]["name"] = HOSTILE
    document["devices"][2]["error"]["message"] = HOSTILE
    assert all(c == "\n" or c.isprintable() for c in text(document))


def test_every_key_is_documented() -> None:
    told = DOCS.read_text(encoding="utf-8")
    document = json.loads(json.dumps(finite(lossy())))
    for row in document["devices"]:
        row["placement"] = None  # docs/formats/place-json.md has these
    assert [key for key in keys_of(document) if f"`{last(key)}`" not in told] == []


def last(path: str) -> str:
    return path.rpartition(".")[2].removesuffix("[]")


def test_progress_without_a_terminal_is_whole_lines_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("board", "far\x1b[31m")
    with Show(names=names, quiet=False) as show:

        def lane(name: str) -> None:
            watch = show.on_progress(name)
            for stage in range(20):
                for done in range(3):
                    watch(Progress(stage=f"stage {stage}", done=done, total=2, left_s=None))
            show.on_message(name, "all is\nwell")

        threads = [threading.Thread(target=lane, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 42 and all(line.isprintable() for line in lines)
    own = [line for line in lines if line.startswith("gnomon: board: ")]
    assert own == [f"gnomon: board: stage {k} (2 steps)" for k in range(20)] + ["gnomon: board: all is\\nwell"]


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Show(names=("a",), quiet=True) as show:
        show.on_progress("a")(Progress(stage="s", done=0, total=1, left_s=1.0))
        show.on_message("a", "well")
    assert capsys.readouterr().err == ""


def test_a_bar_a_device_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    names = ("board", "ssh://odroid@192.168.178.100:2222")
    with Show(names=names, quiet=False) as show:
        for name in names:
            show.on_progress(name)(Progress(stage="price chains and more of it", done=3, total=30, left_s=200.0))
        show.on_message("board", "well")
        show._bar.refresh()
    shown = screen.getvalue()
    assert "board" in shown and "ssh://odr" in shown and "3/30" in shown and "board: well" in shown
    assert "3 min 20 s left" in shown

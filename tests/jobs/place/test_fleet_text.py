"""The document and the report of several devices, and their progress: everything readable in 80 columns."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.placement_kit import HOSTILE, keys_of
from tests.jobs.place.fleet_kit import device

from gnomon.cli.progress import Show
from gnomon.errors import DeviceError
from gnomon.jobs.place.document import DevicePart, FleetDocument, PlaceDocument, error_part
from gnomon.jobs.place.report import fleet_report
from gnomon.measure.progress import Progress
from gnomon.report.page import Page

DOCS = Path(__file__).parents[3] / "docs" / "jobs" / "fleet.md"


def fleet(placements: dict[str, PlaceDocument], lost: str = "", message: str = "it cannot be reached") -> FleetDocument:
    devices = [DevicePart(name=n, placement=replace(p, package="p"), error=None) for n, p in placements.items()]
    if lost:
        error = error_part(DeviceError(message, hint="Check its cable."))
        devices.append(DevicePart(name=lost, placement=None, error=error))
    return FleetDocument(
        format="gnomon-fleet", version=3, model="hand.circle", devices=tuple(devices), record="r", seconds=75.0
    )


BOARD = device("board", {"cpu": 70, "cpu,cpu,ruy,cpu": 60})
FAR = device("far", {"cpu": 80, "ruy,cpu,ruy,ruy": 40})
LOSSY = fleet({"board": BOARD, "ssh://odroid@192.168.178.100:2222": FAR}, "phone", "it cannot be reached: no route")
WHOLE = fleet({name: device(name, {"cpu": 100, "ruy": 160}) for name in "ab"})


def text(document: FleetDocument, width: int = 80) -> str:
    file = io.StringIO()
    fleet_report(document, Page(file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_lines_fit_and_names_cannot_steer_the_terminal(width: int) -> None:
    for document in (LOSSY, WHOLE, fleet({HOSTILE: BOARD}, "phone", HOSTILE)):
        lines = text(document, width).splitlines()
        assert all(line.isprintable() and len(line) <= max(width, 80) for line in lines)


def test_a_row_a_device() -> None:
    said = text(LOSSY)
    assert said.startswith("2 of 3 devices have a plan.")
    assert "phone has no plan: it cannot be reached: no route" in said and "Check its cable." in said
    assert "4 of 4" in said and "1.17" in said


def test_every_key_is_documented() -> None:
    told = DOCS.read_text(encoding="utf-8")
    document = LOSSY.document()
    bare = {**document, "devices": [{**row, "placement": None} for row in document["devices"]]}  # place-json.md has it
    assert [key for key in keys_of(bare) if f"`{key.rpartition('.')[2].removesuffix('[]')}`" not in told] == []


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

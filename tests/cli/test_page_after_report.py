"""With --html the report comes first: a page that cannot be drawn or written hides nothing of what was measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.cli.placement_kit import profiled
from tests.cli.test_command_line import PROBLEM, ROOT
from tests.report.tuning_kit import analyze, tune

from gnomon.api.pictures import draw, draw_overlay
from gnomon.cli.main import run
from gnomon.errors import RecordError
from gnomon.jobs.documents import read_document
from gnomon.jobs.place.document import PlaceDocument

MODEL = str(ROOT / "docs" / "examples" / "digits.onnx")


def fails(document: Mapping[str, Any], out: Path) -> NoReturn:
    raise KeyError("median_s")


@pytest.fixture(autouse=True)
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("gnomon.api.html.write_page", fails)
    monkeypatch.chdir(tmp_path)


def test_the_report_is_told_though_the_page_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PROBLEM), encoding="utf-8")
    assert run(["front", "p.json"]) == 0
    report = capsys.readouterr().out.splitlines()
    assert run(["front", "p.json", "--html", "x.html", "--quiet"]) == 8
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == report[0]
    assert err.splitlines() == [
        "error: the HTML page x.html cannot be created: KeyError: 'median_s'",
        "hint: To create the page: the same command with --json > DOCUMENT.json, then gnomon report DOCUMENT.json "
        "-o FILE.html",
    ]


def test_there_is_one_document_though_the_page_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PROBLEM), encoding="utf-8")
    assert run(["front", "p.json", "--json", "--html", "x.html"]) == 8
    out, err = capsys.readouterr()
    assert json.loads(out)["format"] == "gnomon-front"
    assert "save the printed document as DOCUMENT.json" in err


def test_a_command_of_several_reports_tells_them_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnomon.jobs.tune.job.tune", lambda *given, **options: read_document(tune()))
    assert run(["tune", MODEL, "--quiet", "--html", "x.html"]) == 8
    assert "0.601 ms tuned" in capsys.readouterr().out


def test_an_interrupted_page_adds_no_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(document: Mapping[str, Any], out: Path) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("gnomon.api.html.write_page", interrupted)
    monkeypatch.setattr("gnomon.jobs.place.job.profile", lambda *args, **options: profiled())
    assert run(["profile", MODEL, "--quiet", "--json", "--html", "x.html"]) == 130
    assert json.loads(capsys.readouterr().out)["format"] == "gnomon-profile"


def test_what_the_hint_says_draws_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")

    def full(document: Mapping[str, Any], out: Path) -> NoReturn:
        raise RecordError(f"{out} cannot be written: No space left on device")

    monkeypatch.setattr("gnomon.api.html.write_page", full)
    few = ["--runtime", "onnxruntime", "--processes", "1", "-n", "1", "--record", "my record.sqlite", "--quiet"]
    assert run(["profile", MODEL, *few, "--html", "x.html"]) == 8
    out, err = capsys.readouterr()
    assert "onnxruntime" in out
    assert "error: x.html cannot be written: No space left on device" in err
    hint = next(line for line in err.splitlines() if line.startswith("hint: "))
    words = shlex.split(hint.rpartition("page: ")[2])
    assert words[:2] == ["gnomon", "report"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(words[1:]) == 0
    assert Path("FILE.html").stat().st_size > 10_000


@pytest.mark.parametrize("error", [ZeroDivisionError("no scale"), OSError(28, "No space left on device")])
def test_a_picture_that_fails_is_told_and_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*args: object) -> NoReturn:
        raise error

    told: list[str] = []
    monkeypatch.setattr("gnomon.jobs.place.picture.placement_charts", broken)
    monkeypatch.setattr("gnomon.jobs.overlay.picture.overlay_pictures", broken)
    drawn = draw(PlaceDocument.charts_by, {}, tmp_path / "plan", told.append)
    assert drawn == draw_overlay(read_document(analyze()), tmp_path, told.append) == []
    assert all(one.startswith("the picture cannot be ") for one in told)

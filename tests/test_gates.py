"""The gates' runner: all gates run, any failure counts, and the last line is the tests' summary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import gates

PASSING = [sys.executable, "-c", "pass"]
FAILING = [sys.executable, "-c", "import sys; print('the reason'); sys.exit(1)"]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Gates are the commands themselves."""
    monkeypatch.setattr(gates, "command", list)
    monkeypatch.setattr(sys, "argv", ["scripts/check"])
    return monkeypatch


def report(folder: Path, **counts: int) -> Path:
    path = folder / "report.xml"
    told = " ".join(f'{name}="{count}"' for name, count in counts.items())
    path.write_text(f"<testsuites><testsuite {told}/></testsuites>", encoding="utf-8")
    return path


def test_counts_add_up(tmp_path: Path) -> None:
    count = gates.Count()
    gates.add_report(report(tmp_path, tests=10, failures=1, errors=2, skipped=3), count)
    gates.add_report(report(tmp_path, tests=5, failures=0, errors=0, skipped=0), count)
    assert (count.passed, count.failed, count.skipped) == (9, 3, 3)


def test_packages_that_would_run_what_is_skipped_are_counted(
    only: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys; open(sys.argv[1].partition('=')[2], 'w').write('<testsuites><testsuite tests=\"3\" skipped=\"3\">"
        '<skipped message="not installed: adb (Debian: adb)"/><skipped message="it is not there (Debian: adb)"/>'
        '<skipped message="no reason"/></testsuite></testsuites>\')'
    )
    only.setattr(gates, "STATIC", {})
    only.setattr(gates, "TESTS", {"tests": [sys.executable, "-c", code]})
    assert gates.main() == 0
    lines = capfd.readouterr().out.splitlines()
    assert "Skipped tests that Debian packages would run: 2 by adb" in lines
    assert lines[-1] == "0 passed, 0 failed, 3 skipped"


def test_parts_of_the_tests_are_run_only_when_they_are_named(
    only: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    only.setattr(gates, "STATIC", {})
    only.setattr(gates, "TESTS", {})
    only.setattr(gates, "PARTS", {"quick": FAILING})
    assert gates.main() == 0
    only.setattr(sys, "argv", ["scripts/check", "quick"])
    assert gates.main() == 1


def test_a_failed_gate_stops_no_other_and_fails_the_whole(
    only: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    only.setattr(gates, "STATIC", {"first": FAILING, "second": PASSING})
    only.setattr(gates, "TESTS", {"third": PASSING})
    assert gates.main() == 1
    lines = capfd.readouterr().out.splitlines()
    assert "the reason" in lines
    assert any(line.startswith("passed  second") for line in lines)
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"  # the third wrote no report


def test_an_unknown_gate_is_refused(only: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only.setattr(sys, "argv", ["scripts/check", "typos"])
    with pytest.raises(SystemExit) as ended:
        gates.main()
    assert ended.value.code == 2
    assert "choose from format, lint, imports, types, fuzz, tests, devices, docs, quick" in capsys.readouterr().err

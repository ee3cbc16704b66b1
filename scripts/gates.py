"""Runs every gate, also after one has failed, and ends with the tests' summary alone on a line.

The gates that only read the source run two at a time. Then the tests have the machine to themselves: two files at a
time, as none of them asserts a time; those that drive devices one after the other, as what they kill and clean up is
the machine's; the documents' commands alone. The exit status is 0 if all gates passed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STATIC = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "imports": ["lint-imports", "--no-logo"],
    "types": ["mypy"],
}
KITS = ("sshkit", "boardkit", "plainkit", "shellkit", "sdbkit", "adbkit", "snpekit")
"""What a file of tests that drives devices imports."""

ON_DEVICES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "tests").rglob("test_*.py")
    if "devices" in path.parts or any(kit in path.read_text(encoding="utf-8") for kit in KITS)
)
PYTEST = ["pytest", "-q", "--continue-on-collection-errors"]
TESTS = {
    "tests": [*PYTEST, "-n2", "--dist=loadfile", "--ignore=tests/docs", *(f"--ignore={path}" for path in ON_DEVICES)],
    "devices": [*PYTEST, *ON_DEVICES],
    "docs": [*PYTEST, "tests/docs"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate that was run: its name, whether it passed, how long it took, and what it wrote (empty if shown)."""

    name: str
    passed: bool
    seconds: float
    output: str = ""


@dataclass(slots=True, kw_only=True)
class Count:
    """How many tests passed, failed (or could not be run) and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


def command(words: list[str]) -> list[str]:
    """The command line of a gate, with the tool of this very environment."""
    return [str(BIN / words[0]), *words[1:]]


def run_static(name: str) -> Gate:
    """Run a gate that reads the source; what it wrote is kept for later."""
    start = time.monotonic()
    done = subprocess.run(
        command(STATIC[name]), cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return Gate(name=name, passed=done.returncode == 0, seconds=time.monotonic() - start, output=done.stdout)


def run_tests(name: str, count: Count) -> Gate:
    """Run a part of the tests, shown as it goes, and add to the count."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gnomon-gates-") as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [*command(TESTS[name]), f"--junit-xml={report}"], cwd=ROOT, stdin=subprocess.DEVNULL, check=False
        )
        add_report(report, count)
    return Gate(name=name, passed=done.returncode == 0, seconds=time.monotonic() - start)


def add_report(report: Path, count: Count) -> None:
    """Add what a JUnit report says; a report that is missing counts as one failure, as pytest itself broke."""
    if not report.is_file():
        count.failed += 1
        return
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - written by our own pytest
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        count.failed += failed
        count.skipped += skipped
        count.passed += int(suite.get("tests", 0)) - failed - skipped


def told(gate: Gate) -> str:
    """One line about a gate."""
    return f"{'passed' if gate.passed else 'FAILED'}  {gate.name:8} {gate.seconds:6.1f} s"


def main() -> int:
    """Run the named gates, or all of them."""
    parser = argparse.ArgumentParser(prog="scripts/check", description="Run the gates.")
    known = (*STATIC, *TESTS)
    parser.add_argument("gates", nargs="*", metavar="GATE", help=f"any of {', '.join(known)}; default: all")
    names = parser.parse_args().gates or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown gate {unknown[0]!r}; choose from {', '.join(known)}")
    gates: list[Gate] = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for gate in pool.map(run_static, [name for name in STATIC if name in names]):
            gates.append(gate)
            print(told(gate), flush=True)
            if not gate.passed:
                print(gate.output, flush=True)
    count = Count()
    for name in TESTS:
        if name in names:
            print(f"running {name}: {' '.join(TESTS[name])}", flush=True)
            gates.append(run_tests(name, count))
    print("\nGates:")
    for gate in gates:
        print(f"  {told(gate)}")
    if any(name in TESTS for name in names):
        print(f"\n{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    sys.stdout.flush()
    return 0 if all(gate.passed for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())

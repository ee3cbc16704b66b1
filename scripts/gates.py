"""Runs every gate, even after one has failed, and prints the tests' summary as the last line.

The tests run four files at a time, because they spend a third of their time waiting. Meanwhile, the other gates run one
by one: no test asserts a time, and each has its own leases, folders and ports. The exit status is 0 if all gates
passed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STATIC = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "imports": ["lint-imports", "--no-logo"],
    "types": ["mypy"],
    "fuzz": ["python", "-m", "fuzz", "--seconds", "10", "--jobs", "1"],
}
PYTEST = ["pytest", "-q", "--continue-on-collection-errors", "-n4", "--dist=loadfile", "--no-loadscope-reorder"]
PURE = ("core", "formats", "report", "test_gates.py", "test_public_names.py")
TESTS = {"tests": PYTEST}
PARTS = {
    "devices": [*PYTEST, "-m", "devices"],
    "docs": [*PYTEST, "tests/docs"],
    "quick": [*PYTEST, "-m", "not slow", "tests/test_house.py", *(f"tests/{name}" for name in PURE)],
}
"""The parts of the tests, each of which is run only if it is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate that was run: its name, whether it passed, how long it took, and its output (empty if already shown)."""

    name: str
    passed: bool
    seconds: float
    output: str = ""


@dataclass(slots=True, kw_only=True)
class Count:
    """The numbers of tests that passed, failed (or could not be run), and were skipped, also for lack of a Debian
    package.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wanting: Counter[str] = field(default_factory=Counter)


def command(words: list[str]) -> list[str]:
    """The command line of a gate, with the tool from this environment."""
    return [str(BIN / words[0]), *words[1:]]


def run_static(name: str) -> Gate:
    """Run a gate while the tests run, and report how it ended; its output is kept for later."""
    start = time.monotonic()
    done = subprocess.run(
        command(STATIC[name]), cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    gate = Gate(name=name, passed=done.returncode == 0, seconds=time.monotonic() - start, output=done.stdout)
    print(told(gate), flush=True)
    return gate


def run_tests(name: str, count: Count) -> Gate:
    """Run a part of the tests, show their output as it comes, and add to the count."""
    start = time.monotonic()
    print(f"running {name}: {' '.join((TESTS | PARTS)[name])}", flush=True)
    with tempfile.TemporaryDirectory(prefix="gnomon-gates-") as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [*command((TESTS | PARTS)[name]), f"--junit-xml={report}"], cwd=ROOT, stdin=subprocess.DEVNULL, check=False
        )
        add_report(report, count)
    return Gate(name=name, passed=done.returncode == 0, seconds=time.monotonic() - start)


def compile_tests() -> None:
    """Compile the test modules of a new checkout once: otherwise each worker would rewrite all assertions."""
    if not any((ROOT / "tests").glob("*/__pycache__/*-pytest-*.pyc")):
        subprocess.run(command(["pytest", "-q", "--collect-only"]), cwd=ROOT, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # fmt: skip


def add_report(report: Path, count: Count) -> None:
    """Add the numbers in a JUnit report; a missing report counts as one failure, because pytest itself failed."""
    if not report.is_file():
        count.failed += 1
        return
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - written by our own pytest
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        count.failed += failed
        count.skipped += skipped
        count.passed += int(suite.get("tests", 0)) - failed - skipped
        for skip in suite.iter("skipped"):
            count.wanting.update(re.findall(r"Debian: ([\w.+-]+)", skip.get("message", "")))


def told(gate: Gate) -> str:
    """One line about a gate."""
    return f"{'passed' if gate.passed else 'FAILED'}  {gate.name:8} {gate.seconds:6.1f} s"


def main() -> int:
    """Run the named gates, or all of them."""
    parser = argparse.ArgumentParser(prog="scripts/check", description="Run the gates.")
    known = (*STATIC, *TESTS, *PARTS)
    parser.add_argument(
        "gates", nargs="*", metavar="GATE", help=f"any of {', '.join(known)}; default: all but parts of the tests"
    )
    names = parser.parse_args().gates or [*STATIC, *TESTS]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown gate {unknown[0]!r}; choose from {', '.join(known)}")
    count = Count()
    with ThreadPoolExecutor(max_workers=1) as pool:
        beside = [pool.submit(run_static, name) for name in STATIC if name in names]
        if any(PYTEST[0] in (TESTS | PARTS).get(name, ()) for name in names):
            compile_tests()
        gates = [run_tests(name, count) for name in (TESTS | PARTS) if name in names]
        gates = [*(one.result() for one in beside), *gates]
    for gate in gates:
        if not gate.passed and gate.output:
            print(f"\n{gate.name}:\n{gate.output}", flush=True)
    print("\nGates:")
    for gate in gates:
        print(f"  {told(gate)}")
    if count.wanting:
        skips = ", ".join(f"{skips} by {package}" for package, skips in sorted(count.wanting.items()))
        print(f"\nSkipped tests that Debian packages would run: {skips}")
    if any(name in names for name in TESTS | PARTS):
        print(f"\n{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    sys.stdout.flush()
    return 0 if all(gate.passed for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())

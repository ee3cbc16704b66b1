"""A model measured beside itself: what comparisons on the machine see, what a limit needs, and planted slow-downs."""

from __future__ import annotations

import io
import math
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.compare.test_by_turns import beside, chain
from tests.jobs.compare.test_compare import document

import gnomon
from gnomon.cli.main import run
from gnomon.core.decision import Rule
from gnomon.jobs.compare.document import CompareDocument, SelfTestPart
from gnomon.jobs.compare.job import compare
from gnomon.jobs.compare.report import compare_report
from gnomon.jobs.compare.self_test import self_tests
from gnomon.jobs.compare.sides import Side
from gnomon.jobs.documents import read_document
from gnomon.report.page import Page


def shown_by(scatter: float, *, limit: float = 0.03, budget_s: float = 300.0) -> tuple[SelfTestPart, ...]:
    """What 60 turns of 10 s each show whose processes scatter by so much."""
    rng = np.random.default_rng(8)
    made = beside(*(document(rng, scatter=scatter, processes=60) for _ in range(2)))
    sides = [Side(name="m.onnx", document=read_document(one)) for one in made]
    found = compare(sides, fail_slower=limit)
    return self_tests(sides, found.pairs[0], Rule(alpha=0.01, relevant=0.01, limit=limit), budget_s)


def test_planted_slow_downs_are_found_where_the_budget_is_said_to_be_enough() -> None:
    for part in shown_by(0.004):
        # Each process has 20 calls that scatter by 1 %, whose median scatters by 0.28 %.
        assert part.scatter == pytest.approx(2**0.5 * math.hypot(0.004, 0.0028), rel=0.25)
        assert part.turn_s == pytest.approx(10)
        assert part.sees_in_60_s and part.sees_in_300_s and part.sees_in_300_s < 0.03 < part.sees_in_60_s
        assert part.needed_s and 60 <= part.needed_s <= 300 and part.decides
        assert part.found >= 95 and part.wrong <= 1 and part.windows == 100


def test_what_scatters_too_much_is_not_decided() -> None:
    for part in shown_by(0.03):
        assert part.needed_s and part.needed_s > 2000 and not part.decides
        assert part.found < 30 and part.wrong <= 1


def test_a_longer_budget_finds_what_a_short_one_does_not() -> None:
    short, long = (shown_by(0.01, budget_s=budget_s) for budget_s in (100.0, 2000.0))
    for less, more in zip(short, long, strict=True):
        assert less.needed_s == more.needed_s and less.found < more.found
        assert not less.decides and more.decides


@pytest.mark.usefixtures("short_visits")
def test_the_command_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, record = chain(tmp_path / "m.onnx", 60), tmp_path / "record.sqlite"
    words = ["compare", str(model), "--runtime", "onnxruntime", "--record", str(record)]
    code = run([*words, "--self-test", "1ms", "--fail-slower=80%"])
    told = capsys.readouterr().out
    assert "Compared with itself" in told and " seen in 60 s" in told
    assert code == (0 if " can be detected" in told else 10)
    (again,) = [line.split(maxsplit=1)[1] for line in told.splitlines() if line.startswith("  next")]
    assert shlex.split(again)[:-1] == ["gnomon", *words, str(model), "--fail-slower", "80%", "--budget"]
    assert int(again.split()[-1]) >= 10


@pytest.mark.usefixtures("short_visits")
def test_in_python_it_is_the_same(tmp_path: Path) -> None:
    model, record = chain(tmp_path / "m.onnx", 60), tmp_path / "record.sqlite"
    found = gnomon.compare(model, self_test=1e-3, runtimes=("onnxruntime",), record=record)
    assert found.fail_slower == 0.03 and found.pairs[0].configurations[0].processes == (6, 6)
    assert found.self_test and [part.label for part in found.self_test] == [found.pairs[0].configurations[0].label]
    assert found.self_test[0].budget_s == 300 and found.again == ""
    assert found.exit_code == (0 if found.self_test[0].decides else 10)
    assert read_document(found.document()) == found
    assert len(report(found).splitlines()) <= 15


@pytest.mark.usefixtures("short_visits")
def test_a_device_says_its_noise_without_a_model_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["devices", "noise", "--for", "1ms"])
    told = capsys.readouterr().out
    assert "convolutions.onnx on local" in told and " seen in 60 s" in told and len(told.splitlines()) <= 15
    assert code == (0 if " can be detected" in told else 10)


def report(found: CompareDocument) -> str:
    file = io.StringIO()
    compare_report(found, Page(file, width=100, brief=True))
    return file.getvalue()


@pytest.mark.parametrize("words", [[], ["a.onnx", "b.onnx"], ["a.onnx", "--processes", "3"], ["last"]])
def test_only_one_model_is_measured_beside_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *words, "--self-test", "5min"]) == 2
    assert "model" in capsys.readouterr().err.lower()

"""Latency as a test: the plugin in a pytest of its own, on a real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.shortkit import SHORTLY

pytest_plugins = ["pytester"]

TEST = """
pytest_plugins = ["gnomon.testing.latency"]
OPTIONS = dict(runtimes=("onnxruntime",), threads=1, processes=3, budget_s=0.2)


def test_fast_enough(gnomon_latency):
    gnomon_latency({model!r}, **OPTIONS).is_at_most("10 s")


def test_too_slow(gnomon_latency):
    gnomon_latency({model!r}, **OPTIONS).is_at_most("1 ns")


def test_no_gate(gnomon_latency):
    before = gnomon_latency({model!r}, **OPTIONS).profile.campaign
    again = gnomon_latency({model!r}, **OPTIONS | dict(budget_s=0.3))
    again.is_not_slower_than(before)


def test_by_turns(gnomon_latency):
    gnomon_latency({model!r}, **OPTIONS | dict(processes=6)).is_not_slower_than({model!r}, by="1000000%")


def test_of_another_machine(gnomon_latency):
    gnomon_latency({model!r}, unknown="skip", **OPTIONS).is_not_slower_than({other!r})


def test_nonsense(gnomon_latency):
    gnomon_latency({model!r}, **OPTIONS).is_at_most("2")
"""


def test_the_plugin(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    from tests.jobs.compare.test_compare import document

    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    other = document(np.random.default_rng(1))
    other["columns"][0]["label"] = "onnxruntime"
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    model = Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"
    pytester.makepyfile(SHORTLY + TEST.format(model=str(model), other=str(tmp_path / "other.json")))
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rfs", "-p", "no:gnomon")
    done.assert_outcomes(passed=2, failed=3, skipped=1)
    told = (
        "more than 1 ns",
        "Of 1 configuration: 1 undecided. A slow-down of",
        "cannot be compared",
        "is not a latency",
    )
    done.stdout.fnmatch_lines_random([f"*{one}*" for one in told])

"""`gnomon front`: its options, what it prints, and its JSON document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.jobs.solve.test_solve_job import PROBLEM

import gnomon
from gnomon.cli.main import cli


def printed(problem: dict[str, Any], *options: str) -> str:
    result = CliRunner().invoke(cli, ["front", "-", *options], input=json.dumps(problem), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_text(tmp_path: Path) -> None:
    text = printed(PROBLEM)
    assert "2 trade-offs: proved to be all there are." in text
    assert "latency (s)" in text
    assert "0-1 gpu" in text
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM), encoding="utf-8")
    assert "2 trade-offs" in CliRunner().invoke(cli, ["front", str(file), "--epsilon", "0"]).output


def test_long_fronts_are_shown_from_end_to_end() -> None:
    names = ["a", "b"]
    slots = [{"name": f"s{i}", "choices": names, "cost": [[1.0 + 2**i, 1.0], [1.0, 1.0 + 2**i]]} for i in range(6)]
    many = {"format": "gnomon-problem", "version": 1, "objectives": PROBLEM["objectives"], "slots": slots}
    text = printed(many)
    assert "64 trade-offs" in text
    assert "20 of 64 are shown" in text
    assert len(json.loads(printed(many, "--json"))["points"]) == 64


def test_an_epsilon_is_told() -> None:
    slots = [
        {"name": f"s{i}", "choices": ["a", "b"], "cost": [[100.0 + 2**i, 100.0], [100.0, 100.0 + 2**i]]}
        for i in range(10)
    ]
    many = {"format": "gnomon-problem", "version": 1, "objectives": PROBLEM["objectives"], "slots": slots}
    assert "proved to cover all there are within" in printed(many, "--epsilon", "0.05")


@pytest.mark.parametrize(
    "options", [["--epsilon", "-1"], ["--epsilon", "x"], ["--time-limit", "0"], ["--weights", "a=1"]]
)
def test_options_that_cannot_be_meant(options: list[str]) -> None:
    assert CliRunner().invoke(cli, ["front", "-", *options], input="{}").exit_code == 2


def test_progress_names_the_trade_offs_that_are_known() -> None:
    known: list[int] = []
    front = gnomon.front(PROBLEM, on_progress=lambda progress: known.append(progress.done))
    assert known[-1] == len(front.points)

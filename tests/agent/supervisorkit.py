"""A supervisor of the packed agent, with jobs of a runtime that misbehaves as it is asked to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gnomon.measure.effort import Effort
from gnomon.measure.link import packed_agent

HERE = Path(__file__).parent
ROGUE = {"PYTHONPATH": str(HERE)}
"""The environment in which `rogue:Rogue` is found."""
GOOD = ["opened", "block", "block", "block"]


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed agent."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(packed_agent())
    return path


def job(**options: Any) -> dict[str, Any]:
    """A job of the rogue runtime, from x to y."""
    tensor = {"shape": [2, 2], "dtype": "float32"}
    return {
        "tensors": {"x": tensor, "y": tensor},
        "feeds": {"x": {}},
        "outputs": ["y"],
        "seed": 3,
        "segments": [segment("x", "y", **options)],
    }


def segment(reads: str, writes: str, **options: Any) -> dict[str, Any]:
    """A segment of the rogue runtime between two tensors of a job."""
    bound = {"inputs": [["x", reads]], "outputs": [["y", writes]]}
    return {"runtime": "rogue:Rogue", "model": "", "options": options, **bound}


def candidate(key: str, *, profiled: bool = False, opening: dict[str, Any] | None = None, **options: Any) -> Any:
    """A candidate of the rogue runtime, which is visited three times."""
    return {
        "key": key,
        "environment": ROGUE,
        "tolerance": 1e-3,
        "calls_least": 5,
        "open": {"job": job(**options), "profiled": profiled, **(opening or {})},
        "visits": [0] if profiled else [] if opening and "save" in opening else [0, 1, 2],
    }


def answered(agent: Path, cwd: Path, request: Mapping[str, Any], **environment: str) -> list[dict[str, Any]]:
    """The events of a request but the signs of life and the end."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(agent), "supervise"],
        input=json.dumps(request) + "\n",
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        check=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1] == {"event": "end"}
    return [event for event in events[:-1] if event["event"] != "alive"]


def supervise(
    agent: Path, cwd: Path, candidates: Sequence[Any], *, timeout_s: float = 30.0, seed: Any = 0, rounds: int = 3
) -> list[dict[str, Any]]:
    """The events of short visits of these candidates."""
    effort = Effort(
        rounds=rounds,
        block_s=0.002,
        sample_s=1e-4,
        samples_least=6,  # also where the machine is busy
        warm_s=0.001,
        timeout_s=timeout_s,
        laggard=1e9,
    )
    events = answered(agent, cwd, {**effort.request(), "seed": seed, "candidates": candidates})
    return [event for event in events if event["event"] != "environment"]


def of(events: Sequence[dict[str, Any]], key: str) -> list[str]:
    """The kinds of a candidate's events."""
    return [event["event"] for event in events if event["candidate"] == key]

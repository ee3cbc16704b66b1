"""The profile of DPU latencies: how it is written, so that the published client reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.dpu_profile import write_dpu_profile

GOLDEN = Path(__file__).parent / "golden" / "dpu-profile.txt"
PUBLISHED = "All 2262.336 59.15 13.937 162.3 13.2% 4244.1"


def published_rule(text: str) -> float:
    """The published client's rule, as it is: no checks."""
    found = [float(line.split()[3]) for line in re.split(r"\r\n|\r|\n", text) if line.strip().startswith("All")]
    return sum(found) / len(found)


def test_a_profile_is_written_as_published() -> None:
    text = write_dpu_profile(13.937, 2262.336)
    assert text == GOLDEN.read_text(encoding="utf-8")
    known = [field for field in text.splitlines()[-1].split() if field != "-"]
    assert known == [field for field in PUBLISHED.split() if field in known]
    titles = "ID NodeName Workload(MOP) Mem(MB) RunTime(ms) Perf(GOPS) Utilization MB/S"
    assert " ".join(text.splitlines()[0].split()) == titles


@given(st.floats(1e-8, 1e8), st.none() | st.floats(0, 1e9))
def test_what_is_written_is_read_by_the_published_client(latency_ms: float, workload_mop: float | None) -> None:
    text = write_dpu_profile(latency_ms, workload_mop)
    assert published_rule(text) == pytest.approx(latency_ms, rel=1e-4)


@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf"), 1e-12])
def test_no_latency_is_not_written(latency: float) -> None:
    with pytest.raises(ProblemError):
        write_dpu_profile(latency, None)

"""The profile of DPU latencies: how it is written, so that the published client reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.dpu_profile import DpuLine, write_dpu_profile

GOLDEN = Path(__file__).parent / "golden" / "dpu-profile.txt"
PUBLISHED = "All 2262.336 59.15 13.937 162.3 13.2% 4244.1"

LATENCY = st.floats(1e-8, 1e8)
LINE = st.builds(
    DpuLine,
    name=st.text(max_size=30),
    latency_ms=LATENCY,
    workload_mop=st.none() | st.floats(0, 1e9),
    memory_mb=st.none() | st.floats(0, 1e9),
    utilization=st.none() | st.floats(0, 1),
)


def published_rule(text: str) -> float:
    """The published client's rule, as it is: no checks."""
    found = [float(line.split()[3]) for line in re.split(r"\r\n|\r|\n", text) if line.strip().startswith("All")]
    return sum(found) / len(found)


def test_a_profile_is_written_as_published() -> None:
    layers = [
        DpuLine(name="conv1", latency_ms=0.529, workload_mop=210.831, memory_mb=0.86, utilization=0.324),
        DpuLine(name="a layer\n", latency_ms=0.0012345, workload_mop=0.0),
    ]
    total = DpuLine(name="", latency_ms=13.937, workload_mop=2262.336, memory_mb=59.15, utilization=0.132)
    text = write_dpu_profile(total, layers)
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert PUBLISHED.split() == text.splitlines()[-1].split()
    titles = "ID NodeName Workload(MOP) Mem(MB) RunTime(ms) Perf(GOPS) Utilization MB/S"
    assert " ".join(text.splitlines()[0].split()) == titles


@given(LINE, st.lists(LINE, max_size=4))
def test_what_is_written_is_read_by_the_published_client(total: DpuLine, layers: list[DpuLine]) -> None:
    text = write_dpu_profile(total, layers)
    assert published_rule(text) == pytest.approx(total.latency_ms, rel=1e-4)
    assert len(text.splitlines()) == 4 + len(layers)  # no name makes a line of its own


@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf"), 1e-12])
def test_no_latency_is_not_written(latency: float) -> None:
    with pytest.raises(ProblemError):
        write_dpu_profile(DpuLine(name="", latency_ms=latency))

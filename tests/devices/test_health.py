"""What is known of how devices have been."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gnomon.devices.health import (
    MOST_FAILURES,
    Baseline,
    Health,
    failed,
    health_of,
    health_path,
    passed,
    put_into_quarantine,
    refusal,
    release,
    went_well,
)
from gnomon.errors import UsageError

BASELINE = Baseline(
    at_s=1.0, fingerprint={"machine": "aarch64", "soc": None}, runtime="r 1", calls_s=(1e-4,), campaign="c"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    return tmp_path


def test_failures_in_a_row_are_a_quarantine_and_others_are_not() -> None:
    for _ in range(MOST_FAILURES - 1):
        assert failed("a", "gone").quarantine is None
    went_well("a")
    for _ in range(MOST_FAILURES - 1):
        assert failed("a", "gone").quarantine is None
    found = failed("a", "gone for good").quarantine
    assert found is not None and found.kind == "transport" and "gone for good" in found.reason
    assert failed("a", "again").failures == MOST_FAILURES
    assert health_of("b") == Health()
    assert "gnomon devices release a" in refusal("a", found).hint


def test_a_probe_that_passes_ends_it_and_keeps_the_baseline() -> None:
    passed("a", BASELINE, 1e-4)
    put_into_quarantine("a", "speed", "slow")
    after = passed("a", None, 2e-4)
    assert after.quarantine is None and after.baseline == BASELINE and after.call_s == 2e-4
    assert health_of("a") == after


@pytest.mark.parametrize(("kind", "baseline"), [("transport", BASELINE), ("board", None), ("speed", None)])
def test_a_release_forgets_a_baseline_that_does_not_hold(kind: str, baseline: Baseline | None) -> None:
    assert release("a") is None
    passed("a", BASELINE, 1e-4)
    if kind == "transport":
        for _ in range(MOST_FAILURES):
            failed("a", "gone")
    else:
        put_into_quarantine("a", kind, "other")  # type: ignore[arg-type]
    was = release("a")
    assert was is not None and was.kind == kind
    assert health_of("a") == Health(baseline=baseline)


def test_many_lanes_write_at_once() -> None:
    lanes = [threading.Thread(target=failed, args=(f"d{number}", "gone")) for number in range(20)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert all(health_of(f"d{number}").failures == 1 for number in range(20))


BEYOND = b"""{"format": "gnomon-health", "version": 1, "devices": {"a": {"quarantine":
{"since_s": 1e300, "kind": "board", "reason": "other"}}}}"""


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"format": "gnomon-health", "version": 2}', b"\xff", BEYOND])
def test_a_damaged_file_is_told_and_stays(content: bytes) -> None:
    health_path().write_bytes(content)
    with pytest.raises(UsageError) as refused:
        failed("a", "gone")
    assert "Move the file aside" in refused.value.hint
    assert health_path().read_bytes() == content

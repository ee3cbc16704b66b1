"""Time spans on the command line: a number and its unit."""

from __future__ import annotations

import pytest

from gnomon.values import span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10min", 600.0), ("1.5h", 5400.0), ("33ms", 0.033), ("2s", 2.0), (" 250 us ", 250e-6)],
)
def test_a_span(text: str, seconds: float) -> None:
    assert span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["10", "0s", "-1s", "nan s", "1m", "1e400s", "min", "", "٣s", "inf h"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="h, min, s, ms or us"):
        span(text)

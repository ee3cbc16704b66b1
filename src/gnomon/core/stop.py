"""Stopping in mid-work, without a clock: who calls has one, and is asked again and again."""

from __future__ import annotations

from collections.abc import Callable


class OutOfTime(Exception):
    """Who was asked said to stop."""


Stop = Callable[[float], bool]
"""Whether to stop, given the share of the work that is done."""


def never(_: float) -> bool:
    """Do not stop."""
    return False

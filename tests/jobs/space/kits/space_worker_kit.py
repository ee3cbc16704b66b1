"""What workers do in tests: square a number, end themselves, raise."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def square(number: int, way: str, folder: str) -> int:
    """The square, after what `way` says; leaves a file a call."""
    path = Path(folder) / f"{number}-{os.getpid()}-{time.time_ns()}"
    path.touch()
    if way == "kill" or (way == "once" and len(list(Path(folder).glob(f"{number}-*"))) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "raise":
        raise ValueError(f"no square of {number}")
    if way == "slow":
        time.sleep(60)
    return number * number

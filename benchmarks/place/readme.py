"""Whether the first figure in README.md still holds: its command runs here, and the two intervals must overlap.

The figure is the gain of the choice over the fastest default. It was measured on the machine that the README names; on
another machine, only the choice must be the same. Prints one JSON document.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import model_path, own_record, parser, publish

README = Path(__file__).parents[2] / "README.md"
_COMMAND = re.compile(r"^\$ gnomon place (\S+) -v\n(.*?\.)$", re.MULTILINE | re.DOTALL)
_GAIN = re.compile(r"([0-9.]+) times as fast as the best default, \S+ \[([0-9.]+), ([0-9.]+)\]")


def gain_of(answer: str) -> list[float] | None:
    """The ratio and its interval in a first line; None if it shows no gain over a default."""
    match = _GAIN.search(" ".join(answer.split()))
    return None if match is None else [float(number) for number in match.groups()]


def figures(record: Path) -> dict[str, Any]:
    """The figure of the README, and that of the same command here."""
    shown = _COMMAND.search(README.read_text("utf-8"))
    stated = None if shown is None else gain_of(shown[2])
    assert shown is not None and stated is not None, "README.md begins with another answer"
    with tempfile.TemporaryDirectory() as folder:
        placed = gnomon.place(model_path(shown[1]), out=Path(folder) / "out", record=record, fresh=True, picture=False)
    here = gain_of(placed.decision.reason)
    return {
        "model": shown[1],
        "readme": stated,
        "here": here,
        "answer": placed.decision.reason,
        "meets": here is not None and here[1] <= stated[2] and stated[1] <= here[2],
        "seconds": placed.seconds,
    }


def main() -> None:
    """Compare the figure."""
    given = parser(__doc__).parse_args()
    with own_record() as record:
        publish({"benchmark": "readme", **figures(record)}, given)


if __name__ == "__main__":
    main()

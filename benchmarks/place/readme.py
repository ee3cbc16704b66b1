"""Whether the first figure of README.md still holds: its command is run here, and the intervals of the gain must meet.

The gain is that of the choice over the best backend alone. It is a figure of the machine that the README names: on
another one only `kind` need be the same. Prints one JSON document.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import model_path, own_record, parser, publish

README = Path(__file__).parents[2] / "README.md"
_FIGURE = re.compile(r"\$ gnomon place (\S+)\nMix: .*? ([0-9.]+) times as fast as .*?\[([0-9.]+), ([0-9.]+)\]", re.S)


def figures(record: Path) -> dict[str, Any]:
    """What the README says, and what the same command says here."""
    found = _FIGURE.search(README.read_text("utf-8"))
    assert found is not None, "README.md begins with another answer"
    name, *numbers = found.groups()
    told = [float(number) for number in numbers]
    with tempfile.TemporaryDirectory() as folder:
        placed = gnomon.place(model_path(name), out=Path(folder) / "out", record=record, fresh=True, picture=False)
    gain = placed.decision.speedup_vs_best_single
    here = None if gain is None else [gain.ratio, gain.low, gain.high]
    meets = False
    if gain is not None and gain.low is not None and gain.high is not None:
        meets = gain.low <= told[2] and told[1] <= gain.high
    return {
        "model": name,
        "kind": placed.decision.kind,
        "readme": told,
        "here": here,
        "meets": meets,
        "seconds": placed.seconds,
    }


def main() -> None:
    """The one figure."""
    given = parser(__doc__).parse_args()
    with own_record() as record:
        publish({"benchmark": "readme", **figures(record)}, given)


if __name__ == "__main__":
    main()

"""Measures commands whose times are known, as configurations. Prints one JSON document.

1. Intervals: `gnomon profile` of a program that prints times with a known median (steady; rising by a tenth while it
   runs; two modes; heavy tails), --repeats times each, with gnomon's defaults. Target: 95 of 100 intervals contain the
   median.
2. Bad programs: one that crashes, one that ends with an error status, one that hangs, one that prints no times, and one
   that never stops printing. Target: a clear reason for each, and nothing hangs.
3. Pairs: `gnomon compare --command A --command B` for --pairs live pairs of equal programs, and as many in which the
   second program is 3 % slower; and --replayed of each kind, with the same test on drawn levels. Target: at most 4 of
   100 equal pairs are told apart, and at least 90 of 100 slower programs are detected.
"""

from __future__ import annotations

import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from benchmarks.common import own_record, parser, publish, spread
from benchmarks.compare.worlds import World
from gnomon.core.stats import Side, compare_by_turns
from gnomon.errors import GnomonError

_PROGRAM = """
import math, random, sys
world, runs, ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
luck = random.gauss(0.0, 0.005)
for k in range(runs):
    call = random.gauss(0.0, 0.02)
    if world == "rising":
        call += 0.1 * (k / runs - 0.5)
    elif world == "two modes":
        call += 0.3 * (random.random() < 0.3)
    elif world == "heavy tails":
        call = abs(random.gauss(0.0, 1.0)) / max(abs(random.gauss(0.0, 1.0)), 1e-3) * 0.02
    print(f"took {ms * math.exp(luck + call):.6f} ms")
"""
_MEDIANS = {"steady": 1.0, "rising": 1.0, "two modes": 1.0, "heavy tails": float(np.exp(0.02))}
"""The median of a call's factor, by world; `_two_modes` computes that of two modes.

The logarithm of a heavy-tailed factor is 0.02 times |Cauchy|, whose median is 1.
"""
_BAD = {
    "crash": "import os; os.kill(os.getpid(), 11)",
    "status": "raise SystemExit('no such delegate')",
    "hang": "import time; time.sleep(600)",
    "garbage": "print('took a while')",
    "endless": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
}
_READ = "took (?P<ms>[0-9.]+) ms"
_SLOWER = 1.03


def _two_modes() -> float:
    """The median if seven of ten calls are normal with a deviation of 2 %, and three take 30 % longer."""
    normal = statistics.NormalDist(0.0, 0.02)
    low, high = -0.1, 0.4
    for _ in range(60):
        middle = (low + high) / 2
        below = 0.7 * normal.cdf(middle) + 0.3 * normal.cdf(middle - 0.3)
        low, high = (middle, high) if below < 0.5 else (low, middle)
    return float(np.exp(low))


def intervals(line: Callable[[str, float], str], model: Path, record: Path, repeats: int) -> dict[str, Any]:
    """How often an interval contains the program's known median."""
    told = {}
    for world, factor in {**_MEDIANS, "two modes": _two_modes()}.items():
        rows = []
        for _ in range(repeats):
            found = gnomon.profile(
                model, commands=[line(world, 2.0)], read=[_READ], runtimes=("program",), record=record, fresh=True
            )
            wall = found.columns[0].wall
            low_s, high_s = wall.low_s or 0.0, wall.high_s or 0.0
            rows.append({"median_ms": wall.median_s * 1e3, "low_ms": low_s * 1e3, "high_ms": high_s * 1e3})
        held = sum(row["low_ms"] <= 2.0 * factor <= row["high_ms"] for row in rows)
        told[world] = {
            "true_ms": 2.0 * factor,
            "held": held,
            "of": repeats,
            "half_width": spread([(row["high_ms"] - row["low_ms"]) / 2 / row["median_ms"] for row in rows]),
        }
    return told


def bad_programs(folder: Path, model: Path, record: Path) -> dict[str, Any]:
    """The message about each program, and how long it took to appear."""
    told = {}
    for name, text in _BAD.items():
        (folder / f"{name}.py").write_text(text)
        line = shlex.join([sys.executable, str(folder / f"{name}.py"), "{model}"])
        began = time.monotonic()
        try:
            gnomon.profile(model, commands=[line], read=[_READ], runtimes=(name,), record=record, timeout_s=5.0)
            message = ""
        except GnomonError as error:
            message = error.message
        told[name] = {"seconds": round(time.monotonic() - began, 1), "message": message}
    return told


def live_pairs(line: Callable[[str, float], str], model: Path, record: Path, pairs: int) -> dict[str, Any]:
    """The verdicts on measured pairs."""
    told = {}
    for name, factor in (("equal", 1.0), ("slower by 3 %", _SLOWER)):
        verdicts = []
        for _ in range(pairs):
            pair = gnomon.compare(
                model, commands=[line("steady", 2.0), line("steady", 2.0 * factor)], read=[_READ], record=record
            ).pairs[0]
            verdicts += [row.verdict for row in pair.configurations]
        told[name] = {verdict: verdicts.count(verdict) for verdict in ("slower", "faster", "same", "unknown")}
    return told


def replayed_pairs(count: int) -> dict[str, Any]:
    """How often the test for alternating runs tells two sides of 30 drawn processes apart, each process with a random
    factor of 1 %.
    """
    world = World(name="60 processes by turns", processes=60, wander=0.02)
    rng = np.random.default_rng(1)
    told = {}
    for name, factor in (("equal", 1.0), ("slower by 3 %", _SLOWER)):
        apart = 0
        for _ in range(count):
            ((drawn,),) = world.runs(rng, 1)
            levels, moments = np.reshape(drawn.levels_s, (-1, 2)), np.reshape(drawn.moments_s, (-1, 2))
            levels[1::2] = levels[1::2, ::-1]  # each side is first in half of the turns
            sides = [
                Side(levels_s=tuple(levels[:, side] * slower), moments_s=tuple(moments[:, side]))
                for side, slower in enumerate((1.0, factor))
            ]
            apart += compare_by_turns(*sides).p < 0.01
        told[name] = {"told_apart": apart, "of": count}
    return told


def main() -> None:
    """Run all parts."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=25)
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--replayed", type=int, default=100)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as text, own_record() as record:
        folder = Path(text)
        model, program = folder / "net.bin", folder / "program.py"
        model.write_bytes(b"a model that nobody reads")
        program.write_text(_PROGRAM)

        def line(world: str, ms: float) -> str:
            return shlex.join([sys.executable, str(program), world, "{runs}", str(ms), "{model}"])

        publish(
            {
                "benchmark": "commands",
                "intervals": intervals(line, model, record, given.repeats),
                "bad_programs": bad_programs(folder, model, record),
                "pairs": live_pairs(line, model, record, given.pairs),
                "replayed": replayed_pairs(given.replayed),
            },
            given,
        )


if __name__ == "__main__":
    main()

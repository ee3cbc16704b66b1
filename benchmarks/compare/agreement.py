"""How often `gnomon compare` wrongly tells equal runs apart, and how often it detects a real difference.

Prints a JSON document. In each simulated world (see worlds.py), --pairs pairs are compared. The benchmark counts pairs
in which any configuration is called slower or faster although nothing changed, and configurations that are detected if
one side is really slower by 1, 3 or 10 %. There are quiet worlds and worlds whose sessions differ; `compare` is tried
with several assumed differences between sessions, and with earlier runs to learn from. Worlds with ten or more
configurations get a tenth of the pairs.

With --data DIR, the real runs in that folder (see runs.py) are compared too, after more of them have been made for
--seconds. They are cut into disjoint consecutive sides of several sizes, each of which belongs to one pair of equal
sides. In pairs with a neighbour, one side comes from a run with the neighbour and the other from the preceding run. In
ramps, times grow by 5 % from the first process of a pair to its last. Scaled documents are these pairs with all times
of the second side multiplied by 1.01, 1.03 and 1.1; the models that are really slower by 1 and 3 % are compared with
the preceding run.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from benchmarks.common import parser, publish
from benchmarks.compare.runs import measure, stretches
from benchmarks.compare.worlds import WORLDS, World
from gnomon.core.stats import FEWEST_RUNS, Sessions, Side, compare_apart, granted_sessions, sessions_of
from gnomon.jobs.compare.job import SESSIONS, levels_of
from gnomon.session.document import SampleColumns

ALPHA, RELEVANT = 0.01, 0.01
EFFECTS = (0.01, 0.03, 0.1)
SIZES = (3, 6, 12, 36)
_KNOWN = ((0, SESSIONS), (FEWEST_RUNS, 0.0), (8, 0.0))
"""The earlier runs, and the difference between sessions that is assumed if there are too few of them."""
Pair = tuple[dict[str, Any], dict[str, Any]]


def called(before: Sequence[Side], after: Sequence[Side], sessions: Sequence[Sessions | None]) -> list[int]:
    """The verdict of the job on each configuration: 1 slower, -1 faster, 0 neither."""
    found = [compare_apart(a, b, sessions=s) for a, b, s in zip(before, after, sessions, strict=True)]
    intervals = [one.interval(ALPHA / len(found)) for one in found]
    return [
        int(
            math.copysign(
                not low <= 1 <= high and abs(math.log(one.ratio)) >= math.log1p(RELEVANT) / 2, math.log(one.ratio)
            )
        )
        for one, (low, high) in zip(found, intervals, strict=True)
    ]


def world(given: World, pairs: int, earlier: int, assumed: float) -> dict[str, Any]:
    """The false alarms and the detected differences in one world, by earlier runs and by the difference assumed without
    them.
    """
    rng = np.random.default_rng(20)
    pairs = pairs if given.configurations < 10 else -(-pairs // 10)
    wrong, found = 0, dict.fromkeys(EFFECTS, 0)
    for _ in range(pairs):
        *before, first, second = given.runs(rng, 2 + earlier)
        granted = granted_sessions(assumed)
        learnt = [sessions_of([[run[c] for run in before]]) or granted for c in range(given.configurations)]
        wrong += any(called(first, second, learnt))
        for effect in EFFECTS:
            slower = [replace(one, levels_s=tuple(s * (1 + effect) for s in one.levels_s)) for one in second]
            found[effect] += called(first, slower, learnt).count(1)
    return {
        "world": given.name,
        "earlier_runs": earlier,
        "assumed": assumed,
        "pairs": pairs,
        "false_alarms": wrong,
        "configurations": pairs * given.configurations,
        "found": {f"{effect:.0%}": count for effect, count in found.items()},
    }


def changed(document: dict[str, Any], factor: Callable[[float], float]) -> dict[str, Any]:
    """The document with all times multiplied by the factor for the moment at which their process started."""
    made = copy.deepcopy(document)
    for column in made["columns"]:
        samples = column["runs"]["samples"]
        for clock in ("wall_us", "cpu_us"):
            samples[clock] = [
                [value * factor(at_s) for value in block]
                for block, at_s in zip(samples[clock], samples["started_at_s"], strict=True)
            ]
    return made


def ramped(pair: Pair, growth: float) -> Pair:
    """Both sides on a machine that gets slower from the first process to the last."""
    at_s = [t for side in pair for column in side["columns"] for t in column["runs"]["samples"]["started_at_s"]]
    start, end = min(at_s), max(at_s)
    first, second = (changed(side, lambda t: 1 + growth * (t - start) / (end - start)) for side in pair)
    return first, second


def verdicts(pairs: Iterable[Pair], folder: Path) -> dict[str, int]:
    """How many pairs got each verdict of `gnomon.compare`, without earlier runs and with no assumed difference between
    sessions.
    """
    empty = folder / "record.sqlite"
    empty.touch()
    told = dict.fromkeys(("slower", "faster", "same", "unknown"), 0)
    for pair in pairs:
        files = [folder / name for name in ("before.json", "after.json")]
        for file, side in zip(files, pair, strict=True):
            file.write_text(json.dumps(side), encoding="utf-8")
        (row,) = (
            gnomon.compare(*files, record=empty, alpha=ALPHA, relevant=RELEVANT, sessions=0.0).pairs[0].configurations
        )
        told[row.verdict] += 1
    return told


def real(data: Path, size: int, folder: Path) -> dict[str, Any]:
    """The runs of a folder, cut into sides of this many processes."""
    runs = [(path.stem.split("-", 2)[2], json.loads(path.read_text("utf-8"))) for path in sorted(data.glob("run-*"))]
    cut = [(kind, stretches(document, size)) for kind, document in runs]
    plain = [side for kind, sides in cut if kind == "100" for side in sides]
    equal = list(zip(plain[::2], plain[1::2], strict=False))
    beside = {kind: _with_the_run_before(cut, kind) for kind in ("100-busy", "101", "103")}
    found = {
        "equal": verdicts(equal, folder),
        "equal, in a ramp of 5 %": verdicts([ramped(pair, 0.05) for pair in equal], folder),
        "equal, a neighbour beside the second": verdicts(beside["100-busy"], folder),
    }
    for effect in EFFECTS:
        scaled = [(a, changed(b, lambda _, by=effect: 1 + by)) for a, b in equal]  # type: ignore[misc]
        found[f"documents scaled by {effect:.0%}"] = verdicts(scaled, folder)
    found |= {f"a model slower by {int(kind) - 100} %": verdicts(beside[kind], folder) for kind in ("101", "103")}
    columns = [[SampleColumns(**column["runs"]["samples"]) for column in side["columns"]] for side in plain]
    levels = [[levels_of(samples, "cpu") for samples in side] for side in columns]
    # The other runs of the same model stand for the earlier runs in a results database.
    learnt = [
        any(called(levels[k], levels[k + 1], [sessions_of([[s[0] for s in levels[:k] + levels[k + 2 :]]])]))
        for k in range(0, len(levels) - 1, 2)
    ]
    scatter = [float(np.log(side[0].levels_s).std(ddof=1)) for side in levels]
    centres = [float(np.log(side[0].levels_s).mean()) for side in levels]
    return {
        "processes": size,
        "verdicts": found,
        "false_alarms_learning_from_the_other_runs": {"pairs": len(learnt), "wrong": sum(learnt)},
        "scatter_within_a_side": float(np.median(scatter)),
        "scatter_of_sides": float(np.std(centres, ddof=1)) if len(centres) > 1 else None,
    }


def _with_the_run_before(cut: Sequence[tuple[str, list[dict[str, Any]]]], kind: str) -> list[Pair]:
    """The sides of the runs of a kind, each paired with the corresponding side of the preceding plain run."""
    found: list[Pair] = []
    for (earlier, before), (later, after) in itertools.pairwise(cut):
        if later == kind and earlier.startswith("100"):
            found += zip(before, after, strict=True)
    return found


def main() -> None:
    """Compare in simulated worlds, and compare the real runs of the folder."""
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=1000, help="simulated pairs of a world")
    options.add_argument("--seconds", type=float, default=0.0, help="make real runs for so long first")
    given = options.parse_args()
    document: dict[str, Any] = {"benchmark": "compare", "alpha": ALPHA, "relevant": RELEVANT}
    document["worlds"] = [
        world(one, given.pairs, earlier, assumed)
        for one in WORLDS
        for earlier, assumed in ((0, 0.0), *(_KNOWN if one.session or "quiet" in one.name else ()))
        if given.pairs
    ]
    if given.data:
        if given.seconds:
            measure(given.data, given.seconds)
        with tempfile.TemporaryDirectory() as folder:
            document["real"] = [real(given.data, size, Path(folder)) for size in SIZES]
    publish(document, given)


if __name__ == "__main__":
    main()

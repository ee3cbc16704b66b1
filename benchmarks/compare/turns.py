"""How often `gnomon compare OLD NEW` is wrong, and what it detects, when it measures two models alternately.

In a series, as measured by `--record`, a model alternates with itself (`runs.chain`, 5 ms a call, one thread). For each
turn the series has the levels of both processes and the duration of the turn. `series.json` has some series, with the
load of the machine on which they were measured. Each series is replayed: stretches of its turns are drawn, and go
through the looks, bounds and verdicts of `gnomon.core.decision` until the verdict is certain or the budget is used up.
Target: no equal pair is called slower or faster; differences are detected if the times of the second process are
multiplied by 1.01, 1.03 or 1.05; and a gate of 3 % never passes a difference of 5 %. In drifts, all times grow by 5 %
during a stretch. Live pairs are in `live_pairs.py`.
"""

from __future__ import annotations

import json
import os
import tempfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from benchmarks.common import own_record, parser, publish
from benchmarks.compare.runs import PLAIN, chain
from benchmarks.compare.worlds import World
from gnomon.core.decision import Bounds, Looks, Rule, joint_bounds
from gnomon.core.stats import Side, compare_by_turns
from gnomon.jobs.compare.job import levels_of

_SERIES = Path(__file__).parent / "series.json"
_WORLDS = (
    World(name="simulated: processes scatter by 0.5 %", processes=2000, luck=0.005),
    World(name="simulated: 1 %", processes=2000),
    World(name="simulated: 1 %, heavy tails", processes=2000, heavy=True),
    World(
        name="simulated: 0.7 %, speed wanders by 2 % in 10 s", processes=2000, luck=0.007, wander=0.02, memory_s=10.0
    ),
)
_TOGETHER = 10
"""The number of consecutive turns that are drawn together, so that drawn stretches keep effects that last for several
turns.
"""
_TURN_S = 1.5
_DRIFT = 0.05
_EFFECTS = (0.0, 0.01, 0.03, 0.05)
_LIMIT = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A model measured alternately with itself: both levels and the duration in seconds of each turn."""

    name: str
    first_s: tuple[float, ...]
    second_s: tuple[float, ...]
    turn_s: tuple[float, ...]

    def sides(self, turns: int) -> list[Side]:
        """Both sides of the first turns."""
        moments = tuple(map(float, range(turns)))
        return [Side(levels_s=levels[:turns], moments_s=moments) for levels in (self.first_s, self.second_s)]


def recorded(name: str, turns: int, record: Path, folder: Path) -> dict[str, Any]:
    """A measured series of this many turns."""
    model, load = chain(folder, PLAIN), os.getloadavg()[0]
    found = gnomon.compare(
        model, model, runtimes=("onnxruntime",), threads=1, processes=turns, record=record, fresh=True
    )
    clock = found.pairs[0].clock
    answers = [gnomon.read_document(gnomon.answer_of_run(side.campaign, record=record) or {}) for side in found.sides]
    sides = [levels_of(answer.columns[0].runs.samples, clock) for answer in answers]  # type: ignore[arg-type]
    begun = np.minimum(sides[0].moments_s, sides[1].moments_s)
    return {
        "name": name,
        "clock": clock,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "first_s": [round(level, 8) for level in sides[0].levels_s],
        "second_s": [round(level, 8) for level in sides[1].levels_s],
        "turn_s": [round(float(s), 2) for s in (*np.diff(begun), np.median(np.diff(begun)))],
    }


def simulated(world: World) -> Series:
    """A simulated series from a world. Each process is first in half of the turns; a turn takes as long as its two
    processes.
    """
    ((run,),) = world.runs(np.random.default_rng(40), 1)
    levels = np.reshape(run.levels_s, (-1, 2))
    levels[1::2] = levels[1::2, ::-1]
    first, second = levels.T.tolist()
    return Series(name=world.name, first_s=tuple(first), second_s=tuple(second), turn_s=(_TURN_S,) * len(levels))


def drawn(series: Series, effect: float, drift: float, budget_s: float, rng: np.random.Generator) -> Series:
    """A stretch of turns that uses up the budget, in which the second side is slower by an effect."""
    levels = np.asarray((series.first_s, series.second_s))
    count, at, second = len(series.turn_s), np.empty(0, dtype=int), np.empty(0, dtype=int)
    while sum(turn_s := np.asarray(series.turn_s)[at]) < budget_s:
        at = np.append(at, (rng.integers(count) + np.arange(_TOGETHER)) % count)
        # Both sides are the same model. Which of them is called the second is drawn too; otherwise, random
        # differences of a series would affect all stretches in the same direction.
        second = np.append(second, np.full(_TOGETHER, rng.integers(2)))
    speed = 1 + drift * np.cumsum(turn_s) / budget_s
    # The process that goes second in a turn is further along in the drift.
    ahead = drift * turn_s / budget_s / 2 * np.where(np.arange(len(at)) % 2, -1, 1)
    return Series(
        name=series.name,
        first_s=tuple(levels[1 - second, at] * speed),
        second_s=tuple(levels[second, at] * (speed + ahead) * (1 + effect)),
        turn_s=tuple(turn_s),
    )


def decided(series: Series, budget_s: float, limit: float | None) -> tuple[Bounds, float]:
    """The verdict of the command on a series, and the seconds until the verdict."""
    rule, looks, used_s = Rule(alpha=0.01, relevant=0.01, limit=limit), Looks(budget_s), 0.0
    for turn, took_s in enumerate(series.turn_s, 1):
        used_s += took_s
        if not (share := looks.share(used_s, turn)):
            continue
        look = Rule(alpha=rule.alpha * share, relevant=rule.relevant, limit=limit)
        bounds = joint_bounds({"one": (compare_by_turns(*series.sides(turn)), True)}, look)["one"]
        if looks.are_over or bounds.is_decided:
            break
    return bounds, used_s


def replayed(series: Series, effect: float, drift: float, budget_s: float, count: int) -> dict[str, Any]:
    """The verdicts on this many drawn stretches, with and without a limit."""
    rng = np.random.default_rng(41)
    told: dict[str, Any] = {"effect": effect, "drift": drift, "budget_s": budget_s, "of": count}
    for limit in (None, _LIMIT):
        found = [decided(drawn(series, effect, drift, budget_s, rng), budget_s, limit) for _ in range(count)]
        words = [bounds.gate or bounds.change for bounds, _ in found]
        told["change" if limit is None else "gate"] = {word: words.count(word) for word in sorted(set(words))}
        told["seconds" if limit is None else "gate_seconds"] = round(float(np.median([s for _, s in found])), 1)
        sees = [bounds.sees for bounds, _ in found if bounds.sees is not None]
        told["sees" if limit is None else "gate_sees"] = round(float(np.median(sees)), 4)
    return told


def _given() -> Namespace:
    options = parser(__doc__)
    options.add_argument("--record", metavar="NAME", help="measure a series, and add it to series.json")
    options.add_argument("--turns", type=int, default=150, help="how many turns that has")
    options.add_argument("--replays", type=int, default=300, help="how often each series is replayed")
    return options.parse_args()


def main() -> None:
    """Record a series, or replay all series."""
    given = _given()
    known = json.loads(_SERIES.read_text("utf-8")) if _SERIES.exists() else []
    if given.record:
        with tempfile.TemporaryDirectory() as folder, own_record() as record:
            known.append(recorded(given.record, given.turns, record, Path(folder)))
        _SERIES.write_text(json.dumps(known) + "\n", encoding="utf-8")
    series = [Series(**{name: one[name] for name in Series.__dataclass_fields__}) for one in known]
    apart = {one.name: compare_by_turns(*one.sides(len(one.turn_s))) for one in series}
    own = {name: {"ratio": found.ratio, "error": found.error} for name, found in apart.items()}
    told = {
        one.name: [
            replayed(one, effect, drift, budget_s, given.replays)
            for budget_s in (60.0, 300.0)
            for effect, drift in (*((effect, 0.0) for effect in _EFFECTS), (0.0, _DRIFT))
        ]
        for one in (*series, *map(simulated, _WORLDS))
    }
    publish({"benchmark": "compare by turns", "own": own, "series": told}, given)


if __name__ == "__main__":
    main()

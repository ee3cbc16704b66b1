"""An exhaustive front of onert on real models, and how well the searches and the additive prices approximate it.

For each model, every combination of operator type x backend, planner, executor and number of threads is run by `gnomon
pareto --search brute`, `--repeats` times: latency and peak memory of a fresh process each, of which the medians count.
Then each search runs on these recorded figures with ten seeds (see searches.py, for which `--tables DIR` writes the
table of a space). In addition, twenty random placements of operator types, with the usual options, are predicted from
the profiles of the single backends, as for `--search exact`. They are run interleaved with the fastest single backend,
whose own drift is removed, and are compared with the predictions.
"""

from __future__ import annotations

import csv
import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import model_path, own_record, parser, publish, spread
from benchmarks.search.searches import examine, summary
from benchmarks.search.spaces import Priced
from gnomon.api.pareto import pareto
from gnomon.core.front.dominance import nondominated
from gnomon.core.space import Slot, Space
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.pareto.job import latency_model, priced_model
from gnomon.jobs.pareto.space import decision_space
from gnomon.jobs.place.inside import inside_placer
from gnomon.measure.progress import Progress
from gnomon.session.contender import Anchor, choose_clock, level, measure_beside, profile_singles
from gnomon.session.model_session import open_session
from gnomon.session.objectives import LATENCY
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest

MODELS = ("mix.circle", "efficientnet-lite0.circle")
TUNINGS = {"planner": (), "executor": (), "threads": ("1", "2")}
DRAWN = 20


def exhausted(name: str, repeats: int, folder: Path | None) -> tuple[dict[str, Any], Priced]:
    """Every assignment of a model, run this many times."""
    start = time.monotonic()
    runs = []
    for _ in range(repeats):
        with own_record() as record:
            runs.append(once(name, record))
    tables = [_priced(name, found) for found in runs]
    costs = np.median([table.costs for table in tables], axis=0)  # assignments that failed once are left out
    priced = replace(tables[0], costs=costs)
    found, space = runs[-1], priced.space
    objectives = tuple(objective.name for objective in found.objectives)
    if folder is not None:
        write_table(folder / f"{name}.csv", priced, objectives)
    told = costs[~np.isnan(costs).any(axis=1)]
    ratios = [(b.costs / a.costs)[~np.isnan(a.costs + b.costs)[:, 0]] for a, b in itertools.pairwise(tables)]
    return {
        "space": {slot.name: list(slot.choices) for slot in space.slots},
        "assignments": space.size,
        "failed": int(np.isnan(costs).any(axis=1).sum()),
        "repeats": repeats,
        "from_run_to_run": {
            goal: spread([abs(v - 1) for r in ratios for v in r[:, k].tolist()]) for k, goal in enumerate(objectives)
        }
        if ratios
        else None,
        "seconds": round(time.monotonic() - start, 1),
        "seconds_each": round(found.search.seconds / len(found.samples), 3),
        "latency_s": spread(told[:, 0].tolist()),
        "peak_memory_bytes": spread(told[:, 1].tolist()),
        "sampled_front": len(nondominated(np.nan_to_num(tables[-1].costs, nan=np.inf))),
        "measured_front": [
            {
                "choices": point.label,
                "estimates": [[e.low, e.value, e.high] for e in point.estimates or ()],
                "sampled": point.sampled,
            }
            for point in found.front
        ],
    }, priced


def once(name: str, record: Path) -> ParetoDocument:
    """Every assignment of a model, run once."""
    shown = -1

    def watch(progress: Progress) -> None:
        nonlocal shown
        if progress.stage == "search" and progress.done // 50 != shown:
            shown = progress.done // 50
            print(f"{name}: {progress.done} of {progress.total}", file=sys.stderr, flush=True)

    return pareto(
        model_path(name),
        runtimes=["onert"],
        by="type",
        tunings=TUNINGS,
        search="brute",
        record=record,
        on_progress=watch,
    )


def _priced(name: str, found: ParetoDocument) -> Priced:
    slots, count = tuple(Slot(slot.name, slot.choices) for slot in found.space.slots), found.space.operator_slots
    backends = tuple(dict.fromkeys(backend for slot in slots[:count] for backend in slot.choices))
    space, codes = Space(slots), Space((*(Slot(slot.name, backends) for slot in slots[:count]), *slots[count:]))
    costs = np.full((space.size, len(found.objectives)), np.nan)
    for sample in found.samples:
        if sample.cost is not None:
            costs[space.encode(space.indices(codes.names(codes.decode(int(sample.code)))))] = sample.cost
    return Priced(name=name, space=space, costs=costs)


def write_table(path: Path, priced: Priced, objectives: tuple[str, ...]) -> None:
    """Write the table of a space in the form that `search/searches.py --data` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"slot:{s.name}" for s in priced.space.slots), *(f"cost:{name}" for name in objectives)])
        for code, cost in enumerate(priced.costs):
            values = ["" if np.isnan(v) else repr(float(v)) for v in cost]
            writer.writerow([*priced.space.names(priced.space.decode(code)), *values])


def predicted(name: str, record: Path) -> dict[str, Any]:
    """Twenty random placements of operator types: times predicted from the profiles, and times of whole runs."""
    request = ModelRequest(model=model_path(name), runtimes=("onert",), record=record, fresh=True)
    with open_session(request, kind="additive", question={}) as session:
        space = decision_space(session, "type", {})
        reference(session)
        placer = inside_placer(session, space.chosen_target((0,) * len(space.space.slots)))
        alive = profile_singles(session, placer.singles())
        clock = choose_clock(session, (session.runner.known(c.key) for c in alive))
        model = priced_model(space, latency_model(placer.run(alive, clock)), 0.0, {}, (LATENCY,))
        drawn = random_assignments(space.space, DRAWN)
        guessed = model.evaluate(np.array(drawn))[:, 0]
        contenders = [space.contender(session, a) for a in drawn]
        effort = replace(request.effort, processes_least=3, processes_most=3, laggard=1e9)
        fastest = min(alive, key=lambda c: level(session.runner.known(c.key), clock))
        anchor = Anchor(candidate=fastest.candidate, clock=clock)
        candidates = [replace(c.candidate, key=f"additive/{c.key}") for c in contenders]
        measured, factor = measure_beside(session.runner, "additive", candidates, anchor, effort)
        rows: list[dict[str, Any]] = []
        for candidate, contender, guess in zip(candidates, contenders, guessed.tolist(), strict=True):
            seen = measured[candidate.key]
            got = level(seen, clock) * factor[candidate.key] if seen.ok else None
            error = guess / got - 1 if got else None
            rows.append({"choices": contender.label, "predicted_s": guess, "measured_s": got, "error": error})
        errors = [abs(row["error"]) for row in rows if row["error"] is not None]
        return {
            "clock": clock,
            "absolute_error": spread(errors),
            "drift": spread(list(factor.values())),
            "placements": rows,
        }


def random_assignments(space: Space, count: int) -> list[tuple[int, ...]]:
    """Distinct random assignments of a space, at most as many as it has."""
    rng = np.random.default_rng(2026)
    codes = rng.choice(space.size, size=min(count, space.size), replace=False)
    return [space.decode(int(code)) for code in codes]


def main() -> None:
    """Run all models."""
    own = parser(__doc__, MODELS)
    own.add_argument("--repeats", type=int, default=3, help="how often each assignment is run")
    own.add_argument("--tables", type=Path, help="write the table of each space into this folder")
    given = own.parse_args()
    rows, spaces = [], []
    for name in given.models:
        row, priced = exhausted(name, given.repeats, given.tables)
        with own_record() as record:
            rows.append({"model": name, **row, "additive": predicted(name, record)})
        spaces.append(examine(priced))
    publish({"benchmark": "pareto_onert", "models": rows, "summary": summary(spaces), "searches": spaces}, given)


if __name__ == "__main__":
    main()

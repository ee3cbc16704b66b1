"""Placements of several devices made by hand: other times on each, other prices, other choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.cli import placement_kit as kit

from gnomon.core.solver.solve import solve
from gnomon.jobs.place.common_plan import model_of
from gnomon.jobs.place.inside import InsideResult
from gnomon.jobs.place.job import Placement
from gnomon.session.contender import Proved
from gnomon.session.prove import Verdict

INF = float("inf")


def inside(prices_s: list[list[float]], backends: tuple[str, ...] = ("cpu", "ruy")) -> InsideResult:
    """Prices of the kit's four operators, solved."""
    result = InsideResult(
        target=kit.TARGET,
        backends=backends,
        prices_s=np.array(prices_s),
        solution=kit.solution(),
        contenders=(),
        refits=0,
        clock="cpu",
    )
    return replace(result, solution=solve(model_of(result, backends)))


def device(
    name: str, times_us: dict[str, int], prices_s: list[list[float]] | None = None, *, folder: Path = Path("out")
) -> Placement:
    """A device on which single backends (a name) and mixes ("cpu,cpu,ruy,ruy") took these times; the least is chosen.

    With prices, its choice inside onert is the prices' own optimum, and predicted by them.
    """
    result = None if prices_s is None else inside(prices_s)
    runs = {key: kit.measured(key, time) for key, time in times_us.items()}
    singles = [key for key in times_us if "," not in key]
    best = min(singles, key=lambda key: times_us[key])
    made: dict[str, Proved] = {}
    for key in times_us:
        assignment = tuple(key.split(",")) if "," in key else (key,) * 4
        predicted = None
        if result is not None and all(b in result.backends for b in assignment):
            predicted = float(sum(result.prices_s[i, result.backends.index(b)] for i, b in enumerate(assignment)))
        contender = kit.contender("single" if key in singles else "plan", f"onert:{key}", assignment, predicted)
        made[key] = kit.proved(contender, runs[key], runs[best], "cpu")
    chosen = made[min(times_us, key=lambda key: times_us[key])]
    verdict = Verdict(
        proved=tuple(made.values()), best_single=made[best], chosen=chosen, reason="It is the fastest.", clock="cpu"
    )
    planned = chosen.contender.backends
    base = kit.placement(folder=folder / name)
    return replace(
        base,
        device=name,
        verdict=verdict,
        rows=tuple(replace(row, planned=planned[row.index], ran_on=planned[row.index]) for row in base.rows),
        verified=replace(base.verified, places=planned),
        inside=() if result is None else (result,),
        package=folder / name,
    )

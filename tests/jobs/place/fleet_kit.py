"""Placements of several devices made by hand: other times on each, other choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.cli import placement_kit as kit

from gnomon.jobs.place.job import Placement
from gnomon.session.contender import Proved
from gnomon.session.prove import Verdict


def device(name: str, times_us: dict[str, int], *, folder: Path = Path("out")) -> Placement:
    """A device where single backends (a name) and mixes ("cpu,cpu,ruy,ruy") took these times; the least is chosen."""
    runs = {key: kit.measured(key, time) for key, time in times_us.items()}
    singles = [key for key in times_us if "," not in key]
    best = min(singles, key=lambda key: times_us[key])
    made: dict[str, Proved] = {}
    for key in times_us:
        assignment = tuple(key.split(",")) if "," in key else (key,) * 4
        contender = kit.contender("single" if key in singles else "plan", f"onert:{key}", assignment, None)
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
        package=folder / name,
    )

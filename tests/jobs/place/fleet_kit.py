"""Placements of several devices made by hand: other times on each, other choices."""

from __future__ import annotations

from pathlib import Path

from tests.cli import placement_kit as kit

from gnomon.jobs.place.document import PlaceDocument
from gnomon.session.contender import Proved
from gnomon.session.prove import Verdict


def device(name: str, times_us: dict[str, int], *, folder: Path = Path("out")) -> PlaceDocument:
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
    rows = kit.operators(chosen.contender.backends)
    return kit.document(verdict, rows, {}, device=name, package=str(folder / name))

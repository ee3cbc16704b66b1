"""The proof of an overlay: the ratios of networks that were measured side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnomon.core import codec
from gnomon.core.sample import Failure, Run, Samples
from gnomon.jobs.overlay.deploy import _network_row
from gnomon.measure.campaign import Measured


def blocks(*times_s: float) -> Measured:
    samples = [Samples(wall_ns=(round(t * 1e9),), cpu_ns=()) for t in times_s]
    runs = [Run(candidate="a", process=p, block=0, started_at_s=0.0, samples=s) for p, s in enumerate(samples)]
    return Measured(key="a", runs=tuple(runs), failure=None)


def test_ratios_are_paired_by_process() -> None:
    """Processes that differ fourfold, in each of which the choice takes 10 % longer."""
    own = (1.0, 4.0, 2.0)
    found = {
        "overlay": blocks(*(1.1 * t for t in own)),
        "own:phone": blocks(*own),
        "own:tablet": replace(blocks(), failure=Failure(stage="run", kind="hang", transient=False, message="")),
        "untuned": blocks(*(3.3 * t for t in own)),
    }
    rows = {name: codec.document(_network_row("phone", name, found)) for name in found}
    same = {"ratio": pytest.approx(1.1), "low": pytest.approx(1.1), "high": pytest.approx(1.1)}
    assert rows["overlay"]["to_own"] == same
    assert rows["overlay"]["to_overlay"] is None
    assert rows["own:phone"]["to_own"] is None
    assert rows["own:phone"]["to_overlay"]["high"] == pytest.approx(1 / 1.1)
    assert rows["untuned"]["to_overlay"]["low"] == pytest.approx(3.0)
    assert rows["own:tablet"]["to_own"] is rows["own:tablet"]["to_overlay"] is rows["own:tablet"]["time"] is None
    time = rows["overlay"]["time"]
    assert time["high_s"] is None or time["high_s"] > 2 * time["low_s"]  # by themselves they prove nothing


def test_one_process_gives_no_interval() -> None:
    row = codec.document(_network_row("a", "overlay", {"overlay": blocks(2.0), "own:a": blocks(1.0)}))
    assert row["to_own"] == {"ratio": pytest.approx(2.0), "low": None, "high": None}

"""`gnomon place` inside one session of ONNX Runtime: priced on several providers, proved, and run as a package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.runtimes.providerskit import NAMES, environment, net

from gnomon.core.pricing.transfers import AWAY, HOME, PlacedRun, TransferPrices, Wiring, fit_transfers
from gnomon.jobs.place import inside as pricing
from gnomon.jobs.place.inside import TransferPlacer
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session.contender import choose_clock, profile_singles
from gnomon.session.model_session import open_session
from gnomon.session.reference import reference
from gnomon.session.request import THIS_MACHINE, ModelRequest


def request(folder: Path, small: Effort, *backends: str) -> ModelRequest:
    return ModelRequest(
        model=net(folder),
        device=replace(THIS_MACHINE, environment=environment(*backends)),
        runtimes=("onnxruntime",),
        settings=RunSettings(backends=("cpu", *backends)),
        effort=small,
        record=folder / "record.sqlite",
    )


def turned(wiring: Wiring, runs: Sequence[PlacedRun], *, sides: int = 2) -> TransferPrices:
    """Prices by which every other node costs next to nothing away, and the rest at home, whatever was measured."""
    found = fit_transfers(wiring, runs, sides=sides)
    for k, prices_s in enumerate(found.own_s):
        cheap = AWAY if k % 2 == 0 else HOME
        for side in np.flatnonzero(np.isfinite(prices_s)):  # a fit may hold anything, also nothing, for what is short
            prices_s[side] = 1e-9 if side == cheap else 1e-5
    return replace(found, bring_s=((1e-9, 0.0),) * (sides - 1), fetch_s=((1e-9, 0.0),) * (sides - 1))


@pytest.mark.parametrize("backends", [("qnn",), ("webgpu",), ("qnn", "webgpu")], ids="+".join)
def test_every_node_is_priced_where_it_may_lie(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch, backends: tuple[str, ...]
) -> None:
    monkeypatch.setattr(pricing, "DRAWN", 2)
    with open_session(request(tmp_path, small, *backends), kind="place", question={}) as session:
        reference(session)
        (target,) = session.targets
        placer = TransferPlacer(session, target)
        alive = profile_singles(session, placer.singles())
        assert len(alive) == 1 + len(backends), session.missing
        clock = choose_clock(session, (session.runner.known(c.key) for c in alive))
        result = placer.run(alive, clock)
        assert not [m for m in session.missing if "pricing" in m.name]
    lacking = {backend: {NAMES.index("erf")} if backend == "qnn" else set[int]() for backend in backends}
    for side, backend in enumerate(backends, start=AWAY):
        infinite = set(np.flatnonzero(np.isinf(result.prices_s[:, side])).tolist())
        assert lacking[backend] <= infinite <= lacking[backend] | {NAMES.index("same")}
    assert np.isfinite(result.prices_s[:, HOME]).all()
    assert result.solution.optimal and len(result.solution.assignment) == len(NAMES)
    assert result.solution.value == pytest.approx(result.transfers.total_s(result.solution.assignment))
    for contender in result.contenders:
        assert contender.predicted_s == pytest.approx(result.transfers.total_s(placer.assignment(contender)))
        # What is folded away lies where the node does that it goes into.
        assert contender.backends[NAMES.index("same")] == contender.backends[NAMES.index("erf")]


def test_a_mix_is_proved_and_its_package_runs_where_planned(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "DRAWN", 2)
    monkeypatch.setattr(pricing, "fit_transfers", turned)
    found = place(request(tmp_path, small, "qnn"), tmp_path / "package")
    plan = next(contender for contender in found.contenders if contender.kind == "plan")
    assert plan.failure is None, plan.failure
    assert set(plan.assignment) == {"cpu", "qnn"}
    assert not found.verified.moved and found.verified.failure is None
    assert len([row.ran_on for row in found.operators if row.ran_on]) == len(NAMES)
    names = {path.name for path in (tmp_path / "package").iterdir()}
    assert {"session.json", "session.py", "genai_config.json"} <= names
